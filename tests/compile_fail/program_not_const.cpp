// expect: coda: a program has `template <class Tile> void operator()(Tile& tile, auto acc) const`
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileStore<float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) {
    tile.store(out, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
