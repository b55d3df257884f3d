// What a tile of the CPU backend does that no shape of an operation is sure to meet: stores past the caches, and heads
// made of whole vectors or not.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "coda/backend/cpu/tile.h"
#include "coda/programs/activation.h"
#include "coda/programs/loss.h"
#include "coda/programs/residual.h"
#include "coda/programs/rope.h"
#include "tests/support/guarded.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

constexpr std::int64_t kRows = 7;

struct Where {
  std::int64_t cols, pitch, misalign;  // pitch 0: none
};
// Whole and partial fragments; rows that begin lines, do so now and then, and never.
constexpr Where kWhere[] = {{64, 0, 0},  {256, 0, 0},   {200, 224, 0}, {130, 130, 0},
                            {128, 0, 2}, {128, 144, 0}, {64, 0, 32},   {37, 64, 0}};

Mat random_mat(std::int64_t rows, std::int64_t cols) {
  Random random(1);
  Mat x(rows, cols);
  for (double& v : x.v) v = random.normal();
  return x;
}

template <class P>
void run(const P& program, std::int64_t cols, const std::vector<float>& acc, std::int64_t ld, bool stream) {
  const cpu::TileGeometry g{
      .row = 0, .col = 0, .rows = kRows, .cols = cols, .tile_m = 0, .tile_n = 0, .stream = stream};
  cpu::run_epilogue<float, P>(&program, g, 0, kRows, acc.data(), ld);
}

std::vector<float> accumulator(std::int64_t ld) {
  const Mat x = random_mat(kRows + 1, ld);
  return {x.v.begin(), x.v.end()};
}

void expect_same(const Guarded<bf16>& stored, const Guarded<bf16>& streamed, const char* name) {
  EXPECT_EQ(streamed.guard_damage(name), "");
  EXPECT_EQ(streamed.unwritten(name), "");
  EXPECT_EQ(stored.mat().v, streamed.mat().v) << name;
}

TEST(CpuTile, StreamsWhatItWouldStore) {
  for (const Where& w : kWhere) {
    SCOPED_TRACE(testing::Message() << w.cols << " columns, pitch " << w.pitch << ", misaligned by " << w.misalign);
    const std::int64_t ld = (w.cols + 63) / 64 * 64;
    const auto acc = accumulator(ld);
    const auto outputs = [&](std::int64_t cols) {
      return Guarded<bf16>(kRows, cols, {.pitch = w.pitch == 0 ? 0 : cols + w.pitch - w.cols, .misalign = w.misalign});
    };
    Guarded<bf16> residual(random_mat(kRows, w.cols)), weight(random_mat(1, w.cols));
    auto x0 = outputs(w.cols), x1 = outputs(w.cols), h0 = outputs(w.cols), h1 = outputs(w.cols);
    run(GemmResidual<bf16>{residual.matrix(), {weight.data()}, x0.matrix(), h0.matrix()}, w.cols, acc, ld, false);
    run(GemmResidual<bf16>{residual.matrix(), {weight.data()}, x1.matrix(), h1.matrix()}, w.cols, acc, ld, true);
    expect_same(x0, x1, "x");
    expect_same(h0, h1, "h");

    Guarded<bf16> z(random_mat(kRows, 2 * w.cols));
    auto dz0 = outputs(2 * w.cols), dz1 = outputs(2 * w.cols), y0 = outputs(w.cols), y1 = outputs(w.cols);
    run(GemmGluBackward<bf16>{z.matrix(), dz0.matrix(), y0.matrix()}, w.cols, acc, ld, false);
    run(GemmGluBackward<bf16>{z.matrix(), dz1.matrix(), y1.matrix()}, w.cols, acc, ld, true);
    expect_same(dz0, dz1, "dpreact");
    expect_same(y0, y1, "out");

    if (w.cols % 2 != 0) continue;
    auto half0 = outputs(w.cols / 2), half1 = outputs(w.cols / 2);
    run(GemmNormGlu<bf16>{.out = half0.matrix()}, w.cols, acc, ld, false);
    run(GemmNormGlu<bf16>{.out = half1.matrix()}, w.cols, acc, ld, true);
    expect_same(half0, half1, "half as wide");
  }
}

