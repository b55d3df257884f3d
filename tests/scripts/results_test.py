#!/usr/bin/env python3
"""The committed results can be drawn, and the README's figures are theirs."""

import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import render_results
import results


class Results(unittest.TestCase):
    def test_the_readme_has_the_committed_figures(self) -> None:
        readme = (results.ROOT / "README.md").read_text()
        self.assertEqual(render_results.with_results(readme), readme, "`make plots` writes them")

    def test_what_is_between_the_markers_is_replaced(self) -> None:
        begin, end = render_results.BEGIN, render_results.END
        made = render_results.with_results(f"above\n{begin}\nof an earlier run\n{end}\nbelow\n")
        self.assertEqual(made, f"above\n{begin}\n\n{render_results.results()}\n\n{end}\nbelow\n")

    def test_failures_are_told(self) -> None:
        """Committed runs have none."""
        reruns = {"what": "reruns", "kernels_and_layouts": 6, "times": 20}
        records = [
            {"what": "tests", "run": 9, "passed": 7, "failed": 2, "skipped": 0, "broken": ["layer_test", "examples"]},
            {"what": "verify", "outputs": 30, "cases": 5, "ok": 28, "failed": 2, "commit": "b"},
            {"what": "edge cases", "cases": 40, "failed": 3},
            {"what": "fuzz", "cases": 100, "fused": 50, "outputs": 200, "failed": 4},
            {"what": "fuzz", "cases": 100, "fused": 50, "outputs": 200, "failed": 5},
            reruns | {"how": "while idle", "differ": 1},
            reruns | {"how": "under load", "differ": 2},
            {"what": "processes", "processes": 3, "hashes": 7, "differ": 5},
            {"what": "sanitizer", "tool": "memcheck", "reports": 8, "broken": 1},
        ]
        tests = {"device": "GPU", "records": [{"commit": "a"} | record for record in records]}
        text = " ".join(render_results.tests_section(tests))
        for said in (
            "7 of 9 tests, 2 programs ended early; 28 of 30 outputs within the bound against fp64 (at b);",
            "3 of 40 edge cases failed; 9 of 200 random cases",
            "memcheck 8, 1 programs ended badly reports;",
            ": 8 with another bit.",
        ):
            self.assertIn(said, text)
        trained = {"what": "training", "by": "C++", "model": "llama", "steps": 10, "seeds": 2, "dtype": "bf16"}
        trained |= {"differ_by": 0.25, "allowed": 0.086, "verdict": "FAILED", "commit": "a"}
        text = "\n".join(render_results.training_section([{"device": "GPU", "records": [trained]}]))
        self.assertIn("0.25 / 0.086 FAILED |", text)

    def test_the_plots_are_of_the_committed_runs(self) -> None:
        for name, plots in {
            "kernels": ("kernels", "models", "few_rows"),
            "host": ("host",),
            "layer": ("layer",),
        }.items():
            commit = results.load(f"{name}.json")["commit"]
            for plot in plots:
                drawn = re.search(r"commit ([0-9a-f]+)", (results.IMAGES / f"{plot}.svg").read_text())
                self.assertEqual(drawn and drawn[1], commit, f"{plot}.svg: `make plots` draws it")

    def test_each_product_of_a_model_has_a_name(self) -> None:
        run = results.load("kernels.json")
        named = {tuple(product) for model in results.MODELS for _, *product in results.model_products(model)}
        rows = [r for r in run["records"] if results.MODEL_ROWS in (r["m"], r["k"])]
        missing = {
            (r["program"], r["m"], r["n"], r["k"]) for r in rows if r["program"] in {p[0] for p in named}
        } - named
        self.assertEqual(missing, set())


if __name__ == "__main__":
    unittest.main()
