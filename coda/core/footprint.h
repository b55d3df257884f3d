// Which bytes a matrix or a vector takes, for telling whether two of them share any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "coda/core/tensor.h"

namespace coda {

/// `rows` times `width` bytes that begin `pitch` bytes apart; none where `begin` is null.
struct Footprint {
  const std::byte* begin;
  std::int64_t rows, width, pitch;
  DType dtype;

  Footprint() = default;  // of no values: a call makes a list of them, most of which it does not need
  explicit Footprint(const ConstMatrix& m)
      : begin(m.rows > 0 && m.cols > 0 ? static_cast<const std::byte*>(m.data) : nullptr),
        rows(m.rows),
        width(begin ? m.cols * size_of(m.dtype) : 0),  // what has no memory may say to be of any size
        pitch(begin && m.rows > 1 ? m.pitch * size_of(m.dtype) : width),  // that of one row means nothing
        dtype(m.dtype) {}
  explicit Footprint(const ConstVector& v) : Footprint(ConstMatrix(v.data, v.dtype, 1, v.size)) {}

  bool operator==(const Footprint&) const = default;

  /// Whether a byte is in both. Columns of one matrix beside each other have none in common.
  bool overlaps(const Footprint& other) const {
    if (!begin || !other.begin) return false;
    const std::uintptr_t first = address(), other_first = other.address();
    if (first + extent() <= other_first || other_first + other.extent() <= first) return false;
    const std::int64_t common = rows > 1 ? pitch : other.pitch;
    if ((other.rows > 1 && other.pitch != common) || other.width > common) return true;
    // Column slices of one buffer: rows start `shift` apart, modulo the common pitch.
    const auto p = static_cast<std::uintptr_t>(common);
    const auto shift =
        static_cast<std::int64_t>(other_first >= first ? (other_first - first) % p : p - (first - other_first) % p);
    return shift < width || shift + other.width > common;
  }

 private:
  std::uintptr_t address() const { return reinterpret_cast<std::uintptr_t>(begin); }
  std::uintptr_t extent() const {
    return static_cast<std::uintptr_t>(rows - 1) * static_cast<std::uintptr_t>(pitch) +
           static_cast<std::uintptr_t>(width);
  }
};

}  // namespace coda
