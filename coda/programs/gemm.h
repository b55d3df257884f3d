// D = f(alpha * A B + beta * C + bias), and the bare product D = alpha * A B
#pragma once

#include "coda/epilogue/tile.h"

namespace coda {

/// The plain product with what a linear layer may add to it. `preact` is the value before f. Out may be float where T
/// is a 16-bit type: a weight gradient accumulates in fp32 (beta = 1, c = out).
template <class T, class F = Identity, class Out = T>
struct Gemm {
  acc_t<T> alpha = 1, beta = 0;
  TileLoad<Out> c = {};                        // (M, N), read where beta is not 0
  RowVector<const T> bias = {.otherwise = 0};  // (N)
  TileStore<Out> preact = {};                  // (M, N), optional
  TileStore<Out> out = {};                     // (M, N)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = acc * alpha + tile.load(bias);
    if (beta != 0) z = z + tile.load(c) * beta;
    tile.store(preact, z);
    tile.store(out, map(F{}, z));
  }
};

/// The product alone.
template <class T>
struct BareGemm {
  acc_t<T> alpha = 1;
  TileStore<T> out = {};  // (M, N)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.store(out, acc * alpha);
  }
};

}  // namespace coda
