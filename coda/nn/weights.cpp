#include "coda/nn/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coda/core/error.h"
#include "coda/nn/convert.h"
#include "coda/nn/rng.h"

namespace coda::nn {

namespace {

/// Calls `visit(name, tensor, shape, present)` for each tensor that a model may have; `weights` has its layers.
template <class AnyWeights, class Visit>
void for_each_shape(const ModelConfig& c, AnyWeights& weights, const Visit& visit) {
  const std::int64_t hidden = c.hidden;
  visit("embed", weights.embed, Shape{c.vocab, hidden}, true);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = weights.layers[i];
    const std::string prefix = "layers." + std::to_string(i) + '.';
    visit(prefix + "input_norm", layer.input_norm, Shape{hidden}, true);
    visit(prefix + "qkv", layer.qkv, Shape{c.qkv_rows(), hidden}, true);
    visit(prefix + "q_norm", layer.q_norm, Shape{c.head_dim}, c.qk_norm);
    visit(prefix + "k_norm", layer.k_norm, Shape{c.head_dim}, c.qk_norm);
    visit(prefix + "out", layer.out, Shape{hidden, c.q_rows()}, true);
    visit(prefix + "post_norm", layer.post_norm, Shape{hidden}, true);
    visit(prefix + "gate_up", layer.gate_up, Shape{2 * c.ffn, hidden}, true);
    visit(prefix + "down", layer.down, Shape{hidden, c.ffn}, true);
  }
  visit("final_norm", weights.final_norm, Shape{hidden}, true);
  visit("head", weights.head, Shape{c.vocab, hidden}, !c.tied_embeddings);
}

}  // namespace

Weights make_weights(const ModelConfig& config, DType dtype) {
  config.check();
  Weights weights;
  weights.layers.resize(static_cast<std::size_t>(config.layers));
  for_each_shape(config, weights, [&](const std::string&, HostTensor& tensor, const Shape& shape, bool present) {
    if (present) tensor = HostTensor(dtype, shape);
  });
  return weights;
}

void check_weights(const char* op, const ModelConfig& config, const Weights& weights, DType dtype) {
  config.check();
  if (std::ssize(weights.layers) != config.layers) {
    throw Error(Status::invalid_argument,
                fmt::format("{}: layers: expected {}, got {}", op, config.layers, weights.layers.size()));
  }
  for_each_shape(config, weights, [&](const std::string& name, const HostTensor& tensor, const Shape& shape, bool has) {
    if (has ? tensor.present() && tensor.dtype() == dtype && tensor.shape() == shape : !tensor.present()) return;
    const auto text = [](bool is, DType type, const Shape& of) {
      return is ? fmt::format("{} {}", coda::name_of(type), to_string(of)) : "none";
    };
    throw Error(Status::invalid_argument, fmt::format("{}: {}: expected {}, got {}", op, name, text(has, dtype, shape),
                                                      text(tensor.present(), tensor.dtype(), tensor.shape())));
  });
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
