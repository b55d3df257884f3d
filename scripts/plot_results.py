#!/usr/bin/env python3
"""Draws docs/images/*.svg from the files under results/. What was not measured is left out."""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from results import IMAGES, MODELS, few_rows, layer_peers, load, model_ratios, squares

OURS = "CODA"
COLORS = {OURS: "C0", "torch.compile": "C1", "QuACK": "C2", "eager": "C7", "Liger": "C4"}


def save(figure, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    # Without a date and with fixed identifiers the same figures give the same file.
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    print(f"wrote docs/images/{name}.svg")


def grouped_bars(axes, names: list[str], groups: dict[str, dict[str, float]], colors: dict[str, str]) -> None:
    """Horizontal bars: for each name one of every group that has it, side by side round its line."""
    height = 0.8 / len(groups)
    for number, (group, values) in enumerate(groups.items()):
        at, widths = [], []
        for i, name in enumerate(names):
            if name not in values:
                continue
            here = [g for g in groups.values() if name in g]
            place = next(j for j, g in enumerate(here) if g is values)
            at.append(i + (place - (len(here) - 1) / 2) * height)
            widths.append(values[name])
        axes.barh(at, widths, height * 0.92, label=group, color=colors.get(group, f"C{number}"))
        for y, width in zip(at, widths):
            axes.text(width + 0.01, y, f"{width:.2f}", va="center", fontsize=6)
    axes.axvline(1.0, color="0.3", linewidth=0.8)
    axes.set_xlim(0, 1.25)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)


def plot_kernels(run: dict, peers: dict | None) -> None:
    programs, sizes, by = squares(run)
    names = [f"{p} ({layout})" for p in programs for layout in ("nt", "nn") if (p, layout, sizes[0]) in by]
    figure, panels = plt.subplots(
        1, len(sizes), figsize=(13, 0.42 * len(names) + 1.4), sharey=True, layout="constrained"
    )
    for axes, size in zip(panels, sizes):
        ours = {f"{p} ({layout})": r["ratio"] for (p, layout, m), r in by.items() if m == size}
        groups = {OURS: ours}
        for r in peers["records"] if peers else []:
            if r["m"] != size:
                continue
            for name in names:
                if name.split(" ")[0] == r["program"]:
                    groups.setdefault(r["peer"], {})[name] = r["ratio"]
        grouped_bars(axes, names, groups, COLORS)
        axes.set_title(f"M = N = K = {size}")
    panels[len(sizes) // 2].set_xlabel("speed relative to the bare product by cuBLASLt (1: the epilogue is free)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower right", ncols=len(COLORS), fontsize=7)
    versions = "; ".join(p["version"] for p in peers["peers"]) if peers else ""
    figure.suptitle(
        f"{run['device']}, bf16, commit {run['commit']}" + (f"; peers (all A Bᵀ): {versions}" if versions else "")
    )
    save(figure, "kernels")


def plot_models(run: dict) -> None:
    ratios = model_ratios(run)
    if not ratios:
        return
    names = list(ratios)
    groups = {model: {n: r[model] for n, r in ratios.items() if model in r} for model in MODELS}
    figure, axes = plt.subplots(figsize=(9, 0.62 * len(names) + 1.2), layout="constrained")
    grouped_bars(axes, names, {m: v for m, v in groups.items() if v}, {})
    axes.set_xlabel("speed relative to the bare product by cuBLASLt")
    axes.set_title(f"Products of whole models, M = 16384; {run['device']}, bf16, commit {run['commit']}")
    figure.legend(loc="outside lower right", ncols=4, fontsize=7)
    save(figure, "models")


def plot_few_rows(run: dict) -> None:
    sizes, gains = few_rows(run)
    if not gains:
        return
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for number, (program, gain) in enumerate(gains.items()):
        at = sorted(gain)
        style = "o-" if number < 10 else "s--"
        axes.plot(at, [gain[m] for m in at], style, color=f"C{number % 10}", markersize=3, linewidth=1, label=program)
    axes.axhline(1.0, color="0.3", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(m) for m in sizes])
    axes.set(xlabel="rows M (N = K = 4096)", ylabel="time of product + separate kernel / time of program")
    axes.set_title(f"Few rows; {run['device']}, bf16, commit {run['commit']}")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", fontsize=6, ncols=4)
    save(figure, "few_rows")


def plot_host(run: dict, peers: dict | None) -> None:
    records = run["records"]
    names = [r["program"] for r in records] + [f"{p['peer']} (Python)" for p in (peers or {}).get("host", [])]
    figure, axes = plt.subplots(figsize=(8, 0.26 * len(names) + 1.2), layout="constrained")
    axes.barh(
        range(len(records)), [r["seen_us"] for r in records], 0.7, color=COLORS[OURS], label="CODA, C++, shape seen"
    )
    axes.plot([r["new_us"] for r in records], range(len(records)), "|", color="k", label="CODA, C++, new shape")
    for i, peer in enumerate((peers or {}).get("host", []), len(records)):
        axes.barh(i, peer["most_us"] - peer["least_us"], 0.7, left=peer["least_us"], color="C1")
    axes.axvline(5, color="0.3", linestyle="--", linewidth=0.8, label="target, 5 µs")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(left=1)
    axes.set_xlabel("microseconds of the host for one call")
    axes.set_title(f"{run['device']}, commit {run['commit']}")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=7)
    save(figure, "host")


def plot_layer(run: dict, peers: dict | None) -> None:
    names, groups = [], {OURS: {}}
    peer_records = layer_peers(peers)
    for r in run["records"]:
        name = f"{r['hidden']}/{r['ffn']} {r['pass']}"
        names.append(name)
        groups[OURS][name] = r["ratio"]
        other = peer_records.get((r["hidden"], r["ffn"], r["pass"]))
        for peer in ("torch.compile", "Liger", "eager") if other else ():
            groups.setdefault(peer, {})[name] = other["gemms_ms"] / other[peer]
    figure, axes = plt.subplots(figsize=(8, 0.62 * len(names) + 1.2), layout="constrained")
    grouped_bars(axes, names, groups, COLORS)
    axes.set_xlabel("sum of the layer's bare products by cuBLAS / time of the layer without attention")
    axes.set_title(f"A layer, M = 16384; {run['device']}, bf16, commit {run['commit']}")
    figure.legend(loc="outside lower right", ncols=4, fontsize=7)
    save(figure, "layer")


def main() -> None:
    plt.rcParams.update({"svg.hashsalt": "coda", "font.size": 8})
    kernels, host, layer, peers = (load(f"{name}.json") for name in ("kernels", "host", "layer", "peers"))
    if kernels is None:
        sys.exit("plot_results: no results/h200/kernels.json: scripts/gpu_bench.sh writes it")
    plot_kernels(kernels, peers)
    plot_models(kernels)
    plot_few_rows(kernels)
    if host:
        plot_host(host, peers)
    if layer:
        plot_layer(layer, peers)


if __name__ == "__main__":
    main()
