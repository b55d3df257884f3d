#!/usr/bin/env python3
"""What record_tests.py makes of the lines that gpu_test.sh prints."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from record_tests import records_of, update

SCRIPTS = pathlib.Path(sys.path[0])

FULL_RUN = """fuzz: 100 cases, 3 fused, 9 outputs, 1 failed, seeds 7 to 106
tests: 101 run, 99 passed, 1 failed, 1 skipped
verify: 3328 outputs of 584 cases: 3327 ok, 1 failed, 0 skipped, in 22.6 s (seed 1)
torch: 49 run, 46 passed, 1 failed, 2 skipped
examples: 2 projects built and run, 1 passed
edge cases: 93 with K = 0, 0 failed
edge cases: 72 with NaN, 2 failed
fuzz: 300 cases, 9 fused, 625 outputs, 0 failed, seeds 1 to 300
reruns: 1104 kernels and layouts x 20 while idle, 0 differ, 12 s
broken: layer_test,coda verify
""".splitlines()
SANITIZED = "memcheck: [ FAILED ] 1 test.; ERROR SUMMARY: 3 errors;[ FAILED ] 3 tests.; ERROR SUMMARY: 2 errors"
RACES = (
    "racecheck: [ FAILED ] 1 test.; RACECHECK SUMMARY: 20 hazards displayed (23 errors, 0 warnings);; SUMMARY: 1 error"
)
RACES_OF_TWO = (
    "racecheck: RACECHECK SUMMARY: 24 hazards displayed (24 errors, 0 warnings); 23 of them in cuBLASLt's kernels"
)
TRAINING = [
    "training: C++ llama in fp32, 1000 steps x 5 seeds: losses differ by up to 1.4e-05 at a step, 0.001 allowed; loss "
    "5.557 to 1.548; ok",
    "training: C++ llama in bf16, 1000 steps x 5 seeds: last losses differ by up to 0.25, 0.086 from seed to seed; loss "
    "5.557 to 1.551; FAILED",
]
UNDER_LOAD = "reruns: 1104 kernels and layouts x 1000 under load, {} differ, 30 s"


class RecordTests(unittest.TestCase):
    def one(self, what: str, lines: list[str]) -> dict:
        found = [r for r in records_of(lines) if r["what"] == what]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_a_failure_is_a_number_of_its_record(self) -> None:
        self.assertEqual(self.one("tests", FULL_RUN)["failed"], 1)
        self.assertEqual(self.one("verify", FULL_RUN)["failed"], 1)
        self.assertEqual(self.one("torch", FULL_RUN)["failed"], 1)
        self.assertEqual(self.one("examples", FULL_RUN), {"what": "examples", "run": 2, "passed": 1})

    def test_a_program_without_a_summary_is_named(self) -> None:
        self.assertEqual(self.one("tests", FULL_RUN)["broken"], ["layer_test", "coda verify"])
        self.assertNotIn("broken", self.one("tests", FULL_RUN[:-1]))

    def test_lines_of_a_kind_add_up(self) -> None:
        self.assertEqual(self.one("edge cases", FULL_RUN), {"what": "edge cases", "cases": 165, "failed": 2})
        self.assertEqual(self.one("reruns", [UNDER_LOAD.format(1), UNDER_LOAD.format(2)])["differ"], 3)

    def test_each_model_and_type_that_was_trained_is_a_record(self) -> None:
        fp32, bf16 = records_of(TRAINING)
        common = {"what": "training", "by": "C++", "model": "llama", "steps": 1000, "seeds": 5}
        self.assertEqual(fp32, common | {"dtype": "fp32", "differ_by": 1.4e-05, "allowed": 0.001, "verdict": "ok"})
        self.assertEqual(bf16, common | {"dtype": "bf16", "differ_by": 0.25, "allowed": 0.086, "verdict": "FAILED"})

    def test_reports_of_all_programs_under_a_sanitizer_count(self) -> None:
        self.assertEqual(self.one("sanitizer", [SANITIZED]), {"what": "sanitizer", "tool": "memcheck", "reports": 5})
        self.assertEqual(self.one("sanitizer", [RACES])["reports"], 24, "all of them, not what is displayed")
        self.assertEqual(self.one("sanitizer", [SANITIZED + "; 2 programs ended badly"])["broken"], 2)

    def test_reports_of_kernels_that_are_cublaslts_are_told_apart(self) -> None:
        self.assertEqual(
            self.one("sanitizer", [RACES_OF_TWO]),
            {"what": "sanitizer", "tool": "racecheck", "reports": 1, "of_cublaslt": 23},
        )

    def test_other_lines_are_no_records(self) -> None:
        self.assertEqual(records_of(["## 3 s", "gpu_test: the build failed", ""]), [])

    def test_each_kind_of_line_is_a_record(self) -> None:
        for line, expected in (
            (
                "first calls: 27 operations, each captured as the first of a process and replayed 1000 times: 26 with the "
                "same bits",
                {"what": "first calls", "operations": 27, "replays": 1000, "same": 26},
            ),
            (
                "bad calls: 731, 730 named errors, 1 launched something, 24 good calls after them",
                {"what": "bad calls", "calls": 731, "named_errors": 730, "launched_something": 1},
            ),
            (
                "processes: 3, 1450 hashes each, 2 differ",
                {"what": "processes", "processes": 3, "hashes": 1450, "differ": 2},
            ),
            (
                "threads: 8 threads x 4 streams x 10000 calls, the bits of serial calls, none waited, the pool of workspaces "
                "grew by 5 bytes",
                {"what": "threads", "threads": 8, "streams": 4, "calls": 10000, "pool_grew_bytes": 5},
            ),
            (
                "threads: 8 threads x 4 streams x 9 calls, FAILED, the pool of workspaces grew by 5 bytes",
                {"what": "threads", "threads": 8, "streams": 4, "calls": 9, "verdict": "FAILED", "pool_grew_bytes": 5},
            ),
            ("mutation: 32 of 33 faults caught in 90 s", {"what": "mutation", "caught": 32, "faults": 33}),
            (
                "initcheck: ERROR SUMMARY: 1 error",
                {"what": "sanitizer", "tool": "initcheck", "reports": 1},
            ),
        ):
            self.assertEqual(records_of([line]), [expected])

    def test_a_record_of_another_run_stays(self) -> None:
        """Such as that of another tool, or of a model in another type."""
        reruns = [f"reruns: 9 kernels and layouts x {x}, 0 differ, 1 s" for x in ("20 while idle", "20 under load")]
        others = [
            "reruns: 9 kernels and layouts x 1000 while idle, 0 differ, 1 s",
            "racecheck: SUMMARY: 0 errors",
            TRAINING[0].replace("C++", "PyTorch"),
            TRAINING[0].replace("llama", "qwen3"),
        ]
        lines = [*FULL_RUN, *reruns, SANITIZED, *TRAINING, *others]
        alone = [record for line in lines[len(FULL_RUN) :] for record in records_of([line])]
        document = {"records": []}
        for record in alone:
            update(document, [record])
        for record in alone:
            self.assertIn(record, document["records"])

    def test_a_record_replaces_its_own_kind_alone(self) -> None:
        old, other = {"what": "fuzz", "first_seed": 1, "failed": 7}, {"what": "fuzz", "first_seed": 5, "failed": 0}
        document = {"records": [other, old]}
        update(document, records_of(FULL_RUN))
        of_fuzz = [r for r in document["records"] if r["what"] == "fuzz"]
        self.assertEqual([(r["first_seed"], r["failed"]) for r in of_fuzz], [(1, 0), (5, 0), (7, 1)])

    def test_random_cases_that_ended_early_have_failed(self) -> None:
        shell = (SCRIPTS / "gpu_test.sh").read_text()
        fuzz = re.search(r"^fuzz\(\) \{\n.*?^\}\n", shell, re.DOTALL | re.MULTILINE)[0]
        with tempfile.TemporaryDirectory() as folder:
            test = pathlib.Path(folder) / "build/cuda/tests/fuzz_test"
            test.parent.mkdir(parents=True)
            test.write_text("#!/bin/sh\necho Running; kill -SEGV $$\n")
            test.chmod(0o755)
            done = subprocess.run(
                ["bash", "-c", f"set -euo pipefail\nlogs=.\n{fuzz}fuzz 5 7"],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertNotEqual(done.returncode, 0)
        found = records_of(done.stdout.splitlines())
        self.assertEqual(sum(r["failed"] for r in found), 5, done.stdout + done.stderr)
        self.assertEqual(found[0]["first_seed"], 7)

    def test_a_file_is_made_and_keeps_what_is_not_recorded_anew(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "gpu/tests.json"  # of a device that had none
            for commit, lines in (("c", FULL_RUN), ("d", TRAINING)):
                run = [sys.executable, SCRIPTS / "record_tests.py", out, "--device", "a CPU", "--commit", commit]
                subprocess.run(run, input="\n".join(lines), text=True, capture_output=True, check=True)
            document = json.loads(out.read_text())
        self.assertEqual([*document], ["device", "records"])  # there is no driver
        commits = {r["what"]: r["commit"] for r in document["records"]}
        self.assertEqual((commits["tests"], commits["training"]), ("c", "d"))
        for record in document["records"]:
            self.assertRegex(record["date"], r"^\d{4}-\d\d-\d\d$")

    def test_nothing_to_record_changes_nothing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "tests.json"
            for driver, lines, status in (("1", FULL_RUN, 0), ("2", ["gpu_test: the build failed"], 1)):
                run = [sys.executable, SCRIPTS / "record_tests.py", out]
                run += ["--device", "d", "--driver", driver, "--commit", "c"]
                done = subprocess.run(run, input="\n".join(lines), text=True, capture_output=True, check=False)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertEqual(json.loads(out.read_text())["driver"], "1")


if __name__ == "__main__":
    unittest.main()
