// A layer of a Transformer as one checked call: the programs and small reductions of what lies between two attentions,
// on one stream. Attention itself is the caller's.
//
//   block_pre    embedding -> norm statistics -> QKV + scale + RoPE
//   block        out-proj + residual + partial norm -> finalize -> gate/up + scale + SwiGLU
//                -> down + residual + partial norm -> finalize -> next QKV + scale + RoPE
//   block_post   the same up to the final norm, then cross-entropy without logits
//
// It is the layer of LLaMA and Qwen3: RMSNorm, rotary embedding, optional QK-norm, a gated activation, no biases.
// Others are chains of the calls in ops.h.
//
// Sizes: M tokens, H hidden (at least 1), F width after the gated activation, Q = q heads x head_dim (what attention
// gives), W = (q + k + v heads) x head_dim, V vocabulary. T is bf16, fp16, fp32 or fp64; "stat" is fp32, or fp64 if T
// is. Conventions are those of ops.h. Everything is checked before anything runs, and errors name the layer's
// operation.
//
// Temporaries live in `workspace` where the caller gives one: 64-byte aligned memory of the backend, of as many bytes
// as the function `..._workspace_bytes` says, free again when the call's work is done. Else they come from a
// stream-ordered pool on sm90 and from an allocation on the CPU. What ops.h says that products need on sm90 comes from
// that pool besides.
//
// Gradients of weights: each is optional (absent: not computed), of dtype T or stat, and is added to, or written if
// `beta` is 0. Those of norm weights and of the embedding table are stat; the table's is always added to.
#pragma once

#include <cstddef>
#include <span>

#include "coda/core/traffic.h"
#include "coda/ops/ops.h"

namespace coda::ops {

/// What the functions below that count bytes need to know. They throw Error(invalid_argument) if the calls would refuse
/// a size, the dtype or the backend, or if tokens times the columns of all that a layer has is more than 2^55.
struct LayerShape {
  DType dtype = DType::bf16;
  std::int64_t tokens = 0, hidden = 0, ffn = 0, vocabulary = 0;
  Heads heads = {};  // the counts and head_dim
  bool qk_norm = false;
  bool label_smoothing = false;
  std::int64_t logit_rows = 0;  // as in BlockPostBackward
  Backend backend = Backend::cpu;
};
std::int64_t block_pre_workspace_bytes(const LayerShape& s);
std::int64_t block_workspace_bytes(const LayerShape& s);
std::int64_t block_post_workspace_bytes(const LayerShape& s);
std::int64_t block_pre_backward_workspace_bytes(const LayerShape& s);
std::int64_t block_backward_workspace_bytes(const LayerShape& s);
std::int64_t block_post_backward_workspace_bytes(const LayerShape& s);

/// Bytes that a layer holds from its forward to its backward: attended, x_mid, rstd_mid, preact, x_next, rstd_next, qkv
/// (which attention needs too), and with QK-norm qkv_preact. The x that a layer begins with is the one before's x_next.
std::int64_t block_saved_bytes(const LayerShape& s);
/// The same for separate passes that keep the inputs of each: all of the above, and both norms' outputs (M, H) and the
/// activation's (M, F), which are operands of the weight gradients and which block_backward computes again.
std::int64_t block_saved_bytes_unfused(const LayerShape& s);

// ---- weights of a layer; a gradient has the shape of its weight

struct BlockWeights {
  ConstMatrix out = {};        // (H, Q)
  ConstVector post_norm = {};  // (H)
  ConstMatrix gate_up = {};    // (2F, H), rows gate 0, up 0, gate 1, up 1, ...
  ConstMatrix down = {};       // (H, F)
};
struct BlockGradients {
  Matrix out = {};
  Vector post_norm = {};
  Matrix gate_up = {}, down = {};
};

/// The norm before attention and its projection, with pairs of columns of a head side by side (see Heads). q_norm and
/// k_norm (head_dim), both or none: QK-norm.
struct QkvWeights {
  ConstVector input_norm = {};  // (H)
  ConstMatrix qkv = {};         // (W, H)
  ConstVector q_norm = {}, k_norm = {};
};
struct QkvGradients {
  Vector input_norm = {};
  Matrix qkv = {};
  Vector q_norm = {}, k_norm = {};
};

/// The norm after the last layer and the head.
struct HeadWeights {
  ConstVector final_norm = {};  // (H)
  ConstMatrix head = {};        // (V, H)
};
struct HeadGradients {
  Vector final_norm = {};
  Matrix head = {};
};

// ---- forward. To `traffic`, if it is given, a call adds the bytes of activations that it moves.

/// x = table[token], its statistics, and the first layer's qkv. x and rstd are what block and the backward take.
struct BlockPre {
  ConstMatrix table;  // (V, H)
  ConstVector token;  // (M), int32 or int64 in [0, V)
  QkvWeights next = {};
  Heads heads = {};
  double eps = 1e-5, head_eps = 1e-6;
  Matrix x = {};           // (M, H)
  Vector rstd = {};        // (M) stat
  Matrix qkv_preact = {};  // (M, W), optional: for the backward under QK-norm
  Matrix qkv = {};         // (M, W)
  std::span<std::byte> workspace = {};
  Traffic* traffic = nullptr;
  Target on = {};
};
void block_pre(const BlockPre& args);

/// From attention's output and the residual stream to those of the next layer.
struct Block {
  ConstMatrix attended, x;  // (M, Q), (M, H)
  BlockWeights weights = {};
  QkvWeights next = {};
  Heads heads = {};
  Glu function = Glu::swiglu;
  double eps = 1e-5, head_eps = 1e-6;
  // Kept for the backward; for inference absent.
  Matrix x_mid = {};     // (M, H) residual stream before the feed-forward
  Vector rstd_mid = {};  // (M) stat
  Matrix preact = {};    // (M, 2F)
  // The next layer's.
  Matrix x_next = {};      // (M, H), may be x
  Vector rstd_next = {};   // (M) stat
  Matrix qkv_preact = {};  // (M, W), optional: for the backward under QK-norm
  Matrix qkv = {};         // (M, W)
  std::span<std::byte> workspace = {};
  Traffic* traffic = nullptr;
  Target on = {};
};
void block(const Block& args);

/// The last layer, and the loss if head.head is given: lse and loss (M) as in LinearCrossEntropy, without (M, V)
/// logits. Without it, which takes no target, lse and loss, h and rstd_last are what any other use of the logits =
/// rstd_last (h head^T) needs.
struct BlockPost {
  ConstMatrix attended, x;
  BlockWeights weights = {};
  HeadWeights head = {};
  Glu function = Glu::swiglu;
  double eps = 1e-5;
  LogitTransform transform = {};
  ConstVector target = {};  // (M), int32 or int64
  CrossEntropy options = {};
  Matrix x_mid = {};
  Vector rstd_mid = {};
  Matrix preact = {};
  Matrix x_last = {};          // (M, H), may be x
  Vector rstd_last = {};       // (M) stat
  Matrix h = {};               // (M, H) x_last times final_norm
  Vector lse = {}, loss = {};  // (M) stat
  std::span<std::byte> workspace = {};
  Traffic* traffic = nullptr;
  Target on = {};
};
void block_post(const BlockPost& args);

// ---- backward

/// From the gradients of qkv and of the residual stream to that of the embedding.
struct BlockPreBackward {
  ConstVector token;
  ConstMatrix x = {};
  ConstVector rstd = {};
  ConstMatrix qkv = {};  // (M, W), or qkv_preact under QK-norm: the other one may be absent
  ConstMatrix qkv_preact = {};
  ConstMatrix dqkv = {};     // (M, W)
  ConstMatrix dx_next = {};  // (M, H): gradient that reaches x through the residual stream
  QkvWeights next = {};
  Heads heads = {};
  double head_eps = 1e-6;
  QkvGradients gradients = {};
  Matrix dtable = {};  // (V, H) stat, optional
  double beta = 1;
  Matrix dz = {};  // (M, W) gradient before the rotation, may be dqkv
  Matrix dx = {};  // (M, H) gradient of x, may be dx_next
  std::span<std::byte> workspace = {};
  Traffic* traffic = nullptr;
  Target on = {};
};
void block_pre_backward(const BlockPreBackward& args);

/// From the gradients of qkv and x_next to those of attended and x.
struct BlockBackward {
  // As block left them.
  ConstMatrix attended, x_mid;
  ConstVector rstd_mid = {};
  ConstMatrix preact = {};
  ConstMatrix x_next = {};
  ConstVector rstd_next = {};
  ConstMatrix qkv = {}, qkv_preact = {};  // the latter under QK-norm, else the former: the other one may be absent

