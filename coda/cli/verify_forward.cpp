// How `coda verify` runs the forward programs and what it expects of them.
#include <fmt/format.h>

#include "coda/cli/verify_cases.h"
#include "tests/reference/forward.h"

namespace coda::cli {
namespace {

namespace ref = reference;

/// Mean of each row inside each block of columns, from the sums.
Mat block_means(Mat sums, std::int64_t width, std::int64_t block) {
  for (std::int64_t i = 0; i < sums.rows; ++i)
    for (std::int64_t t = 0; t < sums.cols; ++t) sums(i, t) /= static_cast<double>(std::min(block, width - t * block));
  return sums;
}

/// x, h and the statistics of the residual stream.
struct Stream {
  Output x, h;
  std::vector<Output> stats;
};
Stream stream_outputs(VerifyCase& c, bool layernorm) {
  Stream s{c.matrix_output("x", c.m, c.n), c.matrix_output("h", c.m, c.n), {}};
  if (layernorm) s.stats = {c.row_partials("mean"), c.row_partials("m2")};
  else s.stats = {c.row_partials("sum_sq")};
  return s;
}
void compare_stream(VerifyCase& c, const Stream& s, const Both<Mat>& acc, const Mat& residual, const Vec& weight) {
  const auto y = c.both(acc, [&](const Mat& a, Round r) {
    // The product is done: a product with one by K = 0 adds nothing to it.
    Mat x = a;
    for (std::size_t i = 0; i < x.v.size(); ++i) x.v[i] = r(x.v[i] + residual.v[i]);
    const Mat none_a(x.rows, 0), none_b(x.cols, 0);
    return ref::gemm_residual_norm({none_a, none_b}, x, weight, c.block_n, nullptr, r);
  });
  c.compare(s.x, y.exact.x, y.chain.x);
  c.compare(s.h, y.exact.h, y.chain.h);
  if (s.stats.size() == 1) {
    c.compare(s.stats[0], y.exact.sum_squares, y.chain.sum_squares);
  } else {
    c.compare(s.stats[0], block_means(y.exact.sum, c.n, c.block_n), block_means(y.chain.sum, c.n, c.block_n));
    c.compare(s.stats[1], y.exact.centered_squares, y.chain.centered_squares);
  }
}

void verify_gemm_residual(VerifyCase& c, bool layernorm) {
  const auto [a, b, acc] = c.operands();
  const Input residual = c.matrix(c.m, c.n), weight = c.vector(c.n);
  const Stream s = stream_outputs(c, layernorm);
  ops::GemmResidual args{.a = a.matrix(),
                         .b = b.matrix(),
                         .layout = c.layout,
                         .residual = residual.matrix(),
                         .weight = weight.vector(),
                         .x = s.x.matrix(),
                         .h = s.h.matrix(),
                         .on = c.on};
  if (layernorm) args.mean = s.stats[0].matrix(), args.m2 = s.stats[1].matrix();
  else args.sum_sq = s.stats[0].matrix();
  ops::gemm_residual(args);
  compare_stream(c, s, acc, residual.values, weight.vec());
}

void verify_gemm_norm(VerifyCase& c, const VerifyCase::NormInput& norm) {
  const auto [a, b, acc] = c.operands();
  const auto z = c.both(acc, [&](const Mat& x, Round r) { return ref::norm_scale(x, norm.scale, r); });
  for (const auto& [f, f_ref] : kActivationPairs) {
    c.option = f == ops::Activation::identity ? "" : ops::name_of(f);
    const Output preact = c.matrix_output("preact", c.m, c.n), out = c.matrix_output("out", c.m, c.n);
    ops::gemm_norm({.a = a.matrix(),
                    .b = b.matrix(),
                    .layout = c.layout,
                    .norm = norm.argument,
                    .activation = f,
                    .preact = preact.matrix(),
                    .out = out.matrix(),
                    .on = c.on});
    const auto y = c.both(z, [f_ref = f_ref](const Mat& x, Round r) { return ref::activated(x, f_ref, r); });
    c.compare(preact, z.exact, z.chain);
    c.compare(out, y.exact, y.chain);
  }
}

void verify_glu(VerifyCase& c, ops::Glu f, ref::Activation f_ref) {
  c.require_pairs();
  const auto [a, b, acc] = c.operands();
  for (const bool layernorm : {false, true}) {
    c.option = layernorm ? "layernorm" : "";
    const auto norm = layernorm ? c.layernorm() : c.rms();
    const Output preact = c.matrix_output("preact", c.m, c.n), out = c.matrix_output("out", c.m, c.n / 2);
    ops::gemm_norm_glu({.a = a.matrix(),
                        .b = b.matrix(),
                        .layout = c.layout,
                        .norm = norm.argument,
                        .function = f,
                        .preact = preact.matrix(),
                        .out = out.matrix(),
                        .on = c.on});
    const auto z = c.both(acc, [&](const Mat& x, Round r) { return ref::norm_scale(x, norm.scale, r); });
    const auto y = c.both(z, [&](const Mat& x, Round r) { return ref::gated(x, f_ref, r); });
    c.compare(preact, z.exact, z.chain);
    c.compare(out, y.exact, y.chain);
  }
}

}  // namespace

void verify_gemm(VerifyCase& c) {
  const auto [a, b, acc] = c.operands();
  {
    const Output out = c.matrix_output("out", c.m, c.n);
    ops::gemm({.a = a.matrix(), .b = b.matrix(), .layout = c.layout, .out = out.matrix(), .on = c.on});
    c.compare(out, acc.exact, acc.chain);
  }
  const Input addend = c.matrix(c.m, c.n), bias = c.vector(c.n);
  constexpr double kAlpha = 0.75, kBeta = -0.5;
  const auto z = c.both(acc, [&](const Mat& x, Round r) {
    Mat y = x;
    for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] = r(r(kAlpha * y.v[i]) + r(kBeta * addend.values.v[i]));
    return ref::add_row_vector(std::move(y), &bias.vec(), r);
  });
  const auto some = {ops::Activation::identity, ops::Activation::gelu_tanh};
  for (const auto& [f, f_ref] : kActivationPairs) {
    if (std::find(some.begin(), some.end(), f) == some.end()) continue;
    const bool plain = f == ops::Activation::identity;
    c.option = plain ? "alpha beta bias" : fmt::format("alpha beta bias {}", ops::name_of(f));
    const Output preact = c.matrix_output("preact", c.m, c.n), out = c.matrix_output("out", c.m, c.n);
    ops::gemm({.a = a.matrix(),
               .b = b.matrix(),
               .layout = c.layout,
               .alpha = kAlpha,
               .beta = kBeta,
               .c = addend.matrix(),
               .bias = bias.vector(),
               .activation = f,
               .preact = preact.matrix(),
               .out = out.matrix(),
               .on = c.on});
    const auto y = c.both(z, [f_ref = f_ref](const Mat& x, Round r) { return ref::activated(x, f_ref, r); });
    c.compare(preact, z.exact, z.chain);
    c.compare(out, y.exact, y.chain);
  }
}

