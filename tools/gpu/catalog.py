# SPDX-License-Identifier: Apache-2.0
"""What is run: every program with its group, command, limit and the way its two results are
compared. Called by gpu_run.py.

A command may contain {bin} (the carried binaries), {built} (what nvcc built from programs/),
{here} (this folder) and {python}. `compare` is "stdout" (exit status 0 and the same output,
without lines that begin with "time"), "pass" (exit status 0 and the pass pattern, for
programs that print measurements) or "transcript" (same status, same conformance transcript).
"""

import dataclasses
import pathlib
import re
import subprocess

import parcels

GROUPS = [
    "conformance",
    "programs",
    "runtime",
    "runtimes",
    "libraries",
    "errors",
    "torch",
    "triton",
    "cupy",
    "jax",
    "onnx",
    "transformers",
    "nvml",
    "samples",
    "two",
    "bench",
    "shares",
    "speed",
    "network",
    "security",
    "sealed",
    "pauses",
    "more",
    "servers",
]
# Minutes of the GPU alone, and what few machines have.
ON_REQUEST = {
    "shares",
    "speed",
    "network",
    "security",
    "sealed",
    "pauses",
    "more",
    "servers",
}
BUILT_GROUPS = {
    "runtime",
    "libraries",
    "errors",
    "two",
    "more",
}  # what holds programs that nvcc builds from programs/

# The program of the acceptance list, word for word.
MATMUL_SUM = 'import torch; a=torch.randn(4096,4096,device="cuda"); print((a@a).sum())'

# Settings for the frameworks from outside, the same on every side.
FRAMEWORK_ENV = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "PYTHONFAULTHANDLER": "1",
    "TRITON_CACHE_DIR": "{side}/triton",
    "TORCHINDUCTOR_CACHE_DIR": "{side}/inductor",
    "CUPY_CACHE_DIR": "{side}/cupy",
    "TORCH_EXTENSIONS_DIR": "{side}/extensions",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclasses.dataclass
class Program:
    group: str
    name: str
    argv: list
    compare: str = "stdout"
    pattern: str = ""
    limit_s: float = 0  # 0: the run's own limit
    env: dict = dataclasses.field(default_factory=dict)
    folder: str = ""  # a folder to run in a copy of
    alone: bool = False  # with the GPU for itself: it fills the memory


def test_programs():
    run = lambda name, *args, **more: Program(
        "programs", name, [f"{{bin}}/programs/{name}", *args], **more
    )
    return [
        run("vector_add"),
        run("vector_add", "1000003"),
        run("matrix_multiply"),
        run("reduction"),
        run("histogram"),
        run("streams_overlap"),
        run("crash"),
        Program("two", "multi_gpu", ["{bin}/programs/multi_gpu"]),
        run("hold", "64", "1", compare="pass", pattern="PASS"),
        run("bandwidth", "32", compare="pass", pattern="PASS"),
        run("launch_rate", "2000", compare="pass", pattern="PASS"),
        run("training_step", "100"),
    ]


def own_programs(libraries_env):
    """programs/*.cu, by group; for those of `libraries` and the NVRTC one the toolkit's libraries
    are found by path."""
    groups = {
        "runtime": [
            "runtime_vector_add",
            "runtime_streams",
            "driver_program",
            "nvrtc_program",
            "ordering_program",
            "per_thread_stream",
            "host_memory",
            "managed_variable",
            "pool_memory",
            "virtual_memory",
            "process_memory",
            "launch_kinds",
            "nested_launch",
            "graph_nodes",
            "array_memory",
            "jit_logs",
            "stream_memory",
            "tensor_map",
            "green_context",
        ],
        "two": ["peer_memory"],
        "libraries": ["cublas_gemm", "cufft_program", "curand_program", "cusolver_program"],
        "errors": ["sticky_errors"],
        "more": ["graph_batches"],
    }
    # The driver does not compile again what it has compiled before, and then has nothing to log.
    fixed = {"jit_logs": {"CUDA_CACHE_DISABLE": "1"}, "nvrtc_program": libraries_env}
    env = lambda group, name: libraries_env if group == "libraries" else fixed.get(name, {})
    return [
        Program(group, name, [f"{{built}}/programs/{name}"], env=env(group, name))
        for group, names in groups.items()
        for name in names
    ]


