"""One function for each checked call of CODA. Made from coda/ops/*.h by scripts/torch_api.py.

Each writes its result into the tensors that it is given, on their device: on the CPU, or on a Hopper GPU's current
stream. A tensor of two or more dimensions serves as the matrix of all but its last dimension times the last one, if its
rows are dense and lie at one distance from each other; one of any shape as a vector, if it is contiguous. `None` is an
argument that is not given. A wrong argument is a RuntimeError that names it, with what was expected and what came,
before anything is computed. Nothing here is differentiated by autograd, so that a tensor that requires a gradient is
refused unless gradients are off, and one with a tangent of forward mode always: see functional.py.

tiles.py has the numbers of tiles. Comments are those of C++: `norm.rstd` there is `norm_rstd` here, and `in` is `input`.

Conventions. Matrices are row-major views with a pitch; M rows are tokens. T is the dtype of the operands `a` and `b`
(bf16, fp16, fp32 or fp64) and of every matrix and weight vector that is not said to be a statistic; statistics are
fp32 (fp64 if T is fp64) and partial ones have shape (M, tiles_n(N)) or (tiles_m(M), N). A view without
data, such as a default-made one, means that an optional argument is not given. Inputs that the epilogue reads
element by element (residual, saved pre-activations, gradients) may be overwritten in place by an output of the same
shape; nothing else may overlap. Tokens, targets and positions are checked on the CPU. On a device they are not
looked at before the kernel runs: one that is out of range is skipped there or gives NaN (a target: a loss of NaN and
no gradient), and nothing outside of the arguments is read or written. bf16 below the smallest normal number may be
read as 0 by a product, and stored as 0, where the CPU has instructions for bf16. The caller's fenv plays no part.

Running. A call on the CPU has ended when it returns; it uses OpenMP's threads (omp_set_num_threads, OMP_NUM_THREADS;
GCC's ends the program if it gets none), in a parallel region or a child forked behind a call only the caller's. A
call on sm90 is enqueued on its stream (null: the legacy default stream) and returns: it does not wait, and an error
while it runs is CUDA's to tell at the next synchronisation. Any number of host threads may call at once, on any
streams; the caller's own work on a stream keeps its order with the calls. No call may come from the destructor of a
static object: what a thread keeps is gone then. In C and C++ the memory must be of the thread's current device; its
primary context is used, and must not be reset. Calls can be captured in a CUDA graph. Where one needs memory between
its kernels it takes it from a stream-ordered pool of the library's own, which keeps what it has: up to 18 MB for a
product whose last round of tiles is split, up to 32 MB for one of cuBLASLt's, some 256 MB where a program runs
unfused behind a product (`coda info --explain` tells which), and what a call's own comment says. A call of several
kernels asks for it as it goes: where memory ends, the first of them may have run. In a graph such memory is a node,
so that the graph can be no child graph and no body of a conditional node, and has one executable at a time.

Formulas are those of the CODA paper (arXiv 2605.19269) unless said otherwise.
"""

from typing import Literal

import torch
from torch import Tensor

import pycoda._library

In = Tensor | None
Out = Tensor | None  # written


def gemm(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nt",
    alpha: float = 1.0,
    beta: float = 0.0,
    c: In = None,
    bias: In = None,
    activation: Literal["identity", "silu", "gelu_erf", "gelu_tanh", "relu", "relu_squared"] = "identity",
    preact: Out = None,
    out: Out = None,
) -> None:
    """
    out = f(alpha a b + beta c + bias); preact (optional) is the value before f. out, c and preact (M, N) have one
    dtype: T, or fp32 where T is a 16-bit type; bias (N) has T.
    """
    pycoda._library.call(
        torch.ops.coda.gemm.default,
        (
            a,
            b,
            layout,
            alpha,
            beta,
            c,
            bias,
            activation,
            preact,
            out,
        ),
        (
            preact,
            out,
        ),
    )


def gemm_residual(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nt",
    residual: In = None,
    weight: In = None,
    x: Out = None,
    h: Out = None,
    sum_sq: Out = None,
    mean: Out = None,
    m2: Out = None,
) -> None:
    """
    x = a b + residual; h = x weight (optional); and statistics of x for the next norm: sum_sq (M, tiles_n) for RMSNorm,
    or mean and m2 (M, tiles_n), of one pitch: mean and sum of squared deviations inside each tile, for LayerNorm.
    """
    pycoda._library.call(
        torch.ops.coda.gemm_residual.default,
        (
            a,
            b,
            layout,
            residual,
            weight,
            x,
            h,
            sum_sq,
            mean,
            m2,
        ),
        (
            x,
            h,
            sum_sq,
            mean,
            m2,
        ),
    )


def embedding(
    *,
    table: In = None,
    token: In = None,
    weight: In = None,
    x: Out = None,
    h: Out = None,
    sum_sq: Out = None,
    mean: Out = None,
    m2: Out = None,
) -> None:
    """
    x[m] = table[token[m]] (table (V, N), token (M) int32 or int64 in [0, V)), and h and statistics as in gemm_residual.
    """
    pycoda._library.call(
        torch.ops.coda.embedding.default,
        (
            table,
            token,
            weight,
            x,
            h,
            sum_sq,
            mean,
            m2,
        ),
        (
            x,
            h,
            sum_sq,
            mean,
            m2,
        ),
    )


