#!/usr/bin/env python3
"""Times a training step of a LLaMA, forward and backward, on this machine's Hopper GPU: pycoda.Llama beside the same
model in plain PyTorch, eager and by torch.compile; and what a call costs its caller in Python.

All attend by scaled_dot_product_attention. Writes the file that scripts/render_results.py reads.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("step: skipped: PyTorch is not installed for this Python")
try:
    import pycoda  # noqa: F401
except ImportError as error:
    sys.exit(f"step: skipped: {error}")

from pycoda import Llama, LlamaConfig, ops
from pycoda.functional import rotary_table
from programs import rotate
from timing import Candidate, flush_buffer, host_us, interleave
from torch import nn

BATCH, SEQUENCE = 4, 2048
LLAMA_1B = LlamaConfig(128256, 2048, 8192, 16, 32, 8, 64, SEQUENCE, 500000.0, tied=True)
# Four of the 32 layers: all of them do not fit with their gradients and activations in 80 GB.
LLAMA_8B = LlamaConfig(128256, 4096, 14336, 4, 32, 8, 128, SEQUENCE, 500000.0)
MODELS = {"LLaMA-3 1B": LLAMA_1B, "LLaMA-3 8B, 4 of its 32 layers": LLAMA_8B}
METHOD = (
    "forward and backward of 8192 tokens (4 x 2048), bf16, gradients set to None before; ms: graph replay, L2 flushed "
    "before each, interleaved, medians behind 400 ms of the same; wall_ms: the same without a graph, median of 10; "
    "step_mib: most memory that such a step allocates beyond the weights, gradients included; host: microseconds of one call from Python"
)
ROUNDS = 10


class Projection(nn.Module):
    """A norm and a QKV projection. The weights are those of `mine`."""

    def __init__(self, mine):
        super().__init__()
        self.input_norm, self.qkv = mine.input_norm, mine.qkv


class PlainLayer(nn.Module):
    """One layer from qkv's attention to the next qkv, as one writes it in PyTorch. The weights are those of `mine`."""

    def __init__(self, config, mine, next):
        super().__init__()
        self.c, self.eps = config, config.eps
        self.out, self.post_norm, self.down = mine.out, mine.post_norm, mine.down
        with torch.no_grad():  # gate and up side by side, which suits torch better
            self.gate_up = nn.Parameter(torch.cat((mine.gate_up[0::2], mine.gate_up[1::2])))
        self.next = next

    def forward(self, attended, x, rotary):
        x = x + F.linear(attended, self.out)
        gate, up = F.linear(F.rms_norm(x, x.shape[-1:], self.post_norm, self.eps), self.gate_up).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, self.down)
        return x, (None if self.next is None else project(x, self.next, self.c, rotary))


def project(x, weights, c, rotary):
    """q, k, v (batch, heads, sequence, head_dim)"""
    z = F.linear(F.rms_norm(x, x.shape[-1:], weights.input_norm, c.eps), weights.qkv).unflatten(-1, (-1, c.head_dim))
    qk, v = z.split((c.q_heads + c.kv_heads, c.kv_heads), -2)
    qk = rotate(qk.flatten(0, 1), rotary).to(v.dtype).view(qk.shape)
    q, k = qk.split((c.q_heads, c.kv_heads), -2)
    return tuple(t.transpose(1, 2) for t in (q, k, v))


class Plain(nn.Module):
    def __init__(self, ours, compiled: bool):
        super().__init__()
        self.c, self.table, self.final_norm = ours.config, ours.table, ours.final_norm
        self.head = ours.table if ours.head is None else ours.head
        self.first, *nexts = [Projection(qkv) for qkv, _ in ours.layers]
        self.layers = nn.ModuleList(
            PlainLayer(self.c, mine, next) for (_, mine), next in zip(ours.layers, [*nexts, None], strict=True)
        )
        position = torch.arange(SEQUENCE, device="cuda").repeat(BATCH)
        frequency = torch.tensor(self.c.inverse_frequency, dtype=torch.float64, device="cuda")
        self.rotary = rotary_table(frequency, SEQUENCE)[position]
        compile_or_not = torch.compile if compiled else lambda f: f
        # All layers but the last share one compiled function, as regional compilation has it.
        self.layer = compile_or_not(lambda layer, *inputs: layer(*inputs))
        self.begin = compile_or_not(lambda token: self._begin(token))
        self.end = compile_or_not(lambda x, target: self._end(x, target))

    def _begin(self, token):
        x = F.embedding(token, self.table)
        return x, project(x, self.first, self.c, self.rotary)

    def _end(self, x, target):
        logits = F.linear(F.rms_norm(x, x.shape[-1:], self.final_norm, self.c.eps), self.head)
        return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten())

    def forward(self, token, target):
        x, qkv = self.begin(token)
        for layer in self.layers:
            attended = F.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True)
            x, qkv = self.layer(layer, attended.transpose(1, 2).flatten(2), x, self.rotary)
        return self.end(x, target)


