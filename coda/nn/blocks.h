// The model as attentions and what lies between them, the layer calls of ops/layer.h, forward and backward. Nothing is
// computed here: every line is a call. M is the number of tokens of the batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "coda/core/tensor.h"
#include "coda/core/traffic.h"
#include "coda/nn/config.h"
#include "coda/nn/weights.h"
#include "coda/ops/layer.h"

namespace coda::nn {

/// What a layer keeps for its backward. For inference x_mid, rstd_mid, preact and qkv_preact are absent.
struct LayerActivations {
  Matrix x;           // (M, H) residual stream before attention
  Vector rstd;        // (M) of x
  Matrix qkv_preact;  // (M, QKV), with qk_norm only: before the norm of the heads
  Matrix qkv;         // (M, QKV) rotated
  Matrix context;     // (keys, QKV) whose k and v columns attention reads: qkv, or all of a decoder's cache
  Matrix attended;    // (M, Q)
  Matrix lse;         // (M, heads)
  Matrix x_mid;       // (M, H) residual stream before the feed-forward
  Vector rstd_mid;    // (M) of x_mid
  Matrix preact;      // (M, 2F) gate and up; the backward turns it into its gradient in place
};

struct Activations {
  std::int64_t batch = 1;
  ConstVector tokens;    // (M) int32
  ConstVector position;  // (M) int32
  std::vector<LayerActivations> layers;
  Matrix x;                        // (M, H) after the last layer
  Vector rstd;                     // (M) of x
  Matrix h;                        // (M, H) operand of the head's product: x times the final norm's weight
  Matrix rotary;                   // (positions, head_dim)
  std::span<std::byte> workspace;  // temporaries of the layer calls
  // Training only.
  std::int64_t logit_rows = 0;  // rows of logits that the head's backward holds at a time
  Vector logits_lse;            // (M)
  Vector loss;                  // (M)
  Vector dloss;                 // (M), 1 for each row
  Matrix dx;                    // (M, H)
  Matrix dattended;             // (M, Q)
  Matrix dqkv;                  // (M, QKV)
};

/// The layer calls' shape for `tokens` tokens.
ops::LayerShape layer_shape(const ModelConfig& config, std::int64_t tokens);

/// The layers of a model on the activations of one batch.
class Blocks {
 public:
  Blocks(const ModelConfig& config, const Weights& weights) : config_(config), weights_(weights) {}

  /// Embedding to the final norm. Leaves x, rstd and h.
  void forward(Activations& a, Traffic& traffic) const;
  /// Loss of each row, with no logit kept.
  void loss(Activations& a, const ConstVector& targets, Traffic& traffic) const;
  /// out (M, V) = logits
  void logits(const Activations& a, const Matrix& out) const;

  /// Loss of each row and, added to `gradients`, the gradients of their sum. Overwrites what forward has left.
  void backward(Activations& a, const ConstVector& targets, Weights& gradients, Traffic& traffic) const;

 private:
  void block_pre(const Activations& a, Traffic& traffic) const;
  void attend(const Activations& a, std::size_t layer, Traffic& traffic) const;
  void block(const Activations& a, std::size_t layer, Traffic& traffic) const;
  void block_post(const Activations& a, Traffic& traffic) const;
  void block_post_backward(const Activations& a, const ConstVector& targets, Weights& gradients,
                           Traffic& traffic) const;
  void block_backward(const Activations& a, std::size_t layer, Weights& gradients, Traffic& traffic) const;
  void attend_backward(const Activations& a, std::size_t layer, Traffic& traffic) const;
  void block_pre_backward(const Activations& a, Weights& gradients, Traffic& traffic) const;
  ops::Heads heads(const Activations& a) const;

  const ModelConfig& config_;
  const Weights& weights_;
};

}  // namespace coda::nn
