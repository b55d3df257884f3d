// expect: coda: the two fragments differ in width: contract() the wider or expand() the narrower first
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileLoad<float, coda::Width::Double> wide;
  coda::TileStore<float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc + tile.load(wide));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
