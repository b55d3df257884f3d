// Activations and their derived derivatives, on double, float and vectors of lanes.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "coda/epilogue/ports.h"
#include "tests/reference/activation.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

/// f in double against the closed form; f' against the closed form and against the five-point difference of f.
template <class F>
void check_function(const F& f, reference::Activation form) {
  SCOPED_TRACE(F::name);
  Random random(2605);
  for (int i = 0; i < 2000; ++i) {
    const double x = i < 1000 ? random.uniform(-6, 6) : 20 * random.normal();
    const Derivative<double> d = differentiate(f, x);
    const double value = reference::activate(form, x), slope = reference::activate_slope(form, x);
    ASSERT_NEAR(d.value, value, 1e-13 * std::max(1.0, std::abs(value))) << "x = " << x;
    // But for last bits: clang makes one operation of a product and a sum in one of the two alone.
    ASSERT_NEAR(d.value, f(x), 1e-15 * std::max(1.0, std::abs(value)))
        << "the value of a dual is the function's; x = " << x;
    ASSERT_NEAR(d.dx, slope, 1e-12 * std::max(1.0, std::abs(slope))) << "x = " << x;
    constexpr double h = 1e-3;
    if (std::abs(x) < 3 * h) continue;  // a kink at 0 has no derivative
    const double numeric = (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
    ASSERT_NEAR(d.dx, numeric, 1e-9 * std::max(1.0, std::abs(x))) << "x = " << x;
  }
}

TEST(Derivative, OfEachActivationIsItsSlope) {
  check_function(Identity{}, reference::Activation::identity);
  check_function(Silu{}, reference::Activation::silu);
  check_function(GeluErf{}, reference::Activation::gelu);
  check_function(GeluTanh{}, reference::Activation::gelu_tanh);
  check_function(Relu{}, reference::Activation::relu);
  check_function(ReluSquared{}, reference::Activation::relu2);
}

template <class F>
void check_gated(const F& f, reference::Activation form) {
  SCOPED_TRACE(F::name);
  Random random(19269);
  for (int i = 0; i < 1000; ++i) {
    const double gate = 3 * random.normal(), up = 3 * random.normal();
    const Derivative<double> d = differentiate(f, gate, up);
    ASSERT_NEAR(d.value, reference::activate(form, gate) * up, 1e-12) << gate << ", " << up;
    ASSERT_NEAR(d.dx, reference::activate_slope(form, gate) * up, 1e-11) << gate << ", " << up;
    ASSERT_NEAR(d.dy, reference::activate(form, gate), 1e-12) << gate << ", " << up;
  }
}

TEST(Derivative, OfEachGatedActivationHasBothParts) {
  check_gated(SwiGlu{}, reference::Activation::silu);
  check_gated(GeGluErf{}, reference::Activation::gelu);
  check_gated(GeGluTanh{}, reference::Activation::gelu_tanh);
  check_gated(ReGlu{}, reference::Activation::relu);
}

TEST(Derivative, OfASoftCapIsThatOfTheTanh) {
  const SoftCap<double> f{.scale = 0.5, .cap = 3};
  for (double z = -40; z <= 40; z += 0.37) {
    const Derivative<double> d = differentiate(f, z);
    const double t = std::tanh(0.5 * z / 3);
    EXPECT_NEAR(d.value, 3 * t, 1e-14);
    EXPECT_NEAR(d.dx, 0.5 * (1 - t * t), 1e-14);
  }
}

/// A function of a user, made of every operation that a dual number knows.
struct Everything {
  template <class S>
  CODA_FN auto operator()(S x) const {
    using C = base_t<S>;
    const auto root = rsqrt(x * x + C(1)), ratio = (C(2) - x) / (C(3) + x * root),
               share = x / C(7) - C(5) / (x * x + C(2));
    return exp(tanh(x) * C(0.5)) * sigmoid(x) + erf(x) * x - relu(x * x - C(1)) + normal_cdf(x) + ratio * share +
           C(0.3) * abs(x - C(0.7)) * reciprocal(C(2) + abs(-x)) + log(C(4) + x) * softplus(x * C(2)) +
           sqrt(x * x + C(3));
  }
};
TEST(Derivative, OfAFunctionOfAUserIsExact) {
  for (double x = -2.9; x < 3; x += 0.171) {
    constexpr double h = 1e-3;
    const Everything f;
    const double numeric = (8 * (f(x + h) - f(x - h)) - (f(x + 2 * h) - f(x - 2 * h))) / (12 * h);
    EXPECT_NEAR(differentiate(f, x).dx, numeric, 1e-9) << "x = " << x;
  }
}

TEST(Derivative, OfSoftplusIsItsSigmoidWhereverItIs) {
  const auto mish = [](auto x) { return x * tanh(softplus(x)); };
  for (const double x : {-700., -40., -3., -1e-9, 0., 1e-9, 2.5, 40., 800.}) {
    const double sigmoid_of_x = x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
    const double value = x < 0 ? std::log1p(std::exp(x)) : x + std::log1p(std::exp(-x)), t = std::tanh(value);
    const auto plus = differentiate([](auto z) { return softplus(z); }, x), m = differentiate(mish, x);
    EXPECT_NEAR(plus.value / value, 1, 1e-14) << x;
    EXPECT_NEAR(plus.dx / sigmoid_of_x, 1, 1e-14) << x;
    EXPECT_NEAR(m.value, x * t, 1e-14 * std::abs(x)) << x;
    EXPECT_NEAR(m.dx, t + x * (1 - t * t) * sigmoid_of_x, 1e-13) << x;
  }
  EXPECT_EQ(softplus(kInf), kInf);
  EXPECT_EQ(softplus(-kInf), 0);
  EXPECT_TRUE(std::isnan(softplus(std::nan(""))));
  EXPECT_TRUE(std::isnan(differentiate([](auto z) { return softplus(z); }, std::nan("")).dx));
}

TEST(Derivative, OfARootIsInfiniteAtZero) {
  const auto root = [](auto x) { return sqrt(x); };
  EXPECT_EQ(differentiate(root, 4.0).value, 2);
  EXPECT_EQ(differentiate(root, 4.0).dx, 0.25);
  EXPECT_EQ(differentiate(root, 0.0).dx, kInf);
}

/// Whether a derivative is 0 or 1 is known to the compiler, so no instruction is spent on it.
TEST(Derivative, KnowsZerosAndOnesByType) {
  using Gate = Dual<float, One, Zero>;
  using Up = Dual<float, Zero, One>;
  const Gate gate(0.5f, One{}, Zero{});
  const Up up(2.f, Zero{}, One{});
  static_assert(std::is_same_v<decltype(gate + up), Dual<float, One, One>>);
  static_assert(std::is_same_v<decltype(sigmoid(gate)), Dual<float, float, Zero>>);
  static_assert(std::is_same_v<decltype(gate * 3.f), Dual<float, float, Zero>>);
  static_assert(sizeof(Gate) <= 2 * sizeof(float));
  EXPECT_EQ((gate - up).dy, -1.f);
  EXPECT_EQ((gate + gate).dx, 2.f);
  EXPECT_EQ((gate / up).dx, 0.5f);
  EXPECT_EQ((gate / up).dy, -0.125f);
  EXPECT_EQ(abs(-gate).dx, 1.f);
  EXPECT_EQ(abs(gate - 0.5f).dx, 0.f);
  EXPECT_EQ((up * gate).dx, 2.f);
  EXPECT_EQ((up * gate).dy, 0.5f);
}

TEST(Derivative, OfSwiGluIsTheClosedFormOnVectorsOfLanes) {
  using V = Simd<float, kLanes<float>>;
  constexpr int n = kLanes<float>;
  Random random(7);
  for (int i = 0; i < 200; ++i) {
    Fragment<V, 2, Width::Double> z;
    Fragment<V, 1> dy;
    float gate[n], up[n], g[n];
    for (int l = 0; l < n; ++l) {
      gate[l] = static_cast<float>(4 * random.normal()), up[l] = static_cast<float>(random.normal());
      g[l] = static_cast<float>(random.normal());
    }
    z.v[0] = V::load(gate), z.v[1] = V::load(up), dy.v[0] = V::load(g);
    const auto r = backward(SwiGlu{}, z, dy);
    const V dgate = r.dz.v[0], dup = r.dz.v[1];
    for (int l = 0; l < n; ++l) {
      const double x = static_cast<double>(gate[l]), s = 1 / (1 + std::exp(-x));
      EXPECT_NEAR(static_cast<double>(dgate[l]),
                  static_cast<double>(g[l]) * static_cast<double>(up[l]) * s * (1 + x * (1 - s)), 4e-6);
      EXPECT_NEAR(static_cast<double>(dup[l]), static_cast<double>(g[l]) * x * s, 4e-6);
      EXPECT_NEAR(static_cast<double>(r.out.v[0][l]), static_cast<double>(up[l]) * x * s, 4e-6);
    }
  }
}

TEST(Relu, KeepsNanAndHasSlopeZeroAtZero) {
  EXPECT_TRUE(std::isnan(Relu{}(std::nan(""))));
  EXPECT_EQ(Relu{}(-kInf), 0);
  EXPECT_EQ(Relu{}(kInf), kInf);
  EXPECT_EQ(differentiate(Relu{}, 0.0).dx, 0);
  EXPECT_EQ(differentiate(ReluSquared{}, 2.0).dx, 4);
}

TEST(Relu, LetsNoGradientThroughWhereItIsOff) {
  const Fragment<double, 4> z{{-1, 0, 2, std::nan("")}};
  const Fragment<double, 4> dy{{kInf, std::nan(""), 3, 4}};
  const auto plain = backward(Relu{}, z, dy), squared = backward(ReluSquared{}, z, dy);
  EXPECT_EQ(plain.dz.v[0], 0);
  EXPECT_EQ(plain.dz.v[1], 0);
  EXPECT_EQ(plain.dz.v[2], 3);
  EXPECT_EQ(plain.dz.v[3], 4) << "as in PyTorch, where NaN is not off";
  EXPECT_EQ(squared.dz.v[0], 0);
  EXPECT_EQ(squared.dz.v[1], 0);
  EXPECT_EQ(squared.dz.v[2], 12);
  EXPECT_TRUE(std::isnan(squared.dz.v[3]));
  const Fragment<double, 4, Width::Double> pairs{{-1, 5, 2, 7}};
  const auto gated = backward(ReGlu{}, pairs, Fragment<double, 2>{{kInf, 3}});
  EXPECT_EQ(gated.dz.v[0], 0);
  EXPECT_TRUE(std::isnan(gated.dz.v[1])) << "inf times a gate of 0";
  EXPECT_EQ(gated.dz.v[2], 21);
  EXPECT_EQ(gated.dz.v[3], 6);
  // A sum of two that are never off at once.
  const auto leaky = [](auto x) { return relu(x) - relu(-x) * 0.125; };
  EXPECT_EQ(backward(leaky, z, dy).dz.v[0], kInf);
  EXPECT_EQ(backward(leaky, z, dy).dz.v[2], 3);
  EXPECT_EQ(differentiate(leaky, -8.0).dx, 0.125);
}

/// Both as PyTorch's clamp: at its bounds the slope is 1, beyond them a gradient is 0 even if it is infinite.
TEST(AtMostAndAtLeast, KeepNanAndLetNoGradientThroughWhereTheyBind) {
  const double nan = std::nan("");
  const auto clamped = [](auto x) { return at_most(at_least(x, -2), 3); };
  for (const auto& [x, value, slope] : {std::array{-2.5, -2., 0.},
                                        {-2., -2., 1.},
                                        {-1.5, -1.5, 1.},
                                        {3., 3., 1.},
                                        {3.5, 3., 0.},
                                        {kInf, 3., 0.},
                                        {-kInf, -2., 0.}}) {
    EXPECT_EQ(clamped(x), value);
    EXPECT_EQ(differentiate(clamped, x).value, value);
    EXPECT_EQ(differentiate(clamped, x).dx, slope) << "x = " << x;
  }
  EXPECT_TRUE(std::isnan(clamped(nan)));
  EXPECT_TRUE(std::isnan(differentiate(clamped, nan).value));
  const Fragment<double, 4> z{{-5, 2, 4, nan}}, dy{{kInf, 3, nan, 4}};
  const auto r = backward(clamped, z, dy);
  EXPECT_EQ(r.dz.v[0], 0);
  EXPECT_EQ(r.dz.v[1], 3);
  EXPECT_EQ(r.dz.v[2], 0);
  EXPECT_EQ(r.dz.v[3], 4) << "as in relu, NaN is not off";
  using V = Simd<float, kLanes<float>>;
  EXPECT_EQ(at_most(V(7.f), V(3.f))[0], 3.f);
  EXPECT_EQ(at_least(V(-7.f), V(-3.f))[0], -3.f);
}

TEST(Larger, IsNanWhereEitherIs) {
  const double nan = std::nan("");
  for (const auto& [a, b] : {std::pair{nan, 1.0}, {1.0, nan}, {nan, -kInf}, {-kInf, nan}, {nan, nan}}) {
    EXPECT_TRUE(std::isnan(Max::fold(a, b))) << a << ", " << b;
    EXPECT_TRUE(std::isnan(AbsMax::fold(a, b))) << a << ", " << b;
  }
  EXPECT_EQ(Max::fold(-kInf, -3.0), -3);
  EXPECT_EQ(Max::fold(2.0, -3.0), 2);
  EXPECT_EQ(AbsMax::fold(AbsMax::first(-5.0), AbsMax::first(3.0)), 5);
}

}  // namespace
}  // namespace coda::test
