// expect: coda: tile.load takes a member of the program
#include "coda/backend/cpu/gemm.h"

struct Program {
  const float* bias;
  coda::TileStore<float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc + tile.load(coda::RowVector<const float>{bias}));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
