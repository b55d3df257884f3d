// What the plain-loop reference is written on: a matrix of doubles, and the rounding that turns each function either
// into the exact fp64 result or into the chain of separate passes that stores every intermediate in a short type.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "coda/core/tensor.h"

namespace coda::reference {

/// Row-major (rows, cols).
struct Mat {
  std::int64_t rows = 0, cols = 0;
  std::vector<double> v;

  Mat() = default;
  Mat(std::int64_t r, std::int64_t c, double fill = 0.0) : rows(r), cols(c), v(static_cast<std::size_t>(r * c), fill) {}
  Mat(std::int64_t r, std::int64_t c, std::vector<double> values) : rows(r), cols(c), v(std::move(values)) {
    if (static_cast<std::int64_t>(v.size()) != r * c)
      throw std::logic_error("Mat: size of the values is not rows * cols");
  }
  double& operator()(std::int64_t m, std::int64_t n) { return v[static_cast<std::size_t>(m * cols + n)]; }
  double operator()(std::int64_t m, std::int64_t n) const { return v[static_cast<std::size_t>(m * cols + n)]; }
};

using Vec = std::vector<double>;

/// A wrong call of the reference is a mistake in a test; it never shows as a failed comparison.
inline void require(bool ok, const char* what) {
  if (!ok) throw std::logic_error(std::string("reference: ") + what);
}

inline std::int64_t size(const Vec& x) { return static_cast<std::int64_t>(x.size()); }
inline std::int64_t blocks_of(std::int64_t n, std::int64_t block) {
  require(block > 0, "block must be positive");
  return (n + block - 1) / block;
}

inline Mat transposed(const Mat& x) {
  Mat y(x.cols, x.rows);
  for (std::int64_t m = 0; m < x.rows; ++m)
    for (std::int64_t n = 0; n < x.cols; ++n) y(n, m) = x(m, n);
  return y;
}

/// (n, 1), so that row statistics are compared by the same functions as matrices.
inline Mat column(const Vec& x) { return Mat(size(x), 1, x); }

/// exact(): fp64 throughout. to(T): every matrix that a chain of separate passes would store is rounded to T, row
/// statistics to fp32, and sums run in fp32, which is what a framework's chain of 16-bit operators does.
class Round {
 public:
  Round() = default;
  static Round exact() { return {}; }
  static Round to(DType type) {
    require(type == DType::bf16 || type == DType::fp16 || type == DType::fp32 || type == DType::fp64,
            "Round::to takes bf16, fp16, fp32 or fp64");
    Round r;
    r.type_ = type;
    return r;
  }

  bool is_exact() const { return type_ == DType::fp64; }

  double operator()(double x) const {
    switch (type_) {
      case DType::bf16:
        return nearest(x, 8, -133, 128);
      case DType::fp16:
        return nearest(x, 11, -24, 16);
      case DType::fp32:
        return static_cast<float>(x);
      default:
        return x;
    }
  }

  double stat(double x) const { return is_exact() ? x : static_cast<double>(static_cast<float>(x)); }

  /// Sum of term(i) for i in [begin, end), left to right.
  template <class Term>
  double sum(std::int64_t begin, std::int64_t end, Term term) const {
    return is_exact() ? accumulate<double>(begin, end, term) : accumulate<float>(begin, end, term);
  }

 private:
  /// Rounded once, to nearest even, to `bits` significant bits and units of at least 2^least; from 2^most on infinite.
  static double nearest(double x, int bits, int least, int most) {
    if (x == 0 || !std::isfinite(x)) return x;
    const int exponent = static_cast<int>(std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ff) - 1022;  // |x| < 2^exponent
    // A sum with this has a last bit of one unit.
    const double shift = 1.5 * power_of_two(52 + std::max(exponent - bits, least));
    const double y = std::copysign((x + shift) - shift, x);
    return std::fabs(y) < power_of_two(most) ? y : std::copysign(std::numeric_limits<double>::infinity(), x);
  }
  /// Of -1022 to 1023; std::ldexp takes a fifth of the suite's time.
  static double power_of_two(int exponent) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
  }
  template <class Acc, class Term>
  static double accumulate(std::int64_t begin, std::int64_t end, Term term) {
    Acc acc = 0;
    for (std::int64_t i = begin; i < end; ++i) acc += static_cast<Acc>(term(i));
    return acc;
  }

  DType type_ = DType::fp64;
};

/// y(m, t) = sum of term(m, n) over the columns n of block t.
template <class Term>
Mat block_sums(std::int64_t rows, std::int64_t cols, std::int64_t block, Round r, Term term) {
  Mat y(rows, blocks_of(cols, block));
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t t = 0; t < y.cols; ++t)
      y(m, t) = r.sum(t * block, std::min(cols, (t + 1) * block), [&](std::int64_t n) { return term(m, n); });
  return y;
}

/// y(t, n) = sum of term(m, n) over the rows m of block t.
template <class Term>
Mat row_block_sums(std::int64_t rows, std::int64_t cols, std::int64_t block, Round r, Term term) {
  return transposed(block_sums(cols, rows, block, r, [&](std::int64_t n, std::int64_t m) { return term(m, n); }));
}

enum class Layout { abt, ab, atb };

/// The one that the library calls nt, nn or tn.
constexpr Layout layout_of(coda::Layout layout) {
  return layout == coda::Layout::nt ? Layout::abt : layout == coda::Layout::nn ? Layout::ab : Layout::atb;
}
inline const char* name_of(Layout layout) {
  return layout == Layout::abt ? "A*B^T" : layout == Layout::ab ? "A*B" : "A^T*B";
}

/// abt: A (M,K), B (N,K). ab: A (M,K), B (K,N). atb: A (K,M), B (K,N).
struct Operands {
  const Mat& a;
  const Mat& b;
  Layout layout = Layout::abt;
};

namespace detail {

/// z += x y. Of a long product under sanitizers their checks of each element are most of the time.
template <class Acc>
__attribute__((no_sanitize("address", "undefined", "thread"))) void add_scaled(Acc* z, Acc x, const double* y,
                                                                               std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) z[i] += x * static_cast<Acc>(y[i]);
}

template <class Acc>
Mat multiply(const Mat& a, const Mat& b, Round r) {
  Mat d(a.rows, b.cols);
  std::vector<Acc> acc(static_cast<std::size_t>(b.cols));
  for (std::int64_t m = 0; m < a.rows; ++m) {
    acc.assign(acc.size(), Acc(0));
    for (std::int64_t k = 0; k < a.cols; ++k) {
      add_scaled(acc.data(), static_cast<Acc>(a(m, k)), b.v.data() + k * b.cols, b.cols);
    }
    for (std::int64_t n = 0; n < b.cols; ++n) d(m, n) = r(acc[static_cast<std::size_t>(n)]);
  }
  return d;
}

}  // namespace detail

/// The accumulator (M,N) of every program; K = 0 gives zeros.
inline Mat product(const Operands& op, Round r = {}) {
  const Mat a = op.layout == Layout::atb ? transposed(op.a) : op.a;  // (M,K)
  const Mat b = op.layout == Layout::abt ? transposed(op.b) : op.b;  // (K,N)
  require(a.cols == b.rows, "product: A and B differ in K");
  return r.is_exact() ? detail::multiply<double>(a, b, r) : detail::multiply<float>(a, b, r);
}

}  // namespace coda::reference
