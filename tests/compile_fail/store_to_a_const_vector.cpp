// expect: coda: tile.store takes a TileStore, or a ColVector or RowVector whose element type is not const
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::RowVector<const float> bias;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(bias, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
