// expect: coda: tile.reduce takes a member of the program
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::ReduceN<coda::Sum> sums;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.reduce(coda::ReduceN<coda::Sum>(sums), acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