def framework_programs():
    # Its random numbers have no seed: no two runs print the same sum.
    out = [
        Program(
            "torch",
            "torch matmul sum",
            ["{python}", "-c", MATMUL_SUM],
            "pass",
            r"tensor\(-?\d+\.\d+, device='cuda:0'\)",
            limit_s=90,
        )
    ]

    def script(group, name, *args, limit_s=90, env=None, alone=False):
        folder = "libraries" if group == "more" else "frameworks"
        out.append(
            Program(
                group,
                " ".join([name, *args]),
                ["{python}", f"{{here}}/{folder}/{name}.py", *args],
                limit_s=limit_s,
                env=FRAMEWORK_ENV | (env or {}),
                alone=alone,
            )
        )

    parts = (
        "matmul conv train streams graph attention loader resnet models numeric processes profiler"
    )
    for part in parts.split():
        script("torch", f"torch_{part}")
    script("torch", "torch_compile", limit_s=150)
    script("torch", "torch_compile", "autotune", limit_s=180)
    script("torch", "torch_extension", limit_s=180)
    script("torch", "torch_memory", alone=True)
    script("two", "torch_two_gpus", limit_s=120)
    script("errors", "torch_errors", limit_s=180)
    script("triton", "triton_kernels", limit_s=120)
    script("cupy", "cupy_checks", limit_s=120)
    # XLA times algorithms and chooses one, so the last digits differ from run to run. The products
    # show that choosing works.
    fixed = {"XLA_FLAGS": "--xla_gpu_autotune_level=0"}
    script("jax", "jax_stages", limit_s=120, env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} | fixed)
    script(
        "jax", "jax_stages", "product/", limit_s=120, env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    )
    script("jax", "jax_stages", "preallocate", limit_s=120, alone=True)
    script("onnx", "onnx_models", limit_s=150, env=parcels.environment())
    script("transformers", "gpt2_generate")
    script("transformers", "transformers_models", limit_s=150)
    script("nvml", "nvml_users")
    out += libraries_and_tools(script)
    out.append(
        Program(
            "runtimes",
            "old_runtimes",
            ["{python}", "{here}/frameworks/old_runtimes.py", "{bin}/../runtimes"],
        )
    )
    out.append(Program("nvml", "nvidia-smi -L", ["nvidia-smi", "-L"]))
    out.append(Program("nvml", "nvidia-smi", ["nvidia-smi"], compare="pass", pattern="NVIDIA-SMI"))
    return out


def libraries_and_tools(script):
    """The group `more`: what few programs need. Packages that the machine lacks are carried
    (`prepare --packages`)."""
    where = {"PYTHONPATH": "{here}/frameworks:{bin}/../packages"}
    more = lambda name, env=None: script("more", name, limit_s=150, env=where | (env or {}))
    for name in ("numba_checks", "cuda_python", "torch_libraries", "quantized_checks"):
        more(name)
    fixed = {"XLA_FLAGS": "--xla_gpu_autotune_level=0", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    more("jax_libraries", fixed)
    more("rapids_memory")
    more("opencl_facts")
    return [
        Program(
            "more",
            "developer_tools",
            ["{python}", "{here}/libraries/developer_tools.py", "{bin}/programs/vector_add"],
            compare="pass",
            pattern=r"alone/without_tool PASS 0",
            limit_s=150,
            env=where,
        )
    ]


def sample_lines(path: pathlib.Path):
    """samples.txt: `folder | arguments | pass pattern | sources, flags and data for the build`; #
    begins a comment."""
    for line in path.read_text().splitlines():
        line = line.split("#", 1)[0].strip()
        if line:
            fields = [field.strip() for field in line.split("|")]
            yield fields + [""] * (4 - len(fields))


def samples(here: pathlib.Path, libraries_env):
    out = []
    for folder, arguments, pattern, _ in sample_lines(here / "samples.txt"):
        name = folder.rsplit("/", 1)[-1]
        out.append(
            Program(
                "samples",
                name,
                [f"./{name}", *arguments.split()],
                compare="pass",
                pattern=pattern,
                env=libraries_env,
                folder=f"{{built}}/samples/{folder}",
            )
        )
    return out


def conformance_suites(binary, env):
    """One program per suite, as tests/conformance/run_suites.sh does it."""
    listed = subprocess.run(
        [binary, "--gtest_list_tests"], env=env, capture_output=True, text=True, timeout=120
    )
    suites = re.findall(r"^(\S+)\.$", listed.stdout, re.M)
    transcript = lambda suite: f"{{side}}/{suite.replace('/', '_')}.transcript"
    return [
        Program(
            "conformance",
            suite,
            ["{bin}/tendril_conformance", f"--gtest_filter={suite}.*"],
            compare="transcript",
            env={"TENDRIL_CONFORMANCE_TRANSCRIPT": transcript(suite)},
        )
        for suite in suites
    ]


def without_times(text):
    return [line.rstrip() for line in text.splitlines() if not line.startswith("time")]
