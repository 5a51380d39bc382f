# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi as `tendril run` offers it: beside what NVIDIA's own wrote on an H200
(client/smi/recorded), and as programs call and parse it."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import harness
from harness import Server, tendril

RECORDED = pathlib.Path(__file__).parents[3] / "client" / "smi" / "recorded"
UNITS = r"(MiB|MHz|KB/s|us|W|C|%|x|bank\(s\))"


def recorded(name):
    return (RECORDED / name).read_text(encoding="utf-8")


def labels(text):
    """(indentation, label, unit) of each line of -q. Values differ, and what is not known has no
    unit."""
    found = []
    for line in text.splitlines():
        match = re.match(r"( *)(\S.*?)\s*(?:: (.*))?$", line)
        if match and not line.startswith("="):
            found.append((len(match[1]), re.sub(r"^GPU [0-9A-F:.]+$", "GPU", match[2]), match[3]))
    return found


def outline(element):
    """The elements below, without their text."""
    return [element.tag, *(outline(child) for child in element)]


class Smi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server(gpus=2))

    def run_smi(self, *words, options=("-n", "2", "-p", "0.5"), status=0, **variables):
        """What `nvidia-smi WORDS` writes."""
        done = tendril("run", *options, "--", "nvidia-smi", *words, server=self.server, **variables)
        self.assertEqual(done[0], status, done)
        return done[1]

    def test_fields_are_the_vendors(self):
        rows = [line.split() for line in recorded("query-gpu.txt").splitlines()]
        self.assertGreater(len(rows), 200)
        names = [name for name, _, _ in rows]
        header = self.run_smi("--query-gpu=" + ",".join(names), "--format=csv").splitlines()
        titles = [name if unit == "-" else f"{name} [{unit}]" for name, _, unit in rows]
        self.assertEqual(header[0].split(", "), titles)
        self.assertEqual(len(header), 3)
        for line in header[1:]:
            self.assertEqual(len(line.split(", ")), len(names))
        aliases = [(name, alias) for name, alias, _ in rows if alias != "-"]
        answered = self.run_smi("--query-gpu=" + ",".join(alias for _, alias in aliases))
        self.assertEqual(
            [title.split(" ")[0] for title in answered.splitlines()[0].split(", ")],
            [name for name, _ in aliases],
        )
        listed = self.run_smi("--help-query-gpu")
        self.assertEqual(re.findall(r'^"([^"]+)"', listed, re.M), names)

    def test_values_are_those_of_the_slice(self):
        words = "index,name,uuid,memory.total,memory.used,memory.free,temperature.gpu,count"
        first, second = self.run_smi(f"--query-gpu={words}", "--format=csv,noheader").splitlines()
        cells = first.split(", ")
        self.assertEqual(cells[:2], ["0", "Tendril Test Device (software)"])
        self.assertEqual(cells[3:6], ["512 MiB", "0 MiB", "512 MiB"])
        self.assertEqual(cells[7], "2")
        self.assertEqual(second.split(", ")[0], "1")
        listed = self.run_smi("-L").splitlines()
        self.assertEqual(listed[0], f"GPU 0: {cells[1]} (UUID: {cells[2]})")
        for word in (cells[2], "0", "0,7"):
            chosen = self.run_smi("-i", word, "--query-gpu=index", "--format=csv,noheader,nounits")
            self.assertEqual(chosen, "0\n")
        bus = self.run_smi("-i", "1", "--query-gpu=pci.bus_id", "--format=noheader").strip()
        self.assertEqual(self.run_smi("-i", bus, "--query-gpu=index", "--format=noheader"), "1\n")

    def test_the_log_has_the_vendors_lines(self):
        ours, theirs = self.run_smi("-q", "-i", "1"), recorded("q.txt")
        processes = slice(theirs.index("    Processes"), theirs.index("    Capabilities"))
        theirs = theirs.replace(theirs[processes], "")
        ours = re.sub(r"    Processes +: None\n", "", ours)
        self.assertEqual(
            [(depth, label) for depth, label, _ in labels(ours)],
            [(depth, label) for depth, label, _ in labels(theirs)],
        )
        for (_, label, value), (_, _, native) in zip(labels(ours), labels(theirs)):
            self.assertEqual(value is None, native is None, label)
            unit = re.search(f" ?{UNITS}$", native or "")
            if unit and value != "N/A":
                self.assertTrue(value.endswith(unit[0]), (label, value, native))
        self.assertRegex(ours, r"Attached GPUs +: 2\n")
        sections = self.run_smi("-q", "-d", "MEMORY,COMPUTE", "-i", "0")
        self.assertRegex(sections, r"FB Memory Usage\n        Total {42}: 512 MiB\n")
        self.assertIn("    Compute Mode ", sections)
        self.assertNotIn("Clocks", sections)

    def test_xml_has_the_vendors_elements(self):
        ours = xml.etree.ElementTree.fromstring(self.run_smi("-q", "-x", "-i", "0"))
        theirs = xml.etree.ElementTree.fromstring(recorded("q.xml"))
        gpu = theirs.find("gpu/processes")
        for child in list(gpu):
            gpu.remove(child)
        self.assertEqual(outline(ours), outline(theirs))
        self.assertEqual(ours.find("gpu/fb_memory_usage/total").text, "512 MiB")

    def test_the_table_has_the_vendors_shape(self):
        ours, theirs = self.run_smi("-i", "0").splitlines(), recorded("table.txt").splitlines()
        self.assertEqual(len(ours), len(theirs))
        self.assertEqual({len(line) for line in ours if line[:1] in "|+" and line}, {91})
        for at, (line, native) in enumerate(zip(ours, theirs)):
            bars = [place for place, letter in enumerate(native) if letter in "|+"]
            self.assertEqual([p for p, letter in enumerate(line) if letter in "|+"], bars, at)
        self.assertEqual(ours[4:8], theirs[4:8])
        self.assertRegex(ours[8], r"^\|   0  Tendril Test Device \(sof\.\.\.    On  \|   0000")
        self.assertIn(" 0MiB /    512MiB |", ours[9])

    @harness.needs_plain_client
    def test_the_programs_processes_are_shown(self):
        program = "import ctypes, subprocess, sys; cuda = ctypes.CDLL('libcuda.so.1')\n"
        program += "cuda.cuInit(0); context = ctypes.c_void_p(); block = ctypes.c_uint64()\n"
        program += "assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0\n"
        program += "assert cuda.cuMemAlloc_v2(ctypes.byref(block), 64 << 20) == 0\n"
        program += "assert cuda.cuCtxSynchronize() == 0\n"
        program += "for words in (['--query-compute-apps=pid,used_memory,name', '--format=csv'],\n"
        program += "              [], ['-q', '-d', 'PIDS']):\n"
        program += "    sys.stdout.flush(); subprocess.run(['nvidia-smi', *words], check=True)\n"
        options = ("-p", "0.5", "--", sys.executable, "-c", program)
        status, out, err = tendril("run", *options, server=self.server)
        self.assertEqual(status, 0, err)
        lines = out.splitlines()
        self.assertEqual(lines[0], "pid, used_gpu_memory [MiB], process_name")
        pid, used, name = lines[1].split(", ")
        self.assertGreaterEqual(int(used.split(" ")[0]), 64)
        self.assertIn("python", name)
        self.assertRegex(out, rf"\|    0   N/A  N/A +{pid}      C   \S*python\S* +\d+MiB \|")
        self.assertRegex(out, rf"Process ID {{24}}: {pid}\n            Type {{26}}: C\n")

    def test_refusals_are_the_vendors(self):
        for words, status, text in (
            (["--query-gpu=name,nonsense"], 2, 'Field "nonsense" is not a valid field to query.\n'),
            (["--query-gpu=name, index"], 2, 'Field " index" is not a valid field to query.\n'),
            (["--query-gpu=NAME"], 2, 'Field "NAME" is not a valid field to query.\n'),
            (["--query-compute-apps=pid,no"], 2, 'Field "no" is not a valid field to query.\n'),
            (["--query-gpu=name", "--format=xml"], 2, "Format modifier is not recognized.\n"),
            (["--nonsense"], 255, "ERROR: Option --nonsense is not recognized."),
            (["nonsense"], 255, "ERROR: Option nonsense is not recognized."),
            (["--format=csv"], 255, "ERROR: Option --format=csv is not recognized."),
            (["-i", "7"], 6, "No devices were found\n"),
            (["-i", "", "-q"], 255, "Failed to parse device string on command line"),
            (["-L", "-i", "0"], 2, "ERROR: Option -i is not valid for this command."),
            (["-q", "-d", "NONSENSE"], 2, "Failed to parse --display/-d flags\n"),
            (["-x"], 2, "Invalid combination of input arguments. Specify -q/--query and -x/"),
            (["-l", "0"], 2, "Provided [-l(ms) | --loop(-ms)=] value is incorrect."),
            (["-pm", "1"], 4, "-pm would change the GPU, which belongs to its server"),
            (["dmon"], 2, "Tendril's nvidia-smi does not have 'dmon'"),
        ):
            with self.subTest(words=words):
                out = self.run_smi(*words, options=("-p", "0.5"), status=status)
                self.assertTrue(out.startswith(text), out)

    def test_it_writes_again_and_again(self):
        words = ("--query-gpu=index", "--format=csv", "-lms", "50")
        program = ["nvidia-smi", *words]
        script = f"import subprocess; s = subprocess.Popen({program}, stdout=subprocess.PIPE)\n"
        script += "print([s.stdout.readline() for i in range(4)]); s.stdout.close(); s.wait(10)\n"
        status, out, err = tendril("run", "--", sys.executable, "-c", script, server=self.server)
        self.assertEqual((status, out), (0, str([b"index\n", *[b"0\n"] * 3]) + "\n"), err)

    def test_it_writes_a_file(self):
        with tempfile.TemporaryDirectory(prefix="tendril-e2e-") as folder:
            file = pathlib.Path(folder, "a file")
            self.assertEqual(self.run_smi("-L", "-f", str(file)), "")
            self.assertIn("GPU 1: ", file.read_text(encoding="utf-8"))

    def test_one_in_the_path_is_used_before_ours(self):
        with tempfile.TemporaryDirectory(prefix="tendril-e2e-") as folder:
            theirs = pathlib.Path(folder, "nvidia-smi")
            theirs.write_text("#!/bin/sh\necho theirs\n", encoding="ascii")
            theirs.chmod(0o755)
            self.assertEqual(self.run_smi(PATH=f"{folder}:{os.environ['PATH']}"), "theirs\n")

    def test_without_a_server_one_line_says_why(self):
        done = subprocess.run(
            [harness.CLIENT.parent / "bin" / "nvidia-smi"],
            capture_output=True,
            text=True,
            env=harness.clean_environment(TENDRIL_SERVERS="127.0.0.1:1"),
            check=False,
        )
        self.assertEqual(done.returncode, 9)
        self.assertIn("tendril doctor", done.stdout)
        self.assertIn("127.0.0.1:1", done.stderr)


