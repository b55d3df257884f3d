// Programs as a user writes them: every kind of port in one of them, on the CPU backend.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
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

struct Heads {
  HeadMean<> mean = {};
  RotaryTable<> rope = {};
  template <class Tile>
  CODA_FN void first(Tile& tile, auto acc) const {
    tile.reduce(mean, acc);
  }
  template <class Tile>
  CODA_FN void operator()(Tile&, auto) const {}
};

template <class F>
std::string error_of(const F& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Gemm, OfAProgramNamesWhichSizeIsBelowZeroAndAnUnknownLayout) {
  float x[4] = {};
  const auto error = [&](std::int64_t m, std::int64_t n, std::int64_t k, coda::Layout layout = coda::Layout::nt) {
    return error_of([&] { coda::gemm(MatrixOf<float>(x, m, k), MatrixOf<float>(x, n, k), Double{}, layout); });
  };
  EXPECT_EQ(error(0, 2, 2), "");
  EXPECT_EQ(error(-1, 2, 2), "gemm: a: expected sizes of at least 0, got (-1, 2)");
  EXPECT_EQ(error(2, -3, 2), "gemm: b: expected sizes of at least 0, got (-3, 2)");
  EXPECT_EQ(error(2, 2, -1), "gemm: a: expected sizes of at least 0, got (2, -1)");
  EXPECT_EQ(error(2, 2, 2, static_cast<coda::Layout>(7)), "gemm: layout: expected nt, nn or tn, got 7");
}

TEST(Apply, NamesSizesBelowZero) {
  const auto error = [](std::int64_t m, std::int64_t n) {
    return error_of([&] { cpu::apply<float>(m, n, Double{}); });
  };
  EXPECT_EQ(error(0, 5), "");
  EXPECT_EQ(error(-1, 5), "apply: M, N: expected sizes of at least 0, got -1, 5");
  EXPECT_EQ(error(5, -2), "apply: M, N: expected sizes of at least 0, got 5, -2");
}

TEST(Program, WithHeadsNamesOneEvenWidthOfThem) {
  const auto error = [](int mean, int rope) {
    return error_of([&] { cpu::apply<float>(1, 8, Heads{{.head_dim = mean}, {.head_dim = rope}}); });
  };
  EXPECT_EQ(error(4, 4), "");
  EXPECT_EQ(error(0, 4), "apply: program: expected one even head_dim in all of its ports, got 0");
  EXPECT_EQ(error(4, 3), "apply: program: expected one even head_dim in all of its ports, got 3");
  EXPECT_EQ(error(4, 8), "apply: program: expected one even head_dim in all of its ports, got 4 and 8");
  EXPECT_EQ(error(514, 514), "apply: program: expected a head_dim of at most 512, got 514");
}

TEST(Program, WhoseOutputsHaveAnotherShapeIsRefused) {
  const auto error = [](const auto& program) { return error_of([&] { cpu::apply<float>(2, 600, program); }); };
  float x[1];
  const auto of = [&](std::int64_t rows, std::int64_t cols) { return MatrixOf<float>(x, rows, cols); };
  const std::string expected = "apply: program: expected a ";
  EXPECT_EQ(error(Double{.out = of(2, 599)}), expected + "TileStore of shape (2, 600), got (2, 599)");
  EXPECT_EQ(error(Double{.out = of(1, 600)}), expected + "TileStore of shape (2, 600), got (1, 600)");
  EXPECT_EQ(error(Double{.out = of(3, 600)}), expected + "TileStore of shape (2, 600), got (3, 600)");
  EXPECT_EQ(error(Double{.out = {{x, 2, 600, 599}}}), expected + "TileStore of 600 columns, got a pitch of 599");
  EXPECT_EQ(error(ReducesTwice{.along = of(2, 2)}), expected + "ReduceN of shape (2, 3), got (2, 2)");
  EXPECT_EQ(error(ReducesTwice{.along = of(1, 3)}), expected + "ReduceN of shape (2, 3), got (1, 3)");
  EXPECT_EQ(error(ReducesTwice{.down = of(2, 600)}), expected + "ReduceM of shape (1, 600), got (2, 600)");
  EXPECT_EQ(error(HalfMoments{{of(2, 2), of(2, 2)}}), expected + "MomentsN of shape (2, 3), got (2, 2)");
  EXPECT_EQ(error(Everything{.lse = {of(1, 3), of(1, 3)}}), expected + "OnlineLse of shape (2, 3), got (1, 3)");
  const auto tall = [&] { cpu::apply<float>(257, 600, ReducesTwice{.down = {{x, 2, 600, 300}}}); };
  EXPECT_EQ(error_of(tall), expected + "ReduceM of 600 columns, got a pitch of 300");
  EXPECT_EQ(error(Everything{.out = {.half = of(2, 600)}}), expected + "TileStore of shape (2, 300), got (2, 600)");
  EXPECT_EQ(error(Everything{.out = {.twice = of(2, 600)}}), expected + "TileStore of shape (2, 1200), got (2, 600)");
}

