// The model as blocks of programs, forward and backward. A block is what lies between two attentions:
//
//   block_pre    embedding -> norm statistics -> QKV + scale + RoPE [+ norm of each head]
//   block        out-proj + residual + partial norm -> finalize -> gate/up + scale + SwiGLU
//                -> down + residual + partial norm -> finalize -> next QKV + scale + RoPE
//   block_post   final norm -> logits and cross-entropy
//
// Nothing is computed here: every line is a call of ops/. M is the number of tokens of the batch.
#pragma once

#include <cstdint>
#include <vector>

#include "coda/nn/arena.h"
#include "coda/nn/config.h"
#include "coda/nn/weights.h"
#include "coda/ops/ops.h"

namespace coda::nn {

/// What a layer keeps for its backward.
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
  Matrix x;        // (M, H) after the last layer
  Vector rstd;     // (M) of x
  Matrix h;        // (M, H) operand of the next product: stream times norm weight
  Matrix y;        // (M, F)
  Vector partial;  // row statistics of tiles, of any program
  Matrix rotary;   // (positions, head_dim)
  // Head: a block of rows at a time, so that (M, V) is never held when V is large.
  Matrix logits;        // (rows, V)
  Vector partial_max;   // of the blocks' (rows, tiles)
  Vector target_logit;  // (rows)
  Vector logits_lse;    // (M)
  Vector loss;          // (M)
  // Backward only.
  Vector dloss;      // (M), 1 for each row
  Matrix dx;         // (M, H)
  Matrix dattended;  // (M, Q)
  Matrix dqkv;       // (M, QKV)
  Vector row_term;   // (M)
  Vector dweight;    // (tiles_m, the widest norm weight)
};

/// The programs of a model on the activations of one batch.
class Blocks {
 public:
  Blocks(const ModelConfig& config, const Weights& weights) : config_(config), weights_(weights) {}

  /// Embedding to the first QKV; then attention and the block after it for each layer. Leaves x, rstd and h.
  void forward(Activations& a, Traffic& traffic) const;
  /// Loss of each row, with no logit kept.
  void loss(Activations& a, const ConstVector& targets, Traffic& traffic) const;
  /// out (M, V) = logits
  void logits(const Activations& a, const Matrix& out) const;

  /// Loss of each row and, added to `gradients`, the gradients of their sum. Leaves the gradient of the residual
  /// stream in dx; `backward` takes it from there.
  void loss_and_gradient(Activations& a, const ConstVector& targets, Weights& gradients, Traffic& traffic) const;
  void backward(Activations& a, Weights& gradients, Traffic& traffic) const;

 private:
  void project_qkv(Activations& a, std::size_t layer, Traffic& traffic) const;
  void attend(Activations& a, std::size_t layer, Traffic& traffic) const;
  void block(Activations& a, std::size_t layer, Traffic& traffic) const;
  void block_backward(Activations& a, std::size_t layer, Weights& gradients, Traffic& traffic) const;
  void qkv_backward(Activations& a, std::size_t layer, Weights& gradients, Traffic& traffic) const;
  ops::Heads heads(const Activations& a) const;

  const ModelConfig& config_;
  const Weights& weights_;
};

}  // namespace coda::nn
