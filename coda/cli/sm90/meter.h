// What all measurements of a GPU share.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
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

/// Milliseconds for which a benchmark's work runs before it counts. The chip lowers its clock when it has drawn too
/// much power for some tenths of a second, and a kernel that waits for memory loses less by that than a bare product:
/// without this a ratio would depend on how many programs are measured beside each other (0.91 of two, 0.95 of nine).
inline constexpr double kWarmUpMs = 400;

/// From so many milliseconds on `coda bench` takes work for long and times it alone, too, as a model runs it for hours:
/// in turn all have one clock, which follows the power that they draw between them.
inline constexpr double kLongMs = 2, kAloneWarmUpMs = 150, kAloneMs = 100;

class Meter {
 public:
  const Noise& noise() const { return noise_; }
  void* stream() const { return stream_.get(); }

  std::unique_ptr<sm90::Candidate> candidate(const std::string& name, const Launch& launch) const {
    return std::make_unique<sm90::Candidate>(name, launch, flush_, stream());
  }
  /// Replays all in turn, since the chip's clock follows its power: once and for `warm_up_ms`, then `rounds` times,
  /// which count. Each round is in another order, from a fixed seed: else what draws much power might always follow
  /// what draws little. Throws cli::Interrupted between two rounds.
  template <class Some>
  void interleave(const Some& candidates, int rounds, double warm_up_ms = 0) const {
    const Watch watch;
    std::vector<sm90::Candidate*> order = pointers_to(candidates);
    std::mt19937 random(1);
    do in_turn(order, random, false);
    while (watch.ms() < warm_up_ms);
    for (int round = 0; round < rounds; ++round) in_turn(order, random, true);
  }
  /// Replays each for kAloneWarmUpMs and then, which counts, for kAloneMs; twice, in random order. Times that were kept
  /// before are forgotten.
  template <class Some>
  void each_alone(const Some& candidates) const {
    std::vector<sm90::Candidate*> order = pointers_to(candidates);
    for (sm90::Candidate* candidate : order) candidate->forget();
    std::mt19937 random(1);
    for (int pass = 0; pass < 2; ++pass) {
      std::shuffle(order.begin(), order.end(), random);
      for (sm90::Candidate* candidate : order) {
        replay_for(*candidate, kAloneWarmUpMs, false);
        replay_for(*candidate, kAloneMs, true);
      }
    }
  }

 private:
  class Watch {
   public:
    double ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - begin_).count(); }

   private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point begin_ = Clock::now();
  };

  template <class Some>
  static std::vector<sm90::Candidate*> pointers_to(const Some& candidates) {
    std::vector<sm90::Candidate*> pointers;
    pointers.reserve(std::size(candidates));
    for (const auto& candidate : candidates) pointers.push_back(&*candidate);
    return pointers;
  }
  void replay_for(sm90::Candidate& candidate, double ms, bool counts) const {
    const Watch watch;
    do {
      if (cli::CatchInterrupt::seen()) throw cli::Interrupted();
      candidate.replay(stream(), counts);
    } while (watch.ms() < ms);
  }
  void in_turn(std::vector<sm90::Candidate*>& order, std::mt19937& random, bool counts) const {
    if (cli::CatchInterrupt::seen()) throw cli::Interrupted();
    std::shuffle(order.begin(), order.end(), random);
    for (sm90::Candidate* candidate : order) candidate->replay(stream(), counts);
  }

  sm90::Stream stream_;
  Noise noise_;
  DeviceBuffer flush_{std::size_t{256} << 20};
};

}  // namespace coda::bench
