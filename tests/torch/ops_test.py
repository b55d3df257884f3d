#!/usr/bin/env python3
"""Every checked call as a function on tensors, against plain formulas of PyTorch; and what a call takes or refuses."""

import collections
import inspect
import itertools
import math
import os
import pathlib
import re
import sys
import tempfile
import typing
import unittest
import unittest.mock

import pycoda
import plain
import torch
import torch.nn.functional as F
from pycoda import _library, ops, tiles
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef

DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
# Of fp64 on the CPU, whose results differ by the order of sums only.
EXACT = 1e-11
F64 = torch.float64
LAYOUTS = ("nt", "nn", "tn")
ACTIVATIONS = {
    "identity": lambda z: z,
    "silu": F.silu,
    "gelu_erf": F.gelu,
    "gelu_tanh": lambda z: F.gelu(z, approximate="tanh"),
    "relu": F.relu,
    "relu_squared": lambda z: F.relu(z) ** 2,
}
TILE = 256  # of the CPU
M, N, K = 22, 300, 14
HEAD_DIM, HEADS = 6, (23, 17, 10)


def normal(*shape):
    return torch.randn(*shape, dtype=F64)


def nothing(*shape, dtype=F64):
    return torch.full(shape, math.nan, dtype=dtype)


def leaf(x):
    return x.detach().clone().requires_grad_()


def product(a, b, layout):
    return (a.T if layout == "tn" else a) @ (b.T if layout == "nt" else b)


def operands(layout, m=M, n=N, k=K, scale=1.0):
    """Arguments of a product, and it."""
    a, b = normal(*((k, m) if layout == "tn" else (m, k))), normal(*((n, k) if layout == "nt" else (k, n)))
    return {"a": scale * a, "b": b, "layout": layout}, scale * product(a, b, layout)


def normed(z, norm_rstd=None, norm_mean=None, norm_u=None, norm_c=None):
    z = z if norm_mean is None else z - norm_mean[:, None] * norm_u
    z = z if norm_rstd is None else z * norm_rstd[:, None]
    return z if norm_c is None else z + norm_c


def norms():
    rms = {"norm_rstd": 0.5 + normal(M).abs()}
    layer = {**rms, "norm_mean": normal(M), "norm_u": normal(N)}
    return {}, rms, layer, {**layer, "norm_c": normal(N)}


def per_tile(x, f, width=TILE):
    return torch.stack([f(tile) for tile in x.split(width, 1)], 1)


def per_row_tile(x):
    return torch.stack([tile.sum(0) for tile in x.split(TILE)])


def statistics(x):
    """What the next norm takes: nothing, that of an RMSNorm, those of a LayerNorm."""
    mean = per_tile(x, lambda tile: tile.mean(1))
    m2 = per_tile(x, lambda tile: tile.var(1, correction=0) * tile.shape[1])
    return {}, {"sum_sq": per_tile(x**2, lambda tile: tile.sum(1))}, {"mean": mean, "m2": m2}


def dots(z, dz, width=TILE):
    """Arguments and results of the row terms of no norm, of an RMSNorm and of a LayerNorm."""
    u, c, z = normal(z.shape[1]), normal(z.shape[1]), z.detach()
    zdz, shifted, udz = (per_tile(x * dz, lambda tile: tile.sum(1), width) for x in (z, z - c, u))
    layer = {"dot_u": u}, {"dot_zdz": zdz, "dot_udz": udz}
    return ({}, {}), ({}, {"dot_zdz": zdz}), layer, ({**layer[0], "dot_c": c}, {"dot_zdz": shifted, "dot_udz": udz})


