#include "coda/nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "coda/ops/ops.h"

namespace coda::nn {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

/// Llama 3.1's: 1 for a pair that makes high_freq_factor turns or more in the text of the first training, 1 / factor
/// for one of low_freq_factor or fewer, and between them in proportion to its turns.
double llama3_slowdown(const RopeScaling& s, double frequency) {
  const double turns = static_cast<double>(s.original_positions) * frequency / kTurn;
  const double fast = std::clamp((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
  return fast + (1 - fast) / s.factor;
}

/// YaRN's (arXiv 2309.00071, section 3.2): in proportion to a pair's number, between the pairs of beta_fast and
/// beta_slow turns.
double yarn_slowdown(const ModelConfig& c, std::int64_t pair) {
  const RopeScaling& s = c.rope_scaling;
  const auto pair_of = [&](double turns) {
    return static_cast<double>(c.head_dim) * std::log(static_cast<double>(s.original_positions) / (turns * kTurn)) /
           (2 * std::log(c.rope_theta));
  };
  double first = pair_of(s.beta_fast), last = pair_of(s.beta_slow);
  if (s.truncate) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0), last = std::min(last, static_cast<double>(c.head_dim - 1));
  if (first == last) last += 0.001;  // as transformers does
  const double slow = std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
  return (1 - slow) + slow / s.factor;
}

double slowdown(const ModelConfig& c, std::int64_t pair, double frequency) {
  switch (c.rope_scaling.kind) {
    case RopeScaling::Kind::none:
      return 1;
    case RopeScaling::Kind::linear:
      return 1 / c.rope_scaling.factor;
    case RopeScaling::Kind::llama3:
      return llama3_slowdown(c.rope_scaling, frequency);
    case RopeScaling::Kind::yarn:
      return yarn_slowdown(c, pair);
  }
  return 1;
}

}  // namespace

std::vector<double> rotary_frequencies(const ModelConfig& config) {
  std::vector<double> frequencies;
  for (std::int64_t j = 0; j < config.head_dim / 2; ++j) {
    const double plain =
        std::pow(config.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(config.head_dim));
    frequencies.push_back(plain * slowdown(config, j, plain));
  }
  return frequencies;
}

void fill_rotary_table(const Matrix& table, const ModelConfig& config) {
  const std::vector<double> frequencies = rotary_frequencies(config);
  const bool yarn = config.rope_scaling.kind == RopeScaling::Kind::yarn;
  ops::rotary_table_from(table, ConstVector(frequencies.data(), DType::fp64, config.head_dim / 2),
                         yarn ? config.rope_scaling.attention_factor : 1.0);
}

}  // namespace coda::nn
