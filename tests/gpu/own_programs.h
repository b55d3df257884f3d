// Programs of this test alone, of ports that no program of the library has behind a product.
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

/// More than a fused kernel has brought by the copy engine, and more than it asks for ahead of time.
/// out[m, n] = acc[m, n] + a[m, n] - b[m, n] + c[m, n] - d[m, n] + e[m, n] - f[m, n] + pairs[m, 2n] - pairs[m, 2n + 1]
template <class T>
struct ManyLoads {
  TileLoad<T> a = {}, b = {}, c = {}, d = {}, e = {}, f = {};  // (M, N)
  TileLoad<float, Width::Double> pairs = {};                   // (M, 2 N)
  TileStore<T> out = {};                                       // (M, N)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = acc + tile.load(a) - tile.load(b) + tile.load(c) - tile.load(d) + tile.load(e) - tile.load(f);
    tile.store(out, z + contract(tile.load(pairs), Difference{}));
  }
};

}  // namespace coda::test
