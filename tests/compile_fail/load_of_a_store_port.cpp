// expect: coda: tile.load takes a port that can be read
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileStore<float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, tile.load(out));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
