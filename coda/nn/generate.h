// Text from a model: the prompt in one go, then token by token.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "coda/nn/model.h"
#include "coda/nn/sample.h"

namespace coda::nn {

struct GenerateOptions {
  std::int64_t tokens = 400;
  SampleOptions sample = {};
  std::function<void(std::int32_t)> on_token = {};  // called as each is chosen
};

/// Throws Error(invalid_argument) for what generate() would refuse, with a prompt of so many tokens.
void check_generate(const ModelConfig& config, std::int64_t prompt_tokens, const GenerateOptions& options);

/// The tokens that follow `prompt`: a pure function of the arguments. When the text outgrows the model's positions, it
/// goes on from the last half of them.
std::vector<std::int32_t> generate(const ModelConfig& config, const Weights& weights,
                                   std::span<const std::int32_t> prompt, const GenerateOptions& options);

}  // namespace coda::nn
