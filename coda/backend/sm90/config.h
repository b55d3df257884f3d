// Shapes of the Hopper backend that a caller or a build without CUDA may need to know.
#pragma once

#include <cstdint>

#include "coda/core/tensor.h"

namespace coda::sm90 {

/// Block of the output that one partial result covers, whatever the tile of the kernel that computes it: those of a
/// program have shape (M, tiles_n(N)) or (tiles_m(M), N).
inline constexpr std::int64_t kTileM = 128, kTileN = 128;
constexpr std::int64_t tiles_m(std::int64_t m) { return ceil_div(m, kTileM); }
constexpr std::int64_t tiles_n(std::int64_t n) { return ceil_div(n, kTileN); }
/// Thread blocks side by side in a cluster, which share loads of A.
inline constexpr int kClusterN = 2;
/// Values along K in a step of a fused kernel: of 16 bits, one 128-byte row of swizzled shared memory.
inline constexpr int kStepK = 64;
/// A program that folds over heads has blocks of whole heads: as many as fit into kTileN, one at least.
inline constexpr std::int64_t kMaxTileN = 512;
constexpr std::int64_t tile_n_for_heads(std::int64_t head_dim) {
  return kTileN / head_dim > 1 ? kTileN / head_dim * head_dim : head_dim;
}

}  // namespace coda::sm90