void verify_gemm_residual_rms(VerifyCase& c) { verify_gemm_residual(c, false); }
void verify_gemm_residual_layernorm(VerifyCase& c) { verify_gemm_residual(c, true); }

void verify_embedding(VerifyCase& c) {
  const Input table = c.matrix(c.k, c.n), weight = c.vector(c.n);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(c.m));
  for (auto& t : tokens) t = c.random.integer(0, c.k - 1);
  const Input token = c.indices(tokens);
  Mat rows(c.m, c.n);
  for (std::int64_t i = 0; i < c.m; ++i)
    for (std::int64_t j = 0; j < c.n; ++j) rows(i, j) = table.values(tokens[static_cast<std::size_t>(i)], j);
  const Both<Mat> zero{Mat(c.m, c.n), Mat(c.m, c.n)};
  for (const bool layernorm : {false, true}) {
    c.option = layernorm ? "layernorm" : "";
    const Stream s = stream_outputs(c, layernorm);
    ops::Embedding args{.table = table.matrix(),
                        .token = token.vector(),
                        .weight = weight.vector(),
                        .x = s.x.matrix(),
                        .h = s.h.matrix(),
                        .on = c.on};
    if (layernorm) args.mean = s.stats[0].matrix(), args.m2 = s.stats[1].matrix();
    else args.sum_sq = s.stats[0].matrix();
    ops::embedding(args);
    compare_stream(c, s, zero, rows, weight.vec());
  }
}

