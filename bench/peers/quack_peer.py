"""QuACK's fused GEMMs for the programs. Importing this needs QuACK (PyPI: quack-kernels, nvidia-cutlass-dsl[cu13]).

An epilogue is one of QuACK's library or, where it has none that does what ours does, a function in its own style. What
still differs is in `DIFFERS`.
"""

import dataclasses
import os
import time
from collections.abc import Callable

os.environ.setdefault("QUACK_COMPILE_WORKERS", str(os.cpu_count() or 1))  # read when quack is imported

import quack
import torch
from programs import HEAD_DIM, Inputs
from quack.activation import swiglu
from quack.cache.async_compile import CompilePending, pool_scope
from quack.epilogue.frontend import gemm_epilogue
from quack.epilogue.library import dswiglu_dpreact_mod, identity_epi, qk_rope_epi, rms_partial_epi
from quack.epilogue.math import pack, unpack
from quack.epilogue.ops import ColVecLoad, ColVecSelect, OnlineLSEReduce, RowVecLoad, RowVecReduce
from quack.epilogue.rotary import rotary_cos_sin_load
from quack.gemm_config import GemmConfig

VERSION = quack.__version__
DIFFERS = {
    "gemm_rms_rope": "rotates the v heads, too",
    "gemm_rms_qknorm_rope": "normalises and rotates the v heads, too; stores no pre-activation, leaves rstd to the norm of the heads",
}

# Of the space that QuACK's own tuner searches on Hopper: tile M, tile N, ping-pong, cluster M and N.
CONFIGS = [
    GemmConfig(
        tile_m=m,
        tile_n=n,
        pingpong=pingpong,
        cluster_m=cm,
        cluster_n=cn,
        device_capacity=9,
        is_dynamic_persistent=False,
    )
    for m, n, pingpong, cm, cn in (
        (128, 128, True, 2, 1),
        (128, 192, True, 2, 1),
        (192, 128, True, 1, 2),
        (256, 128, False, 2, 1),
        (128, 256, False, 2, 1),
        (256, 192, False, 2, 1),
    )
]


@gemm_epilogue(ops={"rstd": ColVecLoad("rstd")})
def rms_epi(acc, rstd):
    return {"D": acc * rstd}


@gemm_epilogue(outputs=("postact",), ops={"rstd": ColVecLoad("rstd")}, mode="acc_pair")
def rms_swiglu_epi(acc, rstd):
    gate, up = unpack(acc * rstd)
    return {"D": pack(gate, up), "postact": swiglu(gate, up)}


@gemm_epilogue(ops={"rstd": ColVecLoad("rstd"), "table": rotary_cos_sin_load("table")}, mode="acc_pair")
def rms_rope_epi(acc, rstd, table):
    even, odd = unpack(acc * rstd)
    cos, sin = unpack(table)
    return {"D": pack(even * cos - odd * sin, even * sin + odd * cos)}


_target = ColVecLoad("target")


@gemm_epilogue(
    ops={"rstd": ColVecLoad("rstd")},
    outs={"lse": OnlineLSEReduce("lse"), "target_logit": ColVecSelect("target_logit", idx_op=_target)},
    extra_ops=(_target,),
)
def rms_lse_epi(acc, rstd):
    logits = acc * rstd
    return {"D": logits, "lse": logits, "target_logit": logits}


@gemm_epilogue(
    outputs=("h",),
    ops={"rstd": ColVecLoad("rstd"), "row_term": ColVecLoad("row_term"), "weight": RowVecLoad("weight")},
    reduces={"dweight": RowVecReduce("dweight", scaled=True)},
)
def rms_backward_epi(acc, c, x, rstd, row_term, weight):
    normed = x * rstd
    return {"D": c + (acc * weight - normed * row_term) * rstd, "h": normed * weight, "dweight": (acc, normed)}


@dataclasses.dataclass
class Call:
    """A program of QuACK's: what its epilogue reads and writes, and our name of each of its outputs."""

    mod: object
    outputs: dict[str, str]  # ours: QuACK's
    out: dict[str, torch.Tensor]
    c: torch.Tensor | None = None
    operands: dict = dataclasses.field(default_factory=dict)


