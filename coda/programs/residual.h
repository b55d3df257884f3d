// The end of attention or of the feed-forward: residual add, the next norm's weight and its row statistic.
#pragma once

#include "coda/programs/norm.h"

namespace coda {

/// x = acc + residual; h = x * weight, the next product's operand; Stat of x, from fp32 values.
template <class T, class Stat = SumOfSquares<T>>
struct GemmResidual {
  TileLoad<T> residual = {};       // (M, N)
  RowVector<const T> weight = {};  // (N) of the next norm
  TileStore<T> x = {}, h = {};     // (M, N)
  Stat stat = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = acc + tile.load(residual);
    tile.store(x, z);
    tile.store(h, z * tile.load(weight));
    stat(tile, z);
  }
};

/// The start of the residual stream: x = row token[m] of the embedding (no product), and the same as GemmResidual.
template <class T, class Stat = SumOfSquares<T>>
struct Embedding {
  GatherLoad<T> table = {};
  RowVector<const T> weight = {};  // (N) of the first norm
  TileStore<T> x = {}, h = {};     // (M, N)
  Stat stat = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    auto z = tile.load(table);
    tile.store(x, z);
    tile.store(h, z * tile.load(weight));
    stat(tile, z);
  }
};

/// Backward of a linear layer behind an RMSNorm: acc = dZ W = dH. row_term[m] = sum(z dz) / N of that layer.
template <class T>
struct GemmRmsBackward {
  TileLoad<T> x = {}, dx_in = {};  // (M, N) saved residual stream; gradient from the residual branch
  ColVector<const acc_t<T>> rstd = {}, row_term = {.otherwise = 0};  // (M)
  RowVector<const T> weight = {};                                    // (N)
  TileStore<T> dx = {}, h = {};         // (M, N) gradient; recomputed operand for the weight gradient
  ReduceM<Sum, acc_t<T>> dweight = {};  // (tiles, N)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto r = tile.load(rstd), w = tile.load(weight);
    auto normed = tile.load(x) * r;
    tile.store(dx, tile.load(dx_in) + r * (acc * w - normed * tile.load(row_term)));
    tile.store(h, normed * w);
    tile.reduce(dweight, acc * normed);
  }
};

/// The same behind a LayerNorm: row terms zdz / N and udz / N of LayerNormDot; h = normed * weight + bias.
template <class T>
struct GemmLayerNormBackward {
  TileLoad<T> x = {}, dx_in = {};  // (M, N)
  ColVector<const acc_t<T>> rstd = {}, mean = {.otherwise = 0}, zdz = {.otherwise = 0}, udz = {.otherwise = 0};  // (M)
  RowVector<const T> weight = {}, bias = {.otherwise = 0};                                                       // (N)
  TileStore<T> dx = {}, h = {};                     // (M, N)
  ReduceM<Sum, acc_t<T>> dweight = {}, dbias = {};  // (tiles, N)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto r = tile.load(rstd), w = tile.load(weight);
    auto normed = (tile.load(x) - tile.load(mean)) * r;
    tile.store(dx, tile.load(dx_in) + r * (acc * w - tile.load(udz) - normed * tile.load(zdz)));
    tile.store(h, normed * w + tile.load(bias));
    tile.reduce(dweight, acc * normed);
    tile.reduce(dbias, acc);
  }
};

}  // namespace coda
