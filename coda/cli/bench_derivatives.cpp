// What the derived backward of SwiGLU costs beside its closed form: two programs in the same tile loop.
#include "coda/cli/bench_case.h"
#include "coda/programs/activation.h"

namespace coda::cli {
namespace {

/// As GemmGluBackward<T, SwiGlu>, with the derivative as a text book has it.
template <class T>
struct WrittenSwiGluBackward {
  TileLoad<T, Width::Double> preact = {};
  TileStore<T, Width::Double> dpreact = {};
  TileStore<T> out = {};
  RmsDot<T, Width::Double> dot = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto dy) const {
    auto z = tile.load(preact), dz = z;
    auto y = dy;
    CODA_UNROLL for (int j = 0; j < dy.count; ++j) {
      using S = typename Tile::scalar;
      const S gate = z.v[2 * j], up = z.v[2 * j + 1];
      const S s = sigmoid(gate), silu = gate * s;
      dz.v[2 * j] = dy.v[j] * up * s * (S(1) + gate * (S(1) - s));
      dz.v[2 * j + 1] = dy.v[j] * silu;
      y.v[j] = silu * up;
    }
    tile.store(dpreact, dz);
    tile.store(out, y);
    dot(tile, z, dz);
  }
};

template <class T>
void measure(int rounds, std::vector<DerivativeTimes>& out) {
  constexpr DType type = dtype_of<T>;
  const auto pair = [&](const char* what, Shape shape, int repeats, bool product) {
    BenchCase c(type, Layout::nn, shape);
    const Matrix preact = c.matrix(c.m, 2 * c.n), dpreact = c.matrix(c.m, 2 * c.n), y = c.matrix(c.m, c.n),
                 zdz = c.row_partials();
    const auto call = [&](auto p) -> std::function<void()> {
      p.preact = preact.as<T>(), p.dpreact = dpreact.as<T>(), p.out = y.as<T>(), p.dot.zdz = zdz.as<float>();
      if (product) return [&c, p] { cpu::gemm(c.a.as<T>(), c.b.as<T>(), p, Layout::nn); };
      // One tile, one thread, all of it in the second-level cache: the epilogue and nothing else.
      return [&c, p, repeats] {
        const cpu::TileGeometry g{0, 0, c.m, c.n, 0, 0};
        static const std::vector<float> dy(static_cast<std::size_t>(cpu::kTileM * cpu::kTileN), 0.5F);
        for (int i = 0; i < repeats; ++i)
          cpu::run_epilogue<float, std::remove_const_t<decltype(p)>>(&p, g, 0, g.rows, dy.data(), cpu::kTileN);
      };
    };
    const auto times =
        interleaved({call(coda::GemmGluBackward<T, SwiGlu>{}), call(WrittenSwiGluBackward<T>{})}, rounds);
    out.push_back({type, what, times[0].best / repeats, times[1].best / repeats});
  };
  pair("epilogue alone, one tile of 256x256", {256, 256, 1}, 20, false);
  pair("with its product, 1024x1024x1024", {1024, 1024, 1024}, 1, true);
}

}  // namespace

std::vector<DerivativeTimes> measure_derivatives(int rounds) {
  std::vector<DerivativeTimes> out;
  measure<bf16>(rounds, out);
  measure<float>(rounds, out);
  return out;
}

}  // namespace coda::cli
