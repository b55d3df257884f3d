// expect: coda: the element type of a ColVector is bf16, fp16, float or double
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::ColVector<const long> scale;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.load(scale);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
