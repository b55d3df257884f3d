// A layer of a Transformer as one checked call. Made from coda/ops/layer.h by scripts/c_api.py; see coda/c/ops.h.
// A call adds the bytes of activations that it moves to `*traffic`, if that is no null pointer.
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

#include "coda/c/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What the functions below that count bytes need to know. They throw Error(invalid_argument) if the calls would refuse
/// a size, the dtype or the backend, or if tokens times the columns of all that a layer has is more than 2^55.
typedef struct coda_layer_shape {
  coda_dtype dtype;
  int64_t tokens, hidden, ffn, vocabulary;
  coda_heads heads;  // the counts and head_dim
  bool qk_norm;
  bool label_smoothing;
  int64_t logit_rows;  // as in BlockPostBackward
  coda_backend backend;
} coda_layer_shape;
coda_layer_shape coda_layer_shape_defaults(void);
coda_status coda_block_pre_workspace_bytes(const coda_layer_shape* s, int64_t* result);
coda_status coda_block_workspace_bytes(const coda_layer_shape* s, int64_t* result);
coda_status coda_block_post_workspace_bytes(const coda_layer_shape* s, int64_t* result);
coda_status coda_block_pre_backward_workspace_bytes(const coda_layer_shape* s, int64_t* result);
coda_status coda_block_backward_workspace_bytes(const coda_layer_shape* s, int64_t* result);
coda_status coda_block_post_backward_workspace_bytes(const coda_layer_shape* s, int64_t* result);

/// Bytes that a layer holds from its forward to its backward: attended, x_mid, rstd_mid, preact, x_next, rstd_next, qkv
/// (which attention needs too), and with QK-norm qkv_preact. The x that a layer begins with is the one before's x_next.
coda_status coda_block_saved_bytes(const coda_layer_shape* s, int64_t* result);
/// The same for separate passes that keep the inputs of each: all of the above, and both norms' outputs (M, H) and the
/// activation's (M, F), which are operands of the weight gradients and which block_backward computes again.
coda_status coda_block_saved_bytes_unfused(const coda_layer_shape* s, int64_t* result);

// ---- weights of a layer; a gradient has the shape of its weight

typedef struct coda_block_weights {
  coda_const_matrix out;        // (H, Q)
  coda_const_vector post_norm;  // (H)
  coda_const_matrix gate_up;    // (2F, H), rows gate 0, up 0, gate 1, up 1, ...
  coda_const_matrix down;       // (H, F)
} coda_block_weights;
typedef struct coda_block_gradients {
  coda_matrix out;
  coda_vector post_norm;
  coda_matrix gate_up, down;
} coda_block_gradients;

/// The norm before attention and its projection, with pairs of columns of a head side by side (see Heads). q_norm and
/// k_norm (head_dim), both or none: QK-norm.
typedef struct coda_qkv_weights {
  coda_const_vector input_norm;  // (H)
  coda_const_matrix qkv;         // (W, H)
  coda_const_vector q_norm, k_norm;
} coda_qkv_weights;
typedef struct coda_qkv_gradients {
  coda_vector input_norm;
  coda_matrix qkv;
  coda_vector q_norm, k_norm;
} coda_qkv_gradients;

/// The norm after the last layer and the head.
typedef struct coda_head_weights {
  coda_const_vector final_norm;  // (H)
  coda_const_matrix head;        // (V, H)
} coda_head_weights;
typedef struct coda_head_gradients {
  coda_vector final_norm;
  coda_matrix head;
} coda_head_gradients;

// ---- forward. To `traffic`, if it is given, a call adds the bytes of activations that it moves.

/// x = table[token], its statistics, and the first layer's qkv. x and rstd are what block and the backward take.
typedef struct coda_block_pre_args {
  coda_const_matrix table;  // (V, H)
  coda_const_vector token;  // (M), int32 or int64 in [0, V)
  coda_qkv_weights next;
  coda_heads heads;
  double eps, head_eps;    // eps 1e-5, head_eps 1e-6 by default
  coda_matrix x;           // (M, H)
  coda_vector rstd;        // (M) stat
  coda_matrix qkv_preact;  // (M, W), optional: for the backward under QK-norm
  coda_matrix qkv;         // (M, W)
  coda_workspace workspace;
  int64_t* traffic;
  coda_target on;
} coda_block_pre_args;
coda_block_pre_args coda_block_pre_defaults(void);
coda_status coda_block_pre(const coda_block_pre_args* args);

/// From attention's output and the residual stream to those of the next layer.
typedef struct coda_block_args {
  coda_const_matrix attended, x;  // (M, Q), (M, H)
  coda_block_weights weights;
  coda_qkv_weights next;
  coda_heads heads;
  coda_glu function;
  double eps, head_eps;  // eps 1e-5, head_eps 1e-6 by default
  // Kept for the backward; for inference absent.
  coda_matrix x_mid;     // (M, H) residual stream before the feed-forward
  coda_vector rstd_mid;  // (M) stat
  coda_matrix preact;    // (M, 2F)
  // The next layer's.
  coda_matrix x_next;      // (M, H), may be x
  coda_vector rstd_next;   // (M) stat
  coda_matrix qkv_preact;  // (M, W), optional: for the backward under QK-norm
  coda_matrix qkv;         // (M, W)
  coda_workspace workspace;
  int64_t* traffic;
  coda_target on;
} coda_block_args;
coda_block_args coda_block_defaults(void);
coda_status coda_block(const coda_block_args* args);