void verify_gemm_rms(VerifyCase& c) { verify_gemm_norm(c, c.rms()); }
void verify_gemm_layernorm(VerifyCase& c) { verify_gemm_norm(c, c.layernorm()); }

void verify_gemm_rms_swiglu(VerifyCase& c) { verify_glu(c, ops::Glu::swiglu, ref::Activation::silu); }
void verify_gemm_rms_geglu_erf(VerifyCase& c) { verify_glu(c, ops::Glu::geglu_erf, ref::Activation::gelu); }
void verify_gemm_rms_geglu_tanh(VerifyCase& c) { verify_glu(c, ops::Glu::geglu_tanh, ref::Activation::gelu_tanh); }
void verify_gemm_rms_reglu(VerifyCase& c) { verify_glu(c, ops::Glu::reglu, ref::Activation::relu); }

void verify_gemm_rms_rope(VerifyCase& c) {
  const auto heads = c.heads();
  const auto [a, b, acc] = c.operands();
  const auto norm = c.rms();
  const Output out = c.matrix_output("out", c.m, c.n);
  ops::gemm_norm_rope({.a = a.matrix(),
                       .b = b.matrix(),
                       .layout = c.layout,
                       .norm = norm.argument,
                       .heads = heads.argument,
                       .out = out.matrix(),
                       .on = c.on});
  const auto y = c.both(acc, [&](const Mat& x, Round r) {
    return ref::rope(ref::norm_scale(x, norm.scale, r), heads.table, heads.position, heads.heads, r);
  });
  c.compare(out, y.exact, y.chain);
}

void verify_gemm_rms_rotate(VerifyCase& c) {
  c.require_pairs();
  const auto [a, b, acc] = c.operands();
  const auto norm = c.rms();
  const Input angle = c.input(test::rotation_mat(c.random, c.m, c.n, false, c.type), c.type);
  const Output preact = c.matrix_output("preact", c.m, c.n), out = c.matrix_output("out", c.m, c.n);
  ops::gemm_norm_rotate({.a = a.matrix(),
                         .b = b.matrix(),
                         .layout = c.layout,
                         .norm = norm.argument,
                         .angle = angle.matrix(),
                         .preact = preact.matrix(),
                         .out = out.matrix(),
                         .on = c.on});
  const auto z = c.both(acc, [&](const Mat& x, Round r) { return ref::norm_scale(x, norm.scale, r); });
  const auto y = c.both(z, [&](const Mat& x, Round r) { return ref::rotate_back(x, angle.values, r); });
  c.compare(preact, z.exact, z.chain);
  c.compare(out, y.exact, y.chain);
}

void verify_gemm_rms_qknorm_rope(VerifyCase& c) {
  const auto heads = c.heads();
  const auto [a, b, acc] = c.operands();
  const auto norm = c.rms();
  const Input wq = c.vector(heads.heads.dim), wk = c.vector(heads.heads.dim);
  const ref::QkNorm qk{wq.vec(), wk.vec(), 1e-6};
  const Output preact = c.matrix_output("preact", c.m, c.n), out = c.matrix_output("out", c.m, c.n);
  ops::gemm_norm_qknorm_rope({.a = a.matrix(),
                              .b = b.matrix(),
                              .layout = c.layout,
                              .norm = norm.argument,
                              .heads = heads.argument,
                              .q_weight = wq.vector(),
                              .k_weight = wk.vector(),
                              .eps = qk.eps,
                              .preact = preact.matrix(),
                              .out = out.matrix(),
                              .on = c.on});
  const auto z = c.both(acc, [&](const Mat& x, Round r) { return ref::norm_scale(x, norm.scale, r); });
  const auto y = c.both(z, [&](const Mat& x, Round r) {
    return ref::rope(ref::qk_norm(x, qk, heads.heads, r), heads.table, heads.position, heads.heads, r);
  });
  c.compare(preact, z.exact, z.chain);
  c.compare(out, y.exact, y.chain);
}

}  // namespace coda::cli
