"""Reads the committed result files; what the tables and the plots both need to know of them."""

import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results"
IMAGES = ROOT / "docs/images"
DEVICE = "h200"

# hidden, ffn, heads, kv heads, head dim, vocabulary; as in coda/cli/sm90/groups.cpp
MODELS = {
    "LLaMA-3 1B": (2048, 8192, 32, 8, 64, 128256),
    "LLaMA-3 8B": (4096, 14336, 32, 8, 128, 128256),
    "LLaMA-3 70B": (8192, 28672, 64, 8, 128, 128256),
    "Qwen3-8B": (4096, 12288, 32, 8, 128, 151936),
}
MODEL_ROWS = 16384
LAYOUTS = {"nt": "A·Bᵀ", "nn": "A·B", "tn": "Aᵀ·B"}


def load(name: str, device: str = DEVICE) -> dict | None:
    """A result file, or None where there is none."""
    path = RESULTS / device / name
    return json.loads(path.read_text()) if path.exists() else None


def squares(run: dict) -> tuple[list[str], list[int], dict]:
    """Programs in the file's order, sizes M = N = K, and records by program, layout and size."""
    records = [r for r in run["records"] if r["m"] == r["n"] == r["k"]]
    by = {(r["program"], r["layout"], r["m"]): r for r in records}
    return list(dict.fromkeys(r["program"] for r in records)), sorted({r["m"] for r in records}), by


def model_products(model: str) -> list[tuple[str, str, int, int, int]]:
    """Label, program, M, N and K of the products that a model has."""
    hidden, ffn, heads, kv, dim, vocabulary = MODELS[model]
    attention, qkv, rows = heads * dim, (heads + 2 * kv) * dim, MODEL_ROWS
    return [
        ("gemm_rms_rope, QKV", "gemm_rms_rope", rows, qkv, hidden),
        ("gemm_rms_qknorm_rope, QKV", "gemm_rms_qknorm_rope", rows, qkv, hidden),
        ("gemm_residual_rms, attention's output", "gemm_residual_rms", rows, hidden, attention),
        ("gemm_rms_swiglu, gate and up", "gemm_rms_swiglu", rows, 2 * ffn, hidden),
        ("gemm_residual_rms, down", "gemm_residual_rms", rows, hidden, ffn),
        ("gemm_lse, head", "gemm_lse", rows, vocabulary, hidden),
        ("gemm_lse_without_logits, head", "gemm_lse_without_logits", rows, vocabulary, hidden),
        (
            "gemm_cross_entropy_backward, head, 4096 columns at a time",
            "gemm_cross_entropy_backward",
            rows,
            4096,
            hidden,
        ),
        ("gemm_swiglu_backward, down", "gemm_swiglu_backward", rows, ffn, hidden),
        ("gemm_rms_backward, gate and up", "gemm_rms_backward", rows, hidden, 2 * ffn),
        ("gemm_rms_backward, QKV", "gemm_rms_backward", rows, hidden, qkv),
        ("gemm_weight_gradient, QKV", "gemm_weight_gradient", qkv, hidden, rows),
        ("gemm_weight_gradient, attention's output", "gemm_weight_gradient", hidden, attention, rows),
        ("gemm_weight_gradient, gate and up", "gemm_weight_gradient", 2 * ffn, hidden, rows),
        ("gemm_weight_gradient, down", "gemm_weight_gradient", hidden, ffn, rows),
    ]


def model_ratios(run: dict, which: str = "ratio") -> dict[str, dict[str, float]]:
    """Ratio, or alone_ratio, by label and model; only what was measured."""
    by = {(r["program"], r["m"], r["n"], r["k"]): r[which] for r in run["records"] if which in r}
    out: dict[str, dict[str, float]] = {}
    for model in MODELS:
        for label, *product in model_products(model):
            ratio = by.get(tuple(product))
            if ratio is not None:
                out.setdefault(label, {})[model] = ratio
    return out


def few_rows(run: dict) -> tuple[list[int], dict[str, dict[int, float]]]:
    """Numbers of rows, and by program the time of the product and a kernel behind it over that of the program."""
    by = {(r["program"], r["m"]): r["ms"] for r in run["records"] if r["n"] == r["k"] == 4096 and r["m"] < 4096}
    out: dict[str, dict[int, float]] = {}
    for (program, m), ms in by.items():
        other = by.get((program + "_unfused", m))
        if other is not None:
            out.setdefault(program, {})[m] = other / ms
    return sorted({m for _, m in by}), out


def whole_layers(run: dict) -> list[dict]:
    """The layers with as many tokens as models' products have; files also have one with few."""
    return [r for r in run["records"] if r["tokens"] == MODEL_ROWS]


def layer_peers(peers: dict | None) -> dict[tuple[int, int, str], dict]:
    """Times of a layer by hidden, ffn and pass. The peers' backward is what both passes take less the forward."""
    by = {(r["hidden"], r["ffn"], r["pass"]): r for r in (peers or {}).get("layer", [])}
    for (hidden, ffn, name), both in list(by.items()):
        forward = by.get((hidden, ffn, "forward"))
        if name != "forward+backward" or forward is None:
            continue
        times = {key: both[key] - forward[key] for key in both if isinstance(both[key], float)}
        by[hidden, ffn, "backward"] = times
    return by
