#include "coda/nn/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "coda/core/error.h"
#include "coda/nn/arena.h"
#include "coda/nn/convert.h"
#include "coda/nn/rotary.h"

namespace coda::nn {
namespace {

// Logits that are held at a time, in elements; rows of them are a multiple of the programs' tile.
constexpr std::int64_t kLogits = std::int64_t{1} << 22;
constexpr std::int64_t kTileRows = 256;

std::span<std::byte> lay_out_bytes(Arena& arena, std::int64_t count) {
  const Vector piece = arena.vector(DType::fp64, (count + 7) / 8);
  return {static_cast<std::byte*>(piece.data), static_cast<std::size_t>(count)};
}

/// The activations of `batch` sequences of `seq` tokens. For inference the layers share all but their QKV.
void lay_out(Arena& arena, const ModelConfig& c, std::int64_t batch, std::int64_t seq, bool training, Activations& a) {
  const std::int64_t m = batch * seq;
  const DType t = c.dtype, stats = gradient_dtype(t);
  a.batch = batch;
  a.layers.resize(static_cast<std::size_t>(c.layers));
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    LayerActivations& l = a.layers[i];
    if (training || i == 0) {
      l.x = arena.matrix(t, m, c.hidden);
      l.rstd = arena.vector(stats, m);
      l.attended = arena.matrix(t, m, c.q_rows());
    } else {
      l = a.layers[0];
    }
    l.qkv = l.context = arena.matrix(t, m, c.qkv_rows());
    if (!training) continue;
    if (c.qk_norm) l.qkv_preact = arena.matrix(t, m, c.qkv_rows());
    l.lse = arena.matrix(stats, m, c.heads);
    l.x_mid = arena.matrix(t, m, c.hidden);
    l.rstd_mid = arena.vector(stats, m);
    l.preact = arena.matrix(t, m, 2 * c.ffn);
  }
  a.x = training ? arena.matrix(t, m, c.hidden) : a.layers[0].x;
  a.rstd = training ? arena.vector(stats, m) : a.layers[0].rstd;
  a.h = arena.matrix(t, m, c.hidden);
  a.rotary = arena.matrix(stats, seq, c.head_dim);
  ops::LayerShape shape = layer_shape(c, m);
  std::int64_t workspace = std::max({ops::block_pre_workspace_bytes(shape), ops::block_workspace_bytes(shape)});
  if (training) {
    a.logit_rows = shape.logit_rows = std::max(kLogits / c.vocab / kTileRows, std::int64_t{1}) * kTileRows;
    workspace = std::max({workspace, ops::block_post_backward_workspace_bytes(shape),
                          ops::block_backward_workspace_bytes(shape), ops::block_pre_backward_workspace_bytes(shape)});
    a.logits_lse = arena.vector(stats, m);
    a.loss = arena.vector(stats, m);
    a.dloss = arena.vector(stats, m);
    a.dx = arena.matrix(t, m, c.hidden);
    a.dattended = arena.matrix(t, m, c.q_rows());
    a.dqkv = arena.matrix(t, m, c.qkv_rows());
  }
  a.workspace = lay_out_bytes(arena, workspace);
}

/// The activations of the first `m` rows only.
Activations first_rows(const Activations& all, std::int64_t batch, std::int64_t m) {
  Activations a = all;
  a.batch = batch;
  a.position = part_of(all.position, 0, m);
  for (LayerActivations& l : a.layers) {
    for (Matrix* matrix : {&l.x, &l.qkv_preact, &l.qkv, &l.context, &l.attended, &l.lse, &l.x_mid, &l.preact}) {
      matrix->rows = std::min(matrix->rows, m);
    }
    l.rstd.size = m;
    l.rstd_mid.size = std::min(l.rstd_mid.size, m);
  }
  for (Matrix* matrix : {&a.x, &a.h, &a.dx, &a.dattended, &a.dqkv}) {
    matrix->rows = std::min(matrix->rows, m);
  }
  for (Vector* vector : {&a.rstd, &a.logits_lse, &a.loss, &a.dloss}) {
    vector->size = std::min(vector->size, m);
  }
  return a;
}

void fill_ones(const Vector& v) {
  visit_real(v.dtype, [&]<class T>(std::type_identity<T>) { std::fill_n(static_cast<T*>(v.data), v.size, T(1.0F)); });
}

}  // namespace

void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab, const char* what) {
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t t) { return t < 0 || t >= vocab; });
  if (bad == tokens.end()) return;
  throw Error(Status::invalid_argument, fmt::format("model: {}: expected values from 0 to below {}, got {} at {}", what,
                                                    vocab, *bad, bad - tokens.begin()));
}

void check_batch(const Batch& batch, std::int64_t vocab) {
  std::int64_t expected = 0;
  const bool countable = !__builtin_mul_overflow(batch.rows, batch.seq, &expected);
  const auto fits = [&](const auto& tokens) { return countable && std::cmp_equal(tokens.size(), expected); };
  if (batch.rows < 1 || batch.seq < 1 || !fits(batch.inputs) || !fits(batch.targets)) {
    throw Error(Status::invalid_argument,
                fmt::format("model: batch: expected {} x {} inputs and targets, got {} and {}", batch.rows, batch.seq,
                            batch.inputs.size(), batch.targets.size()));
  }
  check_tokens(batch.inputs, vocab, "inputs");
  check_tokens(batch.targets, vocab, "targets");
}

