// expect: coda: tile.reduce takes a ReduceN, ReduceM, MomentsN, OnlineLse, TargetSelect or HeadMean
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::ColVector<const float> rstd;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.reduce(rstd, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
