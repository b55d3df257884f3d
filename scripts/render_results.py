#!/usr/bin/env python3
"""Writes the README's tables of measured figures from the files under results/, between the two `results` markers."""

import math
import textwrap

from results import (
    DEVICE,
    IMAGES,
    LAYOUTS,
    MODEL_ROWS,
    MODELS,
    ROOT,
    few_rows,
    load,
    model_ratios,
    squares,
    whole_layers,
)

BEGIN, END = "<!-- results: made by scripts/render_results.py -->", "<!-- end of results -->"

ALONE = (
    "In turn, programs and bare product share one clock; alone, each has the clock that its own power draw allows, as in "
    "hours of training."
)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|"] + [f"| {' | '.join(row)} |" for row in rows]


def wrapped(text: str) -> list[str]:
    return [*textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False), ""]


def image(name: str, text: str) -> list[str]:
    path = IMAGES / f"{name}.svg"
    return [f"![{text}]({path.relative_to(ROOT)})", ""] if path.exists() else []


def kernel_section(run: dict, peers: dict | None) -> list[str]:
    programs, sizes, by = squares(run)
    peer_names = [p["peer"] for p in peers["peers"] if p["peer"] != "eager"] if peers else []
    peer_ratio = {(r["peer"], r["program"], r["m"]): r["ratio"] for r in peers["records"]} if peers else {}
    rows = []
    for program in programs:
        for layout, name in LAYOUTS.items():
            if not all((program, layout, size) in by for size in sizes):
                continue
            cells = [f"`{program}`", name] + [f"{by[program, layout, size]['ratio']:.2f}" for size in sizes]
            for peer in peer_names:
                found = [peer_ratio.get((peer, program, size)) for size in sizes]
                cells.append(" / ".join(f"{x:.2f}" if x else "-" for x in found) if any(found) else "")
            rows.append(cells)
    text = (
        f"Speed on an {run['device']} relative to the **bare** product of the same M = N = K by cuBLASLt's own choice of an "
        "algorithm, bf16. At 1.00 a program is as fast as that product alone; `gemm` is what `coda tune` found fastest of "
        "cuBLASLt's algorithms and a kernel of this library. GPU time of CUDA-graph replays, L2 flushed before each, "
        "interleaved in random order; medians of up to 40, after 400 ms of the same work, so that clocks are those of sustained load; "
        f"driver {run['driver']}, CUDA {run['cuda']}, CUTLASS {run['cutlass']}, "
        f"commit {run['commit']}; `scripts/gpu_bench.sh` measures it again."
    )
    if peers:
        versions = "; ".join(dict.fromkeys(p["version"] for p in peers["peers"]))
        layouts = ", all in A·Bᵀ" if all(r.get("layout", "nt") == "nt" for r in peers["records"]) else ""
        how = "" if "commit" in peers else " (by hand, not by `gpu_bench.sh --peers`)"
        text += f" Peers on an {peers['device']}, {peers['date']}, in a run of their own{how}{layouts}: {versions}."
        for peer, programs_of in peers.get("differs", {}).items():
            text += f" {peer}: " + "; ".join(f"`{p}` {what}" for p, what in programs_of.items()) + "."
    lines = wrapped(text)
    sizes_text = " / ".join(str(size) for size in sizes)
    head = ["program", "product"] + [str(size) for size in sizes] + [f"{peer}: {sizes_text}" for peer in peer_names]
    legend = [
        "",
        "`gemm_bias` is `gemm` with one; `without_preact`, `without_logits`: what training would keep is not stored;",
        "`gemm_layernorm_gelu` is `gemm_layernorm` and `gemm_gelu_backward` `gemm_activation_backward` with GELU by tanh;",
        "`gemm_weight_gradient` is `gemm` that adds to fp32.",
    ]
    return (
        lines
        + image("kernels", "Speed of each program relative to the bare product")
        + table(head, rows)
        + legend
        + [""]
    )


