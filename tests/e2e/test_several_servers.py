# SPDX-License-Identifier: Apache-2.0
"""GPUs of several servers in one program: with which servers its processes are, and when."""

import ast
import json
import pathlib
import sys
import tempfile
import unittest

import harness
from harness import PROGRAMS, Server, eventually, start
from support import relay
from support.several import COPIES, COPIES, PREPARE, TwoServers, processes


PCI_DOMAIN = 50  # CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID


@harness.needs_plain_client
class SeveralServers(TwoServers):
    def test_a_rank_has_a_worker_where_it_has_its_gpu(self):
        hold = f"{PROGRAMS / 'hold'} 1 60"
        ranks = f"for i in 0 1 2 3 4 5 6 7; do CUDA_VISIBLE_DEVICES=$i {hold} & done; wait"
        run = start("run", "-n", "8", "--", "sh", "-c", ranks, server=self.both)
        self.addCleanup(harness.end, run)
        for _ in range(8):
            self.assertIn("holding", run.stdout.readline())
        self.assertEqual(processes(*self.both), [4, 4])
        self.assertEqual([len(server.workers()) for server in self.both], [4, 4])
        run.terminate()
        run.wait(20)
        for server in self.both:
            eventually(server.idle, 20)

    def test_a_program_is_with_a_server_from_the_first_context_there(self):
        run = self.python(
            """
before = look(range(8))
step("listed")
assert use(6) == 0
step("far")
assert use(1) == 0
step("near")
assert look(range(8)) == before
tell("passed")
""",
            "-n",
            "8",
        )
        for name, expected in (("listed", [0, 0]), ("far", [0, 1]), ("near", [1, 1])):
            self.comes_to(run, name)
            self.assertEqual(processes(*self.both), expected)
            self.go_on(name)
        self.comes_to(run, "passed")
        self.assertEqual(run.wait(20), 0)

    def test_devices_are_what_their_sessions_say(self):
        """With one server a session lists them, with several each server does. Only their ids on
        the PCI bus may differ: both servers have the same, and a program sees different ones."""
        tells = "tell(repr(look(range(%d))))"
        ahead = self.python(tells % 8, "-n", "8", "-p", "0.5").stdout.read().splitlines()[-1]
        apart = [
            self.python(tells % 4, "-n", "4", "-p", "0.5", server=[one]).stdout.readline()
            for one in self.both
        ]
        ahead, apart = ast.literal_eval(ahead), sum(map(ast.literal_eval, apart), [])
        self.assertEqual(len({device[2] for device in ahead}), 8, "equal ids on the PCI bus")
        for device in ahead + apart:
            device[4][PCI_DOMAIN - 1] = None
        without_bus = lambda devices: [device[:2] + device[3:] for device in devices]
        self.assertEqual(without_bus(ahead), without_bus(apart))

    def test_kernels_of_both_servers_use_the_programs_pinned_memory(self):
        run = self.python(
            COPIES
            + r'''
contexts = each(8)
ptx = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry one_more(.param .u64 at) {
  .reg .b64 %p; .reg .b32 %v;
  ld.param.u64 %p, [at];
  ld.global.u32 %v, [%p];
  add.u32 %v, %v, 1;
  st.global.u32 [%p], %v;
  ret;
}
"""
def one_more(i, at):
    enter(i)
    module, function = c_void_p(), c_void_p()
    must(cuda.cuModuleLoadData(byref(module), ptx))
    must(cuda.cuModuleGetFunction(byref(function), module, b"one_more"))
    address = ctypes.c_uint64(at)
    parameters = (c_void_p * 1)(ctypes.addressof(address))
    must(cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, parameters, None))
    must(cuda.cuCtxSynchronize())
enter(0)
memory, registered = c_void_p(), ctypes.create_string_buffer(1 << 16)
must(cuda.cuMemHostAlloc(byref(memory), c_size_t(4096), 1))
inside = (ctypes.addressof(registered) + 4095) & ~4095
must(cuda.cuMemHostRegister_v2(c_void_p(inside), c_size_t(4096), 1))
for at in (memory.value, inside):
    word = ctypes.c_uint32.from_address(at)
    word.value = 40
    for i in (0, 4, 4, 0):
        one_more(i, at)
    assert word.value == 44, word.value
tell("passed")
''',
            "-n",
            "8",
        )
        self.passes(run)

    def test_servers_that_secure_attaching(self):
        secret = {"TENDRIL_TOKEN": "a-token-of-some-length"}
        with Server(environment=secret) as near, Server(environment=secret) as far:
            run = self.python(
                'step("listed"); assert use(1) == 0; step("used")',
                "-n",
                "2",
                server=[near, far],
                **secret,
            )
            for name, expected in (("listed", [0, 0]), ("used", [0, 1])):
                self.comes_to(run, name)
                self.assertEqual(processes(near, far, **secret), expected)
                self.go_on(name)
            self.assertEqual(run.wait(20), 0)

    def test_a_server_that_is_gone_before_its_first_context(self):
        with Server() as gone:
            run = self.python(
                """
step("listed")
assert use(4) == 46, "device unavailable"
assert use(0) == 0
tell("passed")
""",
                "-n",
                "5",
                server=[self.near, gone],
            )
            self.comes_to(run, "listed")
            gone.kill()
            self.go_on("listed")
            self.assertIn(f"127.0.0.1:{gone.port}", run.stdout.readline())
            self.assertIn("passed", run.stdout.read())


