#include "coda/nn/generate.h"

#include <fmt/format.h>

#include <algorithm>

#include "coda/core/error.h"

namespace coda::nn {

void check_generate(const ModelConfig& config, std::int64_t given, const GenerateOptions& options) {
  if (given < 1 || given > config.max_positions) {
    throw Error(
        Status::invalid_argument,
        fmt::format("generate: prompt: expected 1 to {} tokens (max_positions), got {}", config.max_positions, given));
  }
  if (options.tokens < 0) {
    throw Error(Status::invalid_argument, fmt::format("generate: tokens: expected at least 0, got {}", options.tokens));
  }
  check_sample(options.sample);
}

std::vector<std::int32_t> generate(const ModelConfig& config, const Weights& weights,
                                   std::span<const std::int32_t> prompt, const GenerateOptions& options) {
  const auto given = static_cast<std::int64_t>(prompt.size());
  check_generate(config, given, options);
  const std::int64_t capacity = given + std::min(config.max_positions - given, options.tokens);
  Decoder decoder(config, weights, capacity);
  std::vector<std::int32_t> text(prompt.begin(), prompt.end());
  std::span<const float> logits = decoder.append(prompt);
  for (std::int64_t i = 0; i < options.tokens; ++i) {
    const std::int32_t token = sample(logits, options.sample, static_cast<std::int64_t>(text.size()));
    text.push_back(token);
    if (options.on_token) options.on_token(token);
    if (i + 1 == options.tokens) break;
    if (decoder.length() == decoder.capacity()) {
      decoder.clear();
      logits = decoder.append(std::span(text).last(static_cast<std::size_t>((capacity + 1) / 2)));
    } else {
      logits = decoder.append(std::span(text).last(1));
    }
  }
  return {text.begin() + given, text.end()};
}

}  // namespace coda::nn