def rms_finalize(
    *,
    sum_sq: In = None,
    n: int = 0,
    eps: float = 1e-05,
    rstd: Out = None,
) -> None:
    """
    rstd[m] = 1 / sqrt(sum_t sum_sq[m, t] / n + eps); n is the width of the normalised rows.
    """
    pycoda._library.call(
        torch.ops.coda.rms_finalize.default,
        (
            sum_sq,
            n,
            eps,
            rstd,
        ),
        (rstd,),
    )


def layernorm_finalize(
    *,
    tile_mean: In = None,
    tile_m2: In = None,
    n: int = 0,
    eps: float = 1e-05,
    mean: Out = None,
    rstd: Out = None,
) -> None:
    """
    mean[m] and rstd[m] = 1 / sqrt(var + eps) from the tiles' means and m2 (merged as in Chan, Golub, LeVeque 1979).
    """
    pycoda._library.call(
        torch.ops.coda.layernorm_finalize.default,
        (
            tile_mean,
            tile_m2,
            n,
            eps,
            mean,
            rstd,
        ),
        (
            mean,
            rstd,
        ),
    )


def gemm_norm(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nt",
    norm_rstd: In = None,
    norm_mean: In = None,
    norm_u: In = None,
    norm_c: In = None,
    activation: Literal["identity", "silu", "gelu_erf", "gelu_tanh", "relu", "relu_squared"] = "identity",
    preact: Out = None,
    out: Out = None,
) -> None:
    """
    z = norm(a b); out = f(z) (M, N); preact (optional) = z.
    """
    pycoda._library.call(
        torch.ops.coda.gemm_norm.default,
        (
            a,
            b,
            layout,
            norm_rstd,
            norm_mean,
            norm_u,
            norm_c,
            activation,
            preact,
            out,
        ),
        (
            preact,
            out,
        ),
    )


def gemm_norm_glu(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nt",
    norm_rstd: In = None,
    norm_mean: In = None,
    norm_u: In = None,
    norm_c: In = None,
    function: Literal["swiglu", "geglu_erf", "geglu_tanh", "reglu"] = "swiglu",
    preact: Out = None,
    out: Out = None,
) -> None:
    """
    z = norm(a b) (M, 2F); out[m, j] = act(z[m, 2j]) z[m, 2j+1] (M, F); preact (optional) = z. Weight rows are
    interleaved gate 0, up 0, gate 1, up 1, ... (Shazeer, arXiv 2002.05202).
    """
    pycoda._library.call(
        torch.ops.coda.gemm_norm_glu.default,
        (
            a,
            b,
            layout,
            norm_rstd,
            norm_mean,
            norm_u,
            norm_c,
            function,
            preact,
            out,
        ),
        (
            preact,
            out,
        ),
    )


def gemm_norm_rope(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nt",
    norm_rstd: In = None,
    norm_mean: In = None,
    norm_u: In = None,
    norm_c: In = None,
    heads_q: int = 0,
    heads_k: int = 0,
    heads_v: int = 0,
    heads_head_dim: int = 0,
    heads_table: In = None,
    heads_position: In = None,
    out: Out = None,
) -> None:
    """
    z = norm(a b) (M, (q+k+v) head_dim); out: q and k heads rotated pairwise, v heads as they are.
    """
    pycoda._library.call(
        torch.ops.coda.gemm_norm_rope.default,
        (
            a,
            b,
            layout,
            norm_rstd,
            norm_mean,
            norm_u,
            norm_c,
            heads_q,
            heads_k,
            heads_v,
            heads_head_dim,
            heads_table,
            heads_position,
            out,
        ),
        (out,),
    )


def gemm_norm_rotate(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nt",
    norm_rstd: In = None,
    norm_mean: In = None,
    norm_u: In = None,
    norm_c: In = None,
    angle: In = None,
    preact: Out = None,
    out: Out = None,
) -> None:
    """
    z = norm(a b) (M, N); preact (optional) = z; pairs of columns 2j and 2j+1 of out are (z0 cos + z1 sin, z1 cos - z0
    sin), rotated by minus the angle whose cos and sin are columns 2j and 2j+1 of angle (M, N), of T. This is the
    rotary embedding of the paper's own kernels; gemm_norm_rope, whose angles are a table, has far less to read.
    """
    pycoda._library.call(
        torch.ops.coda.gemm_norm_rotate.default,
        (
            a,
            b,
            layout,
            norm_rstd,
            norm_mean,
            norm_u,
            norm_c,
            angle,
            preact,
            out,
        ),
        (
            preact,
            out,
        ),
    )


def gemm_norm_qknorm_rope(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nt",
    norm_rstd: In = None,
    norm_mean: In = None,
    norm_u: In = None,
    norm_c: In = None,
    heads_q: int = 0,
    heads_k: int = 0,
    heads_v: int = 0,
    heads_head_dim: int = 0,
    heads_table: In = None,
    heads_position: In = None,
    q_weight: In = None,
    k_weight: In = None,
    eps: float = 1e-06,
    preact: Out = None,
    out: Out = None,
) -> None:
    """
    As gemm_norm_rope with an RMSNorm of each q and k head (weights q_weight, k_weight (head_dim)) before the rotation;
    preact (optional, needed by the backward) = z.
    """
    pycoda._library.call(
        torch.ops.coda.gemm_norm_qknorm_rope.default,
        (
            a,
            b,
            layout,
            norm_rstd,
            norm_mean,
            norm_u,
            norm_c,
            heads_q,
            heads_k,
            heads_v,
            heads_head_dim,
            heads_table,
            heads_position,
            q_weight,
            k_weight,
            eps,
            preact,
            out,
        ),
        (
            preact,
            out,
        ),
    )


