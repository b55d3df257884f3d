// Memory for all the activations of a batch shape, laid out once: a training step allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coda/core/tensor.h"
#include "coda/nn/host_tensor.h"

namespace coda::nn {

/// Hands out 64-byte aligned pieces of one block. A default-made arena only counts, so that the same layout function
/// first measures and then places.
class Arena {
 public:
  Arena() = default;
  explicit Arena(std::byte* base) : base_(base) {}

  Matrix matrix(DType dtype, std::int64_t rows, std::int64_t cols) {
    return {take(rows * cols * size_of(dtype)), dtype, rows, cols};
  }
  Vector vector(DType dtype, std::int64_t size) { return {take(size * size_of(dtype)), dtype, size}; }
  std::int64_t bytes() const { return used_; }

 private:
  void* take(std::int64_t bytes) {
    void* at = base_ ? base_ + used_ : nullptr;
    used_ += (bytes + 63) / 64 * 64;
    return at;
  }

  std::byte* base_ = nullptr;
  std::int64_t used_ = 0;
};

/// Runs `layout(arena)` to measure, then again to place; returns the block that now holds everything.
template <class Layout>
HostTensor place(const Layout& layout) {
  Arena measure;
  layout(measure);
  HostTensor block(DType::fp64, {measure.bytes() / 8});
  Arena arena(block.bytes().data());
  layout(arena);
  return block;
}

/// Bytes of activations that the calls of a step read and write; each view counts once for a call, whatever its caches
/// do. Weights and their gradients are not activations.
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

// ---- parts of a view

inline Matrix rows_of(Matrix m, std::int64_t first, std::int64_t count) {
  if (m) m.data = static_cast<std::byte*>(m.data) + first * m.pitch * size_of(m.dtype);
  m.rows = count;
  return m;
}
inline Matrix columns_of(Matrix m, std::int64_t first, std::int64_t count) {
  if (m) m.data = static_cast<std::byte*>(m.data) + first * size_of(m.dtype);
  m.cols = count;
  return m;
}
inline Vector part_of(Vector v, std::int64_t first, std::int64_t count) {
  if (v) v.data = static_cast<std::byte*>(v.data) + first * size_of(v.dtype);
  v.size = count;
  return v;
}
inline ConstVector part_of(ConstVector v, std::int64_t first, std::int64_t count) {
  if (v) v.data = static_cast<const std::byte*>(v.data) + first * size_of(v.dtype);
  v.size = count;
  return v;
}
/// A matrix (rows, cols), contiguous, at the start of a larger piece.
inline Matrix shaped(Vector piece, std::int64_t rows, std::int64_t cols) {
  return {piece.data, piece.dtype, rows, cols};
}

}  // namespace coda::nn
