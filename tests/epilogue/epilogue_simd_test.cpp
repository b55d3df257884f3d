// Vectors of lanes: elementary functions against libm, conversions against every 16-bit value, lane order.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "coda/epilogue/fragment.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

constexpr int n = kLanes<float>;
using V = Simd<float, n>;

/// f against its fp64 form over every `stride`-th float from low to high: error in units of the last place of the
/// result (of 1e-30 for smaller ones).
template <class F, class Exact>
double worst_ulp(float low, float high, std::uint32_t stride, const F& f, const Exact& exact) {
  double worst = 0;
  float lane[n];
  for (double x = static_cast<double>(low); x < static_cast<double>(high);) {
    for (float& e : lane) {
      e = static_cast<float>(x);
      const auto bits = std::bit_cast<std::uint32_t>(std::abs(e));
      const float next = std::bit_cast<float>(e < 0 ? (bits > stride ? bits - stride : 0u) : bits + stride);
      x = e < 0 ? -static_cast<double>(next) : static_cast<double>(next);
      if (e < 0 && next == 0.f) x = 1e-30;
    }
    const V y = f(V::load(lane));
    for (int l = 0; l < n; ++l) {
      const double expected = exact(static_cast<double>(lane[l]));
      const auto magnitude = static_cast<float>(std::max(std::abs(expected), 1e-30));
      const double ulp =
          static_cast<double>(std::nextafter(magnitude, std::numeric_limits<float>::infinity()) - magnitude);
      worst = std::max(worst, std::abs(static_cast<double>(y[l]) - expected) / ulp);
    }
  }
  return worst;
}

TEST(SimdMath, IsWithinAFewUnitsInTheLastPlaceOfLibm) {
  const auto f_exp = [](V x) { return exp(x); };
  const auto f_tanh = [](V x) { return tanh(x); };
  const auto f_erf = [](V x) { return erf(x); };
  EXPECT_LT(worst_ulp(-87.f, 88.7f, 997, f_exp, [](double x) { return std::exp(x); }), 4);
  EXPECT_LT(worst_ulp(-20.f, 20.f, 997, f_tanh, [](double x) { return std::tanh(x); }), 4);
  const auto f_sigmoid = [](V x) { return sigmoid(x); };
  const auto exact_sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(worst_ulp(-8.f, 80.f, 997, f_sigmoid, exact_sigmoid), 4);
  EXPECT_LT(worst_ulp(-86.f, -8.f, 997, f_sigmoid, exact_sigmoid), 24);  // as it falls to 0
  EXPECT_LT(worst_ulp(-8.f, 8.f, 997, f_erf, [](double x) { return std::erf(x); }), 4);
  const auto f_cdf = [](V x) { return normal(x).cdf; };
  const auto f_pdf = [](V x) { return normal(x).pdf; };
  const auto exact_cdf = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  const auto exact_pdf = [](double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); };
  EXPECT_LT(worst_ulp(-1.f, 8.f, 997, f_cdf, exact_cdf), 12);
  EXPECT_LT(worst_ulp(-4.f, -1.f, 997, f_cdf, exact_cdf), 24);
  EXPECT_LT(worst_ulp(-12.f, -4.f, 997, f_cdf, exact_cdf), 250);  // as it falls to 0
  EXPECT_LT(worst_ulp(-4.f, 4.f, 997, f_pdf, exact_pdf), 12);
  const auto f_log = [](V x) { return log(x); };
  const auto f_softplus = [](V x) { return softplus(x); };
  const auto f_slope = [](V x) { return softplus_and_slope(x).slope; };
  const auto exact_log = [](double x) { return std::log(x); };
  const auto exact_softplus = [](double x) { return std::max(x, 0.) + std::log1p(std::exp(-std::abs(x))); };
  EXPECT_LT(worst_ulp(1e-45f, 1e-37f, 9973, f_log, exact_log), 4);  // subnormal ones, too
  EXPECT_LT(worst_ulp(1e-37f, 0.5f, 9973, f_log, exact_log), 4);
  EXPECT_LT(worst_ulp(0.5f, 2.f, 997, f_log, exact_log), 4);
  EXPECT_LT(worst_ulp(2.f, 3.4e38f, 9973, f_log, exact_log), 4);
  EXPECT_LT(worst_ulp(-1.f, 100.f, 997, f_softplus, exact_softplus), 4);
  EXPECT_LT(worst_ulp(-68.f, -1.f, 997, f_softplus, exact_softplus), 12);  // as it falls to 0
  EXPECT_LT(worst_ulp(-8.f, 100.f, 997, f_slope, exact_sigmoid), 4);
  EXPECT_LT(worst_ulp(-68.f, -8.f, 997, f_slope, exact_sigmoid), 12);
  EXPECT_LE(worst_ulp(1e-30f, 3e38f, 9973, [](V x) { return sqrt(x); }, [](double x) { return std::sqrt(x); }), 0.5);
}