TEST(Program, OfPairsRefusesAnOddNumberOfColumns) {
  float x[8] = {};
  const auto error = [&](std::int64_t n, const Everything& program) {
    return error_of([&] { cpu::apply<float>(2, n, program); });
  };
  const std::string expected = "apply: N: expected an even number, since a port is half as wide, got 5";
  EXPECT_EQ(error(5, Everything{.narrow = MatrixOf<float>(x, 2, 2)}), expected);
  EXPECT_EQ(error(5, Everything{.out = {.half = MatrixOf<float>(x, 2, 2)}}), expected);
  EXPECT_EQ(error(4, Everything{.out = {.half = MatrixOf<float>(x, 2, 2)}}), "");
  EXPECT_EQ(error(5, Everything{}), "") << "absent";
}

struct Copies {
  TileLoad<float> in = {};
  TileStore<float> out = {};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    tile.store(out, tile.load(in));
  }
};

TEST(Program, WhoseInputsAreTooNarrowIsRefused) {
  float x[40] = {};
  const MatrixOf<float> near(x, 2, 20, 19), out(x, 2, 20);
  const auto error = [&](std::int64_t m, const MatrixOf<float>& in, const MatrixOf<float>& to) {
    return error_of([&] { cpu::apply<float>(m, 20, Copies{in, to}); });
  };
  EXPECT_EQ(error(2, near, out), "apply: program: expected a TileLoad of 20 columns, got a pitch of 19");
  EXPECT_EQ(error(1, {x, 1, 20, 19}, {x, 1, 20}), "");  // that of one row means nothing
  EXPECT_EQ(error(2, {x, 2, 19}, out), "apply: program: expected a TileLoad of shape (2, 20), got (2, 19)");
  EXPECT_EQ(error(2, {x, 1, 20}, out), "apply: program: expected a TileLoad of shape (2, 20), got (1, 20)");
  EXPECT_EQ(error(0, {x, 1, 20}, out), "") << "no rows: nothing is read";
  EXPECT_EQ(error(2, {nullptr, 1, 7}, out), "") << "absent, whatever its shape";
}

struct Vectors {
  ColVector<const float> column = {};
  RowVector<const float> row = {};
  RowVector<const float, Width::Half> half = {};
  ColVector<float> first_column = {};
  TargetSelect<> chosen = {};
  OneHot target = {};
  GatherLoad<float> gathered = {};
  RotaryTable<> rope = {.head_dim = 4};
  HeadVector<float> weight = {.head_dim = 4};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.store(first_column, acc * tile.load(column) * tile.load(row));
  }
};

TEST(Program, WhoseVectorsHaveAnotherSizeIsRefused) {
  constexpr std::int64_t kRows = 2, kColumns = 8;
  float x[kColumns] = {};
  const std::vector<float> three(3), empty;
  std::vector<float> written(3);
  const std::vector<std::int32_t> index(3);
  const std::vector<std::int64_t> wide(3);
  const auto error = [&](const auto& change) {
    Vectors program{.gathered = {.data = x, .pitch = kColumns, .rows = 1}};
    change(program);
    return error_of([&] { cpu::apply<float>(kRows, kColumns, program); });
  };
  const auto got = [](const std::string& expected) { return "apply: program: expected a " + expected + ", got 3"; };
  EXPECT_EQ(error([](Vectors&) {}), "");
  EXPECT_EQ(error([&](Vectors& p) { p.column = {three}; }), got("ColVector of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.row = {three}; }), got("RowVector of 8 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.half = {three}; }), got("RowVector of 4 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.first_column = {written}; }), got("ColVector of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.chosen.data = written; }), got("TargetSelect of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.chosen.index = index; }), got("TargetSelect's index of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.target.index = wide; }), got("OneHot's index of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.gathered.index = index; }), got("GatherLoad's index of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.rope.position = wide; }), got("RotaryTable's position of 2 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.weight.q = three; }), got("HeadVector's q of 4 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.weight.k = three; }), got("HeadVector's k of 4 elements"));
  EXPECT_EQ(error([&](Vectors& p) { p.column = {three.data()}; }), "") << "a bare pointer tells no size";
  EXPECT_EQ(error([&](Vectors& p) { p.column = {VectorOf<const float>()}; }), "") << "absent";
  EXPECT_EQ(error([&](Vectors& p) { p.column = {empty}; }),
            "apply: program: expected a ColVector of 2 elements, got 0");
}

