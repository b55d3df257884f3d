// Made from coda/ops/ops.h by scripts/c_api.py.
#include "coda/c/ops.h"

#include "coda/c/call.h"
#include "coda/ops/ops.h"

namespace coda::c {
namespace {

static_assert(CODA_BACKEND_CPU == static_cast<int>(ops::Backend::cpu) &&
              CODA_BACKEND_SM90 == static_cast<int>(ops::Backend::sm90));
static_assert(sizeof(coda_target) == sizeof(ops::Target) && CODA_SAME_PLACE(coda_target, ops::Target, backend) &&
              CODA_SAME_PLACE(coda_target, ops::Target, stream));
static_assert(CODA_ACTIVATION_IDENTITY == static_cast<int>(ops::Activation::identity) &&
              CODA_ACTIVATION_SILU == static_cast<int>(ops::Activation::silu) &&
              CODA_ACTIVATION_GELU_ERF == static_cast<int>(ops::Activation::gelu_erf) &&
              CODA_ACTIVATION_GELU_TANH == static_cast<int>(ops::Activation::gelu_tanh) &&
              CODA_ACTIVATION_RELU == static_cast<int>(ops::Activation::relu) &&
              CODA_ACTIVATION_RELU_SQUARED == static_cast<int>(ops::Activation::relu_squared));
static_assert(CODA_GLU_SWIGLU == static_cast<int>(ops::Glu::swiglu) &&
              CODA_GLU_GEGLU_ERF == static_cast<int>(ops::Glu::geglu_erf) &&
              CODA_GLU_GEGLU_TANH == static_cast<int>(ops::Glu::geglu_tanh) &&
              CODA_GLU_REGLU == static_cast<int>(ops::Glu::reglu));
static_assert(sizeof(coda_norm) == sizeof(ops::Norm) && CODA_SAME_PLACE(coda_norm, ops::Norm, rstd) &&
              CODA_SAME_PLACE(coda_norm, ops::Norm, mean) && CODA_SAME_PLACE(coda_norm, ops::Norm, u) &&
              CODA_SAME_PLACE(coda_norm, ops::Norm, c));
static_assert(sizeof(coda_norm_dot) == sizeof(ops::NormDot) && CODA_SAME_PLACE(coda_norm_dot, ops::NormDot, zdz) &&
              CODA_SAME_PLACE(coda_norm_dot, ops::NormDot, udz) && CODA_SAME_PLACE(coda_norm_dot, ops::NormDot, u) &&
              CODA_SAME_PLACE(coda_norm_dot, ops::NormDot, c));
static_assert(sizeof(coda_gemm_args) == sizeof(ops::Gemm) && CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, a) &&
              CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, b) && CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, layout) &&
              CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, alpha) && CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, beta) &&
              CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, c) && CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, bias) &&
              CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, activation) &&
              CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, preact) && CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, out) &&
              CODA_SAME_PLACE(coda_gemm_args, ops::Gemm, on));
static_assert(sizeof(coda_gemm_residual_args) == sizeof(ops::GemmResidual) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, a) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, b) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, layout) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, residual) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, weight) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, x) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, h) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, sum_sq) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, mean) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, m2) &&
              CODA_SAME_PLACE(coda_gemm_residual_args, ops::GemmResidual, on));
static_assert(sizeof(coda_embedding_args) == sizeof(ops::Embedding) &&
              CODA_SAME_PLACE(coda_embedding_args, ops::Embedding, table) &&
              CODA_SAME_PLACE(coda_embedding_args, ops::Embedding, token) &&
              CODA_SAME_PLACE(coda_embedding_args, ops::Embedding, weight) &&
              CODA_SAME_PLACE(coda_embedding_args, ops::Embedding, x) &&
              CODA_SAME_PLACE(coda_embedding_args, ops::Embedding, h) &&
              CODA_SAME_PLACE(coda_embedding_args, ops::Embedding, sum_sq) &&
              CODA_SAME_PLACE(coda_embedding_args, ops::Embedding, mean) &&
              CODA_SAME_PLACE(coda_embedding_args, ops::Embedding, m2) &&
              CODA_SAME_PLACE(coda_embedding_args, ops::Embedding, on));
