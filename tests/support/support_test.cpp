// The checks must be able to fail: each is fed the fault that it is there for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/accuracy.h"
#include "tests/support/guarded.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

#define EXPECT_CONTAINS(text, part) EXPECT_TRUE(contains(text, part)) << "text: \"" << (text) << "\"\nlacks: " << (part)

/// A product in bf16: its fp64 reference, the unfused chain, and an output that differs from neither by more than it
/// may.
struct Sample {
  Mat ref, chain, out;
  explicit Sample(std::int64_t m = 300, std::int64_t n = 520) {
    Random random(1);
    const Problem p = normal_problem(random, Layout::abt, m, n, 24, 1.0, DType::bf16);
    ref = reference::product(p.operands());
    chain = reference::product(p.operands(), reference::Round::to(DType::bf16));
    out = chain;
  }
};

TEST(Accuracy, AcceptsTheChainItself) {
  const Sample s;
  EXPECT_EQ(check_bound("gemm.D", s.out, s.ref, s.chain, DType::bf16), "");
  EXPECT_EQ(check_relative("gemm.D", s.out, s.ref, DType::bf16), "");
  EXPECT_EQ(check_accuracy("gemm.D", s.out, s.ref, s.chain, DType::bf16), "");
  EXPECT_EQ(check_exact("gemm.D", s.out, s.chain), "");
}

TEST(Accuracy, EveryCheckFailsOnOneNaN) {
  Sample s;
  s.out(200, 515) = kNaN;
  for (const std::string& text :
       {check_bound("gemm.D", s.out, s.ref, s.chain, DType::bf16), check_relative("gemm.D", s.out, s.ref, DType::bf16),
        check_accuracy("gemm.D", s.out, s.ref, s.chain, DType::bf16), check_exact("gemm.D", s.out, s.chain)}) {
    EXPECT_CONTAINS(text, "gemm.D");
    EXPECT_CONTAINS(text, "nan");
    EXPECT_CONTAINS(text, "row 200, column 515 of (300, 520), tile (1, 4)");
  }
  EXPECT_TRUE(std::isnan(deviation(s.out, s.ref, s.chain, DType::bf16).error));
}

TEST(Accuracy, ANaNInTheReferenceProvesNothingAndFails) {
  Sample s;
  s.ref(7, 9) = s.out(7, 9) = kNaN;
  EXPECT_CONTAINS(check_bound("gemm.D", s.out, s.ref, s.chain, DType::bf16), "the reference is nan");
  EXPECT_CONTAINS(check_relative("gemm.D", s.out, s.ref, DType::bf16), "the reference is nan");
}

TEST(Accuracy, ANaNOfTheChainDoesNotLoosenTheBound) {
  Sample s;
  s.chain(0, 0) = kNaN;
  s.chain(0, 1) = kInf;
  EXPECT_EQ(deviation(s.out, s.ref, s.chain, DType::bf16).overflowed, 2);
  s.out(5, 5) += 1.0;
  EXPECT_CONTAINS(check_bound("gemm.D", s.out, s.ref, s.chain, DType::bf16), "row 5, column 5");
}

TEST(Accuracy, AZeroedPatchInABigMatrixIsFound) {
  Random random(2);
  const Mat ref = normal_mat(random, 2048, 1536, 1.0, DType::bf16);
  Mat out = ref;
  for (std::int64_t m = 1024; m < 1040; ++m)
    for (std::int64_t n = 640; n < 672; ++n) out(m, n) = 0.0;
  // One number for the whole matrix accepts the patch (this is why tiles are looked at one by one) ...
  EXPECT_EQ(check_relative("gemm.D", out, ref, DType::bf16, 0.02, {2048, 1536}), "");
  // ... and every other way finds it.
  EXPECT_CONTAINS(check_relative("gemm.D", out, ref, DType::bf16), "over tile (8, 5)");
  EXPECT_CONTAINS(check_bound("gemm.D", out, ref, ref, DType::bf16), "tile (8, 5)");
  EXPECT_CONTAINS(check_exact("gemm.D", out, ref), "row 1024, column 640");
}

