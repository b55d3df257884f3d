// Inputs for tests: the same numbers from the same seed on every machine and library (no <random> distribution, whose
// results differ between standard libraries).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "tests/reference/mat.h"

namespace coda::test {

using reference::Layout;
using reference::Mat;
using reference::Operands;
using reference::Vec;

/// SplitMix64 (Steele, Lea, Flood 2014): one add and a mix, any seed is good.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  double uniform(double low = 0.0, double high = 1.0) {
    return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1p-53);
  }
  /// Standard normal, by Box and Muller's transform.
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }
  /// Both ends included.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }

 private:
  std::uint64_t state_;
};

/// Every generated value is rounded to `type`, so that a buffer of that type holds it exactly.
inline Mat normal_mat(Random& random, std::int64_t rows, std::int64_t cols, double scale, DType type) {
  const auto round = reference::Round::to(type);
  Mat x(rows, cols);
  for (double& e : x.v) e = round(scale * random.normal());
  return x;
}

inline Mat uniform_mat(Random& random, std::int64_t rows, std::int64_t cols, double low, double high, DType type) {
  const auto round = reference::Round::to(type);
  Mat x(rows, cols);
  for (double& e : x.v) e = round(random.uniform(low, high));
  return x;
}

inline Vec normal_vec(Random& random, std::int64_t n, double scale, DType type) {
  return normal_mat(random, n, 1, scale, type).v;
}

inline Vec uniform_vec(Random& random, std::int64_t n, double low, double high, DType type) {
  return uniform_mat(random, n, 1, low, high, type).v;
}

/// Powers of two in [2^low, 2^high]: scales that keep exact inputs exact.
inline Vec power_of_two_vec(Random& random, std::int64_t n, std::int64_t low = -1, std::int64_t high = 1) {
  Vec x(static_cast<std::size_t>(n));
  for (double& e : x) e = std::ldexp(1.0, static_cast<int>(random.integer(low, high)));
  return x;
}

inline Mat integer_mat(Random& random, std::int64_t rows, std::int64_t cols, std::int64_t low, std::int64_t high) {
  Mat x(rows, cols);
  for (double& e : x.v) e = static_cast<double>(random.integer(low, high));
  return x;
}

/// In each pair of columns cos and sin of an angle; exact: of quarter turns, which round nothing.
inline Mat rotation_mat(Random& random, std::int64_t rows, std::int64_t cols, bool exact, DType type) {
  const auto round = reference::Round::to(type);
  Mat x(rows, cols);
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < cols; n += 2) {
      const std::int64_t quarter = random.integer(0, 3);
      const double angle = random.uniform(-3.2, 3.2);
      x(m, n) = exact ? static_cast<double>((quarter == 0) - (quarter == 2)) : round(std::cos(angle));
      x(m, n + 1) = exact ? static_cast<double>((quarter == 1) - (quarter == 3)) : round(std::sin(angle));
    }
  return x;
}

/// At most `nonzeros` entries of +-1 or +-2 in each row, at random columns; zeros elsewhere.
inline Mat sparse_integer_mat(Random& random, std::int64_t rows, std::int64_t cols, std::int64_t nonzeros) {
  Mat x(rows, cols);
  for (std::int64_t m = 0; m < rows && cols > 0; ++m)
    for (std::int64_t i = 0; i < nonzeros; ++i) {
      const auto magnitude = static_cast<double>(random.integer(1, 2));
      x(m, random.integer(0, cols - 1)) = random.integer(0, 1) == 0 ? magnitude : -magnitude;
    }
  return x;
}

/// The two operands of a product, stored as `layout` wants them.
struct Problem {
  Mat a, b;
  Layout layout = Layout::abt;
  Operands operands() const { return {a, b, layout}; }
};

/// From A (M,K) and B (N,K).
inline Problem laid_out(const Mat& a, const Mat& b, Layout layout) {
  return {layout == Layout::atb ? reference::transposed(a) : a, layout == Layout::abt ? b : reference::transposed(b),
          layout};
}

inline Problem normal_problem(Random& random, Layout layout, std::int64_t m, std::int64_t n, std::int64_t k,
                              double scale, DType type) {
  const Mat a = normal_mat(random, m, k, scale, type);
  return laid_out(a, normal_mat(random, n, k, scale, type), layout);
}

/// Integers whose product is exact in bf16 and fp16 whatever the order of summation: a row of A has at most 16 nonzeros
/// of at most 2, B is at most 4, so |acc| <= 128, and adding a residual of at most 128 stays within bf16's 256.
inline Problem exact_problem(Random& random, Layout layout, std::int64_t m, std::int64_t n, std::int64_t k) {
  const Mat a = sparse_integer_mat(random, m, k, 16);
  return laid_out(a, integer_mat(random, n, k, -4, 4), layout);
}

/// Class indices in [0, classes); about one row in `ignore_every` is `ignore_index` (0: none is).
inline std::vector<std::int64_t> random_targets(Random& random, std::int64_t rows, std::int64_t classes,
                                                std::int64_t ignore_every = 0, std::int64_t ignore_index = -100) {
  std::vector<std::int64_t> x(static_cast<std::size_t>(rows));
  for (auto& e : x) {
    e = random.integer(0, classes - 1);
    if (ignore_every > 0 && random.integer(1, ignore_every) == 1) e = ignore_index;
  }
  return x;
}

}  // namespace coda::test
