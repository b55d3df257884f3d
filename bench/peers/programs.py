"""The programs that are timed, in plain PyTorch: what torch.compile is given, and what every peer is checked against.

Each epilogue is one function of the fp32 product `acc` (M, N) and of the inputs; ours are in coda/programs. Statistics
are of whole rows or columns, where ours are of tiles: that is how one writes them in PyTorch.
"""

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F

HEAD_DIM = 128
EPS = 1e-6
ROPE_BASE = 500000.0


@dataclasses.dataclass
class Inputs:
    """Operands of a product of size M x N x K, and everything that an epilogue reads; of one element type if 16-bit."""

    a: torch.Tensor  # (M, K)
    b: torch.Tensor  # (N, K)
    b_nn: torch.Tensor  # (K, N), for the programs that are an input gradient
    rstd: torch.Tensor  # (M) fp32
    row_term: torch.Tensor  # (M) fp32
    weight: torch.Tensor  # (N) of a norm
    q_weight: torch.Tensor  # (HEAD_DIM)
    k_weight: torch.Tensor  # (HEAD_DIM)
    addend: torch.Tensor  # (M, N) residual stream
    second: torch.Tensor  # (M, N) its gradient
    preact: torch.Tensor  # (M, 2 N), gate and up interleaved
    rotary: torch.Tensor  # (M, HEAD_DIM) fp32, cos and sin interleaved
    target: torch.Tensor  # (M) int64, less than N
    v_heads: int  # as many k heads; the others are q heads

    @property
    def heads(self) -> tuple[int, int]:
        """Heads that are rotated (q and k), and v heads."""
        return self.b.shape[0] // HEAD_DIM - self.v_heads, self.v_heads

    @property
    def head_weight(self) -> torch.Tensor:
        """(q and k heads, HEAD_DIM)"""
        rotated, k = self.heads
        return torch.cat((self.q_weight.expand(rotated - k, -1), self.k_weight.expand(k, -1)))


def make_inputs(m: int, n: int, k: int, device: str, dtype=torch.bfloat16, seed: int = 1) -> Inputs:
    generator = torch.Generator(device).manual_seed(seed)

    def noise(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator, device=device) * scale).to(dtype)

    def positive(size: int) -> torch.Tensor:
        return torch.rand(size, generator=generator, device=device) + 0.5

    frequency = ROPE_BASE ** (-torch.arange(0, HEAD_DIM, 2, device=device, dtype=torch.float64) / HEAD_DIM)
    angle = torch.arange(m, device=device, dtype=torch.float64)[:, None] * frequency
    scale = k**-0.5  # products of size 1
    return Inputs(
        a=noise(m, k),
        b=noise(n, k, scale=scale),
        b_nn=noise(k, n, scale=scale),
        rstd=positive(m),
        row_term=positive(m),
        weight=noise(n),
        q_weight=noise(HEAD_DIM),
        k_weight=noise(HEAD_DIM),
        addend=noise(m, n),
        second=noise(m, n),
        preact=noise(m, 2 * n),
        rotary=torch.stack((angle.cos(), angle.sin()), -1).flatten(1).float(),
        target=torch.arange(m, device=device) * 7919 % n,
        v_heads=n // HEAD_DIM // 6,
    )


def gemm(acc, x: Inputs):
    return {"out": acc}


def gemm_rms(acc, x: Inputs):
    return {"out": acc * x.rstd[:, None]}


def gemm_rms_swiglu(acc, x: Inputs):
    z = acc * x.rstd[:, None]
    gate, up = z.unflatten(1, (-1, 2)).unbind(-1)
    return {"preact": z, "out": F.silu(gate) * up}


def gemm_residual_rms(acc, x: Inputs):
    z = acc + x.addend
    return {"x": z, "h": z * x.weight, "sum_sq": z.square().sum(1)}


def rotate(heads, rotary):
    """heads (M, H, HEAD_DIM) turned pairwise by the angles of each row."""
    even, odd = heads.unflatten(2, (-1, 2)).unbind(-1)
    cos, sin = rotary.unflatten(1, (1, -1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(2)


def gemm_rms_rope(acc, x: Inputs):
    z = (acc * x.rstd[:, None]).unflatten(1, (-1, HEAD_DIM))
    qk, v = z.split(x.heads, 1)
    return {"out": torch.cat((rotate(qk, x.rotary), v), 1).flatten(1)}


def gemm_rms_qknorm_rope(acc, x: Inputs):
    z = acc * x.rstd[:, None]
    qk, v = z.unflatten(1, (-1, HEAD_DIM)).split(x.heads, 1)
    normed = qk * (qk.square().mean(2, keepdim=True) + EPS).rsqrt() * x.head_weight
    return {"preact": z, "out": torch.cat((rotate(normed, x.rotary), v), 1).flatten(1)}


def gemm_lse(acc, x: Inputs):
    logits = acc * x.rstd[:, None]
    return {
        "logits": logits,
        "lse": logits.logsumexp(1),
        "target_logit": logits.gather(1, x.target[:, None]).squeeze(1),
    }


def gemm_rms_backward(acc, x: Inputs):
    normed = x.addend * x.rstd[:, None]
    dx = x.second + x.rstd[:, None] * (acc * x.weight - normed * x.row_term[:, None])
    return {"dx": dx, "h": normed * x.weight, "dweight": (acc * normed).sum(0)}


def gemm_swiglu_backward(acc, x: Inputs):
    gate, up = x.preact.float().unflatten(1, (-1, 2)).unbind(-1)
    sigmoid = gate.sigmoid()
    silu = gate * sigmoid
    dgate, dup = acc * up * sigmoid * (1 + gate * (1 - sigmoid)), acc * silu
    return {
        "dpreact": torch.stack((dgate, dup), -1).flatten(1),
        "out": silu * up,
        "zdz": (gate * dgate + up * dup).sum(1),
    }


@dataclasses.dataclass
class Program:
    epilogue: Callable
    layout: str = "nt"  # nt: A B^T, nn: A B

    @property
    def name(self) -> str:
        return self.epilogue.__name__

    def operand(self, x: Inputs) -> torch.Tensor:
        """The second operand as a (K, N) view."""
        return x.b.t() if self.layout == "nt" else x.b_nn

    def run(self, x: Inputs) -> dict[str, torch.Tensor]:
        """As one writes it in PyTorch: a product, and the rest in fp32; matrices are stored in the operands' type."""
        outputs = self.epilogue((x.a @ self.operand(x)).float(), x)
        return {name: out.to(x.a.dtype) if out.dim() == 2 else out for name, out in outputs.items()}

    def reference(self, x: Inputs) -> dict[str, torch.Tensor]:
        """All in fp32, the product too."""
        return self.epilogue(x.a.float() @ self.operand(x).float(), x)


PROGRAMS = [
    Program(gemm),
    Program(gemm_rms),
    Program(gemm_rms_swiglu),
    Program(gemm_residual_rms),
    Program(gemm_rms_rope),
    Program(gemm_rms_qknorm_rope),
    Program(gemm_lse),
    Program(gemm_rms_backward, "nn"),
    Program(gemm_swiglu_backward, "nn"),
]


def wrong_output(outputs: dict, reference: dict, most: float = 1e-2) -> str | None:
    """Which output is further from the reference than a 16-bit type explains, in norm; None if none is."""
    for name, out in outputs.items():
        expected = reference[name].float()
        error = float((out.float() - expected).norm() / expected.norm())
        if out.shape != expected.shape or not error <= most:
            return f"{name} has a relative error of {error:.2e}"
    return None