/// z / sqrt(mean of z^2 over the head + eps) times the weight, of q, k and v heads in one tile.
TEST(CpuTile, NormalisesHeadsOfWholeVectorsAndOthers) {
  constexpr double kEps = 1e-3;
  for (const int dim : {2, 6, 8, 16, 24, 32, 48, 64, 80, 128}) {
    SCOPED_TRACE(testing::Message() << "heads of " << dim);
    const std::int64_t q = 2 * dim, k = dim, cols = q + k + dim, ld = (cols + 63) / 64 * 64;
    const auto acc = accumulator(ld);
    Guarded<float> wq(random_mat(1, dim)), wk(random_mat(1, dim)), out(kRows, cols), angles(kRows, dim);
    for (std::int64_t m = 0; m < kRows; ++m)
      for (std::int64_t i = 0; i < dim; ++i) angles.put(m, i, i % 2 == 0 ? 1 : 0);  // no rotation
    run(
        GemmNormQkNormRope<float>{
            .square = {.columns = q + k, .head_dim = dim, .eps = static_cast<float>(kEps)},
            .weight = {.q = wq.data(), .k = wk.data(), .q_columns = q, .columns = q + k, .head_dim = dim},
            .rope = {.table = angles.data(), .position = {}, .columns = q + k, .head_dim = dim},
            .out = out.matrix()},
        cols, acc, ld, true);
    EXPECT_EQ(out.guard_damage("out"), "");
    for (std::int64_t m = 0; m < kRows; ++m) {
      for (std::int64_t n = 0; n < cols; ++n) {
        const auto z = [&](std::int64_t c) { return static_cast<double>(acc[static_cast<std::size_t>(m * ld + c)]); };
        double expected = z(n);
        if (n < q + k) {
          double sum = 0;
          for (std::int64_t c = n / dim * dim; c < (n / dim + 1) * dim; ++c) sum += z(c) * z(c);
          const double weight = static_cast<double>((n < q ? wq : wk).get(0, n % dim));
          expected *= weight / std::sqrt(sum / dim + kEps);
        }
        const double got = static_cast<double>(out.get(m, n));
        EXPECT_TRUE(std::abs(got - expected) <= 1e-6 * std::abs(expected))
            << "row " << m << ", column " << n << ": " << got << ", expected " << expected;
      }
    }
  }
}

/// The largest logit in each lane and each fragment, among -inf, and the sum of exp by fp64.
TEST(CpuTile, FindsTheLogSumExpWhereverTheLargestIs) {
  constexpr std::int64_t kCols = 200, kLd = 256;
  for (std::int64_t at = 0; at < kCols; ++at) {
    auto acc = accumulator(kLd);
    for (std::int64_t m = 0; m < kRows; ++m) {
      const auto row = acc.begin() + m * kLd;
      if (m % 2 == 0) std::fill_n(row, kCols, -std::numeric_limits<float>::infinity());
      row[at] = 20.F + static_cast<float>(m);
      std::fill(row + kCols, row + kLd, 1000.F);  // outside of the matrix
    }
    Guarded<float> max(kRows, 1), sum(kRows, 1);
    run(GemmNormLse<float>{.lse = {max.matrix(), sum.matrix()}}, kCols, acc, kLd, true);
    for (std::int64_t m = 0; m < kRows; ++m) {
      double expected = 0;
      for (std::int64_t n = 0; n < kCols; ++n)
        expected +=
            std::exp(static_cast<double>(acc[static_cast<std::size_t>(m * kLd + n)]) - 20. - static_cast<double>(m));
      EXPECT_EQ(max.get(m, 0), 20.F + static_cast<float>(m)) << "row " << m << ", column " << at;
      EXPECT_NEAR(static_cast<double>(sum.get(m, 0)), expected, 1e-6) << "row " << m << ", column " << at;
    }
  }
}

/// A row of a table that is not there, asked for by a program that nothing checked.
TEST(CpuTile, LoadsNanForAnIndexOutsideOfItsTable) {
  constexpr std::int64_t kTable = 3;
  const std::int32_t index[kRows] = {0, -1, 2, 3, 1, std::numeric_limits<std::int32_t>::max(), 2};
  for (const std::int64_t cols : {200, 256}) {
    const std::int64_t ld = 256;
    const auto acc = accumulator(ld);
    Guarded<bf16> table(random_mat(kTable, cols)), x(kRows, cols);
    run(Embedding<bf16>{.table = {table.data(), cols, IndexVector(index), kTable}, .x = x.matrix()}, cols, acc, ld,
        true);
    for (const int dim : {32, 40}) {
      const std::int64_t turned = 4 * dim;
      Guarded<float> angles(random_mat(kTable, dim)), out(kRows, cols);
      run(GemmNormRope<float>{.rope = {angles.data(), IndexVector(index), turned, dim, kTable}, .out = out.matrix()},
          cols, acc, ld, true);
      for (std::int64_t m = 0; m < kRows; ++m) {
        const bool inside = index[m] >= 0 && index[m] < kTable;
        for (std::int64_t n = 0; n < cols; ++n) {
          EXPECT_EQ(std::isnan(static_cast<float>(x.get(m, n))), !inside) << "row " << m << ", column " << n;
          EXPECT_EQ(std::isnan(out.get(m, n)), !inside && n < turned) << "row " << m << ", column " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace coda::test
