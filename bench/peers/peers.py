#!/usr/bin/env python3
"""Times what else runs CODA's programs and a whole layer, on this machine's Hopper GPU: PyTorch eager, torch.compile,
and QuACK where it can be imported. Beside each the bare product of the same size by torch.mm, that is cuBLAS, in turn.

Every peer's outputs are compared with fp32 before it is timed; what is wrong, or fails, or takes too long to compile,
is left out and named. Writes the file that scripts/plot_results.py and scripts/render_results.py read.
"""

import argparse
import ctypes
import dataclasses
import json
import sys
import time

try:
    import torch
except ImportError:
    sys.exit("peers: skipped: PyTorch is not installed for this Python")

from layer import SHAPES, TOKENS, Layer
from programs import PROGRAMS, Program, make_inputs, wrong_output
from timing import Candidate, flush_buffer, host_us, interleave

try:
    import quack_peer
except ImportError as error:
    quack_peer, why_no_quack = None, str(error)

try:
    from pycoda import functional as coda
except ImportError:
    coda = None

CODA, EAGER, COMPILE = "CODA", "eager", "torch.compile"
TUNED, QUACK = "torch.compile, max-autotune", "QuACK"
MODES = {COMPILE: None, TUNED: "max-autotune-no-cudagraphs"}
LAYER_ERROR = 4e-2  # of a gradient after eight products, each rounded to 16 bits
METHOD = (
    "graph replay, L2 flushed before each, interleaved, medians behind 400 ms of the same; bf16, A B^T forward, A B "
    "backward; gemm_ms: torch.mm of the same M, N, K and layout; ratio = gemm_ms / ms; host: microseconds of one call from Python whose shape was seen, "
    "least and most of all programs; layer: ms of 16384 tokens without attention, gemms_ms the sum of its bare products"
)


def cublaslt_version() -> str | None:
    """Of the library that PyTorch has loaded."""
    try:
        library = ctypes.CDLL(f"libcublasLt.so.{torch.version.cuda.split('.')[0]}")
    except OSError:
        return None
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    return str(library.cublasLtGetVersion())


def triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return triton.__version__


