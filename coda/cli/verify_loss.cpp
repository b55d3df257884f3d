// How `coda verify` runs the programs of the cross-entropy.

#include "coda/cli/verify_cases.h"
#include "tests/reference/loss.h"
#include "tests/reference/small.h"

namespace coda::cli {
namespace {

namespace ref = reference;

struct Variant {
  const char* option;
  ref::LossOptions loss;
  ops::LogitTransform transform() const { return {loss.scale, loss.cap}; }
  ops::CrossEntropy options() const {
    return {.label_smoothing = loss.smoothing, .z_loss = loss.z_loss, .ignore_index = loss.ignore_index};
  }
};
const Variant kVariants[] = {
    {"", {}}, {"scale cap smoothing z-loss", {.scale = 1.5, .cap = 4, .smoothing = 0.1, .z_loss = 0.01}}};

struct Targets {
  ref::Targets values;
  Input input;
};
Targets random_targets(VerifyCase& c, std::int64_t classes) {
  const auto values = test::random_targets(c.random, c.m, classes, 7);
  return {values, c.indices(values)};
}

/// lse as a backward is given it. A lone logit's probability would be 1 and its gradient 0, in which nothing but
/// rounding is left to judge: its vocabulary goes on elsewhere.
Input lse_of(VerifyCase& c, const Mat& logits, const Targets& targets, const ref::LossOptions& loss) {
  Vec lse =
      ref::lse_finalize(ref::lse_partials(logits, targets.values, c.block_n, loss), targets.values, c.n, loss).lse;
  for (double& x : lse) x = Round::to(c.stats)(c.n == 1 ? x + 1 : x);
  return c.column(lse, c.stats);
}

/// Row sums over each block of columns of z dz.
Mat dots(const VerifyCase& c, const Mat& z, const Mat& dz, Round r) {
  return ref::block_sums(z.rows, z.cols, c.block_n, r,
                         [&](std::int64_t i, std::int64_t j) { return z(i, j) * dz(i, j); });
}

}  // namespace

void verify_gemm_lse(VerifyCase& c) {
  const auto [a, b, acc] = c.operands();
  const auto norm = c.rms();
  const Targets targets = random_targets(c, c.n);
  const auto z = c.both(acc, [&](const Mat& x, Round r) { return ref::norm_scale(x, norm.scale, r); });
  for (const Variant& v : kVariants) {
    c.option = v.option;
    const Output preact = c.matrix_output("preact", c.m, c.n), logits = c.matrix_output("logits", c.m, c.n);
    const Output max = c.row_partials("max"), sum = c.row_partials("sum"), logit_sum = c.row_partials("logit_sum");
    // Ignored rows are left as they were.
    const Output target_logit = c.updated(c.vector_output("target_logit", c.m), Mat(c.m, 1));
    ops::gemm_lse({.a = a.matrix(),
                   .b = b.matrix(),
                   .layout = c.layout,
                   .norm = norm.argument,
                   .transform = v.transform(),
                   .target = targets.input.vector(),
                   .ignore_index = v.loss.ignore_index,
                   .preact = preact.matrix(),
                   .logits = logits.matrix(),
                   .max = max.matrix(),
                   .sum = sum.matrix(),
                   .logit_sum = logit_sum.matrix(),
                   .target_logit = target_logit.vector(),
                   .on = c.on});
    const auto l = c.both(z, [&](const Mat& x, Round r) { return ref::logits(x, v.loss, r); });
    c.compare(preact, z.exact, z.chain);
    // What is reduced is what is stored.
    const Mat stored = preact.buffer->values();
    const auto p = c.both([&](Round r) {
      return ref::lse_partials(ref::logits(stored, v.loss, r), targets.values, c.block_n, v.loss, r);
    });
    c.compare(logits, l.exact, l.chain);
    c.compare(max, p.exact.max, p.chain.max);
    c.compare(sum, p.exact.sum_exp, p.chain.sum_exp);
    c.compare(logit_sum, p.exact.sum, p.chain.sum);
    c.compare(target_logit, p.exact.target, p.chain.target);
  }
}

void verify_lse_finalize(VerifyCase& c) {
  const Targets targets = random_targets(c, c.n);
  for (const Variant& v : kVariants) {
    c.option = v.option;
    const Input l = c.matrix(c.m, c.n);
    const ref::LsePartials partials =
        ref::lse_partials(l.values, targets.values, c.block_n, v.loss, Round::to(c.stats));
    const Input max = c.input(partials.max, c.stats), sum = c.input(partials.sum_exp, c.stats),
                logit_sum = c.input(partials.sum, c.stats), target_logit = c.column(partials.target, c.stats);
    const Output lse = c.vector_output("lse", c.m), loss = c.vector_output("loss", c.m);
    ops::lse_finalize({.max = max.matrix(),
                       .sum = sum.matrix(),
                       .logit_sum = logit_sum.matrix(),
                       .target = targets.input.vector(),
                       .target_logit = target_logit.vector(),
                       .vocabulary = c.n,
                       .options = v.options(),
                       .lse = lse.vector(),
                       .loss = loss.vector(),
                       .on = c.on});
    const auto y = c.both([&](Round r) { return ref::lse_finalize(partials, targets.values, c.n, v.loss, r); });
    c.compare(lse, y.exact.lse, y.chain.lse);
    c.compare(loss, y.exact.loss, y.chain.loss);
  }
}

void verify_linear_cross_entropy(VerifyCase& c) {
  const auto [a, weight, acc] = c.operands();
  const auto norm = c.rms();
  const Targets targets = random_targets(c, c.n);
  for (const Variant& v : kVariants) {
    c.option = v.option;
    const Output lse = c.vector_output("lse", c.m), loss = c.vector_output("loss", c.m);
    ops::linear_cross_entropy({.a = a.matrix(),
                               .weight = weight.matrix(),
                               .norm = norm.argument,
                               .transform = v.transform(),
                               .target = targets.input.vector(),
                               .options = v.options(),
                               .lse = lse.vector(),
                               .loss = loss.vector(),
                               .on = c.on});
    const auto y = c.both(acc, [&](const Mat& x, Round r) {
      const Mat l = ref::logits(ref::norm_scale(x, norm.scale, r), v.loss, r);
      return ref::lse_finalize(ref::lse_partials(l, targets.values, c.block_n, v.loss, r), targets.values, c.n, v.loss,
                               r);
    });
    c.compare(lse, y.exact.lse, y.chain.lse);
    c.compare(loss, y.exact.loss, y.chain.loss);
  }
}

void verify_cross_entropy_backward(VerifyCase& c) {
  const Input z = c.matrix(c.m, c.n), dloss = c.statistic(c.m, 0.5, 1.5);
  const Targets targets = random_targets(c, c.n);
  for (const Variant& v : kVariants) {
    c.option = v.option;
    const Input lse = lse_of(c, ref::logits(z.values, v.loss), targets, v.loss);
    const Output dz = c.matrix_output("dz", c.m, c.n), zdz = c.row_partials("dot.zdz");
    ops::cross_entropy_backward({.preact = z.matrix(),
                                 .transform = v.transform(),
                                 .target = targets.input.vector(),
                                 .lse = lse.vector(),
                                 .dloss = dloss.vector(),
                                 .options = v.options(),
                                 .dz = dz.matrix(),
                                 .dot = {.zdz = zdz.matrix()},
                                 .on = c.on});
    const auto d = c.both([&](Round r) {
      return ref::cross_entropy_backward(ref::logits(z.values, v.loss, r), lse.vec(), targets.values, dloss.vec(),
                                         v.loss, r)
          .dz;
    });
    c.compare(dz, d.exact, d.chain);
    c.compare(zdz, dots(c, z.values, d.exact, Round::exact()), dots(c, z.values, d.chain, Round::to(c.type)));
  }
}

void verify_linear_cross_entropy_backward(VerifyCase& c) {
  const VerifyCase::Operands operands = c.operands();
  const auto norm = c.rms();
  const Input h = c.matrix(c.m, c.k), dloss = c.statistic(c.m, 0.5, 1.5);
  const Targets targets = random_targets(c, c.n);
  const auto z = c.both(operands.acc, [&](const Mat& x, Round r) { return ref::norm_scale(x, norm.scale, r); });
  for (const Variant& v : kVariants) {
    c.option = v.option;
    const Input lse = lse_of(c, ref::logits(z.exact, v.loss), targets, v.loss);
    const Mat before = test::normal_mat(c.random, c.n, c.k, 0.01, c.stats);
    const Output da = c.matrix_output("da", c.m, c.k),
                 dweight = c.updated(c.output("dweight", c.n, c.k, c.stats), before),
                 row_dot = c.vector_output("row_dot", c.m);
    ops::linear_cross_entropy_backward({.a = operands.a.matrix(),
                                        .weight = operands.b.matrix(),
                                        .h = h.matrix(),
                                        .norm = norm.argument,
                                        .transform = v.transform(),
                                        .target = targets.input.vector(),
                                        .lse = lse.vector(),
                                        .dloss = dloss.vector(),
                                        .options = v.options(),
                                        .chunk = 200,  // several blocks, the last of them narrower
                                        .da = da.matrix(),
                                        .dweight = dweight.matrix(),
                                        .row_dot = row_dot.vector(),
                                        .on = c.on});
    const auto g = c.both(z, [&](const Mat& x, Round r) {
      struct {
        Mat da, dweight;
        Vec row_dot;
      } y;
      const Mat dz =
          ref::cross_entropy_backward(ref::logits(x, v.loss, r), lse.vec(), targets.values, dloss.vec(), v.loss, r).dz;
      y.da = ref::product({dz, operands.b.values, ref::Layout::ab}, r);
      y.dweight = ref::product({dz, h.values, ref::Layout::atb}, r);
      for (std::size_t i = 0; i < before.v.size(); ++i) y.dweight.v[i] = r(y.dweight.v[i] + before.v[i]);
      y.row_dot = ref::row_dots(x, dz, r);
      return y;
    });
    c.compare(da, g.exact.da, g.chain.da);
    c.compare(dweight, g.exact.dweight, g.chain.dweight);
    c.compare(row_dot, g.exact.row_dot, g.chain.row_dot);
  }
}

}  // namespace coda::cli
