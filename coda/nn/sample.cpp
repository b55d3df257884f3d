#include "coda/nn/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "coda/core/error.h"
#include "coda/nn/rng.h"

namespace coda::nn {
namespace {

void require(bool ok, const char* argument, const char* expected, auto got) {
  if (ok) return;
  throw Error(Status::invalid_argument, fmt::format("sample: {}: expected {}, got {}", argument, expected, got));
}

void check_logits(std::span<const float> logits) {
  require(!logits.empty(), "logits", "at least one", 0);
  bool any_finite = false;
  for (const float x : logits) {
    require(x <= std::numeric_limits<float>::max(), "logits", "finite values or -inf", x);
    any_finite = any_finite || std::isfinite(x);
  }
  require(any_finite, "logits", "a finite value", "-inf only");
}

}  // namespace

void check_sample(const SampleOptions& options) {
  require(options.temperature >= 0 && std::isfinite(options.temperature), "temperature", "at least 0",
          options.temperature);
  require(options.top_k >= 0, "top_k", "at least 0", options.top_k);
  require(options.top_p > 0 && options.top_p <= 1, "top_p", "a number above 0 and up to 1", options.top_p);
}

std::int32_t sample(std::span<const float> logits, const SampleOptions& options, std::int64_t position) {
  check_sample(options);
  check_logits(logits);
  const auto size = static_cast<std::int64_t>(logits.size());
  const auto logit = [&](std::int32_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::int64_t kept = options.top_k == 0 ? size : std::min(options.top_k, size);
  if (options.temperature == 0) kept = 1;
  std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                    [&](std::int32_t a, std::int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  if (kept == 1) return order[0];

  // Probabilities up to a factor, largest first.
  std::vector<double> weight(static_cast<std::size_t>(kept));
  double total = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] = std::exp((static_cast<double>(logit(order[i])) - logit(order[0])) / options.temperature);
    total += weight[i];
  }
  if (options.top_p < 1) {
    double reached = 0;
    std::size_t nucleus = 0;
    while (nucleus < weight.size() && reached < options.top_p * total) reached += weight[nucleus++];
    weight.resize(nucleus);
    total = reached;
  }
  const double point = Rng(options.seed, streams::sampling).uniform(static_cast<std::uint64_t>(position)) * total;
  double passed = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) {
    passed += weight[i];
    if (point < passed) return order[i];
  }
  // Rounding can leave the point at the very end: the last token that has any weight.
  while (weight.size() > 1 && weight.back() == 0) weight.pop_back();
  return order[weight.size() - 1];
}

}  // namespace coda::nn
