// The host's time of a call of a program.
#pragma once

#include "coda/cli/sm90/meter.h"
#include "coda/cli/sm90/programs.h"
#include "coda/cli/sm90/records.h"

namespace coda::bench {

/// Makes the matrices that all programs share, as a model's calls share theirs. What it times first is the first of the
/// process only if nothing else was called before.
class HostMeter {
 public:
  explicit HostMeter(const Meter& meter);
  HostRecord measure(const Program& program) const;

 private:
  void* stream_;
  Arguments usual_, other_, split_;
};

}  // namespace coda::bench
