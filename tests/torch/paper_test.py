#!/usr/bin/env python3
"""pycoda.paper against the maths of its kernels, on every device, dtype and order of B, in blocks of any size."""

import itertools
import math
import unittest
import unittest.mock

import torch
import torch.nn.functional as F
from pycoda import paper

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
F64, SHORT = torch.float64, (torch.bfloat16, torch.float16)
M, N, K = 768, 768, 72
BLOCKS = (64, 128, 192, 256, 768)  # of one tile, of several, and of parts of tiles, whatever the device


# ---- the maths, with fp64 or with a 16-bit dtype whose every result is rounded


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


# Its maths, its arguments, and which results have the dtype of matrices (m) and of statistics (s).
WITH_BLOCKS = {
    "gemm_residual_partial_rmsnorm": (residual_partial_rmsnorm, "A B C W", "msm"),
    "gemm_rmsnorm_partial_cross_entropy": (partial_cross_entropy, "A B R targets", "mms"),
    "gemm_partial_cross_entropy": (partial_cross_entropy, "A B targets", "mms"),
    "gemm_residual_partial_rmsnorm_bwd": (residual_partial_rmsnorm_bwd, "A B C W R ZdZ O", "mms"),
    "gemm_partial_swiglu_bwd": (partial_swiglu_bwd, "A B Z", "msm"),
}
OTHERS = {
    "gemm_rmsnorm": (rmsnorm, "A B R", "m"),
    "gemm_rmsnorm_swiglu": (swiglu, "A B R", "mm"),
    "gemm_swiglu": (swiglu, "A B", "mm"),
    "gemm_rmsnorm_rope": (rope, "A B R cos_sin", "mm"),
    "gemm_rope": (rope, "A B cos_sin", "mm"),
}


def stat_of(dtype):
    return F64 if dtype == F64 else torch.float32


