// Programs 8 and 12: logits, log-sum-exp, cross-entropy, and its gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/reference/forward.h"
#include "tests/reference/mat.h"
#include "tests/reference/small.h"

namespace coda::reference {

/// L = scale*z, or cap*tanh(scale*z/cap) where cap > 0.
/// loss = (1-smoothing)*(lse - L[target]) + smoothing*(lse - mean L) + z_loss*lse^2; rows of `ignore_index` give 0.
struct LossOptions {
  double scale = 1.0, cap = 0.0, smoothing = 0.0, z_loss = 0.0;
  std::int64_t ignore_index = -100;
};

using Targets = std::vector<std::int64_t>;  // (M)

inline Mat logits(Mat z, const LossOptions& o, Round r = {}) {
  for (double& x : z.v) {
    x = r(o.scale * x);
    if (o.cap > 0.0) x = r(o.cap * r(std::tanh(r(x / o.cap))));
  }
  return z;
}

struct LsePartials {
  Mat max, sum_exp;  // (M,T): the block's largest logit and sum of exp(L - max); (-inf, 0) where every logit is -inf
  Mat sum;           // (M,T): sum of the block's logits, which label smoothing needs
  Vec target;        // (M): the target's logit, 0 in ignored rows
};

inline LsePartials lse_partials(const Mat& l, const Targets& targets, std::int64_t block, const LossOptions& o = {},
                                Round r = {}) {
  require(static_cast<std::int64_t>(targets.size()) == l.rows, "lse: targets are not (M)");
  const std::int64_t tiles = blocks_of(l.cols, block);
  LsePartials y{Mat(l.rows, tiles), Mat(l.rows, tiles), Mat(), Vec(targets.size())};
  y.sum = block_sums(l.rows, l.cols, block, r, [&](std::int64_t m, std::int64_t n) { return l(m, n); });
  for (std::int64_t m = 0; m < l.rows; ++m) {
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t begin = t * block, end = std::min(l.cols, begin + block);
      double top = -std::numeric_limits<double>::infinity();
      for (std::int64_t n = begin; n < end; ++n) top = std::fmax(top, l(m, n));
      y.max(m, t) = top;
      y.sum_exp(m, t) = r.sum(begin, end, [&](std::int64_t n) {
        return l(m, n) == top && std::isinf(top) ? top > 0 : std::exp(l(m, n) - top);
      });
    }
    if (targets[m] == o.ignore_index) continue;
    require(targets[m] >= 0 && targets[m] < l.cols, "lse: target outside the vocabulary");
    y.target[m] = l(m, targets[m]);
  }
  return y;
}

struct Loss {
  Vec lse, loss;  // (M)
};

/// `width` is the number of logits in a row.
inline Loss lse_finalize(const LsePartials& p, const Targets& targets, std::int64_t width, const LossOptions& o = {},
                         Round r = {}) {
  Loss y{Vec(targets.size()), Vec(targets.size())};
  for (std::int64_t m = 0; m < p.max.rows; ++m) {
    double top = -std::numeric_limits<double>::infinity();
    for (std::int64_t t = 0; t < p.max.cols; ++t) top = std::fmax(top, p.max(m, t));
    const double total = r.sum(0, p.max.cols, [&](std::int64_t t) {
      return p.sum_exp(m, t) * (p.max(m, t) == top ? 1.0 : std::exp(p.max(m, t) - top));
    });
    const double lse = r.stat(top + std::log(total));
    y.lse[m] = lse;
    if (targets[m] == o.ignore_index) continue;
    double loss = (1.0 - o.smoothing) * (lse - p.target[m]);
    if (o.smoothing != 0.0) {
      const double mean =
          r.sum(0, p.sum.cols, [&](std::int64_t t) { return p.sum(m, t); }) / static_cast<double>(width);
      loss += o.smoothing * (lse - mean);
    }
    if (o.z_loss != 0.0) loss += o.z_loss * lse * lse;
    y.loss[m] = r.stat(loss);
  }
  return y;
}

struct GemmLse {
  Mat z, l;  // (M,V): the value after the row scale, and the logits
  LsePartials partials;
  Loss result;
};

inline GemmLse gemm_lse(const Operands& op, const NormScale& s, const Targets& targets, std::int64_t block,
                        const LossOptions& o = {}, Round r = {}) {
  GemmLse y;
  y.z = gemm_norm(op, s, r);
  y.l = logits(y.z, o, r);
  y.partials = lse_partials(y.l, targets, block, o, r);
  y.result = lse_finalize(y.partials, targets, y.l.cols, o, r);
  return y;
}

/// Mean over the rows that count; NaN where there is none, as torch has it.
inline double mean_loss(const Vec& loss, const Targets& targets, const LossOptions& o = {}) {
  double total = 0.0, count = 0.0;
  for (std::size_t m = 0; m < loss.size(); ++m)
    if (targets[m] != o.ignore_index) total += loss[m], count += 1.0;
  return total / count;
}

struct LossGradient {
  Mat dl, dz;  // (M,V): with respect to the logits, and to the value before scale and soft-cap
  Vec zdz;     // (M): sum of z*dz, which equals the sum of L*dL where there is no soft-cap
};

/// From the stored logits L: dL = dloss*((1 + 2*z_loss*lse)*p - (1-smoothing)*onehot - smoothing/V), p = exp(L - lse).
inline LossGradient cross_entropy_backward(const Mat& l, const Vec& lse, const Targets& targets, const Vec& dloss,
                                           const LossOptions& o = {}, Round r = {}) {
  require(size(lse) == l.rows && size(dloss) == l.rows, "cross_entropy_backward: lse or dloss is not (M)");
  LossGradient g{Mat(l.rows, l.cols), Mat(l.rows, l.cols), {}};
  Mat zdz(l.rows, l.cols);
  for (std::int64_t m = 0; m < l.rows; ++m) {
    if (targets[m] == o.ignore_index) continue;
    for (std::int64_t n = 0; n < l.cols; ++n) {
      const double p = r(std::exp(l(m, n) - lse[m]));
      double d = r((1.0 + 2.0 * o.z_loss * lse[m]) * p);
      d = r(d - o.smoothing / static_cast<double>(l.cols));
      if (n == targets[m]) d = r(d - (1.0 - o.smoothing));
      d = r(d * dloss[m]);
      g.dl(m, n) = d;
      double z = l(m, n) / o.scale, slope = o.scale;
      if (o.cap > 0.0) {
        const double t = l(m, n) / o.cap;
        slope *= 1.0 - t * t;
        z = std::fabs(t) < 1.0 ? o.cap * std::atanh(t) / o.scale : 0.0;  // at the cap z*dz has the limit 0
      }
      g.dz(m, n) = r(d * slope);
      zdz(m, n) = g.dz(m, n) == 0.0 ? 0.0 : z * g.dz(m, n);  // a masked logit of -inf adds nothing
    }
  }
  g.zdz = row_sums(zdz, r);
  return g;
}

}  // namespace coda::reference