static_assert(sizeof(coda_rms_finalize_args) == sizeof(ops::RmsFinalize) &&
              CODA_SAME_PLACE(coda_rms_finalize_args, ops::RmsFinalize, sum_sq) &&
              CODA_SAME_PLACE(coda_rms_finalize_args, ops::RmsFinalize, n) &&
              CODA_SAME_PLACE(coda_rms_finalize_args, ops::RmsFinalize, eps) &&
              CODA_SAME_PLACE(coda_rms_finalize_args, ops::RmsFinalize, rstd) &&
              CODA_SAME_PLACE(coda_rms_finalize_args, ops::RmsFinalize, on));
static_assert(sizeof(coda_layernorm_finalize_args) == sizeof(ops::LayerNormFinalize) &&
              CODA_SAME_PLACE(coda_layernorm_finalize_args, ops::LayerNormFinalize, tile_mean) &&
              CODA_SAME_PLACE(coda_layernorm_finalize_args, ops::LayerNormFinalize, tile_m2) &&
              CODA_SAME_PLACE(coda_layernorm_finalize_args, ops::LayerNormFinalize, n) &&
              CODA_SAME_PLACE(coda_layernorm_finalize_args, ops::LayerNormFinalize, eps) &&
              CODA_SAME_PLACE(coda_layernorm_finalize_args, ops::LayerNormFinalize, mean) &&
              CODA_SAME_PLACE(coda_layernorm_finalize_args, ops::LayerNormFinalize, rstd) &&
              CODA_SAME_PLACE(coda_layernorm_finalize_args, ops::LayerNormFinalize, on));
static_assert(sizeof(coda_gemm_norm_args) == sizeof(ops::GemmNorm) &&
              CODA_SAME_PLACE(coda_gemm_norm_args, ops::GemmNorm, a) &&
              CODA_SAME_PLACE(coda_gemm_norm_args, ops::GemmNorm, b) &&
              CODA_SAME_PLACE(coda_gemm_norm_args, ops::GemmNorm, layout) &&
              CODA_SAME_PLACE(coda_gemm_norm_args, ops::GemmNorm, norm) &&
              CODA_SAME_PLACE(coda_gemm_norm_args, ops::GemmNorm, activation) &&
              CODA_SAME_PLACE(coda_gemm_norm_args, ops::GemmNorm, preact) &&
              CODA_SAME_PLACE(coda_gemm_norm_args, ops::GemmNorm, out) &&
              CODA_SAME_PLACE(coda_gemm_norm_args, ops::GemmNorm, on));
static_assert(sizeof(coda_gemm_norm_glu_args) == sizeof(ops::GemmNormGlu) &&
              CODA_SAME_PLACE(coda_gemm_norm_glu_args, ops::GemmNormGlu, a) &&
              CODA_SAME_PLACE(coda_gemm_norm_glu_args, ops::GemmNormGlu, b) &&
              CODA_SAME_PLACE(coda_gemm_norm_glu_args, ops::GemmNormGlu, layout) &&
              CODA_SAME_PLACE(coda_gemm_norm_glu_args, ops::GemmNormGlu, norm) &&
              CODA_SAME_PLACE(coda_gemm_norm_glu_args, ops::GemmNormGlu, function) &&
              CODA_SAME_PLACE(coda_gemm_norm_glu_args, ops::GemmNormGlu, preact) &&
              CODA_SAME_PLACE(coda_gemm_norm_glu_args, ops::GemmNormGlu, out) &&
              CODA_SAME_PLACE(coda_gemm_norm_glu_args, ops::GemmNormGlu, on));
static_assert(sizeof(coda_heads) == sizeof(ops::Heads) && CODA_SAME_PLACE(coda_heads, ops::Heads, q) &&
              CODA_SAME_PLACE(coda_heads, ops::Heads, k) && CODA_SAME_PLACE(coda_heads, ops::Heads, v) &&
              CODA_SAME_PLACE(coda_heads, ops::Heads, head_dim) && CODA_SAME_PLACE(coda_heads, ops::Heads, table) &&
              CODA_SAME_PLACE(coda_heads, ops::Heads, position));
