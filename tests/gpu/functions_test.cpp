// The elementary functions of programs and their slopes on the device, against the same functions of doubles on the
// host.
#include "tests/gpu/functions.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Functions : public OnHopper {
 protected:
  /// Values and slopes of f on the device.
  static std::pair<Vec, Vec> evaluated(Function f, const Vec& x) {
    const auto n = static_cast<std::int64_t>(x.size());
    const OnDevice<float> in(reference::column(x));
    OnDevice<float> value(n, 1), slope(n, 1);
    evaluate(f, static_cast<const float*>(in.matrix().data), static_cast<float*>(value.matrix().data),
             static_cast<float*>(slope.matrix().data), n, nullptr);
    // A NaN of the device's own looks like the poison of what was never written.
    return {value.fetch("value", false).mat().v, slope.fetch("slope", false).mat().v};
  }
  /// Floats of every size, of both signs and close to 0, and as many spread evenly.
  static Vec floats(double low, double high) {
    constexpr int kCount = 1 << 15;
    Random random(321);
    Vec x;
    for (int i = 0; i < kCount; ++i) x.push_back(double{static_cast<float>(random.uniform(low, high))});
    for (int i = 0; i < kCount; ++i) {
      const double size = std::ldexp(random.uniform(1, 2), static_cast<int>(random.uniform(-126, 128)));
      for (const double of_sign : {size, -size}) {
        if (low <= of_sign && of_sign <= high) x.push_back(double{static_cast<float>(of_sign)});
      }
    }
    return x;
  }
};

/// |got - exact| <= (relative + growth x^2) |exact| + absolute, over all floats from low to high.
struct Bound {
  Function f;
  const char* name;
  double low, high;
  double value, slope;  // relative
  double value_absolute = 0, slope_absolute = 0;
  double growth = 0;
};

TEST_F(Functions, AndTheirSlopesAreThoseOfDoublesToAFewUnitsInTheLastPlace) {
  constexpr double kMax = std::numeric_limits<float>::max(), kMin = std::numeric_limits<float>::min();
  using enum Function;
  for (const Bound& b : {
           Bound{exp, "exp", -87, 88.7, 6e-6, 6e-6},
           {exp, "exp", -4, 4, 5e-7, 5e-7},
           {log, "log", kMin, kMax, 4e-7, 3e-7, 0, kMin},
           {tanh, "tanh", -kMax, kMax, 6e-7, 6e-7, 0, 6e-7},
           {sigmoid, "sigmoid", -86, kMax, 6e-6, 6e-6, 0, 3e-7},
           {sigmoid, "sigmoid", -8, 8, 8e-7, 1e-6, 0, 3e-7},
           {softplus, "softplus", -86, kMax, 6e-6, 6e-6},
           {softplus, "softplus", -8, 8, 1.2e-6, 1.2e-6},
           {erf, "erf", -kMax, kMax, 4e-7, 6e-6, 0, kMin},
           {normal_cdf, "normal_cdf", -12, 12, 1e-6, 1e-6, 0, 0, 2.5e-7},
           {sqrt, "sqrt", kMin, kMax, 2e-7, 4e-7},
           {rsqrt, "rsqrt", 1e-25, kMax, 3e-7, 1e-6, 0, kMin},
           {reciprocal, "reciprocal", 1e-18, kMax, 2e-7, 6e-7, kMin, kMin},
           {reciprocal, "reciprocal", -kMax, -1e-18, 2e-7, 6e-7, kMin, kMin},
       }) {
    SCOPED_TRACE(b.name);
    const Vec x = floats(b.low, b.high);
    const auto [value, slope] = evaluated(b.f, x);
    with_function(b.f, [&](auto function) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        const Derivative<double> exact = differentiate(function, x[i]);
        const double growth = b.growth * x[i] * x[i];
        ASSERT_NEAR(value[i], exact.value, (b.value + growth) * std::abs(exact.value) + b.value_absolute)
            << "at " << x[i];
        ASSERT_NEAR(slope[i], exact.dx, (b.slope + growth) * std::abs(exact.dx) + b.slope_absolute)
            << "slope at " << x[i];
      }
    });
  }
}

TEST_F(Functions, OfNanAreNan) {
  for (int f = 0; f < static_cast<int>(Function::end); ++f) {
    const auto [value, slope] = evaluated(static_cast<Function>(f), {kNan, -kNan});
    for (const double v : value) EXPECT_TRUE(std::isnan(v)) << f;
    for (const double v : slope) EXPECT_TRUE(std::isnan(v)) << f;
  }
}

TEST_F(Functions, OfInfinitiesAndZerosAreTheirLimits) {
  const Vec x = {kInfinity, -kInfinity, 0, -0.0};
  using enum Function;
  for (const auto& [f, limits] : std::vector<std::pair<Function, Vec>>{
           {exp, {kInfinity, 0, 1, 1}},
           {log, {kInfinity, kNan, -kInfinity, -kInfinity}},
           {tanh, {1, -1, 0, -0.0}},
           {sigmoid, {1, 0, 0.5, 0.5}},
           {softplus, {kInfinity, 0, double{std::log(2.f)}, double{std::log(2.f)}}},
           {erf, {1, -1, 0, -0.0}},
           {normal_cdf, {1, 0, 0.5, 0.5}},
           {sqrt, {kInfinity, kNan, 0, -0.0}},
           {rsqrt, {0, kNan, kInfinity, -kInfinity}},
           {reciprocal, {0, -0.0, kInfinity, -kInfinity}},
       }) {
    const Vec value = evaluated(f, x).first;
    for (std::size_t i = 0; i < x.size(); ++i) {
      SCOPED_TRACE(std::to_string(static_cast<int>(f)) + " at " + std::to_string(x[i]));
      if (std::isnan(limits[i])) {
        EXPECT_TRUE(std::isnan(value[i])) << value[i];
      } else {
        const double off = value[i] == limits[i] ? 0 : std::abs(value[i] - limits[i]);
        EXPECT_LE(off, f == softplus || f == normal_cdf ? 1e-6 : 0) << value[i];
        EXPECT_EQ(std::signbit(value[i]), std::signbit(limits[i]));
      }
    }
  }
}

/// Where a factor of 2^24 comes first, and where the logarithm itself goes through 0.
TEST_F(Functions, LogTakesSubnormalNumbersAndKeepsItsDigitsNearOne) {
  Vec x;
  for (int i = 0; i < 4000; ++i) x.push_back(1 + (i - 2000) * 0x1p-23);
  for (int i = 1; i < 4000; ++i) x.push_back(i * 0x1p-149);
  const Vec value = evaluated(Function::log, x).first;
  for (std::size_t i = 0; i < x.size(); ++i) {
    ASSERT_NEAR(value[i], std::log(x[i]), 3e-7 * std::abs(std::log(x[i]))) << x[i];
  }
}

}  // namespace
}  // namespace coda::test
