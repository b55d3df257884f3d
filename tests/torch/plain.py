"""The maths of a layer as separate operations of PyTorch, for autograd to differentiate."""

import torch
import torch.nn.functional as F

GATES = {
    "swiglu": F.silu,
    "geglu_erf": F.gelu,
    "geglu_tanh": lambda gate: F.gelu(gate, approximate="tanh"),
    "reglu": F.relu,
}


def rms_norm(x, weight, eps):
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rotated(x, table, position):
    """x (M, heads, head_dim): pairs turned by the angles of their positions."""
    angle = table[position].view(x.shape[0], 1, -1, 2)
    cos, sin = angle[..., 0], angle[..., 1]
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


def projected(x, next, heads, eps, head_eps):
    """qkv (M, W), normalised and rotated, of x (M, H)."""
    qkv = (rms_norm(x, next.input_norm, eps) @ next.qkv.T).unflatten(-1, (-1, heads.head_dim))
    q, k, v = qkv.split((heads.q, heads.k, heads.v), 1)
    if next.q_norm is not None:
        q, k = rms_norm(q, next.q_norm, head_eps), rms_norm(k, next.k_norm, head_eps)
    position = torch.arange(x.shape[0], device=x.device) if heads.position is None else heads.position.flatten().long()
    return torch.cat((rotated(q, heads.table, position), rotated(k, heads.table, position), v), 1).flatten(1)


def fed_forward(attended, x, weights, function, eps):
    """The residual stream behind a layer."""
    x = x + attended @ weights.out.T
    gate_up = rms_norm(x, weights.post_norm, eps) @ weights.gate_up.T
    return x + (GATES[function](gate_up[:, 0::2]) * gate_up[:, 1::2]) @ weights.down.T


def block_pre(token, table, next, heads, eps=1e-5, head_eps=1e-6):
    x = table[token.flatten().long()]
    return x, projected(x, next, heads, eps, head_eps)


def block(attended, x, weights, next, heads, function="swiglu", eps=1e-5, head_eps=1e-6):
    x = fed_forward(attended, x, weights, function, eps)
    return x, projected(x, next, heads, eps, head_eps)


def cross_entropy(z, target, scale=1.0, cap=0.0, label_smoothing=0.0, z_loss=0.0, ignore_index=-100, reduction="mean"):
    target = target.flatten().long()
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    logits = cap * torch.tanh(scale * z / cap) if cap else scale * z
    loss = F.cross_entropy(logits, target, ignore_index=ignore_index, reduction="none", label_smoothing=label_smoothing)
    counted = target != ignore_index
    loss = loss + z_loss * torch.logsumexp(logits, -1) ** 2 * counted
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / counted.sum()}[reduction]


def block_post(attended, x, weights, head, target, function="swiglu", eps=1e-5, **options):
    x = fed_forward(attended, x, weights, function, eps)
    return cross_entropy(rms_norm(x, head.final_norm, eps) @ head.head.T, target, **options)
