// Casts, squared norms and AdamW through the checked calls on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "coda/ops/ops.h"
#include "tests/support/accuracy.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

template <class F>
void for_types(const F& f) {
  f(bf16());
  f(fp16());
  f(float());
  f(double());
}

TEST(Cast, OfRowsWithoutColumnsHasNothingToDoHoweverManyTheyAre) {
  float in = 1, out = 7;
  constexpr std::int64_t kRows = std::int64_t{1} << 50;
  ops::cast({.in = MatrixOf<const float>(&in, kRows, 0), .out = MatrixOf<float>(&out, kRows, 0)});
  EXPECT_EQ(out, 7);
}

TEST(Optimizer, cast_rounds_once_in_every_direction) {
  Random random(1);
  for_types([&](auto from) {
    for_types([&](auto to) {
      using In = decltype(from);
      using Out = decltype(to);
      const Mat x = normal_mat(random, 37, 19, 1, dtype_of<In>);
      Guarded<In> in(x, {.pitch = 23});
      Guarded<Out> out(37, 19, {.pitch = 20});
      ops::cast({.in = in.any_matrix(), .out = out.any_matrix()});
      Mat ref = x;
      for (double& e : ref.v) e = reference::Round::to(dtype_of<Out>)(e);
      EXPECT_EQ(check_exact("out", out.mat(), ref), "") << name_of(dtype_of<In>) << " to " << name_of(dtype_of<Out>);
      out.expect_guards_intact("out");
    });
  });
}

TEST(Optimizer, cast_to_fp16_is_the_same_in_vectors_and_one_by_one) {
  // Of every exponent, some of them no number, and a row that ends within a vector.
  std::vector<float> x;
  for (std::uint32_t i = 0; i < 70005; ++i) x.push_back(std::bit_cast<float>(i * 61357U));
  std::vector<fp16> out(x.size());
  const auto size = static_cast<std::int64_t>(x.size());
  ops::cast({.in = MatrixOf<const float>(x.data(), 1, size), .out = MatrixOf<fp16>(out.data(), 1, size)});
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(out[i].bits, fp16(x[i]).bits) << i << ": " << std::bit_cast<std::uint32_t>(x[i]);
}

TEST(Optimizer, fp64_is_rounded_once_to_16_bits) {
  // Just off the middle of two neighbours, by less than fp32 can hold; beyond its range, and below it.
  const double bf = std::ldexp(1, -8), fp = std::ldexp(1, -11), little = std::ldexp(1, -40);
  const double inf = std::numeric_limits<double>::infinity(), least = std::ldexp(1, -1074);
  const double most_of_an_ulp = 0.75 * std::ldexp(1, -23);
  const Mat in(
      2, 7,
      {1 + bf + little, 1 + bf, 1 + 3 * bf - little, -1 - bf - little, least, 1e300, 1 + bf + most_of_an_ulp,
       1 + fp + little, 1 + fp, 1 + 3 * fp - little, -1 - fp - little, -least, -1e300, 1 + fp + most_of_an_ulp});
  const auto expect = [&](auto to, const Mat& ref) {
    using Out = decltype(to);
    Guarded<double> from(in);
    Guarded<Out> out(2, 7);
    ops::cast({.in = from.any_matrix(), .out = out.any_matrix()});
    EXPECT_EQ(check_exact("out", out.mat(), ref), "") << name_of(dtype_of<Out>);
    // A step of rate 0 leaves the master, and rounds it to the weight.
    Vec values = in.v;
    for (double& e : values) e = std::clamp(e, -1e5, 1e5);
    auto master = guarded_vector<double>(values), m = guarded_vector<double>(Vec(14)),
         v = guarded_vector<double>(Vec(14));
    auto gradient = guarded_vector<double>(Vec(14));
    Guarded<Out> weight(14, 1);
    ops::adamw({.master = master.any_vector(),
                .m = m.any_vector(),
                .v = v.any_vector(),
                .weight = weight.any_vector(),
                .gradient = gradient.any_vector()});
    for (std::int64_t i = 0; i < 14; ++i) {
      if (i % 7 == 5) continue;
      EXPECT_EQ(weight.get(i, 0), ref(i / 7, i % 7)) << i;
    }
  };
  expect(bf16(), Mat(2, 7, {1 + 2 * bf, 1, 1 + 2 * bf, -1 - 2 * bf, 0, inf, 1 + 2 * bf, 1, 1, 1, -1, 0, -inf, 1}));
  expect(fp16(), Mat(2, 7,
                     {1 + bf, 1 + bf, 1 + 3 * bf, -1 - bf, 0, inf, 1 + bf,  //
                      1 + 2 * fp, 1, 1 + 2 * fp, -1 - 2 * fp, 0, -inf, 1 + 2 * fp}));
}