def call_of(name: str, x: Inputs) -> Call:
    m, n = x.addend.shape
    like = x.addend
    matrix, half, wide = (lambda width=width: like.new_empty(m, width) for width in (n, n // 2, 2 * n))
    rstd, weight = {"rstd": x.rstd[None]}, {"weight": x.weight[None]}
    table = {"table": x.rotary.to(like.dtype)}
    match name:
        case "gemm":
            return Call(identity_epi, {"out": "D"}, {"D": matrix()})
        case "gemm_rms":
            return Call(rms_epi, {"out": "D"}, {"D": matrix()}, operands=rstd)
        case "gemm_rms_swiglu":
            out = {"D": matrix(), "postact": half()}
            return Call(rms_swiglu_epi, {"preact": "D", "out": "postact"}, out, operands=rstd)
        case "gemm_residual_rms":
            out = {"D": matrix(), "resid_out": matrix()}
            names = {"x": "resid_out", "h": "D", "sum_sq": "sqsum"}
            return Call(rms_partial_epi, names, out, x.addend, weight)
        case "gemm_rms_rope":
            return Call(rms_rope_epi, {"out": "D"}, {"D": matrix()}, operands=rstd | table)
        case "gemm_rms_qknorm_rope":
            heads = {"qk": HEAD_DIM, "w": x.head_weight.reshape(1, n), "cs": table["table"]}
            return Call(qk_rope_epi, {"out": "D"}, {"D": matrix()}, operands=heads)
        case "gemm_lse":
            names = {"logits": "D", "lse": "lse", "target_logit": "target_logit"}
            return Call(rms_lse_epi, names, {"D": matrix()}, operands=rstd | {"target": x.target[None]})
        case "gemm_rms_backward":
            names = {"dx": "D", "h": "h", "dweight": "dweight"}
            operands = rstd | weight | {"row_term": x.row_term[None], "x": x.addend}
            return Call(rms_backward_epi, names, {"D": matrix(), "h": matrix()}, x.second, operands)
        case "gemm_swiglu_backward":
            names = {"dpreact": "D", "out": "postact", "zdz": "dsum"}
            return Call(dswiglu_dpreact_mod, names, {"D": wide(), "postact": matrix()}, x.preact)
    raise KeyError(name)


class Fused:
    """A program in one configuration, planned: `run()` launches it, `call()` goes the way of QuACK's users."""

    def __init__(self, name: str, x: Inputs, b: torch.Tensor, config: GemmConfig):
        self.a, self.b, self.config, self.what = x.a, b, config, call_of(name, x)
        w = self.what
        self.plan = w.mod.plan(self.a, b, w.c, out=w.out, config=config, **w.operands)

    def run(self) -> None:
        w = self.what
        self.plan.run(self.a, self.b, w.c, out=w.out, **w.operands)

    def call(self) -> None:
        w = self.what
        buffers = w.operands | self.plan.scratch
        w.mod(self.a, self.b, w.c, out=w.out, config=self.config, tuned=False, **buffers)

    def outputs(self) -> dict[str, torch.Tensor]:
        """By our names, partial results summed up."""
        found = dict(self.what.out)
        for name, partial in self.plan.scratch.items():
            finalize = getattr(self.what.mod.sinks[name], "host_finalize", None)
            found[name] = finalize(partial) if finalize else partial
        return {ours: found[theirs] for ours, theirs in self.what.outputs.items()}


def configs_of(name: str) -> list[GemmConfig]:
    """Those that a program allows: a tile that turns heads holds whole ones."""
    return [c for c in CONFIGS if "rope" not in name or c.tile_n % HEAD_DIM == 0]


def config_name(config: GemmConfig) -> str:
    kind = "ping-pong" if config.pingpong else "cooperative"
    return f"{kind} {config.tile_m}x{config.tile_n}, cluster {config.cluster_m}x{config.cluster_n}"


def make_all(wanted: dict[object, Callable], seconds: float, failed: Callable) -> dict:
    """What each function returns, by its key; kernels are compiled by processes beside this one.

    `failed(key, why)` is told of what did not compile, or not in time.
    """
    made, left = {}, dict(wanted)
    end = time.monotonic() + seconds
    with pool_scope():
        while left and time.monotonic() < end:
            for key, make in list(left.items()):
                try:
                    made[key] = make()
                except CompilePending:
                    continue
                except Exception as error:
                    failed(key, f"{type(error).__name__}: {error}")
                del left[key]
            time.sleep(0.1)
    for key in left:
        failed(key, f"not compiled within {seconds:.0f} s")
    return made
