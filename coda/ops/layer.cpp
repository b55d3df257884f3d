// The layer calls: each is checked as a whole, then lines up the calls of its programs.
#include "coda/ops/layer.h"

#include <algorithm>

#include "coda/ops/layer_check.h"
#include "coda/ops/layer_memory.h"

namespace coda::ops {
namespace {

template <class Args, class... Views>
void moved(const Args& args, const Views&... views) {
  if (args.traffic) args.traffic->add(views...);
}

// ---- forward steps

/// out-proj + residual + partial norm -> finalize -> gate/up + scale + activation -> down + residual + partial norm ->
/// finalize. Leaves x_out, its rstd, and h = x_out times norm, the next product's operand.
template <class Args>
void feed_forward(const Args& args, const ConstVector& norm, const Matrix& h, const FeedForwardMemory& memory,
                  const Matrix& x_out, const Vector& rstd_out) {
  const std::int64_t hidden = x_out.cols;
  const Matrix &y = memory.y, &sum_sq = memory.partial;
  // What is not kept lies where the output goes.
  const Matrix x_mid = args.x_mid ? args.x_mid : x_out;
  const Vector rstd_mid = args.rstd_mid ? args.rstd_mid : rstd_out;
  gemm_residual({.a = args.attended,
                 .b = args.weights.out,
                 .residual = args.x,
                 .weight = args.weights.post_norm,
                 .x = x_mid,
                 .h = h,
                 .sum_sq = sum_sq,
                 .on = args.on});
  moved(args, args.attended, args.x, x_mid, h, sum_sq);
  rms_finalize({.sum_sq = sum_sq, .n = hidden, .eps = args.eps, .rstd = rstd_mid, .on = args.on});
  gemm_norm_glu({.a = h,
                 .b = args.weights.gate_up,
                 .norm = {.rstd = rstd_mid},
                 .function = args.function,
                 .preact = args.preact,
                 .out = y,
                 .on = args.on});
  moved(args, h, rstd_mid, args.preact, y);
  gemm_residual({.a = y,
                 .b = args.weights.down,
                 .residual = x_mid,
                 .weight = norm,
                 .x = x_out,
                 .h = h,
                 .sum_sq = sum_sq,
                 .on = args.on});
  moved(args, y, x_mid, x_out, h, sum_sq);
  rms_finalize({.sum_sq = sum_sq, .n = hidden, .eps = args.eps, .rstd = rstd_out, .on = args.on});
}

/// QKV + scale [+ norm of each head] + RoPE.
template <class Args>
void project(const Args& args, const ConstMatrix& h, const ConstVector& rstd) {
  if (args.next.q_norm) {
    gemm_norm_qknorm_rope({.a = h,
                           .b = args.next.qkv,
                           .norm = {.rstd = rstd},
                           .heads = args.heads,
                           .q_weight = args.next.q_norm,
                           .k_weight = args.next.k_norm,
                           .eps = args.head_eps,
                           .preact = args.qkv_preact,
                           .out = args.qkv,
                           .on = args.on});
  } else {
    gemm_norm_rope(
        {.a = h, .b = args.next.qkv, .norm = {.rstd = rstd}, .heads = args.heads, .out = args.qkv, .on = args.on});
  }
  moved(args, h, rstd, args.qkv_preact, args.qkv);
}

// ---- backward steps

/// gradient = a^T b, or is added to.
template <class Args>
void weight_gradient(const Args& args, const Matrix& gradient, double beta, const ConstMatrix& a,
                     const ConstMatrix& b) {
  if (!gradient) return;
  gemm({.a = a, .b = b, .layout = Layout::tn, .beta = beta, .c = gradient, .out = gradient, .on = args.on});
  moved(args, a, b);
}

template <class Args>
void norm_weight_gradient(const Args& args, const Vector& gradient, double beta, const ConstMatrix& partial) {
  if (gradient) sum_columns({.partial = partial, .beta = beta, .out = gradient, .on = args.on});
}

/// row_term = sum of z dz / width, which a backward program has left in `zdz`.
void reduce_row_term(const Target& on, const Matrix& zdz, std::int64_t width, const Vector& row_term) {
  sum_rows({.partial = zdz, .scale = 1.0 / static_cast<double>(width), .out = row_term, .on = on});
}

/// What is not wanted is not computed either.
template <class View, class Wanted>
View where(const Wanted& wanted, const View& view) {
  return wanted ? view : View();
}

/// From dqkv to dz and dx, behind the norm of the stream x.
template <class Args>
void project_backward(const Args& args, const QkvGradients& gradients, const ConstMatrix& x, const ConstVector& rstd,
                      const BackwardMemory& memory) {
  const std::int64_t m = x.rows, hidden = x.cols, width = args.dqkv.cols;
  const Backend backend = args.on.backend;
  if (args.next.q_norm) {
    const Matrix zdz = shaped(memory.partial, m, head_tiles_n(width, args.heads.head_dim, backend));
    const Matrix dweight = where(gradients.q_norm, shaped(memory.dweight, tiles_m(m, backend), width));
    qknorm_rope_backward({.preact = args.qkv_preact,
                          .dy = args.dqkv,
                          .heads = args.heads,
                          .q_weight = args.next.q_norm,
                          .k_weight = args.next.k_norm,
                          .eps = args.head_eps,
                          .dz = args.dz,
                          .dweight = dweight,
                          .dot = {.zdz = zdz},
                          .on = args.on});
    moved(args, args.qkv_preact, args.dqkv, args.dz, dweight, zdz);
    reduce_row_term(args.on, zdz, hidden, memory.row_term);
    if (gradients.q_norm) {
      head_weight_gradient({.partial = dweight,
                            .heads = args.heads,
                            .beta = args.beta,
                            .dq_weight = gradients.q_norm,
                            .dk_weight = gradients.k_norm,
                            .on = args.on});
    }
  } else {
    const Matrix zdz = shaped(memory.partial, m, tiles_n(width, backend));
    rope_backward(
        {.y = args.qkv, .dy = args.dqkv, .heads = args.heads, .dz = args.dz, .dot = {.zdz = zdz}, .on = args.on});
    moved(args, args.qkv, args.dqkv, args.dz, zdz);
    reduce_row_term(args.on, zdz, hidden, memory.row_term);
  }
  const Matrix h = where(gradients.qkv, memory.h);
  const Matrix dweight = where(gradients.input_norm, shaped(memory.dweight, tiles_m(m, backend), hidden));
  gemm_rms_backward({.a = args.dz,
                     .b = args.next.qkv,
                     .x = x,
                     .dx_in = args.dx_next,
                     .rstd = rstd,
                     .row_term = memory.row_term,
                     .weight = args.next.input_norm,
                     .dx = args.dx,
                     .h = h,
                     .dweight = dweight,
                     .on = args.on});
  moved(args, args.dz, x, args.dx_next, args.dx, h, dweight);
  weight_gradient(args, gradients.qkv, args.beta, args.dz, h);
  norm_weight_gradient(args, gradients.input_norm, args.beta, dweight);
}

/// From dx, the gradient of the stream after the block, to that before it, in place, and dattended.
template <class Args>
void feed_forward_backward(const Args& args, const BackwardMemory& memory) {
  const std::int64_t m = args.dx.rows, hidden = args.dx.cols;
  const Backend backend = args.on.backend;
  const BlockGradients& gradients = args.gradients;
  const Matrix zdz = shaped(memory.partial, m, tiles_n(args.weights.down.cols, backend));
  const Matrix y = where(gradients.down, memory.y);
  gemm_glu_backward({.a = args.dx,
                     .b = args.weights.down,
                     .function = args.function,
                     .preact = args.preact,
                     .dpreact = args.dpreact,
                     .out = y,
                     .dot = {.zdz = zdz},
                     .on = args.on});
  moved(args, args.dx, args.preact, args.dpreact, y, zdz);
  weight_gradient(args, gradients.down, args.beta, args.dx, y);
  reduce_row_term(args.on, zdz, hidden, memory.row_term);
  const Matrix h = where(gradients.gate_up, memory.h);
  const Matrix dweight = where(gradients.post_norm, shaped(memory.dweight, tiles_m(m, backend), hidden));
  gemm_rms_backward({.a = args.dpreact,
                     .b = args.weights.gate_up,
                     .x = args.x_mid,
                     .dx_in = args.dx,
                     .rstd = args.rstd_mid,
                     .row_term = memory.row_term,
                     .weight = args.weights.post_norm,
                     .dx = args.dx,
                     .h = h,
                     .dweight = dweight,
                     .on = args.on});
  moved(args, args.dpreact, args.x_mid, args.dx, args.dx, h, dweight);
  weight_gradient(args, gradients.gate_up, args.beta, args.dpreact, h);
  norm_weight_gradient(args, gradients.post_norm, args.beta, dweight);
  gemm({.a = args.dx, .b = args.weights.out, .layout = Layout::nn, .out = args.dattended, .on = args.on});
  moved(args, args.dx, args.dattended);
  weight_gradient(args, gradients.out, args.beta, args.dx, args.attended);
}

/// Loss of each row and dx, the gradient of x_last, a block of rows at a time: the logits of all are never held.
void head_backward(const BlockPostBackward& args, const HeadMemory& memory) {
  const std::int64_t m = args.h.rows, hidden = args.h.cols, vocabulary = args.head.head.rows;
  std::int64_t first = 0;
  do {  // once at least: without tokens the gradients are written all the same
    const std::int64_t rows = std::min(memory.rows, m - first);
    const double beta = first == 0 ? args.beta : 1;
    const Matrix z = rows_of(memory.logits, 0, rows), h = rows_of(args.h, first, rows);
    const ConstMatrix x = rows_of(args.x_last, first, rows);
    const Matrix dx = rows_of(args.dx, first, rows);
    const Matrix max = rows_of(memory.max, 0, rows), sum = rows_of(memory.sum, 0, rows);
    const Matrix logit_sum = where(memory.logit_sum, rows_of(memory.logit_sum, 0, rows));
    const ConstVector target = part_of(args.target, first, rows), rstd = part_of(args.rstd_last, first, rows);
    const Vector hit = part_of(memory.target_logit, 0, rows), row_term = part_of(memory.row_term, 0, rows);
    const Vector lse = part_of(args.lse, first, rows);
    const Matrix dweight =
        where(args.head_gradients.final_norm, rows_of(memory.dweight, 0, tiles_m(rows, args.on.backend)));
    gemm_lse({.a = h,
              .b = args.head.head,
              .norm = {.rstd = rstd},
              .transform = args.transform,
              .target = target,
              .ignore_index = args.options.ignore_index,
              .preact = z,
              .max = max,
              .sum = sum,
              .logit_sum = logit_sum,
              .target_logit = hit,
              .on = args.on});
    lse_finalize({.max = max,
                  .sum = sum,
                  .logit_sum = logit_sum,
                  .target = target,
                  .target_logit = hit,
                  .vocabulary = std::max<std::int64_t>(vocabulary, 1),  // without one all rows are ignored
                  .options = args.options,
                  .lse = lse,
                  .loss = part_of(args.loss, first, rows),
                  .on = args.on});
    moved(args, h, rstd, z, max, sum, logit_sum, hit);
    const Matrix zdz = sum;  // no longer needed
    cross_entropy_backward({.preact = z,
                            .transform = args.transform,
                            .target = target,
                            .lse = lse,
                            .dloss = part_of(args.dloss, first, rows),
                            .options = args.options,
                            .dz = z,
                            .dot = {.zdz = zdz},
                            .on = args.on});
    moved(args, z, z, zdz);
    reduce_row_term(args.on, zdz, hidden, row_term);
    gemm_rms_backward({.a = z,
                       .b = args.head.head,
                       .x = x,
                       .rstd = rstd,
                       .row_term = row_term,
                       .weight = args.head.final_norm,
                       .dx = dx,
                       .h = h,
                       .dweight = dweight,
                       .on = args.on});
    moved(args, z, x, dx, h, dweight);
    weight_gradient(args, args.head_gradients.head, beta, z, h);
    norm_weight_gradient(args, args.head_gradients.final_norm, beta, dweight);
    first += rows;
  } while (first < m);
}

}  // namespace

void block_pre(const BlockPre& args) {
  Check check("block_pre", args.on);
  const LayerShape s = check_layer(check, args);
  const Scratch scratch(check, args.on, args.workspace, block_pre_workspace_bytes(s));
  Arena arena = scratch.arena();
  const ForwardMemory memory(arena, s);
  embedding({.table = args.table,
             .token = args.token,
             .weight = args.next.input_norm,
             .x = args.x,
             .h = memory.h,
             .sum_sq = memory.partial,
             .on = args.on});
  moved(args, args.x, args.x, memory.h, memory.partial);  // what is read of the table is as much as x
  rms_finalize({.sum_sq = memory.partial, .n = s.hidden, .eps = args.eps, .rstd = args.rstd, .on = args.on});
  project(args, memory.h, args.rstd);
}

void block(const Block& args) {
  Check check("block", args.on);
  const LayerShape s = check_layer(check, args);
  const Scratch scratch(check, args.on, args.workspace, block_workspace_bytes(s));
  Arena arena = scratch.arena();
  const ForwardMemory memory(arena, s);
  feed_forward(args, args.next.input_norm, memory.h, memory, args.x_next, args.rstd_next);
  project(args, memory.h, args.rstd_next);
}

void block_post(const BlockPost& args) {
  Check check("block_post", args.on);
  const LayerShape s = check_layer(check, args);
  const Scratch scratch(check, args.on, args.workspace, block_post_workspace_bytes(s));
  {
    Arena arena = scratch.arena();
    const FeedForwardMemory memory(arena, s);
    feed_forward(args, args.head.final_norm, args.h, memory, args.x_last, args.rstd_last);
  }
  if (!args.head.head) return;
  Arena arena = scratch.arena();
  const LossMemory memory(arena, s);
  gemm_lse({.a = args.h,
            .b = args.head.head,
            .norm = {.rstd = args.rstd_last},
            .transform = args.transform,
            .target = args.target,
            .ignore_index = args.options.ignore_index,
            .max = memory.max,
            .sum = memory.sum,
            .logit_sum = memory.logit_sum,
            .target_logit = memory.target_logit,
            .on = args.on});
  lse_finalize({.max = memory.max,
                .sum = memory.sum,
                .logit_sum = memory.logit_sum,
                .target = args.target,
                .target_logit = memory.target_logit,
                .vocabulary = std::max<std::int64_t>(s.vocabulary, 1),  // without one all rows are ignored
                .options = args.options,
                .lse = args.lse,
                .loss = args.loss,
                .on = args.on});
  moved(args, args.h, args.rstd_last, args.lse, args.loss);
}

void block_pre_backward(const BlockPreBackward& args) {
  Check check("block_pre_backward", args.on);
  const LayerShape s = check_layer(check, args);
  const Scratch scratch(check, args.on, args.workspace, block_pre_backward_workspace_bytes(s));
  Arena arena = scratch.arena();
  project_backward(args, args.gradients, args.x, args.rstd, BackwardMemory(arena, s));
  if (!args.dtable) return;
  embedding_backward({.dx = args.dx, .token = args.token, .dtable = args.dtable, .on = args.on});
  moved(args, args.dx);
}

void block_backward(const BlockBackward& args) {
  Check check("block_backward", args.on);
  const LayerShape s = check_layer(check, args);
  const Scratch scratch(check, args.on, args.workspace, block_backward_workspace_bytes(s));
  Arena arena = scratch.arena();
  const BackwardMemory memory(arena, s);
  project_backward(args, args.next_gradients, args.x_next, args.rstd_next, memory);
  feed_forward_backward(args, memory);
}

void block_post_backward(const BlockPostBackward& args) {
  Check check("block_post_backward", args.on);
  const LayerShape s = check_layer(check, args);
  const Scratch scratch(check, args.on, args.workspace, block_post_backward_workspace_bytes(s));
  {
    Arena arena = scratch.arena();
    head_backward(args, HeadMemory(arena, s));
  }
  Arena arena = scratch.arena();
  feed_forward_backward(args, BackwardMemory(arena, s));
}

}  // namespace coda::ops
