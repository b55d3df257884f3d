#include "coda/nn/unfused.h"

#include <algorithm>

#include "coda/nn/arena.h"
#include "coda/nn/attention.h"
#include "coda/nn/passes.h"
#include "coda/nn/rotary.h"

namespace coda::nn {

UnfusedModel::UnfusedModel(const ModelConfig& config, const Weights& weights) : config_(config), weights_(weights) {
  config_.dtype = weights.embed.dtype();
  check_weights("unfused model: weights", config_, weights, config_.dtype);
}

void UnfusedModel::lay_out(Arena& arena) {
  const ModelConfig& c = config_;
  const DType t = c.dtype, stats = gradient_dtype(t);
  const std::int64_t m = batch_ * seq_;
  const auto hidden = [&] { return arena.matrix(t, m, c.hidden); };
  layers_.resize(static_cast<std::size_t>(c.layers));
  for (Layer& l : layers_) {
    l.x = hidden();
    l.normed = hidden();
    l.rstd = arena.vector(stats, m);
    if (c.qk_norm) l.qkv_preact = arena.matrix(t, m, c.qkv_rows());
    l.qkv = arena.matrix(t, m, c.qkv_rows());
    l.attended = arena.matrix(t, m, c.q_rows());
    l.lse = arena.matrix(stats, m, c.heads);
    l.x_mid = hidden();
    l.normed_mid = hidden();
    l.rstd_mid = arena.vector(stats, m);
    l.gate_up = arena.matrix(t, m, 2 * c.ffn);
    l.y = arena.matrix(t, m, c.ffn);
  }
  x_ = hidden();
  normed_ = hidden();
  rstd_ = arena.vector(stats, m);
  logits_ = arena.matrix(t, m, c.vocab);
  lse_ = arena.vector(stats, m);
  loss_ = arena.vector(stats, m);
  rotary_ = arena.matrix(stats, seq_, c.head_dim);
  projected_ = hidden();
  dx_ = hidden();
  dnormed_ = hidden();
  dattended_ = arena.matrix(t, m, c.q_rows());
  dqkv_ = arena.matrix(t, m, c.qkv_rows());
  dy_ = arena.matrix(t, m, c.ffn);
  dgate_up_ = arena.matrix(t, m, 2 * c.ffn);
  dweight_ = arena.vector(stats, passes::row_blocks(m) * std::max(c.hidden, c.qkv_rows()));
}

void UnfusedModel::prepare(const Batch& batch) {
  check_batch(batch, config_.vocab);
  if (memory_.present() && batch.rows == batch_ && batch.seq == seq_) return;
  batch_ = batch.rows;
  seq_ = batch.seq;
  memory_ = HostTensor();  // as in Model::prepare
  position_ = positions(batch_, seq_);
  memory_ = place([&](Arena& arena) { lay_out(arena); });
  held_ = static_cast<std::int64_t>(memory_.bytes().size());
  fill_rotary_table(rotary_, config_);
}

ops::Heads UnfusedModel::heads() const {
  return {.q = config_.heads,
          .k = config_.kv_heads,
          .v = config_.kv_heads,
          .head_dim = config_.head_dim,
          .table = rotary_,
          .position = position_.vector()};
}

void UnfusedModel::linear(const ConstMatrix& in, const HostTensor& weight, const Matrix& out) {
  ops::gemm({.a = in, .b = weight.matrix(), .out = out});
  traffic_.add(in, out);
}

void UnfusedModel::linear_backward(const ConstMatrix& in, const HostTensor& weight, const ConstMatrix& dout,
                                   const Matrix& din, HostTensor& gradient) {
  ops::gemm({.a = dout, .b = weight.matrix(), .layout = Layout::nn, .out = din});
  ops::gemm({.a = dout, .b = in, .layout = Layout::tn, .beta = 1, .c = gradient.matrix(), .out = gradient.matrix()});
  traffic_.add(dout, din, dout, in);
}

void UnfusedModel::norm(const Matrix& x, const HostTensor& weight, const Matrix& out, const Vector& rstd) {
  passes::rms_norm(x, weight.vector(), config_.norm_eps, out, rstd);
  traffic_.add(x, out, rstd);
}

void UnfusedModel::norm_backward(const Matrix& x, const HostTensor& weight, const Vector& rstd, const Matrix& dout,
                                 const Matrix& dx, HostTensor& gradient) {
  const Matrix dweight = shaped(dweight_, passes::row_blocks(x.rows), x.cols);
  passes::rms_norm_backward(x, weight.vector(), rstd, dout, dx, dweight);
  traffic_.add(x, rstd, dout, dx, dweight);
  ops::sum_columns({.partial = dweight, .beta = 1, .out = gradient.vector()});
}

void UnfusedModel::add(const Matrix& a, const Matrix& b, const Matrix& out) {
  passes::add(a, b, out);
  traffic_.add(a, b, out);
}

void UnfusedModel::forward(const Batch& batch) {
  traffic_.clear();
  const Matrix first = layers_.empty() ? x_ : layers_[0].x;
  passes::embedding(weights_.embed.matrix(), tokens_of(batch.inputs), first);
  traffic_.add(first, first);
  for (std::size_t i = 0; i < layers_.size(); ++i) layer_forward(i);
  norm(x_, weights_.final_norm, normed_, rstd_);
  linear(normed_, weights_.head_matrix(), logits_);
  passes::cross_entropy(logits_, tokens_of(batch.targets), lse_, loss_);
  traffic_.add(logits_, lse_, loss_);
}

void UnfusedModel::layer_forward(std::size_t index) {
  const LayerWeights& w = weights_.layers[index];
  const Layer& l = layers_[index];
  const std::int64_t q = config_.q_rows(), kv = config_.kv_rows();
  norm(l.x, w.input_norm, l.normed, l.rstd);
  if (config_.qk_norm) {
    linear(l.normed, w.qkv, l.qkv_preact);
    passes::head_norm(l.qkv_preact, heads(), w.q_norm.vector(), w.k_norm.vector(), config_.norm_eps, l.qkv);
    traffic_.add(l.qkv_preact, l.qkv);
  } else {
    linear(l.normed, w.qkv, l.qkv);
  }
  passes::rotate(l.qkv, heads(), false, l.qkv);
  traffic_.add(columns_of(l.qkv, 0, q + kv), columns_of(l.qkv, 0, q + kv));
  attention({.batch = batch_,
             .heads = config_.heads,
             .kv_heads = config_.kv_heads,
             .head_dim = config_.head_dim,
             .q = columns_of(l.qkv, 0, q),
             .k = columns_of(l.qkv, q, kv),
             .v = columns_of(l.qkv, q + kv, kv),
             .out = l.attended,
             .lse = l.lse});
  traffic_.add(l.qkv, l.attended, l.lse);
  linear(l.attended, w.out, projected_);
  add(l.x, projected_, l.x_mid);
  norm(l.x_mid, w.post_norm, l.normed_mid, l.rstd_mid);
  linear(l.normed_mid, w.gate_up, l.gate_up);
  passes::swiglu(l.gate_up, l.y);
  traffic_.add(l.gate_up, l.y);
  linear(l.y, w.down, projected_);
  add(l.x_mid, projected_, index + 1 < layers_.size() ? layers_[index + 1].x : x_);
}

void UnfusedModel::layer_backward(std::size_t index, Weights& gradients) {
  const LayerWeights& w = weights_.layers[index];
  LayerWeights& g = gradients.layers[index];
  const Layer& l = layers_[index];
  const std::int64_t q = config_.q_rows(), kv = config_.kv_rows();
  linear_backward(l.y, w.down, dx_, dy_, g.down);
  passes::swiglu_backward(l.gate_up, dy_, dgate_up_);
  traffic_.add(l.gate_up, dy_, dgate_up_);
  linear_backward(l.normed_mid, w.gate_up, dgate_up_, dnormed_, g.gate_up);
  norm_backward(l.x_mid, w.post_norm, l.rstd_mid, dnormed_, projected_, g.post_norm);
  add(dx_, projected_, dx_);
  linear_backward(l.attended, w.out, dx_, dattended_, g.out);
  attention_backward({.batch = batch_,
                      .heads = config_.heads,
                      .kv_heads = config_.kv_heads,
                      .head_dim = config_.head_dim,
                      .q = columns_of(l.qkv, 0, q),
                      .k = columns_of(l.qkv, q, kv),
                      .v = columns_of(l.qkv, q + kv, kv),
                      .out = l.attended,
                      .dout = dattended_,
                      .lse = l.lse,
                      .dq = columns_of(dqkv_, 0, q),
                      .dk = columns_of(dqkv_, q, kv),
                      .dv = columns_of(dqkv_, q + kv, kv)});
  traffic_.add(l.qkv, l.attended, dattended_, l.lse, dqkv_);
  passes::rotate(dqkv_, heads(), true, dqkv_);
  traffic_.add(columns_of(dqkv_, 0, q + kv), columns_of(dqkv_, 0, q + kv));
  if (config_.qk_norm) {
    const Matrix dweight = shaped(dweight_, passes::row_blocks(l.x.rows), config_.qkv_rows());
    passes::head_norm_backward(l.qkv_preact, heads(), w.q_norm.vector(), w.k_norm.vector(), config_.norm_eps, dqkv_,
                               dqkv_, dweight);
    traffic_.add(l.qkv_preact, dqkv_, dqkv_, dweight);
    ops::head_weight_gradient({.partial = dweight,
                               .heads = heads(),
                               .beta = 1,
                               .dq_weight = g.q_norm.vector(),
                               .dk_weight = g.k_norm.vector()});
  }
  linear_backward(l.normed, w.qkv, dqkv_, dnormed_, g.qkv);
  norm_backward(l.x, w.input_norm, l.rstd, dnormed_, projected_, g.input_norm);
  add(dx_, projected_, dx_);
}

double UnfusedModel::forward_backward(const Batch& batch, Weights& gradients) {
  check_weights("unfused model: gradients", config_, gradients, gradient_dtype(config_.dtype));
  prepare(batch);
  forward(batch);
  passes::cross_entropy_backward(logits_, tokens_of(batch.targets), lse_, logits_);
  traffic_.add(logits_, lse_, logits_);
  linear_backward(normed_, weights_.head_matrix(), logits_, dnormed_, gradients.head_matrix());
  norm_backward(x_, weights_.final_norm, rstd_, dnormed_, dx_, gradients.final_norm);
  for (std::size_t i = layers_.size(); i-- > 0;) layer_backward(i, gradients);
  ops::embedding_backward({.dx = dx_, .token = tokens_of(batch.inputs), .dtable = gradients.embed.matrix()});
  traffic_.add(dx_);
  return sum(loss_);
}

double UnfusedModel::loss(const Batch& batch) {
  prepare(batch);
  forward(batch);
  return sum(loss_);
}

}  // namespace coda::nn
