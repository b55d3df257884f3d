"""The maths of the paper's ten kernels as separate operations of PyTorch, and arguments for them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

F64 = torch.float64


def residual_partial_rmsnorm(A, B, C, W, block_size):
    D = A @ B + C
    return D, D.unflatten(1, (-1, block_size)).square().mean(-1, dtype=D.dtype), D * W


def rmsnorm(A, B, R=None):
    D = A @ B
    return D if R is None else D * R[:, None]


def swiglu(A, B, R=None):
    D = rmsnorm(A, B, R)
    return D, F.silu(D[:, 0::2]) * D[:, 1::2]


def rope(A, B, R=None, *, cos_sin):
    D = rmsnorm(A, B, R)
    x, y, cos, sin = D[:, 0::2], D[:, 1::2], cos_sin[:, 0::2], cos_sin[:, 1::2]
    return D, torch.stack((x * cos + y * sin, y * cos - x * sin), -1).flatten(1)


def partial_cross_entropy(A, B, R=None, *, targets, block_size):
    logits = rmsnorm(A, B, R)
    chosen = logits.gather(1, targets.long().clamp_min(0)[:, None])[:, 0] * (targets >= 0)
    return logits, chosen, logits.unflatten(1, (-1, block_size)).logsumexp(-1)


def residual_partial_rmsnorm_bwd(A, B, C, W, R, ZdZ, O, block_size):  # noqa: E741
    D, n = A @ B.T, C * R[:, None]
    return O + (D * W - n * ZdZ[:, None]) * R[:, None], n * W, (D * n).unflatten(0, (-1, block_size)).sum(1).T


def partial_swiglu_bwd(A, B, Z, block_size):
    D, g, u = A @ B.T, Z[:, 0::2], Z[:, 1::2]
    s, silu = torch.sigmoid(g), F.silu(g)
    dg, du = D * u * s * (1 + g * (1 - s)), D * silu
    dZ = torch.stack((dg, du), -1).flatten(1)
    return dZ, (g * dg + u * du).unflatten(1, (-1, block_size)).sum(-1) / block_size, silu * u


class Kernel(NamedTuple):
    maths: Callable
    arguments: str
    kinds: str  # of its results: those with the dtype of matrices (m) and of statistics (s)
    blocks_of: str = ""  # M or N: what block_size divides, if it has one
    backward: bool = False  # B is (N, K)

    def block_sizes(self, *sizes: int) -> list[dict]:
        """As further arguments; of a kernel without blocks once none."""
        return [{"block_size": size} for size in sizes] if self.blocks_of else [{}]


KERNELS = {
    "gemm_residual_partial_rmsnorm": Kernel(residual_partial_rmsnorm, "A B C W", "msm", "N"),
    "gemm_rmsnorm": Kernel(rmsnorm, "A B R", "m"),
    "gemm_rmsnorm_swiglu": Kernel(swiglu, "A B R", "mm"),
    "gemm_swiglu": Kernel(swiglu, "A B", "mm"),
    "gemm_rmsnorm_rope": Kernel(rope, "A B R cos_sin", "mm"),
    "gemm_rope": Kernel(rope, "A B cos_sin", "mm"),
    "gemm_rmsnorm_partial_cross_entropy": Kernel(partial_cross_entropy, "A B R targets", "mms", "N"),
    "gemm_partial_cross_entropy": Kernel(partial_cross_entropy, "A B targets", "mms", "N"),
    "gemm_residual_partial_rmsnorm_bwd": Kernel(residual_partial_rmsnorm_bwd, "A B C W R ZdZ O", "mms", "M", True),
    "gemm_partial_swiglu_bwd": Kernel(partial_swiglu_bwd, "A B Z", "msm", "N", True),
}


def stat_of(dtype):
    return F64 if dtype == F64 else torch.float32


def results(of, *args, **kwargs):
    found = of(*args, **kwargs)
    return found if isinstance(found, tuple) else (found,)


def inputs(kernel, dtype, device, m, n, k, by_rows=False):
    """Arguments by name; B lies as the view of a weight (N, K), or by rows."""

    def normal(*shape, scale=1.0):
        return (scale * torch.randn(*shape, dtype=torch.float32, device=device)).to(dtype)

    def rotations():
        angle = 3 * normal(m, n // 2).float()
        return torch.stack((angle.cos(), angle.sin()), -1).flatten(1).to(dtype)

    def targets():
        ignored = torch.arange(m, device=device) % 7 == 0
        return torch.randint(0, n, (m,), device=device).masked_fill(ignored, -100)

    def operand():
        rows, columns = (n, k) if kernel.backward else (k, n)
        return normal(rows, columns, scale=k**-0.5) if by_rows else normal(columns, rows, scale=k**-0.5).mT

    makes = {
        "A": lambda: normal(m, k),
        "B": operand,
        "C": lambda: normal(m, n),
        "W": lambda: normal(n),
        "Z": lambda: normal(m, 2 * n),
        "O": lambda: normal(m, n),
        "R": lambda: (0.5 + torch.rand(m, device=device)).to(stat_of(dtype)),
        "ZdZ": lambda: torch.randn(m, device=device).to(stat_of(dtype)),
        "cos_sin": rotations,
        "targets": targets,
    }
    return {name: makes[name]() for name in kernel.arguments.split()}