TEST(Program, TakesVectorsAsPointersViewsArraysOrContainers) {
  std::vector<float> writable = {1, 2, 3, 4};
  const std::vector<float> values = writable;
  float array[4] = {1, 2, 3, 4};
  const float const_array[4] = {1, 2, 3, 4};
  const auto check = [](const Elements<const float>& elements, std::int64_t size) {
    EXPECT_EQ(elements[2], 3);
    EXPECT_EQ(elements.size, size);
  };
  check(values.data(), kUnknownSize), check(writable.data(), kUnknownSize);
  check(VectorOf<const float>(values.data(), 4), 4), check(VectorOf<float>(writable.data(), 4), 4);
  check(values, 4), check(writable, 4), check(array, 4), check(const_array, 4);
  check(std::span(writable).first(3), 3), check(Elements<float>(writable), 4);
  EXPECT_EQ(Elements<float>(array).size, 4);
  EXPECT_EQ(Elements<float>(nullptr).size, kUnknownSize);
  static_assert(!std::is_constructible_v<Elements<float>, const std::vector<float>&>);
  static_assert(!std::is_constructible_v<Elements<const float>, std::vector<double>&>);
  static_assert(!std::is_constructible_v<Elements<const float>, std::vector<float>>, "it would be gone");
}

TEST(Program, TakesIndicesAsPointersViewsArraysOrContainersOfInt32AndInt64) {
  const std::array<std::int64_t, 4> wide = {3, 2, 1, 0};
  const std::vector<std::int32_t> narrow(wide.begin(), wide.end());
  const std::int32_t const_array[4] = {3, 2, 1, 0};
  const auto check = [](const IndexVector& index, bool is_wide, std::int64_t size) {
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(index[i], 3 - i);
    EXPECT_EQ(index.wide, is_wide);
    EXPECT_EQ(index.size, size);
  };
  check(wide.data(), true, kUnknownSize), check(narrow.data(), false, kUnknownSize);
  check(VectorOf(wide.data(), 4), true, 4), check(VectorOf(narrow.data(), 4), false, 4);
  check(wide, true, 4), check(narrow, false, 4), check(const_array, false, 4);
  check(std::span(narrow).first(3), false, 3);
  EXPECT_EQ(IndexVector()[7], 7) << "a row's own number";
  static_assert(!std::is_constructible_v<IndexVector, std::vector<float>&>);
}

TEST(Program, OnAnOperandThatIsNoneOrWhoseRowsOverlapIsRefused) {
  const auto check = [](const auto& with) {
    for (const bool is_a : {true, false}) {
      using T = std::remove_cvref_t<decltype(with)>;
      T x[12] = {};
      float y[6];
      MatrixOf<T> a(x, 2, 4), b(x, 3, 4);
      const auto spoiled = [&](auto data, std::int64_t pitch) {
        MatrixOf<T>& m = is_a ? a : b;
        m.data = data, m.pitch = pitch;
        return error_of([&] { gemm(a, b, Copies{{}, MatrixOf<float>(y, 2, 3)}); });
      };
      const std::string name = is_a ? "gemm: a: " : "gemm: b: ";
      EXPECT_EQ(spoiled(x, 3), name + "expected a pitch of at least 4, got 3");
      EXPECT_EQ(spoiled(static_cast<T*>(nullptr), 4), name + "expected a matrix, got a null pointer");
    }
  };
  check(bf16()), check(fp16()), check(float());
  float y[6];
  const MatrixOf<float> none(nullptr, 2, 0), other(nullptr, 3, 0);
  EXPECT_EQ(error_of([&] { gemm(none, other, Copies{{}, MatrixOf<float>(y, 2, 3)}); }), "");  // K = 0
}

struct Inputs {
  GatherLoad<float> gathered = {};
  RotaryTable<> rope = {.head_dim = 4};
  HeadVector<float> weight = {.head_dim = 4};
  TileStore<float> out = {};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.store(out, tile.load(gathered) + tile.load(weight) + acc);
  }
};