def model_section(run: dict) -> list[str]:
    ratios = model_ratios(run)
    if not ratios:
        return []
    models = [m for m in MODELS if any(m in r for r in ratios.values())]
    alone = model_ratios(run, "alone_ratio")

    def cell(label: str, model: str) -> str:
        found = [f"{of[label][model]:.2f}" for of in (ratios, alone) if model in of.get(label, {})]
        return " / ".join(found)

    rows = [[label] + [cell(label, m) for m in models] for label in ratios]
    text = (
        "The same for the products that models have, 16384 tokens. `gemm_weight_gradient` adds to a gradient in fp32, "
        "which it reads and writes; its bare product writes 16 bits."
    )
    if alone:
        text += f" First figure: in turn. Second figure, of work of 2 ms or more: alone. {ALONE}"
    lines = wrapped(text)
    return lines + image("models", "Speed at the shapes of models") + table(["program"] + models, rows) + [""]


def few_rows_section(run: dict) -> list[str]:
    sizes, gains = few_rows(run)
    if not gains:
        return []
    rows = [[f"`{p}`"] + [f"{g[m]:.2f}" if m in g else "" for m in sizes] for p, g in gains.items()]
    lines = [
        "With few rows (N = K = 4096): the time of cuBLASLt's product and a separate kernel, divided by that of what CODA runs:",
        "",
    ]
    return lines + image("few_rows", "Few rows") + table(["program"] + [f"M = {m}" for m in sizes], rows) + [""]


PRODUCTS = ("gemm_weight_gradient",)  # cuBLASLt's alone, which loads code for each new shape


def host_section(run: dict, peers: dict | None) -> list[str]:
    def times(name: str, products: bool) -> list[float]:
        return [r[name] for r in run["records"] if name in r and (r["program"] in PRODUCTS) == products]

    def span(name: str, products: bool) -> str:
        least, most = (f"{end(times(name, products)):.1f}" for end in (min, max))
        return f"{least} µs" if least == most else f"{least} to {most} µs"

    split = f"{span('split_us', False)} where it splits the last round of tiles, " if times("split_us", False) else ""
    text = (
        f"Host time of a call from C++: {span('seen_us', False)} for a shape used before, {split}"
        f"{span('new_us', False)} for a new shape, up to {max(times('first_us', False)) / 1000:.1f} ms for a program's "
        "first call in a process. "
        "Products that add to what is there, or of Aᵀ, are cuBLASLt's, which loads its own code: "
        f"{span('seen_us', True)}, up to "
        f"{max(times('new_us', True)) / 1000:.1f} ms and up to {max(times('first_us', True)) / 1000:.0f} ms. "
        "Nothing is compiled or tuned."
    )
    if peers:
        others = ", ".join(f"{p['peer']} {p['least_us']} to {p['most_us']} µs" for p in peers["host"])
        text += f" From Python, shapes seen: {others}."
    return wrapped(text) + image("host", "Host time of a call")


def small_section(run: dict) -> list[str]:
    """Of each kernel the size that moves most bytes. The copy is the fastest of all: that beside a kernel is slower by a
    third where its two buffers happen to lie badly."""
    copy = max(r["bytes"] / r["copy_ms"] for r in run["records"])  # bytes a millisecond
    largest: dict[str, dict] = {}
    for r in run["records"]:
        if r["program"] != "memset" and r["bytes"] > largest.get(r["program"], {"bytes": 0})["bytes"]:
            largest[r["program"]] = r
    ratios = {name: r["bytes"] / r["ms"] / copy for name, r in largest.items()}
    text = (
        f"Kernels without a product that move {min(r['bytes'] for r in largest.values()) / 1e9:.1f} GB or more, against a "
        f"copy's {copy / 1e9:.2f} TB/s: "
        + ", ".join(f"`{name}` {ratio:.2f}" for name, ratio in sorted(ratios.items(), key=lambda x: -x[1]))
        + "."
    )
    return wrapped(text)


def layer_peers_section(peers: dict | None) -> list[str]:
    if not peers:
        return []
    records = peers["layer"]
    names = [n for n in ("CODA", "torch.compile", "eager", "Liger") if any(n in r for r in records)]
    rows = [
        [f"{r['hidden']} / {r['ffn']}", r["pass"], f"{r['gemms_ms']:.2f}"]
        + [f"{r[n]:.2f}" if n in r else "" for n in names]
        for r in records
    ]
    of = peers.get("layer_run", peers)
    where = f"commit {of['commit']}, torch {of['torch']}, {of['date']}" if "commit" in of else of["date"]
    text = (
        f"The same layer called from PyTorch, and PyTorch's own, in turn with its products by `torch.mm` ({where}), ms:"
    )
    return wrapped(text) + table(["hidden / ffn", "passes", "products", *names], rows) + [""]


