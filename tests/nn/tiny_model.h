// A model small enough for finite differences, and batches for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "coda/nn/convert.h"
#include "coda/nn/data.h"
#include "coda/nn/rng.h"
#include "coda/nn/weights.h"

namespace coda::testing {

/// Sizes are no multiples of anything that the programs tile by.
inline nn::ModelConfig tiny_config(bool qk_norm, bool tied, std::int64_t kv_heads = 2) {
  nn::ModelConfig config;
  config.vocab = 11;
  config.hidden = 12;
  config.ffn = 10;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = kv_heads;
  config.head_dim = 6;
  config.max_positions = 64;
  config.rope_theta = 300;  // neither is the default of anything
  config.norm_eps = 0.004;
  config.tied_embeddings = tied;
  config.qk_norm = qk_norm;
  config.dtype = DType::fp64;
  return config;
}

/// Weights far larger than at the start of a training, so that every path matters.
inline nn::Weights lively_weights(const nn::ModelConfig& config, DType dtype, std::uint64_t seed) {
  nn::Weights weights = nn::make_weights(config, dtype);
  std::uint64_t number = 0;
  nn::for_each_tensor(weights, [&](const std::string&, nn::HostTensor& tensor) {
    const nn::Rng rng(seed, number++);
    const bool norm = tensor.shape().size() == 1;
    nn::visit_real(dtype, [&]<class T>(std::type_identity<T>) {
      const auto values = tensor.values<T>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = nn::convert_to<T>((norm ? 1.0 : 0.0) + (norm ? 0.2 : 0.4) * rng.normal(i));
      }
    });
  });
  return weights;
}

inline nn::Batch random_batch(std::int64_t rows, std::int64_t seq, std::int64_t vocab, std::uint64_t seed) {
  nn::Batch batch{rows, seq, {}, {}};
  const nn::Rng rng(seed, 77);
  for (std::int64_t i = 0; i < rows * seq; ++i) {
    const auto index = static_cast<std::uint64_t>(2 * i);
    batch.inputs.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab), index)));
    batch.targets.push_back(static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab), index + 1)));
  }
  return batch;
}

}  // namespace coda::testing
