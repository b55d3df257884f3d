// Bad calls of the loss and of the backward operations, and the in-place calls that are allowed.
#include <cmath>
#include <limits>

#include "tests/ops/bad_calls.h"

namespace coda::test {
namespace {

const std::vector<std::int64_t> kTargets{0, 7, -100, 3};
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

template <class Call>
void add_transform(BadCalls<Call>& bad) {
  bad.add("transform.cap", "got -1", [](Call& x) { x.transform.cap = -1; });
  bad.add("transform.cap", "got nan", [](Call& x) { x.transform.cap = std::nan(""); });
  bad.add("transform.cap", "got inf", [](Call& x) { x.transform.cap = HUGE_VAL; });
  bad.add("transform.cap", "in fp32, got 1e-50", [](Call& x) { x.transform.cap = 1e-50; });
  bad.add("transform", "in fp32, got 1e+30 / 1e-30", [](Call& x) { x.transform = {1e30, 1e-30}; });
  bad.add("transform", "in fp32, got 1e-30 / 1e+30", [](Call& x) { x.transform = {1e-30, 1e30}; });
  bad.add("transform.scale", "got nan", [](Call& x) { x.transform.scale = std::nan(""); });
  bad.add("transform.scale", "in fp32, got 1e+50", [](Call& x) { x.transform.scale = 1e50; });
}
template <class Call>
void add_options(BadCalls<Call>& bad) {
  bad.add("options.label_smoothing", "got 1", [](Call& x) { x.options.label_smoothing = 1; });
  bad.add("options.label_smoothing", "got -0.5", [](Call& x) { x.options.label_smoothing = -0.5; });
  bad.add("options.label_smoothing", "got nan", [](Call& x) { x.options.label_smoothing = std::nan(""); });
  bad.add("options.z_loss", "got -2", [](Call& x) { x.options.z_loss = -2; });
  bad.add("options.z_loss", "got inf", [](Call& x) { x.options.z_loss = HUGE_VAL; });
  bad.add("options.z_loss", "double is finite in fp32, got 2e+38", [](Call& x) { x.options.z_loss = 2e38; });
}
/// Targets outside of [0, 8), and -100 where that is not the index to ignore.
template <class Call, class Ignore>
void add_targets(BadCalls<Call>& bad, Ignore ignore) {
  bad.vector("target", AT(target), true);
  static const std::int32_t kLarge[] = {0, 1, 8, 2};
  static const std::int64_t kNegative[] = {0, -1, 1, 2};
  bad.add("target", "got 8 at row 2", [](Call& x) { x.target = VectorOf<const std::int32_t>(kLarge, 4); });
  bad.add("target", "got -1 at row 1", [](Call& x) { x.target = VectorOf<const std::int64_t>(kNegative, 4); });
  bad.add("target", "got -100 at row 2", [ignore](Call& x) { ignore(x) = -1; });
}
ops::NormDot layer_dot(Case& c, std::int64_t width) {
  return {.zdz = c.out("zdz", 4, 1, DType::fp32),
          .udz = c.out("udz", 4, 1, DType::fp32),
          .u = c.vec(Vec(static_cast<std::size_t>(width)), DType::fp32),
          .c = c.vec(Vec(static_cast<std::size_t>(width)), DType::fp32)};
}
template <class Call>
void add_dot(BadCalls<Call>& bad) {
  bad.matrix("dot.zdz", AT(dot.zdz), false).matrix("dot.udz", AT(dot.udz), false);
  bad.vector("dot.u", AT(dot.u), false).vector("dot.c", AT(dot.c), false);
  bad.add("dot", "another mix", [](Call& x) { x.dot.zdz = {}; }).add("dot", "another mix", [](Call& x) {
    x.dot.u = {};
  });
  bad.overlap("dot.udz", AT(dot.udz), AT(dot.zdz))
      .overlap("dot.zdz", AT(dot.zdz), AT(dot.u))
      .overlap("dot.zdz", AT(dot.zdz), AT(dot.c));
}

/// Targets then have no bounds, but have to be there all the same.
void without_bounds(ops::LseFinalize& x) { x.vocabulary = 0, x.options.label_smoothing = 0; }

TEST(BadInput, OfTheLogSumExpIsNamed) {
  BadCalls<ops::GemmLse> lse("gemm_lse", ops::gemm_lse, [](Case& c) {
    c.draw_product();
    ops::GemmLse call{
        .a = c.a, .b = c.b, .norm = {.rstd = c.vec(Vec(4, 1.0), DType::fp32)}, .target = c.indices(kTargets, true)};
    call.preact = c.out("preact", 4, 8), call.logits = c.out("logits", 4, 8);
    std::tie(call.max, call.sum) = c.out_pair("max", "sum", 4, 1, DType::fp32);
    call.logit_sum = c.out("logit_sum", 4, 1, DType::fp32),
    call.target_logit = c.out_vec("target_logit", 4, DType::fp32);
    return call;
  });
  add_transform(lse), add_targets(lse, AT(ignore_index));
  lse.matrix("a", AT(a), true, false).matrix("b", AT(b), true, false).vector("norm.rstd", AT(norm.rstd), false);
  lse.matrix("preact", AT(preact), false).matrix("logits", AT(logits), false).matrix("logit_sum", AT(logit_sum), false);
  lse.matrix("max", AT(max), true).matrix("sum", AT(sum), true).vector("target_logit", AT(target_logit), true);
  lse.add("sum", "pitch of max", [](auto& x) { ++x.sum.pitch; })
      .add("first_column", "got one that begins at -1", [](auto& x) { x.first_column = -1; });
  lse.add("first_column", "vocabulary of 1000", [](auto& x) { x.vocabulary = 1000, x.first_column = kMost; });
  lse.add("first_column", "begins at 9223372036854775807", [](auto& x) { x.first_column = kMost; });
  lse.add("vocabulary", "got -1", [](auto& x) { x.vocabulary = -1; });
  lse.add("first_column", "vocabulary of 9", [](auto& x) { x.vocabulary = 9, x.first_column = 2; });
  lse.overlap("logits", AT(logits), AT(a))
      .overlap("max", AT(max), AT(norm.rstd))
      .overlap("target_logit", AT(target_logit), AT(target));
  lse.overlap("logits", AT(logits), AT(preact)).overlap("sum", AT(sum), AT(max), 0);
  lse.overlap("logit_sum", AT(logit_sum), AT(sum), 0);

  BadCalls<ops::LseFinalize> loss("lse_finalize", ops::lse_finalize, [](Case& c) {
    return ops::LseFinalize{.max = c.in(Mat(4, 2), DType::fp32),
                            .sum = c.in(Mat(4, 2, 1.0), DType::fp32),
                            .logit_sum = c.in(Mat(4, 2), DType::fp32),
                            .target = c.indices(kTargets, false),
                            .target_logit = c.vec(Vec(4), DType::fp32),
                            .vocabulary = 8,
                            .options = {.label_smoothing = 0.1},
                            .lse = c.out_vec("lse", 4, DType::fp32),
                            .loss = c.out_vec("loss", 4, DType::fp32)};
  });
  add_options(loss);
  loss.matrix("max", AT(max), true, false).matrix("sum", AT(sum), true).matrix("logit_sum", AT(logit_sum), true);
  loss.vector("target", AT(target), true)
      .vector("target_logit", AT(target_logit), true)
      .vector("lse", AT(lse), true)
      .vector("loss", AT(loss), false);
  loss.add("vocabulary", "got 0", [](auto& x) { x.vocabulary = 0; }).overlap("loss", AT(loss), AT(lse));
  loss.overlap("lse", AT(lse), AT(max)).overlap("lse", AT(lse), AT(target)).overlap("loss", AT(loss), AT(target_logit));
  loss.overlap("lse", AT(lse), AT(sum)).overlap("lse", AT(lse), AT(logit_sum));
  loss.add("target", "expected 4 values of dtype int32 or int64, got none",
           [](auto& x) { without_bounds(x), x.target = {}; });
  loss.add("lse", "overlaps the input target", [](auto& x) {
    without_bounds(x);
    x.lse.data = const_cast<void*>(x.target.data);
  });
}

TEST(Input, OfAnLseWithoutALossNeedsNoSumOfLogits) {
  const float max = 0, sum = 1;
  float lse = 7;
  ops::lse_finalize({.max = MatrixOf<const float>(&max, 1, 1),
                     .sum = MatrixOf<const float>(&sum, 1, 1),
                     .options = {.label_smoothing = 0.1},
                     .lse = VectorOf<float>(&lse, 1)});
  EXPECT_EQ(lse, 0);
}

TEST(Input, OfAScaleOfZeroIsTakenUnderACap) {
  const float a = 2, b = 3;
  float max = 7, sum = 7;
  ops::gemm_lse({.a = MatrixOf<const float>(&a, 1, 1),
                 .b = MatrixOf<const float>(&b, 1, 1),
                 .transform = {.scale = 0, .cap = 5},
                 .max = MatrixOf<float>(&max, 1, 1),
                 .sum = MatrixOf<float>(&sum, 1, 1)});
  EXPECT_EQ(max, 0);
  EXPECT_EQ(sum, 1);
}

/// Behind a LayerNorm, with the second row term where the first one goes.
void with_udz(ops::LinearCrossEntropyBackward& x) {
  static const float kZeros[8] = {};
  x.norm.mean = x.norm.rstd, x.norm.u = VectorOf<const float>(kZeros, 8);
  x.row_udz = x.row_dot;
}

TEST(BadInput, OfTheCrossEntropiesIsNamed) {
  const auto ignore = AT(options.ignore_index);
  BadCalls<ops::LinearCrossEntropy> forward("linear_cross_entropy", ops::linear_cross_entropy, [](Case& c) {
    c.draw_product();
    return ops::LinearCrossEntropy{.a = c.a,
                                   .weight = c.b,
                                   .norm = {.rstd = c.vec(Vec(4, 1.0), DType::fp32)},
                                   .target = c.indices(kTargets, true),
                                   .lse = c.out_vec("lse", 4, DType::fp32),
                                   .loss = c.out_vec("loss", 4, DType::fp32)};
  });
  add_transform(forward), add_options(forward), add_targets(forward, ignore);
  forward.add("weight", "inner dimension", [](auto& x) { --x.weight.cols; });
  forward.add("weight", "got none", [](auto& x) { x.weight = {}; });
  forward.matrix("a", AT(a), true, false)
      .matrix("weight", AT(weight), true, false)
      .vector("norm.rstd", AT(norm.rstd), false)
      .vector("lse", AT(lse), true)
      .vector("loss", AT(loss), false);
  forward.add("target", "expected 4 values of dtype int32 or int64, got none", [](auto& x) { x.target = {}; });
  forward.overlap("lse", AT(lse), AT(target))
      .overlap("loss", AT(loss), AT(lse))
      .overlap("loss", AT(loss), AT(norm.rstd));

  BadCalls<ops::LinearCrossEntropyBackward> back(
      "linear_cross_entropy_backward", ops::linear_cross_entropy_backward, [](Case& c) {
        c.draw_product();
        ops::LinearCrossEntropyBackward call{.a = c.a,
                                             .weight = c.b,
                                             .h = c.in(Mat(4, 6)),
                                             .norm = {.rstd = c.vec(Vec(4, 1.0), DType::fp32)},
                                             .target = c.indices(kTargets, true),
                                             .lse = c.vec(Vec(4), DType::fp32),
                                             .dloss = c.vec(Vec(4), DType::fp32),
                                             .chunk = 3};
        call.da = c.out("da", 4, 6), call.dweight = c.out("dweight", 8, 6, DType::fp32),
        call.row_dot = c.out_vec("row_dot", 4, DType::fp32);
        return call;
      });
  add_transform(back), add_options(back), add_targets(back, ignore);
  back.add("weight", "inner dimension", [](auto& x) { --x.weight.cols; });
  back.matrix("a", AT(a), true, false)
      .matrix("weight", AT(weight), true, false)
      .matrix("h", AT(h), false)
      .matrix("da", AT(da), true)
      .matrix("dweight", AT(dweight), false);
  back.vector("lse", AT(lse), true).vector("dloss", AT(dloss), true).vector("row_dot", AT(row_dot), false);
  back.add("chunk", "got 0", [](auto& x) { x.chunk = 0; }).add("h", "got none", [](auto& x) { x.h = {}; });
  back.add("norm", "another mix", [](auto& x) { x.norm.mean = x.norm.rstd; });
  back.add("row_udz", "no LayerNorm", [](auto& x) { x.row_udz = x.row_dot; });
  back.add("row_udz", "expected 4 values, got 3", [](auto& x) { with_udz(x), x.row_udz.size = 3; });
  back.add("row_udz", "overlaps the output row_dot", [](auto& x) { with_udz(x); });
  back.overlap("da", AT(da), AT(a))
      .overlap("dweight", AT(dweight), AT(weight))
      .overlap("row_dot", AT(row_dot), AT(lse));
  back.overlap("da", AT(da), AT(h))
      .overlap("da", AT(da), AT(norm.rstd))
      .overlap("row_dot", AT(row_dot), AT(target))
      .overlap("row_dot", AT(row_dot), AT(dloss))
      .overlap("dweight", AT(dweight), AT(da));

  BadCalls<ops::CrossEntropyBackward> gradient("cross_entropy_backward", ops::cross_entropy_backward, [](Case& c) {
    return ops::CrossEntropyBackward{.preact = c.in(Mat(4, 8)),
                                     .target = c.indices(kTargets, false),
                                     .lse = c.vec(Vec(4), DType::fp32),
                                     .dloss = c.vec(Vec(4), DType::fp32),
                                     .dz = c.out("dz", 4, 8),
                                     .dot = layer_dot(c, 8)};
  });
  add_transform(gradient), add_options(gradient), add_targets(gradient, ignore), add_dot(gradient);
  gradient.matrix("preact", AT(preact), true, false)
      .matrix("dz", AT(dz), true)
      .vector("lse", AT(lse), true)
      .vector("dloss", AT(dloss), true);
  gradient.overlap("dz", AT(dz), AT(preact))
      .overlap("dz", AT(dz), AT(lse))
      .overlap("dz", AT(dz), AT(target))
      .overlap("dz", AT(dz), AT(dloss));
}

TEST(BadInput, OfTheNormBackwardsIsNamed) {
  const auto stream = [](auto& bad) {
    bad.matrix("a", AT(a), true, false)
        .matrix("b", AT(b), true, false)
        .matrix("x", AT(x), true)
        .matrix("dx_in", AT(dx_in), false);
    bad.matrix("dx", AT(dx), true).matrix("h", AT(h), false).matrix("dweight", AT(dweight), false);
    bad.vector("rstd", AT(rstd), true).vector("weight", AT(weight), false);
    bad.overlap("dx", AT(dx), AT(a))
        .overlap("dx", AT(dx), AT(x))
        .overlap("dx", AT(dx), AT(dx_in))
        .overlap("h", AT(h), AT(dx));
    bad.overlap("dweight", AT(dweight), AT(rstd))
        .overlap("h", AT(h), AT(weight))
        .overlap("dweight", AT(dweight), AT(h));
  };
  BadCalls<ops::GemmRmsBackward> rms("gemm_rms_backward", ops::gemm_rms_backward, [](Case& c) {
    c.draw_product();
    ops::GemmRmsBackward x{.a = c.a,
                           .b = c.b,
                           .layout = coda::Layout::nt,
                           .x = c.in(Mat(4, 8)),
                           .dx_in = c.in(Mat(4, 8)),
                           .rstd = c.vec(Vec(4), DType::fp32),
                           .row_term = c.vec(Vec(4), DType::fp32),
                           .weight = c.vec(Vec(8))};
    x.dx = c.out("dx", 4, 8), x.h = c.out("h", 4, 8), x.dweight = c.out("dweight", 1, 8, DType::fp32);
    return x;
  });
  stream(rms);
  rms.vector("row_term", AT(row_term), true).overlap("dx", AT(dx), AT(row_term));

  BadCalls<ops::GemmLayerNormBackward> layer("gemm_layernorm_backward", ops::gemm_layernorm_backward, [](Case& c) {
    c.draw_product();
    ops::GemmLayerNormBackward x{.a = c.a,
                                 .b = c.b,
                                 .layout = coda::Layout::nt,
                                 .x = c.in(Mat(4, 8)),
                                 .dx_in = c.in(Mat(4, 8)),
                                 .rstd = c.vec(Vec(4), DType::fp32),
                                 .mean = c.vec(Vec(4), DType::fp32),
                                 .zdz = c.vec(Vec(4), DType::fp32),
                                 .udz = c.vec(Vec(4), DType::fp32),
                                 .weight = c.vec(Vec(8)),
                                 .bias = c.vec(Vec(8))};
    x.dx = c.out("dx", 4, 8), x.h = c.out("h", 4, 8), x.dweight = c.out("dweight", 1, 8, DType::fp32);
    x.dbias = c.out("dbias", 1, 8, DType::fp32);
    return x;
  });
  stream(layer);
  layer.vector("mean", AT(mean), true)
      .vector("zdz", AT(zdz), true)
      .vector("udz", AT(udz), true)
      .vector("bias", AT(bias), false);
  layer.matrix("dbias", AT(dbias), false)
      .overlap("dbias", AT(dbias), AT(dweight))
      .overlap("dx", AT(dx), AT(mean))
      .overlap("h", AT(h), AT(bias));
}

TEST(BadInput, OfTheActivationBackwardsIsNamed) {
  const auto all = [](auto& bad) {
    bad.matrix("a", AT(a), true, false).matrix("b", AT(b), true, false).matrix("preact", AT(preact), true);
    bad.matrix("dpreact", AT(dpreact), true).matrix("out", AT(out), false);
    bad.overlap("dpreact", AT(dpreact), AT(a))
        .overlap("dpreact", AT(dpreact), AT(preact))
        .overlap("out", AT(out), AT(dpreact));
    add_dot(bad);
  };
  const auto make = [](Case& c, auto x, std::int64_t width) {
    c.draw_product();
    x.a = c.a, x.b = c.b, x.layout = coda::Layout::nt, x.preact = c.in(Mat(4, width));
    x.dpreact = c.out("dpreact", 4, width), x.out = c.out("out", 4, 8), x.dot = layer_dot(c, width);
    return x;
  };
  BadCalls<ops::GemmGluBackward> glu("gemm_glu_backward", ops::gemm_glu_backward,
                                     [&](Case& c) { return make(c, ops::GemmGluBackward{}, 16); });
  all(glu);
  glu.add("function", "got 9", [](auto& x) { x.function = static_cast<ops::Glu>(9); })
      .overlap("out", AT(out), AT(preact));
  glu.add("out", "overlaps the input preact without being exactly it",
          [](auto& x) { x.out = Matrix(const_cast<void*>(x.preact.data), x.preact.dtype, 4, 8, x.preact.pitch); });
  BadCalls<ops::GemmActivationBackward> plain("gemm_activation_backward", ops::gemm_activation_backward,
                                              [&](Case& c) { return make(c, ops::GemmActivationBackward{}, 8); });
  all(plain);
  plain.add("activation", "got 9", [](auto& x) { x.activation = static_cast<ops::Activation>(9); });
}

TEST(BadInput, OfTheRotaryBackwardsIsNamed) {
  const auto make = [](Case& c, auto x) {
    const ConstVector table = c.vec(Vec(20), DType::fp32);
    x.dy = c.in(Mat(4, 8)), x.dz = c.out("dz", 4, 8), x.dot = layer_dot(c, 8);
    x.heads = {.q = 2,
               .k = 1,
               .v = 1,
               .head_dim = 2,
               .table = ConstMatrix(table.data, DType::fp32, 10, 2),
               .position = c.indices({0, 9, 4, 4}, true)};
    return x;
  };
  BadCalls<ops::RopeBackward> rope("rope_backward", ops::rope_backward, [&](Case& c) {
    auto x = make(c, ops::RopeBackward{});
    x.y = c.in(Mat(4, 8));
    return x;
  });
  BadCalls<ops::QkNormRopeBackward> norm("qknorm_rope_backward", ops::qknorm_rope_backward, [&](Case& c) {
    auto x = make(c, ops::QkNormRopeBackward{});
    x.preact = c.in(Mat(4, 8)), x.q_weight = c.vec(Vec(2)), x.k_weight = c.vec(Vec(2)),
    x.dweight = c.out("dweight", 1, 8, DType::fp32);
    return x;
  });
  const auto all = [](auto& bad) {
    add_dot(bad);
    bad.matrix("dy", AT(dy), true, false)
        .matrix("dz", AT(dz), true)
        .matrix("heads.table", AT(heads.table), true, false);
    bad.vector("heads.position", AT(heads.position), false)
        .overlap("dz", AT(dz), AT(dy))
        .overlap("dz", AT(dz), AT(heads.table));
    bad.add("heads.position", "got 9 at row 1", [](auto& x) { x.heads.table.rows = 9; })
        .add("heads", "as many as N", [](auto& x) { x.heads.q = 3; });
    bad.overlap("dz", AT(dz), AT(heads.position));
  };
  all(rope), all(norm);
  rope.matrix("y", AT(y), true).overlap("dz", AT(dz), AT(y));
  rope.add("dz", "overlaps the input y",
           [](auto& x) { x.dz = Matrix(const_cast<void*>(x.y.data), x.y.dtype, 4, 8, x.y.pitch); });
  norm.matrix("preact", AT(preact), true).overlap("dz", AT(dz), AT(preact)).matrix("dweight", AT(dweight), false);
  norm.vector("q_weight", AT(q_weight), true).vector("k_weight", AT(k_weight), true);
  norm.add("eps", "got -1", [](auto& x) { x.eps = -1; });
  norm.overlap("dz", AT(dz), AT(q_weight)).overlap("dweight", AT(dweight), AT(k_weight), 0);
}

/// Products of ones, of which one operand is a single row: of the result, of what it is multiplied with, or of K.
template <class T>
void expect_any_pitch_of_one_row(std::int64_t pitch) {
  constexpr std::int64_t kK = 90, kMany = 84;
  std::vector<T> lone(kK, T(1)), many(kMany * kK, T(1));
  const Matrix single(lone.data(), dtype_of<T>, 1, kK, pitch);
  const MatrixOf<const T> rows(many.data(), kMany, kK);
  const auto expect = [&](const ops::Gemm& product, std::int64_t m, std::int64_t n, float value) {
    std::vector<T> sums(static_cast<std::size_t>(m * n), T(0));
    ops::Gemm call = product;
    call.out = MatrixOf<T>(sums.data(), m, n);
    ops::gemm(call);
    for (const T& sum : sums) {
      ASSERT_EQ(static_cast<float>(sum), value)
          << name_of(dtype_of<T>) << " " << name_of(call.layout) << ", M " << m << ", N " << n << ", pitch " << pitch;
    }
  };
  expect({.a = rows, .b = single, .layout = coda::Layout::nt}, kMany, 1, kK);
  expect({.a = single, .b = rows, .layout = coda::Layout::nt}, 1, kMany, kK);
  const MatrixOf<const T> columns(many.data(), kK, kMany), column(many.data(), kMany, 1);
  expect({.a = single, .b = columns, .layout = coda::Layout::nn}, 1, kMany, kK);
  expect({.a = column, .b = single, .layout = coda::Layout::nn}, kMany, kK, 1);
  expect({.a = single, .b = single, .layout = coda::Layout::tn}, kK, kK, 1);
}

TEST(Overlap, TakesAnyPitchOfOneRow) {
  std::vector<float> a(2, 1), b(4 * 2, 1), out(8, 3);
  const MatrixOf<const float> a_(a.data(), 1, 2), b_(b.data(), 4, 2);
  const auto row = [&](std::int64_t first, std::int64_t pitch) {
    return Matrix(out.data() + first, DType::fp32, 1, 4, pitch);
  };
  ops::gemm({.a = a_, .b = b_, .beta = 1, .c = row(0, 9), .out = row(0, 4)});
  EXPECT_EQ(out, (std::vector<float>{5, 5, 5, 5, 3, 3, 3, 3}));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_NO_THROW(ops::gemm({.a = a_, .b = b_, .beta = 1, .c = row(0, most), .out = row(0, most / 3)}));
  for (const std::int64_t pitch : {std::int64_t{0}, std::int64_t{4}, std::int64_t{9}, most}) {
    EXPECT_THROW(ops::gemm({.a = a_, .b = b_, .beta = 1, .c = row(1, 9), .out = row(0, pitch)}), Error);
  }
  for (const std::int64_t pitch : {std::int64_t{-5}, std::int64_t{0}, std::int64_t{7}, most}) {
    expect_any_pitch_of_one_row<bf16>(pitch);
    expect_any_pitch_of_one_row<fp16>(pitch);
    expect_any_pitch_of_one_row<float>(pitch);
    expect_any_pitch_of_one_row<double>(pitch);
  }
  // One row between those of a matrix, and across them.
  std::vector<float> wide(4 * 8, 1), four(4, 1);
  const MatrixOf<const float> rows(wide.data(), 4, 2, 8);
  const auto into = [&](std::int64_t first) {
    ops::gemm({.a = MatrixOf<const float>(four.data(), 1, 2),
               .b = rows,
               .out = Matrix(wide.data() + first, DType::fp32, 1, 4, 1)});
  };
  EXPECT_NO_THROW(into(2));
  EXPECT_EQ(wide[2], 2);
  EXPECT_THROW(into(1), Error);
  EXPECT_THROW(into(6), Error);
  // And one that is read, between those of a matrix that is written.
  std::vector<float> a2(2 * 2, 1), b3(3 * 2, 1);
  const auto beside = [&](std::int64_t first) {
    ops::gemm({.a = MatrixOf<const float>(a2.data(), 2, 2),
               .b = MatrixOf<const float>(b3.data(), 3, 2),
               .bias = VectorOf<const float>(wide.data() + first, 3),
               .out = Matrix(wide.data() + 8, DType::fp32, 2, 3, 16)});
  };
  EXPECT_NO_THROW(beside(8 + 3));
  EXPECT_NO_THROW(beside(8 + 13));
  EXPECT_THROW(beside(8 + 2), Error);
  EXPECT_THROW(beside(8 + 14), Error);

  const std::vector<float> angles{1, 0};  // as many rows as the product has, and no positions
  const ops::Heads heads{.q = 2, .head_dim = 2, .table = ConstMatrix(angles.data(), DType::fp32, 1, 2, 7)};
  EXPECT_NO_THROW(ops::gemm_norm_rope({.a = a_, .b = b_, .heads = heads, .out = row(0, 4)}));
  EXPECT_EQ(out[3], 2);

  std::vector<float> mean(1), m2(1), max(1), sum(1), x(4), residual(4, 1);
  const auto one = [](std::vector<float>& v, std::int64_t pitch) { return Matrix(v.data(), DType::fp32, 1, 1, pitch); };
  EXPECT_NO_THROW(ops::gemm_residual({.a = a_,
                                      .b = b_,
                                      .residual = MatrixOf<const float>(residual.data(), 1, 4),
                                      .x = MatrixOf<float>(x.data(), 1, 4),
                                      .mean = one(mean, 1),
                                      .m2 = one(m2, 4)}));
  EXPECT_EQ(mean[0], 3);
  EXPECT_NO_THROW(ops::gemm_lse({.a = a_, .b = b_, .max = one(max, 7), .sum = one(sum, 2)}));
  EXPECT_EQ(max[0], 2);
}

TEST(BadInput, OfABackendWithoutTilesIsNamedOrHasNone) {
  const auto none = static_cast<ops::Backend>(9);
  EXPECT_EQ(ops::tiles_n(1000, none), 0);
  EXPECT_EQ(ops::tiles_m(1000, none), 0);
  try {
    ops::head_tiles_n(1000, 64, none);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()), "head_tiles_n: backend: expected cpu or sm90, got 9");
  }
}

