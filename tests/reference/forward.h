// Programs 1-7, forward. Each comes twice: as a step on a matrix (`norm_scale`, `gated`, `rope`, ...) and as the
// program that applies the steps to a product. Cross-entropy is in loss.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/reference/activation.h"
#include "tests/reference/mat.h"
#include "tests/reference/small.h"

namespace coda::reference {

inline Mat add_row_vector(Mat x, const Vec* bias, Round r) {
  if (bias == nullptr) return x;
  require(size(*bias) == x.cols, "bias is not as long as the matrix is wide");
  for (std::int64_t m = 0; m < x.rows; ++m)
    for (std::int64_t n = 0; n < x.cols; ++n) x(m, n) = r(x(m, n) + (*bias)[n]);
  return x;
}

/// A step on every element: y = round(f(x)).
inline Mat activated(Mat x, Activation f, Round r = {}) {
  for (double& e : x.v) e = r(activate(f, e));
  return x;
}

/// Pairs (gate, up) of adjacent columns, (M,2F) -> (M,F): f(gate) * up.
inline Mat gated(const Mat& x, Activation f, Round r = {}) {
  require(x.cols % 2 == 0, "gated: odd number of columns");
  Mat y(x.rows, x.cols / 2);
  for (std::int64_t m = 0; m < y.rows; ++m)
    for (std::int64_t j = 0; j < y.cols; ++j) y(m, j) = r(r(activate(f, x(m, 2 * j))) * x(m, 2 * j + 1));
  return y;
}

// ---- 1. gemm

struct GemmOptions {
  double alpha = 1.0, beta = 0.0;
  const Mat* c = nullptr;     // (M,N), not read where beta is 0
  const Vec* bias = nullptr;  // (N)
  Activation activation = Activation::identity;
};

/// `z` is the value before the bias and the activation, `y` the result.
struct PreactAndOutput {
  Mat z, y;
};

/// z = alpha*acc + beta*C; y = f(z + bias).
inline PreactAndOutput gemm(const Operands& op, const GemmOptions& o = {}, Round r = {}) {
  Mat z = product(op, r);
  for (double& x : z.v) x = r(o.alpha * x);
  if (o.c != nullptr && o.beta != 0.0) {
    require(o.c->rows == z.rows && o.c->cols == z.cols, "gemm: C is not (M,N)");
    for (std::size_t i = 0; i < z.v.size(); ++i) z.v[i] = r(z.v[i] + r(o.beta * o.c->v[i]));
  }
  Mat y = activated(add_row_vector(z, o.bias, r), o.activation, r);
  return {std::move(z), std::move(y)};
}

// ---- 2. gemm_residual_rms, and the same with LayerNorm's two sums

struct Residual {
  Mat x, h;              // (M,N): the new residual stream, and it times the norm weight
  Mat sum, sum_squares;  // (M,T): over the columns of each block
  Mat centered_squares;  // (M,T): about the block's own mean
};

/// X = acc + x; H = X * w; sums of X, X^2 over blocks of `block` columns. Pass bias for X = acc + bias + x.
inline Residual gemm_residual_norm(const Operands& op, const Mat& x, const Vec& w, std::int64_t block,
                                   const Vec* bias = nullptr, Round r = {}) {
  Residual y;
  y.x = add_row_vector(product(op, r), bias, r);
  require(x.rows == y.x.rows && x.cols == y.x.cols && size(w) == x.cols, "gemm_residual_norm: x or w of a wrong shape");
  for (std::size_t i = 0; i < x.v.size(); ++i) y.x.v[i] = r(y.x.v[i] + x.v[i]);
  y.h = y.x;
  for (std::int64_t m = 0; m < x.rows; ++m)
    for (std::int64_t n = 0; n < x.cols; ++n) y.h(m, n) = r(y.x(m, n) * w[n]);

  const auto& s = y.x;
  y.sum = block_sums(s.rows, s.cols, block, r, [&](std::int64_t m, std::int64_t n) { return s(m, n); });
  y.sum_squares =
      block_sums(s.rows, s.cols, block, r, [&](std::int64_t m, std::int64_t n) { return s(m, n) * s(m, n); });
  y.centered_squares = block_sums(s.rows, s.cols, block, r, [&](std::int64_t m, std::int64_t n) {
    const std::int64_t t = n / block;
    const double mean = y.sum(m, t) / static_cast<double>(std::min(block, s.cols - t * block));
    return (s(m, n) - mean) * (s(m, n) - mean);
  });
  return y;
}

// ---- 4. gemm_rms: the row scale in every form

enum class Norm { none, rms, layer };

/// rms: rstd*acc. layer: rstd*(acc - mean*u) + c, with `c` empty where the norm has no bias.
struct NormScale {
  Norm norm = Norm::none;
  Vec rstd = {}, mean = {};  // (M)
  Vec u = {}, c = {};        // (N)

