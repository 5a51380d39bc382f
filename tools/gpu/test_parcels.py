# SPDX-License-Identifier: Apache-2.0
"""A package's way in pieces: packed here, collected in several calls, with a wheel made for the
purpose."""

import os
import pathlib
import sys
import tempfile
import unittest
import zipfile

import parcels
import sides

LIBRARY = os.urandom(50_000)  # does not compress: several pieces of PIECE bytes
PIECE = 16 << 10


class Parcels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.sent, self.came, self.site = (
            self.folder / name for name in ("sent", "came", "there/site")
        )
        self.site.parent.mkdir()

    def pack(self, text="one"):
        wheel = self.folder / "thing_gpu-1.2-cp312-cp312-any.whl"
        with zipfile.ZipFile(wheel, "w") as held:
            held.writestr("onnxruntime/__init__.py", text)
            held.writestr("onnxruntime/capi/libprovider.so", LIBRARY)
            held.writestr("onnxruntime/capi/libonnxruntime_providers_tensorrt.so", LIBRARY)
            held.writestr("onnxruntime/tools/deep/tool.py", "")
        return parcels.pack(wheel, self.sent, PIECE)

    def travel(self, number):
        """One call: the parcel's folder alone, in a copy of the repository."""
        self.came.mkdir(exist_ok=True)
        (self.sent / str(number)).rename(self.came / str(number))
        return parcels.collect(self.came, self.site)

    def test_arrives_in_any_order(self):
        self.assertEqual(self.pack(), 4)
        self.assertEqual(sorted(os.listdir(self.sent)), ["1", "2", "3", "4"])
        self.assertTrue(all(piece.stat().st_size <= PIECE for piece in self.sent.glob("*/*")))
        told = [self.travel(number)[0] for number in (3, 1, 4)]
        self.assertIn("1 of 4 pieces are here, missing: 1 2 4", told[0])
        self.assertIn("3 of 4 pieces are here, missing: 2", told[2])
        self.assertFalse(self.site.exists())
        self.assertEqual(parcels.environment(self.site), {})
        self.assertIn("unpacked", self.travel(2)[0])
        self.assertEqual(parcels.environment(self.site), {"PYTHONPATH": str(self.site)})
        self.assertEqual((self.site / "onnxruntime/capi/libprovider.so").read_bytes(), LIBRARY)
        self.assertTrue(os.access(self.site / "onnxruntime/capi/libprovider.so", os.X_OK))
        self.assertEqual(sorted(os.listdir(self.site / "onnxruntime")), ["__init__.py", "capi"])
        self.assertEqual(os.listdir(self.site / "onnxruntime/capi"), ["libprovider.so"])

    def test_two_packings_do_not_mix(self):
        self.pack("one")
        self.travel(1)
        self.pack("two")
        for number in (2, 3, 4):
            told = self.travel(number)
        self.assertEqual(len(told), 2)
        self.assertTrue(all("missing" in line for line in told), told)
        self.assertFalse(self.site.exists())

    def test_what_is_broken_does_not_count(self):
        self.pack()
        for number in (1, 2, 3):
            self.travel(number)
        (piece,) = (self.sent / "4").iterdir()
        content = bytearray(piece.read_bytes())
        content[100] ^= 1
        piece.write_bytes(content)
        with self.assertRaises(Exception):
            self.travel(4)
        self.assertFalse(self.site.exists())

    def test_goes_behind_the_callers_own_path(self):
        side = lambda own: sides.Side("native", self.folder, self.folder / "logs", own)
        given = {"PYTHONPATH": "/there/site"}
        self.assertEqual(
            side({"PYTHONPATH": "/own"}).environment_for(given, None)["PYTHONPATH"],
            "/own:/there/site",
        )
        self.assertEqual(side({}).environment_for(given, None), given)

    def test_nothing_came(self):
        self.assertIn("nothing has come", parcels.collect(self.came, self.site)[0])

    def test_libraries_of_another_folder(self):
        packages, library = self.folder / "packages", "nvidia/cu13/lib/libcudart.so.13"
        (packages / library).parent.mkdir(parents=True)
        (packages / library).touch()
        sys.path.insert(0, str(packages))
        self.addCleanup(sys.path.remove, str(packages))
        parcels.link_cuda_libraries(self.site)
        self.assertFalse(os.path.lexists(self.site))  # nothing was unpacked: nothing to link to
        self.site.mkdir()
        parcels.link_cuda_libraries(self.site)
        self.assertTrue((self.site / library).exists())
        parcels.link_cuda_libraries(self.site)  # again, with the next parcel


if __name__ == "__main__":
    unittest.main()