@harness.needs_plain_client
class LocalBesideRemote(unittest.TestCase):
    """GPUs of this machine over shared memory, and those of another server, in one program."""

    def test_one_program_has_both(self):
        program = PREPARE + COPIES + """
contexts = each(2)
near, far = memory(0, 1000), memory(1, 1000)
write(0, near, b"x" * 1000)
assert peer(far, 1, near, 0, 1000) == 0
assert read(1, far, 1000) == b"x" * 1000
tell("passed")
"""
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()

        def as_from_afar(_, __, data):
            return data.replace(boot, b"0" * len(boot))

        with Server() as here, Server() as far, relay.Relay(far.port, as_from_afar) as there:
            run = start(
                *("run", "--local", "1", "-s", there.endpoint, "-n", "1", "-p", "0.5"),
                *("--", sys.executable, "-c", program),
                TENDRIL_LOCAL_SERVER=here.endpoint,
                TENDRIL_LOG="info",
                TENDRIL_WINDOWS="off",
            )
            self.addCleanup(harness.end, run)
            output = run.stdout.read()
            self.assertEqual(run.wait(20), 0, output)
            self.assertIn("passed", output)
            self.assertIn(f"attached to {here.endpoint} for cuda over shm", output)
            self.assertIn(f"attached to {there.endpoint} for cuda over tcp", output)
            self.assertEqual(output.count("whose turns know nothing of each other"), 1)

    def test_a_server_is_started_for_the_program(self):
        run = start(
            *("run", "--local", "2", "-v", "--", str(PROGRAMS / "vector_add")),
            TENDRIL_LOCAL_SERVER="new",
            TENDRIL_LOCAL_OPTIONS=f"--driver {harness.DRIVER} --warm 0",
            TENDRIL_SOFTGPU_DEVICES="2",
            TENDRIL_MODULE_STORE="off",
        )
        self.addCleanup(harness.end, run)
        output = run.stdout.read()
        self.assertEqual(run.wait(30), 0, output)
        self.assertEqual(output.count(" of 127.0.0.1:"), 2, output)

    def test_ls_and_doctor_tell_of_this_machine(self):
        with Server() as far, tempfile.TemporaryDirectory() as folder:
            words = {"XDG_RUNTIME_DIR": folder, "TENDRIL_SERVERS": far.endpoint}
            run = start(
                *("run", "--local", "1", "-n", "1", "--", str(PROGRAMS / "hold"), "1", "60"),
                TENDRIL_LOCAL_SERVER="new",
                TENDRIL_LOCAL_OPTIONS=f"--driver {harness.DRIVER} --warm 0",
                TENDRIL_MODULE_STORE="off",
                **words,
            )
            self.addCleanup(harness.end, run)
            self.assertIn("holding", run.stdout.readline())
            status, out, err = harness.tendril("ls", "--json", **words)
            self.assertEqual(status, 0, err)
            servers = json.loads(out)["servers"]
            self.assertEqual([one["here"] for one in servers[:1]], [False])
            here = [one for one in servers if one["here"]]
            self.assertIn(run.pid, [lease["pid"] for one in here for lease in one["leases"]])
            status, out, err = harness.tendril("ls", "--json", server=far)
            self.assertEqual(len(json.loads(out)["servers"]), 1, err)
            words["TENDRIL_LOCAL_SERVER"] = far.endpoint
            done = harness.tendril("doctor", "--no-attach", **words)
            self.assertIn(f"(run --local): ok, {far.endpoint} lends 1 GPU", done[1])
            done = harness.tendril("doctor", "--no-attach", "--json", **words)
            self.assertIn(json.loads(done[1])["local"]["state"], ("none", "ok"))


if __name__ == "__main__":
    unittest.main()
