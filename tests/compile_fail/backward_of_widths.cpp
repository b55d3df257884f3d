// expect: coda: backward() takes z as wide as dy, or twice as wide for a function of a pair
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileLoad<float, coda::Width::Half> preact;
  coda::TileStore<float, coda::Width::Half> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, coda::backward(coda::Silu{}, tile.load(preact), acc).dz);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
