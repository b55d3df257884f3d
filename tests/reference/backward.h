// Programs 9-11, backward. As in forward.h, each is a step on the gradient that a product gave; `gemm_*_backward` adds
// that product. The gradient of the cross-entropy is in loss.h.
#pragma once

#include <cmath>
#include <cstdint>

#include "tests/reference/activation.h"
#include "tests/reference/forward.h"
#include "tests/reference/mat.h"
#include "tests/reference/small.h"

namespace coda::reference {

// ---- 9. gemm_rms_backward, and the same for LayerNorm

struct NormGradient {
  Mat dx;      // (M,N)
  Mat h;       // (M,N): the norm's output again, an operand of the weight gradient
  Mat dw, db;  // (ceil(M/row_block), N): partial sums over rows; db is LayerNorm's
};

/// c[m] = mean_n dH*w*xhat, computed the direct way; programs get it as zdz/N of the layer that used the norm.
inline Vec rms_row_term(const Mat& dh, const Mat& x, const Vec& rstd, const Vec& w, Round r = {}) {
  Vec c(rstd.size());
  for (std::int64_t m = 0; m < x.rows; ++m)
    c[m] = r.stat(r.sum(0, x.cols, [&](std::int64_t n) { return dh(m, n) * w[n] * x(m, n) * rstd[m]; }) /
                  static_cast<double>(x.cols));
  return c;
}

/// xhat = X*rstd; dX = dX_in + rstd*(dH*w - xhat*c); H = xhat*w; dw = sums of dH*xhat. `dx_in` may be null.
inline NormGradient rms_backward(const Mat& dh, const Mat& x, const Vec& rstd, const Vec& w, const Mat* dx_in,
                                 const Vec& c, std::int64_t row_block, Round r = {}) {
  require(dh.rows == x.rows && dh.cols == x.cols && size(w) == x.cols, "rms_backward: dH, X or w of a wrong shape");
  require(size(rstd) == x.rows && size(c) == x.rows, "rms_backward: rstd or c is not (M)");
  NormGradient g{Mat(x.rows, x.cols), Mat(x.rows, x.cols), {}, {}};
  Mat xhat(x.rows, x.cols);
  for (std::int64_t m = 0; m < x.rows; ++m)
    for (std::int64_t n = 0; n < x.cols; ++n) {
      xhat(m, n) = r(x(m, n) * rstd[m]);
      const double inner = r(r(dh(m, n) * w[n]) - r(xhat(m, n) * c[m]));
      const double d = r(rstd[m] * inner);
      g.dx(m, n) = dx_in == nullptr ? d : r((*dx_in)(m, n) + d);
      g.h(m, n) = r(xhat(m, n) * w[n]);
    }
  g.dw = row_block_sums(x.rows, x.cols, row_block, r,
                        [&](std::int64_t m, std::int64_t n) { return r(dh(m, n) * xhat(m, n)); });
  return g;
}

inline NormGradient gemm_rms_backward(const Operands& op, const Mat& x, const Vec& rstd, const Vec& w, const Mat* dx_in,
                                      const Vec& c, std::int64_t row_block, Round r = {}) {
  return rms_backward(product(op, r), x, rstd, w, dx_in, c, row_block, r);
}

/// c1[m] = mean_n dH*w and c2[m] = mean_n dH*w*xhat. Programs get them as mean-like sums over the next layer:
/// N*c1 = sum_j dZ*u and N*c2 = sum_j dZ*(Z - c).
struct LayerNormRowTerms {
  Vec c1, c2;
};

inline LayerNormRowTerms layernorm_row_terms(const Mat& dh, const Mat& x, const Moments& s, const Vec& w,
                                             Round r = {}) {
  LayerNormRowTerms t{Vec(s.mean.size()), Vec(s.mean.size())};
  const auto width = static_cast<double>(x.cols);
  for (std::int64_t m = 0; m < x.rows; ++m) {
    t.c1[m] = r.stat(r.sum(0, x.cols, [&](std::int64_t n) { return dh(m, n) * w[n]; }) / width);
    t.c2[m] = r.stat(
        r.sum(0, x.cols, [&](std::int64_t n) { return dh(m, n) * w[n] * (x(m, n) - s.mean[m]) * s.rstd[m]; }) / width);
  }
  return t;
}

/// xhat = (X - mean)*rstd; dX = dX_in + rstd*(dH*w - c1 - xhat*c2); H = xhat*w + b. `b` may be empty, `dx_in` null.
inline NormGradient layernorm_backward(const Mat& dh, const Mat& x, const Moments& s, const Vec& w, const Vec& b,
                                       const Mat* dx_in, const LayerNormRowTerms& t, std::int64_t row_block,
                                       Round r = {}) {
  require(dh.rows == x.rows && dh.cols == x.cols && size(w) == x.cols,
          "layernorm_backward: dH, X or w of a wrong shape");
  NormGradient g{Mat(x.rows, x.cols), Mat(x.rows, x.cols), {}, {}};
  Mat xhat(x.rows, x.cols);
  for (std::int64_t m = 0; m < x.rows; ++m)
    for (std::int64_t n = 0; n < x.cols; ++n) {
      xhat(m, n) = r(r(x(m, n) - s.mean[m]) * s.rstd[m]);
      const double centered = r(r(dh(m, n) * w[n]) - t.c1[m]);
      const double d = r(s.rstd[m] * r(centered - r(xhat(m, n) * t.c2[m])));
      g.dx(m, n) = dx_in == nullptr ? d : r((*dx_in)(m, n) + d);
      const double h = r(xhat(m, n) * w[n]);
      g.h(m, n) = b.empty() ? h : r(h + b[n]);
    }
  g.dw = row_block_sums(x.rows, x.cols, row_block, r,
                        [&](std::int64_t m, std::int64_t n) { return r(dh(m, n) * xhat(m, n)); });
  g.db = row_block_sums(x.rows, x.cols, row_block, r, [&](std::int64_t m, std::int64_t n) { return dh(m, n); });
  return g;
}

inline NormGradient gemm_layernorm_backward(const Operands& op, const Mat& x, const Moments& s, const Vec& w,
                                            const Vec& b, const Mat* dx_in, const LayerNormRowTerms& t,
                                            std::int64_t row_block, Round r = {}) {
  return layernorm_backward(product(op, r), x, s, w, b, dx_in, t, row_block, r);
}

// ---- 10. gemm_swiglu_backward and every other activation

struct ActivationGradient {
  Mat dz;   // (M,2F) gated, (M,F) plain
  Mat y;    // (M,F): the activation's output again
  Mat zdz;  // (M,T): sums of z*dz over blocks of `block` columns of dY, so of 2*block columns of a gated Z
};

/// With `bias` the activation saw z + bias, while zdz is made of z.
inline ActivationGradient activation_backward(const Mat& dy, const Mat& z, Activation f, std::int64_t block,
                                              const Vec* bias = nullptr, Round r = {}) {
  require(dy.rows == z.rows && dy.cols == z.cols, "activation_backward: dY and Z differ in shape");
  const Mat x = add_row_vector(z, bias, r);
  ActivationGradient g{Mat(z.rows, z.cols), activated(x, f, r), {}};
  for (std::size_t i = 0; i < z.v.size(); ++i) g.dz.v[i] = r(activate_backward(f, x.v[i], dy.v[i]));
  g.zdz = block_sums(z.rows, z.cols, block, r, [&](std::int64_t m, std::int64_t n) { return z(m, n) * g.dz(m, n); });
  return g;
}

/// d_up = dY*f(gate); d_gate = dY*up*f'(gate).
inline ActivationGradient gated_backward(const Mat& dy, const Mat& z, Activation f, std::int64_t block,
                                         const Vec* bias = nullptr, Round r = {}) {
  require(dy.rows == z.rows && 2 * dy.cols == z.cols, "gated_backward: Z is not twice as wide as dY");
  const Mat x = add_row_vector(z, bias, r);
  ActivationGradient g{Mat(z.rows, z.cols), gated(x, f, r), {}};
  for (std::int64_t m = 0; m < dy.rows; ++m)
    for (std::int64_t j = 0; j < dy.cols; ++j) {
      const double gate = x(m, 2 * j), up = x(m, 2 * j + 1);
      g.dz(m, 2 * j) = r(activate_backward(f, gate, r(dy(m, j) * up)));
      g.dz(m, 2 * j + 1) = r(dy(m, j) * r(activate(f, gate)));
    }
  g.zdz =
      block_sums(z.rows, z.cols, 2 * block, r, [&](std::int64_t m, std::int64_t n) { return z(m, n) * g.dz(m, n); });
  return g;
}

inline ActivationGradient gemm_activation_backward(const Operands& op, const Mat& z, Activation f, std::int64_t block,
                                                   const Vec* bias = nullptr, Round r = {}) {
  return activation_backward(product(op, r), z, f, block, bias, r);
}

inline ActivationGradient gemm_gated_backward(const Operands& op, const Mat& z, Activation f, std::int64_t block,
                                              const Vec* bias = nullptr, Round r = {}) {
  return gated_backward(product(op, r), z, f, block, bias, r);
}

// ---- 11. rope_backward, and through a head norm

struct RopeGradient {
  Mat dz;        // (M,N)
  Vec zdz;       // (M): sum of Y*dY, which the rotation keeps, so of Z*dZ
  Mat dwq, dwk;  // (ceil(M/row_block), head_dim), with a head norm only: sums over rows and heads
};

/// `y` is the rotation's output.
inline RopeGradient rope_backward(const Mat& dy, const Mat& y, const RopeTable& table, const Positions& position,
                                  const Heads& heads, Round r = {}) {
  return {detail::rotate(dy, table, position, heads, -1.0, r), row_dots(y, dy, r), {}, {}};
}

/// `z` is the value before the bias and the head norm.
inline RopeGradient qknorm_rope_backward(const Mat& dy, const Mat& z, const QkNorm& norm, const RopeTable& table,
                                         const Positions& position, const Heads& heads, std::int64_t row_block,
                                         const Vec* bias = nullptr, Round r = {}) {
  const Mat dn = detail::rotate(dy, table, position, heads, -1.0, r);  // gradient of the normed heads
  const Mat x = add_row_vector(z, bias, r);
  const Mat rstd = head_rstd(x, heads, norm.eps, r);
  RopeGradient g{dn, {}, {}, {}};
  Mat dn_xhat(x.rows, heads.rotated());
  for (std::int64_t m = 0; m < x.rows; ++m)
    for (std::int64_t h = 0; h < heads.q + heads.k; ++h) {
      const Vec& w = h < heads.q ? norm.wq : norm.wk;
      const std::int64_t first = h * heads.dim;
      const auto xhat = [&](std::int64_t i) { return r(x(m, first + i) * rstd(m, h)); };
      const double mean = r.stat(r.sum(0, heads.dim, [&](std::int64_t i) {
        return r(dn(m, first + i) * w[i]) * xhat(i);
      }) / static_cast<double>(heads.dim));
      for (std::int64_t i = 0; i < heads.dim; ++i) {
        dn_xhat(m, first + i) = r(dn(m, first + i) * xhat(i));
        g.dz(m, first + i) = r(rstd(m, h) * r(r(dn(m, first + i) * w[i]) - r(xhat(i) * mean)));
      }
    }
  g.zdz = row_dots(z, g.dz, r);
  const auto weight_gradient = [&](std::int64_t begin, std::int64_t end) {
    return row_block_sums(x.rows, heads.dim, row_block, r, [&](std::int64_t m, std::int64_t i) {
      return r.sum(begin, end, [&](std::int64_t h) { return dn_xhat(m, h * heads.dim + i); });
    });
  };
  g.dwq = weight_gradient(0, heads.q);
  g.dwk = weight_gradient(heads.q, heads.q + heads.k);
  return g;
}

}  // namespace coda::reference