TEST(BadInput, OfHeadTilesIsNamed) {
  for (const std::int64_t head_dim : {0, -4}) {
    try {
      ops::head_tiles_n(16, head_dim);
      ADD_FAILURE() << head_dim;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()),
                "head_tiles_n: head_dim: expected at least 1 column, got " + std::to_string(head_dim));
    }
  }
}

TEST(Overlap, AllowsColumnSlicesOfOneBuffer) {
  // Two outputs side by side in the rows of one buffer: their ranges interleave but no byte is shared.
  std::vector<float> a(4 * 2, 1), b(3 * 2, 1), out(4 * 8, 7);
  const auto slice = [&](std::int64_t first) { return Matrix(out.data() + first, DType::fp32, 4, 3, 8); };
  const MatrixOf<const float> a_(a.data(), 4, 2), b_(b.data(), 3, 2);
  EXPECT_NO_THROW(ops::gemm({.a = a_, .b = b_, .preact = slice(0), .out = slice(4)}));
  EXPECT_EQ(out[0], 2);
  EXPECT_EQ(out[3], 7);
  EXPECT_EQ(out[4 + 2 + 8 * 3], 2);
  EXPECT_THROW(ops::gemm({.a = a_, .b = b_, .preact = slice(0), .out = slice(2)}), Error);
  EXPECT_THROW(ops::gemm({.a = a_, .b = b_, .preact = slice(4), .out = slice(3)}), Error);
  EXPECT_THROW(ops::gemm({.a = a_, .b = b_, .preact = slice(0), .out = slice(6)}), Error);  // wraps into the next row
  EXPECT_NO_THROW(ops::gemm({.a = a_, .b = b_, .preact = slice(0), .out = slice(3)}));
  EXPECT_NO_THROW(ops::gemm({.a = a_, .b = b_, .preact = slice(3), .out = slice(0)}));
}