def gemm_lse(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nt",
    norm_rstd: In = None,
    norm_mean: In = None,
    norm_u: In = None,
    norm_c: In = None,
    transform_scale: float = 1.0,
    transform_cap: float = 0.0,
    target: In = None,
    ignore_index: int = -100,
    first_column: int = 0,
    vocabulary: int = 0,  # that targets are in; 0: first_column + V, so that none may lie behind this block
    preact: Out = None,
    logits: Out = None,
    max: Out = None,
    sum: Out = None,
    logit_sum: Out = None,
    target_logit: Out = None,
) -> None:
    """
    z = norm(a b) (M, V), l = transform(z); of each row and tile max and sum of exp(l - max), (M, tiles_n), of one
    pitch; optionally the row sums of l (for label smoothing), preact = z and logits = l (M, V). Where preact is given,
    l is that of z as it is stored there, rounded to its dtype: what cross_entropy_backward makes of preact is then the
    gradient of this loss. Of logits alone it would not be: lse is that of more exact ones. target (M), int32 or int64:
    the target's logit goes to target_logit (M); rows whose target is outside of the block are left as they are.
    `first_column` is the vocabulary index of column 0 where b is a block of the vocabulary.
    """
    pycoda._library.call(
        torch.ops.coda.gemm_lse.default,
        (
            a,
            b,
            layout,
            norm_rstd,
            norm_mean,
            norm_u,
            norm_c,
            transform_scale,
            transform_cap,
            target,
            ignore_index,
            first_column,
            vocabulary,
            preact,
            logits,
            max,
            sum,
            logit_sum,
            target_logit,
        ),
        (
            preact,
            logits,
            max,
            sum,
            logit_sum,
            target_logit,
        ),
    )


def lse_finalize(
    *,
    max: In = None,
    sum: In = None,
    logit_sum: In = None,
    target: In = None,
    target_logit: In = None,
    vocabulary: int = 0,
    options_label_smoothing: float = 0.0,
    options_z_loss: float = 0.0,
    options_ignore_index: int = -100,
    lse: Out = None,  # loss optional; needs target and target_logit
    loss: Out = None,  # loss optional; needs target and target_logit
) -> None:
    """
    lse[m] = log sum exp over the tiles; loss[m] as in CrossEntropy. logit_sum is needed with label smoothing only.
    vocabulary, the number of a row's logits, is needed with label smoothing, and what targets are checked by if given.
    The partial results may have any number of tiles (those of several blocks of the vocabulary side by side).
    """
    pycoda._library.call(
        torch.ops.coda.lse_finalize.default,
        (
            max,
            sum,
            logit_sum,
            target,
            target_logit,
            vocabulary,
            options_label_smoothing,
            options_z_loss,
            options_ignore_index,
            lse,
            loss,
        ),
        (
            lse,
            loss,
        ),
    )


def linear_cross_entropy(
    *,
    a: In = None,
    weight: In = None,
    norm_rstd: In = None,
    norm_mean: In = None,
    norm_u: In = None,
    norm_c: In = None,
    transform_scale: float = 1.0,
    transform_cap: float = 0.0,
    target: In = None,
    options_label_smoothing: float = 0.0,
    options_z_loss: float = 0.0,
    options_ignore_index: int = -100,
    lse: Out = None,
    loss: Out = None,
) -> None:
    """
    Cross-entropy of norm(a b^T) against target: writes lse and loss (M), the latter optional, holds few logits at a
    time: one tile for each thread or, on Hopper where no fused kernel runs, 256 MiB of them at most, and two or, with
    label smoothing, three partial results, (M, tiles_n(V)) each. weight (V, K).
    """
    pycoda._library.call(
        torch.ops.coda.linear_cross_entropy.default,
        (
            a,
            weight,
            norm_rstd,
            norm_mean,
            norm_u,
            norm_c,
            transform_scale,
            transform_cap,
            target,
            options_label_smoothing,
            options_z_loss,
            options_ignore_index,
            lse,
            loss,
        ),
        (
            lse,
            loss,
        ),
    )


def linear_cross_entropy_backward(
    *,
    a: In = None,
    weight: In = None,
    h: In = None,
    norm_rstd: In = None,
    norm_mean: In = None,
    norm_u: In = None,
    norm_c: In = None,
    transform_scale: float = 1.0,
    transform_cap: float = 0.0,
    target: In = None,
    lse: In = None,
    dloss: In = None,
    options_label_smoothing: float = 0.0,
    options_z_loss: float = 0.0,
    options_ignore_index: int = -100,
    chunk: int = 4096,
    da: Out = None,
    dweight: Out = None,
    row_dot: Out = None,
    row_udz: Out = None,
) -> None:
    """
    Its backward, a block of the vocabulary at a time: dloss (M) is the gradient of each row's loss (0 for ignored rows
    is not needed: they contribute nothing). Writes da (M, K) = dz W of dtype T, adds dz^T h to dweight (V, K), fp32 (or
    fp64) or T, optional, and writes the row terms of the norm, sums over the vocabulary as those of NormDot over tiles:
    row_dot (M) = sum of dz z, or of dz (z - norm.c) behind a LayerNorm, which has row_udz (M) = sum of dz norm.u too
    (both optional). `h` is the operand of the weight gradient: a itself without a norm, the normalised x with one.
    Holds at most `chunk` columns of dz, da in fp32, and the partial row terms, (M, tiles) each.
    """
    pycoda._library.call(
        torch.ops.coda.linear_cross_entropy_backward.default,
        (
            a,
            weight,
            h,
            norm_rstd,
            norm_mean,
            norm_u,
            norm_c,
            transform_scale,
            transform_cap,
            target,
            lse,
            dloss,
            options_label_smoothing,
            options_z_loss,
            options_ignore_index,
            chunk,
            da,
            dweight,
            row_dot,
            row_udz,
        ),
        (
            da,
            dweight,
            row_dot,
            row_udz,
        ),
    )


