#!/usr/bin/env python3
"""Draws docs/images/*.svg from the files under results/. What was not measured is left out."""

import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from results import IMAGES, LAYOUTS, MODELS, few_rows, layer_peers, load, model_ratios, squares, whole_layers

OURS = "CODA"
COLORS = {
    OURS: "C0",
    "QuACK": "C2",
    "torch.compile, max-autotune": "C3",
    "torch.compile": "C1",
    "Liger": "C4",
    "eager": "C7",
}
SPEED = "speed relative to the bare product by cuBLASLt (1: the epilogue is free)"


def save(figure, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    # Without a date and with fixed identifiers the same figures give the same file.
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    print(f"wrote docs/images/{name}.svg")


BAR = 0.12  # inches of a bar's height
GAP = 0.8  # bars between the groups of two names


class Rows:
    """Where the bars of each name go, in bars from the top: as many as one of the plots has of it."""

    def __init__(self, names: list[str], plots: list[dict[str, dict[str, float]]]):
        self.centers, self.height = {}, GAP / 2
        for name in names:
            bars = max(sum(name in values for values in groups.values()) for groups in plots)
            self.centers[name] = self.height + bars / 2
            self.height += bars + GAP
        self.inches = BAR * self.height


def grouped_bars(axes, rows: Rows, groups: dict[str, dict[str, float]], colors: dict[str, str]) -> None:
    """Horizontal bars: for each name one of every group that has it, below each other; in the order of `colors`."""
    groups = {g: groups[g] for g in sorted(groups, key=[*colors, *groups].index)}
    for number, (group, values) in enumerate(groups.items()):
        at, widths = [], []
        for name, width in values.items():
            here = [g for g in groups if name in groups[g]]
            at.append(rows.centers[name] + here.index(group) - (len(here) - 1) / 2)
            widths.append(width)
        axes.barh(at, widths, 0.9, label=group, color=colors.get(group, f"C{number}"))
        for y, width in zip(at, widths):
            axes.text(width + 0.01, y, f"{width:.2f}", va="center", fontsize=6, zorder=4)
    axes.axvline(1.0, color="0.3", linewidth=0.8, zorder=3)
    axes.set_xlim(0, 1.25)
    axes.set_yticks(list(rows.centers.values()), list(rows.centers))
    axes.set_ylim(rows.height - GAP / 2, 0)
    axes.grid(axis="x", alpha=0.3)


def measured_on(run: dict) -> str:
    return f"{run['device']}, bf16, commit {run['commit']}"


def peers_from(peers: dict | None) -> str:
    """Which peers, and where they were measured."""
    if not peers:
        return ""
    versions = "; ".join(dict.fromkeys(p["version"] for p in peers["peers"]))
    return f"\npeers: {versions}; {peers['device']}, {peers['date']}"


def plot_kernels(run: dict, peers: dict | None) -> None:
    programs, sizes, by = squares(run)
    names = [f"{p} ({layout})" for p in programs for layout in LAYOUTS if (p, layout, sizes[0]) in by]
    bars = []  # one for each size: groups of grouped_bars
    for size in sizes:
        groups = {OURS: {f"{p} ({layout})": r["ratio"] for (p, layout, m), r in by.items() if m == size}}
        for r in peers["records"] if peers else []:
            for name in names:
                if r["m"] == size and name.split(" ")[0] == r["program"]:
                    groups.setdefault(r["peer"], {})[name] = r["ratio"]
        bars.append(groups)
    rows = Rows(names, bars)
    figure, panels = plt.subplots(1, len(sizes), figsize=(13, rows.inches + 1.6), sharey=True, layout="constrained")
    for axes, size, groups in zip(panels, sizes, bars):
        grouped_bars(axes, rows, groups, COLORS)
        axes.set_title(f"M = N = K = {size}")
    panels[len(sizes) // 2].set_xlabel(SPEED)
    panels[0].set_ylabel(f"program ({', '.join(f'{key}: {product}' for key, product in LAYOUTS.items())})")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower right", ncols=len(COLORS), fontsize=7)
    figure.suptitle(f"Programs beside their bare product; longer is faster; {measured_on(run)}{peers_from(peers)}")
    save(figure, "kernels")


def plot_models(run: dict) -> None:
    ratios = model_ratios(run)
    if not ratios:
        return
    names = list(ratios)
    groups = {model: {n: r[model] for n, r in ratios.items() if model in r} for model in MODELS}
    groups = {m: v for m, v in groups.items() if v}
    rows = Rows(names, [groups])
    figure, axes = plt.subplots(figsize=(9, rows.inches + 1.2), layout="constrained")
    grouped_bars(axes, rows, groups, {})
    axes.set_xlabel(SPEED)
    axes.set_ylabel("program and its product in the model")
    figure.suptitle(f"Products of whole models, M = 16384; longer is faster; {measured_on(run)}")
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
    axes.set_title(f"Few rows: above 1 the program is faster; {measured_on(run)}")
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
        label = None if i > len(records) else "peers, Python, shape seen: least to most of all programs"
        axes.barh(i, peer["most_us"] - peer["least_us"], 0.7, left=peer["least_us"], color="C1", label=label)
    axes.axvline(5, color="0.3", linestyle="--", linewidth=0.8, label="target, 5 µs")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(left=1)
    axes.set_xlabel("microseconds of the host for one call")
    axes.set_ylabel("program")
    axes.set_title(f"The host's time for a call; shorter is better; {run['device']}, commit {run['commit']}")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize=7)
    save(figure, "host")


def plot_layer(run: dict, peers: dict | None) -> None:
    names, groups = [], {OURS: {}}
    peer_records = layer_peers(peers)
    for r in whole_layers(run):
        name = f"{r['hidden']}/{r['ffn']} {r['pass']}"
        names.append(name)
        groups[OURS][name] = r["ratio"]
        other = peer_records.get((r["hidden"], r["ffn"], r["pass"]))
        for peer in COLORS.keys() & other.keys() - {OURS} if other else ():
            groups.setdefault(peer, {})[name] = other["gemms_ms"] / other[peer]
    rows = Rows(names, [groups])
    figure, axes = plt.subplots(figsize=(8, rows.inches + 1.2), layout="constrained")
    grouped_bars(axes, rows, groups, COLORS)
    axes.set_xlabel("sum of the layer's bare products by cuBLAS / time of the layer")
    axes.set_ylabel("hidden / ffn width")
    of = (peers or {}).get("layer_run")
    where = f"\npeers: torch {of['torch']}; commit {of['commit']}, {of['date']}" if of else peers_from(peers)
    figure.suptitle(f"A layer without attention, 16384 tokens; longer is faster; {measured_on(run)}{where}")
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
