// Memory for all the activations of a batch shape, laid out once: a training step allocates nothing.
#pragma once

#include "coda/core/arena.h"
#include "coda/nn/host_tensor.h"

namespace coda::nn {

/// Runs `layout(arena)` to measure, then again to place; returns the block that now holds everything.
template <class Layout>
HostTensor place(const Layout& layout) {
  Arena measure;
  layout(measure);
  HostTensor block(DType::fp64, {measure.bytes() / 8});
  Arena arena(block.bytes().data());
  layout(arena);
  return block;
}

}  // namespace coda::nn
