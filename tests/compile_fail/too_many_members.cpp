// expect: coda: a program has at most 12 members: put some of them into a struct of their own
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileStore<float> out;
  float a, b, c, d, e, f, g, h, i, j, k, l;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
