// The layer calls, forward and backward in a row.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "coda/ops/layer.h"
#include "tests/gpu/problem.h"

namespace coda::test::gpu {

struct LayerOptions {
  DType type = DType::bf16;
  bool qk_norm = false;
  ops::Glu glu = ops::Glu::swiglu;
  bool wide_gradients = true;  // fp32, else of the operands' type
  std::uint64_t seed = 1;
};
struct LayerSizes {
  std::int64_t m, hidden, ffn, q, kv, head_dim, vocab;
};

/// Where a call of the layer on Hopper has its temporaries; empty: the library's own.
using Workspace = std::span<std::byte>;

Problem block_problem(const LayerOptions& o, const LayerSizes& s, Workspace workspace = {});
Problem block_pre_problem(const LayerOptions& o, const LayerSizes& s, Workspace workspace = {});
Problem block_post_problem(const LayerOptions& o, const LayerSizes& s, Workspace workspace = {});

using MakeProblem = Problem (*)(const LayerOptions&, const LayerSizes&, Workspace);
inline constexpr MakeProblem kLayerProblems[] = {block_problem, block_pre_problem, block_post_problem};

// Widths with 16-byte rows, ragged in tiles; then whole tiles, several of them each way.
inline constexpr LayerSizes kRaggedLayer{150, 264, 136, 4, 1, 32, 520}, kWholeLayer{384, 512, 768, 8, 2, 64, 1024};

/// With and without QK-norm, each gated activation, both types of operands and of gradients.
std::vector<LayerOptions> layer_variants();

}  // namespace coda::test::gpu
