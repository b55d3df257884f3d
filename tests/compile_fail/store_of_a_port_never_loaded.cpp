// expect: coda: tile.store takes a fragment: load the port first, with tile.load(port)
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileLoad<float> residual;
  coda::TileStore<float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, residual);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
