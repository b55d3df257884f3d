// Gradients of the whole model, through every program's backward, against central finite differences in fp64.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>

#include "coda/nn/model.h"
#include "coda/nn/unfused.h"
#include "tests/nn/tiny_model.h"

namespace coda::nn {
namespace {

using testing::lively_weights;
using testing::random_batch;
using testing::tiny_config;

/// (qk_norm, tied, kv_heads, fused)
class ModelGradient : public ::testing::TestWithParam<std::tuple<bool, bool, int, bool>> {};

TEST_P(ModelGradient, EqualsCentralDifferences) {
  const auto [qk_norm, tied, kv_heads, fused] = GetParam();
  const ModelConfig config = tiny_config(qk_norm, tied, kv_heads);
  Weights weights = lively_weights(config, DType::fp64, 5), gradients = make_weights(config, DType::fp64);
  const Batch batch = random_batch(3, 7, config.vocab, 9);
  Model fused_model(config, weights);
  UnfusedModel unfused_model(config, weights);
  Network& model = fused ? static_cast<Network&>(fused_model) : unfused_model;

  const double loss = model.forward_backward(batch, gradients);
  EXPECT_NEAR(loss, model.loss(batch), 1e-10 * std::abs(loss));

  std::vector<const HostTensor*> gradient_of;
  for_each_tensor(gradients, [&](const std::string&, const HostTensor& g) { gradient_of.push_back(&g); });
  std::size_t number = 0;
  for_each_tensor(weights, [&](const std::string& name, HostTensor& tensor) {
    const auto values = tensor.values<double>();
    const auto analytic = gradient_of[number++]->values<double>();
    double largest = 0;
    for (const double g : analytic) largest = std::max(largest, std::abs(g));
    EXPECT_GT(largest, 1e-3) << name;
    const std::size_t stride = std::max<std::size_t>(1, values.size() / 12);
    for (std::size_t i = 0; i < values.size(); i += stride) {
      const double before = values[i], step = 1e-5;
      values[i] = before + step;
      const double above = model.loss(batch);
      values[i] = before - step;
      const double below = model.loss(batch);
      values[i] = before;
      const double numeric = (above - below) / (2 * step), error = std::abs(numeric - analytic[i]);
      EXPECT_TRUE(error <= 1e-7 * (largest + 1))
          << name << '[' << i << "]: expected " << numeric << ", got " << analytic[i];
    }
  });
}

INSTANTIATE_TEST_SUITE_P(AllOptions, ModelGradient,
                         ::testing::Combine(::testing::Bool(), ::testing::Bool(), ::testing::Values(1, 2, 4),
                                            ::testing::Bool()));

}  // namespace
}  // namespace coda::nn