TEST(Normal, FallsToZeroWithItsRelativeAccuracyOnScalars) {
  for (double x = -12; x < 8; x += 0.0371) {
    const auto narrow = static_cast<float>(x);
    const double exact = 0.5 * std::erfc(-x / std::numbers::sqrt2);
    const double of_float = 0.5 * std::erfc(-static_cast<double>(narrow) / std::numbers::sqrt2);
    EXPECT_NEAR(normal(x).cdf / exact, 1, 1e-12) << x;
    EXPECT_NEAR(static_cast<double>(normal(narrow).cdf) / of_float, 1, 1e-6 * (1 + x * x / 4)) << x;
  }
}

TEST(Normal, HasNoSubnormalsOnVectors) {
  constexpr float kLeast = std::numeric_limits<float>::min();
  for (float x = -14.f; x < -12.f; x += 0.00037f) {
    const auto y = normal(V(x));
    EXPECT_TRUE(y.cdf[0] == 0.f || y.cdf[0] >= kLeast) << x << " " << y.cdf[0];
    EXPECT_TRUE(y.pdf[0] == 0.f || y.pdf[0] >= kLeast) << x << " " << y.pdf[0];
    EXPECT_GE(y.cdf[0], x > -12.9f ? kLeast : 0.f) << x;
  }
}

