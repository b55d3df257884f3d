// Made from coda/ops/layer.h by scripts/c_api.py.
#include "coda/c/layer.h"

#include "coda/c/call.h"
#include "coda/ops/layer.h"

namespace coda::c {
namespace {

static_assert(sizeof(coda_layer_shape) == sizeof(ops::LayerShape) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, dtype) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, tokens) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, hidden) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, ffn) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, vocabulary) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, heads) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, qk_norm) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, label_smoothing) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, logit_rows) &&
              CODA_SAME_PLACE(coda_layer_shape, ops::LayerShape, backend));
static_assert(sizeof(coda_block_weights) == sizeof(ops::BlockWeights) &&
              CODA_SAME_PLACE(coda_block_weights, ops::BlockWeights, out) &&
              CODA_SAME_PLACE(coda_block_weights, ops::BlockWeights, post_norm) &&
              CODA_SAME_PLACE(coda_block_weights, ops::BlockWeights, gate_up) &&
              CODA_SAME_PLACE(coda_block_weights, ops::BlockWeights, down));
static_assert(sizeof(coda_block_gradients) == sizeof(ops::BlockGradients) &&
              CODA_SAME_PLACE(coda_block_gradients, ops::BlockGradients, out) &&
              CODA_SAME_PLACE(coda_block_gradients, ops::BlockGradients, post_norm) &&
              CODA_SAME_PLACE(coda_block_gradients, ops::BlockGradients, gate_up) &&
              CODA_SAME_PLACE(coda_block_gradients, ops::BlockGradients, down));
static_assert(sizeof(coda_qkv_weights) == sizeof(ops::QkvWeights) &&
              CODA_SAME_PLACE(coda_qkv_weights, ops::QkvWeights, input_norm) &&
              CODA_SAME_PLACE(coda_qkv_weights, ops::QkvWeights, qkv) &&
              CODA_SAME_PLACE(coda_qkv_weights, ops::QkvWeights, q_norm) &&
              CODA_SAME_PLACE(coda_qkv_weights, ops::QkvWeights, k_norm));
static_assert(sizeof(coda_qkv_gradients) == sizeof(ops::QkvGradients) &&
              CODA_SAME_PLACE(coda_qkv_gradients, ops::QkvGradients, input_norm) &&
              CODA_SAME_PLACE(coda_qkv_gradients, ops::QkvGradients, qkv) &&
              CODA_SAME_PLACE(coda_qkv_gradients, ops::QkvGradients, q_norm) &&
              CODA_SAME_PLACE(coda_qkv_gradients, ops::QkvGradients, k_norm));
static_assert(sizeof(coda_head_weights) == sizeof(ops::HeadWeights) &&
              CODA_SAME_PLACE(coda_head_weights, ops::HeadWeights, final_norm) &&
              CODA_SAME_PLACE(coda_head_weights, ops::HeadWeights, head));
static_assert(sizeof(coda_head_gradients) == sizeof(ops::HeadGradients) &&
              CODA_SAME_PLACE(coda_head_gradients, ops::HeadGradients, final_norm) &&
              CODA_SAME_PLACE(coda_head_gradients, ops::HeadGradients, head));
static_assert(sizeof(coda_block_pre_args) == sizeof(ops::BlockPre) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, table) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, token) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, next) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, heads) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, eps) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, head_eps) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, x) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, rstd) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, qkv_preact) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, qkv) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, workspace) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, traffic) &&
              CODA_SAME_PLACE(coda_block_pre_args, ops::BlockPre, on));
