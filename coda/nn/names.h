// How the tensors of `Weights` lie in a Hugging Face checkpoint: names, and which row there is which row here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "coda/nn/config.h"
#include "coda/nn/weights.h"

namespace coda::nn {

/// Rows 2j and 2j+1 of a head here are rows j and j + head_dim/2 of a head there (`rotate_half`): where row i of a
/// half-split head lies among the adjacent pairs.
constexpr std::int64_t paired_row(std::int64_t i, std::int64_t head_dim) {
  return i < head_dim / 2 ? 2 * i : 2 * (i - head_dim / 2) + 1;
}

/// One tensor of a Hugging Face checkpoint. Its row r is row `row(r)` of `tensor`; a vector has rows of one element.
struct HfTensor {
  std::string name;
  Shape shape;
  HostTensor* tensor;
  std::function<std::int64_t(std::int64_t)> row;
};

/// Every tensor that LlamaForCausalLM or Qwen3ForCausalLM has for this config, bound to `weights`. One map serves both
/// directions, so that each is the exact inverse of the other.
std::vector<HfTensor> hf_tensors(const ModelConfig& config, Weights& weights);

/// Copies one tensor out of the model: `out` holds shape elements of the tensor's own element type.
void export_tensor(const HfTensor& item, std::span<std::byte> out);

/// Copies one tensor into the model, converting from `in.dtype()` where that differs. Throws on another shape.
void import_tensor(const HfTensor& item, const HostTensor& in);

}  // namespace coda::nn