def layer_section(run: dict, peers: dict | None) -> list[str]:
    alone = all("alone_ratio" in r for r in whole_layers(run))
    rows = []
    for r in whole_layers(run):
        held = f"{r['bytes_saved'] / 2**20:.0f}"
        if "bytes_saved_unfused" in r:
            held += f" ({r['bytes_saved_unfused'] / 2**20:.0f})"
        rows.append(
            [
                f"{r['hidden']} / {r['ffn']}",
                r["pass"],
                f"{r['ms']:.2f}",
                f"{r['gemms_ms']:.2f}",
                f"{r['ratio']:.2f}",
                *([f"{r['alone_ratio']:.2f}"] if alone else []),
                held,
            ]
        )
    modes = ", in turn and alone" if alone else ""
    lines = [f"A layer without attention, 16384 tokens, against the sum of its bare products by cuBLASLt{modes}:", ""]
    head = [
        "hidden / ffn",
        "pass",
        "ms",
        "products, ms",
        "products / layer",
        *(["alone"] if alone else []),
        "MiB held for the backward (unfused)",
    ]
    lines += image("layer", "A layer against its products") + table(head, rows) + [""]
    few = [r for r in run["records"] if r["tokens"] != MODEL_ROWS and r["pass"] == "forward"]
    if few:
        tokens, ratios = (", ".join(x) for x in ([str(r["tokens"]) for r in few], [f"{r['ratio']:.2f}" for r in few]))
        width = f"{few[0]['hidden']} / {few[0]['ffn']}"
        lines += wrapped(f"The forward pass of {width} with {tokens} tokens, products / layer: {ratios}.")
    lines += layer_peers_section(peers)
    return lines


def step_section(runs: list[dict]) -> list[str]:
    kinds = list(runs[0]["models"][0]["steps"])
    rows = [
        [f"{model['model']}; {run['device'].removeprefix('NVIDIA ').split()[0]}"]
        + [f"{model['steps'][kind]['ms']:.1f}" for kind in kinds]
        + [f"{model['steps'][kind]['step_mib'] / 1024:.1f}" for kind in kinds]
        for run in runs
        for model in run["models"]
    ]
    head = ["model", *(f"{kind}, ms" for kind in kinds), *(f"{kind}, GiB" for kind in kinds)]
    commits = ", ".join(f"{run['commit']} (torch {run['torch'].partition('+')[0]})" for run in runs)
    text = (
        "From PyTorch: a training step, forward and backward of 8192 tokens (4 x 2048) in bf16 with PyTorch's attention, "
        "by `pycoda.Llama` and by plain PyTorch (compiled a layer at a time), and the memory that it takes beyond the "
        "weights. Graph replays in "
        f"turn, medians; commits {commits}. Host time of a call from Python (1024 x 1024 x 512), each run on a host of "
        "its own: "
        + ", ".join(
            f"`{calls[0]['call']}` {' and '.join(format(r['us'], '.1f') for r in calls)} µs"
            for calls in zip(*(run["host"] for run in runs), strict=True)
        )
        + "."
    )
    return wrapped(text) + table(head, rows) + [""]


def paper_section(run: dict) -> list[str]:
    by = {(r["kernel"], r["m"]): r for r in run["records"]}
    sizes = sorted({m for _, m in by})
    rows = [
        [f"`{kernel}`"]
        + [f"{by[kernel, m]['ratio']:.2f}" for m in sizes]
        + [" / ".join(f"{by[kernel, m]['compile_ratio']:.2f}" for m in sizes)]
        for kernel in dict.fromkeys(r["kernel"] for r in run["records"])
    ]
    host = [r["host_us"] for r in run["records"] if "host_us" in r]
    text = (
        "The paper's ten kernels from PyTorch (`pycoda.paper`) and the same maths by torch.compile, relative to the bare "
        f"product by torch.mm (M = N = K, bf16, `block_size` 128, all in one run at {run['commit']}, torch "
        f"{run['torch'].partition('+')[0]}). Small kernels that put partial results together count, which is what the "
        f"losses have at 2048. A call takes {min(host):.0f} to {max(host):.0f} µs of the host's time."
    )
    text += "".join(f" `{r['kernel']}` at {r['m']}: {r['note']}." for r in run["records"] if "note" in r)
    head = ["kernel", *map(str, sizes), f"torch.compile: {' / '.join(map(str, sizes))}"]
    return wrapped(text) + table(head, rows) + [""]


