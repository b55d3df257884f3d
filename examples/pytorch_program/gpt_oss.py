#!/usr/bin/env python3
"""The feed-forward of gpt-oss by two operators of one's own, beside plain PyTorch: its output and its gradients.

CMakeLists.txt says how to build the library that is this script's argument.
"""

import sys

import torch
import torch.nn.functional as F

torch.ops.load_library(sys.argv[1])
glu, glu_backward = torch.ops.gpt_oss.glu, torch.ops.gpt_oss.glu_backward


@torch.library.register_fake("gpt_oss::glu")  # shapes, for torch.compile
def _(x, w, bias):
    return x.new_empty(x.shape[0], w.shape[0] // 2), x.new_empty(x.shape[0], w.shape[0])


@torch.library.register_fake("gpt_oss::glu_backward")
def _(dy, w, preact):
    return torch.empty_like(preact), dy.new_empty(dy.shape[0], w.shape[1])


class FeedForward(torch.autograd.Function):
    """y = glu(x gate_up^T + bias) down^T. Of the middle only glu's input is kept."""

    @staticmethod
    def forward(ctx, x, gate_up, bias, down):
        out, preact = glu(x, gate_up, bias)
        ctx.save_for_backward(x, gate_up, down, preact)
        return out @ down.mT

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, gate_up, down, preact = ctx.saved_tensors
        dy = dy.contiguous()
        dpreact, out = glu_backward(dy, down, preact)
        return dpreact @ gate_up, dpreact.mT @ x, dpreact.sum(0), dy.mT @ out


def plain(x, gate_up, bias, down):
    z = F.linear(x, gate_up, bias)
    gate, up = z[:, 0::2].clamp(max=7), z[:, 1::2].clamp(-7, 7)
    return ((up + 1) * (gate * torch.sigmoid(1.702 * gate))) @ down.mT


def distance(a, b):
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def compare(device, dtype, bound):
    """Both against fp64: outputs and gradients, relative to their norms."""
    torch.manual_seed(1)
    m, hidden, ffn = 300, 256, 520
    shapes = {"x": (m, hidden), "gate_up": (2 * ffn, hidden), "bias": (2 * ffn,), "down": (hidden, ffn)}
    given = {
        name: torch.randn(shape, device=device).mul(4 * shape[-1] ** -0.5).to(dtype) for name, shape in shapes.items()
    }
    dy = torch.randn(m, hidden, device=device).to(dtype)

    def run(function, dtype):
        arguments = [value.to(dtype, copy=True).requires_grad_() for value in given.values()]
        y = function(*arguments)
        y.backward(dy.to(dtype))
        return [y.detach(), *(argument.grad for argument in arguments)]

    exact, ours, theirs = run(plain, torch.float64), run(FeedForward.apply, dtype), run(plain, dtype)
    worst = 0.0
    for name, a, b, e in zip(("y", *(f"d{name}" for name in given)), ours, theirs, exact, strict=True):
        print(f"{device} {dtype}: {name:8} {distance(a, e):.1e} from fp64; plain PyTorch {distance(b, e):.1e}")
        worst = max(worst, distance(a, e))
    if not worst <= bound:
        raise SystemExit(f"expected at most {bound}")


def check_operators():
    """What autograd and torch.compile rely on, and errors."""
    x, w, bias, preact = torch.randn(6, 8), torch.randn(10, 8), torch.randn(10), torch.randn(6, 10)
    down = torch.randn(8, 5)
    torch.library.opcheck(glu, (x, w, bias))
    torch.library.opcheck(glu_backward, (x, down, preact))
    compiled = torch.compile(FeedForward.apply, backend="aot_eager", fullgraph=True)
    gradients = []
    for function in (FeedForward.apply, compiled):
        given = [value.clone().requires_grad_() for value in (x, w, bias, down)]
        function(*given).square().sum().backward()
        gradients.append([value.grad for value in given])
    if not all(torch.equal(a, b) for a, b in zip(*gradients, strict=True)):
        raise SystemExit("torch.compile changed a gradient")
    for wrong in (bias[:9], bias[:0]):
        try:
            glu(x, w, wrong)
        except RuntimeError as error:
            print(f"a wrong call: {error}")
        else:
            raise SystemExit("expected an error")


check_operators()
compare("cpu", torch.float32, 1e-6)
compare("cpu", torch.bfloat16, 1e-2)
if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0):
    try:
        compare("cuda", torch.bfloat16, 1e-2)
    except RuntimeError as error:
        if "a build for Hopper" not in str(error):
            raise
        print(f"not on the GPU: {error}")
