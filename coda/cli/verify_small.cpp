// How `coda verify` runs the small reductions between programs.
#include <cmath>

#include "coda/cli/verify_cases.h"
#include "tests/reference/small.h"

namespace coda::cli {
namespace {

namespace ref = reference;

Mat sum_of_columns(const Mat& partial, const Vec& before, Round r) {
  Vec y = ref::column_sums(partial, r);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = r.stat(y[i] + before[i]);
  return ref::column(y);
}

}  // namespace

void verify_rms_finalize(VerifyCase& c) {
  const Mat x = test::normal_mat(c.random, c.m, c.n, 1, c.stats);
  const auto square = [&](std::int64_t i, std::int64_t j) { return x(i, j) * x(i, j); };
  const Input sum_sq = c.input(ref::block_sums(c.m, c.n, c.block_n, Round::to(c.stats), square), c.stats);
  const Output rstd = c.vector_output("rstd", c.m);
  constexpr double kEps = 1e-5;
  ops::rms_finalize({.sum_sq = sum_sq.matrix(), .n = c.n, .eps = kEps, .rstd = rstd.vector(), .on = c.on});
  const auto y = c.both([&](Round r) { return ref::rms_finalize(sum_sq.values, c.n, kEps, r); });
  c.compare(rstd, y.exact, y.chain);
}

void verify_layernorm_finalize(VerifyCase& c) {
  // A mean that is large beside the deviation: sums of squares would lose the variance.
  Mat x = test::normal_mat(c.random, c.m, c.n, 1, c.stats);
  for (double& e : x.v) e += 8;
  const auto count = [&](std::int64_t t) { return static_cast<double>(std::min(c.block_n, c.n - t * c.block_n)); };
  Mat means =
      ref::block_sums(c.m, c.n, c.block_n, Round::exact(), [&](std::int64_t i, std::int64_t j) { return x(i, j); });
  Mat sums = means;
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t t = 0; t < means.cols; ++t) {
      means(i, t) = Round::to(c.stats)(means(i, t) / count(t));
      sums(i, t) = means(i, t) * count(t);
    }
  const Input tile_mean = c.input(means, c.stats);
  const Input tile_m2 = c.input(ref::block_sums(c.m, c.n, c.block_n, Round::to(c.stats),
                                                [&](std::int64_t i, std::int64_t j) {
                                                  const double d = x(i, j) - means(i, j / c.block_n);
                                                  return d * d;
                                                }),
                                c.stats);
  const Output mean = c.vector_output("mean", c.m), rstd = c.vector_output("rstd", c.m);
  constexpr double kEps = 1e-5;
  ops::layernorm_finalize({.tile_mean = tile_mean.matrix(),
                           .tile_m2 = tile_m2.matrix(),
                           .n = c.n,
                           .eps = kEps,
                           .mean = mean.vector(),
                           .rstd = rstd.vector(),
                           .on = c.on});
  const auto y =
      c.both([&](Round r) { return ref::layernorm_finalize_centered(sums, tile_m2.values, c.n, c.block_n, kEps, r); });
  c.compare(mean, y.exact.mean, y.chain.mean);
  c.compare(rstd, y.exact.rstd, y.chain.rstd);
}

void verify_sum_rows(VerifyCase& c) {
  const Input partial = c.input(test::normal_mat(c.random, c.m, c.k, 1, c.stats), c.stats);
  const Output out = c.vector_output("out", c.m);
  const double scale = 1 / static_cast<double>(c.n);
  ops::sum_rows({.partial = partial.matrix(), .scale = scale, .out = out.vector(), .on = c.on});
  const auto y = c.both([&](Round r) {
    Vec sums = ref::row_sums(partial.values, r);
    for (double& s : sums) s = r.stat(s * scale);
    return sums;
  });
  c.compare(out, y.exact, y.chain);
}

void verify_sum_columns(VerifyCase& c) {
  const Input partial = c.input(test::normal_mat(c.random, c.m, c.n, 1, c.stats), c.stats);
  for (const double beta : {0.0, 1.0}) {
    c.option = beta == 0 ? "" : "beta 1";
    Vec before = test::normal_vec(c.random, c.n, 1, c.stats);
    const Output out = c.updated(c.vector_output("out", c.n), ref::column(before));
    ops::sum_columns({.partial = partial.matrix(), .beta = beta, .out = out.vector(), .on = c.on});
    if (beta == 0) before.assign(before.size(), 0);
    const auto y = c.both([&](Round r) { return sum_of_columns(partial.values, before, r); });
    c.compare(out, y.exact, y.chain);
  }
}

void verify_head_weight_gradient(VerifyCase& c) {
  const auto heads = c.heads();
  const ref::Heads& h = heads.heads;
  const Input partial = c.input(test::normal_mat(c.random, c.m, c.n, 1, c.stats), c.stats);
  const Output dwq = c.vector_output("dq_weight", h.dim), dwk = c.vector_output("dk_weight", h.dim);
  ops::head_weight_gradient({.partial = partial.matrix(),
                             .heads = heads.argument,
                             .dq_weight = dwq.vector(),
                             .dk_weight = dwk.vector(),
                             .on = c.on});
  const auto gradient = [&](std::int64_t first, std::int64_t count) {
    return c.both([&](Round r) {
      Vec y(static_cast<std::size_t>(h.dim));
      for (std::int64_t i = 0; i < h.dim; ++i)
        y[static_cast<std::size_t>(i)] = r.stat(r.sum(0, c.m * count, [&](std::int64_t e) {
          return partial.values(e / count, (first + e % count) * h.dim + i);
        }));
      return y;
    });
  };
  const auto q = gradient(0, h.q), k = gradient(h.q, h.k);
  c.compare(dwq, q.exact, q.chain);
  c.compare(dwk, k.exact, k.chain);
}

