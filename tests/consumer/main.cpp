// Uses the library as a stranger would, through its headers and coda::coda alone: one checked call, one program of its
// own, and an error.
#include <cstdio>
#include <vector>

#include "coda/backend/cpu/gemm.h"
#include "coda/core/build_info.h"
#include "coda/ops/ops.h"

// out = (a b + bias)^2
struct BiasSquared {
  coda::RowVector<const float> bias;
  coda::TileStore<float> out;

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = acc + tile.load(bias);
    tile.store(out, z * z);
  }
};

int main() {
  std::vector<float> a{1, 2, 3, 4}, b{1, 1, 0, 2}, bias{1, -1}, out(4), squared(4);
  const coda::MatrixOf<float> a_view(a.data(), 2, 2), b_view(b.data(), 2, 2);

  coda::ops::gemm({.a = a_view, .b = b_view, .out = coda::MatrixOf<float>(out.data(), 2, 2)});
  const bool called = out == std::vector<float>{3, 4, 7, 8};

  BiasSquared program;
  program.bias.data = bias.data();
  program.out = coda::MatrixOf<float>(squared.data(), 2, 2);
  coda::cpu::gemm(a_view, b_view, program);
  const bool composed = squared == std::vector<float>{16, 9, 64, 49};

  bool refused = false;
  try {
    coda::ops::gemm({.a = a_view, .b = b_view, .out = coda::MatrixOf<float>(out.data(), 1, 2)});
  } catch (const coda::Error& error) {
    std::printf("as it should: %s\n", error.what());
    refused = true;
  }

  std::printf("coda %s: call %d, own program %d, error %d\n", coda::build_info().version, called, composed, refused);
  return called && composed && refused ? 0 : 1;
}
