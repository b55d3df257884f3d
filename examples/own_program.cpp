// A program of one's own: y = silu(x W^T + bias) and, on the way, the largest |y| of each row, which an int8 quantiser
// wants next. README.md shows the program and the call.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "coda/coda.h"

struct SiluAbsMax {
  coda::RowVector<const float> bias = {.otherwise = 0};  // (N)
  coda::TileStore<coda::bf16> out = {};                  // (M, N)
  coda::ReduceN<coda::AbsMax> row_absmax = {};           // (M, tiles)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto y = map(coda::Silu{}, acc + tile.load(bias));
    tile.store(out, y);
    tile.reduce(row_absmax, y);
  }
};

int main() {
  const std::int64_t m = 300, n = 520, k = 64, tiles = coda::cpu::tiles_n(n);
  std::vector<coda::bf16> x(m * k), w(n * k), y(m * n);
  std::vector<float> bias(n), absmax(m * tiles);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = coda::bf16(std::sin(float(i)));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = coda::bf16(std::cos(float(3 * i)) / 8);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = 0.01f * float(i % 7);

  const coda::MatrixOf<coda::bf16> a(x.data(), m, k), b(w.data(), n, k), out(y.data(), m, n);
  coda::gemm(a, b, SiluAbsMax{{bias, 0}, out, coda::MatrixOf<float>(absmax.data(), m, tiles)});

  // The same with plain loops in fp64.
  double worst = 0;
  for (std::int64_t r = 0; r < m; ++r) {
    double top = 0, seen = 0;
    for (std::int64_t c = 0; c < n; ++c) {
      double z = double(bias[c]);
      for (std::int64_t i = 0; i < k; ++i) z += double(x[r * k + i]) * double(w[c * k + i]);
      const double want = z / (1 + std::exp(-z));
      worst = std::max(worst, std::abs(double(y[r * n + c]) - want) / (std::abs(want) + 1e-2));
      top = std::max(top, std::abs(want));
    }
    for (std::int64_t t = 0; t < tiles; ++t) seen = std::max(seen, double(absmax[r * tiles + t]));
    worst = std::max(worst, std::abs(seen - top) / top);
  }
  std::printf("own program: largest relative error %.1e\n", worst);
  return worst < 4e-3 ? 0 : 1;  // half a unit in the last place of bf16 is 2e-3
}