class Parsers(unittest.TestCase):
    """As GPUtil, PyTorch's collect_env and gpustat's predecessors call and read it."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Server())

    def smi(self, *words):
        program = ["-p", "0.5", "--", "nvidia-smi", *words]
        status, out, err = tendril("run", *program, server=self.server)
        self.assertEqual(status, 0, err)
        return out

    def test_gputil(self):
        fields = "index,uuid,utilization.gpu,memory.total,memory.used,memory.free,driver_version,"
        fields += "name,gpu_serial,display_active,display_mode,temperature.gpu"
        out = self.smi(f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        (line,) = out.splitlines()
        values = line.split(", ")
        self.assertEqual(len(values), 12)
        self.assertEqual((int(values[0]), float(values[3])), (0, 512.0))
        self.assertEqual(float(values[4]) + float(values[5]), float(values[3]))

    def test_collect_env(self):
        self.assertRegex(re.search(r"Driver Version: (.*?) ", self.smi())[1], r"^\d+\.\d+")
        self.assertRegex(re.search(r"CUDA Version: (.*?) ", self.smi())[1], r"^\d+\.\d+$")
        self.assertRegex(self.smi("-L"), r"^GPU 0: .* \(UUID: GPU-[0-9a-f-]{36}\)\n$")
        self.assertIn("GPU0\t X \t", self.smi("topo", "-m"))

    def test_a_table_that_is_cut_with_patterns(self):
        found = re.findall(r"(\d+)MiB\s*/\s*(\d+)MiB", self.smi())
        self.assertEqual(found, [("0", "512")])


if __name__ == "__main__":
    unittest.main()
