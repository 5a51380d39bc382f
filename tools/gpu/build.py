# SPDX-License-Identifier: Apache-2.0
"""Builds what only NVIDIA's compiler can build: programs/ of this folder and the chosen
cuda-samples, for sm_90, several at once.

gpu_run.py calls it on the GPU machine for what was not carried; prepare calls it where a
toolkit is installed. None of its output is committed. A sample becomes a folder with its
sources and data, the executable and the device code that it loads.
"""

import concurrent.futures
import os
import pathlib
import shutil
import site
import subprocess
import sys
import sysconfig
import time

import catalog

FLAGS = ["-O2", "-std=c++17", "-arch=sm_90", "-w", "-Xcompiler", "-w"]
PROGRAM_FLAGS = {
    "runtime_streams": ["-cudart", "shared"],
    "per_thread_stream": ["--default-stream", "per-thread"],
    "driver_program": ["-lcuda"],
    "virtual_memory": ["-lcuda"],
    "nested_launch": ["-rdc=true"],
    "graph_nodes": ["-rdc=true"],
    "jit_logs": ["-lcuda"],
    "stream_memory": ["-lcuda"],
    "tensor_map": ["-lcuda"],
    "green_context": ["-lcuda"],
    "sticky_errors": ["-lcuda"],
    "nvrtc_program": ["-lnvrtc", "-lcuda"],
    "cublas_gemm": ["-lcublas"],
    "cufft_program": ["-lcufft"],
    "curand_program": ["-lcurand"],
    "cusolver_program": ["-lcusolver", "-lcublas"],
}
SOURCE_ENDINGS = (".cu", ".cpp", ".cc", ".c")


def toolkit():
    """The toolkit's folder, or None."""
    nvcc = shutil.which("nvcc")
    for folder in filter(
        None,
        [
            os.environ.get("CUDA_HOME"),
            "/usr/local/cuda",
            str(pathlib.Path(nvcc).resolve().parent.parent) if nvcc else None,
        ],
    ):
        if os.access(f"{folder}/bin/nvcc", os.X_OK):
            return pathlib.Path(folder)
    return None


def library_folders():
    """Where the toolkit's shared libraries are: its own folder, then those of python packages."""
    found = []
    if toolkit():
        found += [toolkit() / "lib64", toolkit() / "targets/x86_64-linux/lib"]
    for packages in {sysconfig.get_paths()["purelib"], *site.getsitepackages()}:
        found += sorted(pathlib.Path(packages).glob("nvidia/*/lib"))
    return [str(folder) for folder in found if folder.is_dir()]


def library_path():
    return ":".join(library_folders())


def nvcc(arguments, cwd, log):
    command = [str(toolkit() / "bin/nvcc"), *arguments]
    done = subprocess.run(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
    )
    with open(log, "a") as file:
        ended = "" if done.returncode == 0 else f"status {done.returncode}\n"
        file.write(" ".join(command) + "\n" + done.stdout + ended)
    return done.returncode == 0


def link_flags(libraries):
    """Libraries, and where the stub of libcuda and the rest are found when linking."""
    folders = [f"-L{folder}" for folder in library_folders()]
    folders += [
        f"-L{folder}/stubs" for folder in library_folders() if os.path.isdir(f"{folder}/stubs")
    ]
    return folders + libraries


def build_program(source, target, logs):
    """One file of programs/."""
    name = source.stem
    log = logs / f"build-{name}.log"
    part = target.with_name(name + ".part")
    if not nvcc(
        [*FLAGS, "-o", str(part), str(source), *link_flags(PROGRAM_FLAGS.get(name, []))],
        source.parent,
        log,
    ):
        return False
    strip(part)
    part.rename(target)
    return True


def strip(path):
    if shutil.which("strip"):
        subprocess.run(["strip", str(path)], check=False)


class Recipe:
    """The last field of a line of samples.txt, taken apart. Its words: a file name is a source
    (default: all in the folder; Common/X is the samples' shared one). -x is for nvcc.
    fatbin:A:B and ptx:A:B are device code B made from A, no source. headers: toolkit headers
    that an NVRTC program looks for beside itself."""

    def __init__(self, words):
        self.sources = [w for w in words if w.endswith(SOURCE_ENDINGS) and ":" not in w]
        self.flags = [w for w in words if w.startswith("-")]
        self.device = [w.split(":") for w in words if w.startswith(("fatbin:", "ptx:"))]
        self.headers = "headers" in words


