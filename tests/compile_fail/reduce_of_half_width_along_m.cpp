// expect: a fragment of the accumulator's width wherever the port keeps columns apart
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::ReduceM<coda::Sum> sum;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.reduce(sum, coda::contract(acc, coda::SwiGlu{}));
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
