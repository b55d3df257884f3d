// A program of one's own, for every backend: y = tanh(x W^T + bias), and the sum of each of its columns.
#pragma once

#include "coda/coda.h"

struct Tanh {
  template <class S>
  CODA_FN auto operator()(S x) const {
    return coda::tanh(x);
  }
};

struct TanhColumnSums {
  coda::RowVector<const float> bias = {.otherwise = 0};  // (N)
  coda::TileStore<coda::bf16> out = {};                  // (M, N)
  coda::ReduceM<coda::Sum> column_sums = {};             // (tiles, N)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto y = map(Tanh{}, acc + tile.load(bias));
    tile.store(out, y);
    tile.reduce(column_sums, y);
  }
};

/// In own_program.cu. Pointers are device pointers.
void run_on_hopper(coda::MatrixOf<const coda::bf16> x, coda::MatrixOf<const coda::bf16> w,
                   const TanhColumnSums& program);