def tests_section(tests: dict) -> list[str]:
    def of(what: str) -> list[dict]:
        return [r for r in tests["records"] if r["what"] == what]

    def at(record: dict) -> str:
        """What there is to say of a record: its commit, if it is another than the tests', and its note."""
        commit = "" if record["commit"] == run["commit"] else f"at {record['commit']}"
        said = "; ".join(filter(None, (commit, record.get("note"))))
        return f" ({said})" if said else ""

    # What gpu_test.sh leaves out.
    left_out = {
        "initcheck": " (the kernels between products)",
        "racecheck": " (but for many tiles of a GLU's backward)",
    }

    def watched(record: dict) -> str:
        theirs = f" and {record['of_cublaslt']} in cuBLASLt's kernels" if record.get("of_cublaslt") else ""
        bad = f", {record['broken']} programs ended badly" if "broken" in record else ""
        return f"{record['tool']}{left_out.get(record['tool'], '')} {record['reports']}{theirs}{bad}{at(record)}"

    run, verify, edges = of("tests")[0], of("verify")[0], of("edge cases")[0]
    reruns = max(of("reruns"), key=lambda r: r["times"])
    of_reruns = [r for r in of("reruns") if r["times"] == reruns["times"]]
    of_reruns += [r for r in of("processes") if r["commit"] == reruns["commit"]]
    differ = sum(r["differ"] for r in of_reruns)  # while idle, under load, from process to process
    drawn = [r for r in of("fuzz") if "fused" in r]
    cases, fused, failed = (sum(r[name] for r in drawn) for name in ("cases", "fused", "failed"))
    faults = "".join(f"; {r['caught']} of {r['faults']} seeded faults caught{at(r)}" for r in of("mutation"))
    broken = f", {len(run['broken'])} programs ended early" if "broken" in run else ""
    text = (
        f"Tested on an {tests['device']} (`scripts/gpu_test.sh`, commit {run['commit']}): {run['passed']} of {run['run']} "
        f"tests{broken}{at(run)}; {verify['ok']} of {verify['outputs']} outputs within the bound against fp64{at(verify)}; "
        f"{edges['failed']} of {edges['cases']} edge cases failed{at(edges)}; {failed} of {cases:,} random cases (at "
        f"several commits, {fused:,} of them fused); "
        + ", ".join(watched(r) for r in of("sanitizer"))
        + f" reports; {reruns['kernels_and_layouts']} kernels and layouts run {reruns['times']} times{at(reruns)}: "
        f"{differ} with another bit{faults}."
    )
    return wrapped(text)


def training_section(runs: list[dict]) -> list[str]:
    """What tests/training printed on each device."""
    names = {"llama": "LLaMA", "qwen3": "Qwen3"}
    rows: dict[str, dict] = {}
    for run in runs:
        for r in (r for r in run["records"] if r["what"] == "training"):
            where = f"{names[r['model']]}, {r['by']}, {run['device'].split(',')[0]}, commit {r['commit']}"
            rows.setdefault(where, {})[r["dtype"]] = r
    if not rows:
        return []
    first = next(iter(rows.values()))["bf16"]

    def cell(r: dict | None) -> str:
        return (
            "" if r is None else f"{r['differ_by']:g} / {r['allowed']:g}" + ("" if r["verdict"] == "ok" else " FAILED")
        )

    text = (
        f"Small models trained for {first['steps']} steps from {first['seeds']} seeds, by CODA and by the same maths as "
        "separate operations: the largest difference of losses (nats per byte) / what is allowed, which in bf16 is how "
        "far the seeds of the separate operations lie apart."
    )
    table = ["| model | fp32, at any step | bf16, in the last 50 steps |", "|---|---|---|"]
    table += [f"| {where} | {cell(by.get('fp32'))} | {cell(by.get('bf16'))} |" for where, by in rows.items()]
    return [*wrapped(text), *table, ""]