def inputs(dtype, device, by_rows, m=M, n=N, k=K, backward=False):
    """Arguments of all kernels; B lies as a view of a weight (N, K), or by rows."""

    def normal(*shape):
        return torch.randn(*shape, dtype=F64).to(dtype)

    angle = 3 * torch.randn(m, n // 2, dtype=F64)
    B = normal(n, k) / math.sqrt(k)
    if not backward:
        B = B.mT
    stat = stat_of(dtype)
    given = {
        "A": normal(m, k),
        "B": B.contiguous() if by_rows else B.mT.contiguous().mT,
        "C": normal(m, n),
        "W": normal(n),
        "Z": normal(m, 2 * n),
        "O": normal(m, n),
        "R": (0.5 + torch.rand(m, dtype=F64)).to(stat),
        "ZdZ": torch.randn(m, dtype=F64).to(stat),
        "cos_sin": torch.stack((angle.cos(), angle.sin()), -1).flatten(1).to(dtype),
        "targets": torch.randint(0, n, (m,)),
    }
    given["targets"][::7] = -100
    return {name: x.to(device) for name, x in given.items()}


def results(of, *args, **kwargs):
    found = of(*args, **kwargs)
    return found if isinstance(found, tuple) else (found,)


class Kernels(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def check(self, name, given, **options):
        maths, arguments, kinds = (WITH_BLOCKS | OTHERS)[name]
        given = {key: given[key] for key in arguments.split()}
        before = {key: x.clone() for key, x in given.items()}
        dtype = given["A"].dtype

        def run(to):
            return results(maths, **{k: x if k == "targets" else x.to(to) for k, x in given.items()}, **options)

        got, exact, chain = results(getattr(paper, name), **given, **options), run(F64), run(dtype)
        self.assertEqual(len(got), len(kinds), name)
        for number, (kind, x, reference, rounded) in enumerate(zip(kinds, got, exact, chain, strict=True)):
            what = f"{name}, result {number}, {dtype} on {x.device}, {options}"
            self.assertEqual(x.shape, reference.shape, what)
            self.assertEqual(x.dtype, dtype if kind == "m" else stat_of(dtype), what)
            if x.numel() == 0:
                continue
            error, scale = (x.double() - reference).abs().max(), reference.abs().max()
            if dtype == F64:
                self.assertLessEqual(error, 1e-11 * scale, what)
            else:
                tiny = torch.finfo(dtype).eps * scale
                self.assertLessEqual(error, 2 * (rounded.double() - reference).abs().max() + tiny, what)
                self.assertLessEqual((x.double() - reference).norm(), 1e-2 * reference.norm(), what)
        for key, x in given.items():
            self.assertTrue(torch.equal(x, before[key]), f"{name} wrote {key}")

    def check_all(self, device, dtype, by_rows, block_sizes=BLOCKS):
        for name in WITH_BLOCKS | OTHERS:
            given = inputs(dtype, device, by_rows, backward=name.endswith("_bwd"))
            for options in [{"block_size": size} for size in block_sizes] if name in WITH_BLOCKS else [{}]:
                self.check(name, given, **options)

    def test_are_what_the_maths_says_in_fp64(self):
        for by_rows in (False, True):
            self.check_all("cpu", F64, by_rows)

    def test_are_what_the_maths_says_in_16_bits(self):
        for device, (by_rows, dtype) in itertools.product(DEVICES, enumerate(SHORT)):
            self.check_all(device, dtype, bool(by_rows), BLOCKS if device == "cuda" else (192, 256))

    def test_passes_over_stored_results_go_by_parts(self):
        whole = len(list(paper._product("", *(torch.empty(M, N) for _ in range(2)), transposed=True).parts()))
        with unittest.mock.patch.object(paper, "_PART", 200 * N):
            parts = list(paper._product("", *(torch.empty(M, N) for _ in range(2)), transposed=True).parts(64))
            for name in WITH_BLOCKS:
                self.check(name, inputs(F64, "cpu", False, backward=name.endswith("_bwd")), block_size=64)
        self.assertEqual((whole, [part.stop - part.start for part in parts]), (1, [192] * 4))

    def test_of_few_rows_and_columns(self):
        for device, (m, n, k) in itertools.product(DEVICES, ((1, 2, 1), (0, 8, 8), (3, 6, 10))):
            for name in WITH_BLOCKS | OTHERS:
                given = inputs(torch.bfloat16, device, False, m, n, k, name.endswith("_bwd"))
                rows = name == "gemm_residual_partial_rmsnorm_bwd"
                self.check(name, given, **({"block_size": max(m, 1) if rows else n} if name in WITH_BLOCKS else {}))

    def test_make_a_block_forward_and_backward(self):
        """As the paper's own code puts them together: gradients are those of autograd."""
        x, y = torch.randn(M, N, dtype=F64), torch.randn(M, K, dtype=F64)
        wa, wb, wc = torch.randn(N, K, dtype=F64) / 8, torch.randn(2 * N, N, dtype=F64) / 30, torch.randn(N, dtype=F64)
        down = torch.randn(K, N, dtype=F64) / 30
        leaves = [t.requires_grad_() for t in (x, y, wa, wb, wc)]
        middle = x + y @ wa.T
        z = F.rms_norm(middle, (N,), wc, 1e-5) @ wb.T
        out = (F.silu(z[:, 0::2]) * z[:, 1::2]) @ down.T
        dout, dmiddle = torch.randn_like(out), torch.randn_like(middle)
        wanted = torch.autograd.grad([out, middle], leaves, [dout, dmiddle])
        with torch.no_grad():
            D, S, h = paper.gemm_residual_partial_rmsnorm(y, wa.mT, x, wc, block_size=192)
            R = (S.mean(1) + 1e-5).rsqrt()
            Z, act = paper.gemm_rmsnorm_swiglu(h, wb.mT, R)
            dZ, ZdZ, again = paper.gemm_partial_swiglu_bwd(dout, down.mT, Z, block_size=64)
            # Of each block a mean over its pairs: the norm wants the sum over all outputs divided by its width.
            dx, normed, dw = paper.gemm_residual_partial_rmsnorm_bwd(
                dZ, wb.mT, D, wc, R, ZdZ.sum(1) * 64 / N, dmiddle, block_size=256
            )
            found = dx, dx @ wa, dx.mT @ y, dZ.mT @ normed, dw.sum(1)
        torch.testing.assert_close(act @ down.T, out)
        torch.testing.assert_close(again, act)
        for got, gradient in zip(found, wanted, strict=True):
            torch.testing.assert_close(got, gradient)

    def test_run_under_torch_compile(self):
        for device in DEVICES:
            for name, (_, arguments, _) in (WITH_BLOCKS | OTHERS).items():
                given = inputs(torch.bfloat16, device, False, backward=name.endswith("_bwd"))
                given = {key: given[key] for key in arguments.split()}
                for options in [{"block_size": size} for size in (192, 256)] if name in WITH_BLOCKS else [{}]:
                    kernel = getattr(paper, name)
                    compiled = torch.compile(kernel, fullgraph=True, backend="aot_eager")
                    for x, y in zip(
                        results(kernel, **given, **options), results(compiled, **given, **options), strict=True
                    ):
                        torch.testing.assert_close(x, y)

    def test_wrong_arguments_are_named(self):
        forward, backward = (inputs(torch.bfloat16, "cpu", False, backward=after) for after in (False, True))

        def refuses(name, message, given=forward, **wrong):
            _, arguments, _ = (WITH_BLOCKS | OTHERS)[name]
            options = {"block_size": 64} if name in WITH_BLOCKS else {}
            with self.assertRaisesRegex(RuntimeError, f"^{name}: {message}"):
                getattr(paper, name)(**{key: given[key] for key in arguments.split()} | options | wrong)

        for name, (_, arguments, _) in (WITH_BLOCKS | OTHERS).items():
            is_backward = name.endswith("_bwd")
            given = backward if is_backward else forward

            def refused(argument, message, wrong, name=name, given=given):
                refuses(name, f"{argument}: expected {message}", given, **{argument: wrong})

            for argument in arguments.split():
                right = given[argument]
                refused(argument, "a tensor.* got NoneType", None)
                refused(argument, ".* got ", right[None])
                if argument != "A":
                    refused(argument, ".* of shape .* got ", right.half())
                    refused(argument, ".* on cpu, got .* on meta", right.to("meta"))
                    if argument != "B" or not is_backward:  # whose rows are N
                        refused(argument, ".* of shape .* got ", right[1:])
                if right.dim() == 2:
                    apart = right.new_empty(2 * right.shape[0], 2 * right.shape[1])[::2, ::2]
                    refused(argument, ".*dense.*, got strides", apart)
            if name in WITH_BLOCKS:
                side = "M" if name == "gemm_residual_partial_rmsnorm_bwd" else "N"
                for size in (0, -64, 100, 2 * N):
                    message = f"block_size: expected a divisor of {side}, which is 768, got {size}"
                    refuses(name, message, given, block_size=size)
        for name in ("gemm_rmsnorm_swiglu", "gemm_rope"):
            refuses(name, "B: expected an even N, pairs of columns, got 767", forward, B=forward["B"][:, 1:])
        with self.assertRaisesRegex(RuntimeError, "expected tensors that require no gradient"):
            paper.gemm_rmsnorm(forward["A"].clone().requires_grad_(), forward["B"], forward["R"])


if __name__ == "__main__":
    unittest.main()
