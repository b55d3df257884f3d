// A long K in chunks, and B in strips, as the CPU backend takes them with AMX: here on any machine, and of any length.
// Elements are small integers, so that every sum is exact in whatever order it is made.
#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>

#include "coda/backend/cpu/gemm.h"
#include "tests/support/guarded.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

struct Stored {
  TileStore<float> out = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc);
  }
};
/// What rows fold stays with one thread, and what columns fold, too.
template <bool Rows, bool Columns>
struct Folded {
  TileStore<float> out = {};
  ReduceM<Max, float> down = {};   // (tiles, N)
  ReduceN<Max, float> along = {};  // (M, tiles)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc);
    if constexpr (Rows) tile.reduce(down, acc);
    if constexpr (Columns) tile.reduce(along, acc);
  }
};

Mat integers(Random& random, std::int64_t rows, std::int64_t cols) {
  Mat x(rows, cols);
  for (double& v : x.v) v = static_cast<double>(random.integer(-2, 2));
  return x;
}

/// Operands as a layout stores them, with rows that are not contiguous.
template <class T>
struct Factors {
  Mat a, b;  // (M, K), (N, K)
  coda::Layout layout;
  Guarded<T> stored_a, stored_b;

  Factors(Random& random, coda::Layout l, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t pad)
      : a(integers(random, m, k)),
        b(integers(random, n, k)),
        layout(l),
        stored_a(l == coda::Layout::tn ? reference::transposed(a) : a,
                 {.pitch = (l == coda::Layout::tn ? m : k) + pad}),
        stored_b(l == coda::Layout::nt ? b : reference::transposed(b),
                 {.pitch = (l == coda::Layout::nt ? k : n) + pad}) {}

  template <class P>
  void run(const P& program, std::int64_t chunk, std::int64_t strip = 0) {
    auto call = cpu::detail::describe<float>("chunks", layout, a.rows, b.rows, a.cols, stored_a.const_matrix(),
                                             stored_b.const_matrix(), program);
    call.chunk = chunk, call.strip = strip;
    cpu::detail::run(call);
  }
  float product(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t k = 0; k < a.cols; ++k) sum += a(i, k) * b(j, k);
    return static_cast<float>(sum);
  }
};

void expect_product(const Guarded<float>& out, const Mat& expected) {
  EXPECT_EQ(out.guard_damage("out"), "");
  EXPECT_EQ(out.unwritten("out"), "");
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < out.rows(); ++i) {
    for (std::int64_t j = 0; j < out.cols(); ++j) {
      const float got = out.get(i, j);
      if (!(got == expected(i, j)) && ++wrong <= 3) {
        ADD_FAILURE() << "row " << i << ", column " << j << ": " << got << ", expected " << expected(i, j);
      }
    }
  }
  EXPECT_EQ(wrong, 0);
}

template <class T>
class Chunks : public testing::Test {};
using Types = testing::Types<bf16, fp16, float>;
TYPED_TEST_SUITE(Chunks, Types);

TYPED_TEST(Chunks, AddUpToTheProductInEveryLayout) {
  using T = TypeParam;
  constexpr std::int64_t m = 530, n = 290;
  const int threads = omp_get_max_threads();
  Random random(1);
  // Whole chunks; a last one of its own, and such as are too short for that; an odd K.
  for (const std::int64_t k : {256, 420, 300, 683}) {
    for (const coda::Layout layout : {coda::Layout::nt, coda::Layout::nn, coda::Layout::tn}) {
      for (const std::int64_t pad : {0, 8}) {
        if (pad != 0 && k % 2 == 0) continue;
        SCOPED_TRACE(testing::Message() << name_of(layout) << ", K = " << k << ", rows " << pad << " apart");
        Factors<T> x(random, layout, m, n, k, pad);
        const Mat expected = reference::product({x.a, x.b});
        omp_set_num_threads(pad == 0 ? 3 : 1);
        Guarded<float> out(m, n);
        x.run(Stored{out.matrix()}, 128);
        expect_product(out, expected);

        const std::int64_t tiles_m = cpu::tiles_m(m), tiles_n = cpu::tiles_n(n);
        Guarded<float> down(tiles_m, n), along(m, tiles_n);
        const auto expect_folded = [&](const char* what, bool rows, bool columns) {
          SCOPED_TRACE(what);
          expect_product(out, expected);
          for (std::int64_t i = 0; rows && i < m; i += cpu::kTileM) {
            for (std::int64_t j = 0; j < n; ++j) {
              double most = expected(i, j);
              for (std::int64_t r = i; r < std::min(m, i + cpu::kTileM); ++r) most = std::max(most, expected(r, j));
              EXPECT_EQ(down.get(i / cpu::kTileM, j), most) << "column " << j;
            }
          }
          for (std::int64_t i = 0; columns && i < m; ++i) {
            for (std::int64_t j = 0; j < n; j += cpu::kTileN) {
              const double* row = expected.v.data() + i * n;
              EXPECT_EQ(along.get(i, j / cpu::kTileN), *std::max_element(row + j, row + std::min(n, j + cpu::kTileN)))
                  << "row " << i;
            }
          }
        };
        out.poison();
        x.run(Folded<true, false>{out.matrix(), down.matrix()}, 128);
        expect_folded("folded along m", true, false);
        out.poison();
        x.run(Folded<false, true>{out.matrix(), {}, along.matrix()}, 128);
        expect_folded("folded along n", false, true);
        out.poison(), down.poison(), along.poison();
        x.run(Folded<true, true>{out.matrix(), down.matrix(), along.matrix()}, 128);
        expect_folded("folded both ways", true, true);
        for (const std::int64_t strip : {64, 128}) {  // of whole tiles, of the whole K
          out.poison(), down.poison(), along.poison();
          x.run(Folded<true, true>{out.matrix(), down.matrix(), along.matrix()}, k, strip);
          expect_folded("in strips", true, true);
        }
      }
    }
  }
  omp_set_num_threads(threads);
}

/// Large enough for the rules that take narrow strips of B, or chunks where columns are folded, if the machine has AMX.
TEST(LongProduct, IsExact) {
  constexpr std::int64_t m = 1100, n = 3500, k = 2500;
  Guarded<float> along(m, cpu::tiles_n(n));
  for (const coda::Layout layout : {coda::Layout::nt, coda::Layout::nn, coda::Layout::tn}) {
    SCOPED_TRACE(name_of(layout));
    Random random(2);
    Factors<bf16> x(random, layout, m, n, k, 0);
    Guarded<float> out(m, n), of_folded(m, n);
    x.run(Stored{out.matrix()}, 0);
    along.poison();
    x.run(Folded<false, true>{of_folded.matrix(), {}, along.matrix()}, 0);
    for (const auto* each : {&out, &of_folded}) {
      EXPECT_EQ(each->guard_damage("out"), "");
      EXPECT_EQ(each->unwritten("out"), "");
      for (std::int64_t i = 0; i < m; i += 83)
        for (std::int64_t j = 0; j < n; j += 17) ASSERT_EQ(each->get(i, j), x.product(i, j)) << i << ", " << j;
    }
    EXPECT_EQ(along.guard_damage("along"), "");
    for (std::int64_t i = 0; i < m; i += 7) {
      for (std::int64_t j = 0; j < n; j += cpu::kTileN) {
        float most = out.get(i, j);
        for (std::int64_t c = j; c < std::min(n, j + cpu::kTileN); ++c) most = std::max(most, out.get(i, c));
        ASSERT_EQ(along.get(i, j / cpu::kTileN), most) << "row " << i;
      }
    }
  }
}

}  // namespace
}  // namespace coda::test
