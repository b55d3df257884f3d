#include "coda/nn/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "coda/backend/cpu/threads.h"
#include "coda/core/error.h"
#include "coda/nn/convert.h"
#include "coda/nn/rng.h"

namespace coda::nn {

Weights make_weights(const ModelConfig& config, DType dtype) {
  config.check();
  Weights weights;
  weights.layers.resize(static_cast<std::size_t>(config.layers));
  for_each_slot(weights, [&](const std::string&, HostTensor& tensor, auto shape_in) {
    if (const Shape shape = shape_in(config); !shape.empty()) tensor = HostTensor(dtype, shape);
  });
  return weights;
}

void check_weights(const char* op, const ModelConfig& config, const Weights& weights, DType dtype) {
  config.check();
  if (std::ssize(weights.layers) != config.layers) {
    throw Error(Status::invalid_argument,
                fmt::format("{}: layers: expected {}, got {}", op, config.layers, weights.layers.size()));
  }
  for_each_slot(weights, [&](const std::string& name, const HostTensor& tensor, auto shape_in) {
    const auto text = [](bool present, DType type, const Shape& shape) {
      return present ? fmt::format("{} {}", coda::name_of(type), to_string(shape)) : "none";
    };
    const Shape shape = shape_in(config);
    const std::string expected = text(!shape.empty(), dtype, shape),
                      got = text(tensor.present(), tensor.dtype(), tensor.shape());
    if (got == expected) return;
    throw Error(Status::invalid_argument, fmt::format("{}: {}: expected {}, got {}", op, name, expected, got));
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
      cpu::for_each(tensor.size(), true, [&](std::int64_t i) {
        const auto index = static_cast<std::size_t>(i);
        values[index] = convert_to<T>(is_norm ? 1.0 : deviation * rng.normal(index));
      });
    });
  });
}

}  // namespace coda::nn
