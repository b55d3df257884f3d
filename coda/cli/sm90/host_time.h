// The host's time of calls that nobody waits for.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "coda/backend/sm90/device.h"

namespace coda::bench {

/// Microseconds of one call, which finds the device idle.
template <class Call>
double host_us(const Call& call, int calls = 1) {
  using Clock = std::chrono::steady_clock;
  sm90::synchronize();
  const auto begin = Clock::now();
  for (int i = 0; i < calls; ++i) call();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
}

/// Of the median batch of 100 calls, which the driver's queue holds.
template <class Call>
double median_host_us(const Call& call) {
  std::vector<double> batches(21);
  for (double& us : batches) us = host_us(call, 100);
  sm90::synchronize();
  std::sort(batches.begin(), batches.end());
  return batches[batches.size() / 2];
}

}  // namespace coda::bench