def heads_of(counts=HEADS, index=None):
    """Arguments of heads, with a table of M + 9 random angles."""
    angle = 3 * normal(M + 9, HEAD_DIM // 2)
    table = torch.stack((angle.cos(), angle.sin()), -1).flatten(1)
    position = {} if index is None else {"heads_position": torch.randperm(M + 9)[:M].to(index)}
    named = dict(zip(("heads_q", "heads_k", "heads_v"), counts, strict=True))
    return {**named, "heads_head_dim": HEAD_DIM, "heads_table": table, **position}


def roped(z, heads, q_weight=None, k_weight=None, eps=0.0):
    position = heads.get("heads_position", torch.arange(len(z))).long()
    q, k, v = z.unflatten(1, (-1, HEAD_DIM)).split([heads[f"heads_{x}"] for x in "qkv"], 1)
    if q_weight is not None:
        q, k = plain.rms_norm(q, None, eps) * q_weight, plain.rms_norm(k, None, eps) * k_weight
    return torch.cat((*(plain.rotated(x, heads["heads_table"], position) for x in (q, k)), v), 1).flatten(1)


LOSSES = (
    {},
    {"scale": 0.7, "cap": 3.0},
    {"scale": -0.4, "label_smoothing": 0.1},
    {"scale": 0.7, "cap": 4.0, "label_smoothing": 0.2, "z_loss": 0.05, "ignore_index": -7},
)


def named(options, names):
    """Options of plain.cross_entropy as arguments of an operator."""
    prefix = {"scale": "transform_", "cap": "transform_"}
    return {prefix.get(name, "options_") + name: options[name] for name in names if name in options}


def logits_of(z, scale=1.0, cap=0.0, **_):
    return cap * torch.tanh(scale * z / cap) if cap else scale * z


def lse_parts(logits):
    total = per_tile(logits, lambda tile: (tile - tile.amax(1, keepdim=True)).exp().sum(1))
    return {"max": per_tile(logits, lambda tile: tile.amax(1)), "sum": total}, per_tile(
        logits, lambda tile: tile.sum(1)
    )


def targets(index, ignore_index=-100, low=0, high=N, **_):
    target = torch.randint(low, high, (M,)).to(index)
    target[::5], target[1], target[2] = ignore_index, low, high - 1
    return target


def spread(x):
    """The same as a matrix of three dimensions whose rows lie apart, or as a vector of two dimensions."""
    parts = (2, -1) if x.shape[0] % 2 == 0 else (1, -1)
    if x.dim() == 1:
        return x.clone().unflatten(0, parts)
    room = nothing(x.shape[0], x.shape[1] + 5, dtype=x.dtype)
    room[:, 2:-3] = x
    return room[:, 2:-3].unflatten(0, parts)


def difference(got, expected):
    """Relative to the largest value; NaN, what is not written, has to be at the same places."""
    if got.shape != expected.shape or not torch.equal(got.isnan(), expected.isnan()):
        return math.inf
    got, expected = got.detach().double().nan_to_num(), expected.detach().double().nan_to_num()
    return ((got - expected).abs().amax() / expected.abs().amax().clamp_min(1e-300)).item()


class Compared(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(11)

    def check(self, op, expected, start=None, **inputs):
        """Outputs are NaN at first, or what `start` has. All is done twice: dense, and spread over memory."""
        tensors = {k: x.detach() for k, x in inputs.items() if isinstance(x, torch.Tensor)}
        starts = {k: (start or {}).get(k, torch.full_like(x.detach(), math.nan)) for k, x in expected.items()}
        for form in (torch.clone, spread):
            given = {k: x.clone() if k == "heads_table" else form(x) for k, x in tensors.items()}
            outputs = {k: form(x) for k, x in starts.items()}
            op(**{**inputs, **given}, **outputs)
            for name, got in outputs.items():
                found = difference(got.reshape(expected[name].shape), expected[name])
                self.assertLessEqual(found, EXACT, f"{op.__name__}: {name}, {form.__name__}")
                if got.dim() == 3:
                    self.assertTrue(got._base[:, [0, 1, -3, -2, -1]].isnan().all(), f"{op.__name__}: beside {name}")
            for name, x in given.items():
                self.assertTrue(torch.equal(x.reshape(tensors[name].shape), tensors[name]), f"{name} was written")


class InFp64(Compared):
    def test_gemm(self):
        for layout, (name, f) in itertools.product(LAYOUTS, ACTIVATIONS.items()):
            (given, acc), c, bias = operands(layout), normal(M, N), normal(N)
            z = 1.5 * acc - 0.75 * c + bias
            more = {"alpha": 1.5, "beta": -0.75, "c": c, "bias": bias}
            self.check(ops.gemm, {"preact": z, "out": f(z)}, activation=name, **given, **more)
            self.check(ops.gemm, {"out": acc}, **given)

    def test_gemm_residual_and_embedding(self):
        for layout, index, kind in itertools.product(LAYOUTS, (torch.int32, torch.int64), range(3)):
            (given, acc), residual, weight = operands(layout), normal(M, N), normal(N)
            given["residual"], x = residual, acc + residual
            self.check(ops.gemm_residual, {"x": x, "h": x * weight, **statistics(x)[kind]}, weight=weight, **given)
            self.check(ops.gemm_residual, {"x": x, **statistics(x)[kind]}, **given)
            given = {"table": normal(9, N), "token": torch.randint(0, 9, (M,)).to(index)}
            x = given["table"][given["token"].long()]
            self.check(ops.embedding, {"x": x, "h": x * weight, **statistics(x)[kind]}, weight=weight, **given)
            self.check(ops.embedding, {"x": x, "h": x, **statistics(x)[kind]}, **given)

    def test_finalized_statistics(self):
        x = normal(M, N) + 1
        _, rms, layer = statistics(x)
        self.check(ops.rms_finalize, {"rstd": ((x**2).mean(1) + 0.25).rsqrt()}, n=N, eps=0.25, **rms)
        self.check(ops.rms_finalize, {"rstd": ((x**2).sum(1) / 257 + 1e-5).rsqrt()}, n=257, **rms)
        given = {"tile_mean": layer["mean"], "tile_m2": layer["m2"], "n": N}
        for eps in ({"eps": 0.25}, {}):
            rstd = (x.var(1, correction=0) + eps.get("eps", 1e-5)).rsqrt()
            self.check(ops.layernorm_finalize, {"mean": x.mean(1), "rstd": rstd}, **given, **eps)

    def test_gemm_norm_and_glu(self):
        for layout, norm in zip(itertools.cycle(LAYOUTS), norms(), strict=False):
            given, acc = operands(layout)
            z = normed(acc, **norm)
            given.update(norm)
            for name, f in ACTIVATIONS.items():
                self.check(ops.gemm_norm, {"preact": z, "out": f(z)}, activation=name, **given)
            for name, f in plain.GATES.items():
                y = f(z[:, 0::2]) * z[:, 1::2]
                self.check(ops.gemm_norm_glu, {"preact": z, "out": y}, function=name, **given)
            self.check(ops.gemm_norm, {"out": z}, **given)
            self.check(ops.gemm_norm_glu, {"out": F.silu(z[:, 0::2]) * z[:, 1::2]}, **given)

    def test_rotated_heads(self):
        for layout, norm, index in itertools.product(LAYOUTS, norms(), (None, torch.int32, torch.int64)):
            (given, acc), heads = operands(layout), heads_of(index=index)
            z, op = normed(acc, **norm), ops.gemm_norm_qknorm_rope
            given.update(**norm, **heads)
            self.check(ops.gemm_norm_rope, {"out": roped(z, heads)}, **given)
            weights = {"q_weight": normal(HEAD_DIM), "k_weight": normal(HEAD_DIM)}
            self.check(op, {"preact": z, "out": roped(z, heads, **weights, eps=0.5)}, eps=0.5, **weights, **given)
            self.check(op, {"out": roped(z, heads, **weights, eps=1e-6)}, **weights, **given)

    def test_rotated_pairs(self):
        for layout, norm in zip(itertools.cycle(LAYOUTS), norms(), strict=False):
            (given, acc), angle = operands(layout), normal(M, N)
            z = normed(acc, **norm)
            x, y, cos, sin = z[:, 0::2], z[:, 1::2], angle[:, 0::2], angle[:, 1::2]
            out = torch.stack((x * cos + y * sin, y * cos - x * sin), -1).flatten(1)
            given.update(angle=angle, **norm)
            self.check(ops.gemm_norm_rotate, {"preact": z, "out": out}, **given)
            self.check(ops.gemm_norm_rotate, {"out": out}, **given)

    def test_gemm_lse(self):
        first = 61  # of a vocabulary that begins before the block and ends behind it
        for layout, norm, options in zip(itertools.cycle(LAYOUTS), norms(), LOSSES, strict=False):
            given, acc = operands(layout, scale=0.3)
            z = normed(acc, **norm)
            logits = logits_of(z, **options)
            given.update(**norm, **named(options, ("scale", "cap")))
            parts, logit_sum = lse_parts(logits)
            self.check(ops.gemm_lse, parts, **given)
            target = targets(torch.int64, low=first - 1, high=first + N + 1, **options)
            inside = (target >= first) & (target < first + N)
            chosen = torch.where(inside, logits[range(M), (target - first).clamp(0, N - 1)], math.nan)
            expected = {"preact": z, "logits": logits, **parts, "logit_sum": logit_sum, "target_logit": chosen}
            given.update(target=target, first_column=first, vocabulary=first + N + 1)
            self.check(ops.gemm_lse, expected, ignore_index=options.get("ignore_index", -100), **given)

    def test_cross_entropy(self):
        of_loss = ("label_smoothing", "z_loss", "ignore_index")
        indices = itertools.cycle((torch.int32, torch.int64))
        for norm, options, index in zip(norms() * 2, (*LOSSES, *LOSSES[1:], {}), indices, strict=False):
            given, acc = operands("nt", scale=0.3)
            given = {"a": given["a"], "weight": given["b"], "target": targets(index, **options), **norm}
            z, target, dloss = leaf(normed(acc, **norm)), given["target"].long(), normal(M)
            loss = plain.cross_entropy(z, target, reduction="none", **options)
            logits = logits_of(z.detach(), **options)
            expected, (parts, logit_sum) = {"lse": logits.logsumexp(1), "loss": loss}, lse_parts(logits)
            self.check(ops.lse_finalize, {"lse": expected["lse"]}, **parts)
            parts.update(logit_sum=logit_sum, target_logit=logits[range(M), target.clamp_min(0)], target=target)
            self.check(ops.lse_finalize, expected, vocabulary=N, **parts, **named(options, of_loss))
            given.update(named(options, ("scale", "cap", *of_loss)))
            self.check(ops.linear_cross_entropy, expected, **given)

            (dz,) = torch.autograd.grad(loss, z, dloss)
            given.update(lse=expected["lse"], dloss=dloss)
            of_z = {name: x for name, x in given.items() if name not in ("a", "weight", *norm)}
            for dot, terms in dots(z, dz):
                self.check(ops.cross_entropy_backward, {"dz": dz, **terms}, preact=z, **of_z, **dot)
            start, h = {"dweight": normal(N, K)}, normal(M, K)
            expected = {"da": dz @ given["weight"], "row_dot": (dz * (z - norm.get("norm_c", 0))).sum(1)}
            if "norm_u" in norm:
                expected["row_udz"] = dz @ norm["norm_u"]
            for more in ({"h": h}, {"h": h, "chunk": 70}, *([{}] if not norm else [])):
                expected["dweight"] = start["dweight"] + dz.T @ more.get("h", given["a"])
                self.check(ops.linear_cross_entropy_backward, expected, start, **given, **more)

    def test_the_backward_behind_norms(self):
        m, n, eps = 300, 26, 0.1
        for layout, branch in itertools.product(LAYOUTS, (True, False)):
            (given, _), x, dx_in = operands(layout, m, n), normal(m, n) + 0.5, branch * normal(m, n)
            dz, w = given["a"].T if layout == "tn" else given["a"], given["b"].T if layout == "nt" else given["b"]
            given.update(x=x, **({"dx_in": dx_in} if branch else {}))
            # Each row has a weight and a bias of its own, so that their gradients can be summed over any rows.
            weight, bias, x_leaf = normal(n), normal(n), leaf(x)
            rows = leaf(weight.expand(m, n)), leaf(bias.expand(m, n))

            h = plain.rms_norm(x_leaf, None, eps) * rows[0]
            dx, dweight = torch.autograd.grad(h @ w.T, (x_leaf, rows[0]), dz)
            more = {"rstd": ((x**2).mean(1) + eps).rsqrt(), "row_term": (h @ w.T * dz).sum(1) / n, "weight": weight}
            expected = {"dx": dx_in + dx, "h": h, "dweight": per_row_tile(dweight)}
            self.check(ops.gemm_rms_backward, expected, **given, **more)
            self.check(ops.gemm_rms_backward, {"dx": dx_in + dx}, **given, **more)

            h = F.layer_norm(x_leaf, (n,), eps=eps) * rows[0] + rows[1]
            dx, dweight, dbias = torch.autograd.grad(h @ w.T, (x_leaf, *rows), dz)
            more = {"rstd": (x.var(1, correction=0) + eps).rsqrt(), "mean": x.mean(1), "weight": weight, "bias": bias}
            more.update(zdz=((h @ w.T - w @ bias) * dz).sum(1) / n, udz=dz @ (w @ weight) / n)
            expected = {"dx": dx_in + dx, "h": h, "dweight": per_row_tile(dweight), "dbias": per_row_tile(dbias)}
            self.check(ops.gemm_layernorm_backward, expected, **given, **more)
            self.check(ops.gemm_layernorm_backward, {"dx": dx_in + dx}, **given, **more)

    def test_the_backward_of_functions(self):
        def compare(op, z, y, width, layout, **name):
            given, dy = operands(layout)
            (dz,) = torch.autograd.grad(y, z, dy)
            for dot, terms in dots(z, dz, width):
                self.check(op, {"dpreact": dz, "out": y, **terms}, preact=z, **given, **dot, **name)
            self.check(op, {"dpreact": dz}, preact=z, **given, **name)

        for layout, (name, f) in zip(itertools.cycle(LAYOUTS), ACTIVATIONS.items(), strict=False):
            z = leaf(normal(M, N))
            compare(ops.gemm_activation_backward, z, f(z), TILE, layout, activation=name)
        for layout, (name, f) in zip(itertools.cycle(LAYOUTS), plain.GATES.items(), strict=False):
            z = leaf(normal(M, 2 * N))
            compare(ops.gemm_glu_backward, z, f(z[:, 0::2]) * z[:, 1::2], 2 * TILE, layout, function=name)

    def test_the_backward_of_heads(self):
        whole = TILE // HEAD_DIM * HEAD_DIM  # of the tiles of the norm of heads
        for counts, index in itertools.product((HEADS, (30, 20, 0)), (None, torch.int32, torch.int64)):
            heads, z, dy = heads_of(counts, index), leaf(normal(M, N)), normal(M, N)
            y = roped(z, heads)
            (dz,) = torch.autograd.grad(y, z, dy)
            for dot, terms in dots(z, dz):
                self.check(ops.rope_backward, {"dz": dz, **terms}, y=y, dy=dy, **heads, **dot)

            # With a small eps zdz of a normalised head, whose length does not matter, cancels out.
            for eps in ({"eps": 0.5}, {})[: 1 + (counts == HEADS)]:
                weights = {"q_weight": normal(HEAD_DIM), "k_weight": normal(HEAD_DIM)}
                each = [leaf(w.expand(M, n, -1)) for w, n in zip(weights.values(), counts, strict=False)]
                y = roped(z, heads, *each, **{"eps": 1e-6, **eps})
                dz, *dweights = torch.autograd.grad(y, (z, *each), dy)
                # Nothing is said of the columns of v heads.
                dweight = {"dweight": per_row_tile(torch.cat(dweights, 1).flatten(1))} if counts[2] == 0 else {}
                for dot, terms in dots(z, dz, whole):
                    given = {"preact": z, "dy": dy, **heads, **weights, **eps, **dot}
                    self.check(ops.qknorm_rope_backward, {"dz": dz, **dweight, **terms}, **given)

            partial, (q, k, _) = normal(3, N), counts
            of_heads = partial.sum(0).unflatten(0, (-1, HEAD_DIM))
            expected = {"dq_weight": of_heads[:q].sum(0), "dk_weight": of_heads[q : q + k].sum(0)}
            self.check(ops.head_weight_gradient, expected, partial=partial, **heads)
            start = {name: normal(HEAD_DIM) for name in expected}
            expected = {name: x + start[name] for name, x in expected.items()}
            self.check(ops.head_weight_gradient, expected, start, partial=partial, beta=1.0, **heads)

    def test_sums(self):
        partial, start = normal(7, 12), {"out": normal(12)}
        self.check(ops.sum_rows, {"out": partial.sum(1)}, partial=partial)
        self.check(ops.sum_rows, {"out": 0.3 * partial.sum(1)}, partial=partial, scale=0.3)
        self.check(ops.sum_columns, {"out": partial.sum(0)}, partial=partial)
        self.check(ops.sum_columns, {"out": start["out"] + partial.sum(0)}, start, partial=partial, beta=1.0)
        square = (partial**2).sum().view(1)
        self.check(ops.squared_norm, {"out": square}, x=partial.flatten())
        self.check(ops.squared_norm, {"out": 2 * square}, {"out": square}, x=partial.flatten(), beta=1.0)
        for index in (torch.int32, torch.int64):
            token, start, dx = torch.randint(0, 5, (M,)).to(index), {"dtable": normal(7, N)}, normal(M, N)
            expected = {"dtable": start["dtable"].index_add(0, token, dx)}
            self.check(ops.embedding_backward, expected, start, dx=dx, token=token)

    def test_cast(self):
        for one, other in itertools.product((torch.bfloat16, torch.float16, torch.float32, F64), repeat=2):
            # Of fp32, since PyTorch rounds fp64 to 16 bits by way of it.
            x = normal(M, N).float().to(one)
            self.check(ops.cast, {"out": x.to(other)}, input=x)
        for dtype in (torch.bfloat16, torch.float16):
            unit = torch.finfo(dtype).eps
            expected = torch.tensor([[1 + unit]], dtype=dtype)
            self.check(ops.cast, {"out": expected}, input=torch.tensor([[1 + unit / 2 + 2**-40]], dtype=F64))

    def test_adamw(self):
        options = {"rate": 0.01, "beta1": 0.8, "beta2": 0.7, "eps": 0.03, "weight_decay": 0.2}
        for more in ({}, {"gradient_scale": 0.3}, {"clip_norm": 0.9, "gradient_scale": 0.3}, {"clip_norm": 1e3}):
            theirs, zeros = leaf(normal(12)), torch.zeros(12, dtype=F64)
            state = {"master": theirs.detach().clone(), "m": zeros, "v": zeros}
            adamw = torch.optim.AdamW([theirs], 0.01, (0.8, 0.7), 0.03, 0.2)
            for step in (1, 2, 3):
                gradient = normal(12)
                theirs.grad = more.get("gradient_scale", 1.0) * gradient
                theirs.grad *= min(1.0, more.get("clip_norm", math.inf) / theirs.grad.norm().item())
                adamw.step()
                m, v, master = adamw.state[theirs]["exp_avg"], adamw.state[theirs]["exp_avg_sq"], theirs.detach()
                expected = {"master": master.clone(), "m": m.clone(), "v": v.clone()}
                norm = {"squared_norm": (gradient**2).sum().view(1)} if "clip_norm" in more else {}
                for weight in ({}, {"weight": master}, {"weight": master.bfloat16()}):
                    given = {"gradient": gradient, "step": step, **options, **more, **norm}
                    self.check(ops.adamw, {**expected, **weight}, state, **given)
                state = expected
        infinite = torch.full((1,), math.inf, dtype=F64)
        self.check(ops.adamw, state, state, gradient=gradient, squared_norm=infinite, **options)
        # With what is left to its default: the first step from moments of 0.
        g, start = normal(12), {"master": normal(12), "m": zeros, "v": zeros}
        expected = {"master": start["master"] - 0.1 * g / (g.abs() + 1e-8), "m": (1 - 0.9) * g, "v": (1 - 0.95) * g**2}
        self.check(ops.adamw, expected, start, gradient=g, rate=0.1)


class Infinities(unittest.TestCase):
    def test_no_gradient_passes_a_relu_that_is_off(self):
        def compare(op, y, z, n, device, dtype, **name):
            dy = torch.tensor([math.inf, -math.inf, math.nan, 3.0], dtype=F64, device=device)[:, None].expand(4, n)
            (expected,) = torch.autograd.grad(y, z, dy)
            a, b = z.new_zeros(4, 8), z.new_zeros(8, n)
            a[:, 0], b[0] = dy[:, 0], 1
            got = torch.zeros_like(z, dtype=dtype)
            op(a=a.to(dtype), b=b.to(dtype), preact=z.detach().to(dtype), dpreact=got, **name)
            torch.testing.assert_close(got.double(), expected, equal_nan=True, rtol=0, atol=0, msg=f"{name}, {device}")

        for device in DEVICES:
            values = torch.tensor([-1.0, 0.0, 2.0, -3.0, math.nan, 0.5, -0.0, 1.0], dtype=F64, device=device)
            z, pairs = leaf(values.expand(4, 8)), leaf(values.repeat_interleave(2).expand(4, 16))
            dtype = F64 if device == "cpu" else torch.bfloat16
            for name in ("relu", "relu_squared"):
                compare(ops.gemm_activation_backward, ACTIVATIONS[name](z), z, 8, device, dtype, activation=name)
            y = F.relu(pairs[:, 0::2]) * pairs[:, 1::2]
            compare(ops.gemm_glu_backward, y, pairs, 8, device, dtype, function="reglu")


class Completeness(unittest.TestCase):
    def test_every_function_argument_and_name_is_compared(self):
        given = collections.defaultdict(lambda: collections.defaultdict(set))

        def note(_, op, expected, start=None, **inputs):
            for name, x in {**expected, **inputs}.items():
                given[op.__name__][name].update([x] if isinstance(x, str) else [])

        with unittest.mock.patch.object(Compared, "check", note):
            unittest.defaultTestLoader.loadTestsFromTestCase(InFp64).run(unittest.TestResult())
        functions = [f for _, f in inspect.getmembers(ops, inspect.isfunction) if f.__module__ == ops.__name__]
        functions = {f.__name__: f for f in functions if not f.__name__.startswith("block_") and f is not ops.block}
        self.assertEqual(set(given), set(functions))
        for name, function in functions.items():
            parameters = inspect.signature(function).parameters
            self.assertEqual(set(given[name]), set(parameters), name)
            for parameter in parameters.values():
                if typing.get_origin(parameter.annotation) is typing.Literal:
                    self.assertEqual(given[name][parameter.name], set(typing.get_args(parameter.annotation)), name)


class Products(Compared):
    """What tensors a call takes, and its dtypes, for the plain product."""

    def test_16_bits_and_fp32(self):
        pairs = [(d, t) for d in DEVICES for t in (torch.bfloat16, *[torch.float16, torch.float32] * (d == "cpu"))]
        for (device, dtype), layout in itertools.product(pairs, LAYOUTS):
            for result in {dtype, torch.float32}:
                a, b = (x.to(device, dtype) for x in list(operands(layout, 72, 264, 136)[0].values())[:2])
                c, bias = normal(72, 264).to(device, result), normal(264).to(device, dtype)
                out = torch.full_like(c, math.nan)
                ops.gemm(a=a, b=b, layout=layout, alpha=0.5, beta=-2.0, c=c, bias=bias, out=out)
                a, b, c, bias = (x.double() for x in (a, b, c, bias))
                exact = 0.5 * product(a, b, layout) - 2 * c + bias
                size = 0.5 * product(a.abs(), b.abs(), layout) + 2 * c.abs() + bias.abs()
                bound = torch.finfo(result).eps / 2 * exact.abs() + (136 + 4) * 2.0**-24 * size
                self.assertTrue(((out.double() - exact).abs() <= bound).all(), f"{device} {dtype} {result} {layout}")

    def test_views(self):
        a, b, room, bias = normal(4, 6, 10), normal(5, 10), nothing(24, 9), normal(1, 5, 1)
        odd, out = room[::2, 1:6].unflatten(0, (4, 3)), nothing(1, 4, 1, 6, 1, 5)
        ops.gemm(a=a[:, ::2], b=b, out=odd)  # every other row
        self.assertLessEqual(difference(odd, a[:, ::2] @ b.T), EXACT)
        self.assertTrue(room[1::2].isnan().all() and room[:, [0, 6, 7, 8]].isnan().all())
        # Dimensions of one, whose strides say nothing; a column; a row; in place.
        ops.gemm(a=a[:, None, :, None], b=b.as_strided((1, 5, 10), (3, 10, 1)), bias=bias, out=out)
        self.assertLessEqual(difference(out.view(4, 6, 5), a @ b.T + bias.flatten()), EXACT)
        ops.gemm(a=a, b=b[2:3], out=room[:, 7:8])
        self.assertLessEqual(difference(room[:, 7].view(4, 6), a @ b[2]), EXACT)
        ops.gemm(a=a[..., :1].as_strided((24, 1), (10, 3)), b=b[:, :1], out=out)  # columns, with or without a stride
        self.assertLessEqual(difference(out.view(24, 5), a.view(24, 10)[:, :1] @ b[:, :1].T), EXACT)
        ops.gemm(a=a[3, 5:], b=b, out=out[:, 2, :, 3])
        self.assertLessEqual(difference(out[0, 2, 0, 3], a[3, 5:] @ b.T), EXACT)
        ops.gemm(a=a, b=b, beta=2.0, c=odd.new_ones(24, 5), out=out)
        ops.gemm(a=a, b=b, beta=2.0, c=out, out=out)
        self.assertLessEqual(difference(out.view(4, 6, 5), 3 * a @ b.T + 4), EXACT)

    def test_no_elements(self):
        for m, n, k in ((0, 5, 3), (4, 0, 3), (4, 5, 0), (0, 0, 0)):
            out, bias = nothing(2, m, n), normal(n)
            ops.gemm(a=normal(2, m, k), b=normal(n, k), bias=bias, out=out)
            self.assertTrue(torch.equal(out, bias.expand(2, m, n)))  # where there is any, K is 0
        x, index, weight, dweight = normal(0, 5), torch.arange(0), normal(7, 5), torch.ones(7, 5, dtype=F64)
        total, columns, given = nothing(1), nothing(5), {"a": x, "weight": weight, "target": index}
        ops.gemm_residual(a=normal(0, 3), b=normal(5, 3), residual=x, x=nothing(0, 5), sum_sq=nothing(0, 1))
        ops.embedding(table=weight, token=index, x=nothing(0, 5), mean=nothing(0, 1), m2=nothing(0, 1))
        ops.linear_cross_entropy(lse=nothing(0), loss=nothing(0), **given)
        ops.linear_cross_entropy_backward(lse=x[:, 0], dloss=x[:, 0], da=nothing(0, 5), dweight=dweight, **given)
        ops.adamw(master=nothing(0), m=nothing(0), v=nothing(0), gradient=normal(0))
        ops.squared_norm(x=normal(0), out=total)
        ops.sum_columns(partial=x, out=columns)
        self.assertTrue((dweight == 1).all() and (total == 0).all() and (columns == 0).all())


class Refused(Compared):
    def refuse(self, op, message, **given):
        """Says it, and writes nothing."""

        def bits():
            return [x.contiguous().view(-1).view(torch.uint8) for x in given.values() if isinstance(x, torch.Tensor)]

        before = [x.clone() for x in bits()]
        with self.assertRaises(RuntimeError) as caught:
            op(**given)
        self.assertRegex(str(caught.exception), f"^{op.__name__}: {message}")
        self.assertTrue(all(map(torch.equal, bits(), before)), "something was written")

    def test_what_is_wrong(self):
        good = {"a": normal(4, 6), "b": normal(5, 6), "out": nothing(4, 5), "preact": nothing(4, 5)}
        a, b, out, room = good["a"], good["b"], good["out"], normal(9, 6)
        another = "expected dtype bf16, fp16, fp32, fp64, int32 or int64, got"
        rows = "expected dense rows at one distance from each other, got strides"
        activations = "identity, silu, gelu_erf, gelu_tanh, relu or relu_squared"
        for message, wrong in (
            (f"a: {another} float8_e4m3fn$", {"a": a.to(torch.float8_e4m3fn)}),
            (f"c: {another} int8$", {"c": out.to(torch.int8)}),
            ("a: expected dtype bf16, fp16, fp32 or fp64, got int32$", {"a": a.int()}),
            ("b: expected dtype fp64, got fp32$", {"b": b.float()}),
            (r"out: expected dtype fp64, got fp32$", {"out": out.float()}),
            ("bias: expected dtype fp64, got fp16$", {"bias": b[:, 0].half()}),
            ("b: expected an inner dimension of 6, as a has in layout nt, got 7$", {"b": normal(5, 7)}),
            (r"out: expected shape \(4, 5\), got \(2, 5\)$", {"out": nothing(2, 1, 5)}),
            ("bias: expected 5 values, got 4$", {"bias": normal(4)}),
            ("a: expected 2 dimensions or more, got 1$", {"a": normal(6)}),
            ("out: expected 2 dimensions or more, got 0$", {"out": nothing()}),
            (rf"b: {rows} \(1, 5\)$", {"b": normal(6, 5).T}),
            (rf"a: {rows} \(18, 6, 1\)$", {"a": normal(2, 3, 6)[:, :2]}),
            ("a: expected a pitch of at least 6 elements, got 0$", {"a": normal(1, 6).expand(4, 6)}),
            ("bias: expected a contiguous tensor", {"bias": normal(10)[::2]}),
            ("c: expected a matrix, since beta is not 0, got none$", {"beta": 0.5}),
            ("out: expected memory .* got memory that overlaps the input b$", {"b": room[:5], "out": room[4:8, :5]}),
            ("preact: expected memory .* got memory that overlaps the output out$", {"preact": out}),
            ("layout: expected nt, nn or tn, got 'tt'$", {"layout": "tt"}),
            (f"activation: expected {activations}, got 'tanh'$", {"activation": "tanh"}),
        ):
            with self.subTest(message):
                self.refuse(ops.gemm, message, **{**good, **wrong})
        two = {"a": a.int(), "b": b.to(torch.int8), "bias": normal(10)[::2]}
        self.refuse(ops.gemm, f"b: {another} int8$", **{**good, **two})  # the first that is no view at all
        given = {"a": a, "b": normal(8, 6), "out": nothing(4, 4)}
        self.refuse(ops.gemm_norm, "norm.rstd: expected 4 values, got 6$", norm_rstd=a[0], **given)
        names = "swiglu, geglu_erf, geglu_tanh or reglu"
        self.refuse(ops.gemm_norm_glu, f"function: expected {names}, got 'silu'$", function="silu", **given)
        given, token = {"table": a, "x": nothing(3, 6)}, torch.tensor([0, 4, 2])
        self.refuse(ops.embedding, r"token: expected values in \[0, 4\), got 4 at row 1$", token=token, **given)
        self.refuse(ops.embedding, "token: expected dtype int32 or int64, got fp64$", token=a[:3, 0].clone(), **given)
        self.refuse(ops.sum_columns, r"beta: expected 0 .* or 1 .*, got 0.5$", partial=a, beta=0.5, out=nothing(6))
        vector = {"lse": normal(4), "dloss": normal(4), "target": torch.arange(4), "da": nothing(4, 6)}
        message = "chunk: expected a number of columns above 0, got 0$"
        self.refuse(ops.linear_cross_entropy_backward, message, a=a, weight=b, chunk=0, **vector)

    def test_a_dtype_that_is_none_of_ours_is_told_by_its_name(self):
        good = {"a": normal(4, 6), "b": normal(5, 6), "out": nothing(4, 5)}
        for name in "bool uint8 uint16 uint32 uint64 int8 int16 float8_e4m3fn float8_e5m2 complex64 complex128".split():
            bias = torch.zeros(5, dtype=getattr(torch, name))
            self.refuse(ops.gemm, f"bias: expected dtype bf16, .* or int64, got {name}$", bias=bias, **good)
        bias = torch.zeros(5, dtype=torch.float8_e8m0fnu)
        self.refuse(ops.gemm, "bias: expected dtype bf16, .* or int64, got another one$", bias=bias, **good)

    def test_tensors_without_memory_among_others(self):
        a, b, out = normal(4, 6), normal(5, 6), nothing(4, 5)
        for name, message in (
            ("a", "b: expected a tensor on meta as a, got one on cpu$"),
            ("b", "b: expected a tensor on cpu as a, got one on meta$"),
            ("out", "out: expected a tensor on cpu as a, got one on meta$"),
        ):
            given = {"a": a, "b": b, "out": out}
            given[name] = given[name].to("meta")
            with self.subTest(name), self.assertRaisesRegex(RuntimeError, f"^gemm: {message}"):
                ops.gemm(**given)
        ops.gemm(a=a.to("meta"), b=b.to("meta"), out=out.to("meta"))  # a model's shapes, without its values

    def test_missing_tensors(self):
        a, b, x = normal(4, 6), normal(5, 6), nothing(4, 5)
        self.refuse(ops.gemm, "out: expected .*, got ", a=a, b=b)
        self.refuse(ops.gemm_residual, "residual: expected .*, got ", a=a, b=b, x=x)
        self.refuse(ops.embedding, "token: expected .*, got ", table=b, x=x)
        self.refuse(ops.squared_norm, "out: expected .*, got ", x=a)

    def test_tensors_whose_memory_was_freed(self):
        """As fully_shard does between uses: such an option must not count as absent."""
        good = {"a": normal(4, 6), "b": normal(5, 6), "out": nothing(4, 5), "bias": normal(5)}
        for name in good:
            freed = good[name].clone()
            freed.untyped_storage().resize_(0)
            with self.assertRaisesRegex(RuntimeError, f"^gemm: {name}: expected a tensor with memory$"):
                ops.gemm(**{**good, name: freed})

    def test_numbers_of_tiles(self):
        self.assertEqual([tiles.tiles_n(n, "cpu") for n in (0, 1, 256, 257)], [0, 1, 1, 2])
        self.assertEqual([tiles.tiles_m(m, torch.device("cpu")) for m in (256, 257)], [1, 2])
        self.assertEqual([tiles.tiles_n(n, "cuda") for n in (128, 129)], [1, 2])
        self.assertEqual(tiles.tiles_m(129, "cuda"), 2)
        self.assertEqual(tiles.tiles_n(129, torch.device("cuda", 1)), 2)
        self.assertEqual([tiles.head_tiles_n(n, 84, "cpu") for n in (252, 253)], [1, 2])
        for (device, backend), d, n in itertools.product((("cpu", "cpu"), ("cuda", "sm90")), range(1, 300), (1, 1000)):
            self.assertEqual(tiles.head_tiles_n(n, d, device), torch.ops.coda.head_tiles_n(n, d, backend))
        with self.assertRaisesRegex(RuntimeError, "head_tiles_n: head_dim: expected at least 1 column, got 0"):
            tiles.head_tiles_n(252, 0, "cpu")
        with self.assertRaisesRegex(RuntimeError, "tiles_n: backend: expected cpu or sm90, got 'tpu'"):
            torch.ops.coda.tiles_n(1, "tpu")

    def test_missing_first_tensors(self):
        self.refuse(ops.squared_norm, "x: expected a tensor, got none", out=nothing(1))
        self.refuse(ops.gemm, "a: expected a tensor, got none", b=normal(5, 6), out=nothing(4, 5))
        for name, function in inspect.getmembers(ops, inspect.isfunction):
            self.refuse(function, r"\w+: expected a tensor, got none")

    def test_tensors_that_require_gradients(self):
        a, b, out = normal(4, 6), normal(5, 6), nothing(4, 5)
        for leaf in (a, out):
            leaf.requires_grad_()
            self.refuse(ops.gemm, "expected tensors that require no gradient.*", a=a, b=b, out=out)
            with torch.no_grad():
                ops.gemm(a=a, b=b, out=out)
            leaf.requires_grad_(False)

    def test_tensors_with_tangents(self):
        a, b, out = normal(4, 6), normal(5, 6), nothing(4, 5)
        with forward_ad.dual_level(), torch.no_grad():
            ops.gemm(a=a, b=b, out=out)
            dual = forward_ad.make_dual(a, a)
            with self.assertRaisesRegex(RuntimeError, "^gemm: expected tensors without a tangent"):
                ops.gemm(a=dual, b=b, out=out)

    def test_what_autograd_has_saved_is_not_overwritten_unseen(self):
        def overwrite(zeros, out):
            ops.cast(input=zeros, out=out)
            return zeros + 1

        compiled = [torch.compile(overwrite, fullgraph=True, backend=b) for b in ("eager", "aot_eager")]
        for run in (overwrite, *compiled):
            x = normal(3, 4).requires_grad_()
            y = torch.exp(x)
            with torch.no_grad():
                run(torch.zeros(3, 4, dtype=F64), y)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                y.sum().backward()

    def test_tensors_of_inference_mode(self):
        with torch.inference_mode():
            zeros, out = torch.zeros(3, 4), torch.ones(3, 4)
            ops.cast(input=zeros, out=out)
        self.assertEqual(out.sum(), 0)
        ops.cast(input=zeros, out=torch.ones(3, 4))
        self.refuse(ops.cast, "expected results to be normal tensors, or torch.inference_mode()", input=zeros, out=out)

    def test_what_autograd_has_saved_is_not_overwritten_unseen_beside_tensors_of_inference_mode(self):
        x = normal(4, 5).requires_grad_()
        y = torch.exp(x)
        with torch.inference_mode():
            ops.gemm(a=normal(4, 6), b=normal(5, 6), preact=nothing(4, 5), out=y)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            y.sum().backward()

    def test_no_references_stay(self):
        tensors = [normal(4, 6), normal(5, 6), normal(5), nothing(4, 5), nothing(4, 5), torch.ones(4, 5).to(torch.int8)]
        before = [sys.getrefcount(x) for x in tensors]
        memory = [StorageWeakRef(x.untyped_storage()) for x in tensors]

        def call(a, b, bias, out, preact, other):
            good = {"a": a, "b": b, "bias": bias, "out": out, "preact": preact}
            ops.gemm(**good)
            for wrong in ({"c": other}, {"a": bias}, {"activation": "tanh"}, {"out": preact}, {"beta": 1.0}):
                with self.assertRaises(RuntimeError):
                    ops.gemm(**{**good, **wrong})

        for _ in range(100):
            call(*tensors)
        self.assertEqual([sys.getrefcount(x) for x in tensors], before)
        tensors.clear()
        self.assertTrue(all(x.expired() for x in memory))


class Installed(unittest.TestCase):
    def test_the_library_in_any_folder_of_the_package(self):
        """An editable install has the sources in one and what was built in another."""
        with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as built:
            library = pathlib.Path(built, "libcoda_torch.so")
            library.touch()
            environment = {k: v for k, v in os.environ.items() if k != "CODA_TORCH_LIBRARY"}
            with (
                unittest.mock.patch.dict(os.environ, environment, clear=True),
                unittest.mock.patch.object(pycoda, "__path__", [empty, built]),
            ):
                self.assertEqual(_library.path(), library)
                library.unlink()
                with self.assertRaisesRegex(ImportError, f"expected the library {empty}/libcoda_torch.so, got no such"):
                    _library.load()

    def test_the_library_that_is_named(self):
        with unittest.mock.patch.dict(os.environ, {"CODA_TORCH_LIBRARY": "/another/library.so"}):
            self.assertEqual(_library.path(), pathlib.Path("/another/library.so"))

    def test_a_pytorch_that_is_too_old(self):
        for version in ("2.9.1+cu128", "1.13.0"):
            with (
                unittest.mock.patch.object(torch, "__version__", version),
                self.assertRaisesRegex(ImportError, "expected PyTorch 2.10 or newer, got " + re.escape(version)),
            ):
                _library.load()


class Dispatched(Compared):
    def test_opcheck(self):
        given, x, rows = operands("nt")[0], torch.zeros(2, M, N, dtype=F64), torch.zeros(2, M, dtype=F64)
        sum_sq, loss = torch.zeros(M, 2, dtype=F64), {"a": given["a"], "weight": given["b"], "lse": rows[0]}
        for op, more in (
            (torch.ops.coda.gemm, {**given, "activation": "silu", "preact": x[0], "out": x[1]}),
            (torch.ops.coda.gemm_residual, {**given, "residual": normal(M, N), "x": x[0], "sum_sq": sum_sq}),
            (torch.ops.coda.linear_cross_entropy, {**loss, "loss": rows[1], "target": targets(torch.int32)}),
        ):
            torch.library.opcheck(op.default, (), more)

    def test_compiled(self):
        def scaled(a, b, alpha):
            out = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype)
            ops.gemm(a=a, b=b, alpha=alpha, activation="gelu_erf", out=out)
            return out + 1

        a, b = normal(M, K), normal(N, K)
        compiled = torch.compile(scaled, fullgraph=True, backend="aot_eager")
        for alpha in (0.5, 0.25, 0.75):  # of which the second makes it a symbol
            self.assertTrue(torch.equal(compiled(a, b, alpha), scaled(a, b, alpha)))

    def test_compiled_with_partial_results(self):
        def normed(a, b, residual):
            x, rstd = torch.empty_like(residual), a.new_empty(len(a))
            sum_sq = a.new_empty(len(a), tiles.tiles_n(b.shape[0], a.device))
            dweight = a.new_empty(tiles.tiles_m(a.shape[0], a.device), tiles.head_tiles_n(b.shape[0], 84, "cpu"))
            ops.gemm_residual(a=a, b=b, residual=residual, x=x, sum_sq=sum_sq)
            ops.rms_finalize(sum_sq=sum_sq, n=b.shape[0], rstd=rstd)
            return x * rstd[:, None], dweight.shape

        a, b, residual = normal(M, K), normal(N, K), normal(M, N)
        expected, shape = normed(a, b, residual)
        for dynamic in (False, True):
            compiled = torch.compile(normed, fullgraph=True, backend="aot_eager", dynamic=dynamic)
            found = compiled(a, b, residual)
            self.assertTrue(torch.equal(found[0], expected))
            self.assertEqual(found[1], shape)


if __name__ == "__main__":
    unittest.main()
