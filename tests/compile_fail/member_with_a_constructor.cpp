// expect: coda: a member of a program is a port, a struct of such without a constructor, or a plain option
// max-errors: 1
#include "coda/backend/cpu/gemm.h"

struct Statistics {
  coda::ReduceN<coda::Sum> sum;
  coda::ReduceM<coda::Max> max;

  Statistics() = default;
  explicit Statistics(coda::ReduceN<coda::Sum> sum_) : sum(sum_) {}
};

struct Program {
  Statistics statistics;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.reduce(statistics.sum, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
