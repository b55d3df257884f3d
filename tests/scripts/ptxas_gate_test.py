#!/usr/bin/env python3
"""What ptxas_gate.sh makes of what a compiler reports."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

GATE = str(pathlib.Path(__file__).resolve().parents[2] / "cmake" / "ptxas_gate.sh")
GOOD = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
SPILLS = "    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads"


class PtxasGate(unittest.TestCase):
    def run_gate(self, report: str, *options: str) -> tuple[int, bool, str]:
        """Status, whether the object is there, and what is told, of a compiler that reports so."""
        with tempfile.TemporaryDirectory() as folder:
            built = pathlib.Path(folder, "a b.o")
            code = "import sys; open(sys.argv[2], 'w').close(); print(sys.argv[3])"
            command = [GATE, *options, sys.executable, "-c", code, "-o", str(built), report]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            return done.returncode, built.exists(), done.stderr

    def test_a_good_kernel_passes_without_a_word(self) -> None:
        self.assertEqual(self.run_gate(GOOD), (0, True, ""))
        self.assertEqual(self.run_gate(GOOD, "--warn"), (0, True, ""))

    def test_a_spill_fails_and_leaves_no_object(self) -> None:
        status, built, told = self.run_gate(SPILLS)
        self.assertEqual((status, built), (1, False))
        self.assertIn("4 bytes spill stores", told)

    def test_a_spill_of_a_program_of_ones_own_is_a_warning(self) -> None:
        status, built, told = self.run_gate(SPILLS, "--warn")
        self.assertEqual((status, built), (0, True))
        self.assertIn("warning: ", told)
        self.assertIn("4 bytes spill stores", told)
        self.assertIn("kFused", told)


if __name__ == "__main__":
    unittest.main()