static_assert(
    sizeof(coda_block_args) == sizeof(ops::Block) && CODA_SAME_PLACE(coda_block_args, ops::Block, attended) &&
    CODA_SAME_PLACE(coda_block_args, ops::Block, x) && CODA_SAME_PLACE(coda_block_args, ops::Block, weights) &&
    CODA_SAME_PLACE(coda_block_args, ops::Block, next) && CODA_SAME_PLACE(coda_block_args, ops::Block, heads) &&
    CODA_SAME_PLACE(coda_block_args, ops::Block, function) && CODA_SAME_PLACE(coda_block_args, ops::Block, eps) &&
    CODA_SAME_PLACE(coda_block_args, ops::Block, head_eps) && CODA_SAME_PLACE(coda_block_args, ops::Block, x_mid) &&
    CODA_SAME_PLACE(coda_block_args, ops::Block, rstd_mid) && CODA_SAME_PLACE(coda_block_args, ops::Block, preact) &&
    CODA_SAME_PLACE(coda_block_args, ops::Block, x_next) && CODA_SAME_PLACE(coda_block_args, ops::Block, rstd_next) &&
    CODA_SAME_PLACE(coda_block_args, ops::Block, qkv_preact) && CODA_SAME_PLACE(coda_block_args, ops::Block, qkv) &&
    CODA_SAME_PLACE(coda_block_args, ops::Block, workspace) && CODA_SAME_PLACE(coda_block_args, ops::Block, traffic) &&
    CODA_SAME_PLACE(coda_block_args, ops::Block, on));
static_assert(sizeof(coda_block_post_args) == sizeof(ops::BlockPost) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, attended) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, x) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, weights) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, head) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, function) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, eps) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, transform) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, target) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, options) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, x_mid) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, rstd_mid) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, preact) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, x_last) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, rstd_last) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, h) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, lse) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, loss) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, workspace) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, traffic) &&
              CODA_SAME_PLACE(coda_block_post_args, ops::BlockPost, on));
static_assert(sizeof(coda_block_pre_backward_args) == sizeof(ops::BlockPreBackward) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, token) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, x) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, rstd) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, qkv) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, qkv_preact) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, dqkv) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, dx_next) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, next) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, heads) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, head_eps) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, gradients) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, dtable) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, beta) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, dz) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, dx) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, workspace) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, traffic) &&
              CODA_SAME_PLACE(coda_block_pre_backward_args, ops::BlockPreBackward, on));
static_assert(sizeof(coda_block_backward_args) == sizeof(ops::BlockBackward) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, attended) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, x_mid) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, rstd_mid) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, preact) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, x_next) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, rstd_next) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, qkv) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, qkv_preact) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, dqkv) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, dx_next) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, weights) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, next) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, heads) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, function) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, head_eps) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, gradients) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, next_gradients) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, beta) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, dz) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, dpreact) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, dx) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, dattended) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, workspace) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, traffic) &&
              CODA_SAME_PLACE(coda_block_backward_args, ops::BlockBackward, on));
static_assert(sizeof(coda_block_post_backward_args) == sizeof(ops::BlockPostBackward) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, attended) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, x_mid) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, rstd_mid) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, preact) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, x_last) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, rstd_last) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, h) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, dloss) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, weights) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, head) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, function) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, transform) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, target) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, options) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, logit_rows) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, gradients) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, head_gradients) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, beta) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, lse) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, loss) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, dpreact) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, dx) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, dattended) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, workspace) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, traffic) &&
              CODA_SAME_PLACE(coda_block_post_backward_args, ops::BlockPostBackward, on));

}  // namespace
}  // namespace coda::c

