// The reference's forward functions against values worked out by hand and against the textbook form of what a program
// rewrites; its backward functions against finite differences of its own forward functions, in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/reference/backward.h"
#include "tests/reference/forward.h"
#include "tests/reference/loss.h"
#include "tests/support/random.h"

namespace coda::reference {
namespace {

using test::Random;

constexpr double kInf = std::numeric_limits<double>::infinity();

Mat draw(Random& random, std::int64_t rows, std::int64_t cols) {
  return test::normal_mat(random, rows, cols, 1.0, DType::fp64);
}
Vec draw(Random& random, std::int64_t n) { return draw(random, n, 1).v; }

double dot(const Mat& x, const Mat& y) {
  double sum = 0.0;
  for (std::size_t i = 0; i < x.v.size(); ++i) sum += x.v[i] * y.v[i];
  return sum;
}

void expect_near(const std::string& name, const Mat& got, const Mat& expected, double tolerance) {
  ASSERT_EQ(got.rows, expected.rows) << name;
  ASSERT_EQ(got.cols, expected.cols) << name;
  double largest = 1.0;
  for (const double x : expected.v) largest = std::max(largest, std::fabs(x));
  for (std::int64_t m = 0; m < got.rows; ++m)
    for (std::int64_t n = 0; n < got.cols; ++n)
      ASSERT_NEAR(got(m, n), expected(m, n), tolerance * largest) << name << " at row " << m << ", column " << n;
}
void expect_near(const std::string& name, const Vec& got, const Vec& expected, double tolerance) {
  expect_near(name, column(got), column(expected), tolerance);
}

/// Every element of `gradient` against the five-point difference of f, whose error is of the order h^4.
void expect_gradient(const std::string& name, const Mat& gradient, Mat x, const std::function<double(const Mat&)>& f) {
  constexpr double h = 1e-3;
  Mat numeric(x.rows, x.cols);
  for (std::size_t i = 0; i < x.v.size(); ++i) {
    const double at = x.v[i];
    const auto shifted = [&](double by) {
      x.v[i] = at + by;
      return f(x);
    };
    const double wide = shifted(2 * h) - shifted(-2 * h), near = shifted(h) - shifted(-h);
    x.v[i] = at;
    numeric.v[i] = (8.0 * near - wide) / (12.0 * h);
  }
  expect_near(name, gradient, numeric, 2e-9);
}
void expect_gradient(const std::string& name, const Vec& gradient, const Vec& x,
                     const std::function<double(const Vec&)>& f) {
  expect_gradient(name, column(gradient), column(x), [&](const Mat& y) { return f(y.v); });
}

// ---- rounding

TEST(Round, ExactChangesNothingAndTypesHoldTheirValues) {
  const double x = 1.0 / 3.0;
  EXPECT_EQ(Round::exact()(x), x);
  EXPECT_EQ(Round::to(DType::fp64)(x), x);
  EXPECT_EQ(Round::to(DType::fp32)(x), static_cast<double>(1.0f / 3.0f));
  EXPECT_EQ(Round::to(DType::bf16)(x), 0.333984375);
  EXPECT_EQ(Round::to(DType::fp16)(x), 0.333251953125);
  EXPECT_EQ(Round::to(DType::fp16)(1e6), kInf);
  EXPECT_EQ(Round::to(DType::fp16)(65519), 65504);
  EXPECT_EQ(Round::to(DType::fp16)(-65520), -kInf);
  // Once: fp32 would make the middle of two neighbours of it first.
  EXPECT_EQ(Round::to(DType::bf16)(1 + 0x1p-8 + 0x1p-40), 1 + 0x1p-7);
  EXPECT_EQ(Round::to(DType::fp16)(1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
  EXPECT_EQ(Round::to(DType::fp16)(0x1p-25), 0);
  EXPECT_EQ(Round::to(DType::fp16)(0x3p-25), 0x1p-23);
  EXPECT_EQ(Round::to(DType::bf16)(0x1.8p-133), 0x1p-132);
  EXPECT_EQ(Round::to(DType::bf16).stat(x), static_cast<double>(1.0f / 3.0f));
  EXPECT_THROW(Round::to(DType::int32), std::logic_error);
}

TEST(Round, TheChainRoundsEveryStepAndStaysClose) {
  Random random(11);
  for (const DType type : {DType::bf16, DType::fp16, DType::fp32}) {
    const Round r = Round::to(type);
    const auto p = test::normal_problem(random, Layout::abt, 9, 12, 40, 0.5, type);
    const NormScale s = NormScale::rms(test::uniform_vec(random, 9, 0.5, 1.5, DType::fp32));
    const auto exact = gemm_norm_gated(p.operands(), s, Activation::silu);
    const auto chain = gemm_norm_gated(p.operands(), s, Activation::silu, nullptr, r);
    const double eps = type == DType::bf16 ? 0x1p-7 : type == DType::fp16 ? 0x1p-10 : 0x1p-20;
    expect_near("Y", chain.y, exact.y, 4 * eps);
    for (const double y : chain.y.v) EXPECT_EQ(r(y), y);
    EXPECT_NE(chain.y.v, exact.y.v);
    // Rounding once at the end is not the chain.
    Mat once = exact.y;
    for (double& y : once.v) y = r(y);
    EXPECT_NE(chain.y.v, once.v) << coda::name_of(type);
  }
}

// ---- forward

TEST(Forward, ActivationsHaveTheirKnownValues) {
  EXPECT_DOUBLE_EQ(activate(Activation::identity, -1.5), -1.5);
  EXPECT_DOUBLE_EQ(activate(Activation::silu, 1.0), 0.73105857863000488);
  EXPECT_DOUBLE_EQ(activate(Activation::gelu, 1.0), 0.84134474606854293);
  EXPECT_NEAR(activate(Activation::gelu_tanh, 1.0), 0.84119199060827677, 1e-15);
  EXPECT_EQ(activate(Activation::relu, -2.0), 0.0);
  EXPECT_EQ(activate(Activation::relu2, 3.0), 9.0);
  for (const Activation f : kActivations) {
    EXPECT_TRUE(std::isnan(activate(f, std::numeric_limits<double>::quiet_NaN()))) << name_of(f);
    EXPECT_NEAR(activate(f, -1e3), f == Activation::identity ? -1e3 : 0.0, 0.0) << name_of(f);
  }
}

TEST(Forward, LayoutsGiveTheSameProduct) {
  const Mat a(2, 3, {1, 2, 3, 4, 5, 6}), b(2, 3, {1, 0, -1, 2, 1, 0});
  const Mat expected(2, 2, {-2, 4, -2, 13});
  EXPECT_EQ(product({a, b, Layout::abt}).v, expected.v);
  EXPECT_EQ(product({a, transposed(b), Layout::ab}).v, expected.v);
  EXPECT_EQ(product({transposed(a), transposed(b), Layout::atb}).v, expected.v);
  EXPECT_EQ(product({Mat(2, 0), Mat(3, 0)}).v, Mat(2, 3).v);
  EXPECT_EQ(product({Mat(0, 4), Mat(3, 4)}).rows, 0);
  EXPECT_THROW(product({a, b, Layout::ab}), std::logic_error);
}

TEST(Forward, GemmAppliesEveryOptionInOrder) {
  const Mat a(1, 2, {1, 2}), b(2, 2, {1, 1, -1, -1}), c(1, 2, {10, 20});  // acc = (3, -3)
  const Vec bias{1, -100};
  const auto y = gemm({a, b}, {.alpha = 2, .beta = 0.5, .c = &c, .bias = &bias, .activation = Activation::relu});
  EXPECT_EQ(y.z.v, (Vec{11, 4}));
  EXPECT_EQ(y.y.v, (Vec{12, 0}));
  const Mat nan(1, 2, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(gemm({a, b}, {.beta = 0, .c = &nan}).y.v, (Vec{3, -3}));
}

TEST(Forward, GatedTakesAdjacentPairs) {
  const Mat z(1, 4, {2, 3, -1, 5});
  EXPECT_EQ(gated(z, Activation::relu).v, (Vec{6, 0}));
  EXPECT_DOUBLE_EQ(gated(z, Activation::silu).v[1], -5.0 / (1.0 + std::exp(1.0)));
  EXPECT_THROW(gated(Mat(1, 3), Activation::silu), std::logic_error);
}

TEST(Forward, ResidualNormSumsAndFinalizersGiveTheMoments) {
  Random random(12);
  const Mat a = draw(random, 5, 7), b = draw(random, 11, 7), x = draw(random, 5, 11);
  const Vec w = draw(random, 11), bias = draw(random, 11);
  const auto y = gemm_residual_norm({a, b}, x, w, 4, &bias);
  EXPECT_EQ(y.sum_squares.cols, 3);
  EXPECT_DOUBLE_EQ(y.x(4, 10), product({a, b})(4, 10) + bias[10] + x(4, 10));
  EXPECT_DOUBLE_EQ(y.h(4, 10), y.x(4, 10) * w[10]);
  EXPECT_DOUBLE_EQ(y.sum_squares(2, 2), y.x(2, 8) * y.x(2, 8) + y.x(2, 9) * y.x(2, 9) + y.x(2, 10) * y.x(2, 10));
  const Vec rstd = rms_finalize(y.sum_squares, 11, 1e-5);
  EXPECT_DOUBLE_EQ(rstd[1], 1.0 / std::sqrt(row_dots(y.x, y.x)[1] / 11 + 1e-5));
  const Moments direct = layernorm_moments(y.x, 1e-5), plain = layernorm_finalize(y.sum, y.sum_squares, 11, 1e-5),
                centered = layernorm_finalize_centered(y.sum, y.centered_squares, 11, 4, 1e-5);
  expect_near("mean", plain.mean, direct.mean, 1e-14);
  expect_near("rstd", plain.rstd, direct.rstd, 1e-13);
  expect_near("mean", centered.mean, direct.mean, 1e-14);
  expect_near("rstd", centered.rstd, direct.rstd, 1e-13);
}

TEST(Forward, NormScaledProductsAreNormThenLinear) {
  Random random(13);
  const Mat x = draw(random, 4, 9), weight = draw(random, 6, 9);
  const Vec w = draw(random, 9), b = draw(random, 9);
  const Vec rstd = rms_finalize(block_sums(4, 9, 9, {}, [&](auto m, auto n) { return x(m, n) * x(m, n); }), 9, 1e-6);
  const Moments s = layernorm_moments(x, 1e-6);
  Mat h = x, rms = x, layer = x;
  for (std::int64_t m = 0; m < 4; ++m)
    for (std::int64_t n = 0; n < 9; ++n) {
      h(m, n) = x(m, n) * w[n];
      rms(m, n) = x(m, n) * rstd[m] * w[n];
      layer(m, n) = (x(m, n) - s.mean[m]) * s.rstd[m] * w[n] + b[n];
    }
  expect_near("rms", gemm_norm({h, weight}, NormScale::rms(rstd)), product({rms, weight}), 1e-13);
  expect_near("layer", gemm_norm({h, weight}, NormScale::layer(s, layernorm_fold(weight, w, b))),
              product({layer, weight}), 1e-13);
  expect_near("none", gemm_norm({h, weight}, NormScale::none()), product({h, weight}), 0.0);
}

TEST(Forward, RopeRotatesQueryAndKeyPairsByTheirAngle) {
  const Heads heads{.q = 2, .k = 1, .v = 1, .dim = 4};
  Random random(14);
  const Mat z = draw(random, 3, heads.width());
  const Positions position{0, 3, 131071};
  const RopeTable table = rope_table(131072, 4, 100.0);
  const Mat y = rope(z, table, position, heads);
  for (std::int64_t n = 0; n < heads.width(); ++n) {
    EXPECT_EQ(y(0, n), z(0, n));  // position 0
    if (n >= heads.rotated()) {
      EXPECT_EQ(y(2, n), z(2, n));
    }
  }
  // Second pair of the second q head: angle 3 * 100^(-2/4) = 0.3.
  EXPECT_NEAR(y(1, 6), z(1, 6) * std::cos(0.3) - z(1, 7) * std::sin(0.3), 1e-14);
  EXPECT_NEAR(y(1, 7), z(1, 6) * std::sin(0.3) + z(1, 7) * std::cos(0.3), 1e-14);
  // A key head restarts at the first pair, whose angle is the position itself.
  EXPECT_NEAR(y(2, 8), z(2, 8) * std::cos(131071.0) - z(2, 9) * std::sin(131071.0), 1e-14);
  EXPECT_THROW(rope(z, table, {0, 1, 131072}, heads), std::logic_error);
}

TEST(Forward, QkNormGivesEachQueryAndKeyHeadUnitRms) {
  const Heads heads{.q = 2, .k = 1, .v = 2, .dim = 6};
  Random random(15);
  const Mat z = draw(random, 3, heads.width());
  const QkNorm norm{Vec(6, 1.0), Vec(6, 2.0), 0.0};
  const Mat y = qk_norm(z, norm, heads);
  for (std::int64_t h = 0; h < 3; ++h) {
    double squares = 0.0;
    for (std::int64_t i = 0; i < 6; ++i) squares += y(1, h * 6 + i) * y(1, h * 6 + i);
    EXPECT_NEAR(squares / 6, h < 2 ? 1.0 : 4.0, 1e-13) << h;
  }
  EXPECT_EQ(y(2, 20), z(2, 20));
}

TEST(Forward, LossIsThatOfTheTextbookForEveryBlockWidth) {
  Random random(16);
  const Mat z = draw(random, 4, 10);
  const Targets targets{3, -1, 9, 0};
  const LossOptions o{.scale = 0.7, .cap = 2.0, .smoothing = 0.1, .z_loss = 1e-2, .ignore_index = -1};
  for (const std::int64_t block : {1, 3, 10, 64}) {
    const Mat l = logits(z, o);
    EXPECT_DOUBLE_EQ(l(0, 0), 2.0 * std::tanh(0.7 * z(0, 0) / 2.0));
    const Loss got = lse_finalize(lse_partials(l, targets, block, o), targets, 10, o);
    for (std::int64_t m = 0; m < 4; ++m) {
      double sum = 0.0, nll = 0.0;
      for (std::int64_t n = 0; n < 10; ++n) sum += std::exp(l(m, n));
      const double lse = std::log(sum);
      EXPECT_NEAR(got.lse[m], lse, 1e-14);
      for (std::int64_t n = 0; n < 10; ++n) nll -= ((n == targets[m] ? 0.9 : 0.0) + 0.01) * (l(m, n) - lse);
      EXPECT_NEAR(got.loss[m], m == 1 ? 0.0 : nll + 1e-2 * lse * lse, 1e-14);
    }
    EXPECT_NEAR(mean_loss(got.loss, targets, o), (got.loss[0] + got.loss[2] + got.loss[3]) / 3, 1e-15);
  }
  EXPECT_TRUE(std::isnan(mean_loss({0.0}, {-1}, o)));
}

TEST(Forward, PartialsAreTakenAboutEachBlocksLargestLogit) {
  const Mat l(1, 5, {-900.0, -901.0, 900.0, 899.0, -3.0});
  const LsePartials p = lse_partials(l, {3}, 2);
  EXPECT_EQ(p.max.v, (Vec{-900.0, 900.0, -3.0}));
  EXPECT_EQ(p.sum.v, (Vec{-1801.0, 1799.0, -3.0}));
  EXPECT_DOUBLE_EQ(p.sum_exp(0, 0), 1.0 + std::exp(-1.0));
  EXPECT_DOUBLE_EQ(p.sum_exp(0, 1), 1.0 + std::exp(-1.0));
  EXPECT_EQ(p.sum_exp(0, 2), 1.0);
  EXPECT_EQ(p.target[0], 899.0);
  EXPECT_DOUBLE_EQ(lse_finalize(p, {3}, 5).lse[0], 900.0 + std::log1p(std::exp(-1.0)));
}

TEST(Forward, InfiniteLogitsGiveTheLossThatTorchGives) {
  const Mat l(4, 4,
              {-kInf, -kInf, -kInf, -kInf,  // nothing is possible
               -kInf, -kInf, 2.0, -kInf,    // one finite logit
               1.0, -kInf, -kInf, 0.0,      // a masked block
               -kInf, 0.0, kInf, 0.0});
  const Loss got = lse_finalize(lse_partials(l, {0, 2, 0, 2}, 2), {0, 2, 0, 2}, 4);
  EXPECT_EQ(got.lse[0], -kInf);
  EXPECT_TRUE(std::isnan(got.loss[0]));
  EXPECT_EQ(got.lse[1], 2.0);
  EXPECT_EQ(got.loss[1], 0.0);
  EXPECT_DOUBLE_EQ(got.lse[2], std::log(std::exp(1.0) + 1.0));
  EXPECT_EQ(got.lse[3], kInf);
  const auto g = cross_entropy_backward(l, got.lse, {0, 2, 0, 2}, Vec(4, 1.0));
  EXPECT_EQ(g.zdz[1], 0.0);  // not NaN: -inf logits have no gradient
  EXPECT_TRUE(std::isfinite(g.zdz[2]));
}

// ---- backward against finite differences

TEST(Backward, SlopesOfActivations) {
  Vec x;
  for (double at = -9.03; at < 9.0; at += 0.11) x.push_back(at);
  for (const Activation f : kActivations) {
    Vec slope(x.size());
    std::transform(x.begin(), x.end(), slope.begin(), [&](double at) { return activate_slope(f, at); });
    expect_gradient(name_of(f), slope, x, [&](const Vec& at) {
      double sum = 0.0;
      for (const double e : at) sum += activate(f, e);
      return sum;
    });
    EXPECT_TRUE(std::isfinite(activate_slope(f, 1e3)) && std::isfinite(activate_slope(f, -1e3))) << name_of(f);
  }
  EXPECT_EQ(activate_slope(Activation::relu, 0.0), 0.0);
}

class ActivationBackward : public testing::TestWithParam<std::tuple<Activation, bool>> {};

TEST_P(ActivationBackward, PlainThroughTheNextProduct) {
  const auto [f, with_bias] = GetParam();
  Random random(21);
  const Mat z = draw(random, 5, 6), weight = draw(random, 4, 6), g = draw(random, 5, 4);
  const Vec bias_values = draw(random, 6);
  const Vec* bias = with_bias ? &bias_values : nullptr;
  const auto forward = [&, f = f](const Mat& at) { return activated(add_row_vector(at, bias, {}), f); };
  const auto back = gemm_activation_backward({g, weight, Layout::ab}, z, f, 4, bias);
  expect_gradient("dZ", back.dz, z, [&](const Mat& at) { return dot(g, product({forward(at), weight})); });
  EXPECT_EQ(back.y.v, forward(z).v);
  EXPECT_EQ(back.zdz.cols, 2);
  expect_near("zdz", row_sums(back.zdz), row_dots(z, back.dz), 1e-13);
}

TEST_P(ActivationBackward, GatedThroughTheNextProduct) {
  const auto [f, with_bias] = GetParam();
  Random random(22);
  const Mat z = draw(random, 5, 12), weight = draw(random, 4, 6), g = draw(random, 5, 4);
  const Vec bias_values = draw(random, 12);
  const Vec* bias = with_bias ? &bias_values : nullptr;
  const auto forward = [&, f = f](const Mat& at) { return gated(add_row_vector(at, bias, {}), f); };
  const auto back = gemm_gated_backward({g, weight, Layout::ab}, z, f, 4, bias);
  expect_gradient("dZ", back.dz, z, [&](const Mat& at) { return dot(g, product({forward(at), weight})); });
  EXPECT_EQ(back.y.v, forward(z).v);
  EXPECT_EQ(back.zdz.cols, 2);
  EXPECT_NEAR(back.zdz(3, 1),
              z(3, 8) * back.dz(3, 8) + z(3, 9) * back.dz(3, 9) + z(3, 10) * back.dz(3, 10) + z(3, 11) * back.dz(3, 11),
              1e-14);
  expect_near("zdz", row_sums(back.zdz), row_dots(z, back.dz), 1e-13);
}

INSTANTIATE_TEST_SUITE_P(All, ActivationBackward, testing::Combine(testing::ValuesIn(kActivations), testing::Bool()),
                         [](const auto& param) {
                           return std::string(name_of(std::get<0>(param.param))) +
                                  (std::get<1>(param.param) ? "_bias" : "");
                         });

TEST(Backward, RmsNormThroughTheNextProductWithTheRowTermFromZdz) {
  Random random(23);
  const Mat x = draw(random, 5, 8), weight = draw(random, 6, 8), dz = draw(random, 5, 6), dx_in = draw(random, 5, 8);
  const Vec w = draw(random, 8);
  constexpr double eps = 1e-2;  // large, so that a wrong place of eps shows
  const auto rstd_of = [&](const Mat& at) {
    return rms_finalize(block_sums(5, 8, 3, {}, [&](auto m, auto n) { return at(m, n) * at(m, n); }), 8, eps);
  };
  const auto z_of = [&](const Mat& at, const Vec& weight_of_norm) {
    Mat h = at;
    for (std::int64_t m = 0; m < 5; ++m)
      for (std::int64_t n = 0; n < 8; ++n) h(m, n) *= weight_of_norm[n];
    return gemm_norm({h, weight}, NormScale::rms(rstd_of(at)));
  };
  const Vec rstd = rstd_of(x);
  Vec c = row_dots(z_of(x, w), dz);
  for (double& e : c) e /= 8;
  expect_near("c", c, rms_row_term(product({dz, weight, Layout::ab}), x, rstd, w), 1e-13);

  const auto g = gemm_rms_backward({dz, weight, Layout::ab}, x, rstd, w, &dx_in, c, 2);
  expect_gradient("dX", g.dx, x, [&](const Mat& at) { return dot(dz, z_of(at, w)) + dot(dx_in, at); });
  EXPECT_EQ(g.dw.rows, 3);
  expect_gradient("dw", column_sums(g.dw), w, [&](const Vec& at) { return dot(dz, z_of(x, at)); });
  // The recomputed operand of the weight gradient: dW = dZ^T * H.
  expect_gradient("dW", product({dz, g.h, Layout::atb}), weight,
                  [&](const Mat& at) { return dot(dz, product({g.h, at})); });
  expect_near("Z from H", product({g.h, weight}), z_of(x, w), 1e-13);
  const auto without = gemm_rms_backward({dz, weight, Layout::ab}, x, rstd, w, nullptr, c, 2);
  expect_gradient("dX alone", without.dx, x, [&](const Mat& at) { return dot(dz, z_of(at, w)); });
}

TEST(Backward, LayerNormThroughTheNextProductWithTheRowTermsFromSums) {
  Random random(24);
  const Mat x = draw(random, 5, 8), weight = draw(random, 6, 8), dz = draw(random, 5, 6), dx_in = draw(random, 5, 8);
  const Vec w = draw(random, 8);
  constexpr double eps = 1e-2;
  for (const bool with_bias : {true, false}) {
    const Vec b = with_bias ? draw(random, 8) : Vec{};
    const auto z_of = [&](const Mat& at, const Vec& norm_w, const Vec& norm_b) {
      Mat h = at;
      for (std::int64_t m = 0; m < 5; ++m)
        for (std::int64_t n = 0; n < 8; ++n) h(m, n) *= norm_w[n];
      return gemm_norm({h, weight},
                       NormScale::layer(layernorm_moments(at, eps), layernorm_fold(weight, norm_w, norm_b)));
    };
    const Moments s = layernorm_moments(x, eps);
    const Mat dh = product({dz, weight, Layout::ab});
    const auto terms = layernorm_row_terms(dh, x, s, w);
    const auto fold = layernorm_fold(weight, w, b);
    const Mat z = z_of(x, w, b);
    for (std::int64_t m = 0; m < 5; ++m) {
      double c1 = 0.0, c2 = 0.0;
      for (std::int64_t j = 0; j < 6; ++j) c1 += dz(m, j) * fold.u[j], c2 += dz(m, j) * (z(m, j) - fold.c[j]);
      EXPECT_NEAR(terms.c1[m], c1 / 8, 1e-13);
      EXPECT_NEAR(terms.c2[m], c2 / 8, 1e-13);
    }
    const auto g = gemm_layernorm_backward({dz, weight, Layout::ab}, x, s, w, b, &dx_in, terms, 2);
    expect_gradient("dX", g.dx, x, [&](const Mat& at) { return dot(dz, z_of(at, w, b)) + dot(dx_in, at); });
    expect_gradient("dw", column_sums(g.dw), w, [&](const Vec& at) { return dot(dz, z_of(x, at, b)); });
    if (with_bias) expect_gradient("db", column_sums(g.db), b, [&](const Vec& at) { return dot(dz, z_of(x, w, at)); });
    expect_near("Z from H", product({g.h, weight}), z, 1e-13);
  }
}

class RopeBackward : public testing::TestWithParam<Heads> {};

TEST_P(RopeBackward, RotatesBackAndKeepsTheInnerProduct) {
  const Heads heads = GetParam();
  Random random(25);
  const Mat z = draw(random, 3, heads.width()), dy = draw(random, 3, heads.width());
  const Positions position{5, 0, 9};
  const RopeTable table = rope_table(10, heads.dim);
  const auto g = rope_backward(dy, rope(z, table, position, heads), table, position, heads);
  expect_gradient("dZ", g.dz, z, [&](const Mat& at) { return dot(dy, rope(at, table, position, heads)); });
  expect_near("zdz", g.zdz, row_dots(z, g.dz), 1e-13);
}

TEST_P(RopeBackward, ThroughTheHeadNormWithItsWeights) {
  const Heads heads = GetParam();
  Random random(26);
  const Mat z = draw(random, 3, heads.width()), dy = draw(random, 3, heads.width());
  const Vec bias = draw(random, heads.width());
  const Positions position{5, 0, 9};
  const RopeTable table = rope_table(10, heads.dim);
  const QkNorm norm{draw(random, heads.dim), draw(random, heads.dim), 1e-1};
  for (const Vec* b : {static_cast<const Vec*>(nullptr), &bias}) {
    const auto loss = [&](const Mat& at, const QkNorm& n) {
      return dot(dy, rope(qk_norm(add_row_vector(at, b, {}), n, heads), table, position, heads));
    };
    const auto g = qknorm_rope_backward(dy, z, norm, table, position, heads, 2, b);
    expect_gradient("dZ", g.dz, z, [&](const Mat& at) { return loss(at, norm); });
    EXPECT_EQ(g.dwq.rows, 2);
    expect_gradient("dwq", column_sums(g.dwq), norm.wq,
                    [&](const Vec& at) { return loss(z, {at, norm.wk, norm.eps}); });
    expect_gradient("dwk", column_sums(g.dwk), norm.wk,
                    [&](const Vec& at) { return loss(z, {norm.wq, at, norm.eps}); });
    expect_near("zdz", g.zdz, row_dots(z, g.dz), 1e-13);
  }
  // Without eps a normed head's z and dz are orthogonal: only v adds to zdz.
  const auto g = qknorm_rope_backward(dy, z, {norm.wq, norm.wk, 0.0}, table, position, heads, 2);
  double v_part = 0.0;
  for (std::int64_t n = heads.rotated(); n < heads.width(); ++n) v_part += z(1, n) * dy(1, n);
  EXPECT_NEAR(g.zdz[1], v_part, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(HeadCounts, RopeBackward,
                         testing::Values(Heads{2, 2, 2, 4}, Heads{4, 2, 2, 4}, Heads{3, 1, 1, 6}, Heads{1, 1, 2, 2}),
                         [](const auto& param) {
                           const Heads& h = param.param;
                           return "q" + std::to_string(h.q) + "k" + std::to_string(h.k) + "v" + std::to_string(h.v) +
                                  "d" + std::to_string(h.dim);
                         });

/// scale, cap, smoothing, z_loss.
class CrossEntropyBackward : public testing::TestWithParam<std::tuple<double, double, double, double>> {};

TEST_P(CrossEntropyBackward, GivesTheGradientOfTheWeightedLoss) {
  const auto [scale, cap, smoothing, z_loss] = GetParam();
  const LossOptions o{scale, cap, smoothing, z_loss, -7};
  Random random(27);
  const Mat z = draw(random, 4, 9);
  const Targets targets{2, -7, 8, 0};
  const Vec dloss{1.0, 5.0, -0.3, 0.25};
  const auto forward = [&](const Mat& l) { return lse_finalize(lse_partials(l, targets, 4, o), targets, 9, o); };
  const auto total = [&](const Mat& l) { return dot(column(dloss), column(forward(l).loss)); };

  const Mat l = logits(z, o);
  const auto g = cross_entropy_backward(l, forward(l).lse, targets, dloss, o);
  expect_gradient("dL", g.dl, l, total);
  expect_gradient("dZ", g.dz, z, [&](const Mat& at) { return total(logits(at, o)); });
  expect_near("zdz", g.zdz, row_dots(z, g.dz), 1e-12);
  if (cap == 0.0) expect_near("zdz from logits", g.zdz, row_dots(l, g.dl), 1e-12);
  for (std::int64_t n = 0; n < 9; ++n) EXPECT_EQ(g.dz(1, n), 0.0);
}

INSTANTIATE_TEST_SUITE_P(Options, CrossEntropyBackward,
                         testing::Combine(testing::Values(1.0, 0.6), testing::Values(0.0, 1.5),
                                          testing::Values(0.0, 0.1), testing::Values(0.0, 0.05)));

TEST(Backward, LossOfALinearHeadBehindANormHasItsRowTermInZdz) {
  // From the loss back to the residual stream: programs 2, 3, 8, 12 and 9 joined as a model joins them.
  Random random(28);
  const Mat x = draw(random, 4, 6), weight = draw(random, 9, 6);
  const Vec w = draw(random, 6), dloss = draw(random, 4);
  const Targets targets{2, 3, -100, 0};
  const LossOptions o{.scale = 0.9, .cap = 3.0, .smoothing = 0.05, .z_loss = 1e-3};
  const Mat no_rows(4, 0), no_cols(6, 0);  // K = 0: the product adds nothing to x
  const auto run = [&](const Mat& at) {
    const auto residual = gemm_residual_norm({no_rows, no_cols}, at, w, 4);
    return gemm_lse({residual.h, weight}, NormScale::rms(rms_finalize(residual.sum_squares, 6, 1e-3)), targets, 4, o);
  };
  const auto forward = run(x);
  const auto g = cross_entropy_backward(forward.l, forward.result.lse, targets, dloss, o);
  Vec c = g.zdz;
  for (double& e : c) e /= 6;
  const Vec rstd = rms_finalize(gemm_residual_norm({no_rows, no_cols}, x, w, 4).sum_squares, 6, 1e-3);
  const auto back = gemm_rms_backward({g.dz, weight, Layout::ab}, x, rstd, w, nullptr, c, 4);
  expect_gradient("dX", back.dx, x, [&](const Mat& at) { return dot(column(dloss), column(run(at).result.loss)); });
}

}  // namespace
}  // namespace coda::reference