  static NormScale none() { return {}; }
  static NormScale rms(Vec rstd_m) { return {Norm::rms, std::move(rstd_m)}; }
  static NormScale layer(Moments s, LayerNormFold f) {
    return {Norm::layer, std::move(s.rstd), std::move(s.mean), std::move(f.u), std::move(f.c)};
  }
};

inline Mat norm_scale(Mat acc, const NormScale& s, Round r = {}) {
  if (s.norm == Norm::none) return acc;
  require(size(s.rstd) == acc.rows, "norm_scale: rstd is not (M)");
  if (s.norm == Norm::layer)
    require(size(s.mean) == acc.rows && size(s.u) == acc.cols, "norm_scale: mean or u is short");
  for (std::int64_t m = 0; m < acc.rows; ++m)
    for (std::int64_t n = 0; n < acc.cols; ++n) {
      double x = acc(m, n);
      if (s.norm == Norm::layer) x = r(x - r(s.mean[m] * s.u[n]));
      x = r(s.rstd[m] * x);
      if (s.norm == Norm::layer && !s.c.empty()) x = r(x + s.c[n]);
      acc(m, n) = x;
    }
  return acc;
}

/// Also programs 4 with a bias: the value that zdz is made of is the one before the bias.
inline Mat gemm_norm(const Operands& op, const NormScale& s, Round r = {}) { return norm_scale(product(op, r), s, r); }

// ---- 5. gemm_rms_swiglu and every other gated or plain activation

inline PreactAndOutput gemm_norm_activation(const Operands& op, const NormScale& s, Activation f,
                                            const Vec* bias = nullptr, Round r = {}) {
  Mat z = gemm_norm(op, s, r);
  Mat y = activated(add_row_vector(z, bias, r), f, r);
  return {std::move(z), std::move(y)};
}

/// SwiGLU: silu; GeGLU: gelu or gelu_tanh; ReGLU: relu.
inline PreactAndOutput gemm_norm_gated(const Operands& op, const NormScale& s, Activation f, const Vec* bias = nullptr,
                                       Round r = {}) {
  Mat z = gemm_norm(op, s, r);
  Mat y = gated(add_row_vector(z, bias, r), f, r);
  return {std::move(z), std::move(y)};
}

// ---- 6. gemm_rms_rope

/// Columns are q heads, then k heads, then v heads, each `dim` wide.
struct Heads {
  std::int64_t q = 1, k = 1, v = 1, dim = 2;
  std::int64_t width() const { return (q + k + v) * dim; }
  std::int64_t rotated() const { return (q + k) * dim; }
};

/// cos and sin of position * base^(-2j/dim), each (positions, dim/2).
struct RopeTable {
  Mat cos, sin;
};

inline RopeTable rope_table(std::int64_t positions, std::int64_t dim, double base = 10000.0, Round r = {}) {
  RopeTable t{Mat(positions, dim / 2), Mat(positions, dim / 2)};
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t j = 0; j < dim / 2; ++j) {
      const double angle =
          static_cast<double>(p) * std::pow(base, -2.0 * static_cast<double>(j) / static_cast<double>(dim));
      t.cos(p, j) = r(std::cos(angle));
      t.sin(p, j) = r(std::sin(angle));
    }
  return t;
}

using Positions = std::vector<std::int64_t>;  // (M)

