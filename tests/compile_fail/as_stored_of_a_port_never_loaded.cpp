// expect: coda: tile.as_stored takes a fragment: load the port first, with tile.load(port)
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileLoad<float> residual;
  coda::TileStore<coda::bf16> out;

  template <class Tile>
  void operator()(Tile& tile, auto) const {
    tile.as_stored(out, residual);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
