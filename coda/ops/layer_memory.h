// Temporaries of the layer calls: what each needs, and where it comes from.
#pragma once

#include <cstddef>
#include <span>

#include "coda/backend/cpu/memory.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/core/arena.h"
#include "coda/ops/check.h"
#include "coda/ops/layer.h"

namespace coda::ops {

inline std::int64_t qkv_width(const Heads& h) { return (h.q + h.k + h.v) * h.head_dim; }

/// Sizes of which the functions of layer.h that count bytes can make a number.
void check_sizes(const Check& check, const LayerShape& s);

struct FeedForwardMemory {
  Matrix y;        // (M, F) the activation's output
  Matrix partial;  // (M, tiles of H) statistics

  FeedForwardMemory(Arena& arena, const LayerShape& s);
};
struct ForwardMemory : FeedForwardMemory {
  Matrix h;  // (M, H) operand of the next product: stream times norm weight

  ForwardMemory(Arena& arena, const LayerShape& s);
};

struct LossMemory {
  Matrix max, sum, logit_sum;  // (M, tiles of V)
  Vector target_logit;         // (M)

  LossMemory(Arena& arena, const LayerShape& s);
};

struct BackwardMemory {
  Matrix h, y;      // (M, H) and (M, F), computed again: operands of weight gradients
  Vector partial;   // row terms of any program's tiles
  Vector row_term;  // (M)
  Vector dweight;   // (tiles_m, H or W)

  BackwardMemory(Arena& arena, const LayerShape& s);
};

/// For `rows` rows at a time.
struct HeadMemory {
  std::int64_t rows;
  Matrix logits;  // (rows, V), and their gradient in place
  Matrix max, sum, logit_sum;
  Vector target_logit, row_term;
  Matrix dweight;  // (tiles_m, H)

  HeadMemory(Arena& arena, const LayerShape& s);
};

/// Memory of a call's backend until its work is done: the caller's, or the library's.
class Scratch {
 public:
  Scratch(const Check& check, const Target& on, std::span<std::byte> given, std::int64_t bytes);
  Arena arena() const { return Arena(data_); }

 private:
  cpu::Memory host_;
  sm90::Workspace device_;
  std::byte* data_ = nullptr;
};

}  // namespace coda::ops
