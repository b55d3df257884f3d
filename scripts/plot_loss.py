"""Draws the loss of a run, and how far the fused and the unfused model are apart.

usage: plot_loss.py <log.jsonl> <comparison.json> <output.png>
"""

import json
import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def read_json(text):
    """JSON has no NaN: a loss that is none is null."""
    return json.loads(re.sub(r"\bnull\b", "NaN", text))


def read_log(path):
    return [read_json(line) for line in Path(path).read_text().splitlines() if line]


def smoothed(values, weight=0.85):
    """Exponential mean, corrected for its start."""
    mean, total, out = 0.0, 0.0, []
    for value in values:
        mean, total = weight * mean + (1 - weight) * value, weight * total + 1 - weight
        out.append(mean / total)
    return out


def plot_losses(axes, log):
    steps, losses = [line["step"] for line in log], [line["loss"] for line in log]
    axes.plot(steps, losses, color="C0", alpha=0.25, linewidth=0.8)
    axes.plot(steps, smoothed(losses), color="C0", label="training")
    validation = [(line["step"], line["validation_loss"]) for line in log if "validation_loss" in line]
    if validation:
        axes.plot(
            *zip(*validation),
            "o-",
            color="C1",
            markersize=4,
            label=f"validation, {validation[-1][1]:.3f} at the end",
        )
    axes.set(
        xlabel="step",
        ylabel="loss, nats per byte",
        title="Training through the programs",
    )
    axes.legend()


def plot_differences(axes, comparison):
    for number, dtype in enumerate(name for name in ("fp32", "bf16") if name in comparison):
        pairs = zip(comparison[dtype]["fused"]["losses"], comparison[dtype]["unfused"]["losses"])
        differences = [max(abs(a - b), 1e-9) for a, b in pairs]
        axes.semilogy(range(1, len(differences) + 1), differences, color=f"C{number}", label=dtype)
    axes.axhline(1e-3, color="0.5", linestyle="--", linewidth=0.8, label="target in fp32")
    axes.set(xlabel="step", ylabel="nats per byte", title="|fused loss - unfused loss|")
    axes.legend()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    log, comparison, out = sys.argv[1:]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    plot_losses(left, read_log(log))
    plot_differences(right, read_json(Path(comparison).read_text()))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(out, dpi=120)


if __name__ == "__main__":
    main()
