#include "coda/nn/adamw.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "coda/nn/convert.h"
#include "coda/nn/rng.h"
#include "coda/nn/schedule.h"
#include "tests/nn/scratch.h"

namespace {

using coda::ConstVector;
using coda::DType;
using coda::Status;
using coda::nn::AdamW;
using coda::nn::AdamWOptions;
using coda::nn::HostTensor;
using coda::nn::Rng;
using coda::testing::expect_error;

HostTensor random_tensor(DType dtype, std::int64_t size, std::uint64_t stream, double scale) {
  HostTensor tensor(dtype, {size});
  const Rng rng(77, stream);
  for (std::int64_t i = 0; i < size; ++i) {
    const double x = scale * rng.normal(static_cast<std::uint64_t>(i));
    coda::nn::store_as(&x, 1, tensor.data(), dtype, i);
  }
  return tensor;
}

double value(const HostTensor& tensor, std::int64_t i) {
  double x = 0;
  coda::nn::load_as(tensor.data(), tensor.dtype(), i, 1, &x);
  return x;
}

bool same_bits(const HostTensor& a, const HostTensor& b) {
  return a.bytes().size() == b.bytes().size() && std::memcmp(a.data(), b.data(), a.bytes().size()) == 0;
}

TEST(Convert, NamesATypeThatIsNoFloatingPoint) {
  const std::int32_t one = 1;
  double x = 0;
  expect_error(
      Status::invalid_argument, [&] { coda::nn::load_as(&one, DType::int32, 0, 1, &x); }, "convert: dtype",
      "got int32");
}

TEST(AdamW, FollowsTheFormulaInDouble) {
  const std::int64_t size = 5000;
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.3, .clip_norm = 1.5};
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32, DType::fp64}) {
    HostTensor w = random_tensor(dtype, size, 1, 1.0), b = random_tensor(dtype, 3, 2, 1.0);
    AdamW adam({{"w", w.vector(), true}, {"b", b.vector(), false}}, options);
    std::vector<double> ref, m(size + 3), v(size + 3);
    for (std::int64_t i = 0; i < size; ++i) ref.push_back(value(w, i));
    for (std::int64_t i = 0; i < 3; ++i) ref.push_back(value(b, i));
    for (int t = 1; t <= 4; ++t) {
      const auto stream = static_cast<std::uint64_t>(10 * t);
      const HostTensor gw = random_tensor(dtype, size, stream, 0.1),
                       gb = random_tensor(DType::fp32, 3, stream + 1, 0.1);
      const double rate = 0.01 * t, scale = 0.5;
      const ConstVector gradients[] = {gw.vector(), gb.vector()};
      const auto result = adam.step(gradients, rate, scale);
      double sum = 0;
      for (std::int64_t i = 0; i < size + 3; ++i) {
        const double g = scale * (i < size ? value(gw, i) : value(gb, i - size));
        sum += g * g;
      }
      ASSERT_TRUE(result.applied);
      ASSERT_NEAR(result.gradient_norm, std::sqrt(sum), 1e-12 * std::sqrt(sum));
      ASSERT_GT(std::sqrt(sum), options.clip_norm) << "the case should clip";
      for (std::int64_t i = 0; i < size + 3; ++i) {
        const auto k = static_cast<std::size_t>(i);
        const double g = scale * (i < size ? value(gw, i) : value(gb, i - size)) * options.clip_norm / std::sqrt(sum);
        m[k] = options.beta1 * m[k] + (1 - options.beta1) * g;
        v[k] = options.beta2 * v[k] + (1 - options.beta2) * g * g;
        const double mh = m[k] / (1 - std::pow(options.beta1, t)), vh = v[k] / (1 - std::pow(options.beta2, t));
        if (i < size) ref[k] *= 1 - rate * options.weight_decay;
        ref[k] -= rate * mh / (std::sqrt(vh) + options.eps);
      }
    }
    const double tolerance = dtype == DType::fp64 ? 1e-13 : 2e-6;
    for (std::int64_t i = 0; i < size + 3; ++i) {
      const HostTensor& master = adam.slots()[i < size ? 0 : 1].master;
      const std::int64_t k = i < size ? i : i - size;
      ASSERT_TRUE(std::abs(value(master, k) - ref[static_cast<std::size_t>(i)]) <= tolerance) << name_of(dtype) << i;
      double rounded = value(master, k);
      HostTensor one(dtype, {1});
      coda::nn::store_as(&rounded, 1, one.data(), dtype, 0);
      ASSERT_EQ(value(i < size ? w : b, k), value(one, 0)) << "the model holds the rounded master";
    }
    EXPECT_EQ(adam.steps(), 4);
    EXPECT_EQ(adam.slots()[0].master.dtype(), dtype == DType::fp64 ? DType::fp64 : DType::fp32);
  }
}