void verify_embedding_backward(VerifyCase& c) {
  const Input dx = c.matrix(c.m, c.n);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(c.m));
  for (auto& t : tokens) t = c.random.integer(0, c.k - 1);
  const Input token = c.indices(tokens);
  const Mat before = test::normal_mat(c.random, c.k, c.n, 1, c.stats);
  const Output dtable = c.updated(c.output("dtable", c.k, c.n, c.stats), before);
  ops::embedding_backward({.dx = dx.matrix(), .token = token.vector(), .dtable = dtable.matrix(), .on = c.on});
  const auto y = c.both([&](Round r) {
    Mat table = before;
    for (std::int64_t i = 0; i < c.m; ++i)
      for (std::int64_t j = 0; j < c.n; ++j) {
        double& e = table(tokens[static_cast<std::size_t>(i)], j);
        e = r.stat(e + dx.values(i, j));
      }
    return table;
  });
  c.compare(dtable, y.exact, y.chain);
}

void verify_cast(VerifyCase& c) {
  const Input in = c.matrix(c.m, c.n);
  for (const DType to : {DType::bf16, DType::fp16, DType::fp32, DType::fp64}) {
    if (to == DType::fp64 && c.on.backend == ops::Backend::sm90) continue;
    c.option = std::string("to ") + coda::name_of(to);
    const Output out = c.output("out", c.m, c.n, to);
    ops::cast({.in = in.matrix(), .out = out.matrix(), .on = c.on});
    Mat rounded = in.values;
    for (double& e : rounded.v) e = Round::to(to)(e);
    c.compare(out, rounded, rounded);
  }
}

void verify_squared_norm(VerifyCase& c) {
  const Input x = c.vector(c.m * c.n);
  const Vec before = test::normal_vec(c.random, 1, 1, DType::fp64);
  for (const double beta : {0.0, 1.0}) {
    c.option = beta == 0 ? "" : "beta 1";
    const Output out = c.updated(c.vector_output("out", 1, DType::fp64), ref::column(before));
    ops::squared_norm({.x = x.vector(), .beta = beta, .out = out.vector(), .on = c.on});
    const auto y = c.both([&](Round r) {
      const auto square = [&](std::int64_t i) { return x.values(i, 0) * x.values(i, 0); };
      return Vec{beta * before[0] + r.sum(0, c.m * c.n, square)};
    });
    c.compare(out, y.exact, y.chain);
  }
}

void verify_adamw(VerifyCase& c) {
  const std::int64_t size = c.m * c.n;
  constexpr double kRate = 0.01, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1, kScale = 0.5;
  constexpr std::int64_t kStep = 7;
  const Input gradient = c.vector(size);
  const Vec w0 = test::normal_vec(c.random, size, 1, c.stats), m0 = test::normal_vec(c.random, size, 1, c.stats),
            v0 = test::uniform_vec(c.random, size, 0.5, 2, c.stats);
  double square = 0;
  for (const double g : gradient.vec()) square += g * g;
  const Input norm = c.column({square}, DType::fp64);
  for (const bool clip : {false, true}) {
    c.option = clip ? "clipped" : "";
    const double clip_norm = clip ? 0.1 * kScale * std::sqrt(square) : 0;
    const auto state = [&](const char* name, const Vec& values) {
      return c.updated(c.vector_output(name, size), ref::column(values));
    };
    const Output master = state("master", w0), m = state("m", m0), v = state("v", v0);
    const Output weight = c.vector_output("weight", size, c.type);
    ops::adamw({.master = master.vector(),
                .m = m.vector(),
                .v = v.vector(),
                .weight = weight.vector(),
                .gradient = gradient.vector(),
                .rate = kRate,
                .beta1 = kBeta1,
                .beta2 = kBeta2,
                .eps = kEps,
                .weight_decay = kDecay,
                .step = kStep,
                .gradient_scale = kScale,
                .squared_norm = norm.vector(),
                .clip_norm = clip_norm,
                .on = c.on});
    struct State {
      Vec w, m, v, weight;
    };
    const auto y = c.both([&](Round r) {
      State s{w0, m0, v0, w0};
      for (std::size_t i = 0; i < w0.size(); ++i) {
        const double g = r.stat(gradient.vec()[i] * kScale * (clip ? 0.1 : 1));
        s.m[i] = r.stat(r.stat(kBeta1 * m0[i]) + r.stat((1 - kBeta1) * g));
        s.v[i] = r.stat(r.stat(kBeta2 * v0[i]) + r.stat((1 - kBeta2) * g * g));
        const double m_hat = r.stat(s.m[i] / (1 - std::pow(kBeta1, kStep)));
        const double v_hat = r.stat(s.v[i] / (1 - std::pow(kBeta2, kStep)));
        s.w[i] = r.stat(r.stat((1 - kRate * kDecay) * w0[i]) - r.stat(kRate * m_hat / (std::sqrt(v_hat) + kEps)));
        s.weight[i] = r(s.w[i]);
      }
      return s;
    });
    c.compare(master, y.exact.w, y.chain.w);
    c.compare(m, y.exact.m, y.chain.m);
    c.compare(v, y.exact.v, y.chain.v);
    c.compare(weight, y.exact.weight, y.chain.weight);
  }
}

}  // namespace coda::cli
