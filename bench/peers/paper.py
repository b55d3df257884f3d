#!/usr/bin/env python3
"""Times pycoda.paper, the ten kernels of the paper's own code, on this machine's Hopper GPU: beside the same maths by
torch.compile and the bare product by torch.mm, that is cuBLAS, in turn. Writes the file that scripts/render_results.py
reads.
"""

import argparse
import json
import pathlib
import sys

try:
    import torch
    from pycoda import paper
except ImportError as error:
    sys.exit(f"paper: skipped: {error}")

from timing import Candidate, flush_buffer, host_us, interleave

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/torch"))
from plain_paper import KERNELS, inputs, results, stat_of

BLOCK_SIZE = 128
METHOD = (
    "graph replay, L2 flushed before each, in turn, medians behind 400 ms of the same; bf16, M = N = K, weights stored "
    f"(N, K) forward, block_size {BLOCK_SIZE}; gemm_ms: torch.mm; compile_ms: torch.compile of the same maths; "
    "host_us: microseconds of a call from Python whose shape was seen"
)


def as_kinds(kernel, outputs):
    """The results of plain maths in the dtypes of the kernel's."""
    dtypes = {"m": torch.bfloat16, "s": stat_of(torch.bfloat16)}
    return [x.to(dtypes[kind]) for kind, x in zip(kernel.kinds, outputs, strict=True)]


def measure(name: str, size: int, flush: torch.Tensor, with_host: bool) -> dict:
    kernel, run = KERNELS[name], getattr(paper, name)
    given = inputs(kernel, torch.bfloat16, "cuda", size, size, size)
    options = kernel.block_sizes(BLOCK_SIZE)[0]
    torch.compiler.reset()

    @torch.compile(dynamic=False, fullgraph=True)
    def plain(given):
        return as_kinds(kernel, results(kernel.maths, **given, **options))

    b = given["B"].mT if kernel.backward else given["B"]
    product = torch.empty(size, size, dtype=torch.bfloat16, device="cuda")
    with torch.no_grad():
        exact = results(kernel.maths, **{k: x if k == "targets" else x.float() for k, x in given.items()}, **options)
        for ours, wanted in zip(results(run, **given, **options), exact, strict=True):
            error = (ours.float() - wanted).norm() / wanted.norm()
            if not error < 1e-2:
                raise RuntimeError(f"{name} {size}: a result is off by {error:.1e}")
        del exact
        candidates = [
            Candidate("product", lambda: torch.mm(given["A"], b, out=product), flush),
            Candidate("paper", lambda: run(**given, **options), flush),
            Candidate("compile", lambda: plain(given), flush),
        ]
        interleave(candidates, rounds=20)
        host = host_us(lambda: run(**given, **options)) if with_host else None
    gemm_ms, ms, compile_ms = (c.median() for c in candidates)
    record = {"kernel": name, "m": size, "n": size, "k": size}
    record |= {"ms": round(ms, 5), "gemm_ms": round(gemm_ms, 5), "compile_ms": round(compile_ms, 5)}
    record |= {"ratio": round(gemm_ms / ms, 4), "compile_ratio": round(gemm_ms / compile_ms, 4)}
    return record | ({"host_us": round(host, 1)} if host else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", help="the JSON file to write")
    parser.add_argument("--sizes", type=int, nargs="*", default=[2048, 4096, 8192], help="M = N = K")
    for name in ("commit", "driver", "date"):
        parser.add_argument(f"--{name}", default="unknown")
    args = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        sys.exit("paper: skipped: PyTorch finds no Hopper GPU")
    torch.set_float32_matmul_precision("highest")  # the references are fp32
    flush, records = flush_buffer(), []
    for size in args.sizes:
        for name in KERNELS:
            records.append(measure(name, size, flush, size == min(args.sizes)))
            print(records[-1], flush=True)
    if args.out:
        head = {"device": torch.cuda.get_device_name(), "driver": args.driver, "cuda": torch.version.cuda}
        head |= {"torch": torch.__version__, "commit": args.commit, "date": args.date, "method": METHOD}
        lines = ",\n    ".join(json.dumps(record) for record in records)
        text = ",\n  ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items())
        pathlib.Path(args.out).write_text(f'{{\n  {text},\n  "records": [\n    {lines}\n  ]\n}}\n')
        print(f"paper: wrote {args.out}")


if __name__ == "__main__":
    main()