def build_sample(tree, folder, words, built, logs, afresh):
    """One sample into built/samples/<folder>, unless it is there already. `tree` holds Common
    and Samples."""
    recipe = Recipe(words)
    name = folder.rsplit("/", 1)[-1]
    source, target = tree / "Samples" / folder, built / "samples" / folder
    if target.is_dir() and not afresh:
        return True
    log = logs / f"build-{name}.log"
    work = target.with_name(name + ".part")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(
        source, work, ignore=shutil.ignore_patterns("doc", "CMakeLists.txt", "README.md")
    )
    device_only = {made_from for _, made_from, _ in recipe.device}
    sources = [str(tree / s) if s.startswith("Common/") else s for s in recipe.sources]
    sources = sources or [
        str(p.relative_to(work))
        for p in sorted([*work.glob("*"), *work.glob("src/*")])
        if p.suffix in SOURCE_ENDINGS and p.name not in device_only
    ]
    includes = [f"-I{work}", f"-I{work}/inc", f"-I{tree}/Common"]
    flags = [flag for flag in recipe.flags if not flag.startswith("-l")]
    libraries = [flag for flag in recipe.flags if flag.startswith("-l")]
    for kind, made_from, made in recipe.device:
        if not nvcc([*FLAGS, *includes, f"-{kind}", "-o", made, made_from], work, log):
            return False
    if not nvcc(
        [*FLAGS, *flags, *includes, "-o", name, *sources, *link_flags(libraries)], work, log
    ):
        return False
    strip(work / name)
    shutil.rmtree(target, ignore_errors=True)
    work.rename(target)
    return True


def add_headers(recipe_words, folder, built):
    """Links to the toolkit's headers, for programs that compile device code at run time; not
    carried."""
    target = built / "samples" / folder
    if "headers" not in recipe_words or not target.is_dir() or not toolkit():
        return
    include = toolkit() / "include"
    for name, where in (
        ("cooperative_groups.h", include),
        ("cooperative_groups", include),
        ("nv", include / "cccl"),
        ("cuda", include / "cccl"),
    ):
        link = target / name
        link.unlink(missing_ok=True)
        if (where / name).exists():
            link.symlink_to(where / name)


def wanted(here, tree, built, groups, afresh):
    """(name, function) for everything that is missing."""
    jobs = []
    if catalog.BUILT_GROUPS & set(groups):
        (built / "programs").mkdir(parents=True, exist_ok=True)
        for source in sorted((here / "programs").glob("*.cu")):
            target = built / "programs" / source.stem
            if afresh or not target.exists():
                jobs.append(
                    (source.stem, lambda logs, s=source, t=target: build_program(s, t, logs))
                )
    if "samples" in groups:
        (built / "samples").mkdir(parents=True, exist_ok=True)
        for folder, _, _, words in catalog.sample_lines(here / "samples.txt"):
            there = (tree / "Samples" / folder).is_dir()
            if there and (afresh or not (built / "samples" / folder).is_dir()):
                job = lambda logs, f=folder, w=words: build_sample(
                    tree, f, w.split(), built, logs, afresh
                )
                jobs.append((folder, job))
    return jobs


def build_missing(here, tree, built, groups, afresh, logs, say, workers=0):
    jobs = wanted(here, tree, built, groups, afresh)
    if jobs and not toolkit():
        say(f"no nvcc: {len(jobs)} programs stay unbuilt")
        jobs = []
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        running = {pool.submit(job, logs): name for name, job in jobs}
        for future in concurrent.futures.as_completed(running):
            error = future.exception()
            if error or not future.result():
                say(
                    f"cannot build {running[future]}" + (f": {error}" if error else "; see its log")
                )
    if jobs:
        say(f"built {len(jobs)} programs in {time.monotonic() - begun:.0f} s")
    if "samples" in groups:
        for folder, _, _, words in catalog.sample_lines(here / "samples.txt"):
            add_headers(words.split(), folder, built)


def main():
    """build.py SAMPLES_TREE BUILT JOBS: what prepare calls."""
    tree, built, workers = (
        pathlib.Path(sys.argv[1]).resolve(),
        pathlib.Path(sys.argv[2]).resolve(),
        int(sys.argv[3]),
    )
    logs = built / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    here = pathlib.Path(__file__).resolve().parent
    groups = [*catalog.BUILT_GROUPS, "samples"]
    build_missing(
        here, tree, built, groups, False, logs, lambda text: print(text, flush=True), workers
    )


if __name__ == "__main__":
    main()
