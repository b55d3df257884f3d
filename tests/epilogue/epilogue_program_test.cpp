// Programs as a user writes them: every kind of port in one of them, on the CPU backend.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "coda/backend/cpu/gemm.h"
#include "tests/reference/mat.h"
#include "tests/support/accuracy.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

/// Ports in structs of their own, as a user groups them.
struct Edges {
  ColVector<const float> scale = {};
  RowVector<const float> shift = {.otherwise = 0};
};

/// Elementwise, pairwise 2 to 1, 1 to 2 and 2 to 2, vector and tile loads and stores of each width, reductions along n
/// and m with sum, max and abs-max, moments, online log-sum-exp and a target.
struct Everything {
  Edges edges = {};
  TileLoad<float> residual = {};
  TileLoad<float, Width::Double> wide = {};
  TileLoad<float, Width::Half> narrow = {};
  struct {
    TileStore<float> same = {};
    TileStore<float, Width::Half> half = {};
    TileStore<float, Width::Double> twice = {};
  } out = {};
  struct {
    ReduceN<Sum> sum = {};
    ReduceN<Max> max = {};
    ReduceN<AbsMax> abs_max = {};
    ReduceM<Sum> down_sum = {};
    ReduceM<Max> down_max = {};
    ReduceM<AbsMax> down_abs_max = {};
  } reduced = {};
  MomentsN<> moments = {};
  OnlineLse<> lse = {};
  TargetSelect<> target = {};
  ColVector<float> first_column = {};
  RowVector<float> first_row = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto x = acc * tile.load(edges.scale) + tile.load(edges.shift) + tile.load(residual);
    tile.store(out.same, x);
    tile.store(out.half, contract(x, Subtract{}) + tile.load(narrow));
    tile.store(out.twice, expand(x, Mirror{}) + tile.load(wide));
    tile.reduce(reduced.sum, x), tile.reduce(reduced.max, x), tile.reduce(reduced.abs_max, x);
    tile.reduce(reduced.down_sum, x), tile.reduce(reduced.down_max, x), tile.reduce(reduced.down_abs_max, x);
    tile.reduce(moments, x);
    tile.reduce(lse, x);
    tile.reduce(target, x);
    tile.store(first_column, x);
    tile.store(first_row, x);
  }
  struct Subtract {
    template <class S>
    CODA_FN S operator()(S even, S odd) const {
      return even - odd;
    }
  };
  struct Mirror {
    template <class S>
    CODA_FN Pair<S> operator()(S x) const {
      return {x, -x};
    }
  };
};
static_assert(Program<Everything>);

template <class T>
std::vector<T> floats(const Mat& x) {
  std::vector<T> y;
  for (const double e : x.v) y.push_back(T(static_cast<float>(e)));
  return y;
}
template <class T>
MatrixOf<T> matrix(std::vector<T>& v, std::int64_t rows, std::int64_t cols) {
  return {v.data(), rows, cols};
}
Mat mat(const std::vector<float>& v, std::int64_t rows, std::int64_t cols) {
  return Mat(rows, cols, std::vector<double>(v.begin(), v.end()));
}