def gemm_rms_backward(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nn",
    x: In = None,
    dx_in: In = None,
    rstd: In = None,
    row_term: In = None,
    weight: In = None,
    dx: Out = None,
    h: Out = None,
    dweight: Out = None,
) -> None:
    """
    Backward of the linear layer behind an RMSNorm. acc = a b = dZ W = dH; x (M, N) the saved residual stream, rstd its
    statistic, weight (N) the norm's, row_term[m] = sum(zdz) / N; dx_in (optional) the gradient from the residual
    branch. dx = dx_in + rstd (dH weight - x rstd row_term); h = x rstd weight (optional); dweight (tiles_m, N)
    (optional): the sums of dH x rstd over the rows of each tile, for sum_columns.
    """
    pycoda._library.call(
        torch.ops.coda.gemm_rms_backward.default,
        (
            a,
            b,
            layout,
            x,
            dx_in,
            rstd,
            row_term,
            weight,
            dx,
            h,
            dweight,
        ),
        (
            dx,
            h,
            dweight,
        ),
    )


def gemm_layernorm_backward(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nn",
    x: In = None,
    dx_in: In = None,
    rstd: In = None,
    mean: In = None,
    zdz: In = None,
    udz: In = None,
    weight: In = None,
    bias: In = None,
    dx: Out = None,
    h: Out = None,
    dweight: Out = None,
    dbias: Out = None,
) -> None:
    """
    Behind a LayerNorm: zdz and udz (M) are the row sums of NormDot divided by N. n = (x - mean) rstd:
    dx = dx_in + rstd (dH weight - udz - n zdz); h = n weight + bias; dweight, dbias (tiles_m, N).
    dx_in, h, dweight and dbias are optional.
    """
    pycoda._library.call(
        torch.ops.coda.gemm_layernorm_backward.default,
        (
            a,
            b,
            layout,
            x,
            dx_in,
            rstd,
            mean,
            zdz,
            udz,
            weight,
            bias,
            dx,
            h,
            dweight,
            dbias,
        ),
        (
            dx,
            h,
            dweight,
            dbias,
        ),
    )


def gemm_glu_backward(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nn",
    function: Literal["swiglu", "geglu_erf", "geglu_tanh", "reglu"] = "swiglu",
    preact: In = None,
    dpreact: Out = None,
    out: Out = None,
    dot_zdz: Out = None,
    dot_udz: Out = None,
    dot_u: In = None,
    dot_c: In = None,
) -> None:
    """
    acc = a b = dY (M, F) of a gated activation whose preact (M, 2F) was saved: dpreact (M, 2F), out = y again
    (optional), and the row terms (optional). Derivatives are derived from the forward function.
    """
    pycoda._library.call(
        torch.ops.coda.gemm_glu_backward.default,
        (
            a,
            b,
            layout,
            function,
            preact,
            dpreact,
            out,
            dot_zdz,
            dot_udz,
            dot_u,
            dot_c,
        ),
        (
            dpreact,
            out,
            dot_zdz,
            dot_udz,
        ),
    )


def gemm_activation_backward(
    *,
    a: In = None,
    b: In = None,
    layout: Literal["nt", "nn", "tn"] = "nn",
    activation: Literal["identity", "silu", "gelu_erf", "gelu_tanh", "relu", "relu_squared"] = "silu",
    preact: In = None,
    dpreact: Out = None,
    out: Out = None,
    dot_zdz: Out = None,
    dot_udz: Out = None,
    dot_u: In = None,
    dot_c: In = None,
) -> None:
    """
    The same for a plain activation; preact, dpreact and out are (M, N).
    """
    pycoda._library.call(
        torch.ops.coda.gemm_activation_backward.default,
        (
            a,
            b,
            layout,
            activation,
            preact,
            dpreact,
            out,
            dot_zdz,
            dot_udz,
            dot_u,
            dot_c,
        ),
        (
            dpreact,
            out,
            dot_zdz,
            dot_udz,
        ),
    )


def rope_backward(
    *,
    y: In = None,
    dy: In = None,
    heads_q: int = 0,
    heads_k: int = 0,
    heads_v: int = 0,
    heads_head_dim: int = 0,
    heads_table: In = None,
    heads_position: In = None,
    dz: Out = None,
    dot_zdz: Out = None,
    dot_udz: Out = None,
    dot_u: In = None,
    dot_c: In = None,
) -> None:
    """
    dz = R^T dy of gemm_norm_rope, from its output y and dy (M, N); in place if dz is dy.
    """
    pycoda._library.call(
        torch.ops.coda.rope_backward.default,
        (
            y,
            dy,
            heads_q,
            heads_k,
            heads_v,
            heads_head_dim,
            heads_table,
            heads_position,
            dz,
            dot_zdz,
            dot_udz,
            dot_u,
            dot_c,
        ),
        (
            dz,
            dot_zdz,
            dot_udz,
        ),
    )