HostTensor positions(std::int64_t batch, std::int64_t seq) {
  HostTensor out(DType::int32, {batch * seq});
  const auto values = out.values<std::int32_t>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % seq);
  }
  return out;
}

double sum(const Vector& v) {
  double total = 0;
  visit_real(v.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t i = 0; i < v.size; ++i) total += static_cast<double>(static_cast<const T*>(v.data)[i]);
  });
  return total;
}

Model::Model(const ModelConfig& config, const Weights& weights) : config_(config), blocks_(config_, weights) {
  config_.dtype = weights.embed.dtype();
  check_weights("model: weights", config_, weights, config_.dtype);
}

void Model::prepare(const Batch& batch) {
  check_batch(batch, config_.vocab);
  if (!memory_.present() || batch.rows > rows_ || batch.seq != seq_) {
    rows_ = batch.rows;
    seq_ = batch.seq;
    memory_ = HostTensor();  // stays so if the next lines fail: then nothing is laid out
    position_ = positions(rows_, seq_);
    memory_ = place([&](Arena& arena) { lay_out(arena, config_, rows_, seq_, true, activations_); });
    held_ = static_cast<std::int64_t>(memory_.bytes().size());
    activations_.position = position_.vector();
    fill_rotary_table(activations_.rotary, config_);
    fill_ones(activations_.dloss);
  }
}

double Model::forward_backward(const Batch& batch, Weights& gradients) {
  check_weights("model: gradients", config_, gradients, gradient_dtype(config_.dtype));
  prepare(batch);
  Activations a = first_rows(activations_, batch.rows, batch.rows * batch.seq);
  a.tokens = tokens_of(batch.inputs);
  traffic_.clear();
  blocks_.forward(a, traffic_);
  blocks_.backward(a, tokens_of(batch.targets), gradients, traffic_);
  return sum(a.loss);
}

double Model::loss(const Batch& batch) {
  prepare(batch);
  Activations a = first_rows(activations_, batch.rows, batch.rows * batch.seq);
  a.tokens = tokens_of(batch.inputs);
  Traffic traffic;
  blocks_.forward(a, traffic);
  blocks_.loss(a, tokens_of(batch.targets), traffic);
  return sum(a.loss);
}

Decoder::Decoder(const ModelConfig& config, const Weights& weights, std::int64_t capacity)
    : config_(config), blocks_(config_, weights), capacity_(capacity) {
  config_.dtype = weights.embed.dtype();
  check_weights("decoder: weights", config_, weights, config_.dtype);
  if (capacity < 1) {
    throw Error(Status::invalid_argument, fmt::format("decoder: capacity: expected at least 1, got {}", capacity));
  }
  memory_ = place([&](Arena& arena) { lay_out(arena, config_, 1, capacity, false, all_); });
  tokens_ = HostTensor(DType::int32, {capacity});
  position_ = positions(1, capacity);
  logits_ = HostTensor(config_.dtype, {1, config_.vocab});
  last_.resize(static_cast<std::size_t>(config_.vocab));
  fill_rotary_table(all_.rotary, config_);
}

Activations Decoder::run(std::span<const std::int32_t> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count < 1 || length_ + count > capacity_) {
    throw Error(Status::invalid_argument,
                fmt::format("decoder: tokens: expected 1 to {}, got {}", capacity_ - length_, count));
  }
  check_tokens(tokens, config_.vocab, "tokens");
  std::copy(tokens.begin(), tokens.end(), tokens_.values<std::int32_t>().begin());
  Activations a = first_rows(all_, 1, count);
  a.tokens = part_of(std::as_const(tokens_).vector(), 0, count);
  a.position = part_of(std::as_const(position_).vector(), length_, count);
  for (std::size_t i = 0; i < a.layers.size(); ++i) {
    a.layers[i].qkv = rows_of(all_.layers[i].qkv, length_, count);
    a.layers[i].context = rows_of(all_.layers[i].context, 0, length_ + count);
  }
  Traffic traffic;
  blocks_.forward(a, traffic);
  length_ += count;
  return a;
}

std::span<const float> Decoder::append(std::span<const std::int32_t> tokens) {
  Activations a = run(tokens);
  const std::int64_t last = a.h.rows - 1;
  a.h = rows_of(a.h, last, 1);
  a.rstd = part_of(a.rstd, last, 1);
  blocks_.logits(a, logits_.matrix());
  load_as(logits_.data(), logits_.dtype(), 0, config_.vocab, last_.data());
  return last_;
}

HostTensor Decoder::all_logits(std::span<const std::int32_t> tokens) {
  clear();
  const Activations a = run(tokens);
  HostTensor out(config_.dtype, {a.h.rows, config_.vocab});
  blocks_.logits(a, out.matrix());
  return out;
}

}  // namespace coda::nn
