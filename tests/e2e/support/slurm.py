# SPDX-License-Identifier: Apache-2.0
"""A cluster of Slurm on this machine, of one node: munged, slurmctld and slurmd of the test's own,
on loopback. Needs Debian's slurmctld, slurmd, slurm-client and munge, and root."""

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import harness

DAEMONS = ["munged", "slurmctld", "slurmd"]
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def missing():
    """What is not here, as text. Empty: everything is."""
    lacking = [name for name in [*DAEMONS, "srun"] if shutil.which(name, path=PATH) is None]
    return ", ".join(lacking + ([] if os.geteuid() == 0 else ["root"]))


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Cluster:
    """Use as a context manager. `plugstack`: lines for plug-ins; `more`: lines of slurm.conf.
    FOLDER in them is the cluster's own folder."""

    def __init__(self, plugstack="", more=""):
        self.folder = tempfile.mkdtemp(prefix="tendril-slurm-")
        os.chmod(self.folder, 0o755)
        self.processes = []
        self.node = socket.gethostname().split(".")[0]
        munge = os.path.join(self.folder, "munge")
        controller, daemon = free_ports(2)
        for name in ("munge", "state", "spool"):
            os.mkdir(os.path.join(self.folder, name), 0o755)
        self.write("plugstack.conf", plugstack.replace("FOLDER", self.folder))
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        self.write(
            "slurm.conf",
            f"""
ClusterName=tendril
SlurmctldHost={self.node}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={munge}/socket
CredType=cred/munge
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=bf_interval=1,sched_interval=1
SlurmctldParameters=node_reg_mem_percent=1
PlugStackConfig={self.folder}/plugstack.conf
Licenses=tendril:20
NodeName={self.node} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 OverSubscribe=YES:8 State=UP
{more.replace("FOLDER", self.folder)}
""",
        )
        self.environment = harness.clean_environment(
            SLURM_CONF=os.path.join(self.folder, "slurm.conf"), PATH=PATH
        )
        self.munge = munge

    def write(self, name, text):
        path = pathlib.Path(self.folder, name)
        path.write_text(text, encoding="utf-8")
        return path

    def begin(self, *words):
        with open(os.path.join(self.folder, words[0] + ".said"), "wb") as said:
            self.processes.append(
                subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.environment
                )
            )

    def __enter__(self):
        key = self.write("munge.key", os.urandom(64).hex())
        key.chmod(0o600)
        names = [f"--{name}-file={self.munge}/{name}" for name in ("log", "pid", "seed")]
        try:
            self.begin("munged", "--foreground", "--force", f"--key-file={key}", *names,
                       f"--socket={self.munge}/socket")  # fmt: skip
            harness.eventually(lambda: os.path.exists(f"{self.munge}/socket"), 10, "munged")
            self.begin("slurmctld", "-D")
            self.begin("slurmd", "-D", "-N", self.node)
            harness.eventually(
                lambda: self.said("sinfo", "-h", "-o", "%T")[1].strip() in ("idle", "mixed"), 60
            )
        except AssertionError:
            log = self.log()
            self.__exit__()
            raise AssertionError("Slurm did not start: " + log[-4000:]) from None
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        files = sorted(pathlib.Path(self.folder).glob("*.log"))
        files += sorted(pathlib.Path(self.folder).glob("*.said"))
        return "\n".join(f"== {file.name}\n" + file.read_text(errors="replace") for file in files)

    def said(self, *words, user=None, timeout=60):
        """(status, stdout, stderr) of a command of Slurm."""
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=self.environment,
            cwd="/",
            check=False,
            **({"user": user, "group": user, "extra_groups": []} if user else {}),
        )
        return done.returncode, done.stdout, done.stderr
