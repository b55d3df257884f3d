// How a normalisation that was folded into the product comes back in the epilogue, and what its backward needs.
#pragma once

#include "coda/epilogue/tile.h"

namespace coda {

/// RMSNorm: z = rstd * acc, since (rstd * X * w) W^T = rstd * ((X * w) W^T). Without rstd: no scale.
template <class T>
struct RmsScale {
  ColVector<const acc_t<T>> rstd = {};  // (M)

  template <class Tile>
  CODA_FN auto operator()(Tile& tile, auto acc) const {
    return acc * tile.load(rstd);
  }
};

/// LayerNorm: z = rstd * (acc - mean * u) + c with u = W w and c = W b (column sums of the folded weight, fp32).
template <class T>
struct LayerNormScale {
  ColVector<const acc_t<T>> rstd = {}, mean = {.otherwise = 0};          // (M)
  RowVector<const acc_t<T>> u = {.otherwise = 0}, c = {.otherwise = 0};  // (N)

  template <class Tile>
  CODA_FN auto operator()(Tile& tile, auto acc) const {
    return (acc - tile.load(mean) * tile.load(u)) * tile.load(rstd) + tile.load(c);
  }
};

/// Row statistics of the residual stream: what rms_finalize makes rstd of.
template <class T>
struct SumOfSquares {
  ReduceN<Sum, acc_t<T>> sum = {};  // (M, tiles)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto x) const {
    tile.reduce(sum, x * x);
  }
};

/// What layernorm_finalize makes mean and rstd of.
template <class T>
struct Moments {
  MomentsN<acc_t<T>> moments = {};  // (M, tiles) twice

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto x) const {
    tile.reduce(moments, x);
  }
};

/// g - z k, and g where k is 0: infinite or not, z has no part in it then.
struct MinusProduct {
  template <class S>
  CODA_FN S operator()(S g, S z, S k) const {
    return select(abs(k) <= S(0), g, g - z * k);
  }
};

/// The inner product of z and its gradient, of which the RMSNorm before the product makes its row term.
template <class T, Width W = Width::Same>
struct RmsDot {
  ReduceN<Sum, acc_t<T>> zdz = {};  // (M, tiles)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto z, auto dz) const {
    tile.reduce(zdz, z * dz);
  }
  /// The same of y = R z and its gradient dy, for any R: dz = R^T dy.
  template <class Tile>
  CODA_FN void of_output(Tile& tile, auto y, auto dy, auto) const {
    tile.reduce(zdz, y * dy);
  }
};

/// x, but 0 where w is 0: a masked logit of -inf, or anything in a row that does not count, adds nothing.
struct WhereNonzero {
  template <class S>
  CODA_FN S operator()(S x, S w) const {
    return select(abs(w) <= S(0), S(0), x);
  }
};

/// The two row terms of a LayerNorm before the product: sums of dz (z - c) and of dz u, u and c as in LayerNormScale. A
/// c of -inf, which masks a column, has no dz.
template <class T, Width W = Width::Same>
struct LayerNormDot {
  RowVector<const acc_t<T>, W> u = {.otherwise = 0}, c = {.otherwise = 0};
  ReduceN<Sum, acc_t<T>> zdz = {}, udz = {};  // (M, tiles)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto z, auto dz) const {
    tile.reduce(zdz, (z - map(WhereNonzero{}, tile.load(c), dz)) * dz);
    tile.reduce(udz, tile.load(u) * dz);
  }
  template <class Tile>
  CODA_FN void of_output(Tile& tile, auto y, auto dy, auto dz) const {
    tile.reduce(zdz, map(MinusProduct{}, y * dy, dz, tile.load(c)));
    tile.reduce(udz, tile.load(u) * dz);
  }
};

}  // namespace coda