/// m, n and whether all values are negative, so that a lane outside of the matrix which counts as 0 shows in a maximum.
void check_everything(std::int64_t m, std::int64_t n, bool negative) {
  SCOPED_TRACE("M=" + std::to_string(m) + " N=" + std::to_string(n));
  constexpr std::int64_t k = 12;
  Random random(2605 + static_cast<std::uint64_t>(m * n));
  const Mat a = integer_mat(random, m, k, -3, 3), b = integer_mat(random, n, k, -3, 3);
  Mat residual = integer_mat(random, m, n, -9, 9);
  for (double& e : residual.v) e -= negative ? 2000 : 0;
  const Mat wide = integer_mat(random, m, 2 * n, -9, 9), narrow = integer_mat(random, m, n / 2, -9, 9);
  const Vec scale = power_of_two_vec(random, m), shift = integer_mat(random, n, 1, -9, 9).v;
  auto targets = random_targets(random, m, n);
  targets[0] = n + 3;  // right of the matrix, such as in another block of the vocabulary: the row is not written
  if (m > 1) targets[1] = -100;

  auto a_ = floats<bf16>(a), b_ = floats<bf16>(b);
  auto residual_ = floats<float>(residual), wide_ = floats<float>(wide), narrow_ = floats<float>(narrow),
       scale_ = floats<float>(Mat(m, 1, scale)), shift_ = floats<float>(Mat(n, 1, shift));
  const std::int64_t tn = cpu::tiles_n(n), tm = cpu::tiles_m(m);
  const auto room = [](std::int64_t rows, std::int64_t cols) {
    return std::vector<float>(static_cast<std::size_t>(rows * cols), std::nanf(""));
  };
  auto same = room(m, n), half = room(m, n / 2), twice = room(m, 2 * n), sum = room(m, tn), max = room(m, tn),
       abs_max = room(m, tn), down_sum = room(tm, n), down_max = room(tm, n), down_abs_max = room(tm, n),
       mean = room(m, tn), m2 = room(m, tn), lse_max = room(m, tn), lse_sum = room(m, tn), target = room(m, 1),
       column = room(m, 1), row = room(n, 1);

  std::fill(target.begin(), target.end(), -777.f);
  Everything p;
  p.edges = {.scale = {scale_.data()}, .shift = {shift_.data(), 0}};
  p.residual = matrix(residual_, m, n), p.wide = matrix(wide_, m, 2 * n), p.narrow = matrix(narrow_, m, n / 2);
  p.out = {matrix(same, m, n), matrix(half, m, n / 2), matrix(twice, m, 2 * n)};
  p.reduced = {matrix(sum, m, tn),      matrix(max, m, tn),      matrix(abs_max, m, tn),
               matrix(down_sum, tm, n), matrix(down_max, tm, n), matrix(down_abs_max, tm, n)};
  p.moments = {matrix(mean, m, tn), matrix(m2, m, tn)};
  p.lse = {matrix(lse_max, m, tn), matrix(lse_sum, m, tn)};
  p.target = {targets.data(), target.data()};
  p.first_column = {column.data()}, p.first_row = {row.data()};
  coda::gemm(MatrixOf<const bf16>(a_.data(), m, k), MatrixOf<const bf16>(b_.data(), n, k), p);

  Mat x = reference::product({a, b, reference::Layout::abt});
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) x(i, j) = x(i, j) * scale[i] + shift[j] + residual(i, j);
  Mat half_ref(m, n / 2), twice_ref(m, 2 * n), column_ref(m, 1), row_ref(n, 1), target_ref(m, 1);
  Mat sum_ref(m, tn), max_ref(m, tn, -1e30), abs_ref(m, tn), mean_ref(m, tn), m2_ref(m, tn), lse_ref(m, tn);
  Mat dsum_ref(tm, n), dmax_ref(tm, n, -1e30), dabs_ref(tm, n);
  for (std::int64_t i = 0; i < m; ++i) {
    column_ref(i, 0) = x(i, 0);
    const std::int64_t t = targets[static_cast<std::size_t>(i)];
    target_ref(i, 0) = t >= 0 && t < n ? x(i, t) : -777;
    for (std::int64_t j = 0; j < n; ++j) {
      const double e = x(i, j);
      if (i == 0) row_ref(j, 0) = e;
      if (j % 2 == 1) half_ref(i, j / 2) = x(i, j - 1) - e + narrow(i, j / 2);
      twice_ref(i, 2 * j) = e + wide(i, 2 * j);
      twice_ref(i, 2 * j + 1) = -e + wide(i, 2 * j + 1);
      sum_ref(i, j / 256) += e;
      max_ref(i, j / 256) = std::max(max_ref(i, j / 256), e);
      abs_ref(i, j / 256) = std::max(abs_ref(i, j / 256), std::abs(e));
      dsum_ref(i / 256, j) += e;
      dmax_ref(i / 256, j) = std::max(dmax_ref(i / 256, j), e);
      dabs_ref(i / 256, j) = std::max(dabs_ref(i / 256, j), std::abs(e));
    }
    for (std::int64_t j = 0; j < n; ++j) {
      mean_ref(i, j / 256) = sum_ref(i, j / 256) / static_cast<double>(std::min<std::int64_t>(256, n - j / 256 * 256));
      lse_ref(i, j / 256) += std::exp(x(i, j) - max_ref(i, j / 256));
    }
    for (std::int64_t j = 0; j < n; ++j) m2_ref(i, j / 256) += std::pow(x(i, j) - mean_ref(i, j / 256), 2);
  }
  EXPECT_EQ(check_exact("same", mat(same, m, n), x), "");
  EXPECT_EQ(check_exact("half", mat(half, m, n / 2), half_ref), "");
  EXPECT_EQ(check_exact("twice", mat(twice, m, 2 * n), twice_ref), "");
  EXPECT_EQ(check_exact("sum", mat(sum, m, tn), sum_ref), "");
  EXPECT_EQ(check_exact("max", mat(max, m, tn), max_ref), "");
  EXPECT_EQ(check_exact("abs_max", mat(abs_max, m, tn), abs_ref), "");
  EXPECT_EQ(check_exact("down_sum", mat(down_sum, tm, n), dsum_ref), "");
  EXPECT_EQ(check_exact("down_max", mat(down_max, tm, n), dmax_ref), "");
  EXPECT_EQ(check_exact("down_abs_max", mat(down_abs_max, tm, n), dabs_ref), "");
  EXPECT_EQ(check_exact("lse max", mat(lse_max, m, tn), max_ref), "");
  EXPECT_EQ(check_exact("target", mat(target, m, 1), target_ref), "");
  EXPECT_EQ(check_exact("first column", mat(column, m, 1), column_ref), "");
  EXPECT_EQ(check_exact("first row", mat(row, n, 1), row_ref), "");
  // With negative values the mean is a thousand times the deviation: sums of squares would lose the variance.
  EXPECT_EQ(check_relative("mean", mat(mean, m, tn), mean_ref, DType::fp32, 1e-6), "");
  EXPECT_EQ(check_relative("m2", mat(m2, m, tn), m2_ref, DType::fp32, 1e-4), "");
  EXPECT_EQ(check_relative("lse sum", mat(lse_sum, m, tn), lse_ref, DType::fp32, 1e-5), "");
}

