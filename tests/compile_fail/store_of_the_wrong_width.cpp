// expect: coda: tile.store: the fragment's width is not the port's: contract() or expand() it
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileStore<float, coda::Width::Half> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
