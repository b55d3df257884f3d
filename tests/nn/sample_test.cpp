#include "coda/nn/sample.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "coda/nn/rng.h"
#include "tests/nn/scratch.h"

namespace {

using coda::Status;
using coda::nn::philox4x32;
using coda::nn::PhiloxCounter;
using coda::nn::Rng;
using coda::nn::sample;
using coda::nn::SampleOptions;
using coda::testing::expect_error;

// The known answers that come with Random123.
TEST(Rng, PhiloxGivesTheKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (PhiloxCounter{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  const std::uint32_t all = 0xffffffffu;
  EXPECT_EQ(philox4x32({all, all, all, all}, {all, all}),
            (PhiloxCounter{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (PhiloxCounter{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Rng, MomentsAreThoseOfTheDistributions) {
  const Rng rng(1, 2);
  const int count = 200000;
  double sum = 0, square = 0, uniform = 0, fourth = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const double x = rng.normal(i), u = rng.uniform(i);
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
    uniform += u;
  }
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(square / count, 1, 0.02);
  EXPECT_NEAR(fourth / count, 3, 0.1);
  EXPECT_NEAR(uniform / count, 0.5, 0.005);
}

TEST(Rng, SeedsAndStreamsDiffer) {
  EXPECT_NE(Rng(1, 2).bits(0), Rng(2, 2).bits(0));
  EXPECT_NE(Rng(1, 2).bits(0), Rng(1, 3).bits(0));
  EXPECT_NE(Rng(1, 2).bits(0), Rng(1, 2).bits(std::uint64_t{1} << 32));
  EXPECT_NE(Rng(1, 2).bits(0), Rng(1 + (std::uint64_t{1} << 32), 2).bits(0));
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(Rng(1, 2).below(7, i), 7u);
}

std::vector<double> frequencies(const std::vector<float>& logits, const SampleOptions& options, int count = 20000) {
  std::vector<double> seen(logits.size());
  for (int i = 0; i < count; ++i) seen[static_cast<std::size_t>(sample(logits, options, i))] += 1.0 / count;
  return seen;
}

TEST(Sample, FollowsTheSoftmax) {
  const std::vector<float> logits{0.0f, 1.0f, -1.0f, 2.0f};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double total = 0;
    for (const float x : logits) total += std::exp(x / temperature);
    std::vector<float> large = logits;
    for (float& x : large) x += 4096;
    const auto seen = frequencies(logits, {.temperature = temperature});
    EXPECT_EQ(frequencies(large, {.temperature = temperature}, 2000),
              frequencies(logits, {.temperature = temperature}, 2000));
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(seen[i], std::exp(logits[i] / temperature) / total, 0.015);
    }
  }
}

TEST(Sample, TopKAndTopPKeepTheLikeliest) {
  const std::vector<float> logits{std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  const auto top2 = frequencies(logits, {.top_k = 2});
  EXPECT_EQ(top2[0] + top2[2], 0);
  EXPECT_NEAR(top2[1], 4.0 / 7, 0.015);
  const auto nucleus = frequencies(logits, {.top_p = 0.65});
  EXPECT_EQ(nucleus[0] + nucleus[2], 0);
  EXPECT_NEAR(nucleus[1], 4.0 / 7, 0.015);
  const auto three = frequencies(logits, {.top_p = 0.75});
  EXPECT_EQ(three[0], 0);
  EXPECT_NEAR(three[2], 2.0 / 9, 0.015);
  EXPECT_EQ(sample(logits, {.top_k = 1}, 3), 1);
  EXPECT_EQ(sample(logits, {.top_p = 1e-9}, 3), 1);
  EXPECT_EQ(frequencies(logits, {.top_k = 100}, 2000), frequencies(logits, {}, 2000)) << "more than there are";
}

TEST(Sample, OfEqualLogitsTheFirstAreKept) {
  const auto seen = frequencies(std::vector<float>(64, 0.5f), {.top_p = 0.125}, 2000);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i] > 0, i < 8) << i;
}

TEST(Sample, ZeroTemperatureTakesTheFirstOfTheLargest) {
  const std::vector<float> logits{1.0f, 3.0f, 3.0f, -std::numeric_limits<float>::infinity()};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(sample(logits, {.temperature = 0}, i), 1);
}

TEST(Sample, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(50, 0.0f);
  std::vector<std::int32_t> a, b, c;
  for (int i = 0; i < 50; ++i) {
    a.push_back(sample(logits, {.seed = 4}, i));
    b.push_back(sample(logits, {.seed = 4}, 49 - i));
    c.push_back(sample(logits, {.seed = 5}, i));
  }
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.rbegin()));
  EXPECT_NE(a, c);
}

TEST(Sample, TokensOfMinusInfinityAreNeverTaken) {
  const float none = -std::numeric_limits<float>::infinity();
  const auto seen = frequencies({none, 0.0f, none, 0.0f, none}, {.temperature = 10.0});
  EXPECT_EQ(seen[0] + seen[2] + seen[4], 0);
}

TEST(Sample, LogitsThatGiveNoDistributionAreNamed) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const auto call = [](std::vector<float> logits, SampleOptions options = {}) {
    return [=] { sample(logits, options, 0); };
  };
  expect_error(Status::invalid_argument, call({}), "logits", "at least one");
  expect_error(Status::invalid_argument, call({0, nan}), "logits", "nan");
  expect_error(Status::invalid_argument, call({0, inf}), "logits", "inf");
  expect_error(Status::invalid_argument, call({-inf, -inf}), "logits", "-inf only");
  expect_error(Status::invalid_argument, call({0}, {.temperature = -1}), "temperature");
  expect_error(Status::invalid_argument, call({0}, {.temperature = HUGE_VAL}), "temperature", "got inf");
  expect_error(Status::invalid_argument, call({0}, {.top_k = -1}), "top_k");
  expect_error(Status::invalid_argument, call({0}, {.top_p = 0}), "top_p");
  expect_error(Status::invalid_argument, call({0}, {.top_p = 1.5}), "top_p", "got 1.5");
}

}  // namespace
