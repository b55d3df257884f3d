// expect: coda: contract() halves a fragment; this one is half the tile's width already
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileLoad<float, coda::Width::Half> narrow;
  coda::TileStore<float, coda::Width::Half> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, coda::contract(tile.load(narrow), coda::SwiGlu{}));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
