// What a layer's workspace depends on, from the arguments of its call.
#pragma once

#include "coda/c/coda.h"

namespace coda::pytorch {

/// Of any of the six calls: what a call lacks counts as 0.
template <class Args>
coda_layer_shape shape_of(const Args& args) {
  coda_layer_shape shape = coda_layer_shape_defaults();
  const auto rows_of = [&shape](const auto& x) {
    shape.dtype = x.dtype;
    shape.tokens = x.rows;
    shape.hidden = x.cols;
  };
  if constexpr (requires { args.x; }) {
    rows_of(args.x);
  } else {
    rows_of(args.x_mid);
  }
  shape.backend = args.on.backend;
  if constexpr (requires { args.table; }) shape.vocabulary = args.table.rows;
  if constexpr (requires { args.dtable; }) shape.vocabulary = args.dtable.rows;
  if constexpr (requires { args.head; }) shape.vocabulary = args.head.head.rows;
  if constexpr (requires { args.weights; }) shape.ffn = args.weights.down.cols;
  if constexpr (requires { args.heads; }) shape.heads = args.heads;
  if constexpr (requires { args.next; }) shape.qk_norm = args.next.q_norm.data != nullptr;
  if constexpr (requires { args.options; }) shape.label_smoothing = args.options.label_smoothing != 0;
  if constexpr (requires { args.logit_rows; }) shape.logit_rows = args.logit_rows;
  return shape;
}

}  // namespace coda::pytorch
