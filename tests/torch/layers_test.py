#!/usr/bin/env python3
"""Layers and losses for PyTorch, forward and backward, against separate operations that autograd differentiates."""

import contextlib
import functools
import itertools
import math
import unittest
import unittest.mock

import plain
import torch
from pycoda import ops
from pycoda.functional import (
    BlockWeights,
    HeadWeights,
    Heads,
    QkvWeights,
    block,
    block_post,
    block_post_logits,
    block_pre,
    linear_cross_entropy,
    rotary_table,
)
from torch.autograd import forward_ad
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
# Of fp64 on the CPU, whose results differ by the order of sums only.
EXACT = 1e-11


def random(*shape, dtype, device, scale=1.0):
    """Of the same values whatever the dtype and device, but for rounding."""
    return (torch.randn(*shape, dtype=torch.float64) * scale).to(dtype).to(device).requires_grad_()


class Case:
    """Weights and inputs of a model of two layers, as leaves."""

    def __init__(self, dtype, device, tokens=(37,), hidden=48, ffn=40, heads=(4, 2), head_dim=16, vocabulary=83, **o):
        def weight(*shape):
            return random(*shape, dtype=dtype, device=device, scale=shape[-1] ** -0.5)

        def norm(n):
            return (1 + 0.3 * torch.randn(n, dtype=torch.float64)).to(dtype).to(device).requires_grad_()

        torch.manual_seed(5)
        self.dtype, self.device, self.tokens = dtype, device, tokens
        q, kv = heads
        width, attended = (q + 2 * kv) * head_dim, q * head_dim
        self.table = random(vocabulary, hidden, dtype=dtype, device=device)
        self.token = torch.randint(0, vocabulary, tokens).to(device)
        self.target = torch.randint(0, vocabulary, tokens).to(device)
        self.target.view(-1)[::5] = -100
        qk_norm = o.get("qk_norm", False)
        self.qkv = [
            QkvWeights(norm(hidden), weight(width, hidden), *((norm(head_dim), norm(head_dim)) if qk_norm else ()))
            for _ in range(2)
        ]
        self.layers = [
            BlockWeights(weight(hidden, attended), norm(hidden), weight(2 * ffn, hidden), weight(hidden, ffn))
            for _ in range(2)
        ]
        self.head = HeadWeights(norm(hidden), weight(vocabulary, hidden))
        stat = torch.float64 if dtype == torch.float64 else torch.float32
        frequency = 100.0 ** -(torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim)
        rows = self.token.numel()
        position = torch.randperm(rows).to(torch.int32).to(device) if o.get("positions", False) else None
        self.heads = Heads(q, kv, kv, head_dim, rotary_table(frequency, rows, stat), position)

    def leaves(self):
        everything = [self.table, *self.qkv[0], *self.qkv[1], *self.layers[0], *self.layers[1], *self.head]
        return [t for t in everything if t is not None]

    def attention(self, qkv):
        """Any function of it serves."""
        return torch.sin(qkv[..., : self.heads.q * self.heads.head_dim])

    def loss(self, ops, function="swiglu", **options):
        eps = {"eps": 3e-2, "head_eps": 0.2}  # no defaults, and to be seen
        x, qkv = ops.block_pre(self.token, self.table, self.qkv[0], self.heads, **eps)
        x, qkv = ops.block(self.attention(qkv), x, self.layers[0], self.qkv[1], self.heads, function=function, **eps)
        return ops.block_post(
            self.attention(qkv), x, self.layers[1], self.head, self.target, function=function, eps=3e-2, **options
        )

    def flat(self, dtype=torch.float64, device="cpu"):
        """The same with tokens in one row, for separate operations, of other leaves."""
        other = object.__new__(Case)
        other.__dict__ = dict(self.__dict__)

        def copied(t):
            if t is None:
                return None
            t = t.detach().to(device)
            return t.to(dtype, copy=True).requires_grad_() if t.is_floating_point() else t

        other.table, other.head = copied(self.table), HeadWeights(*map(copied, self.head))
        other.qkv = [QkvWeights(*map(copied, w)) for w in self.qkv]
        other.layers = [BlockWeights(*map(copied, w)) for w in self.layers]
        other.token, other.target = copied(self.token).flatten(), copied(self.target).flatten()
        h = self.heads
        table = h.table.to(device, torch.promote_types(dtype, torch.float32))
        other.heads = Heads(h.q, h.k, h.v, h.head_dim, table, copied(h.position))
        return other


