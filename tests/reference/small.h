// The O(M) reductions between two products: from partial sums per block to row statistics.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tests/reference/mat.h"

namespace coda::reference {

/// Sum of each row of the partials (M,T): (M).
inline Vec row_sums(const Mat& partial, Round r = {}) {
  Vec y(static_cast<std::size_t>(partial.rows));
  for (std::int64_t m = 0; m < partial.rows; ++m)
    y[m] = r.stat(r.sum(0, partial.cols, [&](std::int64_t t) { return partial(m, t); }));
  return y;
}

/// Sum of each column of the partials (T,N): (N), such as a norm-weight or bias gradient.
inline Vec column_sums(const Mat& partial, Round r = {}) { return row_sums(transposed(partial), r); }

/// Row dot products sum_n x*y: (M). Of a pre-activation with its gradient it is "zdz".
inline Vec row_dots(const Mat& x, const Mat& y, Round r = {}) {
  require(x.rows == y.rows && x.cols == y.cols, "row_dots: shapes differ");
  return row_sums(block_sums(x.rows, x.cols, x.cols > 0 ? x.cols : 1, r,
                             [&](std::int64_t m, std::int64_t n) { return x(m, n) * y(m, n); }),
                  r);
}

/// rstd[m] = 1 / sqrt(sum_t S[m,t] / width + eps).
inline Vec rms_finalize(const Mat& sum_squares, std::int64_t width, double eps, Round r = {}) {
  Vec y = row_sums(sum_squares, r);
  for (double& x : y) x = r.stat(1.0 / std::sqrt(x / static_cast<double>(width) + eps));
  return y;
}

struct Moments {
  Vec mean, rstd;
};

/// From per-block sums of x and of x^2.
inline Moments layernorm_finalize(const Mat& sum, const Mat& sum_squares, std::int64_t width, double eps,
                                  Round r = {}) {
  const auto n = static_cast<double>(width);
  Moments y{row_sums(sum, r), row_sums(sum_squares, r)};
  for (std::int64_t m = 0; m < size(y.mean); ++m) {
    const double mean = y.mean[m] / n;
    y.mean[m] = r.stat(mean);
    y.rstd[m] = r.stat(1.0 / std::sqrt(y.rstd[m] / n - mean * mean + eps));
  }
  return y;
}

/// From per-block sums and per-block sums of squares about the block's own mean, which does not cancel for a large
/// mean.
inline Moments layernorm_finalize_centered(const Mat& sum, const Mat& centered_squares, std::int64_t width,
                                           std::int64_t block, double eps, Round r = {}) {
  const auto n = static_cast<double>(width);
  Moments y{row_sums(sum, r), Vec(static_cast<std::size_t>(sum.rows))};
  for (std::int64_t m = 0; m < sum.rows; ++m) {
    const double mean = y.mean[m] / n;
    double squares = 0.0;
    for (std::int64_t t = 0; t < sum.cols; ++t) {
      const auto count = static_cast<double>(std::min(block, width - t * block));
      const double shift = sum(m, t) / count - mean;
      squares += centered_squares(m, t) + count * shift * shift;
    }
    y.mean[m] = r.stat(mean);
    y.rstd[m] = r.stat(1.0 / std::sqrt(squares / n + eps));
  }
  return y;
}

/// Straight from the rows, in two passes: what both finalizers must agree with.
inline Moments layernorm_moments(const Mat& x, double eps, Round r = {}) {
  Moments y{Vec(static_cast<std::size_t>(x.rows)), Vec(static_cast<std::size_t>(x.rows))};
  const auto n = static_cast<double>(x.cols);
  for (std::int64_t m = 0; m < x.rows; ++m) {
    const double mean = r.sum(0, x.cols, [&](std::int64_t i) { return x(m, i); }) / n;
    const double squares = r.sum(0, x.cols, [&](std::int64_t i) { return (x(m, i) - mean) * (x(m, i) - mean); });
    y.mean[m] = r.stat(mean);
    y.rstd[m] = r.stat(1.0 / std::sqrt(squares / n + eps));
  }
  return y;
}

/// u = W*w and c = W*b, the row vectors that fold LayerNorm's weight and bias through a linear weight W (N,K).
struct LayerNormFold {
  Vec u, c;
};

inline LayerNormFold layernorm_fold(const Mat& weight, const Vec& w, const Vec& b, Round r = {}) {
  LayerNormFold y{Vec(static_cast<std::size_t>(weight.rows)), Vec(static_cast<std::size_t>(weight.rows))};
  for (std::int64_t n = 0; n < weight.rows; ++n) {
    y.u[n] = r.stat(r.sum(0, weight.cols, [&](std::int64_t k) { return weight(n, k) * w[k]; }));
    y.c[n] = b.empty() ? 0.0 : r.stat(r.sum(0, weight.cols, [&](std::int64_t k) { return weight(n, k) * b[k]; }));
  }
  return y;
}

}  // namespace coda::reference
