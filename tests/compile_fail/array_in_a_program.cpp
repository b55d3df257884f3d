// expect: coda: no member of a program, or of a struct in it, is an array: name each element
#include "coda/backend/cpu/gemm.h"

struct Program {
  float coefficients[3] = {1, 2, 3};
  coda::TileStore<float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc * coefficients[0]);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
