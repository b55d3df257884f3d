// The calls of the interface for C and the members of its structs. Made by scripts/c_api.py.
#pragma once

#include "coda/c/coda.h"

namespace coda::test {

/// f(operation, what makes its arguments' defaults, the call).
template <class F>
void for_each_call(F&& f) {
  f("gemm", coda_gemm_defaults, coda_gemm);
  f("gemm_residual", coda_gemm_residual_defaults, coda_gemm_residual);
  f("embedding", coda_embedding_defaults, coda_embedding);
  f("rms_finalize", coda_rms_finalize_defaults, coda_rms_finalize);
  f("layernorm_finalize", coda_layernorm_finalize_defaults, coda_layernorm_finalize);
  f("gemm_norm", coda_gemm_norm_defaults, coda_gemm_norm);
  f("gemm_norm_glu", coda_gemm_norm_glu_defaults, coda_gemm_norm_glu);
  f("gemm_norm_rope", coda_gemm_norm_rope_defaults, coda_gemm_norm_rope);
  f("gemm_norm_rotate", coda_gemm_norm_rotate_defaults, coda_gemm_norm_rotate);
  f("gemm_norm_qknorm_rope", coda_gemm_norm_qknorm_rope_defaults, coda_gemm_norm_qknorm_rope);
  f("gemm_lse", coda_gemm_lse_defaults, coda_gemm_lse);
  f("lse_finalize", coda_lse_finalize_defaults, coda_lse_finalize);
  f("linear_cross_entropy", coda_linear_cross_entropy_defaults, coda_linear_cross_entropy);
  f("linear_cross_entropy_backward", coda_linear_cross_entropy_backward_defaults, coda_linear_cross_entropy_backward);
  f("gemm_rms_backward", coda_gemm_rms_backward_defaults, coda_gemm_rms_backward);
  f("gemm_layernorm_backward", coda_gemm_layernorm_backward_defaults, coda_gemm_layernorm_backward);
  f("gemm_glu_backward", coda_gemm_glu_backward_defaults, coda_gemm_glu_backward);
  f("gemm_activation_backward", coda_gemm_activation_backward_defaults, coda_gemm_activation_backward);
  f("rope_backward", coda_rope_backward_defaults, coda_rope_backward);
  f("qknorm_rope_backward", coda_qknorm_rope_backward_defaults, coda_qknorm_rope_backward);
  f("cross_entropy_backward", coda_cross_entropy_backward_defaults, coda_cross_entropy_backward);
  f("sum_rows", coda_sum_rows_defaults, coda_sum_rows);
  f("sum_columns", coda_sum_columns_defaults, coda_sum_columns);
  f("head_weight_gradient", coda_head_weight_gradient_defaults, coda_head_weight_gradient);
  f("embedding_backward", coda_embedding_backward_defaults, coda_embedding_backward);
  f("cast", coda_cast_defaults, coda_cast);
  f("squared_norm", coda_squared_norm_defaults, coda_squared_norm);
  f("adamw", coda_adamw_defaults, coda_adamw);
  f("block_pre", coda_block_pre_defaults, coda_block_pre);
  f("block", coda_block_defaults, coda_block);
  f("block_post", coda_block_post_defaults, coda_block_post);
  f("block_pre_backward", coda_block_pre_backward_defaults, coda_block_pre_backward);
  f("block_backward", coda_block_backward_defaults, coda_block_backward);
  f("block_post_backward", coda_block_post_backward_defaults, coda_block_post_backward);
}

/// f(member), in their order.
template <class F>
void for_each_member(coda_target& x, F&& f) {
  f(x.backend), f(x.stream);
}
template <class F>
void for_each_member(coda_norm& x, F&& f) {
  f(x.rstd), f(x.mean), f(x.u), f(x.c);
}
template <class F>
void for_each_member(coda_norm_dot& x, F&& f) {
  f(x.zdz), f(x.udz), f(x.u), f(x.c);
}
template <class F>
void for_each_member(coda_gemm_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.alpha), f(x.beta), f(x.c), f(x.bias), f(x.activation), f(x.preact), f(x.out),
      f(x.on);
}
template <class F>
void for_each_member(coda_gemm_residual_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.residual), f(x.weight), f(x.x), f(x.h), f(x.sum_sq), f(x.mean), f(x.m2), f(x.on);
}
template <class F>
void for_each_member(coda_embedding_args& x, F&& f) {
  f(x.table), f(x.token), f(x.weight), f(x.x), f(x.h), f(x.sum_sq), f(x.mean), f(x.m2), f(x.on);
}
template <class F>
void for_each_member(coda_rms_finalize_args& x, F&& f) {
  f(x.sum_sq), f(x.n), f(x.eps), f(x.rstd), f(x.on);
}
template <class F>
void for_each_member(coda_layernorm_finalize_args& x, F&& f) {
  f(x.tile_mean), f(x.tile_m2), f(x.n), f(x.eps), f(x.mean), f(x.rstd), f(x.on);
}
template <class F>
void for_each_member(coda_gemm_norm_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.norm), f(x.activation), f(x.preact), f(x.out), f(x.on);
}
template <class F>
void for_each_member(coda_gemm_norm_glu_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.norm), f(x.function), f(x.preact), f(x.out), f(x.on);
}
template <class F>
void for_each_member(coda_heads& x, F&& f) {
  f(x.q), f(x.k), f(x.v), f(x.head_dim), f(x.table), f(x.position);
}
template <class F>
void for_each_member(coda_gemm_norm_rope_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.norm), f(x.heads), f(x.out), f(x.on);
}
template <class F>
void for_each_member(coda_gemm_norm_rotate_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.norm), f(x.angle), f(x.preact), f(x.out), f(x.on);
}
template <class F>
void for_each_member(coda_gemm_norm_qknorm_rope_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.norm), f(x.heads), f(x.q_weight), f(x.k_weight), f(x.eps), f(x.preact), f(x.out),
      f(x.on);
}
template <class F>
void for_each_member(coda_logit_transform& x, F&& f) {
  f(x.scale), f(x.cap);
}
template <class F>
void for_each_member(coda_gemm_lse_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.norm), f(x.transform), f(x.target), f(x.ignore_index), f(x.first_column),
      f(x.vocabulary), f(x.preact), f(x.logits), f(x.max), f(x.sum), f(x.logit_sum), f(x.target_logit), f(x.on);
}
template <class F>
void for_each_member(coda_cross_entropy& x, F&& f) {
  f(x.label_smoothing), f(x.z_loss), f(x.ignore_index);
}
template <class F>
void for_each_member(coda_lse_finalize_args& x, F&& f) {
  f(x.max), f(x.sum), f(x.logit_sum), f(x.target), f(x.target_logit), f(x.vocabulary), f(x.options), f(x.lse),
      f(x.loss), f(x.on);
}
template <class F>
void for_each_member(coda_linear_cross_entropy_args& x, F&& f) {
  f(x.a), f(x.weight), f(x.norm), f(x.transform), f(x.target), f(x.options), f(x.lse), f(x.loss), f(x.on);
}
template <class F>
void for_each_member(coda_linear_cross_entropy_backward_args& x, F&& f) {
  f(x.a), f(x.weight), f(x.h), f(x.norm), f(x.transform), f(x.target), f(x.lse), f(x.dloss), f(x.options), f(x.chunk),
      f(x.da), f(x.dweight), f(x.row_dot), f(x.row_udz), f(x.on);
}
template <class F>
void for_each_member(coda_gemm_rms_backward_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.x), f(x.dx_in), f(x.rstd), f(x.row_term), f(x.weight), f(x.dx), f(x.h), f(x.dweight),
      f(x.on);
}
template <class F>
void for_each_member(coda_gemm_layernorm_backward_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.x), f(x.dx_in), f(x.rstd), f(x.mean), f(x.zdz), f(x.udz), f(x.weight), f(x.bias),
      f(x.dx), f(x.h), f(x.dweight), f(x.dbias), f(x.on);
}
template <class F>
void for_each_member(coda_gemm_glu_backward_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.function), f(x.preact), f(x.dpreact), f(x.out), f(x.dot), f(x.on);
}
template <class F>
void for_each_member(coda_gemm_activation_backward_args& x, F&& f) {
  f(x.a), f(x.b), f(x.layout), f(x.activation), f(x.preact), f(x.dpreact), f(x.out), f(x.dot), f(x.on);
}
template <class F>
void for_each_member(coda_rope_backward_args& x, F&& f) {
  f(x.y), f(x.dy), f(x.heads), f(x.dz), f(x.dot), f(x.on);
}
template <class F>
void for_each_member(coda_qknorm_rope_backward_args& x, F&& f) {
  f(x.preact), f(x.dy), f(x.heads), f(x.q_weight), f(x.k_weight), f(x.eps), f(x.dz), f(x.dweight), f(x.dot), f(x.on);
}
template <class F>
void for_each_member(coda_cross_entropy_backward_args& x, F&& f) {
  f(x.preact), f(x.transform), f(x.target), f(x.lse), f(x.dloss), f(x.options), f(x.dz), f(x.dot), f(x.on);
}
template <class F>
void for_each_member(coda_sum_rows_args& x, F&& f) {
  f(x.partial), f(x.scale), f(x.out), f(x.on);
}
template <class F>
void for_each_member(coda_sum_columns_args& x, F&& f) {
  f(x.partial), f(x.beta), f(x.out), f(x.on);
}
template <class F>
void for_each_member(coda_head_weight_gradient_args& x, F&& f) {
  f(x.partial), f(x.heads), f(x.beta), f(x.dq_weight), f(x.dk_weight), f(x.on);
}
template <class F>
void for_each_member(coda_embedding_backward_args& x, F&& f) {
  f(x.dx), f(x.token), f(x.dtable), f(x.on);
}
template <class F>
void for_each_member(coda_cast_args& x, F&& f) {
  f(x.in), f(x.out), f(x.on);
}
template <class F>
void for_each_member(coda_squared_norm_args& x, F&& f) {
  f(x.x), f(x.beta), f(x.out), f(x.on);
}
template <class F>
void for_each_member(coda_adamw_args& x, F&& f) {
  f(x.master), f(x.m), f(x.v), f(x.weight), f(x.gradient), f(x.rate), f(x.beta1), f(x.beta2), f(x.eps),
      f(x.weight_decay), f(x.step), f(x.gradient_scale), f(x.squared_norm), f(x.clip_norm), f(x.on);
}
template <class F>
void for_each_member(coda_layer_shape& x, F&& f) {
  f(x.dtype), f(x.tokens), f(x.hidden), f(x.ffn), f(x.vocabulary), f(x.heads), f(x.qk_norm), f(x.label_smoothing),
      f(x.logit_rows), f(x.backend);
}
template <class F>
void for_each_member(coda_block_weights& x, F&& f) {
  f(x.out), f(x.post_norm), f(x.gate_up), f(x.down);
}
template <class F>
void for_each_member(coda_block_gradients& x, F&& f) {
  f(x.out), f(x.post_norm), f(x.gate_up), f(x.down);
}
template <class F>
void for_each_member(coda_qkv_weights& x, F&& f) {
  f(x.input_norm), f(x.qkv), f(x.q_norm), f(x.k_norm);
}
template <class F>
void for_each_member(coda_qkv_gradients& x, F&& f) {
  f(x.input_norm), f(x.qkv), f(x.q_norm), f(x.k_norm);
}
template <class F>
void for_each_member(coda_head_weights& x, F&& f) {
  f(x.final_norm), f(x.head);
}
template <class F>
void for_each_member(coda_head_gradients& x, F&& f) {
  f(x.final_norm), f(x.head);
}
template <class F>
void for_each_member(coda_block_pre_args& x, F&& f) {
  f(x.table), f(x.token), f(x.next), f(x.heads), f(x.eps), f(x.head_eps), f(x.x), f(x.rstd), f(x.qkv_preact), f(x.qkv),
      f(x.workspace), f(x.traffic), f(x.on);
}
template <class F>
void for_each_member(coda_block_args& x, F&& f) {
  f(x.attended), f(x.x), f(x.weights), f(x.next), f(x.heads), f(x.function), f(x.eps), f(x.head_eps), f(x.x_mid),
      f(x.rstd_mid), f(x.preact), f(x.x_next), f(x.rstd_next), f(x.qkv_preact), f(x.qkv), f(x.workspace), f(x.traffic),
      f(x.on);
}
template <class F>
void for_each_member(coda_block_post_args& x, F&& f) {
  f(x.attended), f(x.x), f(x.weights), f(x.head), f(x.function), f(x.eps), f(x.transform), f(x.target), f(x.options),
      f(x.x_mid), f(x.rstd_mid), f(x.preact), f(x.x_last), f(x.rstd_last), f(x.h), f(x.lse), f(x.loss), f(x.workspace),
      f(x.traffic), f(x.on);
}
template <class F>
void for_each_member(coda_block_pre_backward_args& x, F&& f) {
  f(x.token), f(x.x), f(x.rstd), f(x.qkv), f(x.qkv_preact), f(x.dqkv), f(x.dx_next), f(x.next), f(x.heads),
      f(x.head_eps), f(x.gradients), f(x.dtable), f(x.beta), f(x.dz), f(x.dx), f(x.workspace), f(x.traffic), f(x.on);
}
template <class F>
void for_each_member(coda_block_backward_args& x, F&& f) {
  f(x.attended), f(x.x_mid), f(x.rstd_mid), f(x.preact), f(x.x_next), f(x.rstd_next), f(x.qkv), f(x.qkv_preact),
      f(x.dqkv), f(x.dx_next), f(x.weights), f(x.next), f(x.heads), f(x.function), f(x.head_eps), f(x.gradients),
      f(x.next_gradients), f(x.beta), f(x.dz), f(x.dpreact), f(x.dx), f(x.dattended), f(x.workspace), f(x.traffic),
      f(x.on);
}
template <class F>
void for_each_member(coda_block_post_backward_args& x, F&& f) {
  f(x.attended), f(x.x_mid), f(x.rstd_mid), f(x.preact), f(x.x_last), f(x.rstd_last), f(x.h), f(x.dloss), f(x.weights),
      f(x.head), f(x.function), f(x.transform), f(x.target), f(x.options), f(x.logit_rows), f(x.gradients),
      f(x.head_gradients), f(x.beta), f(x.lse), f(x.loss), f(x.dpreact), f(x.dx), f(x.dattended), f(x.workspace),
      f(x.traffic), f(x.on);
}

}  // namespace coda::test
