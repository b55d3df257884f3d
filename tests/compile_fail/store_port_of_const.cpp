// expect: coda: a TileStore writes: its element type is not const
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileStore<const float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
