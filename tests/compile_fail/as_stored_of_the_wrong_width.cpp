// expect: coda: tile.as_stored: the fragment's width is not the port's: contract() or expand() it
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileStore<coda::bf16, coda::Width::Half> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.as_stored(out, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
