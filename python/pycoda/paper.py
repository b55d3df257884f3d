"""The ten kernels of the CODA paper's own code (arXiv 2605.19269), by its names, arguments and results, so that code
that was written against it can call these. Each is a call of ops.py, in one kernel on a Hopper GPU, and small ones that
put partial results together.

A is (M, K) and B the (K, N) view of a weight, such as `weight.mT` of a Linear layer's; a backward kernel takes the same
view, which is (N, K) to it. B may lie in memory in either order, but that one is the fast one. Matrices have one dtype,
bf16 or fp16 (on the CPU fp32 and fp64, too); R, ZdZ and partial results have the statistics', fp32 (fp64 for fp64).
Results are new tensors, and no argument is written.

Partial results are of blocks of `block_size` columns or rows, which must divide their number. Of whole tiles, whose
width and height tiles.py knows (128 on a GPU), they come out of the kernel; of other blocks they are computed from the
results that it stored, by passes of PyTorch, and sums over rows by multiplying once more.

Nothing here is differentiated by autograd. A wrong argument is a RuntimeError that names it.
"""

# ruff: noqa: E741, for the paper's names

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from pycoda import ops, tiles

_PART = 2**26  # elements that passes over stored results hold in fp32 at a time


def gemm_residual_partial_rmsnorm(
    A: Tensor, B: Tensor, C: Tensor, W: Tensor, block_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """
    D = A B + C (M, N); S (M, N / block_size), the mean of D^2 over each block of columns; O = D W (M, N). C is (M, N),
    W (N), the weight of the next RMSNorm: its R is rsqrt(S.mean(1) + eps).
    """
    p = _product("gemm_residual_partial_rmsnorm", A, B)
    p.expect("C", C, (p.m, p.n))
    p.expect("W", W, (p.n,))
    blocks = p.column_blocks(block_size)
    D, out = p.matrix(), p.matrix()
    squares = p.tile_sums() if blocks.tiles else None
    ops.gemm_residual(**p.operands, residual=C, weight=W, x=D, h=out, sum_sq=squares)
    if squares is None:
        means = torch.linalg.vector_norm(blocks.split(D), dim=-1, dtype=p.stat).square() / block_size
    else:
        means = blocks.means(squares)
    return D, means, out


def gemm_rmsnorm(A: Tensor, B: Tensor, R: Tensor) -> Tensor:
    """D = R[m] (A B) (M, N); R is (M), the reciprocal root mean square of each row."""
    p = _product("gemm_rmsnorm", A, B, R)
    D = p.matrix()
    ops.gemm_norm(**p.operands, norm_rstd=R, out=D)
    return D


def gemm_rmsnorm_swiglu(A: Tensor, B: Tensor, R: Tensor) -> tuple[Tensor, Tensor]:
    """D = R[m] (A B) (M, N); O = silu(even columns of D) (odd columns of D) (M, N / 2)."""
    return _swiglu(_product("gemm_rmsnorm_swiglu", A, B, R))


def gemm_swiglu(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """gemm_rmsnorm_swiglu without R."""
    return _swiglu(_product("gemm_swiglu", A, B))


def gemm_rmsnorm_rope(A: Tensor, B: Tensor, R: Tensor, cos_sin: Tensor) -> tuple[Tensor, Tensor]:
    """
    D = R[m] (A B) (M, N); O (M, N): each pair (x, y) of columns of D becomes (x cos + y sin, y cos - x sin), cos and sin
    being the same columns of cos_sin (M, N). This is the inverse of the rotation of ops.gemm_norm_rope.
    """
    return _rope(_product("gemm_rmsnorm_rope", A, B, R), cos_sin)


def gemm_rope(A: Tensor, B: Tensor, cos_sin: Tensor) -> tuple[Tensor, Tensor]:
    """gemm_rmsnorm_rope without R."""
    return _rope(_product("gemm_rope", A, B), cos_sin)


def gemm_rmsnorm_partial_cross_entropy(
    A: Tensor, B: Tensor, R: Tensor, targets: Tensor, block_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """
    logits = R[m] (A B) (M, N); logits[m, targets[m]] (M), of their dtype; the log-sum-exp of each block of logits
    (M, N / block_size), as they are stored: so exp(logits - lse) are probabilities. targets (M) is int32 or int64 in
    [0, N); of a row whose target is -100 the second result is 0.
    """
    return _cross_entropy(_product("gemm_rmsnorm_partial_cross_entropy", A, B, R), targets, block_size)


def gemm_partial_cross_entropy(A: Tensor, B: Tensor, targets: Tensor, block_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """gemm_rmsnorm_partial_cross_entropy without R."""
    return _cross_entropy(_product("gemm_partial_cross_entropy", A, B), targets, block_size)


def gemm_residual_partial_rmsnorm_bwd(
    A: Tensor, B: Tensor, C: Tensor, W: Tensor, R: Tensor, ZdZ: Tensor, O: Tensor, block_size: int
) -> tuple[Tensor, Tensor, Tensor]:
    """
    With D = A B^T, B (N, K), and n = C R[m]: O + (D W - n ZdZ[m]) R[m] (M, N); n W (M, N); and (N, M / block_size), the
    sums of D n over each block of rows. C (M, N) is what the forward normalised, W (N) the norm's weight, R and ZdZ
    (M), ZdZ the mean over N of the next product's outputs times their gradients, O (M, N) the residual's gradient,
    which the paper's kernel overwrites and this one does not.
    """
    p = _product("gemm_residual_partial_rmsnorm_bwd", A, B, R, transposed=True)
    for name, tensor in {"C": C, "O": O}.items():
        p.expect(name, tensor, (p.m, p.n))
    p.expect("W", W, (p.n,))
    p.expect("ZdZ", ZdZ, (p.m,), p.stat)
    blocks = p.row_blocks(block_size)
    dx, h = p.matrix(), p.matrix()
    sums = A.new_empty((tiles.tiles_m(p.m, A.device), p.n), dtype=p.stat) if blocks.tiles else None
    ops.gemm_rms_backward(**p.operands, x=C, dx_in=O, rstd=R, row_term=ZdZ, weight=W, dx=dx, h=h, dweight=sums)
    if sums is None:  # D is stored nowhere, so it is computed again
        sums = A.new_empty((blocks.count, p.n), dtype=p.stat)
        for rows in p.parts(block_size):
            D = A.new_empty((rows.stop - rows.start, p.n), dtype=p.stat)
            ops.gemm(**p.operands | {"a": A[rows]}, out=D)
            D *= C[rows] * R[rows, None]
            sums[rows.start // block_size : rows.stop // block_size] = D.unflatten(0, (-1, block_size)).sum(1)
    elif blocks.tiles > 1:
        sums = sums.unflatten(0, (blocks.count, blocks.tiles)).sum(1)
    return dx, h, sums.mT


def gemm_partial_swiglu_bwd(A: Tensor, B: Tensor, Z: Tensor, block_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """
    With D = A B^T (M, N), B (N, K), the gradient of a SwiGLU's output, and g and u the even and odd columns of
    Z (M, 2N): the gradient dZ of Z (M, 2N); ZdZ (M, N / block_size), of each block of columns of D the sum of
    g dg + u du divided by block_size; and silu(g) u (M, N).
    """
    p = _product("gemm_partial_swiglu_bwd", A, B, transposed=True)
    p.expect("Z", Z, (p.m, 2 * p.n))
    blocks = p.column_blocks(block_size)
    dZ, out = A.new_empty((p.m, 2 * p.n)), p.matrix()
    dots = p.tile_sums() if blocks.tiles else None
    ops.gemm_glu_backward(**p.operands, preact=Z, dpreact=dZ, out=out, dot_zdz=dots)
    if dots is None:
        means = p.of_blocks(
            blocks, lambda rows: (Z[rows].to(p.stat) * dZ[rows]).unflatten(1, (-1, 2 * block_size)).sum(-1) / block_size
        )
    else:
        means = blocks.means(dots)
    return dZ, means, out


# ---- what the functions above share


class _Blocks(NamedTuple):
    count: int
    size: int
    tiles: int  # of one of them; 0: they are not of whole tiles

    def split(self, matrix: Tensor) -> Tensor:
        return matrix.unflatten(1, (self.count, self.size))

    def rows(self, of_tiles: Tensor) -> Tensor:
        """(M, tiles) as rows of the tiles of one block each."""
        return of_tiles.view(-1, self.tiles)

    def means(self, sums: Tensor) -> Tensor:
        """(M, blocks) of the sums of each tile, (M, tiles)."""
        out = sums.new_empty((sums.shape[0], self.count))
        ops.sum_rows(partial=self.rows(sums), scale=1 / self.size, out=out.view(-1))
        return out


class _Product(NamedTuple):
    operation: str
    a: Tensor
    operands: dict  # arguments of ops
    m: int
    n: int
    stat: torch.dtype
    rstd: Tensor | None

    def expect(self, name: str, tensor: Tensor, shape: tuple, dtype: torch.dtype | None = None) -> None:
        _expect(self.operation, name, tensor, shape, dtype or self.a.dtype, self.a.device)
        if len(shape) == 2:
            _expect_rows(self.operation, name, tensor)

    def expect_pairs(self) -> None:
        if self.n % 2 != 0:
            raise RuntimeError(f"{self.operation}: B: expected an even N, pairs of columns, got {self.n}")

    def matrix(self) -> Tensor:
        return self.a.new_empty((self.m, self.n))

    def tile_sums(self) -> Tensor:
        return self.a.new_empty((self.m, tiles.tiles_n(self.n, self.a.device)), dtype=self.stat)

    def column_blocks(self, block_size: int) -> _Blocks:
        return self._blocks(block_size, "N", self.n, tiles.width(self.a.device))

    def row_blocks(self, block_size: int) -> _Blocks:
        return self._blocks(block_size, "M", self.m, tiles.height(self.a.device))

    def _blocks(self, block_size: int, side: str, size: int, tile: int) -> _Blocks:
        if block_size < 1 or size % block_size != 0:
            raise RuntimeError(
                f"{self.operation}: block_size: expected a divisor of {side}, which is {size}, got {block_size}"
            )
        return _Blocks(size // block_size, block_size, block_size // tile if block_size % tile == 0 else 0)

    def parts(self, multiple: int = 1) -> Iterator[slice]:
        """Slices of the rows, of a multiple of so many, for passes that need more memory than their results."""
        step = max(_PART // max(self.n * multiple, 1), 1) * multiple
        return (slice(first, min(first + step, self.m)) for first in range(0, self.m, step))

    def of_blocks(self, blocks: _Blocks, pass_over: Callable[[slice], Tensor]) -> Tensor:
        """(M, blocks) of passes over parts of the rows."""
        result = self.a.new_empty((self.m, blocks.count), dtype=self.stat)
        for rows in self.parts():
            result[rows] = pass_over(rows)
        return result


def _expect(operation: str, name: str, tensor: Tensor, shape: tuple, dtype: torch.dtype, device: torch.device) -> None:
    if not isinstance(tensor, Tensor):
        raise RuntimeError(f"{operation}: {name}: expected a tensor, got {type(tensor).__name__}")
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != device:
        raise RuntimeError(
            f"{operation}: {name}: expected {dtype} of shape {shape} on {device}, "
            f"got {tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
        )
    if len(shape) == 1 and not tensor.is_contiguous():
        raise RuntimeError(
            f"{operation}: {name}: expected elements that follow each other, got a stride of {tensor.stride(0)}"
        )


def _expect_rows(operation: str, name: str, matrix: Tensor) -> None:
    if matrix.shape[1] > 1 and matrix.stride(1) != 1:
        raise RuntimeError(f"{operation}: {name}: expected dense rows, got strides {matrix.stride()}")


def _product(operation: str, A: Tensor, B: Tensor, *rstd: Tensor, transposed: bool = False) -> _Product:
    """B is (K, N), or transposed (N, K); rstd is the argument R, if there is one."""
    for name, tensor in {"A": A, "B": B}.items():
        if not isinstance(tensor, Tensor) or tensor.dim() != 2:
            got = tensor.dim() if isinstance(tensor, Tensor) else type(tensor).__name__
            raise RuntimeError(f"{operation}: {name}: expected a tensor of 2 dimensions, got {got}")
    _expect_rows(operation, "A", A)
    (m, k), n = A.shape, B.shape[0 if transposed else 1]
    _expect(operation, "B", B, (n, k) if transposed else (k, n), A.dtype, A.device)
    weight = B if transposed else B.mT  # (N, K)
    by_rows = weight.stride(1) == 1 or k == 1
    if not by_rows and weight.stride(0) != 1:
        raise RuntimeError(f"{operation}: B: expected rows or columns that are dense, got strides {B.stride()}")
    operands = {"a": A, "b": weight if by_rows else weight.mT, "layout": "nt" if by_rows else "nn"}
    stat = torch.float64 if A.dtype == torch.float64 else torch.float32
    for R in rstd:
        _expect(operation, "R", R, (m,), stat, A.device)
    return _Product(operation, A, operands, m, n, stat, *rstd or (None,))


def _swiglu(p: _Product) -> tuple[Tensor, Tensor]:
    p.expect_pairs()
    D, out = p.matrix(), p.a.new_empty((p.m, p.n // 2))
    ops.gemm_norm_glu(**p.operands, norm_rstd=p.rstd, preact=D, out=out)
    return D, out


def _rope(p: _Product, cos_sin: Tensor) -> tuple[Tensor, Tensor]:
    p.expect_pairs()
    p.expect("cos_sin", cos_sin, (p.m, p.n))
    D, out = p.matrix(), p.matrix()
    ops.gemm_norm_rotate(**p.operands, norm_rstd=p.rstd, angle=cos_sin, preact=D, out=out)
    return D, out


def _cross_entropy(p: _Product, targets: Tensor, block_size: int) -> tuple[Tensor, Tensor, Tensor]:
    is_short = isinstance(targets, Tensor) and targets.dtype == torch.int32
    p.expect("targets", targets, (p.m,), torch.int32 if is_short else torch.int64)
    blocks = p.column_blocks(block_size)
    logits, chosen = p.matrix(), p.a.new_zeros(p.m, dtype=p.stat)
    most, total = p.tile_sums(), p.tile_sums()
    ops.gemm_lse(
        **p.operands, norm_rstd=p.rstd, target=targets, preact=logits, max=most, sum=total, target_logit=chosen
    )
    if not blocks.tiles:
        lse = p.of_blocks(blocks, lambda rows: blocks.split(logits[rows].to(p.stat)).logsumexp(-1))
    else:
        lse = most.new_empty((p.m, blocks.count))
        ops.lse_finalize(max=blocks.rows(most), sum=blocks.rows(total), lse=lse.view(-1))
    return logits, chosen.to(logits.dtype), lse