static_assert(sizeof(coda_gemm_norm_rope_args) == sizeof(ops::GemmNormRope) &&
              CODA_SAME_PLACE(coda_gemm_norm_rope_args, ops::GemmNormRope, a) &&
              CODA_SAME_PLACE(coda_gemm_norm_rope_args, ops::GemmNormRope, b) &&
              CODA_SAME_PLACE(coda_gemm_norm_rope_args, ops::GemmNormRope, layout) &&
              CODA_SAME_PLACE(coda_gemm_norm_rope_args, ops::GemmNormRope, norm) &&
              CODA_SAME_PLACE(coda_gemm_norm_rope_args, ops::GemmNormRope, heads) &&
              CODA_SAME_PLACE(coda_gemm_norm_rope_args, ops::GemmNormRope, out) &&
              CODA_SAME_PLACE(coda_gemm_norm_rope_args, ops::GemmNormRope, on));
static_assert(sizeof(coda_gemm_norm_rotate_args) == sizeof(ops::GemmNormRotate) &&
              CODA_SAME_PLACE(coda_gemm_norm_rotate_args, ops::GemmNormRotate, a) &&
              CODA_SAME_PLACE(coda_gemm_norm_rotate_args, ops::GemmNormRotate, b) &&
              CODA_SAME_PLACE(coda_gemm_norm_rotate_args, ops::GemmNormRotate, layout) &&
              CODA_SAME_PLACE(coda_gemm_norm_rotate_args, ops::GemmNormRotate, norm) &&
              CODA_SAME_PLACE(coda_gemm_norm_rotate_args, ops::GemmNormRotate, angle) &&
              CODA_SAME_PLACE(coda_gemm_norm_rotate_args, ops::GemmNormRotate, preact) &&
              CODA_SAME_PLACE(coda_gemm_norm_rotate_args, ops::GemmNormRotate, out) &&
              CODA_SAME_PLACE(coda_gemm_norm_rotate_args, ops::GemmNormRotate, on));
static_assert(sizeof(coda_gemm_norm_qknorm_rope_args) == sizeof(ops::GemmNormQkNormRope) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, a) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, b) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, layout) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, norm) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, heads) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, q_weight) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, k_weight) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, eps) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, preact) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, out) &&
              CODA_SAME_PLACE(coda_gemm_norm_qknorm_rope_args, ops::GemmNormQkNormRope, on));
static_assert(sizeof(coda_logit_transform) == sizeof(ops::LogitTransform) &&
              CODA_SAME_PLACE(coda_logit_transform, ops::LogitTransform, scale) &&
              CODA_SAME_PLACE(coda_logit_transform, ops::LogitTransform, cap));
static_assert(sizeof(coda_gemm_lse_args) == sizeof(ops::GemmLse) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, a) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, b) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, layout) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, norm) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, transform) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, target) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, ignore_index) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, first_column) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, vocabulary) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, preact) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, logits) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, max) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, sum) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, logit_sum) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, target_logit) &&
              CODA_SAME_PLACE(coda_gemm_lse_args, ops::GemmLse, on));
static_assert(sizeof(coda_cross_entropy) == sizeof(ops::CrossEntropy) &&
              CODA_SAME_PLACE(coda_cross_entropy, ops::CrossEntropy, label_smoothing) &&
              CODA_SAME_PLACE(coda_cross_entropy, ops::CrossEntropy, z_loss) &&
              CODA_SAME_PLACE(coda_cross_entropy, ops::CrossEntropy, ignore_index));
static_assert(sizeof(coda_lse_finalize_args) == sizeof(ops::LseFinalize) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, max) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, sum) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, logit_sum) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, target) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, target_logit) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, vocabulary) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, options) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, lse) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, loss) &&
              CODA_SAME_PLACE(coda_lse_finalize_args, ops::LseFinalize, on));
static_assert(sizeof(coda_linear_cross_entropy_args) == sizeof(ops::LinearCrossEntropy) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_args, ops::LinearCrossEntropy, a) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_args, ops::LinearCrossEntropy, weight) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_args, ops::LinearCrossEntropy, norm) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_args, ops::LinearCrossEntropy, transform) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_args, ops::LinearCrossEntropy, target) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_args, ops::LinearCrossEntropy, options) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_args, ops::LinearCrossEntropy, lse) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_args, ops::LinearCrossEntropy, loss) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_args, ops::LinearCrossEntropy, on));
static_assert(sizeof(coda_linear_cross_entropy_backward_args) == sizeof(ops::LinearCrossEntropyBackward) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, a) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, weight) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, h) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, norm) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, transform) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, target) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, lse) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, dloss) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, options) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, chunk) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, da) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, dweight) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, row_dot) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, row_udz) &&
              CODA_SAME_PLACE(coda_linear_cross_entropy_backward_args, ops::LinearCrossEntropyBackward, on));
