// Non-owning views. `MatrixOf<T>` knows its element type at compile time, `Matrix` at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "coda/core/types.h"

namespace coda {

/// Which product a GEMM computes from its row-major operands. nt: A (M,K) times B (N,K) transposed, a linear layer's
/// forward. nn: A (M,K) times B (K,N), its input gradient. tn: A (K,M) transposed times B (K,N), its weight gradient.
enum class Layout : std::uint8_t { nt, nn, tn };

constexpr const char* name_of(Layout l) {
  constexpr const char* names[] = {"nt", "nn", "tn"};
  const auto i = static_cast<std::size_t>(l);
  return i < std::size(names) ? names[i] : "no layout";
}

/// Pieces of `b` that cover `a`, which may be near 2^63.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b > 0); }

/// Row-major (rows, cols) view; `pitch` is the distance between two rows, in elements, at least `cols`.
template <class T>
struct MatrixOf {
  T* data = nullptr;
  std::int64_t rows = 0, cols = 0, pitch = 0;

  MatrixOf() = default;
  MatrixOf(T* d, std::int64_t r, std::int64_t c) : MatrixOf(d, r, c, c) {}
  MatrixOf(T* d, std::int64_t r, std::int64_t c, std::int64_t p) : data(d), rows(r), cols(c), pitch(p) {}
  operator MatrixOf<const T>() const
    requires(!std::is_const_v<T>)
  {
    return {data, rows, cols, pitch};
  }
  T* row(std::int64_t m) const { return data + m * pitch; }
};

template <class T>
struct VectorOf {
  T* data = nullptr;
  std::int64_t size = 0;

  VectorOf() = default;
  VectorOf(T* d, std::int64_t n) : data(d), size(n) {}
  operator VectorOf<const T>() const
    requires(!std::is_const_v<T>)
  {
    return {data, size};
  }
};

namespace detail {

template <class Void>
struct AnyMatrix {
  Void* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t rows = 0, cols = 0, pitch = 0;

  AnyMatrix() = default;
  AnyMatrix(Void* d, DType t, std::int64_t r, std::int64_t c) : AnyMatrix(d, t, r, c, c) {}
  AnyMatrix(Void* d, DType t, std::int64_t r, std::int64_t c, std::int64_t p)
      : data(d), dtype(t), rows(r), cols(c), pitch(p) {}
  template <class T>
    requires(std::is_const_v<Void> || !std::is_const_v<T>)
  AnyMatrix(MatrixOf<T> m) : data(m.data), dtype(dtype_of<T>), rows(m.rows), cols(m.cols), pitch(m.pitch) {}
  // A template, or it would be the copy constructor of the mutable view.
  template <class U>
    requires(std::is_const_v<Void> && std::is_void_v<U> && !std::is_const_v<U>)
  AnyMatrix(const AnyMatrix<U>& m) : data(m.data), dtype(m.dtype), rows(m.rows), cols(m.cols), pitch(m.pitch) {}

  explicit operator bool() const { return data != nullptr; }
  template <class T>
  auto as() const {
    using E = std::conditional_t<std::is_const_v<Void>, const T, T>;
    return MatrixOf<E>(static_cast<E*>(data), rows, cols, pitch);
  }
};

template <class Void>
struct AnyVector {
  Void* data = nullptr;
  DType dtype = DType::fp32;
  std::int64_t size = 0;

  AnyVector() = default;
  AnyVector(Void* d, DType t, std::int64_t n) : data(d), dtype(t), size(n) {}
  template <class T>
    requires(std::is_const_v<Void> || !std::is_const_v<T>)
  AnyVector(VectorOf<T> v) : data(v.data), dtype(dtype_of<T>), size(v.size) {}
  // A template, or it would be the copy constructor of the mutable view.
  template <class U>
    requires(std::is_const_v<Void> && std::is_void_v<U> && !std::is_const_v<U>)
  AnyVector(const AnyVector<U>& v) : data(v.data), dtype(v.dtype), size(v.size) {}

  explicit operator bool() const { return data != nullptr; }
  template <class T>
  auto as() const {
    using E = std::conditional_t<std::is_const_v<Void>, const T, T>;
    return VectorOf<E>(static_cast<E*>(data), size);
  }
};

}  // namespace detail

/// Views whose element type is a run-time tag: what the checked calls in `ops/` take. A default-made one is "absent".
using Matrix = detail::AnyMatrix<void>;
using ConstMatrix = detail::AnyMatrix<const void>;
using Vector = detail::AnyVector<void>;
using ConstVector = detail::AnyVector<const void>;

}  // namespace coda