TEST(SimdMath, HandlesInfinitiesNanZerosAndTheEndsOfTheRange) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto lane0 = [](V x) { return x[0]; };
  for (const float x : {nan, -nan}) {
    EXPECT_TRUE(std::isnan(lane0(exp(V(x)))));
    EXPECT_TRUE(std::isnan(lane0(tanh(V(x)))));
    EXPECT_TRUE(std::isnan(lane0(erf(V(x)))));
    EXPECT_TRUE(std::isnan(lane0(sigmoid(V(x)))));
    EXPECT_TRUE(std::isnan(lane0(normal(V(x)).cdf)));
    EXPECT_TRUE(std::isnan(lane0(normal(V(x)).pdf)));
    EXPECT_TRUE(std::isnan(lane0(relu(V(x)))));
    EXPECT_TRUE(std::isnan(lane0(log(V(x)))));
    EXPECT_TRUE(std::isnan(lane0(softplus(V(x)))));
    EXPECT_TRUE(std::isnan(lane0(softplus_and_slope(V(x)).slope)));
  }
  EXPECT_EQ(lane0(log(V(inf))), inf);
  EXPECT_EQ(lane0(log(V(1.f))), 0.f);
  for (const float zero : {0.f, -0.f}) EXPECT_EQ(lane0(log(V(zero))), -inf);
  for (const float negative : {-1e-45f, -1.f, -inf}) EXPECT_TRUE(std::isnan(lane0(log(V(negative))))) << negative;
  EXPECT_EQ(lane0(softplus(V(inf))), inf);
  EXPECT_EQ(lane0(softplus(V(-inf))), 0.f);
  EXPECT_EQ(lane0(softplus(V(3e38f))), 3e38f);
  EXPECT_EQ(lane0(softplus_and_slope(V(inf)).slope), 1.f);
  EXPECT_EQ(lane0(softplus_and_slope(V(-inf)).slope), 0.f);
  EXPECT_EQ(lane0(sqrt(V(0.f))), 0.f);
  EXPECT_EQ(lane0(sqrt(V(inf))), inf);
  EXPECT_EQ(lane0(exp(V(inf))), inf);
  EXPECT_EQ(lane0(exp(V(-inf))), 0.f);
  EXPECT_EQ(lane0(exp(V(0.f))), 1.f);
  EXPECT_EQ(lane0(exp(V(89.f))), inf);
  EXPECT_TRUE(std::isfinite(lane0(exp(V(88.7f)))));
  EXPECT_EQ(lane0(exp(V(-1000.f))), 0.f);
  EXPECT_EQ(lane0(tanh(V(inf))), 1.f);
  EXPECT_EQ(lane0(tanh(V(-inf))), -1.f);
  EXPECT_EQ(lane0(erf(V(inf))), 1.f);
  EXPECT_EQ(lane0(erf(V(-inf))), -1.f);
  EXPECT_TRUE(std::signbit(lane0(tanh(V(-0.f)))));
  EXPECT_TRUE(std::signbit(lane0(erf(V(-0.f)))));
  EXPECT_TRUE(std::signbit(lane0(V(-0.f))));
  EXPECT_EQ(lane0(sigmoid(V(-inf))), 0.f);
  EXPECT_EQ(lane0(sigmoid(V(inf))), 1.f);
  EXPECT_EQ(lane0(normal(V(-inf)).cdf), 0.f);
  EXPECT_EQ(lane0(normal(V(inf)).cdf), 1.f);
  EXPECT_EQ(lane0(normal(V(-inf)).pdf), 0.f);
  EXPECT_EQ(lane0(rsqrt(V(4.f))), 0.5f);
  EXPECT_EQ(lane0(abs(V(-3.f))), 3.f);
  EXPECT_TRUE(std::isnan(lane0(reciprocal(V(nan)))));
  for (const float sign : {1.f, -1.f}) {
    // 0, and what is so small that its reciprocal is no float; the smallest that has one; infinity.
    for (const float x : {0.f, 1e-45f, 1e-39f, 2.9e-39f}) EXPECT_EQ(lane0(reciprocal(V(sign * x))), sign * inf) << x;
    EXPECT_NEAR(lane0(reciprocal(V(sign * 3e-39f))) / (sign * (1 / 3e-39f)), 1, 1e-6);
    EXPECT_EQ(lane0(reciprocal(V(sign * inf))), 0.f);
  }
  const Simd<double, kLanes<double>> d(-1.0);
  EXPECT_DOUBLE_EQ(abs(d)[0], 1.0);
  EXPECT_DOUBLE_EQ(exp(d)[0], std::exp(-1.0));
  EXPECT_DOUBLE_EQ(tanh(d)[0], std::tanh(-1.0));
  EXPECT_DOUBLE_EQ(erf(d)[0], std::erf(-1.0));
  EXPECT_DOUBLE_EQ(normal(d).cdf[0], 0.5 * std::erfc(1 / std::numbers::sqrt2));
  EXPECT_DOUBLE_EQ(normal(d).pdf[0], std::exp(-0.5) / std::sqrt(2 * std::numbers::pi));
}

TEST(SimdMath, WorksOnEachLaneByItself) {
  constexpr int nd = kLanes<double>;
  float x[n];
  double y[nd];
  for (int l = 0; l < n; ++l) x[l] = static_cast<float>(l + 1);
  for (int l = 0; l < nd; ++l) y[l] = 0.25 * (l + 1);
  const V root = rsqrt(V::load(x)), power = exp(V::load(x)), logarithm = log(V::load(x)), plus = softplus(V::load(x));
  for (int l = 0; l < n; ++l) {
    EXPECT_NEAR(static_cast<double>(root[l]), 1 / std::sqrt(l + 1.0), 1e-7);
    EXPECT_NEAR(static_cast<double>(power[l]) / std::exp(l + 1.0), 1, 1e-6);
    EXPECT_NEAR(static_cast<double>(logarithm[l]), std::log(l + 1.0), 1e-6);
    EXPECT_NEAR(static_cast<double>(plus[l]), std::log1p(std::exp(l + 1.0)), 1e-5);
  }
  const auto d = Simd<double, nd>::load(y);
  for (int l = 0; l < nd; ++l) {
    EXPECT_DOUBLE_EQ(exp(d)[l], std::exp(y[l]));
    EXPECT_DOUBLE_EQ(tanh(d)[l], std::tanh(y[l]));
    EXPECT_DOUBLE_EQ(erf(d)[l], std::erf(y[l]));
    EXPECT_DOUBLE_EQ(log(d)[l], std::log(y[l]));
    EXPECT_DOUBLE_EQ(sqrt(d)[l], std::sqrt(y[l]));
    EXPECT_DOUBLE_EQ(softplus(d)[l], std::log1p(std::exp(y[l])));
    EXPECT_DOUBLE_EQ(softplus_and_slope(d).slope[l], 1 / (1 + std::exp(-y[l])));
  }
}

