# SPDX-License-Identifier: Apache-2.0
"""What the vendor's debugger, profilers and checker say of a small program. Arguments: the program.

Shows the tail of what each tool prints. Through Tendril the GPU is elsewhere, so they must end with
a reason, and the program must not suffer.
"""

import shutil
import subprocess
import sys

import checks
from checks import check_each

program = sys.argv.pop(1)
LIMIT_S = 60
TOOLS = {
    "cuda_gdb": ["cuda-gdb", "-batch", "-ex", "run", "-ex", "info cuda devices", "--args"],
    "compute_sanitizer": ["compute-sanitizer"],
    "ncu": ["ncu", "--clock-control", "none"],
    "nsys": ["nsys", "profile", "-o", "/tmp/tendril-gpu-nsys", "--force-overwrite", "true"],
}


@check_each(**TOOLS)
def under(argv):
    if shutil.which(argv[0]) is None:
        raise checks.Skipped(f"{argv[0]} is not here")
    try:
        done = subprocess.run(
            [*argv, program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        return "NO END", str(error.stdout)[-400:]
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    return f"exit {done.returncode}", " / ".join(lines[-14:])[-1500:]


@check_each(without_tool=[])
def alone(_):
    done = subprocess.run([program], capture_output=True, text=True, timeout=LIMIT_S)
    return done.stdout.strip().splitlines()[-1:], done.returncode


checks.run()