/// The last layer, and the loss if head.head is given: lse and loss (M) as in LinearCrossEntropy, without (M, V)
/// logits. Without it, which takes no target, lse and loss, h and rstd_last are what any other use of the logits =
/// rstd_last (h head^T) needs.
typedef struct coda_block_post_args {
  coda_const_matrix attended, x;
  coda_block_weights weights;
  coda_head_weights head;
  coda_glu function;
  double eps;  // 1e-5 by default
  coda_logit_transform transform;
  coda_const_vector target;  // (M), int32 or int64
  coda_cross_entropy options;
  coda_matrix x_mid;
  coda_vector rstd_mid;
  coda_matrix preact;
  coda_matrix x_last;     // (M, H), may be x
  coda_vector rstd_last;  // (M) stat
  coda_matrix h;          // (M, H) x_last times final_norm
  coda_vector lse, loss;  // (M) stat
  coda_workspace workspace;
  int64_t* traffic;
  coda_target on;
} coda_block_post_args;
coda_block_post_args coda_block_post_defaults(void);
coda_status coda_block_post(const coda_block_post_args* args);

// ---- backward

/// From the gradients of qkv and of the residual stream to that of the embedding.
typedef struct coda_block_pre_backward_args {
  coda_const_vector token;
  coda_const_matrix x;
  coda_const_vector rstd;
  coda_const_matrix qkv;  // (M, W), or qkv_preact under QK-norm: the other one may be absent
  coda_const_matrix qkv_preact;
  coda_const_matrix dqkv;     // (M, W)
  coda_const_matrix dx_next;  // (M, H): gradient that reaches x through the residual stream
  coda_qkv_weights next;
  coda_heads heads;
  double head_eps;  // 1e-6 by default
  coda_qkv_gradients gradients;
  coda_matrix dtable;  // (V, H) stat, optional
  double beta;         // 1 by default
  coda_matrix dz;      // (M, W) gradient before the rotation, may be dqkv
  coda_matrix dx;      // (M, H) gradient of x, may be dx_next
  coda_workspace workspace;
  int64_t* traffic;
  coda_target on;
} coda_block_pre_backward_args;
coda_block_pre_backward_args coda_block_pre_backward_defaults(void);
coda_status coda_block_pre_backward(const coda_block_pre_backward_args* args);

/// From the gradients of qkv and x_next to those of attended and x.
typedef struct coda_block_backward_args {
  // As block left them.
  coda_const_matrix attended, x_mid;
  coda_const_vector rstd_mid;
  coda_const_matrix preact;
  coda_const_matrix x_next;
  coda_const_vector rstd_next;
  coda_const_matrix qkv, qkv_preact;  // the latter under QK-norm, else the former: the other one may be absent

  coda_const_matrix dqkv;     // (M, W)
  coda_const_matrix dx_next;  // (M, H): gradient that reaches x_next through the residual stream
  coda_block_weights weights;
  coda_qkv_weights next;
  coda_heads heads;
  coda_glu function;
  double head_eps;  // 1e-6 by default
  coda_block_gradients gradients;
  coda_qkv_gradients next_gradients;
  double beta;            // 1 by default
  coda_matrix dz;         // (M, W) gradient before the rotation, may be dqkv
  coda_matrix dpreact;    // (M, 2F), may be preact, which is lost then
  coda_matrix dx;         // (M, H) gradient of x, may be dx_next
  coda_matrix dattended;  // (M, Q)
  coda_workspace workspace;
  int64_t* traffic;
  coda_target on;
} coda_block_backward_args;
coda_block_backward_args coda_block_backward_defaults(void);
coda_status coda_block_backward(const coda_block_backward_args* args);

/// From each row's loss, which it computes itself (block_post without a head is the forward before it), to the
/// gradients of attended and x. At most `logit_rows` rows of logits are held, of all V columns; the gradient of the
/// head is added to once for each so many rows, and rounded each time to its dtype: with many more rows than that it
/// wants to be fp32.
typedef struct coda_block_post_backward_args {
  coda_const_matrix attended, x_mid;
  coda_const_vector rstd_mid;
  coda_const_matrix preact;
  coda_const_matrix x_last;
  coda_const_vector rstd_last;
  coda_matrix h;  // (M, H) as block_post left it; overwritten

  coda_const_vector dloss;  // (M) stat: gradient of each row's loss
  coda_block_weights weights;
  coda_head_weights head;
  coda_glu function;
  coda_logit_transform transform;
  coda_const_vector target;
  coda_cross_entropy options;
  int64_t logit_rows;  // 0: as many as fill 512 MiB, on sm90 2 GiB
  coda_block_gradients gradients;
  coda_head_gradients head_gradients;
  double beta;            // 1 by default
  coda_vector lse, loss;  // (M) stat
  coda_matrix dpreact;    // (M, 2F), may be preact, which is lost then
  coda_matrix dx;         // (M, H) gradient of x
  coda_matrix dattended;  // (M, Q)
  coda_workspace workspace;
  int64_t* traffic;
  coda_target on;
} coda_block_post_backward_args;
coda_block_post_backward_args coda_block_post_backward_defaults(void);
coda_status coda_block_post_backward(const coda_block_post_backward_args* args);

#ifdef __cplusplus
}
#endif
