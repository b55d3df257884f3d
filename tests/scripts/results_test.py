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
