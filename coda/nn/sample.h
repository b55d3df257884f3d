// Choosing the next token from a row of logits.
#pragma once

#include <cstdint>
#include <span>

namespace coda::nn {

struct SampleOptions {
  double temperature = 1.0;  // 0 takes the largest logit
  std::int64_t top_k = 0;    // keep the k largest; 0 keeps all
  double top_p = 1.0;        // keep the fewest whose probabilities reach p
  std::uint64_t seed = 1;
};

/// Throws Error(invalid_argument) for an option that is out of range.
void check_sample(const SampleOptions& options);

/// The token at position `position` of a text: a pure function of its arguments. The filters apply in the order
/// temperature, top-k, top-p, as in transformers; equal logits rank by index. Throws on an empty row, on NaN or +inf,
/// and where every logit is -inf.
std::int32_t sample(std::span<const float> logits, const SampleOptions& options, std::int64_t position);

}  // namespace coda::nn