namespace detail {

/// Rotates the pairs of the q and k heads by +angle (direction 1) or -angle (direction -1); v passes through.
inline Mat rotate(const Mat& z, const RopeTable& table, const Positions& position, const Heads& heads, double direction,
                  Round r) {
  require(heads.dim % 2 == 0 && z.cols == heads.width(), "rope: columns are not (q + k + v) heads of an even width");
  require(static_cast<std::int64_t>(position.size()) == z.rows, "rope: positions are not (M)");
  require(table.cos.cols == heads.dim / 2 && table.sin.cols == heads.dim / 2, "rope: table is not head_dim/2 wide");
  Mat y = z;
  for (std::int64_t m = 0; m < z.rows; ++m) {
    const std::int64_t p = position[m];
    require(p >= 0 && p < table.cos.rows, "rope: position outside the table");
    for (std::int64_t n = 0; n < heads.rotated(); n += 2) {
      const std::int64_t j = n % heads.dim / 2;
      const double c = table.cos(p, j), s = direction * table.sin(p, j);
      y(m, n) = r(r(z(m, n) * c) - r(z(m, n + 1) * s));
      y(m, n + 1) = r(r(z(m, n) * s) + r(z(m, n + 1) * c));
    }
  }
  return y;
}

}  // namespace detail

/// (z0, z1) -> (z0 cos - z1 sin, z0 sin + z1 cos) on adjacent columns of q and k heads.
inline Mat rope(const Mat& z, const RopeTable& table, const Positions& position, const Heads& heads, Round r = {}) {
  return detail::rotate(z, table, position, heads, 1.0, r);
}

/// (z0, z1) -> (z0 cos + z1 sin, z1 cos - z0 sin) on all adjacent columns; cos and sin are those of `angle`.
inline Mat rotate_back(const Mat& z, const Mat& angle, Round r = {}) {
  require(z.cols % 2 == 0 && angle.rows == z.rows && angle.cols == z.cols, "rotate_back: angle is not (M, N), N even");
  Mat y(z.rows, z.cols);
  for (std::int64_t m = 0; m < z.rows; ++m)
    for (std::int64_t n = 0; n < z.cols; n += 2) {
      const double c = angle(m, n), s = angle(m, n + 1);
      y(m, n) = r(r(z(m, n) * c) + r(z(m, n + 1) * s));
      y(m, n + 1) = r(r(z(m, n + 1) * c) - r(z(m, n) * s));
    }
  return y;
}

inline PreactAndOutput gemm_norm_rope(const Operands& op, const NormScale& s, const RopeTable& table,
                                      const Positions& position, const Heads& heads, const Vec* bias = nullptr,
                                      Round r = {}) {
  Mat z = gemm_norm(op, s, r);
  Mat y = rope(add_row_vector(z, bias, r), table, position, heads, r);
  return {std::move(z), std::move(y)};
}

// ---- 7. gemm_rms_qknorm_rope

struct QkNorm {
  Vec wq, wk;  // (head_dim)
  double eps = 1e-6;
};

/// One reciprocal RMS for each q and k head: (M, q+k).
inline Mat head_rstd(const Mat& z, const Heads& heads, double eps, Round r = {}) {
  Mat y(z.rows, heads.q + heads.k);
  for (std::int64_t m = 0; m < z.rows; ++m)
    for (std::int64_t h = 0; h < y.cols; ++h) {
      const double squares =
          r.sum(h * heads.dim, (h + 1) * heads.dim, [&](std::int64_t n) { return z(m, n) * z(m, n); });
      y(m, h) = r.stat(1.0 / std::sqrt(squares / static_cast<double>(heads.dim) + eps));
    }
  return y;
}

/// Each q and k head over its own RMS, times wq or wk; v passes through.
inline Mat qk_norm(const Mat& z, const QkNorm& norm, const Heads& heads, Round r = {}) {
  require(size(norm.wq) == heads.dim && size(norm.wk) == heads.dim, "qk_norm: weights are not (head_dim)");
  const Mat rstd = head_rstd(z, heads, norm.eps, r);
  Mat y = z;
  for (std::int64_t m = 0; m < z.rows; ++m)
    for (std::int64_t n = 0; n < heads.rotated(); ++n) {
      const std::int64_t h = n / heads.dim;
      const Vec& w = h < heads.q ? norm.wq : norm.wk;
      y(m, n) = r(r(z(m, n) * rstd(m, h)) * w[n % heads.dim]);
    }
  return y;
}

inline PreactAndOutput gemm_norm_qknorm_rope(const Operands& op, const NormScale& s, const QkNorm& norm,
                                             const RopeTable& table, const Positions& position, const Heads& heads,
                                             const Vec* bias = nullptr, Round r = {}) {
  Mat z = gemm_norm(op, s, r);
  Mat y = rope(qk_norm(add_row_vector(z, bias, r), norm, heads, r), table, position, heads, r);
  return {std::move(z), std::move(y)};
}

}  // namespace coda::reference