static_assert(sizeof(coda_gemm_rms_backward_args) == sizeof(ops::GemmRmsBackward) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, a) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, b) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, layout) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, x) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, dx_in) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, rstd) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, row_term) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, weight) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, dx) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, h) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, dweight) &&
              CODA_SAME_PLACE(coda_gemm_rms_backward_args, ops::GemmRmsBackward, on));
static_assert(sizeof(coda_gemm_layernorm_backward_args) == sizeof(ops::GemmLayerNormBackward) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, a) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, b) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, layout) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, x) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, dx_in) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, rstd) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, mean) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, zdz) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, udz) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, weight) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, bias) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, dx) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, h) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, dweight) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, dbias) &&
              CODA_SAME_PLACE(coda_gemm_layernorm_backward_args, ops::GemmLayerNormBackward, on));
static_assert(sizeof(coda_gemm_glu_backward_args) == sizeof(ops::GemmGluBackward) &&
              CODA_SAME_PLACE(coda_gemm_glu_backward_args, ops::GemmGluBackward, a) &&
              CODA_SAME_PLACE(coda_gemm_glu_backward_args, ops::GemmGluBackward, b) &&
              CODA_SAME_PLACE(coda_gemm_glu_backward_args, ops::GemmGluBackward, layout) &&
              CODA_SAME_PLACE(coda_gemm_glu_backward_args, ops::GemmGluBackward, function) &&
              CODA_SAME_PLACE(coda_gemm_glu_backward_args, ops::GemmGluBackward, preact) &&
              CODA_SAME_PLACE(coda_gemm_glu_backward_args, ops::GemmGluBackward, dpreact) &&
              CODA_SAME_PLACE(coda_gemm_glu_backward_args, ops::GemmGluBackward, out) &&
              CODA_SAME_PLACE(coda_gemm_glu_backward_args, ops::GemmGluBackward, dot) &&
              CODA_SAME_PLACE(coda_gemm_glu_backward_args, ops::GemmGluBackward, on));
static_assert(sizeof(coda_gemm_activation_backward_args) == sizeof(ops::GemmActivationBackward) &&
              CODA_SAME_PLACE(coda_gemm_activation_backward_args, ops::GemmActivationBackward, a) &&
              CODA_SAME_PLACE(coda_gemm_activation_backward_args, ops::GemmActivationBackward, b) &&
              CODA_SAME_PLACE(coda_gemm_activation_backward_args, ops::GemmActivationBackward, layout) &&
              CODA_SAME_PLACE(coda_gemm_activation_backward_args, ops::GemmActivationBackward, activation) &&
              CODA_SAME_PLACE(coda_gemm_activation_backward_args, ops::GemmActivationBackward, preact) &&
              CODA_SAME_PLACE(coda_gemm_activation_backward_args, ops::GemmActivationBackward, dpreact) &&
              CODA_SAME_PLACE(coda_gemm_activation_backward_args, ops::GemmActivationBackward, out) &&
              CODA_SAME_PLACE(coda_gemm_activation_backward_args, ops::GemmActivationBackward, dot) &&
              CODA_SAME_PLACE(coda_gemm_activation_backward_args, ops::GemmActivationBackward, on));
static_assert(sizeof(coda_rope_backward_args) == sizeof(ops::RopeBackward) &&
              CODA_SAME_PLACE(coda_rope_backward_args, ops::RopeBackward, y) &&
              CODA_SAME_PLACE(coda_rope_backward_args, ops::RopeBackward, dy) &&
              CODA_SAME_PLACE(coda_rope_backward_args, ops::RopeBackward, heads) &&
              CODA_SAME_PLACE(coda_rope_backward_args, ops::RopeBackward, dz) &&
              CODA_SAME_PLACE(coda_rope_backward_args, ops::RopeBackward, dot) &&
              CODA_SAME_PLACE(coda_rope_backward_args, ops::RopeBackward, on));
