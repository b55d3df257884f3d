// Options that training and generation share.
#pragma once

#include <fmt/format.h>
#include <omp.h>

#include <string>

#include "coda/cli/command.h"
#include "coda/core/types.h"

namespace coda::cli {

inline void add_threads(Command& command, int& threads) {
  command.whole("--threads", threads, "Threads; 0: all cores. Results are the same for any number", 0, 4096)
      .shows_default();
}
inline void set_threads(int threads) {
  if (threads > 0) omp_set_num_threads(threads);
}

inline DType parse_dtype(const std::string& name) {
  for (const DType t : {DType::bf16, DType::fp16, DType::fp32, DType::fp64}) {
    if (name == name_of(t)) return t;
  }
  throw UsageError("--dtype", fmt::format("expected bf16, fp16, fp32 or fp64, got {}", name));
}

}  // namespace coda::cli
