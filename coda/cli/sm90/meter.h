// What all measurements of a GPU share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coda/backend/sm90/timing.h"
#include "coda/cli/interrupt.h"
#include "coda/cli/sm90/noise.h"

namespace coda::bench {

/// Enqueues work on a cudaStream_t.
using Launch = std::function<void(void* stream)>;

/// Only figures of works that were replayed in turn compare.
using Candidates = std::vector<std::unique_ptr<sm90::Candidate>>;

class Meter {
 public:
  const Noise& noise() const { return noise_; }
  void* stream() const { return stream_.get(); }

  std::unique_ptr<sm90::Candidate> candidate(const std::string& name, const Launch& launch) const {
    return std::make_unique<sm90::Candidate>(name, launch, flush_, stream());
  }
  /// Warms up, then replays all in turn (A B C A B C ...), since the chip's clock follows its power. Throws
  /// cli::Interrupted between two rounds.
  template <class Some>
  void interleave(const Some& candidates, int rounds, int warm_up = 10) const {
    for (int round = 0; round < rounds + warm_up; ++round) {
      if (cli::CatchInterrupt::seen()) throw cli::Interrupted();
      for (const auto& candidate : candidates) candidate->replay(stream(), round >= warm_up);
    }
  }

 private:
  sm90::Stream stream_;
  Noise noise_;
  DeviceBuffer flush_{std::size_t{256} << 20};
};

}  // namespace coda::bench