def qknorm_rope_backward(
    *,
    preact: In = None,
    dy: In = None,
    heads_q: int = 0,
    heads_k: int = 0,
    heads_v: int = 0,
    heads_head_dim: int = 0,
    heads_table: In = None,
    heads_position: In = None,
    q_weight: In = None,
    k_weight: In = None,
    eps: float = 1e-06,
    dz: Out = None,
    dweight: Out = None,
    dot_zdz: Out = None,
    dot_udz: Out = None,
    dot_u: In = None,
    dot_c: In = None,
) -> None:
    """
    Backward of gemm_norm_qknorm_rope from its preact and dy. dot's partial results have head_tiles_n columns. dweight
    (optional): (tiles_m, N), per column; summing it over rows and heads (head_weight_gradient) gives the gradients of
    q_weight and k_weight.
    """
    pycoda._library.call(
        torch.ops.coda.qknorm_rope_backward.default,
        (
            preact,
            dy,
            heads_q,
            heads_k,
            heads_v,
            heads_head_dim,
            heads_table,
            heads_position,
            q_weight,
            k_weight,
            eps,
            dz,
            dweight,
            dot_zdz,
            dot_udz,
            dot_u,
            dot_c,
        ),
        (
            dz,
            dweight,
            dot_zdz,
            dot_udz,
        ),
    )


def cross_entropy_backward(
    *,
    preact: In = None,
    transform_scale: float = 1.0,
    transform_cap: float = 0.0,
    target: In = None,
    lse: In = None,
    dloss: In = None,
    options_label_smoothing: float = 0.0,
    options_z_loss: float = 0.0,
    options_ignore_index: int = -100,
    dz: Out = None,
    dot_zdz: Out = None,
    dot_udz: Out = None,
    dot_u: In = None,
    dot_c: In = None,
) -> None:
    """
    dz of the loss of CrossEntropy, from the stored preact of gemm_lse (equal to the logits if transform does nothing)
    and lse; dloss (M), the gradient of each row's loss. In place if dz is preact. Rows with ignore_index get 0.
    """
    pycoda._library.call(
        torch.ops.coda.cross_entropy_backward.default,
        (
            preact,
            transform_scale,
            transform_cap,
            target,
            lse,
            dloss,
            options_label_smoothing,
            options_z_loss,
            options_ignore_index,
            dz,
            dot_zdz,
            dot_udz,
            dot_u,
            dot_c,
        ),
        (
            dz,
            dot_zdz,
            dot_udz,
        ),
    )


def sum_rows(
    *,
    partial: In = None,
    scale: float = 1.0,
    out: Out = None,
) -> None:
    """
    out[m] = scale * sum_t partial[m, t], in a fixed order.
    """
    pycoda._library.call(
        torch.ops.coda.sum_rows.default,
        (
            partial,
            scale,
            out,
        ),
        (out,),
    )


def sum_columns(
    *,
    partial: In = None,
    beta: float = 0.0,
    out: Out = None,
) -> None:
    """
    out[n] = beta * out[n] + sum_t partial[t, n], in a fixed order. beta 0 or 1.
    """
    pycoda._library.call(
        torch.ops.coda.sum_columns.default,
        (
            partial,
            beta,
            out,
        ),
        (out,),
    )


def head_weight_gradient(
    *,
    partial: In = None,
    heads_q: int = 0,
    heads_k: int = 0,
    heads_v: int = 0,
    heads_head_dim: int = 0,
    heads_table: In = None,
    heads_position: In = None,
    beta: float = 0.0,
    dq_weight: Out = None,
    dk_weight: Out = None,
) -> None:
    """
    dq_weight[d] and dk_weight[d] = beta * itself + the sum of partial (tiles_m, N) over its rows and heads. beta 0
    or 1.
    """
    pycoda._library.call(
        torch.ops.coda.head_weight_gradient.default,
        (
            partial,
            heads_q,
            heads_k,
            heads_v,
            heads_head_dim,
            heads_table,
            heads_position,
            beta,
            dq_weight,
            dk_weight,
        ),
        (
            dq_weight,
            dk_weight,
        ),
    )


def embedding_backward(
    *,
    dx: In = None,
    token: In = None,
    dtable: Out = None,
) -> None:
    """
    dtable[token[m]] += dx[m], in an order that depends on the tokens alone; dtable (V, N) is fp32 (or fp64). On sm90
    rows whose token is not in [0, V) are skipped, and sorting takes some 16 bytes a row and two rows of fp32 for
    each 32.
    """
    pycoda._library.call(
        torch.ops.coda.embedding_backward.default,
        (
            dx,
            token,
            dtable,
        ),
        (dtable,),
    )


def cast(
    *,
    input: In = None,
    out: Out = None,
) -> None:
    """
    out = in, element by element, rounded once to out's dtype. fp64 on the CPU only.
    """
    pycoda._library.call(
        torch.ops.coda.cast.default,
        (
            input,
            out,
        ),
        (out,),
    )


