# SPDX-License-Identifier: Apache-2.0
"""PyTorch: a C++/CUDA extension, built here with nvcc through torch.utils.cpp_extension, or by its
own commands without ninja."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import checks
from checks import check

torch = checks.need("torch")
from torch.utils import cpp_extension  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent / "extension"
SOURCES = [HERE / "scale.cpp", HERE / "scale.cu"]


def load_by_commands(folder):
    """What cpp_extension.load would tell ninja."""
    folder.mkdir(parents=True, exist_ok=True)
    includes = [
        f"-I{path}"
        for path in [*cpp_extension.include_paths("cuda"), sysconfig.get_paths()["include"]]
    ]
    nvcc = os.path.join(cpp_extension.CUDA_HOME, "bin", "nvcc")
    library = folder / "by_commands.so"
    host, device = folder / "scale.o", folder / "scale.cuda.o"
    shape = "-D_GLIBCXX_USE_CXX11_ABI=" + str(int(torch.compiled_with_cxx11_abi()))
    major, minor = torch.cuda.get_device_capability()
    commands = [
        [
            "g++",
            "-O1",
            "-std=c++20",
            "-fPIC",
            shape,
            *includes,
            "-c",
            str(SOURCES[0]),
            "-o",
            str(host),
        ],
        [
            nvcc,
            "-O2",
            f"-arch=sm_{major}{minor}",
            "-Xcompiler",
            "-fPIC",
            "-c",
            str(SOURCES[1]),
            "-o",
            str(device),
        ],
        [
            nvcc,
            "-shared",
            "-cudart",
            "shared",
            str(host),
            str(device),
            "-o",
            str(library),
            *[f"-L{path}" for path in cpp_extension.library_paths("cuda")],
            "-lc10",
            "-lc10_cuda",
            "-ltorch",
            "-ltorch_cpu",
        ],
    ]
    for command in commands:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(done.stdout[-4000:], file=sys.stderr)
            raise RuntimeError(f"{pathlib.Path(command[0]).name} ends with {done.returncode}")
    torch.ops.load_library(str(library))


def build():
    if not cpp_extension.CUDA_HOME:
        raise checks.Skipped("no CUDA toolkit")
    if shutil.which("ninja"):
        cpp_extension.load(
            "tendril_check",
            [str(source) for source in SOURCES],
            is_python_module=False,
            extra_cflags=["-O1"],
        )
        return "loaded"
    load_by_commands(pathlib.Path(os.environ.get("TORCH_EXTENSIONS_DIR", "extensions")))
    return "loaded"


@check
def built_with_nvcc():
    return build()


@check
def called():
    x = torch.arange(1_000_003, device="cuda", dtype=torch.float32)
    out = torch.ops.tendril_check.scale(x, 0.5, 3.0)
    return out, torch.equal(out, x * 0.5 + 3)


@check
def on_a_stream_and_refused():
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        out = torch.ops.tendril_check.scale(torch.ones(1000, device="cuda"), 2.0, 1.0)
        torch.cuda.current_stream().synchronize()
    try:
        torch.ops.tendril_check.scale(torch.ones(10), 1.0, 0.0)
        return out, "not refused"
    except (RuntimeError, NotImplementedError) as error:
        return out, checks.error_line(error)


checks.run()