class ours:
    block_pre, block, block_post = staticmethod(block_pre), staticmethod(block), staticmethod(block_post)


def difference(got, expected):
    """Relative to the largest value."""
    expected = expected.double().cpu()
    return ((got.detach().double().cpu() - expected).abs().max() / expected.abs().max().clamp_min(1e-300)).item()


def relative(got, expected):
    """Of the whole: its length relative to that of what is expected."""
    expected = expected.double().cpu()
    return ((got.detach().double().cpu() - expected).norm() / expected.norm().clamp_min(1e-300)).item()


class InFp64(unittest.TestCase):
    """On the CPU, where results differ by the order of sums only."""

    def compare(self, case, seed=None, plain_options=None, **options):
        reference = case.flat()
        loss = case.loss(ours, **options)
        expected = reference.loss(plain, **(options if plain_options is None else plain_options))
        # A factor behind the loss, as gradient accumulation has.
        seed = torch.full_like(expected, 3.0) if seed is None else seed
        loss.backward(seed.view(loss.shape))
        expected.backward(seed)
        self.assertLessEqual(difference(loss.flatten(), expected.flatten().detach()), EXACT)
        for leaf, other in zip(case.leaves(), reference.leaves(), strict=True):
            self.assertEqual((leaf.grad.dtype, leaf.grad.shape), (leaf.dtype, leaf.shape))
            self.assertLessEqual(difference(leaf.grad, other.grad), EXACT, f"gradient of {tuple(leaf.shape)}")

    def test_options_of_the_loss(self):
        for options in (
            {},
            {"reduction": "sum"},
            {"scale": 0.5, "cap": 3.0},
            {"label_smoothing": 0.1, "z_loss": 1e-2},
        ):
            with self.subTest(**options):
                self.compare(Case(torch.float64, "cpu"), **options)

    def test_activations(self):
        for function in plain.GATES:
            with self.subTest(function):
                self.compare(Case(torch.float64, "cpu"), function=function)

    def test_single_rows(self):
        seed = torch.linspace(-1, 2, 37, dtype=torch.float64)
        self.compare(Case(torch.float64, "cpu"), seed, reduction="none")
        self.compare(Case(torch.float64, "cpu"), seed, reduction="none", label_smoothing=0.1, cap=4.0)

    def test_an_index_to_ignore(self):
        case = Case(torch.float64, "cpu")
        case.target[case.target == -100] = 7
        self.compare(case, ignore_index=7)

    def test_few_rows_of_logits_at_a_time(self):
        self.compare(Case(torch.float64, "cpu"), plain_options={}, logit_rows=10)

    def test_the_heads_gradient_of_few_rows_at_a_time_is_rounded_once(self):
        found = []
        for logit_rows in (0, 8):
            case = Case(torch.bfloat16, "cpu", tokens=(2048,), vocabulary=8)
            case.target.fill_(3)  # so that all of a sum has one sign
            case.loss(ours, logit_rows=logit_rows).backward()
            found.append(case.head[1].grad.double())
        self.assertLessEqual(difference(found[1], found[0]), 2e-3)

    def test_shapes(self):
        for options in (
            {"qk_norm": True},
            {"positions": True},
            {"tokens": (3, 11)},
            {"heads": (3, 3), "head_dim": 20},
            {"tokens": (2, 9), "qk_norm": True, "positions": True},
            {"tokens": (1,), "hidden": 7, "ffn": 5, "heads": (1, 1), "head_dim": 2, "vocabulary": 3},
            {"tokens": (300,), "hidden": 264, "ffn": 270, "vocabulary": 520},
        ):
            with self.subTest(**options):
                case = Case(torch.float64, "cpu", **options)
                if case.token.numel() == 1:
                    case.target[0] = 1
                self.compare(case)

    def test_inputs_and_gradients_that_are_not_contiguous(self):
        case, other = Case(torch.float64, "cpu", tokens=(3, 11)), Case(torch.float64, "cpu", tokens=(3, 11))
        other.token, other.target = (torch.stack((t, t), -1)[..., 0] for t in (other.token, other.target))
        attention = other.attention
        other.attention = lambda qkv: attention(qkv).transpose(0, 1).contiguous().transpose(0, 1)
        for each in (case, other):
            loss = each.loss(ours, reduction="none")
            loss.sum().backward()  # whose gradient is one number, expanded
        for leaf, strided in zip(case.leaves(), other.leaves(), strict=True):
            self.assertTrue(torch.equal(leaf.grad, strided.grad))

    def test_a_graph_kept_for_a_second_backward(self):
        case = Case(torch.float64, "cpu")
        loss = case.loss(ours, reduction="none").sum()
        loss.backward(retain_graph=True)
        first = [leaf.grad.clone() for leaf in case.leaves()]
        loss.backward()
        for leaf, once in zip(case.leaves(), first, strict=True):
            self.assertTrue(torch.equal(leaf.grad, 2 * once))
        loss = case.loss(ours)
        loss.backward(retain_graph=True)
        with self.assertRaisesRegex(RuntimeError, "block_post: expected one backward .*reduction='none' allows it"):
            loss.backward()
        # Compiled, nothing tells of a second one, which has the same gradients.
        for backend in ("eager", "aot_eager"):
            torch.compiler.reset()
            compiled = torch.compile(functools.partial(case.loss, ours), backend=backend)() * 2
            first = torch.autograd.grad(compiled, case.leaves(), retain_graph=True)
            first = [gradient.clone() for gradient in first]
            for again, once in zip(torch.autograd.grad(compiled, case.leaves()), first, strict=True):
                self.assertTrue(torch.equal(again, once), backend)

    def test_what_is_wrong_is_told_by_the_function_that_was_called(self):
        case = Case(torch.float32, "cpu", tokens=(2, 6))
        attended, x = torch.randn(2, 6, 64, requires_grad=True), torch.randn(2, 6, 48)
        post = {"attended": attended, "x": x, "weights": case.layers[1], "head": case.head, "target": case.target}
        block_of = {"weights": case.layers[0], "next": case.qkv[1], "heads": case.heads}
        pre = {"token": case.token, "table": case.table, "next": case.qkv[0], "heads": case.heads}
        loss = {"a": x, "weight": case.head.head, "target": case.target}
        none = "expected a tensor, got none"
        index = "expected dtype bf16, fp16, fp32, fp64, int32 or int64, got"
        above = case.target.clone()
        above[1, 1] = 83
        for function, good, message, wrong in (
            (block_post, post, r"target: expected values in \[0, 83\) or ignore_index -100, got 83", {"target": above}),
            (
                block_post,
                post,
                r"options.label_smoothing: expected a number in \[0, 1\), got 2",
                {"label_smoothing": 2.0},
            ),
            (block_post, post, "logit_rows: expected a number of rows, .* got -1", {"logit_rows": -1}),
            (block_post, post, "logit_rows: .* got -1", {"logit_rows": -1, "reduction": "none"}),
            (block_post, post, "reduction: expected mean, sum or none, got 'avg'", {"reduction": "avg"}),
            (block_post, post, f"target: {none}", {"target": None}),
            (block_post, post, f"head_head: {none}", {"head": HeadWeights(case.head.final_norm, None)}),
            (block_post, post, f"attended: {none}", {"attended": None}),
            (block_post, post, "x: expected a tensor, got list", {"x": [1.0]}),
            (block_post, post, f"target: {index} int16", {"target": case.target.short()}),
            (block, {**post, **block_of}, f"attended: {none}", {"attended": None}),
            (block, {**post, **block_of}, f"weights_gate_up: {none}", {"weights": BlockWeights(*[None] * 4)}),
            (block_pre, pre, f"token: {none}", {"token": None}),
            (block_pre, pre, f"table: {none}", {"table": None}),
            (block_pre, pre, f"token: {index} uint8", {"token": case.token.to(torch.uint8)}),
            (linear_cross_entropy, loss, "chunk: expected a number of columns above 0, got 0", {"chunk": 0}),
            (linear_cross_entropy, loss, "reduction: .*, got None", {"reduction": None}),
            (linear_cross_entropy, loss, f"target: {none}", {"target": None}),
            (linear_cross_entropy, loss, f"weight: {none}", {"weight": None}),
            (linear_cross_entropy, loss, f"a: {none}", {"a": None}),
        ):
            given = {**good, **wrong}
            if function is block:
                del given["head"], given["target"]
            with self.subTest(message), self.assertRaisesRegex(RuntimeError, f"^{function.__name__}: {message}"):
                function(**given)
        with self.assertRaisesRegex(RuntimeError, f"^block_post: x: {none}"):
            block_post_logits(attended, None, case.layers[1], case.head)

    def test_a_second_derivative_is_refused(self):
        case = Case(torch.float64, "cpu")
        x, target = torch.randn(5, 8, dtype=torch.float64, requires_grad=True), torch.tensor([1, 2, 3, 0, 1])
        weight = torch.randn(7, 8, dtype=torch.float64, requires_grad=True)
        for loss, leaf in (
            (case.loss(ours), case.table),
            (case.loss(ours, reduction="none").sum(), case.layers[0].down),
            (linear_cross_entropy(x, weight, target), x),
        ):
            (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
            with self.assertRaisesRegex(RuntimeError, "cannot be differentiated again"):
                gradient.square().sum().backward()

    def test_a_forward_mode_derivative_is_refused(self):
        for trained in (False, True):
            case = Case(torch.float64, "cpu")
            for leaf in case.leaves():
                leaf.requires_grad_(trained)
            x, attended = torch.randn(37, 48, dtype=torch.float64), torch.randn(37, 64, dtype=torch.float64)
            for function in (
                lambda x, case=case: block_pre(case.token, case.table + x[0], case.qkv[0], case.heads),
                lambda x, case=case: block(attended, x, case.layers[0], case.qkv[1], case.heads),
                lambda x, case=case: block_post(attended, x, case.layers[1], case.head, case.target),
                lambda x, case=case: block_post_logits(attended, x, case.layers[1], case.head),
                lambda x, case=case: linear_cross_entropy(x, case.head.head, case.target),
            ):
                with self.assertRaisesRegex(RuntimeError, "without a tangent|jvp|setup_context"):
                    torch.func.jvp(function, (x,), (x,))
                with forward_ad.dual_level(), self.assertRaisesRegex(RuntimeError, "without a tangent|jvp"):
                    function(forward_ad.make_dual(x, x))

    def test_gradients_of_constants_are_refused(self):
        case, number = Case(torch.float64, "cpu"), torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        x, attended = torch.randn(37, 48, dtype=torch.float64), torch.randn(37, 64, dtype=torch.float64)
        of_block = functools.partial(block, attended, x, case.layers[0], case.qkv[1])
        of_loss = functools.partial(block_post, attended, x, case.layers[1], case.head, case.target)
        of_pre = functools.partial(block_pre, case.token, case.table, case.qkv[0])
        of_lce = functools.partial(linear_cross_entropy, x, case.head.head, case.target)
        trained = case.heads._replace(table=case.heads.table.clone().requires_grad_())
        options = ("scale", "cap", "label_smoothing", "z_loss")
        for message, call in (
            ("block_pre: heads_table", lambda: of_pre(trained)),
            ("block_pre: eps", lambda: of_pre(case.heads, eps=number)),
            ("block_pre: head_eps", lambda: of_pre(case.heads, head_eps=number)),
            ("block: heads_table", lambda: of_block(trained)),
            ("block: head_eps", lambda: of_block(case.heads, head_eps=number)),
            ("block: eps", lambda: of_block(case.heads, eps=number)),
            *((f"block_post: {o}", lambda o=o: of_loss(**{o: number})) for o in (*options, "eps", "factor")),
            *((f"linear_cross_entropy: {o}", lambda o=o: of_lce(**{o: number})) for o in options),
        ):
            with self.assertRaisesRegex(RuntimeError, f"^{message}: expected no gradient to be required"):
                call()
            with torch.no_grad():
                call()

    def test_recomputed_by_a_checkpoint(self):
        case = Case(torch.float64, "cpu", qk_norm=True)
        case.loss(ours).backward()

        def keep_ours(_, operator, *args, **kwargs):
            ours = operator.namespace == "coda"
            return CheckpointPolicy.MUST_SAVE if ours else CheckpointPolicy.PREFER_RECOMPUTE

        selective = {"context_fn": functools.partial(create_selective_checkpoint_contexts, keep_ours)}
        for how in ({}, selective):

            class recomputed(ours):
                @staticmethod
                def block(*inputs, how=how, **options):
                    return checkpoint(functools.partial(block, **options), *inputs, use_reentrant=False, **how)

            other = Case(torch.float64, "cpu", qk_norm=True)
            other.loss(recomputed).backward()
            for leaf, again in zip(case.leaves(), other.leaves(), strict=True):
                self.assertTrue(torch.equal(leaf.grad, again.grad))

    def test_one_norm_of_heads_that_is_frozen(self):
        whole = Case(torch.float64, "cpu", qk_norm=True)
        whole.loss(ours).backward()
        for frozen in (2, 3):
            case = Case(torch.float64, "cpu", qk_norm=True)
            for weights in case.qkv:
                weights[frozen].requires_grad_(False)
            case.loss(ours).backward()
            for leaf, all in zip(case.leaves(), whole.leaves(), strict=True):
                self.assertTrue(torch.equal(leaf.grad, all.grad) if leaf.requires_grad else leaf.grad is None)

    def test_a_factor_of_the_loss(self):
        """As in accumulation of gradients: given, or multiplied behind, where it is rounded to 16 bits with them."""
        for dtype, given, behind in ((torch.float32, 1e-6, 1e-6), (torch.bfloat16, 2e-3, 4e-3)):
            for reduction in ("mean", "sum"):
                norms = []
                for factors in ((1, 1), (1 / 3, 1), (1, 1 / 3), (1, 0.25)):
                    case = Case(dtype, "cpu", hidden=64, ffn=64)
                    (factors[1] * case.loss(ours, factor=factors[0], reduction=reduction)).backward()
                    norms.append(case.head.head.grad.double().norm().item())
                self.assertLess(abs(norms[1] * 3 / norms[0] - 1), given)
                self.assertLess(abs(norms[2] * 3 / norms[0] - 1), behind)
                self.assertEqual(norms[3] * 4, norms[0])
        case = Case(torch.float64, "cpu")
        for reduction in ("mean", "sum", "none"):
            whole, third = (case.loss(ours, factor=factor, reduction=reduction) for factor in (1, 1 / 3))
            self.assertLessEqual(difference(3 * third, whole.detach()), EXACT)

    def test_only_what_requires_gradients_gets_some(self):
        case, reference = Case(torch.float64, "cpu"), Case(torch.float64, "cpu")
        reference.loss(ours).backward()
        wanted = [case.layers[0].down, case.qkv[1].input_norm, case.head.head]
        for leaf in case.leaves():
            leaf.requires_grad_(any(leaf is w for w in wanted))
        case.loss(ours).backward()
        for leaf, other in zip(case.leaves(), reference.leaves(), strict=True):
            if leaf.requires_grad:
                self.assertTrue(torch.equal(leaf.grad, other.grad))
            else:
                self.assertIsNone(leaf.grad)

    def test_gradients_of_what_is_frozen_are_not_computed(self):
        case = Case(torch.float64, "cpu", qk_norm=True)
        case.layers[0].post_norm.requires_grad_(False)
        case.layers[1].down.requires_grad_(False)
        case.qkv[0].qkv.requires_grad_(False)
        case.table.requires_grad_(False)
        case.head.head.requires_grad_(False)
        names = ("block_pre_backward", "block_backward", "block_post_backward")
        with contextlib.ExitStack() as watched:
            calls = {
                name: watched.enter_context(unittest.mock.patch.object(ops, name, wraps=getattr(ops, name)))
                for name in names
            }
            case.loss(ours).backward()
        left_out = {
            (name, key)
            for name, call in calls.items()
            for key, given in call.call_args.kwargs.items()
            if given is None and ("gradients_" in key or key == "dtable")
        }
        self.assertEqual(
            left_out,
            {
                ("block_pre_backward", "gradients_qkv"),
                ("block_pre_backward", "dtable"),
                ("block_backward", "gradients_post_norm"),
                ("block_post_backward", "gradients_down"),
                ("block_post_backward", "head_gradients_head"),
            },
        )

    def test_each_tensor_gets_its_gradient_also_where_it_alone_requires_one(self):
        """As where all is frozen but what lies ahead of a layer, or one weight of it."""
        case = Case(torch.float64, "cpu", qk_norm=True)
        x, attended = (random(37, n, dtype=torch.float64, device="cpu") for n in (48, 64))
        before, (first, last), (qkv_first, qkv_last) = case.token, case.layers, case.qkv
        post = functools.partial(block_post, attended, x, last, case.head, case.target)
        for leaves, call in (
            ([case.table, *qkv_first], lambda: block_pre(before, case.table, qkv_first, case.heads)),
            ([attended, x, *first, *qkv_last], lambda: block(attended, x, first, qkv_last, case.heads)),
            ([attended, x, *last, *case.head], lambda: [post()]),
            ([attended, x, *last, *case.head], lambda: [post(reduction="none")]),
            ([x, case.head.head], lambda: [linear_cross_entropy(x, case.head.head, case.target)]),
        ):

            def gradients(of, leaves=leaves, call=call):
                for leaf in leaves:
                    leaf.requires_grad_(any(leaf is one for one in of))
                return torch.autograd.grad(sum(result.square().sum() for result in call()), of)

            for leaf, together in zip(leaves, gradients(leaves), strict=True):
                self.assertTrue(torch.equal(gradients([leaf])[0], together), tuple(leaf.shape))

    def test_gradients_that_arrive_are_not_written(self):
        for qk_norm in (False, True):
            case = Case(torch.float64, "cpu", qk_norm=qk_norm)
            x, attended = (random(37, n, dtype=torch.float64, device="cpu") for n in (48, 64))
            for results in (
                block_pre(case.token, case.table, case.qkv[0], case.heads),
                block(attended, x, case.layers[0], case.qkv[1], case.heads),
                [block_post(attended, x, case.layers[1], case.head, case.target, reduction="none")],
                [linear_cross_entropy(x, case.head.head, case.target, reduction="none")],
            ):
                arriving = [torch.randn_like(result) for result in results]
                before = [gradient.clone() for gradient in arriving]
                torch.autograd.backward(results, arriving)
                self.assertTrue(all(map(torch.equal, arriving, before)))

    def test_small_gradients_of_a_scaled_loss_in_fp16(self):
        """They are not computed together with the loss, whose scale is not known then."""
        found = []
        for factor in (1.0, 2.0**-16):
            case = Case(torch.float16, "cpu")
            (case.loss(ours, factor=factor) / factor).backward()
            found.append(case.layers[0].down.grad)
        self.assertTrue(torch.equal(*found))

    def test_angles_are_as_exact_as_their_dtype(self):
        frequency = torch.tensor([1.0, 1 / 3, 0.0123], dtype=torch.float64)
        for dtype in (torch.float64, torch.float32):
            table = rotary_table(frequency, 70000, dtype, 1.5)
            self.assertEqual((table.dtype, table.shape), (dtype, (70000, 6)))
            angles = (69999 * frequency).tolist()
            expected = [1.5 * of(angle) for angle in angles for of in (math.cos, math.sin)]
            error = (table[-1].double() - torch.tensor(expected, dtype=torch.float64)).abs().max()
            self.assertLess(error, 20 * torch.finfo(torch.float64).eps if dtype == torch.float64 else 1e-7)

    def test_the_memory_of_a_call_goes_back(self):
        case = Case(torch.float32, "cpu", qk_norm=True)
        with torch.autograd.profiler.profile(profile_memory=True) as profile:
            with torch.no_grad():
                case.loss(ours)
            gradients = torch.autograd.grad(case.loss(ours), case.leaves())
            del gradients
        bytes_of = [event.self_cpu_memory_usage for event in profile.function_events]
        self.assertGreater(max(bytes_of), 0)
        self.assertEqual(sum(bytes_of), 0)

    def test_the_same_loss_without_gradients(self):
        for reduction in ("mean", "sum", "none"):
            case = Case(torch.float64, "cpu", qk_norm=True)
            with torch.no_grad():
                alone = case.loss(ours, reduction=reduction)
            self.assertFalse(alone.requires_grad)
            self.assertLessEqual(difference(case.loss(ours, reduction=reduction), alone), EXACT)

    def test_nothing_is_computed_or_kept_for_a_backward_without_gradients(self):
        for qk_norm, reduction in itertools.product((False, True), ("mean", "sum", "none")):
            case = Case(torch.float64, "cpu", qk_norm=qk_norm)
            with contextlib.ExitStack() as watched, torch.no_grad():
                calls = [
                    watched.enter_context(unittest.mock.patch.object(ops, name, wraps=getattr(ops, name)))
                    for name in ("block_pre", "block", "block_post", "block_post_backward")
                ]
                case.loss(ours, reduction=reduction)
            self.assertEqual([call.call_count for call in calls], [1, 1, 1, 0])
            for name in ("x_mid", "rstd_mid", "preact", "qkv_preact"):
                self.assertEqual([call.call_args.kwargs.get(name) for call in calls[:3]], [None] * 3, name)

    def test_logits(self):
        case = Case(torch.float64, "cpu")
        reference = case.flat()
        x, qkv = block_pre(case.token, case.table, case.qkv[0], case.heads)
        logits = block_post_logits(case.attention(qkv), x, case.layers[0], case.head)
        x, qkv = plain.block_pre(reference.token, reference.table, reference.qkv[0], reference.heads)
        x = plain.fed_forward(case.attention(qkv), x, reference.layers[0], "swiglu", 1e-5)
        expected = plain.rms_norm(x, reference.head.final_norm, 1e-5) @ reference.head.head.T
        self.assertLessEqual(difference(logits, expected.detach()), EXACT)

    def test_what_is_left_to_its_default(self):
        case = Case(torch.float64, "cpu", qk_norm=True)
        with torch.no_grad():
            for weight in (case.table, case.qkv[0].qkv, case.qkv[1].qkv):
                weight *= 1e-3  # so that each eps is seen
        reference = case.flat()
        found = []
        for layers, of in ((ours, case), (plain, reference)):
            x, qkv = layers.block_pre(of.token, of.table, of.qkv[0], of.heads)
            attended = 1e-3 * of.attention(qkv)
            _, qkv_next = layers.block(attended, x, of.layers[0], of.qkv[1], of.heads)
            found.append([qkv, qkv_next, layers.block_post(attended, x, of.layers[1], of.head, of.target)])
        for got, expected in zip(*found, strict=True):
            self.assertLessEqual(difference(got, expected.detach()), EXACT)

    def test_no_row_counts(self):
        case = Case(torch.float64, "cpu")
        case.target[:] = -100
        self.assertTrue(case.loss(ours).isnan())
        self.assertEqual(case.loss(ours, reduction="sum").item(), 0)
        # As PyTorch's: the gradient of that NaN is 0, or a batch of padding would end a training.
        for reduction in ("mean", "sum"):
            case.loss(ours, reduction=reduction).backward()
            for leaf in case.leaves():
                self.assertTrue((leaf.grad == 0).all())

    def test_no_rows(self):
        for tokens, reduction in itertools.product(((0,), (2, 0)), ("sum", "none")):
            case = Case(torch.float64, "cpu", tokens=tokens, qk_norm=True)
            loss = case.loss(ours, reduction=reduction)
            self.assertEqual(loss.shape, tokens if reduction == "none" else ())
            loss.sum().backward()
            for leaf in case.leaves():
                self.assertTrue((leaf.grad == 0).all())

    def test_the_cross_entropy_of_a_linear_layer(self):
        for options in (
            {},
            {"scale": 0.5, "cap": 3.0},
            {"label_smoothing": 0.1, "z_loss": 1e-2},
            {"reduction": "none"},
        ):
            with self.subTest(**options):
                torch.manual_seed(7)
                a = random(2, 19, 24, dtype=torch.float64, device="cpu")
                weight = random(301, 24, dtype=torch.float64, device="cpu")
                target = torch.randint(0, 301, (2, 19))
                target[0, :4] = -100
                others = [a.detach().flatten(0, 1).requires_grad_(), weight.detach().clone().requires_grad_()]
                loss = linear_cross_entropy(a, weight, target, chunk=100, **options)
                expected = plain.cross_entropy(others[0] @ others[1].T, target, **options)
                (loss.flatten() ** 2).sum().backward(), (expected**2).sum().backward()
                self.assertLessEqual(difference(loss.flatten(), expected.detach()), EXACT)
                self.assertLessEqual(difference(a.grad.flatten(0, 1), others[0].grad), EXACT)
                self.assertLessEqual(difference(weight.grad, others[1].grad), EXACT)

    def test_the_gradient_of_a_head_that_is_frozen_is_not_computed(self):
        a, target = torch.randn(5, 8, requires_grad=True), torch.arange(5)
        with unittest.mock.patch.object(ops, "linear_cross_entropy_backward", autospec=True) as backward:
            for trained in (False, True):
                weight = torch.randn(7, 8, requires_grad=trained)
                linear_cross_entropy(a, weight, target, chunk=3).backward()
                self.assertEqual(backward.call_args.kwargs["chunk"], 3)
                self.assertEqual(backward.call_args.kwargs["dweight"] is not None, trained)


class In16Bits(unittest.TestCase):
    """The errors of separate operations in the same dtype are the measure."""

    def compare(self, dtype, device, **options):
        case = Case(dtype, device, **options)
        exact, separate = case.flat(), case.flat(dtype, device)
        losses = [case.loss(ours), separate.loss(plain), exact.loss(plain)]
        for loss in losses:
            loss.backward()
        self.assertLess(abs(losses[0].item() / losses[2].item() - 1), 1e-2)
        for leaf, other, reference in zip(case.leaves(), separate.leaves(), exact.leaves(), strict=True):
            error, theirs = relative(leaf.grad, reference.grad), relative(other.grad, reference.grad)
            self.assertTrue(error <= 2 * theirs + 1e-3, f"{tuple(leaf.shape)}: {error:.2e}, theirs {theirs:.2e}")

    def test_no_worse_than_separate_operations(self):
        sizes = {"tokens": (2, 150), "hidden": 256, "ffn": 392, "heads": (4, 2), "head_dim": 64, "vocabulary": 1001}
        for device in DEVICES:
            for dtype in (torch.bfloat16, torch.float16):
                for qk_norm in (False, True):
                    with self.subTest(device=device, dtype=dtype, qk_norm=qk_norm):
                        self.compare(dtype, device, qk_norm=qk_norm, positions=qk_norm, **sizes)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU")
class OnAGpu(unittest.TestCase):
    def case(self):
        return Case(torch.bfloat16, "cuda", tokens=(512,), hidden=512, ffn=1024, head_dim=64, vocabulary=2048)

    def test_a_step_in_a_cuda_graph(self):
        case = self.case()

        def step():
            for leaf in case.leaves():
                leaf.grad = None
            loss = case.loss(ours)
            loss.backward()
            return loss

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            expected = step().detach()
            gradients = [leaf.grad.clone() for leaf in case.leaves()]
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(loss, expected))
        for leaf, gradient in zip(case.leaves(), gradients, strict=True):
            self.assertTrue(torch.equal(leaf.grad, gradient), f"gradient of {tuple(leaf.shape)}")

    def test_other_streams_and_threads(self):
        import threading

        case = self.case()
        with torch.no_grad():
            expected = case.loss(ours).item()
        found = []

        def work():
            with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
                found.extend(case.loss(ours).item() for _ in range(20))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, [expected] * 80)

    def test_tensors_of_two_devices(self):
        case = self.case()
        with self.assertRaisesRegex(
            RuntimeError, r"block_pre: token: expected a tensor on cuda:0 as table, got one on cpu"
        ):
            block_pre(case.token.cpu(), case.table, case.qkv[0], case.heads)


if __name__ == "__main__":
    unittest.main()
