// Pieces of a block of memory as views: laid out one after the other, or cut from another view.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coda/core/tensor.h"

namespace coda {

/// Hands out pieces of one block, each a multiple of 256 bytes past its begin. A default-made arena only counts, so
/// that the same layout function first measures and then places.
class Arena {
 public:
  static constexpr std::int64_t kAlignment = 256;  // lines of any cache, and what a device's allocator gives

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
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }

  std::byte* base_ = nullptr;
  std::int64_t used_ = 0;
};

// ---- parts of a view

inline Matrix rows_of(Matrix m, std::int64_t first, std::int64_t count) {
  if (m) m.data = static_cast<std::byte*>(m.data) + first * m.pitch * size_of(m.dtype);
  m.rows = count;
  return m;
}
inline ConstMatrix rows_of(ConstMatrix m, std::int64_t first, std::int64_t count) {
  if (m) m.data = static_cast<const std::byte*>(m.data) + first * m.pitch * size_of(m.dtype);
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

}  // namespace coda
