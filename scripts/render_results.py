#!/usr/bin/env python3
"""Writes the README's tables of measured figures from the files under results/, between the two `results` markers."""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results: made by scripts/render_results.py -->", "<!-- end of results -->"


def hopper_table() -> str:
    run = json.loads((ROOT / "results/h200/kernels.json").read_text())
    records = [r for r in run["records"] if r["m"] == r["n"] == r["k"]]
    sizes = sorted({r["m"] for r in records})
    layouts = {"nt": "A·Bᵀ", "nn": "A·B"}
    columns = [(layout, size) for layout in layouts for size in sizes]
    ratio = {(r["program"], r["layout"], r["m"]): r["ratio"] for r in records}
    lines = [
        "## Measured",
        "",
        f"Speed on an {run['device']} relative to the **bare** product of the same M = N = K by cuBLASLt, bf16 (1.00: the",
        "epilogue is free). GPU time by graph replay, L2 flushed, interleaved, medians; driver "
        f"{run['driver']}, CUDA {run['cuda']},",
        f"CUTLASS {run['cutlass']}, commit {run['commit']}; `scripts/gpu_bench.sh` measures it again.",
        "",
        "| program | " + " | ".join(f"{layouts[layout]} {size}" for layout, size in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for program in dict.fromkeys(r["program"] for r in records):
        cells = [f"{ratio[program, layout, size]:.2f}" for layout, size in columns]
        lines.append(f"| `{program}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    readme.write_text(f"{before}{BEGIN}\n\n{hopper_table()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
