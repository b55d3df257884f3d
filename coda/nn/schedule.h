// Learning rate over a run: linear warm-up to the peak, then half a cosine down to the floor.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace coda::nn {

struct CosineSchedule {
  double peak = 3e-3;
  double floor = 3e-4;
  std::int64_t warmup = 0;  // steps until the peak is reached
  std::int64_t total = 1;   // steps of the whole run; from here on the rate is the floor

  /// Rate of 0-based step `step`: peak·(step+1)/warmup while step < warmup, so that the first step already learns.
  double at(std::int64_t step) const {
    if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
    const std::int64_t span = std::max<std::int64_t>(total - warmup, 1);
    const double done = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(span));
    return floor + 0.5 * (peak - floor) * (1.0 + std::cos(std::numbers::pi * done));
  }
};

/// How many steps of `step` seconds fit into `seconds`: from `least` to `most`.
inline std::int64_t steps_that_fit(double seconds, double step, std::int64_t least, std::int64_t most) {
  const double fit = seconds / step;
  if (!(fit > static_cast<double>(least))) return least;
  return fit < static_cast<double>(most) ? std::min<std::int64_t>(std::llround(fit), most) : most;
}

}  // namespace coda::nn
