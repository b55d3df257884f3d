// expect: coda: tile.reduce: the port folds in another type than the program computes in
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::ReduceN<coda::Sum, double> sum;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.reduce(sum, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