static_assert(sizeof(coda_qknorm_rope_backward_args) == sizeof(ops::QkNormRopeBackward) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, preact) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, dy) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, heads) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, q_weight) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, k_weight) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, eps) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, dz) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, dweight) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, dot) &&
              CODA_SAME_PLACE(coda_qknorm_rope_backward_args, ops::QkNormRopeBackward, on));
static_assert(sizeof(coda_cross_entropy_backward_args) == sizeof(ops::CrossEntropyBackward) &&
              CODA_SAME_PLACE(coda_cross_entropy_backward_args, ops::CrossEntropyBackward, preact) &&
              CODA_SAME_PLACE(coda_cross_entropy_backward_args, ops::CrossEntropyBackward, transform) &&
              CODA_SAME_PLACE(coda_cross_entropy_backward_args, ops::CrossEntropyBackward, target) &&
              CODA_SAME_PLACE(coda_cross_entropy_backward_args, ops::CrossEntropyBackward, lse) &&
              CODA_SAME_PLACE(coda_cross_entropy_backward_args, ops::CrossEntropyBackward, dloss) &&
              CODA_SAME_PLACE(coda_cross_entropy_backward_args, ops::CrossEntropyBackward, options) &&
              CODA_SAME_PLACE(coda_cross_entropy_backward_args, ops::CrossEntropyBackward, dz) &&
              CODA_SAME_PLACE(coda_cross_entropy_backward_args, ops::CrossEntropyBackward, dot) &&
              CODA_SAME_PLACE(coda_cross_entropy_backward_args, ops::CrossEntropyBackward, on));
static_assert(sizeof(coda_sum_rows_args) == sizeof(ops::SumRows) &&
              CODA_SAME_PLACE(coda_sum_rows_args, ops::SumRows, partial) &&
              CODA_SAME_PLACE(coda_sum_rows_args, ops::SumRows, scale) &&
              CODA_SAME_PLACE(coda_sum_rows_args, ops::SumRows, out) &&
              CODA_SAME_PLACE(coda_sum_rows_args, ops::SumRows, on));
static_assert(sizeof(coda_sum_columns_args) == sizeof(ops::SumColumns) &&
              CODA_SAME_PLACE(coda_sum_columns_args, ops::SumColumns, partial) &&
              CODA_SAME_PLACE(coda_sum_columns_args, ops::SumColumns, beta) &&
              CODA_SAME_PLACE(coda_sum_columns_args, ops::SumColumns, out) &&
              CODA_SAME_PLACE(coda_sum_columns_args, ops::SumColumns, on));
static_assert(sizeof(coda_head_weight_gradient_args) == sizeof(ops::HeadWeightGradient) &&
              CODA_SAME_PLACE(coda_head_weight_gradient_args, ops::HeadWeightGradient, partial) &&
              CODA_SAME_PLACE(coda_head_weight_gradient_args, ops::HeadWeightGradient, heads) &&
              CODA_SAME_PLACE(coda_head_weight_gradient_args, ops::HeadWeightGradient, beta) &&
              CODA_SAME_PLACE(coda_head_weight_gradient_args, ops::HeadWeightGradient, dq_weight) &&
              CODA_SAME_PLACE(coda_head_weight_gradient_args, ops::HeadWeightGradient, dk_weight) &&
              CODA_SAME_PLACE(coda_head_weight_gradient_args, ops::HeadWeightGradient, on));
static_assert(sizeof(coda_embedding_backward_args) == sizeof(ops::EmbeddingBackward) &&
              CODA_SAME_PLACE(coda_embedding_backward_args, ops::EmbeddingBackward, dx) &&
              CODA_SAME_PLACE(coda_embedding_backward_args, ops::EmbeddingBackward, token) &&
              CODA_SAME_PLACE(coda_embedding_backward_args, ops::EmbeddingBackward, dtable) &&
              CODA_SAME_PLACE(coda_embedding_backward_args, ops::EmbeddingBackward, on));
