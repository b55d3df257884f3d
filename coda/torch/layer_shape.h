// What a layer's workspace depends on, from the arguments of its call.
#pragma once

#include "coda/c/coda.h"

namespace coda::pytorch {

inline coda_layer_shape shape_of(const coda_const_matrix& x, const coda_target& on) {
  coda_layer_shape shape = coda_layer_shape_defaults();
  shape.dtype = x.dtype;
  shape.tokens = x.rows;
  shape.hidden = x.cols;
  shape.backend = on.backend;
  return shape;
}

inline coda_const_matrix read_only(const coda_matrix& m) { return {m.data, m.dtype, m.rows, m.cols, m.pitch}; }

inline coda_layer_shape shape_of(const coda_block_pre_args& args) {
  coda_layer_shape shape = shape_of(read_only(args.x), args.on);
  shape.vocabulary = args.table.rows;
  shape.heads = args.heads;
  shape.qk_norm = args.next.q_norm.data != nullptr;
  return shape;
}

inline coda_layer_shape shape_of(const coda_block_args& args) {
  coda_layer_shape shape = shape_of(args.x, args.on);
  shape.ffn = args.weights.down.cols;
  shape.heads = args.heads;
  shape.qk_norm = args.next.q_norm.data != nullptr;
  return shape;
}

inline coda_layer_shape shape_of(const coda_block_post_args& args) {
  coda_layer_shape shape = shape_of(args.x, args.on);
  shape.ffn = args.weights.down.cols;
  shape.vocabulary = args.head.head.rows;
  shape.label_smoothing = args.options.label_smoothing != 0;
  return shape;
}

inline coda_layer_shape shape_of(const coda_block_pre_backward_args& args) {
  coda_layer_shape shape = shape_of(args.x, args.on);
  shape.vocabulary = args.dtable.rows;
  shape.heads = args.heads;
  shape.qk_norm = args.next.q_norm.data != nullptr;
  return shape;
}

inline coda_layer_shape shape_of(const coda_block_backward_args& args) {
  coda_layer_shape shape = shape_of(args.x_mid, args.on);
  shape.ffn = args.weights.down.cols;
  shape.heads = args.heads;
  shape.qk_norm = args.next.q_norm.data != nullptr;
  return shape;
}

inline coda_layer_shape shape_of(const coda_block_post_backward_args& args) {
  coda_layer_shape shape = shape_of(args.x_mid, args.on);
  shape.ffn = args.weights.down.cols;
  shape.vocabulary = args.head.head.rows;
  shape.label_smoothing = args.options.label_smoothing != 0;
  shape.logit_rows = args.logit_rows;
  return shape;
}

}  // namespace coda::pytorch