def squared_norm(
    *,
    x: In = None,
    beta: float = 0.0,
    out: Out = None,
) -> None:
    """
    out[0] = beta * out[0] + sum of x^2. One call for each gradient, the first with beta = 0 and the others with 1,
    gives the sum over all of them. out is one fp64.
    """
    pycoda._library.call(
        torch.ops.coda.squared_norm.default,
        (
            x,
            beta,
            out,
        ),
        (out,),
    )


def adamw(
    *,
    master: Out = None,
    m: Out = None,
    v: Out = None,
    weight: Out = None,
    gradient: In = None,
    rate: float = 0.0,
    beta1: float = 0.9,
    beta2: float = 0.95,
    eps: float = 1e-08,
    weight_decay: float = 0.0,
    step: int = 1,  # from 1 on
    gradient_scale: float = 1.0,
    squared_norm: In = None,
    clip_norm: float = 0.0,
) -> None:
    """
    One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101) on master weights and moments of fp32 (or fp64 on the
    CPU), all of one size; `weight` (optional) gets the new master, rounded to its dtype. With g = gradient_scale
    gradient:
      m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
      master = master (1 - rate weight_decay) - rate (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps).
    squared_norm (optional), one fp64 from squared_norm over all gradients: g is scaled down to a global norm of
    clip_norm (0: no limit), and nothing is changed where the norm is not finite. It is read on the device; nothing
    waits for it.
    """
    pycoda._library.call(
        torch.ops.coda.adamw.default,
        (
            master,
            m,
            v,
            weight,
            gradient,
            rate,
            beta1,
            beta2,
            eps,
            weight_decay,
            step,
            gradient_scale,
            squared_norm,
            clip_norm,
        ),
        (
            master,
            m,
            v,
            weight,
        ),
    )


def block_pre(
    *,
    table: In = None,  # (V, H)
    token: In = None,  # (M), int32 or int64 in [0, V)
    next_input_norm: In = None,  # (H)
    next_qkv: In = None,  # (W, H)
    next_q_norm: In = None,
    next_k_norm: In = None,
    heads_q: int = 0,
    heads_k: int = 0,
    heads_v: int = 0,
    heads_head_dim: int = 0,
    heads_table: In = None,
    heads_position: In = None,
    eps: float = 1e-05,
    head_eps: float = 1e-06,
    x: Out = None,  # (M, H)
    rstd: Out = None,  # (M) stat
    qkv_preact: Out = None,  # (M, W), optional: for the backward under QK-norm
    qkv: Out = None,  # (M, W)
) -> None:
    """
    x = table[token], its statistics, and the first layer's qkv. x and rstd are what block and the backward take.
    """
    pycoda._library.call(
        torch.ops.coda.block_pre.default,
        (
            table,
            token,
            next_input_norm,
            next_qkv,
            next_q_norm,
            next_k_norm,
            heads_q,
            heads_k,
            heads_v,
            heads_head_dim,
            heads_table,
            heads_position,
            eps,
            head_eps,
            x,
            rstd,
            qkv_preact,
            qkv,
        ),
        (
            x,
            rstd,
            qkv_preact,
            qkv,
        ),
    )


def block(
    *,
    attended: In = None,  # (M, Q), (M, H)
    x: In = None,  # (M, Q), (M, H)
    weights_out: In = None,  # (H, Q)
    weights_post_norm: In = None,  # (H)
    weights_gate_up: In = None,  # (2F, H), rows gate 0, up 0, gate 1, up 1, ...
    weights_down: In = None,  # (H, F)
    next_input_norm: In = None,  # (H)
    next_qkv: In = None,  # (W, H)
    next_q_norm: In = None,
    next_k_norm: In = None,
    heads_q: int = 0,
    heads_k: int = 0,
    heads_v: int = 0,
    heads_head_dim: int = 0,
    heads_table: In = None,
    heads_position: In = None,
    function: Literal["swiglu", "geglu_erf", "geglu_tanh", "reglu"] = "swiglu",
    eps: float = 1e-05,
    head_eps: float = 1e-06,
    x_mid: Out = None,  # (M, H) residual stream before the feed-forward
    rstd_mid: Out = None,  # (M) stat
    preact: Out = None,  # (M, 2F)
    x_next: Out = None,  # (M, H), may be x
    rstd_next: Out = None,  # (M) stat
    qkv_preact: Out = None,  # (M, W), optional: for the backward under QK-norm
    qkv: Out = None,  # (M, W)
) -> None:
    """
    From attention's output and the residual stream to those of the next layer.
    """
    pycoda._library.call(
        torch.ops.coda.block.default,
        (
            attended,
            x,
            weights_out,
            weights_post_norm,
            weights_gate_up,
            weights_down,
            next_input_norm,
            next_qkv,
            next_q_norm,
            next_k_norm,
            heads_q,
            heads_k,
            heads_v,
            heads_head_dim,
            heads_table,
            heads_position,
            function,
            eps,
            head_eps,
            x_mid,
            rstd_mid,
            preact,
            x_next,
            rstd_next,
            qkv_preact,
            qkv,
        ),
        (
            x_mid,
            rstd_mid,
            preact,
            x_next,
            rstd_next,
            qkv_preact,
            qkv,
        ),
    )