def step_of(model, token, target):
    def step():
        model.zero_grad(set_to_none=True)
        loss = model(token, target)
        loss.backward()
        return loss.detach()

    return step


def wall_ms(step) -> float:
    times = []
    for _ in range(ROUNDS + 2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[2:])


def step_mib(step, model) -> float:
    model.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    most = torch.cuda.max_memory_allocated() - before
    model.zero_grad(set_to_none=True)
    return most / 2**20


def measure(name: str, config: LlamaConfig) -> dict:
    torch.manual_seed(1)
    with torch.device("cuda"):
        ours = Llama(config).to(torch.bfloat16)
    token = torch.randint(0, config.vocabulary, (BATCH, SEQUENCE), device="cuda")
    target = torch.randint(0, config.vocabulary, (BATCH, SEQUENCE), device="cuda")
    rows, losses = {}, {}
    flush = flush_buffer()
    models = {"CODA": ours, "eager": Plain(ours, False), "torch.compile": Plain(ours, True)}
    steps = {kind: step_of(model, token, target) for kind, model in models.items()}
    for kind, step in steps.items():
        begin = time.perf_counter()
        losses[kind] = step().item()
        rows[kind] = {"loss": round(losses[kind], 4), "first_call_s": round(time.perf_counter() - begin, 2)}
        rows[kind]["wall_ms"] = round(wall_ms(step), 2)
        rows[kind]["step_mib"] = round(step_mib(step, models[kind]))
    candidates = [Candidate(kind, step, flush) for kind, step in steps.items()]
    interleave(candidates, ROUNDS)
    for candidate in candidates:
        rows[candidate.name]["ms"] = round(candidate.median(), 2)
    worst = max(abs(loss - losses["eager"]) for loss in losses.values())
    if not worst < 2e-2:
        sys.exit(f"step: {name}: the losses differ by {worst}: {losses}")
    print(name, json.dumps(rows), flush=True)
    shape = dataclasses.asdict(config)
    return {"model": name, "shape": shape, "steps": rows}


def host() -> list[dict]:
    """A shape that runs fused and takes the GPU less time than its caller."""

    def tensor(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device="cuda").to(dtype)

    m, n, k = 1024, 1024, 512
    a, b, out = tensor(m, k), tensor(n, k), tensor(m, n)
    rstd, half = tensor(m, dtype=torch.float32), tensor(m, n // 2)
    residual, weight, x = tensor(m, n), tensor(n), tensor(m, n)
    sum_sq = tensor(m, n // 128, dtype=torch.float32)
    calls = {
        "torch.mm": lambda: torch.mm(a, b.t(), out=out),
        "gemm": lambda: ops.gemm(a=a, b=b, out=out),
        "gemm_norm_glu": lambda: ops.gemm_norm_glu(a=a, b=b, norm_rstd=rstd, preact=out, out=half),
        "gemm_residual": lambda: ops.gemm_residual(
            a=a, b=b, residual=residual, weight=weight, x=x, h=out, sum_sq=sum_sq
        ),
    }
    rows = []
    for name, call in calls.items():
        for _ in range(10):
            call()
        rows.append({"call": name, "us": round(host_us(call), 2)})
    print(rows, flush=True)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--driver", default="unknown")
    parser.add_argument("--model", action="append", choices=list(MODELS))
    arguments = parser.parse_args()
    result = {
        "device": torch.cuda.get_device_name(),
        "driver": arguments.driver,
        "commit": arguments.commit,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "method": METHOD,
        "host": host(),
        "models": [],
    }
    for name in arguments.model or MODELS:
        result["models"].append(measure(name, MODELS[name]))
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    with open(arguments.out, "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
