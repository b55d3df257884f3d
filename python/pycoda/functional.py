"""The layers of a Transformer between two attentions, and the loss, differentiated by autograd.

A layer is two calls, one forward and one backward, each a few kernels (coda/ops/layer.h):

    x, qkv = block_pre(token, table, next, heads)
    for each layer but the last:
        x, qkv = block(attention(qkv), x, weights, next, heads)
    loss = block_post(attention(qkv), x, weights, head, target)

Sizes: M tokens, of any shape such as (batch, sequence); H hidden; F width after the gated activation; Q = q heads x
head_dim; W = (q + k + v heads) x head_dim; V vocabulary. All tensors are of one dtype, bf16, fp16, fp32 or fp64, but for
indices, which are int32 or int64, and rotary tables, which are fp32, or fp64 if the others are. They are on the CPU or
on one Hopper GPU. A wrong argument is a RuntimeError that names it. Gradients are computed for what requires them; they
cannot be differentiated again. Forward-mode derivatives are refused, and rotary tables and numbers (given as tensors)
that require a gradient.
"""

import functools
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pycoda import ops

Glu = Literal["swiglu", "geglu_erf", "geglu_tanh", "reglu"]
Reduction = Literal["mean", "sum", "none"]


class Heads(NamedTuple):
    """The columns of a QKV projection: q heads, k heads, v heads, head_dim each, and their rotary angles."""

    q: int
    k: int
    v: int
    head_dim: int
    table: Tensor  # (positions, head_dim) of rotary_table
    position: Tensor | None = None  # (M) int32 or int64; None: a token's number


class QkvWeights(NamedTuple):
    """The norm ahead of an attention and its projection. With both q_norm and k_norm: QK-norm."""

    input_norm: Tensor  # (H)
    qkv: Tensor  # (W, H), the rows of a q or k head in pairs that are rotated: see pair_rows
    q_norm: Tensor | None = None  # (head_dim), in pairs, too
    k_norm: Tensor | None = None


class BlockWeights(NamedTuple):
    """What lies between an attention and the next layer."""

    out: Tensor  # (H, Q)
    post_norm: Tensor  # (H)
    gate_up: Tensor  # (2F, H), rows gate 0, up 0, gate 1, up 1, ...: see interleave
    down: Tensor  # (H, F)


class HeadWeights(NamedTuple):
    """The norm behind the last layer, and the head."""

    final_norm: Tensor  # (H)
    head: Tensor  # (V, H)


# ---- weights as other models have them


def rotary_table(
    inverse_frequency: Tensor, positions: int, dtype: torch.dtype = torch.float32, scale: float = 1.0
) -> Tensor:
    """(positions, head_dim) on the device of inverse_frequency (head_dim / 2): cos and sin of position x
    inverse_frequency[j], times scale, in columns 2j and 2j + 1. For a base theta (Su et al., arXiv 2104.09864)
    inverse_frequency[j] is theta^(-2j / head_dim). YaRN (arXiv 2309.00071) has a scale, of q and of k."""
    position = torch.arange(positions, dtype=torch.float64, device=inverse_frequency.device)
    angle = position[:, None] * inverse_frequency.double()
    return (scale * torch.stack((angle.cos(), angle.sin()), -1).flatten(1)).to(dtype)


