// Keeps the clusters of a long launch side by side.
//
// Clusters that work on neighbouring tiles load the same operands; the first brings them into the L2 cache, the others
// find them there. Some multiprocessors are a little slower than others, and after dozens of tiles each reads memory
// for itself: on an H100 that cost up to half of the speed, on an H200 three times the bytes, whose power the tensor
// cores then lack. So a cluster waits for the slowest one before it goes further ahead of it than the cache holds.
// (Waiting for the average keeps only those in front together: one of 66 may fall 66 steps behind before it tells.)
//
// Only speed depends on what is counted here, never a result: a count that is wrong (of a launch that failed, of one
// graph that runs twice at a time, whose counts may stay wrong), or clusters that are not there yet, cost a cluster one
// wait of some 20 us.
#pragma once

#include "coda/backend/sm90/config.cuh"

namespace coda::sm90 {

/// Counts of one launch, 0 between launches. Launches in flight have one each, as long as they are not too many.
struct alignas(32) PaceCounts {
  static constexpr unsigned kSlots = 4;
  unsigned begun[kSlots];  // how many times a cluster has begun a unit u of which u % kSlots is this
  unsigned finished;       // clusters
};
inline constexpr int kPaceCounts = 256;
static __device__ PaceCounts pace_counts[kPaceCounts];

/// Of a cluster's loading thread.
class Pace {
 public:
  /// Steps of the main loop in a unit, and by how many units a cluster may be ahead of the slowest one. All clusters'
  /// operands of a unit are some 2 MB.
  static constexpr int kSteps = 4;
  static constexpr unsigned kLead = 2;
  static_assert(kLead < PaceCounts::kSlots, "coda: nobody counts in a slot that somebody still waits for");

  /// The address of the counts comes from the host: asked for here, it would come from memory ahead of the first
  /// operands.
  CODA_DEVICE Pace(PaceCounts* counts, int clusters) : counts_(counts), clusters_(static_cast<unsigned>(clusters)) {}

  /// At the begin of a unit, which all clusters have. What is seen was asked for a unit ago, so that nobody waits for
  /// the answer if all are in time.
  CODA_DEVICE void step() {
    atomicAdd(slot(unit_), 1u);
    if (unit_ >= kLead && !all_began(unit_ - kLead)) wait();
    ++unit_;
    if (unit_ >= kLead) seen_ = look();
  }
  /// Behind the last one.
  CODA_DEVICE void finish() {
    __threadfence();
    if (atomicAdd(&counts_->finished, 1u) != clusters_ - 1) return;
    for (unsigned& begun : counts_->begun) begun = 0;
    counts_->finished = 0;
  }

 private:
  static constexpr int kPatience = 32;  // looks at the count, more than half a microsecond each

  CODA_DEVICE unsigned* slot(unsigned unit) const { return &counts_->begun[unit % PaceCounts::kSlots]; }
  /// The count that the next unit, or the one at hand, depends on.
  CODA_DEVICE unsigned look() const { return *const_cast<const volatile unsigned*>(slot(unit_ - kLead)); }
  CODA_DEVICE bool all_began(unsigned unit) const { return seen_ >= (unit / PaceCounts::kSlots + 1) * clusters_; }
  CODA_DEVICE void wait() {
    for (int looks = 0; looks < patience_; ++looks) {
      seen_ = look();
      if (all_began(unit_ - kLead)) return;
      __nanosleep(20);
    }
    patience_ = 0;  // somebody is not there: no use to wait again
  }

  PaceCounts* counts_;
  unsigned clusters_;
  int patience_ = kPatience;
  unsigned unit_ = 0, seen_ = 0;
};

}  // namespace coda::sm90