extern "C" {

coda_layer_shape coda_layer_shape_defaults(void) {
  return coda::c::defaults<coda::ops::LayerShape, coda_layer_shape>();
}
coda_status coda_block_pre_workspace_bytes(const coda_layer_shape* s, int64_t* result) {
  return coda::c::value("block_pre_workspace_bytes", result, [&] {
    return coda::ops::block_pre_workspace_bytes(
        coda::c::from_c<coda::ops::LayerShape>("block_pre_workspace_bytes", "s", s));
  });
}
coda_status coda_block_workspace_bytes(const coda_layer_shape* s, int64_t* result) {
  return coda::c::value("block_workspace_bytes", result, [&] {
    return coda::ops::block_workspace_bytes(coda::c::from_c<coda::ops::LayerShape>("block_workspace_bytes", "s", s));
  });
}
coda_status coda_block_post_workspace_bytes(const coda_layer_shape* s, int64_t* result) {
  return coda::c::value("block_post_workspace_bytes", result, [&] {
    return coda::ops::block_post_workspace_bytes(
        coda::c::from_c<coda::ops::LayerShape>("block_post_workspace_bytes", "s", s));
  });
}
coda_status coda_block_pre_backward_workspace_bytes(const coda_layer_shape* s, int64_t* result) {
  return coda::c::value("block_pre_backward_workspace_bytes", result, [&] {
    return coda::ops::block_pre_backward_workspace_bytes(
        coda::c::from_c<coda::ops::LayerShape>("block_pre_backward_workspace_bytes", "s", s));
  });
}
coda_status coda_block_backward_workspace_bytes(const coda_layer_shape* s, int64_t* result) {
  return coda::c::value("block_backward_workspace_bytes", result, [&] {
    return coda::ops::block_backward_workspace_bytes(
        coda::c::from_c<coda::ops::LayerShape>("block_backward_workspace_bytes", "s", s));
  });
}
coda_status coda_block_post_backward_workspace_bytes(const coda_layer_shape* s, int64_t* result) {
  return coda::c::value("block_post_backward_workspace_bytes", result, [&] {
    return coda::ops::block_post_backward_workspace_bytes(
        coda::c::from_c<coda::ops::LayerShape>("block_post_backward_workspace_bytes", "s", s));
  });
}
coda_status coda_block_saved_bytes(const coda_layer_shape* s, int64_t* result) {
  return coda::c::value("block_saved_bytes", result, [&] {
    return coda::ops::block_saved_bytes(coda::c::from_c<coda::ops::LayerShape>("block_saved_bytes", "s", s));
  });
}
coda_status coda_block_saved_bytes_unfused(const coda_layer_shape* s, int64_t* result) {
  return coda::c::value("block_saved_bytes_unfused", result, [&] {
    return coda::ops::block_saved_bytes_unfused(
        coda::c::from_c<coda::ops::LayerShape>("block_saved_bytes_unfused", "s", s));
  });
}
coda_block_pre_args coda_block_pre_defaults(void) {
  return coda::c::defaults<coda::ops::BlockPre, coda_block_pre_args>();
}
coda_status coda_block_pre(const coda_block_pre_args* args) {
  return coda::c::call("block_pre", coda::ops::block_pre, args);
}
coda_block_args coda_block_defaults(void) { return coda::c::defaults<coda::ops::Block, coda_block_args>(); }
coda_status coda_block(const coda_block_args* args) { return coda::c::call("block", coda::ops::block, args); }
coda_block_post_args coda_block_post_defaults(void) {
  return coda::c::defaults<coda::ops::BlockPost, coda_block_post_args>();
}
coda_status coda_block_post(const coda_block_post_args* args) {
  return coda::c::call("block_post", coda::ops::block_post, args);
}
coda_block_pre_backward_args coda_block_pre_backward_defaults(void) {
  return coda::c::defaults<coda::ops::BlockPreBackward, coda_block_pre_backward_args>();
}
coda_status coda_block_pre_backward(const coda_block_pre_backward_args* args) {
  return coda::c::call("block_pre_backward", coda::ops::block_pre_backward, args);
}
coda_block_backward_args coda_block_backward_defaults(void) {
  return coda::c::defaults<coda::ops::BlockBackward, coda_block_backward_args>();
}
coda_status coda_block_backward(const coda_block_backward_args* args) {
  return coda::c::call("block_backward", coda::ops::block_backward, args);
}
coda_block_post_backward_args coda_block_post_backward_defaults(void) {
  return coda::c::defaults<coda::ops::BlockPostBackward, coda_block_post_backward_args>();
}
coda_status coda_block_post_backward(const coda_block_post_backward_args* args) {
  return coda::c::call("block_post_backward", coda::ops::block_post_backward, args);
}
}
