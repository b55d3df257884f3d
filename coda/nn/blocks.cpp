#include "coda/nn/blocks.h"

#include <algorithm>

#include "coda/nn/attention.h"

namespace coda::nn {
namespace {

Matrix partial_of(const Activations& a, std::int64_t rows, std::int64_t tiles) {
  return shaped(a.partial, rows, tiles);
}

/// gradient += a^T b
void add_weight_gradient(HostTensor& gradient, const ConstMatrix& a, const ConstMatrix& b, Traffic& traffic) {
  ops::gemm({.a = a, .b = b, .layout = Layout::tn, .beta = 1, .c = gradient.matrix(), .out = gradient.matrix()});
  traffic.add(a, b);
}

void finalize(const Matrix& sum_sq, std::int64_t width, double eps, const Vector& rstd) {
  ops::rms_finalize({.sum_sq = sum_sq, .n = width, .eps = eps, .rstd = rstd});
}

/// row_term = sum of z dz / width, which a backward program has left in `zdz`.
void reduce_row_term(const Matrix& zdz, std::int64_t width, const Vector& row_term) {
  ops::sum_rows({.partial = zdz, .scale = 1.0 / static_cast<double>(width), .out = row_term});
}

}  // namespace

ops::Heads Blocks::heads(const Activations& a) const {
  return {.q = config_.heads,
          .k = config_.kv_heads,
          .v = config_.kv_heads,
          .head_dim = config_.head_dim,
          .table = a.rotary,
          .position = a.position};
}

void Blocks::forward(Activations& a, Traffic& traffic) const {
  const std::int64_t m = a.h.rows, hidden = config_.hidden;
  const bool empty = weights_.layers.empty();
  const Matrix x = empty ? a.x : a.layers[0].x, sum_sq = partial_of(a, m, ops::tiles_n(hidden));
  ops::embedding({.table = weights_.embed.matrix(),
                  .token = a.tokens,
                  .weight = (empty ? weights_.final_norm : weights_.layers[0].input_norm).vector(),
                  .x = x,
                  .h = a.h,
                  .sum_sq = sum_sq});
  // What is read of the table is as much as x.
  traffic.add(x, x, a.h, sum_sq);
  finalize(sum_sq, hidden, config_.norm_eps, empty ? a.rstd : a.layers[0].rstd);
  if (!empty) project_qkv(a, 0, traffic);
  for (std::size_t layer = 0; layer < a.layers.size(); ++layer) {
    attend(a, layer, traffic);
    block(a, layer, traffic);
  }
}

void Blocks::project_qkv(Activations& a, std::size_t layer, Traffic& traffic) const {
  const LayerWeights& w = weights_.layers[layer];
  const LayerActivations& l = a.layers[layer];
  if (config_.qk_norm) {
    ops::gemm_norm_qknorm_rope({.a = a.h,
                                .b = w.qkv.matrix(),
                                .norm = {.rstd = l.rstd},
                                .heads = heads(a),
                                .q_weight = w.q_norm.vector(),
                                .k_weight = w.k_norm.vector(),
                                .eps = config_.norm_eps,
                                .preact = l.qkv_preact,
                                .out = l.qkv});
  } else {
    ops::gemm_norm_rope({.a = a.h, .b = w.qkv.matrix(), .norm = {.rstd = l.rstd}, .heads = heads(a), .out = l.qkv});
  }
  traffic.add(a.h, l.rstd, l.qkv_preact, l.qkv);
}

void Blocks::attend(Activations& a, std::size_t layer, Traffic& traffic) const {
  const LayerActivations& l = a.layers[layer];
  const std::int64_t q = config_.q_rows(), kv = config_.kv_rows();
  attention({.batch = a.batch,
             .heads = config_.heads,
             .kv_heads = config_.kv_heads,
             .head_dim = config_.head_dim,
             .q = columns_of(l.qkv, 0, q),
             .k = columns_of(l.context, q, kv),
             .v = columns_of(l.context, q + kv, kv),
             .out = l.attended,
             .lse = l.lse});
  traffic.add(l.qkv, l.attended, l.lse);
}

void Blocks::block(Activations& a, std::size_t layer, Traffic& traffic) const {
  const LayerWeights& w = weights_.layers[layer];
  const LayerActivations& l = a.layers[layer];
  const bool last = layer + 1 == a.layers.size();
  const Matrix x_next = last ? a.x : a.layers[layer + 1].x;
  const Vector rstd_next = last ? a.rstd : a.layers[layer + 1].rstd;
  const Matrix sum_sq = partial_of(a, a.h.rows, ops::tiles_n(config_.hidden));
  ops::gemm_residual({.a = l.attended,
                      .b = w.out.matrix(),
                      .residual = l.x,
                      .weight = w.post_norm.vector(),
                      .x = l.x_mid,
                      .h = a.h,
                      .sum_sq = sum_sq});
  traffic.add(l.attended, l.x, l.x_mid, a.h, sum_sq);
  finalize(sum_sq, config_.hidden, config_.norm_eps, l.rstd_mid);
  ops::gemm_norm_glu({.a = a.h, .b = w.gate_up.matrix(), .norm = {.rstd = l.rstd_mid}, .preact = l.preact, .out = a.y});
  traffic.add(a.h, l.rstd_mid, l.preact, a.y);
  ops::gemm_residual({.a = a.y,
                      .b = w.down.matrix(),
                      .residual = l.x_mid,
                      .weight = (last ? weights_.final_norm : weights_.layers[layer + 1].input_norm).vector(),
                      .x = x_next,
                      .h = a.h,
                      .sum_sq = sum_sq});
  traffic.add(a.y, l.x_mid, x_next, a.h, sum_sq);
  finalize(sum_sq, config_.hidden, config_.norm_eps, rstd_next);
  if (!last) project_qkv(a, layer + 1, traffic);
}

void Blocks::loss(Activations& a, const ConstVector& targets, Traffic& traffic) const {
  ops::linear_cross_entropy({.a = a.h,
                             .weight = weights_.head_matrix().matrix(),
                             .norm = {.rstd = a.rstd},
                             .target = targets,
                             .lse = a.logits_lse,
                             .loss = a.loss});
  traffic.add(a.h, a.rstd, a.logits_lse, a.loss);
}

void Blocks::logits(const Activations& a, const Matrix& out) const {
  ops::gemm_norm({.a = a.h, .b = weights_.head_matrix().matrix(), .norm = {.rstd = a.rstd}, .out = out});
}

void Blocks::loss_and_gradient(Activations& a, const ConstVector& targets, Weights& gradients, Traffic& traffic) const {
  const HostTensor& head = weights_.head_matrix();
  const std::int64_t m = a.h.rows, step = a.logits.rows, tiles = ops::tiles_n(config_.vocab);
  for (std::int64_t first = 0; first < m; first += step) {
    const std::int64_t rows = std::min(step, m - first);
    const Matrix z = rows_of(a.logits, 0, rows), h = rows_of(a.h, first, rows), x = rows_of(a.x, first, rows);
    const Matrix max = shaped(a.partial_max, rows, tiles), sum = partial_of(a, rows, tiles);
    const Matrix dx = rows_of(a.dx, first, rows);
    const ConstVector target = part_of(targets, first, rows);
    const Vector rstd = part_of(a.rstd, first, rows), hit = part_of(a.target_logit, 0, rows);
    const Vector lse = part_of(a.logits_lse, first, rows), row_term = part_of(a.row_term, 0, rows);
    const Matrix dweight = shaped(a.dweight, ops::tiles_m(rows), config_.hidden);
    ops::gemm_lse({.a = h,
                   .b = head.matrix(),
                   .norm = {.rstd = rstd},
                   .target = target,
                   .preact = z,
                   .max = max,
                   .sum = sum,
                   .target_logit = hit});
    ops::lse_finalize({.max = max,
                       .sum = sum,
                       .target = target,
                       .target_logit = hit,
                       .lse = lse,
                       .loss = part_of(a.loss, first, rows)});
    traffic.add(h, rstd, z, max, sum, hit);
    ops::cross_entropy_backward({.preact = z,
                                 .target = target,
                                 .lse = lse,
                                 .dloss = part_of(a.dloss, first, rows),
                                 .dz = z,
                                 .dot = {.zdz = sum}});
    traffic.add(z, z, sum);
    reduce_row_term(sum, config_.hidden, row_term);
    ops::gemm_rms_backward({.a = z,
                            .b = head.matrix(),
                            .x = x,
                            .rstd = rstd,
                            .row_term = row_term,
                            .weight = weights_.final_norm.vector(),
                            .dx = dx,
                            .h = h,
                            .dweight = dweight});
    traffic.add(z, x, dx, h, dweight);
    add_weight_gradient(gradients.head_matrix(), z, h, traffic);
    ops::sum_columns({.partial = dweight, .beta = 1, .out = gradients.final_norm.vector()});
  }
}

void Blocks::backward(Activations& a, Weights& gradients, Traffic& traffic) const {
  for (std::size_t layer = a.layers.size(); layer-- > 0;) {
    block_backward(a, layer, gradients, traffic);
    qkv_backward(a, layer, gradients, traffic);
  }
  ops::embedding_backward({.dx = a.dx, .token = a.tokens, .dtable = gradients.embed.matrix()});
  traffic.add(a.dx);
}

void Blocks::block_backward(Activations& a, std::size_t layer, Weights& gradients, Traffic& traffic) const {
  const LayerWeights& w = weights_.layers[layer];
  LayerWeights& g = gradients.layers[layer];
  const LayerActivations& l = a.layers[layer];
  const std::int64_t m = a.h.rows;
  const Matrix zdz = partial_of(a, m, ops::tiles_n(config_.ffn));
  const Matrix dweight = shaped(a.dweight, ops::tiles_m(m), config_.hidden);
  ops::gemm_glu_backward(
      {.a = a.dx, .b = w.down.matrix(), .preact = l.preact, .dpreact = l.preact, .out = a.y, .dot = {.zdz = zdz}});
  traffic.add(a.dx, l.preact, l.preact, a.y, zdz);
  add_weight_gradient(g.down, a.dx, a.y, traffic);
  reduce_row_term(zdz, config_.hidden, a.row_term);
  ops::gemm_rms_backward({.a = l.preact,
                          .b = w.gate_up.matrix(),
                          .x = l.x_mid,
                          .dx_in = a.dx,
                          .rstd = l.rstd_mid,
                          .row_term = a.row_term,
                          .weight = w.post_norm.vector(),
                          .dx = a.dx,
                          .h = a.h,
                          .dweight = dweight});
  traffic.add(l.preact, l.x_mid, a.dx, a.dx, a.h, dweight);
  add_weight_gradient(g.gate_up, l.preact, a.h, traffic);
  ops::sum_columns({.partial = dweight, .beta = 1, .out = g.post_norm.vector()});
  ops::gemm({.a = a.dx, .b = w.out.matrix(), .layout = Layout::nn, .out = a.dattended});
  traffic.add(a.dx, a.dattended);
  add_weight_gradient(g.out, a.dx, l.attended, traffic);
}

void Blocks::qkv_backward(Activations& a, std::size_t layer, Weights& gradients, Traffic& traffic) const {
  const LayerWeights& w = weights_.layers[layer];
  LayerWeights& g = gradients.layers[layer];
  const LayerActivations& l = a.layers[layer];
  const std::int64_t m = a.h.rows, q = config_.q_rows(), kv = config_.kv_rows(), qkv = config_.qkv_rows();
  attention_backward({.batch = a.batch,
                      .heads = config_.heads,
                      .kv_heads = config_.kv_heads,
                      .head_dim = config_.head_dim,
                      .q = columns_of(l.qkv, 0, q),
                      .k = columns_of(l.qkv, q, kv),
                      .v = columns_of(l.qkv, q + kv, kv),
                      .out = l.attended,
                      .dout = a.dattended,
                      .lse = l.lse,
                      .dq = columns_of(a.dqkv, 0, q),
                      .dk = columns_of(a.dqkv, q, kv),
                      .dv = columns_of(a.dqkv, q + kv, kv)});
  traffic.add(l.qkv, l.attended, a.dattended, l.lse, a.dqkv);
  if (config_.qk_norm) {
    const Matrix zdz = partial_of(a, m, ops::head_tiles_n(qkv, config_.head_dim));
    const Matrix dweight = shaped(a.dweight, ops::tiles_m(m), qkv);
    ops::qknorm_rope_backward({.preact = l.qkv_preact,
                               .dy = a.dqkv,
                               .heads = heads(a),
                               .q_weight = w.q_norm.vector(),
                               .k_weight = w.k_norm.vector(),
                               .eps = config_.norm_eps,
                               .dz = a.dqkv,
                               .dweight = dweight,
                               .dot = {.zdz = zdz}});
    traffic.add(l.qkv_preact, a.dqkv, a.dqkv, dweight, zdz);
    reduce_row_term(zdz, config_.hidden, a.row_term);
    ops::head_weight_gradient({.partial = dweight,
                               .heads = heads(a),
                               .beta = 1,
                               .dq_weight = g.q_norm.vector(),
                               .dk_weight = g.k_norm.vector()});
  } else {
    const Matrix zdz = partial_of(a, m, ops::tiles_n(qkv));
    ops::rope_backward({.y = l.qkv, .dy = a.dqkv, .heads = heads(a), .dz = a.dqkv, .dot = {.zdz = zdz}});
    traffic.add(l.qkv, a.dqkv, a.dqkv, zdz);
    reduce_row_term(zdz, config_.hidden, a.row_term);
  }
  const Matrix dweight = shaped(a.dweight, ops::tiles_m(m), config_.hidden);
  ops::gemm_rms_backward({.a = a.dqkv,
                          .b = w.qkv.matrix(),
                          .x = l.x,
                          .dx_in = a.dx,
                          .rstd = l.rstd,
                          .row_term = a.row_term,
                          .weight = w.input_norm.vector(),
                          .dx = a.dx,
                          .h = a.h,
                          .dweight = dweight});
  traffic.add(a.dqkv, l.x, a.dx, a.dx, a.h, dweight);
  add_weight_gradient(g.qkv, a.dqkv, a.h, traffic);
  ops::sum_columns({.partial = dweight, .beta = 1, .out = g.input_norm.vector()});
}

}  // namespace coda::nn