TEST(Program, WithoutWhatItCannotDoWithoutIsRefused) {
  float x[8] = {}, weights[4] = {};
  const auto error = [](const Inputs& program, std::int64_t m = 2) {
    return error_of([&] { cpu::apply<float>(m, 8, program); });
  };
  Inputs program{.gathered = {.data = x, .pitch = 0, .rows = 2}};
  EXPECT_EQ(error(program), "apply: program: expected a GatherLoad of 8 columns, got a pitch of 0");
  program.gathered.rows = 1;
  EXPECT_EQ(error(program), "") << "one row has no pitch";
  EXPECT_EQ(error(Inputs()), "apply: program: expected a GatherLoad with a matrix, got a null pointer");
  EXPECT_EQ(error(Inputs(), 0), "") << "no rows: nothing is read";
  program.rope.columns = 8;
  EXPECT_EQ(error(program), "apply: program: expected a RotaryTable with a table, got a null pointer");
  program.rope.table = x;
  program.weight.columns = program.weight.q_columns = 4;
  EXPECT_EQ(error(program), "apply: program: expected a HeadVector with weights of the q heads, got a null pointer");
  program.weight.q = weights;
  EXPECT_EQ(error(program), "");
  program.weight.columns = 8;
  EXPECT_EQ(error(program), "apply: program: expected a HeadVector with weights of the k heads, got a null pointer");
  program.weight.k = weights;
  EXPECT_EQ(error(program), "");
}

struct HeadMeans {
  HeadMean<float> mean = {.head_dim = 4};
  TileStore<float> out = {};
  template <class Tile>
  CODA_FN void first(Tile& tile, auto acc) const {
    tile.reduce(mean, acc);
  }
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    tile.store(out, tile.load(mean));
  }
};

TEST(Program, WhoseHeadsAreCutOffIsRefused) {
  float y[16];
  const auto error = [&](std::int64_t columns, std::int64_t n) {
    return error_of(
        [&] { cpu::apply<float>(1, n, HeadMeans{{.columns = columns, .head_dim = 4}, MatrixOf<float>(y, 1, n)}); });
  };
  EXPECT_EQ(error(8, 10), "");
  EXPECT_EQ(error(8, 6), "apply: program: expected a HeadMean of whole heads of 4 columns, got 6");
  EXPECT_EQ(error(6, 10), "apply: program: expected a HeadMean of whole heads of 4 columns, got 6");
}

struct TwoOutputs {
  MomentsN<> moments = {};
  OnlineLse<> lse = {};
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.reduce(moments, acc), tile.reduce(lse, acc);
  }
};

TEST(Port, OfTwoOutputsHasBothOrNone) {
  float x[2], y[2];
  const auto error = [](const TwoOutputs& program) { return error_of([&] { cpu::apply<float>(1, 8, program); }); };
  const MatrixOf<float> one(x, 1, 1), other(y, 1, 1);
  EXPECT_EQ(error({{one, other}, {}}), "");
  EXPECT_EQ(error({{one, {}}, {}}), "apply: program: expected a second output of MomentsN, got a null pointer");
  EXPECT_EQ(error({{}, {{}, other}}), "apply: program: expected a second output of OnlineLse, got a null pointer");
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

TEST(Port, OfTwoOutputsRefusesTwoShapesAndTwoPitches) {
  float x[16];
  const MatrixOf<float> narrow(x, 2, 2), wide(x + 8, 2, 2, 3);
  EXPECT_EQ(error_of([&] { MomentsN<>(narrow, wide); }), "MomentsN: expected two matrices of one pitch, got 2 and 3");
  EXPECT_EQ(error_of([&] { OnlineLse<>(wide, narrow); }), "OnlineLse: expected two matrices of one pitch, got 3 and 2");
  EXPECT_EQ(error_of([&] { MomentsN<>({x, 2, 3}, {x + 8, 2, 2}); }),
            "MomentsN: expected two matrices of one shape, got (2, 3) and (2, 2)");
  EXPECT_EQ(error_of([&] { OnlineLse<>({x, 2, 2}, {x + 8, 1, 2}); }),
            "OnlineLse: expected two matrices of one shape, got (2, 2) and (1, 2)");
  EXPECT_EQ(error_of([&] { MomentsN<>({x, 1, 2, 2}, {x + 8, 1, 2, 3}); }), "") << "that of one row is never used";
}

}  // namespace
}  // namespace coda::test