/// The value of 16 bits by the definition of the format, not by the library's own scalar conversion.
double value_of(std::uint16_t bits, int mantissa_bits, int bias) {
  const int exponent_bits = 15 - mantissa_bits;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1),
            mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + mantissa, exponent - bias - mantissa_bits);
}

/// What a vector store may make of x: the rounded value or, where the machine has bf16 instructions, 0 for a subnormal.
template <class T>
bool stored_right(T got, std::uint16_t expected, float x) {
  const bool flushed = std::is_same_v<T, bf16> && std::abs(x) < 0x1p-126f && got.bits == (expected & 0x8000);
  return got.bits == expected || flushed;
}

template <class T>
void check_all_16_bit_values(int mantissa_bits, int bias) {
  for (std::uint32_t first = 0; first < 65536; first += n) {
    T in[n], back[n];
    for (int l = 0; l < n; ++l) in[l].bits = static_cast<std::uint16_t>(first + static_cast<std::uint32_t>(l));
    const V wide = load_as<n>(in);
    store_as<n>(back, wide);
    for (int l = 0; l < n; ++l) {
      const double expected = value_of(in[l].bits, mantissa_bits, bias);
      const float scalar = in[l];
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[l]) && std::isnan(scalar)) << std::hex << in[l].bits;
        ASSERT_TRUE(std::isnan(static_cast<float>(back[l]))) << std::hex << in[l].bits;
      } else {
        ASSERT_EQ(static_cast<double>(wide[l]), expected) << std::hex << in[l].bits;
        ASSERT_EQ(std::signbit(wide[l]), (in[l].bits & 0x8000) != 0) << std::hex << in[l].bits;
        ASSERT_EQ(static_cast<double>(scalar), expected) << std::hex << in[l].bits;
        ASSERT_TRUE(stored_right(back[l], in[l].bits, scalar)) << std::hex << in[l].bits << " became " << back[l].bits;
        ASSERT_EQ(T(scalar).bits, in[l].bits) << std::hex << in[l].bits;
      }
    }
  }
}
TEST(Conversion, OfEvery16BitValueIsExactBothWays) {
  check_all_16_bit_values<bf16>(7, 127);
  check_all_16_bit_values<fp16>(10, 15);
}

/// Between neighbours a < b of the type: below the middle goes to a, above it to b, the middle to the even one.
template <class T>
void check_rounding(std::uint16_t infinity) {
  for (std::uint32_t bits = 0; bits < infinity; ++bits) {
    T a, b;
    a.bits = static_cast<std::uint16_t>(bits), b.bits = static_cast<std::uint16_t>(bits + 1);
    const double x = static_cast<double>(static_cast<float>(a));
    // Past the largest finite value lies what would be the next one, had the format a further exponent.
    T below;
    below.bits = static_cast<std::uint16_t>(bits - 1);
    const double y = b.bits == infinity ? 2 * x - static_cast<double>(static_cast<float>(below))
                                        : static_cast<double>(static_cast<float>(b));
    const auto middle = static_cast<float>((x + y) / 2);
    if (static_cast<double>(middle) != (x + y) / 2) continue;  // a subnormal float cannot hold it
    const float up = std::nextafter(middle, std::numeric_limits<float>::infinity()), down = std::nextafter(middle, 0.f);
    const float in[3] = {down, middle, up};
    const std::uint16_t expected[3] = {a.bits, (bits & 1) == 0 ? a.bits : b.bits, b.bits};
    T lanes[n];
    float source[n] = {};
    for (int i = 0; i < 3; ++i) source[i % n] = in[i];
    store_as<n>(lanes, V::load(source));
    for (int i = 0; i < 3; ++i) {
      ASSERT_EQ(T(in[i]).bits, expected[i]) << in[i] << " between " << x << " and " << y;
      ASSERT_EQ(T(-in[i]).bits, expected[i] | 0x8000) << -in[i];
      ASSERT_TRUE(stored_right(lanes[i], expected[i], in[i])) << in[i] << " in a vector: " << lanes[i].bits;
    }
  }
}
TEST(Conversion, RoundsToNearestTiesToEven) {
  check_rounding<bf16>(0x7f80);
  check_rounding<fp16>(0x7c00);
}

