// expect: coda: gemm takes two matrices of bf16, of fp16, of float or of double
#include "coda/backend/cpu/gemm.h"

struct Program {
  coda::TileStore<float> out;

  template <class Tile>
  void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc);
  }
};

int main() { coda::gemm(coda::MatrixOf<int>(), coda::MatrixOf<int>(), Program{}); }