TEST(AdamW, ClippingKeepsSmallGradientsAndZeroTurnsItOff) {
  for (const double clip : {0.0, 100.0}) {
    HostTensor w = random_tensor(DType::fp32, 10, 1, 1.0), u = w.clone();
    const HostTensor g = random_tensor(DType::fp32, 10, 2, 1.0);
    const ConstVector gradients[] = {g.vector()};
    AdamW a({{"w", w.vector(), true}}, {.clip_norm = clip}), b({{"w", u.vector(), true}}, {.clip_norm = 50.0});
    a.step(gradients, 0.1);
    b.step(gradients, 0.1);
    EXPECT_TRUE(same_bits(w, u));
    EXPECT_GT(b.step(gradients, 0.1, -1).gradient_norm, 0);
  }
}

TEST(AdamW, BitsDoNotDependOnTheNumberOfThreads) {
  const int before = omp_get_max_threads();
  HostTensor first;
  double first_norm = 0;
  for (const int threads : {1, 2, 3, 7}) {
    omp_set_num_threads(threads);
    HostTensor w = random_tensor(DType::bf16, 100003, 1, 1.0), b = random_tensor(DType::bf16, 17, 2, 1.0);
    AdamW adam({{"w", w.vector(), true}, {"b", b.vector(), false}}, {});
    double norm = 0;
    for (std::uint64_t t = 0; t < 3; ++t) {
      const HostTensor gw = random_tensor(DType::fp32, 100003, 3 + t, 1.0), gb = random_tensor(DType::fp32, 17, 9, 1.0);
      const ConstVector gradients[] = {gw.vector(), gb.vector()};
      norm = adam.step(gradients, 0.01).gradient_norm;
    }
    if (threads == 1) {
      first = adam.slots()[0].master.clone();
      first_norm = norm;
    }
    EXPECT_EQ(norm, first_norm) << threads;
    EXPECT_TRUE(same_bits(first, adam.slots()[0].master)) << threads;
  }
  omp_set_num_threads(before);
}

TEST(AdamW, ANormThatIsNotFiniteChangesNothing) {
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    HostTensor w = random_tensor(DType::fp32, 3000, 1, 1.0);
    const HostTensor copy = w.clone();
    HostTensor g = random_tensor(DType::fp32, 3000, 2, 1.0);
    g.values<float>()[2999] = poison;
    AdamW adam({{"w", w.vector(), true}}, {});
    const ConstVector gradients[] = {g.vector()};
    const auto result = adam.step(gradients, 0.1);
    EXPECT_FALSE(result.applied);
    EXPECT_FALSE(std::isfinite(result.gradient_norm));
    EXPECT_EQ(adam.steps(), 0);
    EXPECT_TRUE(same_bits(w, copy));
    EXPECT_EQ(adam.slots()[0].m.values<float>()[0], 0.0f);
  }
}

TEST(AdamW, LargeGradientsDoNotOverflowTheNorm) {
  HostTensor g(DType::fp32, {4});
  for (float& x : g.values<float>()) x = 3e38f;
  const ConstVector gradients[] = {g.vector()};
  EXPECT_NEAR(coda::nn::gradient_norm(gradients) / 3e38, 2.0, 1e-6);
}