def block_post(
    *,
    attended: In = None,
    x: In = None,
    weights_out: In = None,  # (H, Q)
    weights_post_norm: In = None,  # (H)
    weights_gate_up: In = None,  # (2F, H), rows gate 0, up 0, gate 1, up 1, ...
    weights_down: In = None,  # (H, F)
    head_final_norm: In = None,  # (H)
    head_head: In = None,  # (V, H)
    function: Literal["swiglu", "geglu_erf", "geglu_tanh", "reglu"] = "swiglu",
    eps: float = 1e-05,
    transform_scale: float = 1.0,
    transform_cap: float = 0.0,
    target: In = None,  # (M), int32 or int64
    options_label_smoothing: float = 0.0,
    options_z_loss: float = 0.0,
    options_ignore_index: int = -100,
    x_mid: Out = None,
    rstd_mid: Out = None,
    preact: Out = None,
    x_last: Out = None,  # (M, H), may be x
    rstd_last: Out = None,  # (M) stat
    h: Out = None,  # (M, H) x_last times final_norm
    lse: Out = None,  # (M) stat
    loss: Out = None,  # (M) stat
) -> None:
    """
    The last layer, and the loss if head.head is given: lse and loss (M) as in LinearCrossEntropy, without (M, V)
    logits. Without it, which takes no target, lse and loss, h and rstd_last are what any other use of the logits =
    rstd_last (h head^T) needs.
    """
    pycoda._library.call(
        torch.ops.coda.block_post.default,
        (
            attended,
            x,
            weights_out,
            weights_post_norm,
            weights_gate_up,
            weights_down,
            head_final_norm,
            head_head,
            function,
            eps,
            transform_scale,
            transform_cap,
            target,
            options_label_smoothing,
            options_z_loss,
            options_ignore_index,
            x_mid,
            rstd_mid,
            preact,
            x_last,
            rstd_last,
            h,
            lse,
            loss,
        ),
        (
            x_mid,
            rstd_mid,
            preact,
            x_last,
            rstd_last,
            h,
            lse,
            loss,
        ),
    )


def block_pre_backward(
    *,
    token: In = None,
    x: In = None,
    rstd: In = None,
    qkv: In = None,  # (M, W), or qkv_preact under QK-norm: the other one may be absent
    qkv_preact: In = None,
    dqkv: In = None,  # (M, W)
    dx_next: In = None,  # (M, H): gradient that reaches x through the residual stream
    next_input_norm: In = None,  # (H)
    next_qkv: In = None,  # (W, H)
    next_q_norm: In = None,
    next_k_norm: In = None,
    heads_q: int = 0,
    heads_k: int = 0,
    heads_v: int = 0,
    heads_head_dim: int = 0,
    heads_table: In = None,
    heads_position: In = None,
    head_eps: float = 1e-06,
    gradients_input_norm: Out = None,
    gradients_qkv: Out = None,
    gradients_q_norm: Out = None,
    gradients_k_norm: Out = None,
    dtable: Out = None,  # (V, H) stat, optional
    beta: float = 1.0,
    dz: Out = None,  # (M, W) gradient before the rotation, may be dqkv
    dx: Out = None,  # (M, H) gradient of x, may be dx_next
) -> None:
    """
    From the gradients of qkv and of the residual stream to that of the embedding.
    """
    pycoda._library.call(
        torch.ops.coda.block_pre_backward.default,
        (
            token,
            x,
            rstd,
            qkv,
            qkv_preact,
            dqkv,
            dx_next,
            next_input_norm,
            next_qkv,
            next_q_norm,
            next_k_norm,
            heads_q,
            heads_k,
            heads_v,
            heads_head_dim,
            heads_table,
            heads_position,
            head_eps,
            gradients_input_norm,
            gradients_qkv,
            gradients_q_norm,
            gradients_k_norm,
            dtable,
            beta,
            dz,
            dx,
        ),
        (
            gradients_input_norm,
            gradients_qkv,
            gradients_q_norm,
            gradients_k_norm,
            dtable,
            dz,
            dx,
        ),
    )


def block_backward(
    *,
    attended: In = None,
    x_mid: In = None,
    rstd_mid: In = None,
    preact: In = None,
    x_next: In = None,
    rstd_next: In = None,
    qkv: In = None,  # the latter under QK-norm, else the former: the other one may be absent
    qkv_preact: In = None,  # the latter under QK-norm, else the former: the other one may be absent
    dqkv: In = None,  # (M, W)
    dx_next: In = None,  # (M, H): gradient that reaches x_next through the residual stream
    weights_out: In = None,  # (H, Q)
    weights_post_norm: In = None,  # (H)
    weights_gate_up: In = None,  # (2F, H), rows gate 0, up 0, gate 1, up 1, ...
    weights_down: In = None,  # (H, F)
    next_input_norm: In = None,  # (H)
    next_qkv: In = None,  # (W, H)
    next_q_norm: In = None,
    next_k_norm: In = None,
    heads_q: int = 0,
    heads_k: int = 0,
    heads_v: int = 0,
    heads_head_dim: int = 0,
    heads_table: In = None,
    heads_position: In = None,
    function: Literal["swiglu", "geglu_erf", "geglu_tanh", "reglu"] = "swiglu",
    head_eps: float = 1e-06,
    gradients_out: Out = None,
    gradients_post_norm: Out = None,
    gradients_gate_up: Out = None,
    gradients_down: Out = None,
    next_gradients_input_norm: Out = None,
    next_gradients_qkv: Out = None,
    next_gradients_q_norm: Out = None,
    next_gradients_k_norm: Out = None,
    beta: float = 1.0,
    dz: Out = None,  # (M, W) gradient before the rotation, may be dqkv
    dpreact: Out = None,  # (M, 2F), may be preact, which is lost then
    dx: Out = None,  # (M, H) gradient of x, may be dx_next
    dattended: Out = None,  # (M, Q)
) -> None:
    """
    From the gradients of qkv and x_next to those of attended and x.
    """
    pycoda._library.call(
        torch.ops.coda.block_backward.default,
        (
            attended,
            x_mid,
            rstd_mid,
            preact,
            x_next,
            rstd_next,
            qkv,
            qkv_preact,
            dqkv,
            dx_next,
            weights_out,
            weights_post_norm,
            weights_gate_up,
            weights_down,
            next_input_norm,
            next_qkv,
            next_q_norm,
            next_k_norm,
            heads_q,
            heads_k,
            heads_v,
            heads_head_dim,
            heads_table,
            heads_position,
            function,
            head_eps,
            gradients_out,
            gradients_post_norm,
            gradients_gate_up,
            gradients_down,
            next_gradients_input_norm,
            next_gradients_qkv,
            next_gradients_q_norm,
            next_gradients_k_norm,
            beta,
            dz,
            dpreact,
            dx,
            dattended,
        ),
        (
            gradients_out,
            gradients_post_norm,
            gradients_gate_up,
            gradients_down,
            next_gradients_input_norm,
            next_gradients_qkv,
            next_gradients_q_norm,
            next_gradients_k_norm,
            dz,
            dpreact,
            dx,
            dattended,
        ),
    )