TEST(Optimizer, squared_norm_accumulates_in_fp64) {
  Random random(2);
  for (const std::int64_t size : {0, 1, 7, 2048, 5003}) {
    for_types([&](auto element) {
      using T = decltype(element);
      const Vec x = normal_vec(random, size, 1, dtype_of<T>);
      auto in = guarded_vector<T>(x);
      auto out = guarded_vector<double>({std::nan("")});
      double ref = 0;
      for (const double e : x) ref += e * e;
      for (const double beta : {0.0, 1.0}) {
        ops::squared_norm({.x = in.any_vector(), .beta = beta, .out = out.any_vector()});
        EXPECT_NEAR(out.get(0, 0), ref * (1 + beta), 1e-12 * ref) << name_of(dtype_of<T>) << " " << size;
      }
    });
  }
}

/// 1 - beta2 of a beta2 in fp32 would be 1.7e-4 of itself off.
TEST(Optimizer, what_a_step_adds_to_the_moments_is_rounded_once) {
  const double beta1 = 0.999, beta2 = 0.9999;
  auto master = guarded_vector<float>({1}), m = guarded_vector<float>({0}), v = guarded_vector<float>({0});
  auto gradient = guarded_vector<float>({1});
  auto weight = guarded_vector<float>({0});
  ops::adamw({.master = master.any_vector(),
              .m = m.any_vector(),
              .v = v.any_vector(),
              .weight = weight.any_vector(),
              .gradient = gradient.any_vector(),
              .rate = 0.125,
              .beta1 = beta1,
              .beta2 = beta2,
              .eps = 1e-12});
  EXPECT_FLOAT_EQ(static_cast<float>(m.get(0, 0)), static_cast<float>(1 - beta1));
  EXPECT_FLOAT_EQ(static_cast<float>(v.get(0, 0)), static_cast<float>(1 - beta2));
  EXPECT_NEAR(master.get(0, 0), 1 - 0.125, 1e-6) << "the first step is as long as the rate";
}

struct State {
  Guarded<float> master, m, v, gradient;
  Guarded<bf16> weight;
  Guarded<double> norm;

  explicit State(const Mat& w)
      : master(w),
        m(Mat(w.rows, 1, 0.5)),
        v(Mat(w.rows, 1, 0.25)),
        gradient(Mat(w.rows, 1, 2.0)),
        weight(w.rows, 1),
        norm(Mat(1, 1, 4.0 * static_cast<double>(w.rows))) {}
  ops::AdamW call() {
    return {.master = master.any_vector(),
            .m = m.any_vector(),
            .v = v.any_vector(),
            .weight = weight.any_vector(),
            .gradient = gradient.any_vector(),
            .rate = 0.01,
            .weight_decay = 0.1,
            .step = 3,
            .gradient_scale = 0.5,
            .squared_norm = norm.any_vector()};
  }
};