TEST(AdamW, RestoreContinuesBitwise) {
  const auto gradient = [](std::uint64_t t) { return random_tensor(DType::fp32, 4000, 100 + t, 1.0); };
  HostTensor w = random_tensor(DType::bf16, 4000, 1, 1.0), u = random_tensor(DType::bf16, 4000, 50, 1.0);
  AdamW straight({{"w", w.vector(), true}}, {}), resumed({{"w", u.vector(), true}}, {});
  for (std::uint64_t t = 0; t < 6; ++t) {
    if (t == 3) {
      auto& to = resumed.slots()[0];
      const auto& from = straight.slots()[0];
      to.master = from.master.clone();
      to.m = from.m.clone();
      to.v = from.v.clone();
      resumed.restore(straight.steps());
      EXPECT_TRUE(same_bits(w, u));
    }
    const HostTensor g = gradient(t);
    const ConstVector gradients[] = {g.vector()};
    straight.step(gradients, 0.01);
    if (t >= 3) resumed.step(gradients, 0.01);
  }
  EXPECT_TRUE(same_bits(w, u));
  EXPECT_TRUE(same_bits(straight.slots()[0].v, resumed.slots()[0].v));
}

TEST(AdamW, AStepThatOneStateCannotHoldChangesNone) {
  HostTensor wide(DType::fp64, {1}), narrow(DType::fp32, {1}), gradient(DType::fp32, {1});
  wide.values<double>()[0] = 1, narrow.values<float>()[0] = 1, gradient.values<float>()[0] = 1;
  AdamW adam({{"wide", wide.vector(), false}, {"narrow", narrow.vector(), false}}, {});
  const ConstVector gradients[] = {gradient.vector(), gradient.vector()};
  EXPECT_THROW(adam.step(gradients, 1e39), coda::Error);
  EXPECT_EQ(wide.values<double>()[0], 1);
  EXPECT_EQ(narrow.values<float>()[0], 1);
  EXPECT_EQ(adam.steps(), 0);
}

TEST(AdamW, AStepThatOneTensorCannotTakeChangesNone) {
  HostTensor first(DType::fp32, {4}), second(DType::fp32, {4}), gradient(DType::fp32, {4});
  for (float& x : gradient.values<float>()) x = 1;
  AdamW adam({{"first", first.vector(), true}, {"second", second.vector(), true}}, {});
  const ConstVector gradients[] = {gradient.vector(), second.vector()};
  expect_error(Status::invalid_argument, [&] { adam.step(gradients, 0.1); }, "weight", "overlaps the input gradient");
  EXPECT_EQ(first.values<float>()[0], 0);
  EXPECT_EQ(adam.slots()[0].m.values<float>()[0], 0);
}

TEST(AdamW, AnEmptyParameterNeedsNoMemory) {
  HostTensor w(DType::fp32, {1}), gradient(DType::fp32, {1});
  gradient.values<float>()[0] = 1;
  AdamW adam({{"none", coda::Vector(nullptr, DType::fp32, 0), true}, {"w", w.vector(), true}}, {});
  const ConstVector gradients[] = {{nullptr, DType::fp32, 0}, gradient.vector()};
  EXPECT_TRUE(adam.step(gradients, 0.1).applied);
  EXPECT_LT(w.values<float>()[0], 0);
}

