// GPU time of calls, as the benchmarks and `coda tune` measure it: no CUDA header is needed here or in a caller.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "coda/backend/sm90/device.h"

namespace coda::sm90 {

/// A stream of the current device that does not wait for the default one.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void* get() const { return stream_; }

 private:
  void* stream_ = nullptr;
};

/// Work that is timed: a CUDA graph of three parts, to fill `flush`, larger than the L2 cache, then what `launch`
/// enqueues, between two event records. Throws Error(device_error) for what CUDA reports.
class Candidate {
 public:
  Candidate(std::string label, const std::function<void(void*)>& launch, const DeviceBuffer& flush, void* stream);
  ~Candidate();
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;

  /// Runs the graph and waits for it; `keep`: its time is one of those that the median is of.
  void replay(void* stream, bool keep);
  /// Milliseconds; 0 if no time was kept.
  double median() const;
  /// Of the times that were kept so far.
  void forget() { times_.clear(); }

  const std::string name;

 private:
  explicit Candidate(std::string label) : name(std::move(label)) {}

  void *begin_ = nullptr, *end_ = nullptr, *exec_ = nullptr;
  std::vector<float> times_;
};

}  // namespace coda::sm90
