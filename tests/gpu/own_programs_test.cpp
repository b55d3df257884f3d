#include "tests/gpu/own_programs.h"

#include "coda/backend/sm90/run.h"
#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/support/accuracy.h"
#include "tests/support/error_of.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

struct Shape {
  std::int64_t m, n, k;
};

using HalfWidthPorts = OnHopper;

/// T: of the ports.
template <class T>
void expect_halves(Placed half_placed) {
  Random random(90);
  for (const Shape& s : {Shape{1, 8, 8}, {100, 264, 64}, {300, 520, 136}, {129, 130, 70}}) {
    // Small integers: every result is exact in bf16.
    const Mat a = integer_mat(random, s.m, s.k, -1, 1), b = integer_mat(random, s.n, s.k, -1, 1),
              half = integer_mat(random, s.m, s.n / 2, -20, 20);
    Mat out(s.m, s.n), half_out(s.m, s.n / 2);
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t n = 0; n < s.n; ++n) {
        out(m, n) = half(m, n / 2);
        for (std::int64_t k = 0; k < s.k; ++k) out(m, n) += a(m, k) * b(n, k);
      }
      for (std::int64_t j = 0; j < s.n / 2; ++j) half_out(m, j) = out(m, 2 * j) - out(m, 2 * j + 1);
    }
    const OnDevice<bf16> device_a(a), device_b(b);
    const OnDevice<T> device_half(half, half_placed);
    for (const sm90::Way way : {sm90::Way::fused, sm90::Way::unfused}) {
      SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + " " +
                   sm90::name_of(way));
      OnDevice<T> got(s.m, s.n), got_half(s.m, s.n / 2, half_placed);
      sm90::set_way(way);
      sm90::Product<bf16, HalfWidth<T>>::run(device_a.matrix(), device_b.matrix(), coda::Layout::nt,
                                             {.half = ConstMatrix(device_half.matrix()).as<T>(),
                                              .out = got.matrix().template as<T>(),
                                              .half_out = got_half.matrix().template as<T>()},
                                             nullptr, "half_width");
      sm90::set_way(sm90::Way::automatic);
      EXPECT_EQ(check_exact("out", got.fetch("out").mat(), out), "");
      EXPECT_EQ(check_exact("half_out", got_half.fetch("half_out").mat(), half_out), "");
    }
  }
}

/// Rows of half the width that are multiples of 16 bytes, and of 8 only.
TEST_F(HalfWidthPorts, OfAProgramAreReadAndWrittenInBothWays) {
  for (const Placed& placed : {Placed{}, Placed{.pad = 4}, Placed{.pad = 2}}) {
    SCOPED_TRACE("columns more in a row of half the width: " + std::to_string(placed.pad));
    expect_halves<bf16>(placed);
    expect_halves<float>(placed);
  }
}

using ManyLoadPorts = OnHopper;

