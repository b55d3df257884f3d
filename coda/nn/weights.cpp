#include "coda/nn/weights.h"

#include <algorithm>
#include <cmath>

#include "coda/nn/convert.h"
#include "coda/nn/rng.h"

namespace coda::nn {

Weights make_weights(const ModelConfig& config, DType dtype) {
  config.check();
  const std::int64_t hidden = config.hidden;
  Weights weights;
  weights.embed = HostTensor(dtype, {config.vocab, hidden});
  for (std::int64_t i = 0; i < config.layers; ++i) {
    LayerWeights layer;
    layer.input_norm = HostTensor(dtype, {hidden});
    layer.qkv = HostTensor(dtype, {config.qkv_rows(), hidden});
    if (config.qk_norm) {
      layer.q_norm = HostTensor(dtype, {config.head_dim});
      layer.k_norm = HostTensor(dtype, {config.head_dim});
    }
    layer.out = HostTensor(dtype, {hidden, config.q_rows()});
    layer.post_norm = HostTensor(dtype, {hidden});
    layer.gate_up = HostTensor(dtype, {2 * config.ffn, hidden});
    layer.down = HostTensor(dtype, {hidden, config.ffn});
    weights.layers.push_back(std::move(layer));
  }
  weights.final_norm = HostTensor(dtype, {hidden});
  if (!config.tied_embeddings) weights.head = HostTensor(dtype, {config.vocab, hidden});
  return weights;
}

void initialise(Weights& weights, std::uint64_t seed) {
  const double residual = 1.0 / std::sqrt(2.0 * static_cast<double>(std::max<std::size_t>(weights.layers.size(), 1)));
  std::uint64_t number = 0;
  for_each_tensor(weights, [&](const std::string& name, HostTensor& tensor) {
    const Rng rng(seed, streams::weights + number++);
    const bool is_norm = tensor.shape().size() == 1;
    const bool writes_residual = name.ends_with(".out") || name.ends_with(".down");
    const double deviation = writes_residual ? 0.02 * residual : 0.02;
    visit_real(tensor.dtype(), [&]<class T>(std::type_identity<T>) {
      const auto values = tensor.values<T>();
      const std::int64_t size = tensor.size();
#pragma omp parallel for schedule(static)
      for (std::int64_t i = 0; i < size; ++i) {
        const auto index = static_cast<std::size_t>(i);
        values[index] = convert_to<T>(is_norm ? 1.0 : deviation * rng.normal(index));
      }
    });
  });
}

}  // namespace coda::nn
