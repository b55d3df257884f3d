// expect: coda: a program with a HeadMean, and no other, has
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::HeadMean<float> mean;
  coda::TileStore<float> out;

  template <class Tile>
  void first(Tile& tile, auto acc) {
    tile.reduce(mean, acc);
  }
  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc - tile.load(mean));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
