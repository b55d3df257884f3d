#include "coda/nn/blocks.h"

#include "coda/core/arena.h"
#include "coda/nn/attention.h"

namespace coda::nn {
namespace {

ops::BlockWeights block_weights(const LayerWeights& w) {
  return {
      .out = w.out.matrix(), .post_norm = w.post_norm.vector(), .gate_up = w.gate_up.matrix(), .down = w.down.matrix()};
}
ops::BlockGradients block_gradients(LayerWeights& g) {
  return {
      .out = g.out.matrix(), .post_norm = g.post_norm.vector(), .gate_up = g.gate_up.matrix(), .down = g.down.matrix()};
}
ops::QkvWeights qkv_weights(const LayerWeights& w) {
  return {.input_norm = w.input_norm.vector(),
          .qkv = w.qkv.matrix(),
          .q_norm = w.q_norm.vector(),
          .k_norm = w.k_norm.vector()};
}
ops::QkvGradients qkv_gradients(LayerWeights& g) {
  return {.input_norm = g.input_norm.vector(),
          .qkv = g.qkv.matrix(),
          .q_norm = g.q_norm.vector(),
          .k_norm = g.k_norm.vector()};
}

}  // namespace

ops::LayerShape layer_shape(const ModelConfig& config, std::int64_t tokens) {
  return {.dtype = config.dtype,
          .tokens = tokens,
          .hidden = config.hidden,
          .ffn = config.ffn,
          .vocabulary = config.vocab,
          .heads = {.q = config.heads, .k = config.kv_heads, .v = config.kv_heads, .head_dim = config.head_dim},
          .qk_norm = config.qk_norm};
}

ops::Heads Blocks::heads(const Activations& a) const {
  return {.q = config_.heads,
          .k = config_.kv_heads,
          .v = config_.kv_heads,
          .head_dim = config_.head_dim,
          .table = a.rotary,
          .position = a.position};
}

void Blocks::forward(Activations& a, Traffic& traffic) const {
  block_pre(a, traffic);
  for (std::size_t layer = 0; layer < a.layers.size(); ++layer) {
    attend(a, layer, traffic);
    if (layer + 1 < a.layers.size()) block(a, layer, traffic);
    else block_post(a, traffic);
  }
}

void Blocks::block_pre(const Activations& a, Traffic& traffic) const {
  const LayerActivations& l = a.layers.front();
  ops::block_pre({.table = weights_.embed.matrix(),
                  .token = a.tokens,
                  .next = qkv_weights(weights_.layers.front()),
                  .heads = heads(a),
                  .eps = config_.norm_eps,
                  .head_eps = config_.norm_eps,
                  .x = l.x,
                  .rstd = l.rstd,
                  .qkv_preact = l.qkv_preact,
                  .qkv = l.qkv,
                  .workspace = a.workspace,
                  .traffic = &traffic});
}

void Blocks::attend(const Activations& a, std::size_t layer, Traffic& traffic) const {
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

void Blocks::block(const Activations& a, std::size_t layer, Traffic& traffic) const {
  const LayerActivations &l = a.layers[layer], &next = a.layers[layer + 1];
  ops::block({.attended = l.attended,
              .x = l.x,
              .weights = block_weights(weights_.layers[layer]),
              .next = qkv_weights(weights_.layers[layer + 1]),
              .heads = heads(a),
              .eps = config_.norm_eps,
              .head_eps = config_.norm_eps,
              .x_mid = l.x_mid,
              .rstd_mid = l.rstd_mid,
              .preact = l.preact,
              .x_next = next.x,
              .rstd_next = next.rstd,
              .qkv_preact = next.qkv_preact,
              .qkv = next.qkv,
              .workspace = a.workspace,
              .traffic = &traffic});
}

void Blocks::block_post(const Activations& a, Traffic& traffic) const {
  const LayerActivations& l = a.layers.back();
  ops::block_post({.attended = l.attended,
                   .x = l.x,
                   .weights = block_weights(weights_.layers.back()),
                   .head = {.final_norm = weights_.final_norm.vector()},
                   .eps = config_.norm_eps,
                   .x_mid = l.x_mid,
                   .rstd_mid = l.rstd_mid,
                   .preact = l.preact,
                   .x_last = a.x,
                   .rstd_last = a.rstd,
                   .h = a.h,
                   .workspace = a.workspace,
                   .traffic = &traffic});
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

void Blocks::backward(Activations& a, const ConstVector& targets, Weights& gradients, Traffic& traffic) const {
  block_post_backward(a, targets, gradients, traffic);
  for (std::size_t layer = a.layers.size() - 1; layer > 0; --layer) {
    attend_backward(a, layer, traffic);
    block_backward(a, layer - 1, gradients, traffic);
  }
  attend_backward(a, 0, traffic);
  block_pre_backward(a, gradients, traffic);
}

void Blocks::block_post_backward(const Activations& a, const ConstVector& targets, Weights& gradients,
                                 Traffic& traffic) const {
  const LayerActivations& l = a.layers.back();
  ops::block_post_backward(
      {.attended = l.attended,
       .x_mid = l.x_mid,
       .rstd_mid = l.rstd_mid,
       .preact = l.preact,
       .x_last = a.x,
       .rstd_last = a.rstd,
       .h = a.h,
       .dloss = a.dloss,
       .weights = block_weights(weights_.layers.back()),
       .head = {.final_norm = weights_.final_norm.vector(), .head = weights_.head_matrix().matrix()},
       .target = targets,
       .logit_rows = a.logit_rows,
       .gradients = block_gradients(gradients.layers.back()),
       .head_gradients = {.final_norm = gradients.final_norm.vector(), .head = gradients.head_matrix().matrix()},
       .lse = a.logits_lse,
       .loss = a.loss,
       .dpreact = l.preact,
       .dx = a.dx,
       .dattended = a.dattended,
       .workspace = a.workspace,
       .traffic = &traffic});
}

void Blocks::block_backward(const Activations& a, std::size_t layer, Weights& gradients, Traffic& traffic) const {
  const LayerActivations &l = a.layers[layer], &next = a.layers[layer + 1];
  ops::block_backward({.attended = l.attended,
                       .x_mid = l.x_mid,
                       .rstd_mid = l.rstd_mid,
                       .preact = l.preact,
                       .x_next = next.x,
                       .rstd_next = next.rstd,
                       .qkv = next.qkv,
                       .qkv_preact = next.qkv_preact,
                       .dqkv = a.dqkv,
                       .dx_next = a.dx,
                       .weights = block_weights(weights_.layers[layer]),
                       .next = qkv_weights(weights_.layers[layer + 1]),
                       .heads = heads(a),
                       .head_eps = config_.norm_eps,
                       .gradients = block_gradients(gradients.layers[layer]),
                       .next_gradients = qkv_gradients(gradients.layers[layer + 1]),
                       .dz = a.dqkv,
                       .dpreact = l.preact,
                       .dx = a.dx,
                       .dattended = a.dattended,
                       .workspace = a.workspace,
                       .traffic = &traffic});
}

void Blocks::attend_backward(const Activations& a, std::size_t layer, Traffic& traffic) const {
  const LayerActivations& l = a.layers[layer];
  const std::int64_t q = config_.q_rows(), kv = config_.kv_rows();
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
}

void Blocks::block_pre_backward(const Activations& a, Weights& gradients, Traffic& traffic) const {
  const LayerActivations& l = a.layers.front();
  ops::block_pre_backward({.token = a.tokens,
                           .x = l.x,
                           .rstd = l.rstd,
                           .qkv = l.qkv,
                           .qkv_preact = l.qkv_preact,
                           .dqkv = a.dqkv,
                           .dx_next = a.dx,
                           .next = qkv_weights(weights_.layers.front()),
                           .heads = heads(a),
                           .head_eps = config_.norm_eps,
                           .gradients = qkv_gradients(gradients.layers.front()),
                           .dtable = gradients.embed.matrix(),
                           .dz = a.dqkv,
                           .dx = a.dx,
                           .workspace = a.workspace,
                           .traffic = &traffic});
}

}  // namespace coda::nn
