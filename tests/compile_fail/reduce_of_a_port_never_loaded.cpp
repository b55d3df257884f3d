// expect: coda: tile.reduce takes a fragment: load the port first, with tile.load(port)
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileLoad<float> residual;
  coda::ReduceN<coda::Sum> sum;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.reduce(sum, residual);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
