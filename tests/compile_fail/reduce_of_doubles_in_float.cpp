// expect: coda: tile.reduce: the port folds in another type than the program computes in: on matrices of double declare
// max-errors: 1
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::ReduceN<coda::Sum> sum;  // in float

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.reduce(sum, acc);
  }
};

int main() { coda::cpu::apply<double>(1, 1, Program{}); }
