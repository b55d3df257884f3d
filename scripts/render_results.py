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


def cpu_table() -> str:
    run = json.loads((ROOT / "results/xeon-amx-2cores/kernels.json").read_text())
    ratio = {(r["program"], r["layout"], r["shape"][0]): r for r in run["records"]}
    columns = [(layout, size) for layout in ("nt", "nn") for size in (1024, 2048)]
    names = {"nt": "A·Bᵀ", "nn": "A·B"}
    lines = [
        f"On a CPU ({run['device']}; {run['library']}, bf16): speed relative to the bare",
        "product / relative to the unfused chain (that product and one more pass). With AMX the product is so short that the",
        f"epilogue's arithmetic shows. Commit {run['commit']}; `coda bench` measures it again.",
        "",
        "| program | " + " | ".join(f"{names[layout]} {size}" for layout, size in columns) + " |",
        "|---|" + "---|" * len(columns),
    ]
    for program in (
        "gemm",
        "gemm_rms",
        "gemm_rms_swiglu",
        "gemm_residual_rms",
        "gemm_rms_backward",
        "gemm_swiglu_backward",
    ):
        cells = [ratio[program, layout, size] for layout, size in columns]
        text = " | ".join(f"{c['bare_over_fused']:.2f} / {c['unfused_over_fused']:.2f}" for c in cells)
        lines.append(f"| `{program}` | {text} |")
    return "\n".join(lines)


def main() -> None:
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    readme.write_text(f"{before}{BEGIN}\n\n{hopper_table()}\n\n{cpu_table()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