TEST(Program, MayHoldEveryKindOfPort) {
  for (const bool negative : {false, true}) {
    for (const auto& [m, n] : {std::pair<std::int64_t, std::int64_t>{1, 2},
                               {3, 62},
                               {5, 64},
                               {7, 66},
                               {256, 256},
                               {257, 254},
                               {258, 770},
                               {513, 30}})
      check_everything(m, n, negative);
  }
}

/// Two values into each reduction, or none.
struct ReducesTwice {
  bool does = true;
  ReduceN<Sum> along = {};
  ReduceM<Sum> down = {};
  ReduceM<AbsMax> largest = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    if (!does) return;
    for (const auto& x : {acc, acc * 2}) tile.reduce(along, x), tile.reduce(down, x), tile.reduce(largest, x);
  }
};

TEST(Reduction, TakesAllThatIsReducedAndIsNeutralWithout) {
  constexpr std::int64_t m = 259, n = 300, k = 8, tn = cpu::tiles_n(n), tm = cpu::tiles_m(m);
  Random random(5);
  const Mat a = integer_mat(random, m, k, -3, 3), b = integer_mat(random, n, k, -3, 3);
  auto a_ = floats<bf16>(a), b_ = floats<bf16>(b);
  const Mat acc = reference::product({a, b, reference::Layout::abt});
  for (const bool does : {true, false}) {
    std::vector<float> along(m * tn, std::nanf("")), down(tm * n, std::nanf("")), largest(tm * n, std::nanf(""));
    coda::gemm(MatrixOf<const bf16>(a_.data(), m, k), MatrixOf<const bf16>(b_.data(), n, k),
               ReducesTwice{does, matrix(along, m, tn), matrix(down, tm, n), matrix(largest, tm, n)});
    Mat along_ref(m, tn), down_ref(tm, n), largest_ref(tm, n);
    for (std::int64_t i = 0; does && i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        along_ref(i, j / 256) += 3 * acc(i, j);
        down_ref(i / 256, j) += 3 * acc(i, j);
        largest_ref(i / 256, j) = std::max(largest_ref(i / 256, j), 2 * std::abs(acc(i, j)));
      }
    EXPECT_EQ(check_exact("along", mat(along, m, tn), along_ref), "");
    EXPECT_EQ(check_exact("down", mat(down, tm, n), down_ref), "");
    EXPECT_EQ(check_exact("largest", mat(largest, tm, n), largest_ref), "");
  }
}

struct HalfMoments {
  MomentsN<> moments = {};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.reduce(moments, contract(acc, Everything::Subtract{}));
  }
};

TEST(Moments, OfHalfAnOddNumberOfColumnsLeaveTheLastOneOut) {
  constexpr std::int64_t m = 2, k = 4;
  for (const std::int64_t n : {3, 65}) {
    std::vector<float> a(m * k), b(n * k, 1), mean(m), m2(m);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i);
    coda::gemm(matrix(a, m, k), matrix(b, n, k), HalfMoments{{matrix(mean, m, 1), matrix(m2, m, 1)}});
    EXPECT_EQ(mean, std::vector<float>(m, 0)) << n;
    EXPECT_EQ(m2, std::vector<float>(m, 0)) << n;
  }
}