class Run:
    """What one run of this script has measured."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.records, self.layer, self.left_out = [], [], []
        self.host: dict[str, list[float]] = {}
        self.flush = flush_buffer()
        self.tuning_s = 0.0

    def leave_out(self, what: str, why: str) -> None:
        self.left_out.append({"what": what, "why": why.strip().splitlines()[0][:200]})
        print(f"left out: {what}: {self.left_out[-1]['why']}", flush=True)

    def candidate(self, peer: str, what: str, run, check=None) -> Candidate | None:
        """None, and named as left out, where `run` fails or `check(its outputs)` finds a fault."""
        if peer == TUNED and self.tuning_s > self.args.tuning_seconds:
            self.leave_out(f"{peer}: {what}", f"{self.args.tuning_seconds} s of tuning were spent")
            return None
        begin = time.monotonic()
        try:
            found = Candidate(peer, run, self.flush)
            found.replay()
            wrong = check(found.outputs) if check else None
        except Exception as error:  # a peer's fault ends that peer's figure, not the run
            wrong = f"{type(error).__name__}: {error}"
        if peer == TUNED:
            self.tuning_s += time.monotonic() - begin
        if wrong:
            self.leave_out(f"{peer}: {what}", wrong)
            return None
        return found

    def time_program(self, program: Program, x, fused: list) -> None:
        (m, k), n = x.a.shape, x.b.shape[0]
        what = f"{program.name} {m}"
        b = program.operand(x)
        out = x.a.new_empty(m, n)
        reference = program.reference(x)
        torch.compiler.reset()  # every size is a recompilation, of which PyTorch allows few

        def run():
            return program.run(x)

        def check(outputs):
            return wrong_output(outputs, reference)

        candidates = [
            self.candidate("product", what, lambda: torch.mm(x.a, b, out=out)),
            self.candidate(EAGER, what, run, check),
        ]
        for peer, mode in MODES.items():
            compiled = torch.compile(run, mode=mode, dynamic=False, fullgraph=True)
            candidates.append(self.candidate(peer, what, compiled, check))
            if peer == COMPILE and candidates[-1] and m == min(self.args.sizes):
                self.host.setdefault(peer, []).append(host_us(compiled))
        candidates += [self.quack_candidate(program, x, f, what) for f in fused]
        product, *candidates = [c for c in candidates if c]
        interleave([product, *candidates])
        gemm_ms = product.median()
        best: dict[str, tuple[float, str | None]] = {}
        for c in candidates:
            peer, _, config = c.name.partition(": ")
            best[peer] = min(best.get(peer, (float("inf"), None)), (c.median(), config or None))
        for peer, (ms, config) in best.items():
            record = {"peer": peer, "program": program.name, "m": m, "n": n, "k": k, "layout": program.layout}
            record |= {"ms": round(ms, 5), "gemm_ms": round(gemm_ms, 5), "ratio": round(gemm_ms / ms, 4)}
            self.records.append(record | ({"config": config} if config else {}))
            print(
                f"{program.name:24} {m:5} {peer:28} {ms:9.4f} {gemm_ms:9.4f} {gemm_ms / ms:7.3f}  {config or ''}",
                flush=True,
            )

    def quack_candidate(self, program: Program, x, fused, what: str) -> Candidate | None:
        def check(_):
            # The v heads are rotated, too.
            return wrong_output(fused.outputs(), program.reference(dataclasses.replace(x, v_heads=0)))

        config = quack_peer.config_name(fused.config)
        found = self.candidate(f"{QUACK}: {config}", what, fused.run, check)
        if found and x.a.shape[0] == min(self.args.sizes):
            self.host.setdefault(QUACK, []).append(host_us(fused.call))
        return found

    def quack_programs(self, x) -> dict[str, list]:
        """Every program in every configuration, by the program's name; whatever compiles."""
        if quack_peer is None:
            return {}
        q = dataclasses.replace(x, v_heads=0)
        wanted = {
            (p.name, quack_peer.config_name(c)): lambda p=p, c=c: quack_peer.Fused(p.name, q, p.operand(q), c)
            for p in PROGRAMS
            for c in quack_peer.configs_of(p.name)
        }

        def failed(key, why: str) -> None:
            self.leave_out(f"{QUACK}: {key[0]} {x.a.shape[0]}, {key[1]}", why)

        found: dict[str, list] = {}
        for (name, _), fused in quack_peer.make_all(wanted, self.args.quack_seconds, failed).items():
            found.setdefault(name, []).append(fused)
        return found

    def time_size(self, size: int) -> None:
        x = make_inputs(size, size, size, "cuda")
        fused = self.quack_programs(x)
        if size == min(self.args.sizes):
            out = torch.empty_like(x.addend)
            self.host["torch.mm"] = [host_us(lambda b=b: torch.mm(x.a, b, out=out)) for b in (x.b.t(), x.b_nn)]
        for program in PROGRAMS:
            self.time_program(program, x, fused.pop(program.name, []))

    def time_layer(self, shape) -> None:
        torch.compiler.reset()
        layer = Layer(shape, "cuda")
        compiled = torch.compile(layer.forward, dynamic=False, fullgraph=True)
        reference = dict(enumerate(layer.reference()))

        layers = {COMPILE: (compiled, layer.inputs), EAGER: (layer.forward, layer.inputs)}
        if coda:
            layers[CODA] = layer.by_coda(coda)

        def peers_of(run):
            """Candidates of one pass by the name of their time in the result file."""
            found = {}
            for peer, of in layers.items():
                named = Layer.as_in_torch if peer == CODA else lambda outputs: dict(enumerate(outputs))
                found[peer] = self.candidate(
                    peer,
                    f"layer {shape.hidden}",
                    lambda of=of: run(*of),
                    lambda outputs, named=named: wrong_output(named(outputs), reference, LAYER_ERROR),
                )
            return found

        with torch.no_grad():
            forward = peers_of(lambda f, inputs: f(*inputs))
        both = peers_of(layer.both)
        for passes, backward in ((forward, False), (both, True)):
            passes["gemms_ms"] = self.candidate("products", f"layer {shape.hidden}", layer.products(backward))
        interleave([c for c in (*forward.values(), *both.values()) if c], rounds=10)
        for name, passes in (("forward", forward), ("forward+backward", both)):
            record = {"hidden": shape.hidden, "ffn": shape.ffn, "pass": name, "tokens": TOKENS}
            record |= {key: round(c.median(), 4) for key, c in passes.items() if c}
            self.layer.append(record)
            print(record, flush=True)

    def result(self) -> dict:
        """What the file says, its versions first."""
        versions = {"torch": torch.__version__, "triton": triton_version(), "quack": quack_peer and quack_peer.VERSION}
        names = dict.fromkeys((EAGER, COMPILE, TUNED), f"torch {versions['torch']}, Triton {versions['triton']}")
        if quack_peer:
            names[QUACK] = f"QuACK {versions['quack']}, the best of up to {len(quack_peer.CONFIGS)} configurations"
        seen = {r["peer"] for r in self.records}
        if quack_peer is None:
            self.leave_out(QUACK, why_no_quack)
        return {
            "device": torch.cuda.get_device_name(),
            "driver": self.args.driver,
            "cuda": torch.version.cuda,
            **versions,
            "cublaslt": cublaslt_version(),
            "commit": self.args.commit,
            "date": self.args.date,
            "method": METHOD,
            "differs": {QUACK: quack_peer.DIFFERS} if quack_peer else {},
            "peers": [{"peer": peer, "version": version} for peer, version in names.items() if peer in seen],
            "records": self.records,
            "host": [
                {"peer": peer, "least_us": round(min(us)), "most_us": round(max(us))}
                for peer, us in self.host.items()
                if us
            ],
            "layer": self.layer,
            "left_out": self.left_out,
        }


def write(path: str, result: dict) -> None:
    """JSON with a line for each record."""

    def text(value) -> str:
        if isinstance(value, list) and value:
            return "[\n    " + ",\n    ".join(json.dumps(v) for v in value) + "\n  ]"
        return json.dumps(value)

    with open(path, "w") as file:
        file.write("{\n  " + ",\n  ".join(f"{json.dumps(k)}: {text(v)}" for k, v in result.items()) + "\n}\n")
    print(f"peers: wrote {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="the JSON file to write")
    parser.add_argument("--sizes", type=int, nargs="*", default=[2048, 4096, 8192], help="M = N = K; none: no programs")
    parser.add_argument("--no-layer", action="store_true")
    parser.add_argument("--tuning-seconds", type=float, default=60, help="for max-autotune, in all")
    parser.add_argument("--quack-seconds", type=float, default=90, help="for QuACK's kernels of one size")
    for name in ("commit", "driver", "date"):
        parser.add_argument(f"--{name}", default="unknown")
    args = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        sys.exit("peers: skipped: PyTorch finds no Hopper GPU")
    torch.set_float32_matmul_precision("highest")  # the references are fp32
    run = Run(args)
    for size in args.sizes:
        run.time_size(size)
    for shape in () if args.no_layer else SHAPES:
        try:
            run.time_layer(shape)
        except torch.OutOfMemoryError as error:
            run.leave_out(f"layer {shape.hidden}", str(error))
        torch.cuda.empty_cache()
    result = run.result()
    if args.out:
        write(args.out, result)


if __name__ == "__main__":
    main()