TEST(Overlap, InPlaceIsTheSameRowsOfTheSameType) {
  std::vector<float> a(4 * 2, 1), b(3 * 2, 1), out(4 * 8, 7);
  const auto slice = [&](std::int64_t pitch) { return Matrix(out.data(), DType::fp32, 4, 3, pitch); };
  const MatrixOf<const float> a_(a.data(), 4, 2), b_(b.data(), 3, 2);
  EXPECT_NO_THROW(ops::gemm({.a = a_, .b = b_, .beta = 1, .c = slice(8), .out = slice(8)}));
  EXPECT_THROW(ops::gemm({.a = a_, .b = b_, .beta = 1, .c = slice(8), .out = slice(7)}), Error);
  // As many bytes of another type.
  const std::vector<std::int32_t> target{0, 1};
  const std::vector<float> lse(2), dloss(2);
  std::vector<bf16> dz(4);
  const auto backward = [&](const Matrix& zdz) {
    ops::cross_entropy_backward({.preact = Matrix(out.data(), DType::bf16, 2, 2),
                                 .target = VectorOf<const std::int32_t>(target.data(), 2),
                                 .lse = VectorOf<const float>(lse.data(), 2),
                                 .dloss = VectorOf<const float>(dloss.data(), 2),
                                 .dz = MatrixOf<bf16>(dz.data(), 2, 2),
                                 .dot = {.zdz = zdz}});
  };
  EXPECT_NO_THROW(backward(Matrix(out.data() + 2, DType::fp32, 2, 1)));
  EXPECT_THROW(backward(Matrix(out.data(), DType::fp32, 2, 1)), Error);
}

TEST(Overlap, WhatIsEmptyOverlapsNothing) {
  std::vector<float> out(4 * 8, 7);
  const MatrixOf<float> whole(out.data(), 4, 8);
  EXPECT_NO_THROW(ops::gemm({.a = MatrixOf<const float>(out.data(), 4, 0, 8),
                             .b = MatrixOf<const float>(out.data(), 8, 0, 1),
                             .out = whole}));
  EXPECT_EQ(out[31], 0);
  EXPECT_NO_THROW(ops::gemm({.a = MatrixOf<const float>(nullptr, 0, 4),
                             .b = MatrixOf<const float>(out.data(), 8, 4),
                             .beta = 1,
                             .out = MatrixOf<float>(nullptr, 0, 8)}))
      << "no c is needed for nothing";
  const MatrixOf<const float> none(nullptr, 0, 8);
  const VectorOf<const std::int64_t> no_token(reinterpret_cast<const std::int64_t*>(out.data() + 2), 0);
  EXPECT_NO_THROW(ops::embedding_backward({.dx = none, .token = no_token, .dtable = whole}));
}

}  // namespace
}  // namespace coda::test