TEST(Accuracy, OneSwappedPairIsFound) {
  Sample s;
  std::swap(s.out(17, 130), s.out(17, 131));
  // Two neighbours may be so close that only exact inputs tell them apart ...
  EXPECT_CONTAINS(check_exact("gemm.D", s.out, s.chain), "row 17, column 130");
  EXPECT_CONTAINS(check_exact("gemm.D", s.out, s.chain), "2 of 156000 elements differ");
  // ... two that differ as two random values do (by sqrt(2) deviations) fail under rounding too.
  std::swap(s.out(17, 130), s.out(17, 131));
  std::int64_t n = 128;
  while (std::fabs(s.ref(17, n) - s.ref(17, n + 1)) < std::sqrt(2.0 * 24)) n += 2;
  std::swap(s.out(17, n), s.out(17, n + 1));
  EXPECT_CONTAINS(check_bound("gemm.D", s.out, s.ref, s.chain, DType::bf16), "at row 17, column " + std::to_string(n));
  EXPECT_CONTAINS(check_relative("gemm.D", s.out, s.ref, DType::bf16), "over tile (0, 1)");
}

TEST(Accuracy, BoundIsTwiceTheChainPlusOneUlpAtTheLargestValue) {
  const Mat ref(1, 2, {100.0, 1.0});
  const Mat chain(1, 2, {100.25, 1.0});
  const double ulp = 0.5;  // of bf16 in [64, 128)
  EXPECT_EQ(deviation(ref, ref, chain, DType::bf16).bound, 2 * 0.25 + ulp);
  EXPECT_EQ(check_bound("x", Mat(1, 2, {100.0, 2.0}), ref, chain, DType::bf16), "");
  EXPECT_NE(check_bound("x", Mat(1, 2, {100.0, 2.0 + 1e-6}), ref, chain, DType::bf16), "");
}

TEST(Accuracy, UlpIsThatOfTheType) {
  EXPECT_EQ(ulp_at(DType::bf16, 1.0), 0x1p-7);
  EXPECT_EQ(ulp_at(DType::fp16, 1.5), 0x1p-10);
  EXPECT_EQ(ulp_at(DType::fp32, -2.0), 0x1p-22);
  EXPECT_EQ(ulp_at(DType::fp64, 1.0), 0x1p-52);
  EXPECT_EQ(ulp_at(DType::fp16, 0.0), 0x1p-24);
  EXPECT_EQ(ulp_at(DType::fp16, 1e9), 32.0);
}

TEST(Accuracy, OverflowIsRightOnlyWhereTheTypeOverflows) {
  const Mat ref(1, 3, {1e6, -1e6, 100.0});
  EXPECT_EQ(check_accuracy("x", Mat(1, 3, {kInf, -kInf, 100.0}), ref, ref, DType::fp16), "");
  EXPECT_NE(check_accuracy("x", Mat(1, 3, {kInf, kInf, 100.0}), ref, ref, DType::fp16), "");
  EXPECT_NE(check_accuracy("x", Mat(1, 3, {kInf, -kInf, kInf}), ref, ref, DType::fp16), "");
  EXPECT_NE(check_accuracy("x", Mat(1, 3, {kInf, -kInf, 100.0}), ref, ref, DType::bf16), "");
  EXPECT_CONTAINS(check_bound("x", ref, Mat(1, 3, 1.0), Mat(1, 3, kInf), DType::fp16), "overflows everywhere");
}

TEST(Accuracy, AnotherShapeFailsAndAnEmptyOnePasses) {
  const Mat three(2, 3), two(3, 2), none(0, 5);
  EXPECT_CONTAINS(check_bound("x", three, two, two, DType::bf16), "shape (2, 3), the reference has (3, 2)");
  EXPECT_CONTAINS(check_bound("x", two, two, three, DType::bf16), "the chain has (2, 3)");
  EXPECT_CONTAINS(check_relative("x", three, two, DType::bf16), "shape");
  EXPECT_CONTAINS(check_exact("x", three, two), "shape");
  EXPECT_EQ(check_accuracy("x", none, none, none, DType::bf16), "");
  EXPECT_EQ(check_exact("x", none, none), "");
}

