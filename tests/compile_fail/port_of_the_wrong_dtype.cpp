// expect: coda: the element type of a TileStore is bf16, fp16, float or double
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileStore<int> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