def other_device_section(run: dict) -> list[str]:
    _, sizes, by = squares(run)
    ranges = []
    for size in sizes:
        ratios = [r["ratio"] for (program, _, m), r in by.items() if m == size and program != "gemm"]
        ranges.append(f"{min(ratios):.2f} to {max(ratios):.2f} at {size}")
    models = [x for ratios in model_ratios(run).values() for x in ratios.values()]
    alone = [x for ratios in model_ratios(run, "alone_ratio").values() for x in ratios.values()]
    text = (
        f"On an {run['device']} (commit {run['commit']}), whose memory is slower, the programs reach {', '.join(ranges)}, "
        f"and {min(models):.2f} to {max(models):.2f} at the shapes of models"
        + (f" ({min(alone):.2f} to {max(alone):.2f} alone)." if alone else ".")
    )
    return wrapped(text)


def cpu_section(runs: list[dict]) -> list[str]:
    of = "; ".join(f"{run['device']}, commit {run['commit']}" for run in runs)
    lines = wrapped(
        f"On CPUs ({of}; {runs[0]['library']}, bf16): speed relative to the bare product / relative to the unfused chain "
        "(that product and one more pass). With AMX the product is so short that the epilogue's arithmetic shows. "
        "`coda bench` measures it again."
    )
    for run in runs:
        lines += cpu_table(run)
    return lines


def cpu_table(run: dict) -> list[str]:
    ratio = {(r["program"], r["layout"], tuple(r["shape"])): r for r in run["records"] if r["dtype"] == "bf16"}
    shapes = sorted({shape for _, _, shape in ratio}, key=lambda shape: math.prod(shape))
    columns = [(layout, shape) for layout in ("nt", "nn") for shape in shapes]
    rows = []
    for program in (
        "gemm",
        "gemm_rms",
        "gemm_rms_swiglu",
        "gemm_residual_rms",
        "gemm_rms_backward",
        "gemm_swiglu_backward",
    ):
        cells = [ratio[program, layout, shape] for layout, shape in columns]
        rows.append([f"`{program}`"] + [f"{c['bare_over_fused']:.2f} / {c['unfused_over_fused']:.2f}" for c in cells])
    programs = {program for program, _, _ in ratio}
    least = [
        [
            min(r[key] for at, r in ratio.items() if at[1:] == column)
            for key in ("bare_over_fused", "unfused_over_fused")
        ]
        for column in columns
    ]
    rows.append([f"the least of all {len(programs)}"] + [f"{bare:.2f} / {unfused:.2f}" for bare, unfused in least])
    head = [f"{run['threads']} threads, {run['device'].split(',')[0]}"] + [
        f"{LAYOUTS[layout]} {shape[0] if len(set(shape)) == 1 else ' x '.join(map(str, shape))}"
        for layout, shape in columns
    ]
    return table(head, rows) + [""]


def results() -> str:
    """What stands between the markers."""
    peers = load("peers.json")
    lines = ["## Measured", ""]
    if kernels := load("kernels.json"):
        lines += kernel_section(kernels, peers) + model_section(kernels) + few_rows_section(kernels)
    if host := load("host.json"):
        lines += host_section(host, peers)
    if small := load("small.json"):
        lines += small_section(small)
    if layer := load("layer.json"):
        lines += layer_section(layer, peers)
    if steps := [run for name in ("h200", "h100_80gb_hbm3") if (run := load("step.json", name))]:
        lines += step_section(steps)
    if paper := load("paper.json"):
        lines += paper_section(paper)
    if other := load("kernels.json", "h100_80gb_hbm3"):
        lines += other_device_section(other)
    if tests := load("tests.json"):
        lines += tests_section(tests)
    lines += training_section([run for name in (DEVICE, "epyc-2cores") if (run := load("tests.json", name))])
    if cpus := [
        run for name in ("epyc-2cores", "xeon-amx-16cores", "xeon-amx-2cores") if (run := load("kernels.json", name))
    ]:
        lines += cpu_section(cpus)
    return "\n".join(lines).rstrip()


def with_results(readme: str) -> str:
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n\n{results()}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    readme = ROOT / "README.md"
    readme.write_text(with_results(readme.read_text()))


if __name__ == "__main__":
    main()