TEST(Optimizer, adamw_is_its_formula) {
  Random random(3);
  const Mat w = normal_mat(random, 5003, 1, 1, DType::fp32);
  // Not clipped, clipped, clipped where the scale turns the gradient, and a gradient that is short enough.
  for (const auto& [clip, scale] : {std::pair{0.0, 0.5}, {7.0, 0.5}, {7.0, -0.5}, {1e3, 0.5}}) {
    State s(w);
    ops::AdamW call = s.call();
    call.clip_norm = clip;
    call.gradient_scale = scale;
    ops::adamw(call);
    const double norm = std::sqrt(4.0 * 5003) * 0.5;
    const double g = 2.0 * scale * (clip == 7 ? clip / norm : 1);
    const double m = 0.9 * 0.5 + 0.1 * g, v = 0.95 * 0.25 + 0.05 * g * g;
    const double step = 0.01 * m / (1 - std::pow(0.9, 3)) / (std::sqrt(v / (1 - std::pow(0.95, 3))) + 1e-8);
    for (std::int64_t i = 0; i < w.rows; ++i) {
      ASSERT_NEAR(s.master.get(i, 0), w(i, 0) * (1 - 0.01 * 0.1) - step, 1e-6) << i;
      ASSERT_NEAR(s.m.get(i, 0), m, 1e-6) << i;
      ASSERT_NEAR(s.v.get(i, 0), v, 1e-6) << i;
      ASSERT_EQ(s.weight.get(i, 0).bits, bf16(s.master.get(i, 0)).bits) << i;
    }
    s.weight.expect_guards_intact("weight");
    s.master.expect_guards_intact("master");
  }
}

TEST(Optimizer, adamw_changes_nothing_where_the_norm_is_not_finite) {
  const Mat w(10, 1, 1.0);
  for (const double norm : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    State s(w);
    s.norm.put(0, 0, norm);
    ops::adamw(s.call());
    EXPECT_EQ(check_exact("master", s.master.mat(), w), "");
    EXPECT_EQ(check_exact("m", s.m.mat(), Mat(10, 1, 0.5)), "");
    EXPECT_NE(s.weight.unwritten("weight"), "");
  }
}

TEST(Optimizer, bad_calls_are_named_and_change_nothing) {
  const Mat w(10, 1, 1.0);
  State s(w);
  const auto expect = [&](const char* part, const std::function<void(ops::AdamW&)>& spoil) {
    ops::AdamW call = s.call();
    spoil(call);
    try {
      ops::adamw(call);
      ADD_FAILURE() << "expected an error: " << part;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\nexpected: " << part;
    }
    EXPECT_EQ(check_exact("master", s.master.mat(), w), "");
  };
  expect("adamw: master: expected dtype fp32 or fp64, got bf16", [](auto& c) { c.master.dtype = DType::bf16; });
  expect("adamw: m: expected 10 values, got 9", [](auto& c) { c.m.size = 9; });
  expect("adamw: v: expected dtype fp32, got fp64", [](auto& c) { c.v.dtype = DType::fp64; });
  expect("adamw: gradient: expected dtype bf16, fp16, fp32 or fp64", [](auto& c) { c.gradient.dtype = DType::int32; });
  expect("adamw: rate: expected a number of at least 0 in fp32, got -1", [](auto& c) { c.rate = -1; });
  expect("adamw: beta1: expected a number from 0 to below 1 in fp32, got 1", [](auto& c) { c.beta1 = 1; });
  expect("adamw: beta2: expected a number from 0 to below 1 in fp32, got 0.9999",
         [](auto& c) { c.beta2 = 0.99999999; });
  expect("adamw: eps: expected a positive number in fp32, got 0", [](auto& c) { c.eps = 0; });
  expect("adamw: eps: expected a positive number in fp32, got 1e-50", [](auto& c) { c.eps = 1e-50; });
  expect("adamw: gradient_scale: expected a finite number in fp32", [](auto& c) { c.gradient_scale = 1e50; });
  expect("adamw: step: expected a number from 1 on, got 0", [](auto& c) { c.step = 0; });
  expect("adamw: squared_norm: expected the squared norm of all gradients", [](auto& c) {
    c.clip_norm = 1;
    c.squared_norm = {};
  });
  expect("adamw: v: expected memory of its own, got memory that overlaps the output m", [](auto& c) { c.v = c.m; });
  EXPECT_THROW(ops::squared_norm({.x = s.gradient.any_vector(), .beta = 0.5, .out = s.norm.any_vector()}), Error);
  EXPECT_THROW(ops::squared_norm({.x = s.gradient.any_vector(), .out = s.gradient.any_vector()}), Error);
  EXPECT_THROW(ops::cast({.in = s.gradient.any_matrix(), .out = s.gradient.any_matrix()}), Error);
}

}  // namespace
}  // namespace coda::test