def block_post_backward(
    *,
    attended: In = None,
    x_mid: In = None,
    rstd_mid: In = None,
    preact: In = None,
    x_last: In = None,
    rstd_last: In = None,
    h: Out = None,  # (M, H) as block_post left it; overwritten
    dloss: In = None,  # (M) stat: gradient of each row's loss
    weights_out: In = None,  # (H, Q)
    weights_post_norm: In = None,  # (H)
    weights_gate_up: In = None,  # (2F, H), rows gate 0, up 0, gate 1, up 1, ...
    weights_down: In = None,  # (H, F)
    head_final_norm: In = None,  # (H)
    head_head: In = None,  # (V, H)
    function: Literal["swiglu", "geglu_erf", "geglu_tanh", "reglu"] = "swiglu",
    transform_scale: float = 1.0,
    transform_cap: float = 0.0,
    target: In = None,
    options_label_smoothing: float = 0.0,
    options_z_loss: float = 0.0,
    options_ignore_index: int = -100,
    logit_rows: int = 0,  # 0: as many as fill 512 MiB, on sm90 2 GiB
    gradients_out: Out = None,
    gradients_post_norm: Out = None,
    gradients_gate_up: Out = None,
    gradients_down: Out = None,
    head_gradients_final_norm: Out = None,
    head_gradients_head: Out = None,
    beta: float = 1.0,
    lse: Out = None,  # (M) stat
    loss: Out = None,  # (M) stat
    dpreact: Out = None,  # (M, 2F), may be preact, which is lost then
    dx: Out = None,  # (M, H) gradient of x
    dattended: Out = None,  # (M, Q)
) -> None:
    """
    From each row's loss, which it computes itself (block_post without a head is the forward before it), to the
    gradients of attended and x. At most `logit_rows` rows of logits are held, of all V columns; the gradient of the
    head is added to once for each so many rows, and rounded each time to its dtype: with many more rows than that it
    wants to be fp32.
    """
    pycoda._library.call(
        torch.ops.coda.block_post_backward.default,
        (
            attended,
            x_mid,
            rstd_mid,
            preact,
            x_last,
            rstd_last,
            h,
            dloss,
            weights_out,
            weights_post_norm,
            weights_gate_up,
            weights_down,
            head_final_norm,
            head_head,
            function,
            transform_scale,
            transform_cap,
            target,
            options_label_smoothing,
            options_z_loss,
            options_ignore_index,
            logit_rows,
            gradients_out,
            gradients_post_norm,
            gradients_gate_up,
            gradients_down,
            head_gradients_final_norm,
            head_gradients_head,
            beta,
            lse,
            loss,
            dpreact,
            dx,
            dattended,
        ),
        (
            h,
            gradients_out,
            gradients_post_norm,
            gradients_gate_up,
            gradients_down,
            head_gradients_final_norm,
            head_gradients_head,
            lse,
            loss,
            dpreact,
            dx,
            dattended,
        ),
    )


pycoda._library.complete(
    (
        "gemm",
        "gemm_residual",
        "embedding",
        "rms_finalize",
        "layernorm_finalize",
        "gemm_norm",
        "gemm_norm_glu",
        "gemm_norm_rope",
        "gemm_norm_rotate",
        "gemm_norm_qknorm_rope",
        "gemm_lse",
        "lse_finalize",
        "linear_cross_entropy",
        "linear_cross_entropy_backward",
        "gemm_rms_backward",
        "gemm_layernorm_backward",
        "gemm_glu_backward",
        "gemm_activation_backward",
        "rope_backward",
        "qknorm_rope_backward",
        "cross_entropy_backward",
        "sum_rows",
        "sum_columns",
        "head_weight_gradient",
        "embedding_backward",
        "cast",
        "squared_norm",
        "adamw",
        "block_pre",
        "block",
        "block_post",
        "block_pre_backward",
        "block_backward",
        "block_post_backward",
    )
)
