// The head of a language model and its loss.
#include <algorithm>
#include <cmath>

#include "tests/gpu/problem.h"

namespace coda::test::gpu {
namespace {

struct LossOptions {
  ops::LogitTransform transform;
  ops::CrossEntropy loss;
  bool linear() const { return transform.cap == 0; }
};
LossOptions draw_loss_options(Draw& d) {
  LossOptions o;
  if (d.random.integer(0, 2) == 0) o.transform.scale = 0.5;
  if (d.random.integer(0, 2) == 0) o.transform.cap = 8;
  if (d.random.integer(0, 2) == 0 && d.n > 0) o.loss.label_smoothing = 0.125;
  if (d.random.integer(0, 2) == 0) o.loss.z_loss = 0.001;
  // May be a class. Tests that ask for everything set targets of their own to -100.
  if (!d.options.everything && d.random.integer(0, 2) == 0) o.loss.ignore_index = d.random.integer(-1, d.n - 1);
  return o;
}

double largest(const Mat& x) {
  double most = 0;
  for (const double e : x.v) most = std::max(most, std::isfinite(e) ? std::fabs(e) : 0.0);
  return most;
}

/// A loss is a difference of log-sum-exp and logits, which are as large as `lse` or |logit|.
Magnitude loss_magnitude(Id lse, double logit, double z_loss) {
  return [=](const std::vector<Mat>& reference) {
    const double most = std::max(largest(reference[static_cast<std::size_t>(lse)]), logit);
    return 2 * most + z_loss * most * most;
  };
}

/// No logit is larger: |acc| <= 128 with exact inputs, a row scale of at most 2, a mean and a column sum of at most 8.
double logit_bound(const Draw& d) { return d.exact() ? 2 * (128 + 64) + 8 : 8 * std::max(1.0, d.scale()); }

Call draw_gemm_lse(Draw& d, int variant) {
  const auto p = d.product();
  const auto norm = variant == 0 ? d.rms() : d.layernorm();
  const LossOptions o = draw_loss_options(d);
  const Id target = d.given() ? d.targets(d.n, o.loss.ignore_index) : kNone;
  const Id preact = d.given() ? d.out("preact", d.n, true) : kNone;
  // What is reduced is what is stored, rounded.
  const bool rounds = preact != kNone, exact = o.linear() && !rounds;
  const Id logits = d.given() ? d.out("logits", d.n, exact) : kNone;
  const Id max = d.partial("max", d.n, Fold::max, exact);
  const Id sum = d.partial("sum", d.n, Fold::sum_exp, false);
  d.slot(sum).partner = max;
  // exp of a difference of logits is off by as many units as they are large.
  d.slot(sum).magnitude = [bound = logit_bound(d), sum](const std::vector<Mat>& reference) {
    return largest(reference[static_cast<std::size_t>(sum)]) * (1 + bound);
  };
  const Id logit_sum = d.partial("logit_sum", d.n, Fold::sum, exact);
  d.slot(logit_sum).magnitude = Draw::constant(logit_bound(d) * static_cast<double>(std::max<std::int64_t>(d.n, 1)));
  Id target_logit = kNone, loss = kNone;
  const Id lse = d.row_statistic("lse", false);
  d.slot(lse).magnitude = loss_magnitude(lse, logit_bound(d), 0);
  if (target != kNone) {
    target_logit = d.filled(d.row_statistic("target_logit", exact), Mat(d.m, 1));  // ignored rows stay
    loss = d.row_statistic("loss", false);
    d.slot(loss).magnitude = loss_magnitude(lse, logit_bound(d), o.loss.z_loss);
  }
  for (const Id id : {logits, max, sum, logit_sum, lse, target_logit, loss})
    if (id != kNone) d.slot(id).of_short = rounds;
  return [=, n = d.n](const Bound& x, const ops::Target& on) {
    ops::gemm_lse({.a = x[p.a],
                   .b = x[p.b],
                   .layout = p.layout,
                   .norm = norm.bind(x),
                   .transform = o.transform,
                   .target = x[target],
                   .ignore_index = o.loss.ignore_index,
                   .preact = x[preact],
                   .logits = x[logits],
                   .max = x[max],
                   .sum = x[sum],
                   .logit_sum = x[logit_sum],
                   .target_logit = x[target_logit],
                   .on = on});
    ops::lse_finalize({.max = x[max],
                       .sum = x[sum],
                       .logit_sum = x[logit_sum],
                       .target = x[target],
                       .target_logit = x[target_logit],
                       .vocabulary = std::max<std::int64_t>(n, 1),
                       .options = o.loss,
                       .lse = x[lse],
                       .loss = x[loss],
                       .on = on});
  };
}

Call draw_linear_cross_entropy(Draw& d, int variant) {
  const auto p = d.product();
  const auto norm = variant == 0 ? d.rms() : d.layernorm();
  const LossOptions o = draw_loss_options(d);
  const Id target = d.targets(d.n, o.loss.ignore_index);
  const Id lse = d.row_statistic("lse", false), loss = d.row_statistic("loss", false);
  d.slot(lse).magnitude = loss_magnitude(lse, logit_bound(d), 0);
  d.slot(loss).magnitude = loss_magnitude(lse, logit_bound(d), o.loss.z_loss);
  return [=](const Bound& x, const ops::Target& on) {
    ops::linear_cross_entropy({.a = x[p.a],
                               .weight = x[p.b],
                               .norm = norm.bind(x),
                               .transform = o.transform,
                               .target = x[target],
                               .options = o.loss,
                               .lse = x[lse],
                               .loss = x[loss],
                               .on = on});
  };
}

/// Variant 1 adds to a weight gradient of the operands' type, 2 is behind a LayerNorm. The log-sum-exp is the forward's
/// own.
Call draw_linear_cross_entropy_backward(Draw& d, int variant) {
  const auto p = d.product();
  const auto norm = variant == 2 ? d.layernorm() : d.rms();
  const LossOptions o = draw_loss_options(d);
  const Id h = d.matrix("h", d.k);
  const Id target = d.targets(d.n, o.loss.ignore_index);
  const Id dloss = d.factors("dloss", d.m, Kind::statistic, 1, true);
  const Id lse = d.row_statistic("lse", false);
  d.slot(lse).magnitude = loss_magnitude(lse, logit_bound(d), 0);

  // A row of dz: at most p and a one-hot, both weighted; with the z-loss p comes up to 1 + 2 zeta lse times.
  const double row = 2 * 2 * (2 + 2 * o.loss.z_loss * logit_bound(d));
  const Id da = d.out("da", d.k, false);
  d.slot(da).of_short = true;
  d.slot(da).magnitude = Draw::constant(row * (d.exact() ? 4 : 1));
  const Id dweight = d.filled(
      d.output({.name = "dweight", .kind = variant == 1 ? Kind::operand : Kind::statistic, .rows = d.n, .cols = d.k}),
      integer_mat(d.random, d.n, d.k, -2, 2));
  d.slot(dweight).of_short = true;
  d.slot(dweight).magnitude = Draw::constant(4 * row * std::sqrt(static_cast<double>(d.m)) * (d.exact() ? 8 : 1));
  const Id row_dot = d.given() ? d.row_statistic("row_dot", false) : kNone;
  if (row_dot != kNone) d.slot(row_dot).magnitude = Draw::constant(row * logit_bound(d) * (1 + logit_bound(d)));
  const Id row_udz = variant == 2 ? d.row_statistic("row_udz", false) : kNone;
  if (row_udz != kNone) d.slot(row_udz).magnitude = Draw::constant(row * (d.exact() ? 8 : 5));
  const std::int64_t chunk = d.random.integer(1, std::max<std::int64_t>(d.n, 1)) / 8 * 8 + 8;
  return [=](const Bound& x, const ops::Target& on) {
    ops::linear_cross_entropy({.a = x[p.a],
                               .weight = x[p.b],
                               .norm = norm.bind(x),
                               .transform = o.transform,
                               .target = x[target],
                               .options = o.loss,
                               .lse = x[lse],
                               .on = on});
    ops::linear_cross_entropy_backward({.a = x[p.a],
                                        .weight = x[p.b],
                                        .h = x[h],
                                        .norm = norm.bind(x),
                                        .transform = o.transform,
                                        .target = x[target],
                                        .lse = x[lse],
                                        .dloss = x[dloss],
                                        .options = o.loss,
                                        .chunk = chunk,
                                        .da = x[da],
                                        .dweight = x[dweight],
                                        .row_dot = x[row_dot],
                                        .row_udz = x[row_udz],
                                        .on = on});
  };
}

Call draw_cross_entropy_backward(Draw& d, int variant) {
  const LossOptions o = draw_loss_options(d);
  const Id preact = d.matrix("preact", d.n);
  const Mat z = d.values(preact);
  const Id target = d.targets(d.n, o.loss.ignore_index);
  const Id dloss = d.factors("dloss", d.m, Kind::statistic, 1, true);
  Vec sums(static_cast<std::size_t>(d.m));
  for (std::int64_t i = 0; i < d.m; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < d.n; ++j) {
      const double l = o.transform.scale * z(i, j);
      sum += std::exp(o.linear() ? l : o.transform.cap * std::tanh(l / o.transform.cap));
    }
    sums[static_cast<std::size_t>(i)] = static_cast<float>(std::log(sum));
  }
  const Id lse =
      d.input({.name = "lse", .kind = Kind::statistic, .packed = true, .by_row = true}, reference::column(sums));
  const Id dz = d.random.integer(0, 1) == 1 ? d.in_place(preact, "dz", false) : d.out("dz", d.n, false);
  d.slot(dz).magnitude = Draw::constant(2 * 2 * 12);
  const auto dot = d.row_terms(variant == 1, dz, z, d.n, false);
  for (const Id id : {dot.zdz, dot.udz}) {
    // Of a row: p and a one-hot, each weighted by at most 2, times z and c of at most 8 each; exp as in the lse.
    if (id != kNone) d.slot(id).magnitude = Draw::constant(2 * 2 * 16 * 12);
  }
  return [=](const Bound& x, const ops::Target& on) {
    ops::cross_entropy_backward({.preact = x[preact],
                                 .transform = o.transform,
                                 .target = x[target],
                                 .lse = x[lse],
                                 .dloss = x[dloss],
                                 .options = o.loss,
                                 .dz = x[dz],
                                 .dot = dot.bind(x),
                                 .on = on});
  };
}

}  // namespace

std::span<const Program> loss_programs() {
  static constexpr Program kPrograms[] = {
      {.name = "gemm_lse", .variants = 2, .draw = draw_gemm_lse},
      {.name = "linear_cross_entropy", .variants = 2, .draw = draw_linear_cross_entropy, .any_layout = false},
      {.name = "linear_cross_entropy_backward",
       .variants = 3,
       .draw = draw_linear_cross_entropy_backward,
       .any_layout = false,
       .rows_are_alone = false},
      {.name = "cross_entropy_backward",
       .variants = 2,
       .draw = draw_cross_entropy_backward,
       .product = false,
       .any_layout = false},
  };
  return kPrograms;
}

}  // namespace coda::test::gpu
