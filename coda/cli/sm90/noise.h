// Inputs of what is timed on a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "coda/backend/sm90/device.h"
#include "coda/core/types.h"

namespace coda::bench {

using sm90::DeviceBuffer;

/// Random values: zeros or constants would draw less power and run faster than real data.
class Noise {
 public:
  Noise() : values_((1 << 20) + 7) {
    std::uint64_t state = 1;
    for (bf16& v : values_) {
      float sum = -2.f;  // of four uniform values: near enough to a normal one
      for (int i = 0; i < 4; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += static_cast<float>(state >> 40) / static_cast<float>(1 << 24);
      }
      v = bf16(sum);
    }
  }
  DeviceBuffer buffer(std::int64_t elements) const {
    DeviceBuffer b(static_cast<std::size_t>(elements) * sizeof(bf16));
    for (std::size_t at = 0; at < b.size(); at += values_.size() * sizeof(bf16)) {
      b.upload(values_.data(), std::min(b.size() - at, values_.size() * sizeof(bf16)), at);
    }
    return b;
  }

 private:
  std::vector<bf16> values_;
};

}  // namespace coda::bench