static_assert(sizeof(coda_cast_args) == sizeof(ops::Cast) && CODA_SAME_PLACE(coda_cast_args, ops::Cast, in) &&
              CODA_SAME_PLACE(coda_cast_args, ops::Cast, out) && CODA_SAME_PLACE(coda_cast_args, ops::Cast, on));
static_assert(sizeof(coda_squared_norm_args) == sizeof(ops::SquaredNorm) &&
              CODA_SAME_PLACE(coda_squared_norm_args, ops::SquaredNorm, x) &&
              CODA_SAME_PLACE(coda_squared_norm_args, ops::SquaredNorm, beta) &&
              CODA_SAME_PLACE(coda_squared_norm_args, ops::SquaredNorm, out) &&
              CODA_SAME_PLACE(coda_squared_norm_args, ops::SquaredNorm, on));
static_assert(
    sizeof(coda_adamw_args) == sizeof(ops::AdamW) && CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, master) &&
    CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, m) && CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, v) &&
    CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, weight) && CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, gradient) &&
    CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, rate) && CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, beta1) &&
    CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, beta2) && CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, eps) &&
    CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, weight_decay) && CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, step) &&
    CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, gradient_scale) &&
    CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, squared_norm) &&
    CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, clip_norm) && CODA_SAME_PLACE(coda_adamw_args, ops::AdamW, on));

}  // namespace
}  // namespace coda::c

