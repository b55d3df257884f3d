// A program of this test alone: it reads and writes matrices half as wide as its accumulator, of which no program of
// the library reads one behind a product.
#pragma once

#include "coda/epilogue/tile.h"

namespace coda::test {

struct BothOf {
  template <class S>
  CODA_FN Pair<S> operator()(S x) const {
    return {x, x};
  }
};
struct Difference {
  template <class S>
  CODA_FN S operator()(S x, S y) const {
    return x - y;
  }
};

/// out[m, n] = acc[m, n] + half[m, n / 2]; half_out[m, j] = out[m, 2j] - out[m, 2j + 1]
template <class T>
struct HalfWidth {
  TileLoad<T, Width::Half> half = {};       // (M, N / 2)
  TileStore<T> out = {};                    // (M, N)
  TileStore<T, Width::Half> half_out = {};  // (M, N / 2)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = acc + expand(tile.load(half), BothOf{});
    tile.store(out, z);
    tile.store(half_out, contract(z, Difference{}));
  }
};

}  // namespace coda::test
