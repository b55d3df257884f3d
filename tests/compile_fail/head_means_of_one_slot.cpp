// expect: coda: the HeadMeans of a program have different slots, 0 and 1
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::HeadMean<float> mean, square;
  coda::TileStore<float> out;

  template <class Tile>
  void first(Tile& tile, auto acc) const {
    tile.reduce(mean, acc);
    tile.reduce(square, acc * acc);
  }
  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, tile.load(square) - tile.load(mean) * tile.load(mean));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