extern "C" {

int64_t coda_tiles_n(int64_t n, coda_backend backend) {
  return coda::ops::tiles_n(n, static_cast<coda::ops::Backend>(backend));
}
int64_t coda_tiles_m(int64_t m, coda_backend backend) {
  return coda::ops::tiles_m(m, static_cast<coda::ops::Backend>(backend));
}
coda_gemm_args coda_gemm_defaults(void) { return coda::c::defaults<coda::ops::Gemm, coda_gemm_args>(); }
coda_status coda_gemm(const coda_gemm_args* args) { return coda::c::call("gemm", coda::ops::gemm, args); }
coda_gemm_residual_args coda_gemm_residual_defaults(void) {
  return coda::c::defaults<coda::ops::GemmResidual, coda_gemm_residual_args>();
}
coda_status coda_gemm_residual(const coda_gemm_residual_args* args) {
  return coda::c::call("gemm_residual", coda::ops::gemm_residual, args);
}
coda_embedding_args coda_embedding_defaults(void) {
  return coda::c::defaults<coda::ops::Embedding, coda_embedding_args>();
}
coda_status coda_embedding(const coda_embedding_args* args) {
  return coda::c::call("embedding", coda::ops::embedding, args);
}
coda_rms_finalize_args coda_rms_finalize_defaults(void) {
  return coda::c::defaults<coda::ops::RmsFinalize, coda_rms_finalize_args>();
}
coda_status coda_rms_finalize(const coda_rms_finalize_args* args) {
  return coda::c::call("rms_finalize", coda::ops::rms_finalize, args);
}
coda_layernorm_finalize_args coda_layernorm_finalize_defaults(void) {
  return coda::c::defaults<coda::ops::LayerNormFinalize, coda_layernorm_finalize_args>();
}
coda_status coda_layernorm_finalize(const coda_layernorm_finalize_args* args) {
  return coda::c::call("layernorm_finalize", coda::ops::layernorm_finalize, args);
}
coda_gemm_norm_args coda_gemm_norm_defaults(void) {
  return coda::c::defaults<coda::ops::GemmNorm, coda_gemm_norm_args>();
}
coda_status coda_gemm_norm(const coda_gemm_norm_args* args) {
  return coda::c::call("gemm_norm", coda::ops::gemm_norm, args);
}
coda_gemm_norm_glu_args coda_gemm_norm_glu_defaults(void) {
  return coda::c::defaults<coda::ops::GemmNormGlu, coda_gemm_norm_glu_args>();
}
coda_status coda_gemm_norm_glu(const coda_gemm_norm_glu_args* args) {
  return coda::c::call("gemm_norm_glu", coda::ops::gemm_norm_glu, args);
}
coda_status coda_rotary_table(coda_matrix table, double theta) {
  return coda::c::guarded("rotary_table", [&] { coda::ops::rotary_table(std::bit_cast<coda::Matrix>(table), theta); });
}
coda_status coda_rotary_table_from(coda_matrix table, coda_const_vector frequency, double scale) {
  return coda::c::guarded("rotary_table_from", [&] {
    coda::ops::rotary_table_from(std::bit_cast<coda::Matrix>(table), std::bit_cast<coda::ConstVector>(frequency),
                                 scale);
  });
}
coda_gemm_norm_rope_args coda_gemm_norm_rope_defaults(void) {
  return coda::c::defaults<coda::ops::GemmNormRope, coda_gemm_norm_rope_args>();
}
coda_status coda_gemm_norm_rope(const coda_gemm_norm_rope_args* args) {
  return coda::c::call("gemm_norm_rope", coda::ops::gemm_norm_rope, args);
}
coda_gemm_norm_rotate_args coda_gemm_norm_rotate_defaults(void) {
  return coda::c::defaults<coda::ops::GemmNormRotate, coda_gemm_norm_rotate_args>();
}
coda_status coda_gemm_norm_rotate(const coda_gemm_norm_rotate_args* args) {
  return coda::c::call("gemm_norm_rotate", coda::ops::gemm_norm_rotate, args);
}
coda_gemm_norm_qknorm_rope_args coda_gemm_norm_qknorm_rope_defaults(void) {
  return coda::c::defaults<coda::ops::GemmNormQkNormRope, coda_gemm_norm_qknorm_rope_args>();
}
coda_status coda_gemm_norm_qknorm_rope(const coda_gemm_norm_qknorm_rope_args* args) {
  return coda::c::call("gemm_norm_qknorm_rope", coda::ops::gemm_norm_qknorm_rope, args);
}
coda_gemm_lse_args coda_gemm_lse_defaults(void) { return coda::c::defaults<coda::ops::GemmLse, coda_gemm_lse_args>(); }
coda_status coda_gemm_lse(const coda_gemm_lse_args* args) {
  return coda::c::call("gemm_lse", coda::ops::gemm_lse, args);
}
coda_lse_finalize_args coda_lse_finalize_defaults(void) {
  return coda::c::defaults<coda::ops::LseFinalize, coda_lse_finalize_args>();
}
coda_status coda_lse_finalize(const coda_lse_finalize_args* args) {
  return coda::c::call("lse_finalize", coda::ops::lse_finalize, args);
}
coda_linear_cross_entropy_args coda_linear_cross_entropy_defaults(void) {
  return coda::c::defaults<coda::ops::LinearCrossEntropy, coda_linear_cross_entropy_args>();
}
coda_status coda_linear_cross_entropy(const coda_linear_cross_entropy_args* args) {
  return coda::c::call("linear_cross_entropy", coda::ops::linear_cross_entropy, args);
}
coda_linear_cross_entropy_backward_args coda_linear_cross_entropy_backward_defaults(void) {
  return coda::c::defaults<coda::ops::LinearCrossEntropyBackward, coda_linear_cross_entropy_backward_args>();
}
coda_status coda_linear_cross_entropy_backward(const coda_linear_cross_entropy_backward_args* args) {
  return coda::c::call("linear_cross_entropy_backward", coda::ops::linear_cross_entropy_backward, args);
}
coda_gemm_rms_backward_args coda_gemm_rms_backward_defaults(void) {
  return coda::c::defaults<coda::ops::GemmRmsBackward, coda_gemm_rms_backward_args>();
}
coda_status coda_gemm_rms_backward(const coda_gemm_rms_backward_args* args) {
  return coda::c::call("gemm_rms_backward", coda::ops::gemm_rms_backward, args);
}
coda_gemm_layernorm_backward_args coda_gemm_layernorm_backward_defaults(void) {
  return coda::c::defaults<coda::ops::GemmLayerNormBackward, coda_gemm_layernorm_backward_args>();
}
coda_status coda_gemm_layernorm_backward(const coda_gemm_layernorm_backward_args* args) {
  return coda::c::call("gemm_layernorm_backward", coda::ops::gemm_layernorm_backward, args);
}
coda_gemm_glu_backward_args coda_gemm_glu_backward_defaults(void) {
  return coda::c::defaults<coda::ops::GemmGluBackward, coda_gemm_glu_backward_args>();
}
coda_status coda_gemm_glu_backward(const coda_gemm_glu_backward_args* args) {
  return coda::c::call("gemm_glu_backward", coda::ops::gemm_glu_backward, args);
}
coda_gemm_activation_backward_args coda_gemm_activation_backward_defaults(void) {
  return coda::c::defaults<coda::ops::GemmActivationBackward, coda_gemm_activation_backward_args>();
}
coda_status coda_gemm_activation_backward(const coda_gemm_activation_backward_args* args) {
  return coda::c::call("gemm_activation_backward", coda::ops::gemm_activation_backward, args);
}
coda_rope_backward_args coda_rope_backward_defaults(void) {
  return coda::c::defaults<coda::ops::RopeBackward, coda_rope_backward_args>();
}
coda_status coda_rope_backward(const coda_rope_backward_args* args) {
  return coda::c::call("rope_backward", coda::ops::rope_backward, args);
}
coda_status coda_head_tiles_n(int64_t n, int64_t head_dim, coda_backend backend, int64_t* result) {
  return coda::c::value("head_tiles_n", result,
                        [&] { return coda::ops::head_tiles_n(n, head_dim, static_cast<coda::ops::Backend>(backend)); });
}
coda_qknorm_rope_backward_args coda_qknorm_rope_backward_defaults(void) {
  return coda::c::defaults<coda::ops::QkNormRopeBackward, coda_qknorm_rope_backward_args>();
}
coda_status coda_qknorm_rope_backward(const coda_qknorm_rope_backward_args* args) {
  return coda::c::call("qknorm_rope_backward", coda::ops::qknorm_rope_backward, args);
}
coda_cross_entropy_backward_args coda_cross_entropy_backward_defaults(void) {
  return coda::c::defaults<coda::ops::CrossEntropyBackward, coda_cross_entropy_backward_args>();
}
coda_status coda_cross_entropy_backward(const coda_cross_entropy_backward_args* args) {
  return coda::c::call("cross_entropy_backward", coda::ops::cross_entropy_backward, args);
}
coda_sum_rows_args coda_sum_rows_defaults(void) { return coda::c::defaults<coda::ops::SumRows, coda_sum_rows_args>(); }
coda_status coda_sum_rows(const coda_sum_rows_args* args) {
  return coda::c::call("sum_rows", coda::ops::sum_rows, args);
}
coda_sum_columns_args coda_sum_columns_defaults(void) {
  return coda::c::defaults<coda::ops::SumColumns, coda_sum_columns_args>();
}
coda_status coda_sum_columns(const coda_sum_columns_args* args) {
  return coda::c::call("sum_columns", coda::ops::sum_columns, args);
}
coda_head_weight_gradient_args coda_head_weight_gradient_defaults(void) {
  return coda::c::defaults<coda::ops::HeadWeightGradient, coda_head_weight_gradient_args>();
}
coda_status coda_head_weight_gradient(const coda_head_weight_gradient_args* args) {
  return coda::c::call("head_weight_gradient", coda::ops::head_weight_gradient, args);
}
coda_embedding_backward_args coda_embedding_backward_defaults(void) {
  return coda::c::defaults<coda::ops::EmbeddingBackward, coda_embedding_backward_args>();
}
coda_status coda_embedding_backward(const coda_embedding_backward_args* args) {
  return coda::c::call("embedding_backward", coda::ops::embedding_backward, args);
}
coda_cast_args coda_cast_defaults(void) { return coda::c::defaults<coda::ops::Cast, coda_cast_args>(); }
coda_status coda_cast(const coda_cast_args* args) { return coda::c::call("cast", coda::ops::cast, args); }
coda_squared_norm_args coda_squared_norm_defaults(void) {
  return coda::c::defaults<coda::ops::SquaredNorm, coda_squared_norm_args>();
}
coda_status coda_squared_norm(const coda_squared_norm_args* args) {
  return coda::c::call("squared_norm", coda::ops::squared_norm, args);
}
coda_adamw_args coda_adamw_defaults(void) { return coda::c::defaults<coda::ops::AdamW, coda_adamw_args>(); }
coda_status coda_adamw(const coda_adamw_args* args) { return coda::c::call("adamw", coda::ops::adamw, args); }
}
