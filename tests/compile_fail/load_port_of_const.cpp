// expect: coda: a TileLoad only reads: write its element type without const
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileLoad<const float> in;
  coda::TileStore<float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc + tile.load(in));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
