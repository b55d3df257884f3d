#!/usr/bin/env python3
"""pycoda.paper against the maths of its kernels, on every device, dtype and order of B, in blocks of any size."""

import itertools
import unittest
import unittest.mock

import torch
import torch.nn.functional as F
from plain_paper import F64, KERNELS, inputs, results, stat_of
from pycoda import paper

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
SHORT = (torch.bfloat16, torch.float16)
SHAPE = M, N, K = 768, 768, 72
BLOCKS = (64, 128, 192, 256, 384, 768)  # of one tile, of several, and of parts of tiles, whatever the device


class Kernels(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def check(self, name, given, **options):
        kernel, dtype = KERNELS[name], given["A"].dtype
        before = {key: x.clone() for key, x in given.items()}

        def run(to):
            return results(kernel.maths, **{k: x if k == "targets" else x.to(to) for k, x in given.items()}, **options)

        got, exact, chain = results(getattr(paper, name), **given, **options), run(F64), run(dtype)
        self.assertEqual(len(got), len(kernel.kinds), name)
        for number, (kind, x, reference, rounded) in enumerate(zip(kernel.kinds, got, exact, chain, strict=True)):
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
                # Sums over rows are of fp32 products in blocks of any size, other ones may be of stored results.
                limit = 1e-2 if kind == "m" else 1e-5 if kernel.blocks_of == "M" else 4e-3
                self.assertLessEqual((x.double() - reference).norm(), limit * reference.norm(), what)
        for key, x in given.items():
            self.assertTrue(torch.equal(x, before[key]), f"{name} wrote {key}")

    def check_all(self, device, dtype, by_rows, block_sizes=BLOCKS):
        for name, kernel in KERNELS.items():
            given = inputs(kernel, dtype, device, *SHAPE, by_rows)
            for options in kernel.block_sizes(*block_sizes):
                self.check(name, given, **options)

    def test_are_what_the_maths_says_in_fp64(self):
        for by_rows in (False, True):
            self.check_all("cpu", F64, by_rows)

    def test_are_what_the_maths_says_in_16_bits(self):
        for device, (by_rows, dtype) in itertools.product(DEVICES, enumerate(SHORT)):
            self.check_all(device, dtype, bool(by_rows), BLOCKS if device == "cuda" else (192, 256))

    def test_passes_over_stored_results_go_by_parts(self):
        def parts(*multiple):
            product = paper._product("", torch.empty(M, K), torch.empty(K, N))
            return [rows.stop - rows.start for rows in product.parts(*multiple)]

        self.assertEqual(parts(), [M])
        with unittest.mock.patch.object(paper, "_PART", 200 * N):
            self.assertEqual((parts(), parts(64)), ([200, 200, 200, 168], [192] * 4))
            for name, kernel in KERNELS.items():
                if kernel.blocks_of:
                    self.check(name, inputs(kernel, F64, "cpu", *SHAPE), block_size=64)

    def test_blocks_of_whole_tiles_need_no_pass_over_stored_results(self):
        for device, (name, kernel) in itertools.product(DEVICES, KERNELS.items()):
            given = inputs(kernel, torch.bfloat16, device, *SHAPE)
            with (
                unittest.mock.patch.object(paper._Product, "parts", side_effect=AssertionError(name)),
                unittest.mock.patch.object(torch.linalg, "vector_norm", side_effect=AssertionError(name)),
            ):
                for options in kernel.block_sizes(256, 768) if kernel.blocks_of else []:
                    getattr(paper, name)(**given, **options)

    def test_of_few_rows_and_columns(self):
        for device, (m, n, k) in itertools.product(DEVICES, ((1, 2, 1), (0, 8, 8), (3, 6, 10))):
            for name, kernel in KERNELS.items():
                given = inputs(kernel, torch.bfloat16, device, m, n, k)
                if k == 1:  # whose rows are dense, whatever their strides
                    given["A"] = given["A"].expand(m, 2)[:, :1]
                for options in kernel.block_sizes(max(m, 1) if kernel.blocks_of == "M" else n):
                    self.check(name, given, **options)

    def test_targets_of_either_index_type(self):
        for device, name in itertools.product(DEVICES, (n for n in KERNELS if n.endswith("cross_entropy"))):
            given = inputs(KERNELS[name], torch.bfloat16, device, *SHAPE)
            found, short = (
                getattr(paper, name)(**given | {"targets": given["targets"].to(index)}, block_size=256)
                for index in (torch.int64, torch.int32)
            )
            self.assertTrue(all(map(torch.equal, found, short)))

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
        for device, (name, kernel) in itertools.product(DEVICES, KERNELS.items()):
            given, run = inputs(kernel, torch.bfloat16, device, *SHAPE), getattr(paper, name)
            for options in kernel.block_sizes(192, 256):
                compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
                for x, y in zip(results(run, **given, **options), results(compiled, **given, **options), strict=True):
                    torch.testing.assert_close(x, y)

    def test_wrong_arguments_are_named(self):
        def refuses(name, message, given, **wrong):
            options = KERNELS[name].block_sizes(64)[0]
            with self.assertRaisesRegex(RuntimeError, f"^{name}: {message}"):
                getattr(paper, name)(**given | options | wrong)

        for name, kernel in KERNELS.items():
            given = inputs(kernel, torch.bfloat16, "cpu", *SHAPE)

            def refused(argument, message, wrong, name=name, given=given):
                refuses(name, f"{argument}: expected {message}", given, **{argument: wrong})

            for argument, right in given.items():
                refused(argument, "a tensor.* got NoneType", None)
                refused(argument, ".* got ", right[None])
                if argument != "A":
                    refused(argument, ".* of shape .* got ", right.half())
                    refused(argument, ".* on cpu, got .* on meta", right.to("meta"))
                    if argument != "B" or not kernel.backward:  # whose rows are N
                        refused(argument, ".* of shape .* got ", right[1:])
                if right.dim() == 2:
                    apart = right.new_empty(2 * right.shape[0], 2 * right.shape[1])[::2, ::2]
                    refused(argument, ".*dense.*, got strides", apart)
                else:
                    apart = torch.stack((right, right), 1)[:, 0]
                    refused(argument, "elements that follow each other, got a stride of 2", apart)
            if kernel.blocks_of:
                for size in (0, -64, 100, 2 * N):
                    message = f"block_size: expected a divisor of {kernel.blocks_of}, which is 768, got {size}"
                    refuses(name, message, given, block_size=size)
            if name.endswith(("_swiglu", "_rope")):
                refuses(name, "B: expected an even N, pairs of columns, got 767", given, B=given["B"][:, 1:])
        given = inputs(KERNELS["gemm_rmsnorm"], torch.bfloat16, "cpu", *SHAPE)
        with self.assertRaisesRegex(RuntimeError, "expected tensors that require no gradient"):
            paper.gemm_rmsnorm(**given | {"A": given["A"].clone().requires_grad_()})


if __name__ == "__main__":
    unittest.main()