/// y = silu(z.gate) * z.up, z = rstd * (A B^T): as the design shows it.
struct RmsNormSwiGlu {
  ColVector<const float> rstd;
  TileStore<bf16> preact;
  TileStore<bf16, Width::Half> out;

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = acc * tile.load(rstd);
    tile.store(preact, z);
    tile.store(out, contract(z, SwiGlu{}));
  }
};

TEST(Program, OfAUserIsAStructOfPortsAndOneFunction) {
  constexpr std::int64_t m = 37, n = 92, k = 20;
  Random random(1);
  const Mat a = normal_mat(random, m, k, 1, DType::bf16), b = normal_mat(random, n, k, 0.3, DType::bf16);
  const Vec rstd = uniform_vec(random, m, 0.5, 2, DType::fp32);
  auto a_ = floats<bf16>(a), b_ = floats<bf16>(b);
  auto rstd_ = floats<float>(Mat(m, 1, rstd));
  std::vector<bf16> z(m * n), y(m * n / 2);
  coda::gemm(MatrixOf<const bf16>(a_.data(), m, k), MatrixOf<const bf16>(b_.data(), n, k),
             RmsNormSwiGlu{{rstd_.data()}, matrix(z, m, n), matrix(y, m, n / 2)});
  const Mat acc = reference::product({a, b, reference::Layout::abt});
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n / 2; ++j) {
      const double gate = acc(i, 2 * j) * rstd[i], up = acc(i, 2 * j + 1) * rstd[i];
      const double expected = gate / (1 + std::exp(-gate)) * up;
      EXPECT_NEAR(static_cast<double>(y[static_cast<std::size_t>(i * (n / 2) + j)]), expected,
                  0.005 * std::abs(expected) + 1e-6);
      EXPECT_NEAR(static_cast<double>(z[static_cast<std::size_t>(i * n + 2 * j)]), gate, 0.005 * std::abs(gate) + 1e-6);
    }
}

TEST(ForEachPort, EntersStructsInTheOrderOfDeclaration) {
  Everything p;
  int count = 0;
  std::vector<const void*> seen;
  for_each_port(p, [&](const auto& port) {
    ++count;
    seen.push_back(&port);
  });
  EXPECT_EQ(count, 19);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.front(), &p.edges.scale);
  EXPECT_EQ(seen.back(), &p.first_row);
  struct {
    int option = 3;
    RmsNormSwiGlu inner = {};
    float other = 1;
  } nested;
  count = 0;
  for_each_port(nested, [&](const auto&) { ++count; });
  EXPECT_EQ(count, 3);
}

struct Double {
  TileLoad<float> in = {};
  TileStore<float> out = {};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.store(out, tile.load(in) * 2 + acc);
  }
};

TEST(Apply, RunsAProgramWithoutAProduct) {
  std::vector<float> x(300 * 270), y(x.size(), -1);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  cpu::apply<float>(300, 270, Double{matrix(x, 300, 270), matrix(y, 300, 270)});
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], 2 * x[i]) << i;
}

TEST(Gemm, OfAProgramRefusesOperandsThatDoNotFit) {
  std::vector<float> x(100);
  const MatrixOf<const float> a(x.data(), 4, 5), b(x.data(), 6, 7);
  EXPECT_THROW(coda::gemm(a, b, Everything{}), Error);
  EXPECT_THROW(coda::gemm(a, b, Everything{}, coda::Layout::nn), Error);
}

TEST(Gemm, OfAProgramTakesOperandsOfWhichOneMayBeWritten) {
  std::vector<float> a{1, 2}, b{3, 4}, y{0};
  coda::gemm(MatrixOf<const float>(a.data(), 1, 2), matrix(b, 1, 2), Double{.out = matrix(y, 1, 1)});
  coda::gemm(matrix(a, 1, 2), MatrixOf<const float>(b.data(), 1, 2), Double{matrix(y, 1, 1), matrix(y, 1, 1)});
  EXPECT_EQ(y[0], 3 * 11.F);
}

struct MomentsOfMatrix {
  TileLoad<float> in = {};
  MomentsN<> moments = {};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    tile.reduce(moments, tile.load(in));
  }
};

TEST(Moments, OfHugeValuesThatAreOneAreNoNan) {
  std::vector<float> x(300, 1e20f);
  float mean[2], m2[2];
  cpu::apply<float>(
      1, 300,
      MomentsOfMatrix{MatrixOf<float>(x.data(), 1, 300), {MatrixOf<float>(mean, 1, 2), MatrixOf<float>(m2, 1, 2)}});
  for (const int tile : {0, 1}) {
    EXPECT_EQ(mean[tile], 1e20f);
    EXPECT_EQ(m2[tile], 0);
  }
}

}  // namespace
}  // namespace coda::test
