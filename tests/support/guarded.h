// Buffers for tests: every byte starts as 0xff (a NaN in each real type), zones before and after the data and the
// padding of each row must still be so at the end, and an element that still is was never written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "coda/core/tensor.h"
#include "coda/core/types.h"
#include "tests/reference/mat.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace coda::test {

using reference::Mat;
using reference::Vec;

/// Fails the running test with `failure` unless it is empty. In expect.cpp: `coda verify` uses these buffers without
/// GoogleTest.
void expect_none(const std::string& failure);

/// `pitch` 0 means as wide as the matrix; `misalign` is a number of bytes past a 64-byte boundary.
struct Placement {
  std::int64_t pitch = 0;
  std::int64_t misalign = 0;
};

template <class T>
class Guarded {
 public:
  static constexpr std::int64_t kGuardBytes = 4096;
  static constexpr std::int64_t kAlignment = 64;

  Guarded(std::int64_t rows, std::int64_t cols, Placement place = {})
      : rows_(rows),
        cols_(cols),
        pitch_(place.pitch == 0 ? cols : place.pitch),
        bytes_(static_cast<std::size_t>(data_bytes() + 2 * kGuardBytes + kAlignment + place.misalign), kPoison) {
    if (pitch_ < cols_) throw std::logic_error("Guarded: pitch is less than the width");
    const auto base = reinterpret_cast<std::uintptr_t>(bytes_.data()) + kGuardBytes;
    const auto aligned = (base + kAlignment - 1) / kAlignment * kAlignment;
    data_ = bytes_.data() + kGuardBytes + (aligned - base) + place.misalign;
    forbid_guards(true);
  }
  explicit Guarded(const Mat& values, Placement place = {}) : Guarded(values.rows, values.cols, place) { set(values); }
  ~Guarded() { forbid_guards(false); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  std::int64_t pitch() const { return pitch_; }
  T* data() { return reinterpret_cast<T*>(data_); }

  MatrixOf<T> matrix() { return {data(), rows_, cols_, pitch_}; }
  MatrixOf<const T> const_matrix() { return matrix(); }
  Matrix any_matrix() { return matrix(); }
  /// The whole buffer as one run of elements; for a buffer without padding.
  VectorOf<T> vector() {
    if (pitch_ != cols_) throw std::logic_error("Guarded: a padded buffer is no vector");
    return {data(), rows_ * cols_};
  }
  VectorOf<const T> const_vector() { return vector(); }
  Vector any_vector() { return vector(); }

  T get(std::int64_t m, std::int64_t n) const {
    T x;
    std::memcpy(&x, at(m, n), sizeof(T));  // also right where the data is not aligned to T
    return x;
  }
  void put(std::int64_t m, std::int64_t n, double value) {
    T x;
    if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
      x = static_cast<T>(value);
    } else {
      x = T(static_cast<float>(value));
    }
    std::memcpy(at(m, n), &x, sizeof(T));
  }

  void set(const Mat& values) {
    if (values.rows != rows_ || values.cols != cols_) throw std::logic_error("Guarded::set: shapes differ");
    for (std::int64_t m = 0; m < rows_; ++m)
      for (std::int64_t n = 0; n < cols_; ++n) put(m, n, values(m, n));
  }
  Mat mat() const {
    Mat x(rows_, cols_);
    for (std::int64_t m = 0; m < rows_; ++m)
      for (std::int64_t n = 0; n < cols_; ++n) x(m, n) = static_cast<double>(get(m, n));
    return x;
  }
  /// The elements row by row, such as a vector's.
  Vec values() const { return mat().v; }

  /// Back to all 0xff, as before the first write.
  void poison() {
    for (std::int64_t m = 0; m < rows_; ++m)
      std::memset(at(m, 0), kPoison, static_cast<std::size_t>(cols_) * sizeof(T));
  }

  /// Empty, or where a byte outside the elements was written.
  std::string guard_damage(const std::string& name) const {
    forbid_guards(false);
    std::string text;
    const auto check = [&](const unsigned char* begin, std::int64_t count, auto describe) {
      for (std::int64_t i = 0; i < count && text.empty(); ++i)
        if (begin[i] != kPoison) text = name + ": wrote outside of its " + shape() + " elements: " + describe(i);
    };
    const auto bytes = [](std::int64_t i) { return std::to_string(i) + " bytes "; };
    for (std::int64_t m = 0; m < rows_; ++m)
      check(at(m, cols_), (pitch_ - cols_) * size_, [&](std::int64_t i) {
        return "padding of row " + std::to_string(m) + ", column " + std::to_string(cols_ + i / size_) + " of pitch " +
               std::to_string(pitch_);
      });
    check(data_ + data_bytes(), kGuardBytes, [&](std::int64_t i) { return bytes(i + 1) + "past the end"; });
    check(data_ - kGuardBytes, kGuardBytes,
          [&](std::int64_t i) { return bytes(kGuardBytes - i) + "before the begin"; });
    forbid_guards(true);
    return text;
  }

  /// Empty, or how many elements still hold the poison and the first of them.
  std::string unwritten(const std::string& name) const {
    std::int64_t count = 0;
    std::string first;
    for (std::int64_t m = 0; m < rows_; ++m)
      for (std::int64_t n = 0; n < cols_; ++n) {
        bool poisoned = true;
        for (std::int64_t i = 0; i < size_; ++i) poisoned = poisoned && at(m, n)[i] == kPoison;
        if (poisoned && count++ == 0) first = "row " + std::to_string(m) + ", column " + std::to_string(n);
      }
    if (count == 0) return {};
    return name + ": " + std::to_string(count) + " of its " + shape() + " elements never written, first at " + first;
  }

  void expect_guards_intact(const std::string& name) const { expect_none(guard_damage(name)); }

  /// Under AddressSanitizer a read of a guard zone is caught too, unless it is allowed here.
  void forbid_guards([[maybe_unused]] bool on) const {
#if defined(__SANITIZE_ADDRESS__)
    if (on) {
      ASAN_POISON_MEMORY_REGION(data_ - kGuardBytes, kGuardBytes);
      ASAN_POISON_MEMORY_REGION(data_ + data_bytes(), kGuardBytes);
    } else {
      ASAN_UNPOISON_MEMORY_REGION(data_ - kGuardBytes, kGuardBytes);
      ASAN_UNPOISON_MEMORY_REGION(data_ + data_bytes(), kGuardBytes);
    }
#endif
  }

 private:
  static constexpr unsigned char kPoison = 0xff;
  static constexpr std::int64_t size_ = sizeof(T);

  std::int64_t data_bytes() const { return rows_ * pitch_ * size_; }
  unsigned char* at(std::int64_t m, std::int64_t n) const { return data_ + (m * pitch_ + n) * size_; }
  std::string shape() const {
    std::ostringstream s;
    s << "(" << rows_ << ", " << cols_ << ")";
    return s.str();
  }

  std::int64_t rows_, cols_, pitch_;
  std::vector<unsigned char> bytes_;
  unsigned char* data_ = nullptr;
};

/// A vector of T as an (n, 1) buffer.
template <class T>
Guarded<T> guarded_vector(const Vec& values, Placement place = {}) {
  return Guarded<T>(reference::column(values), place);
}

inline Guarded<std::int64_t> guarded_targets(const std::vector<std::int64_t>& targets) {
  return Guarded<std::int64_t>(reference::column(Vec(targets.begin(), targets.end())));
}

}  // namespace coda::test
