// Bytes of memory that calls move.
#pragma once

#include <cstdint>

#include "coda/core/tensor.h"

namespace coda {

/// Bytes of activations that calls read and write; each view counts once for a program, whatever its caches do. Weights
/// and their gradients are not activations.
class Traffic {
 public:
  template <class... Views>
  void add(const Views&... views) {
    bytes_ += (bytes_of(views) + ... + 0);
  }
  std::int64_t bytes() const { return bytes_; }
  void clear() { bytes_ = 0; }

 private:
  static std::int64_t bytes_of(const ConstMatrix& m) { return m ? m.rows * m.cols * size_of(m.dtype) : 0; }
  static std::int64_t bytes_of(const ConstVector& v) { return v ? v.size * size_of(v.dtype) : 0; }

  std::int64_t bytes_ = 0;
};

}  // namespace coda
