# SPDX-License-Identifier: Apache-2.0
"""Everything that run_all can show, cut into runs that fit ten minutes of a machine. gpu_run.py
calls it for --part.

For new tables in docs/, run all of them at one commit. Seconds are what such runs took on an
H200.
"""

import shlex

PARTS = {
    # 355 s: everything that is not made of frameworks.
    "programs": (
        "--only conformance,programs,runtime,runtimes,libraries,errors,nvml,samples --limit 60"
        " --budget 560"
    ),
    # 476 s with native's repetitions. max-autotune and a cold cache of CuPy take longer than a
    # minute.
    "frameworks": "--only torch,triton,cupy,jax,onnx,transformers --limit 120 --budget 570",
    # 93 s, one side at a time, like the next one: single calls and copies, and how much of them is
    # the line's, Tendril's and the driver's.
    "bench": "--only bench --serial --budget 300",
    # 457 s.
    "speed": "--only bench,speed,network --serial --budget 585",
    # 541 s: cases, whole programs, bad neighbours, and what each mechanism does.
    "shares": (
        "--only shares --share-seconds 6 --budget 590 --match 'whole,1/2 1/2,1/4 3/4,1/10"
        " 9/10,19/20,1/7 2/7,4 x 1/4,20 x 1/20,capped,backlog,5 us,graph,10"
        " s,kill,priority,packed,neighbours,torch,resnet,attach,packed-steps,modes'"
    ),
    # What only a real driver tells about docs/security.md; sealing, pauses and checkpoints;
    # libraries that few programs use.
    "security": "--only security --budget 590",
    "pauses": "--only sealed,pauses --budget 590",
    "more": "--only more --limit 150 --budget 400",
    # Two GPUs of one host, 42 s; and 33 s.
    "two": (
        "--only two,samples --gpus 2 --sides native,tcp,shm,two --limit 60 --budget 200 "
        "--match multi_gpu,peer_memory,torch_two,simpleP2P,MultiGPU,simpleIPC,P2P,MultiDevice,MGPU"
    ),
    # Two GPUs of one host as two servers, NCCL over sockets.
    "servers": "--only servers --gpus 2 --budget 580",
    # Four GPUs of one host: here, beside another server, on two servers.
    "four": "--only servers --gpus 4 --budget 300",
    "two-shares": "--only shares --gpus 2 --match two-gpus --share-seconds 6 --budget 120",
}


def arguments(given):
    """The options of run_all, with those of the part in the place of `--part NAME`. Options
    after it win."""
    if "--part" not in given[:-1]:
        return given
    at = given.index("--part")
    words = shlex.split(PARTS.get(given[at + 1], ""))
    return given[: at + 2] + words + given[at + 2 :]