TEST(Lanes, OfTwoVectorsSplitIntoEvenAndOddColumnsAndBack) {
  float x[2 * n];
  for (int i = 0; i < 2 * n; ++i) x[i] = static_cast<float>(i);
  const auto [even, odd] = deinterleave(V::load(x), V::load(x + n));
  const auto [a, b] = interleave(even, odd);
  for (int l = 0; l < n; ++l) {
    EXPECT_EQ(even[l], x[2 * l]);
    EXPECT_EQ(odd[l], x[2 * l + 1]);
    EXPECT_EQ(a[l], x[l]);
    EXPECT_EQ(b[l], x[n + l]);
  }
  EXPECT_EQ(fold_lanes(V::load(x), [](V p, V q) { return p + q; }), static_cast<float>(n * (n - 1) / 2));
  EXPECT_EQ(deinterleave(1.5, 2.5), std::pair(1.5, 2.5));
}

// ---- fragments

template <int Count, Width W>
Fragment<V, Count, W> counted(float start) {
  Fragment<V, Count, W> f;
  for (int i = 0; i < Count; ++i)
    for (int l = 0; l < n; ++l) f.v[i].v[l] = start + static_cast<float>(i * n + l);
  return f;
}
template <class F>
float column(const F& f, int c) {
  if (F::width != Width::Double) return f.v[c / n][c % n];
  return f.v[c / (2 * n) * 2 + c % 2][c % (2 * n) / 2];  // pairs apart
}

TEST(Fragment, ContractsExpandsAndRotatesPairsOfAdjacentColumns) {
  const auto x = counted<4, Width::Same>(1);
  const auto half = contract(x, [](V even, V odd) { return even * V(1000.f) + odd; });
  static_assert(decltype(half)::width == Width::Half && decltype(half)::count == 2);
  for (int j = 0; j < 2 * n; ++j) EXPECT_EQ(column(half, j), 1000 * column(x, 2 * j) + column(x, 2 * j + 1));

  const auto twice = expand(x, [](V v) { return Pair<V>{v, -v}; });
  static_assert(decltype(twice)::width == Width::Double && decltype(twice)::count == 8);
  for (int j = 0; j < 4 * n; ++j) {
    EXPECT_EQ(column(twice, 2 * j), column(x, j));
    EXPECT_EQ(column(twice, 2 * j + 1), -column(x, j));
  }
  const auto again = contract(twice, [](V even, V odd) { return even - odd; });
  static_assert(decltype(again)::width == Width::Same);
  for (int j = 0; j < 4 * n; ++j) EXPECT_EQ(column(again, j), 2 * column(x, j));

  auto angle = x;  // (cos, sin) = (0, 1): a quarter turn
  for (int i = 0; i < 4; ++i)
    for (int l = 0; l < n; ++l) angle.v[i].v[l] = static_cast<float>(l % 2);
  const auto turned = pairwise(x, angle, Rotate{});
  const auto back = pairwise(turned, angle, RotateBack{});
  for (int j = 0; j < 2 * n; ++j) {
    EXPECT_EQ(column(turned, 2 * j), -column(x, 2 * j + 1));
    EXPECT_EQ(column(turned, 2 * j + 1), column(x, 2 * j));
    EXPECT_EQ(column(back, 2 * j), column(x, 2 * j));
    EXPECT_EQ(column(back, 2 * j + 1), column(x, 2 * j + 1));
  }
}

TEST(Fragment, DoesArithmeticWithFragmentsAndNumbers) {
  const auto x = counted<2, Width::Same>(3), y = counted<2, Width::Same>(-7);
  const auto z = 2 * (x + y * 3 - x * y - 1);
  const auto w = map([](V a, V b) { return a - b; }, x, y);
  auto q = 1 - -x / (8 + y * y) / 2;
  q += y;
  q *= 3;
  for (int j = 0; j < 2 * n; ++j) {
    const float a = column(x, j), b = column(y, j);
    EXPECT_EQ(column(z, j), 2 * (a + b * 3 - a * b - 1));
    EXPECT_EQ(column(w, j), 10);
    EXPECT_EQ(column(q, j), (1 + a / (8 + b * b) / 2 + b) * 3);
  }
}

}  // namespace
}  // namespace coda::test