def pair_rows(weight: Tensor, head_dim: int) -> Tensor:
    """Rows (or elements) of q or k heads from halves, which Hugging Face's models rotate against each other, to pairs:
    in each head 0, d/2, 1, d/2 + 1, ..."""
    return weight.view(-1, 2, head_dim // 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def halve_rows(weight: Tensor, head_dim: int) -> Tensor:
    """The inverse of pair_rows."""
    return weight.view(-1, head_dim // 2, 2, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def interleave(gate: Tensor, up: Tensor) -> Tensor:
    """(2F, H) of gate (F, H) and up (F, H), row by row; `result[0::2]` and `result[1::2]` are them again."""
    return torch.stack((gate, up), 1).flatten(0, 1)


# ---- what the functions below share


def _stat(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _given(operation: str, **tensors: Tensor | None) -> None:
    """Refuses what is no tensor, before it is asked for its shape."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            got = "none" if tensor is None else type(tensor).__name__
            raise RuntimeError(f"{operation}: {name}: expected a tensor, got {got}")


def _constant(operation: str, **given: Tensor | float) -> None:
    """Refuses what gradients are not computed for, where one is asked for."""
    if torch.is_grad_enabled():
        for name, value in given.items():
            if isinstance(value, Tensor) and value.requires_grad:
                raise RuntimeError(f"{operation}: {name}: expected no gradient to be required, got a tensor that does")


def _recorded(*tensors: Tensor | None) -> bool:
    """Whether autograd will want gradients."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _wide(rows: Tensor, columns: int) -> Tensor:
    """(M, columns), to be written, for the rows of a matrix."""
    return rows.new_empty((*rows.shape[:-1], columns))


def _statistic(rows: Tensor) -> Tensor:
    return rows.new_empty(rows.shape[:-1], dtype=_stat(rows.dtype))


def _attended(attended: Tensor) -> Tensor:
    """Dense. A program that is exported may get another attention when it is decomposed, whose results have other
    strides: there it always copies."""
    if torch.compiler.is_exporting():
        return attended.clone(memory_format=torch.contiguous_format)
    return attended.contiguous()


def _dense(gradient: Tensor) -> Tensor:
    """Gradients may be views whose rows overlap, such as that of a sum."""
    return gradient.contiguous()


def _gradient(weight: Tensor | None, needed: bool) -> Tensor | None:
    """Memory for a gradient of a matrix in its own dtype, for that of a vector in the statistics'."""
    if weight is None or not needed:
        return None
    return torch.empty_like(
        weight, dtype=weight.dtype if weight.dim() > 1 else _stat(weight.dtype), memory_format=torch.contiguous_format
    )


def _gradients(weights: tuple[Tensor | None, ...], needed: tuple[bool, ...]) -> list[Tensor | None]:
    return [_gradient(weight, wanted) for weight, wanted in zip(weights, needed, strict=True)]


def _as(weights: tuple[Tensor | None, ...], gradients: list[Tensor | None]) -> list[Tensor | None]:
    return [g if g is None else g.to(w.dtype) for w, g in zip(weights, gradients, strict=True)]


def _heads(heads: Heads) -> dict:
    return {
        "heads_q": heads.q,
        "heads_k": heads.k,
        "heads_v": heads.v,
        "heads_head_dim": heads.head_dim,
        "heads_table": heads.table,
        "heads_position": heads.position,
    }


def _next(weights: tuple[Tensor | None, ...]) -> dict:
    return dict(zip(("next_input_norm", "next_qkv", "next_q_norm", "next_k_norm"), weights, strict=True))


def _weights(weights: tuple[Tensor, ...]) -> dict:
    return dict(zip(("weights_out", "weights_post_norm", "weights_gate_up", "weights_down"), weights, strict=True))


def _qkv_outputs(rows: Tensor, qkv_weight: Tensor, q_norm: Tensor | None, kept: bool) -> tuple[Tensor, Tensor | None]:
    width = qkv_weight.shape[0]
    return _wide(rows, width), _wide(rows, width) if kept and q_norm is not None else None


def _middle(x: Tensor, weights: tuple[Tensor, ...], kept: bool) -> dict:
    """What a layer keeps of its middle for the backward."""
    if not kept:
        return {}
    return {"x_mid": torch.empty_like(x), "rstd_mid": _statistic(x), "preact": _wide(x, weights[2].shape[0])}


# ---- block_pre


def _block_pre(table, next, token, heads, eps, head_eps, kept):
    x = table.new_empty((*token.shape, table.shape[-1]))
    rstd = _statistic(x)
    qkv, preact = _qkv_outputs(x, next[1], next[2], kept)
    ops.block_pre(
        table=table,
        token=token,
        **_next(next),
        **_heads(heads),
        eps=eps,
        head_eps=head_eps,
        x=x,
        rstd=rstd,
        qkv_preact=preact,
        qkv=qkv,
    )
    return x, rstd, qkv, preact


def _once_differentiable(backward):
    """As PyTorch's: gradients that cannot be differentiated again. That one lets it pass, as if they were constants,
    where the gradient that arrives is one, such as a loss's."""

    @functools.wraps(backward)
    def run(ctx, *gradients):
        with torch.no_grad():
            outputs = backward(ctx, *gradients)
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return outputs
        refuse = torch._C._functions.DelayedError(b"pycoda: gradients cannot be differentiated again", len(outputs))
        return refuse(*(g if g is None else g.detach().requires_grad_() for g in outputs))

    return run


def _both_norms(needed):
    """The gradients of both norms of heads are computed, or none."""
    either = needed[2] or needed[3]
    return (*needed[:2], either, either)


class _BlockPre(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, input_norm, qkv_weight, q_norm, k_norm, token, heads, eps, head_eps):
        next = (input_norm, qkv_weight, q_norm, k_norm)
        x, rstd, qkv, preact = _block_pre(table, next, token, heads, eps, head_eps, True)
        ctx.save_for_backward(*next, token, x, rstd, qkv if preact is None else preact, heads.table, heads.position)
        ctx.heads, ctx.head_eps, ctx.vocabulary = heads[:4], head_eps, table.shape[0]
        return x, qkv

    @staticmethod
    @_once_differentiable
    def backward(ctx, dx_next, dqkv):
        *next, token, x, rstd, projected, table, position = ctx.saved_tensors
        qk_norm = next[2] is not None
        dqkv, dx_next = _dense(dqkv), _dense(dx_next)
        dtable = x.new_zeros((ctx.vocabulary, x.shape[-1]), dtype=rstd.dtype) if ctx.needs_input_grad[0] else None
        gradients = _gradients(next, _both_norms(ctx.needs_input_grad[1:5]))
        ops.block_pre_backward(
            token=token,
            x=x,
            rstd=rstd,
            qkv=None if qk_norm else projected,
            qkv_preact=projected if qk_norm else None,
            dqkv=dqkv,
            dx_next=dx_next,
            **_next(next),
            **_heads(Heads(*ctx.heads, table, position)),
            head_eps=ctx.head_eps,
            gradients_input_norm=gradients[0],
            gradients_qkv=gradients[1],
            gradients_q_norm=gradients[2],
            gradients_k_norm=gradients[3],
            dtable=dtable,
            beta=0.0,
            dz=torch.empty_like(dqkv),
            dx=torch.empty_like(x),
        )
        return (None if dtable is None else dtable.to(x.dtype), *_as(next, gradients), None, None, None, None)


def block_pre(
    token: Tensor, table: Tensor, next: QkvWeights, heads: Heads, *, eps: float = 1e-5, head_eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """x = table[token] (M, H), the residual stream, and the first layer's qkv (M, W), normalised and rotated.

    table (V, H), token (M). A token outside of [0, V) is an error on the CPU, and a row of NaN on a GPU.
    """
    _given("block_pre", token=token, table=table, next_qkv=next[1])
    _constant("block_pre", heads_table=heads.table, eps=eps, head_eps=head_eps)
    token = token.contiguous()
    if _recorded(table, *next):
        return _BlockPre.apply(table, *next, token, heads, eps, head_eps)
    x, _, qkv, _ = _block_pre(table, next, token, heads, eps, head_eps, False)
    return x, qkv


# ---- block


def _block(attended, x, weights, next, heads, function, eps, head_eps, kept):
    middle = _middle(x, weights, kept)
    x_next, rstd_next = torch.empty_like(x), _statistic(x)
    qkv, qkv_preact = _qkv_outputs(x, next[1], next[2], kept)
    ops.block(
        attended=attended,
        x=x,
        **_weights(weights),
        **_next(next),
        **_heads(heads),
        function=function,
        eps=eps,
        head_eps=head_eps,
        **middle,
        x_next=x_next,
        rstd_next=rstd_next,
        qkv_preact=qkv_preact,
        qkv=qkv,
    )
    return x_next, qkv, (*middle.values(), rstd_next, qkv_preact)


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx, attended, x, *rest):
        weights, next = rest[:4], rest[4:8]
        heads, function, eps, head_eps = rest[8:]
        x_next, qkv, kept = _block(attended, x, weights, next, heads, function, eps, head_eps, True)
        x_mid, rstd_mid, preact, rstd_next, qkv_preact = kept
        projected = qkv if qkv_preact is None else qkv_preact
        ctx.save_for_backward(
            *weights,
            *next,
            attended,
            x_mid,
            rstd_mid,
            preact,
            x_next,
            rstd_next,
            projected,
            heads.table,
            heads.position,
        )
        ctx.heads, ctx.function, ctx.head_eps = heads[:4], function, head_eps
        return x_next, qkv

    @staticmethod
    @_once_differentiable
    def backward(ctx, dx_next, dqkv):
        saved = ctx.saved_tensors  # once: what recomputes or unpacks them does so at each look
        weights, next = saved[:4], saved[4:8]
        attended, x_mid, rstd_mid, preact, x_next, rstd_next, projected, table, position = saved[8:]
        qk_norm = next[2] is not None
        dqkv, dx_next = _dense(dqkv), _dense(dx_next)
        gradients = _gradients(weights, ctx.needs_input_grad[2:6])
        next_gradients = _gradients(next, _both_norms(ctx.needs_input_grad[6:10]))
        dattended, dx = torch.empty_like(attended), torch.empty_like(x_mid)
        ops.block_backward(
            attended=attended,
            x_mid=x_mid,
            rstd_mid=rstd_mid,
            preact=preact,
            x_next=x_next,
            rstd_next=rstd_next,
            qkv=None if qk_norm else projected,
            qkv_preact=projected if qk_norm else None,
            dqkv=dqkv,
            dx_next=dx_next,
            **_weights(weights),
            **_next(next),
            **_heads(Heads(*ctx.heads, table, position)),
            function=ctx.function,
            head_eps=ctx.head_eps,
            gradients_out=gradients[0],
            gradients_post_norm=gradients[1],
            gradients_gate_up=gradients[2],
            gradients_down=gradients[3],
            next_gradients_input_norm=next_gradients[0],
            next_gradients_qkv=next_gradients[1],
            next_gradients_q_norm=next_gradients[2],
            next_gradients_k_norm=next_gradients[3],
            beta=0.0,
            dz=torch.empty_like(dqkv),
            dpreact=torch.empty_like(preact),
            dx=dx,
            dattended=dattended,
        )
        return (dattended, dx, *_as(weights, gradients), *_as(next, next_gradients), None, None, None, None)


def block(
    attended: Tensor,
    x: Tensor,
    weights: BlockWeights,
    next: QkvWeights,
    heads: Heads,
    *,
    function: Glu = "swiglu",
    eps: float = 1e-5,
    head_eps: float = 1e-6,
) -> tuple[Tensor, Tensor]:
    """From attention's output (M, Q) and the residual stream x (M, H) to the next layer's x (M, H) and qkv (M, W)."""
    _given("block", attended=attended, x=x, weights_gate_up=weights[2], next_qkv=next[1])
    _constant("block", heads_table=heads.table, eps=eps, head_eps=head_eps)
    attended, x = _attended(attended), x.contiguous()
    if _recorded(attended, x, *weights, *next):
        return _Block.apply(attended, x, *weights, *next, heads, function, eps, head_eps)
    x_next, qkv, _ = _block(attended, x, weights, next, heads, function, eps, head_eps, False)
    return x_next, qkv


# ---- block_post


class _Loss(NamedTuple):
    """The options of a loss."""

    scale: float
    cap: float
    label_smoothing: float
    z_loss: float
    ignore_index: int

    def arguments(self) -> dict:
        return {
            "transform_scale": self.scale,
            "transform_cap": self.cap,
            "options_label_smoothing": self.label_smoothing,
            "options_z_loss": self.z_loss,
            "options_ignore_index": self.ignore_index,
        }


def _reduced(rows: Tensor, target: Tensor, ignore_index: int, reduction: Reduction) -> Tensor:
    """Rows that are ignored have a loss of 0. A mean of no rows is NaN, as torch's."""
    if reduction == "none":
        return rows
    return rows.sum() / (target != ignore_index).sum() if reduction == "mean" else rows.sum()


def _check_reduction(operation: str, reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise RuntimeError(f"{operation}: reduction: expected mean, sum or none, got {reduction!r}")


def _block_post(attended, x, weights, head, target, function, eps, options, kept, with_loss):
    """(h, rstd_last, loss rows or None, what the backward takes)."""
    middle = _middle(x, weights, kept)
    x_last, rstd_last, h = torch.empty_like(x), _statistic(x), torch.empty_like(x)
    lse, loss = (_statistic(x), _statistic(x)) if with_loss else (None, None)
    ops.block_post(
        attended=attended,
        x=x,
        **_weights(weights),
        head_final_norm=head[0],
        head_head=head[1] if with_loss else None,
        function=function,
        eps=eps,
        **options.arguments(),
        target=target if with_loss else None,
        **middle,
        x_last=x_last,
        rstd_last=rstd_last,
        h=h,
        lse=lse,
        loss=loss,
    )
    return h, rstd_last, loss, (*middle.values(), x_last, rstd_last, h)


def _block_post_backward(attended, weights, head, target, function, options, logit_rows, kept, dloss, needed, lost):
    """The loss of each row, and the gradients of (attended, x, weights, head). `lost`: h and preact, of which the
    backward takes the memory, are not wanted again."""
    x_mid, rstd_mid, preact, x_last, rstd_last, h = kept
    gradients = _gradients(weights, needed[2:6])
    head_gradients = _gradients(head, needed[6:8])
    if head_gradients[1] is not None and logit_rows > 0:  # it is added to, and rounded, once for each so many rows
        head_gradients[1] = head_gradients[1].to(_stat(head[1].dtype))
    dattended, dx = torch.empty_like(attended), torch.empty_like(x_mid)
    loss = torch.empty_like(dloss)
    ops.block_post_backward(
        attended=attended,
        x_mid=x_mid,
        rstd_mid=rstd_mid,
        preact=preact,
        x_last=x_last,
        rstd_last=rstd_last,
        h=h if lost else h.clone(),
        dloss=dloss,
        **_weights(weights),
        head_final_norm=head[0],
        head_head=head[1],
        function=function,
        **options.arguments(),
        target=target,
        logit_rows=logit_rows,
        gradients_out=gradients[0],
        gradients_post_norm=gradients[1],
        gradients_gate_up=gradients[2],
        gradients_down=gradients[3],
        head_gradients_final_norm=head_gradients[0],
        head_gradients_head=head_gradients[1],
        beta=0.0,
        lse=torch.empty_like(dloss),
        loss=loss,
        dpreact=preact if lost else torch.empty_like(preact),
        dx=dx,
        dattended=dattended,
    )
    return loss, [dattended, dx, *_as(weights, gradients), *_as(head, head_gradients)]


class _BlockPostRows(torch.autograd.Function):
    """Each row's loss. Its backward makes the logits a second time."""

    @staticmethod
    def forward(ctx, attended, x, *rest):
        weights, head = rest[:4], rest[4:6]
        target, function, eps, options, logit_rows = rest[6:]
        _, _, loss, kept = _block_post(attended, x, weights, head, target, function, eps, options, True, True)
        ctx.save_for_backward(attended, *weights, *head, target, *kept)
        ctx.options = function, options, logit_rows
        return loss

    @staticmethod
    @_once_differentiable
    def backward(ctx, dloss):
        attended, *saved = ctx.saved_tensors
        weights, head, target, kept = tuple(saved[:4]), tuple(saved[4:6]), saved[6], saved[7:]
        needed = ctx.needs_input_grad[:8]
        _, gradients = _block_post_backward(
            attended, weights, head, target, *ctx.options, kept, _dense(dloss), needed, False
        )
        return (*gradients, None, None, None, None, None)


class _BlockPostLoss(torch.autograd.Function):
    """A mean or sum over rows, whose gradients are known up to a factor when the loss is: they are computed at once."""

    @staticmethod
    def forward(ctx, attended, x, *rest):
        weights, head = rest[:4], rest[4:6]
        target, function, eps, options, logit_rows, reduction, factor = rest[6:]
        _, rstd, _, kept = _block_post(attended, x, weights, head, target, function, eps, options, True, False)
        if reduction == "mean":
            counted = (target != options.ignore_index).sum().to(rstd.dtype)
            dloss = (factor / counted).expand(rstd.shape).contiguous()
        else:
            dloss = torch.full_like(rstd, factor)
        needed = ctx.needs_input_grad[:8]
        try:
            loss, gradients = _block_post_backward(
                attended, weights, head, target, function, options, logit_rows, kept, dloss, needed, True
            )
        except RuntimeError as error:
            backward, said = "block_post_backward: ", str(error)
            if not said.startswith(backward):
                raise
            raise RuntimeError("block_post: " + said[len(backward) :]) from None  # which is what was called
        ctx.save_for_backward(*gradients)
        return factor * _reduced(loss, target, options.ignore_index, reduction)

    @staticmethod
    @_once_differentiable
    def backward(ctx, dloss):
        if not torch.compiler.is_compiling():
            if getattr(ctx, "handed_out", False):
                raise RuntimeError(
                    "block_post: expected one backward of a mean or a sum, whose gradients are handed out once, got a "
                    "second one: reduction='none' allows it"
                )
            ctx.handed_out = True
        gradients = ctx.saved_tensors
        # A number of another dtype than theirs would take four times as long.
        factor = dloss.to(gradients[0].dtype)
        if torch.compiler.is_compiling():  # where nothing tells of a second backward
            gradients = tuple(None if g is None else g * factor for g in gradients)
        else:
            torch._foreach_mul_([g for g in gradients if g is not None], factor)
        return (*gradients, None, None, None, None, None, None, None)


def block_post(
    attended: Tensor,
    x: Tensor,
    weights: BlockWeights,
    head: HeadWeights,
    target: Tensor,
    *,
    function: Glu = "swiglu",
    eps: float = 1e-5,
    scale: float = 1.0,
    cap: float = 0.0,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    factor: float = 1.0,
    logit_rows: int = 0,
) -> Tensor:
    """The last layer, from attention's output (M, Q) and x (M, H), and the cross-entropy of its logits against target
    (M), without (M, V) logits: a number, or with reduction "none" (M), fp32 (or fp64).

    logits l = scale z, or cap tanh(scale z / cap) if cap is not 0; a row's loss is
    (1 - s) (lse - l[target]) + s (lse - mean(l)) + z_loss lse^2, with s the label smoothing, and 0 where the target is
    ignore_index; the mean is over the other rows. The result is `factor` times that: 1/n where n batches add to a
    gradient. A factor multiplied afterwards is rounded to the gradients' dtype.

    The gradients of a mean or a sum are computed together with it (but for fp16, whose loss may be scaled afterwards, so
    that they would not fit) and handed out once: retain_graph is for reduction "none", whose backward computes the logits
    again. At most `logit_rows` rows of logits are held, with 0 as many as fill 2 GiB on a GPU and 512 MiB on the CPU; with
    a number the head's gradient is added up in fp32.
    """
    _check_reduction("block_post", reduction)
    _given("block_post", attended=attended, x=x, weights_gate_up=weights[2], head_head=head[1], target=target)
    if logit_rows < 0:  # which is the backward's
        raise RuntimeError(
            f"block_post: logit_rows: expected a number of rows, or 0 for the library's choice, got {logit_rows}"
        )
    options = _Loss(scale, cap, label_smoothing, z_loss, ignore_index)
    _constant("block_post", eps=eps, factor=factor, **options._asdict())
    attended, x, target = _attended(attended), x.contiguous(), target.contiguous()
    if not _recorded(attended, x, *weights, *head):
        rows = _block_post(attended, x, weights, head, target, function, eps, options, False, True)[2]
    elif reduction == "none" or x.dtype == torch.float16:
        rows = _BlockPostRows.apply(attended, x, *weights, *head, target, function, eps, options, logit_rows)
    else:
        given = target, function, eps, options, logit_rows, reduction, factor
        return _BlockPostLoss.apply(attended, x, *weights, *head, *given)
    return factor * _reduced(rows, target, ignore_index, reduction)


@torch.no_grad()
def block_post_logits(
    attended: Tensor,
    x: Tensor,
    weights: BlockWeights,
    head: HeadWeights,
    *,
    function: Glu = "swiglu",
    eps: float = 1e-5,
) -> Tensor:
    """The last layer and its logits (M, V). Not differentiated."""
    _given("block_post", attended=attended, x=x, weights_gate_up=weights[2], head_head=head[1])
    options = _Loss(1.0, 0.0, 0.0, 0.0, -100)
    attended, x = _attended(attended), x.contiguous()
    h, rstd, _, _ = _block_post(attended, x, weights, head, None, function, eps, options, False, False)
    logits = _wide(x, head[1].shape[0])
    ops.gemm_norm(a=h, b=head[1], norm_rstd=rstd, out=logits)
    return logits


# ---- the loss alone


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, weight, target, options, chunk):
        lse, loss = _statistic(a), _statistic(a)
        ops.linear_cross_entropy(a=a, weight=weight, target=target, **options.arguments(), lse=lse, loss=loss)
        ctx.save_for_backward(a, weight, target, lse)
        ctx.options, ctx.chunk = options, chunk
        return loss

    @staticmethod
    @_once_differentiable
    def backward(ctx, dloss):
        a, weight, target, lse = ctx.saved_tensors
        da, dweight = torch.empty_like(a), None
        if ctx.needs_input_grad[1]:
            dweight = torch.zeros_like(weight, memory_format=torch.contiguous_format)
        ops.linear_cross_entropy_backward(
            a=a,
            weight=weight,
            h=a,
            target=target,
            lse=lse,
            dloss=_dense(dloss),
            **ctx.options.arguments(),
            chunk=ctx.chunk,
            da=da,
            dweight=dweight,
        )
        return da, dweight, None, None, None


def linear_cross_entropy(
    a: Tensor,
    weight: Tensor,
    target: Tensor,
    *,
    scale: float = 1.0,
    cap: float = 0.0,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    chunk: int = 4096,
) -> Tensor:
    """Cross-entropy of the logits a weight^T against target (M), without (M, V) logits; a (M, K), weight (V, K). Options
    and result as in block_post. The backward computes the logits again, `chunk` columns at a time."""
    _check_reduction("linear_cross_entropy", reduction)
    _given("linear_cross_entropy", a=a, weight=weight, target=target)
    if chunk <= 0:  # which is the backward's
        raise RuntimeError(f"linear_cross_entropy: chunk: expected a number of columns above 0, got {chunk}")
    options = _Loss(scale, cap, label_smoothing, z_loss, ignore_index)
    _constant("linear_cross_entropy", **options._asdict())
    target = target.contiguous()
    rows = _LinearCrossEntropy.apply(a.contiguous(), weight, target, options, chunk)
    return _reduced(rows, target, ignore_index, reduction)
