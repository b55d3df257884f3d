// expect: coda: expand() doubles a fragment; this one is twice the tile's width already
#include "coda/backend/cpu/gemm.h"

struct Twice {
  template <class S>
  coda::Pair<S> operator()(S x) const {
    return {x, x};
  }
};

struct Program {
  coda::TileLoad<float, coda::Width::Double> wide;
  coda::TileStore<float, coda::Width::Double> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, coda::expand(tile.load(wide), Twice{}));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