template <class T>
void expect_many_loads() {
  Random random(91);
  // One of several tiles in each direction, ragged; one of more tiles than there are clusters.
  for (const Shape& s : {Shape{1, 8, 8}, {300, 520, 136}, {129, 130, 70}, {2100, 1544, 64}}) {
    const Mat a = integer_mat(random, s.m, s.k, -1, 1), b = integer_mat(random, s.n, s.k, -1, 1);
    std::vector<Mat> loads;
    for (int i = 0; i < 6; ++i) loads.push_back(integer_mat(random, s.m, s.n, -5, 5));
    const Mat pairs = integer_mat(random, s.m, 2 * s.n, -5, 5);
    Mat out = reference::product({a, b});
    for (std::int64_t m = 0; m < s.m; ++m) {
      for (std::int64_t n = 0; n < s.n; ++n) {
        for (int i = 0; i < 6; ++i) out(m, n) += i % 2 == 0 ? loads[i](m, n) : -loads[i](m, n);
        out(m, n) += pairs(m, 2 * n) - pairs(m, 2 * n + 1);
      }
    }
    const OnDevice<bf16> device_a(a), device_b(b);
    std::vector<OnDevice<T>> device_loads;
    for (const Mat& load : loads) device_loads.emplace_back(load);
    const OnDevice<float> device_pairs(pairs);
    const auto load = [&](int i) { return ConstMatrix(device_loads[i].matrix()).as<T>(); };
    for (const sm90::Way way : {sm90::Way::fused, sm90::Way::unfused}) {
      SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k) + " " +
                   sm90::name_of(way));
      OnDevice<T> got(s.m, s.n);
      sm90::set_way(way);
      sm90::Product<bf16, ManyLoads<T>>::run(device_a.matrix(), device_b.matrix(), coda::Layout::nt,
                                             {.a = load(0),
                                              .b = load(1),
                                              .c = load(2),
                                              .d = load(3),
                                              .e = load(4),
                                              .f = load(5),
                                              .pairs = ConstMatrix(device_pairs.matrix()).as<float>(),
                                              .out = got.matrix().template as<T>()},
                                             nullptr, "many_loads");
      sm90::set_way(sm90::Way::automatic);
      EXPECT_EQ(check_exact("out", got.fetch("out").mat(), out), "");
    }
  }
}

TEST_F(ManyLoadPorts, AreReadWhoeverBringsThemIntoTheKernel) {
  expect_many_loads<bf16>();
  expect_many_loads<float>();
}

TEST_F(HalfWidthPorts, OfAnotherShapeAreNamedAndNothingIsWritten) {
  constexpr std::int64_t kRows = 100, kColumns = 264, kK = 64;
  const OnDevice<bf16> a(kRows, kK), b(kColumns, kK);
  const OnDevice<float> out(kRows, kColumns), half(kRows, kColumns / 2);
  const auto poisoned = out.bits(), half_poisoned = half.bits();
  const auto product = [&](const MatrixOf<float>& to, const MatrixOf<float>& half_to) {
    return error_of([&] {
      sm90::Product<bf16, HalfWidth<float>>::run(a.matrix(), b.matrix(), coda::Layout::nt,
                                                 {.half = {}, .out = to, .half_out = half_to}, nullptr, "half_width");
    });
  };
  const auto elementwise = [&](std::int64_t m, std::int64_t n, const MatrixOf<float>& to) {
    return error_of([&] {
      sm90::Elementwise<HalfWidth<float>>::run(m, n, {.half = {}, .out = to, .half_out = {}}, nullptr, "half_width");
    });
  };
  float* const data = static_cast<float*>(out.matrix().data);
  float* const half_data = static_cast<float*>(half.matrix().data);
  const std::string expected = "half_width: program: expected a TileStore of ";
  EXPECT_EQ(product({data, kRows, kColumns / 2}, {}), expected + "shape (100, 264), got (100, 132)");
  EXPECT_EQ(product({data, kRows - 1, kColumns}, {}), expected + "shape (100, 264), got (99, 264)");
  EXPECT_EQ(product({data, kRows, kColumns}, {half_data, kRows, kColumns}),
            expected + "shape (100, 132), got (100, 264)");
  EXPECT_EQ(product({data, kRows, kColumns, kColumns - 8}, {}), expected + "264 columns, got a pitch of 256");
  EXPECT_EQ(elementwise(kRows, kColumns, {data, kRows, kColumns + 1}), expected + "shape (100, 264), got (100, 265)");
  EXPECT_EQ(elementwise(0, kColumns, {}), "");
  EXPECT_EQ(elementwise(0, -5, {}), "half_width: M, N: expected sizes of at least 0, got 0, -5");
  EXPECT_EQ(elementwise(-5, 0, {}), "half_width: M, N: expected sizes of at least 0, got -5, 0");
  EXPECT_TRUE(out.bits() == poisoned && half.bits() == half_poisoned);
}

}  // namespace
}  // namespace coda::test
