// The judgement of `coda verify` must fail what is wrong.
#include "coda/cli/verdict.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/random.h"

namespace coda::cli {
namespace {

using test::Mat;

/// A product in bf16: fp64, the unfused chain (a detour of one more rounding) and an output that is rounded once.
struct Sample {
  Mat ref, chain, out;
};
Sample sample(std::int64_t rows, std::int64_t cols, DType type) {
  test::Random random(7);
  const auto round = reference::Round::to(type);
  Sample s{Mat(rows, cols), Mat(rows, cols), Mat(rows, cols)};
  for (std::size_t i = 0; i < s.ref.v.size(); ++i) {
    s.ref.v[i] = random.normal();
    s.out.v[i] = round(s.ref.v[i]);
    s.chain.v[i] = round(round(s.ref.v[i] * 3) / 3);
  }
  return s;
}

TEST(Verdict, RoundedOutputPassesWithItsFigures) {
  const Sample s = sample(40, 30, DType::bf16);
  const Verdict v = judge("out", s.out, s.ref, s.chain, DType::bf16, DType::bf16);
  EXPECT_TRUE(v.passed()) << v.failure;
  EXPECT_GT(v.error, 0);
  EXPECT_LE(v.error, v.bound);
  EXPECT_LE(v.relative, v.relative_limit);
  EXPECT_EQ(v.output, "out");
}

TEST(Verdict, OneWrongElementFailsTheBound) {
  Sample s = sample(40, 30, DType::bf16);
  s.out(17, 5) += 0.2;
  const Verdict v = judge("out", s.out, s.ref, s.chain, DType::bf16, DType::bf16);
  EXPECT_FALSE(v.passed());
  EXPECT_GT(v.error, v.bound);
  EXPECT_NE(v.failure.find("row 17, column 5"), std::string::npos) << v.failure;
}

TEST(Verdict, ScaledOutputFailsTheRelativeError) {
  Sample s = sample(40, 30, DType::bf16);
  for (double& x : s.ref.v) x *= 1e-3;  // small beside the unit in the last place of the largest
  s.out = s.ref, s.chain = s.ref;
  s.ref(0, 0) = s.out(0, 0) = s.chain(0, 0) = 1;
  for (std::size_t i = 1; i < s.out.v.size(); ++i) s.out.v[i] *= 1.5;
  const Verdict v = judge("out", s.out, s.ref, s.chain, DType::bf16, DType::bf16);
  EXPECT_LE(v.error, v.bound);
  EXPECT_FALSE(v.passed());
}

TEST(Verdict, NaNAndInfinityFail) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const DType type : {DType::bf16, DType::fp32, DType::fp64}) {
      Sample s = sample(40, 30, type);
      s.out(39, 29) = bad;
      EXPECT_FALSE(judge("out", s.out, s.ref, s.chain, type, type).passed()) << bad << " " << coda::name_of(type);
    }
  }
}

TEST(Verdict, OtherShapeFails) {
  const Sample s = sample(4, 6, DType::bf16);
  EXPECT_FALSE(judge("out", Mat(6, 4), s.ref, s.chain, DType::bf16, DType::bf16).passed());
}

TEST(Verdict, Fp64AllowsRoundingButNoMore) {
  Sample s = sample(40, 30, DType::fp64);
  for (double& x : s.out.v) x *= 1 + 1e-14;
  EXPECT_TRUE(judge("out", s.out, s.ref, s.ref, DType::fp64, DType::fp64).passed());
  for (double& x : s.out.v) x *= 1 + 1e-11;
  EXPECT_FALSE(judge("out", s.out, s.ref, s.ref, DType::fp64, DType::fp64).passed());
}

TEST(Verdict, AFewFp32ValuesGetRoomForOneThatCancels) {
  Sample s = sample(1, 1, DType::fp32);
  s.chain = s.ref;  // the chain was lucky
  s.out.v[0] = s.ref.v[0] * (1 + 1e-6);
  EXPECT_TRUE(judge("sum", s.out, s.ref, s.chain, DType::fp32, DType::fp32).passed());
  s.out.v[0] = s.ref.v[0] * (1 + 1e-3);
  EXPECT_FALSE(judge("sum", s.out, s.ref, s.chain, DType::fp32, DType::fp32).passed());
}

TEST(Verdict, AnFp32TileOfFewValuesGetsThatRoomToo) {
  Sample s = sample(129, 129, DType::fp32);
  s.ref(128, 128) = 0.01;
  s.out(128, 128) = 0.01 * (1 + 4e-5);
  EXPECT_TRUE(judge("out", s.out, s.ref, s.chain, DType::fp32, DType::fp32).passed());
  s.out(128, 128) = 0.01 * (1 + 1e-3);
  EXPECT_FALSE(judge("out", s.out, s.ref, s.chain, DType::fp32, DType::fp32).passed());
}

TEST(Verdict, OneWrongFp32ElementFailsTheBound) {
  Sample s = sample(40, 30, DType::fp32);
  s.out(17, 5) += 1e-4;
  const Verdict v = judge("out", s.out, s.ref, s.chain, DType::fp32, DType::fp32);
  EXPECT_LE(v.relative, v.relative_limit);
  EXPECT_FALSE(v.passed());
}

TEST(Verdict, Fp32StatisticOfASixteenBitProgramIsHeldToTheChain) {
  Sample s = sample(40, 30, DType::fp32);
  s.out(3, 3) += 0.05;
  EXPECT_FALSE(judge("sum", s.out, s.ref, s.chain, DType::fp32, DType::bf16).passed());
}

TEST(Verdict, LoneFp32StatisticOfASixteenBitProgramMayBeOneOfItsUnitsOff) {
  Sample s = sample(1, 1, DType::fp32);
  s.chain = s.ref;  // the chain was lucky
  s.out.v[0] = s.ref.v[0] * (1 + 1.0 / 256);
  EXPECT_TRUE(judge("sum", s.out, s.ref, s.chain, DType::fp32, DType::bf16).passed());
  EXPECT_FALSE(judge("sum", s.out, s.ref, s.chain, DType::fp32, DType::fp16).passed());
  s.out.v[0] = s.ref.v[0] * (1 + 1.0 / 32);
  EXPECT_FALSE(judge("sum", s.out, s.ref, s.chain, DType::fp32, DType::bf16).passed());
}

}  // namespace
}  // namespace coda::cli