TEST(AdamW, WrongArgumentsAreNamed) {
  HostTensor w(DType::fp32, {4}), ints(DType::int32, {4}), five(DType::fp32, {5});
  const auto make = [&](AdamWOptions o) { return [&w, o] { AdamW adam({{"w", w.vector(), true}}, o); }; };
  expect_error(Status::invalid_argument, make({.beta1 = 1}), "beta1", "got 1");
  expect_error(Status::invalid_argument, make({.beta2 = -0.5}), "beta2");
  expect_error(Status::invalid_argument, make({.beta2 = 1}), "beta2", "got 1");
  expect_error(Status::invalid_argument, make({.beta2 = 0.99999999}), "beta2", "in fp32", "got 0.99999999");
  expect_error(Status::invalid_argument, make({.eps = 0}), "eps");
  expect_error(Status::invalid_argument, make({.eps = 1e-50}), "eps", "in fp32");
  EXPECT_NO_THROW(AdamW({{"w", coda::Vector(HostTensor(DType::fp64, {0}).vector()), true}}, {.beta2 = 0.99999999}));
  expect_error(Status::invalid_argument, make({.weight_decay = std::nan("")}), "weight_decay");
  expect_error(Status::invalid_argument, [] { AdamW adam({}, {.beta1 = 1}); }, "beta1", "got 1");
  expect_error(Status::invalid_argument, make({.clip_norm = -1}), "clip_norm");
  expect_error(Status::invalid_argument, make({.clip_norm = HUGE_VAL}), "clip_norm", "got inf");
  expect_error(Status::invalid_argument, [&] { AdamW adam({{"ints", ints.vector(), true}}, {}); }, "ints", "int32");
  const coda::Vector none(nullptr, DType::fp32, 4);
  expect_error(Status::invalid_argument, [&] { AdamW adam({{"w", none, true}}, {}); }, "w", "null pointer");
  AdamW adam({{"w", w.vector(), true}}, {});
  expect_error(Status::invalid_argument, [&] { adam.step({}, 0.1); }, "gradients", "expected 1", "got 0");
  const ConstVector two[] = {w.vector(), w.vector()};
  expect_error(Status::invalid_argument, [&] { adam.step(two, 0.1); }, "gradients", "expected 1", "got 2");
  const ConstVector longer[] = {five.vector()}, wrong[] = {ints.vector()}, good[] = {w.vector()};
  const ConstVector null[] = {{nullptr, DType::fp32, 4}};
  expect_error(Status::invalid_argument, [&] { adam.step(longer, 0.1); }, "gradient of w", "expected 4", "got 5");
  expect_error(Status::invalid_argument, [&] { adam.step(wrong, 0.1); }, "gradient of w", "int32");
  expect_error(Status::invalid_argument, [&] { adam.step(null, 0.1); }, "gradient of w", "null pointer");
  expect_error(Status::invalid_argument, [&] { adam.step(good, -1); }, "rate");
  expect_error(Status::invalid_argument, [&] { adam.step(good, std::nan("")); }, "rate", "got nan");
  expect_error(Status::invalid_argument, [&] { adam.step(good, 1e39); }, "rate", "got 1e+39");
  expect_error(Status::invalid_argument, [&] { adam.step(good, 0.1, 1e39); }, "gradient_scale", "in fp32", "got 1e+39");
  expect_error(Status::invalid_argument, [&] { adam.restore(-1); }, "steps", "got -1");
  EXPECT_EQ(adam.steps(), 0);
}

TEST(CosineSchedule, WarmsUpThenDecaysToTheFloor) {
  const coda::nn::CosineSchedule schedule{.peak = 1.0, .floor = 0.1, .warmup = 10, .total = 110};
  EXPECT_DOUBLE_EQ(schedule.at(0), 0.1);
  EXPECT_DOUBLE_EQ(schedule.at(9), 1.0);
  EXPECT_DOUBLE_EQ(schedule.at(10), 1.0);
  EXPECT_NEAR(schedule.at(60), 0.55, 1e-12);
  EXPECT_NEAR(schedule.at(110), 0.1, 1e-12);
  EXPECT_NEAR(schedule.at(100000), 0.1, 1e-12);
  for (std::int64_t step = 10; step < 110; ++step) EXPECT_GT(schedule.at(step), schedule.at(step + 1));
  EXPECT_DOUBLE_EQ((coda::nn::CosineSchedule{.peak = 1, .floor = 0, .warmup = 0, .total = 10}.at(0)), 1.0);
}

TEST(StepsThatFit, AreBetweenTheLeastAndTheMost) {
  using coda::nn::steps_that_fit;
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(steps_that_fit(10, 0.25, 5, 100), 40);
  EXPECT_EQ(steps_that_fit(10, 0.25, 5, 30), 30);
  EXPECT_EQ(steps_that_fit(1, 0.25, 5, 30), 5);
  EXPECT_EQ(steps_that_fit(-1, 0.25, 5, 30), 5);
  EXPECT_EQ(steps_that_fit(std::nan(""), 0.25, 5, 30), 5);
  EXPECT_EQ(steps_that_fit(1e30, 0.25, 5, most), most) << "more than the type holds";
  EXPECT_EQ(steps_that_fit(1e30, 0.25, 5, 30), 30);
}

}  // namespace
