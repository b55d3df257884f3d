// Keeps the clusters of a long launch side by side.
//
// Clusters that work on neighbouring tiles load the same operands; the first brings them into the L2 cache, the others
// find them there. Some multiprocessors are a little slower than others, and after dozens of tiles the fast ones are so
// far ahead that all read memory for themselves: on an H100 that cost up to half of the speed. So a cluster that leads
// the average by more than the cache holds waits for it. It loses nothing by that, as all clusters have as many tiles.
// An H200's memory is fast enough for all; there it would cost up to 1 %.
//
// Only speed depends on what is counted here, never a result: a count that is wrong (of a launch that failed, of one
// graph that runs twice at a time), or clusters that are not there yet, cost a cluster one wait of some 20 us.
#pragma once

#include "coda/backend/sm90/config.cuh"

namespace coda::sm90 {

/// Counts of one launch, 0 between launches. Launches in flight have one each, as long as they are not too many.
struct PaceCounts {
  unsigned long long units;
  unsigned finished;
};
inline constexpr int kPaceCounts = 256;
static __device__ PaceCounts pace_counts[kPaceCounts];

/// Of a cluster's loading thread.
class Pace {
 public:
  /// Steps of the main loop in a unit, and units by which a cluster may lead the average. All clusters' operands of
  /// these steps are some 6 MB: less than the L2 cache holds, and faster than thrice of it (2 to 5 % at most
  /// shapes of large models; up to 1 % slower at M = N = K = 8192).
  static constexpr int kSteps = 8, kLead = 1;

  /// Without counts it does nothing. Their address comes from the host: asked for here, it would come from memory ahead
  /// of the first operands.
  CODA_DEVICE Pace(PaceCounts* counts, int clusters) : counts_(counts), clusters_(static_cast<unsigned>(clusters)) {}

  /// At the begin of a unit.
  CODA_DEVICE void step() {
    if (!counts_) return;
    // Of the unit before: the answer to its addition is there by now.
    if (units_ > kLead && seen_ < wanted()) wait();
    seen_ = atomicAdd(&counts_->units, 1ull);
    ++units_;
  }
  /// Behind the last tile. `left`: units that other clusters have more.
  CODA_DEVICE void finish(int left) {
    if (!counts_) return;
    atomicAdd(&counts_->units, static_cast<unsigned long long>(left));
    __threadfence();
    if (atomicAdd(&counts_->finished, 1u) == clusters_ - 1) counts_->units = 0, counts_->finished = 0;
  }

 private:
  static constexpr int kPatience = 32;  // looks at the count, more than half a microsecond each

  CODA_DEVICE unsigned long long wanted() const { return (units_ - kLead) * clusters_; }
  CODA_DEVICE void wait() {
    for (int look = 0; look < patience_; ++look) {
      seen_ = *const_cast<const volatile unsigned long long*>(&counts_->units);
      if (seen_ >= wanted()) return;
      __nanosleep(20);
    }
    patience_ = 0;  // somebody is not there: no use to wait again
  }

  PaceCounts* counts_;
  unsigned clusters_;
  int patience_ = kPatience;
  unsigned long long units_ = 0, seen_ = 0;
};

}  // namespace coda::sm90