TEST(Accuracy, RelativeLimitIsTighterForWiderTypes) {
  const Mat ref(4, 4, 1.0), out(4, 4, 1.0 + 1e-4);
  EXPECT_EQ(check_relative("x", out, ref, DType::bf16), "");
  EXPECT_NE(check_relative("x", out, ref, DType::fp32), "");
  EXPECT_NE(check_relative("x", Mat(4, 4, 1.0 + 1e-8), ref, DType::fp64), "");
  EXPECT_NE(check_relative("x", Mat(4, 4, 1e-3), Mat(4, 4), DType::bf16), "");  // a reference of zeros
}

TEST(Bits, OneDifferentBitIsFoundWhateverThePitch) {
  Random random(3);
  const Mat x = normal_mat(random, 5, 7, 1.0, DType::bf16);
  Guarded<bf16> a(x), b(x, {.pitch = 16});
  EXPECT_EQ(check_bits("gemm.D", a, b), "");
  b.matrix().row(3)[6].bits ^= 1u;
  EXPECT_CONTAINS(check_bits("gemm.D", a, b), "row 3, column 6 of (5, 7) bf16");
  b.set(x);
  a.put(0, 0, 0.0), b.put(0, 0, -0.0);
  EXPECT_CONTAINS(check_bits("gemm.D", a, b), "bits 0x0000 and 0x8000");
  Guarded<fp16> other(x);
  EXPECT_CONTAINS(check_bits("gemm.D", a.const_matrix(), other.const_matrix()), "not the same kind");
}

TEST(Guarded, StartsAsNaNAndReportsWhatWasNeverWritten) {
  Guarded<bf16> d(3, 4, {.pitch = 6});
  EXPECT_TRUE(std::isnan(static_cast<float>(d.get(2, 3))));
  EXPECT_CONTAINS(d.unwritten("gemm.D"), "12 of its (3, 4) elements never written, first at row 0, column 0");
  d.set(Mat(3, 4, 1.0));
  EXPECT_EQ(d.unwritten("gemm.D"), "");
  d.matrix().row(1)[2].bits = 0xffff;
  EXPECT_CONTAINS(d.unwritten("gemm.D"), "1 of its (3, 4) elements never written, first at row 1, column 2");
  EXPECT_EQ(d.guard_damage("gemm.D"), "");
  d.poison();
  EXPECT_CONTAINS(d.unwritten("gemm.D"), "12 of");
}

