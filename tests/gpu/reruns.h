// A call repeated many times, each result compared with the first one's on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"

namespace coda::test::gpu {

class Reruns {
 public:
  /// Does `first`, the call in one form or another, and keeps what it leaves; waits. Every byte that the call could
  /// reach counts: guard zones, inputs and padding too.
  Reruns(Execution& run, const Stream& stream, const std::function<void()>& first);
  /// Of another execution of the same problem on the same route, which must leave the same.
  Reruns(Execution& run, const Stream& stream, const Reruns& like);

  /// Enqueued after a run: compares what it left, and puts the state before it back.
  void compare(const Stream& stream) const;
  /// How many 16-byte words of all results so far were not the first one's. Waits.
  std::uint64_t differing(const Stream& stream) const;
  /// Of what the first run left: the same in each process.
  std::uint64_t hash() const { return first_->hash; }

 private:
  struct First {
    sm90::DeviceBuffer before, after;
    std::uint64_t hash = 0;
  };
  void begin(const Stream& stream);

  void* memory_;
  std::size_t bytes_;
  std::shared_ptr<const First> first_;
  sm90::DeviceBuffer differing_;
};

}  // namespace coda::test::gpu
