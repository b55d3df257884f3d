// expect: coda: map takes fragments of one width
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileLoad<float, coda::Width::Half> narrow;
  coda::TileStore<float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, coda::map(coda::SwiGlu{}, acc, tile.load(narrow)));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
