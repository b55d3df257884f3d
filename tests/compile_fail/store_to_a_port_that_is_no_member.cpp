// expect: coda: tile.store takes a member of the program
#include "coda/backend/cpu/gemm.h"

struct Program {
  float* out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(coda::ColVector<float>{out}, acc);
  }
};

int main() { coda::cpu::apply<float>(1, 1, Program{}); }