TEST(Guarded, OneByteOutsideIsFound) {
  const auto damage = [](std::int64_t byte) {
    Guarded<float> d(Mat(2, 3, 1.0), {.pitch = 5, .misalign = 4});
    d.forbid_guards(false);
    reinterpret_cast<unsigned char*>(d.data())[byte] = 0;
    return d.guard_damage("rope.Y");
  };
  EXPECT_EQ(damage(11), "");  // the last byte of row 0
  EXPECT_CONTAINS(damage(12), "rope.Y: wrote outside of its (2, 3) elements: padding of row 0, column 3 of pitch 5");
  EXPECT_CONTAINS(damage(39), "padding of row 1, column 4");
  EXPECT_CONTAINS(damage(40), "1 bytes past the end");
  EXPECT_CONTAINS(damage(40 + 4095), "4096 bytes past the end");
  EXPECT_CONTAINS(damage(-1), "1 bytes before the begin");
  EXPECT_CONTAINS(damage(-4096), "4096 bytes before the begin");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(GuardedDeathTest, AReadOutsideIsCaughtByAddressSanitizer) {
  Guarded<float> d(Mat(2, 3, 1.0));
  volatile float* data = d.data();
  EXPECT_DEATH({ [[maybe_unused]] const float x = data[6]; }, "use-after-poison");
  EXPECT_DEATH({ [[maybe_unused]] const float x = data[-1]; }, "use-after-poison");
}
#endif

TEST(Guarded, PlacesDataWhereAsked) {
  const auto offset = [](auto& x) { return reinterpret_cast<std::uintptr_t>(x.data()) % 64; };
  Guarded<bf16> aligned(3, 3), off(3, 3, {.misalign = 2}), odd(3, 3, {.misalign = 1});
  EXPECT_EQ(offset(aligned), 0u);
  EXPECT_EQ(offset(off), 2u);
  EXPECT_EQ(offset(odd), 1u);
  odd.set(Mat(3, 3, 2.0));
  EXPECT_EQ(odd.mat().v, Mat(3, 3, 2.0).v);
  EXPECT_THROW((Guarded<bf16>(3, 3, {.pitch = 2})), std::logic_error);
}

TEST(Guarded, GivesTheLibrarysViews) {
  Guarded<fp16> x(Mat(2, 3, {1, 2, 3, 4, 5, 6}), {.pitch = 8});
  EXPECT_EQ(static_cast<float>(x.matrix().row(1)[2]), 6.0f);
  EXPECT_EQ(x.const_matrix().pitch, 8);
  const Matrix any = x.any_matrix();
  EXPECT_EQ(any.dtype, DType::fp16);
  EXPECT_EQ(any.rows * 100 + any.cols * 10 + any.pitch, 238);
  EXPECT_THROW(x.vector(), std::logic_error);

  Guarded<float> v = guarded_vector<float>({1, 2, 3});
  EXPECT_EQ(v.vector().size, 3);
  EXPECT_EQ(v.any_vector().dtype, DType::fp32);
  EXPECT_EQ(v.values(), (Vec{1, 2, 3}));
  Guarded<std::int64_t> t = guarded_targets({7, -100});
  EXPECT_EQ(t.const_vector().data[1], -100);

  Guarded<bf16> empty(0, 4);
  EXPECT_EQ(empty.guard_damage("x"), "");
  EXPECT_EQ(empty.unwritten("x"), "");
}

TEST(Random, RepeatsFromItsSeedAndHoldsToItsType) {
  Random a(42), b(42), c(43);
  const Mat x = normal_mat(a, 64, 64, 1e3, DType::bf16);
  EXPECT_EQ(x.v, normal_mat(b, 64, 64, 1e3, DType::bf16).v);
  EXPECT_NE(x.v, normal_mat(c, 64, 64, 1e3, DType::bf16).v);
  EXPECT_EQ(Guarded<bf16>(x).mat().v, x.v);
  EXPECT_EQ(Random(0).next(), 0xe220a8397b1dcdafu);  // SplitMix64's published first value for seed 0

  double sum = 0.0, squares = 0.0;
  for (const double e : x.v) sum += e / 1e3, squares += e * e / 1e6;
  EXPECT_NEAR(sum / 4096, 0.0, 0.06);
  EXPECT_NEAR(squares / 4096, 1.0, 0.1);

  std::set<std::int64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(a.integer(-2, 2));
  EXPECT_EQ(seen, (std::set<std::int64_t>{-2, -1, 0, 1, 2}));
  for (int i = 0; i < 200; ++i) {
    const double u = a.uniform(3.0, 4.0);
    EXPECT_TRUE(u >= 3.0 && u < 4.0);
  }
}

TEST(Random, ExactProblemsAreExactInEveryTypeAndLayout) {
  for (const Layout layout : {Layout::abt, Layout::ab, Layout::atb}) {
    Random random(5);
    const Problem p = exact_problem(random, layout, 65, 70, 333);
    const Mat ref = reference::product(p.operands());
    double largest = 0.0;
    for (const double e : ref.v) largest = std::fmax(largest, std::fabs(e));
    EXPECT_GT(largest, 16.0);
    EXPECT_LE(largest, 128.0);
    for (const DType type : {DType::bf16, DType::fp16, DType::fp32})
      EXPECT_EQ(check_exact("gemm.D", reference::product(p.operands(), reference::Round::to(type)), ref), "")
          << name_of(layout) << " " << name_of(type);
  }
  Random random(6);
  const auto targets = random_targets(random, 400, 10, 4);
  EXPECT_GT(std::count(targets.begin(), targets.end(), -100), 50);
}

}  // namespace
}  // namespace coda::test