  ConstMatrix dqkv = {};     // (M, W)
  ConstMatrix dx_next = {};  // (M, H): gradient that reaches x_next through the residual stream
  BlockWeights weights = {};
  QkvWeights next = {};
  Heads heads = {};
  Glu function = Glu::swiglu;
  double head_eps = 1e-6;
  BlockGradients gradients = {};
  QkvGradients next_gradients = {};
  double beta = 1;
  Matrix dz = {};         // (M, W) gradient before the rotation, may be dqkv
  Matrix dpreact = {};    // (M, 2F), may be preact, which is lost then
  Matrix dx = {};         // (M, H) gradient of x, may be dx_next
  Matrix dattended = {};  // (M, Q)
  std::span<std::byte> workspace = {};
  Traffic* traffic = nullptr;
  Target on = {};
};
void block_backward(const BlockBackward& args);

/// From each row's loss, which it computes itself (block_post without a head is the forward before it), to the
/// gradients of attended and x. At most `logit_rows` rows of logits are held, of all V columns; the gradient of the
/// head is added to once for each so many rows, and rounded each time to its dtype: with many more rows than that it
/// wants to be fp32.
struct BlockPostBackward {
  ConstMatrix attended, x_mid;
  ConstVector rstd_mid = {};
  ConstMatrix preact = {};
  ConstMatrix x_last = {};
  ConstVector rstd_last = {};
  Matrix h = {};  // (M, H) as block_post left it; overwritten

  ConstVector dloss = {};  // (M) stat: gradient of each row's loss
  BlockWeights weights = {};
  HeadWeights head = {};
  Glu function = Glu::swiglu;
  LogitTransform transform = {};
  ConstVector target = {};
  CrossEntropy options = {};
  std::int64_t logit_rows = 0;  // 0: as many as fill 512 MiB, on sm90 2 GiB
  BlockGradients gradients = {};
  HeadGradients head_gradients = {};
  double beta = 1;
  Vector lse = {}, loss = {};  // (M) stat
  Matrix dpreact = {};         // (M, 2F), may be preact, which is lost then
  Matrix dx = {};              // (M, H) gradient of x
  Matrix dattended = {};       // (M, Q)
  std::span<std::byte> workspace = {};
  Traffic* traffic = nullptr;
  Target on = {};
};
void block_post_backward(const BlockPostBackward& args);

}  // namespace coda::ops
