// The head of a language model and its cross-entropy, without ever needing a row of logits in one place.
#pragma once

#include "coda/programs/norm.h"

namespace coda {

/// From z, the value after the norm, to the logits: scale * z, or cap * tanh(scale * z / cap) if cap is not 0.
template <class T>
struct LogitTransform {
  acc_t<T> scale = 1, cap = 0;

  /// f(the function): one branch around all that is done with it.
  CODA_FN auto with(const auto& f) const {
    return cap != 0 ? f(SoftCap<acc_t<T>>{scale, cap}) : f(Scaled<acc_t<T>>{scale});
  }
};

/// logits, and of each row and tile the online (max, sum of exp), the sum (for label smoothing) and the target's logit:
/// those of z as it is stored, since its gradient is computed from there. Of a logit of 20 the rounding to bf16 is up
/// to 0.06, and exp(z - lse) of a z that is rounded and an lse of one that is not is off by as much of itself.
template <class T, class Norm = RmsScale<T>>
struct GemmNormLse {
  Norm norm = {};
  LogitTransform<T> transform = {};
  TileStore<T> logits = {}, preact = {};     // (M, V), both optional; they differ only if transform does something
  OnlineLse<acc_t<T>> lse = {};              // (M, tiles) twice
  ReduceN<Sum, acc_t<T>> logit_sum = {};     // (M, tiles), optional
  TargetSelect<acc_t<T>> target_logit = {};  // (M)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = norm(tile, acc);
    tile.store(preact, z);
    auto l = transform.with([&](auto logit) { return map(logit, tile.as_stored(preact, z)); });
    tile.store(logits, l);
    tile.reduce(lse, l);
    tile.reduce(logit_sum, l);
    tile.reduce(target_logit, l);
  }
};

struct Exp {
  template <class S>
  CODA_FN S operator()(S x) const {
    return exp(x);
  }
};

/// d loss / d z of loss = (1 - s)(lse - l[target]) + s (lse - mean(l)) + zeta lse^2, weighted by dloss[m]; see
/// cross_entropy_backward in ops. s: label smoothing; zeta: the z-loss of PaLM (arXiv 2204.02311).
template <class T>
struct CrossEntropyGradient {
  LogitTransform<T> transform = {};
  ColVector<const acc_t<T>> lse = {}, dloss = {};  // (M); dloss of an ignored row is 0
  OneHot target = {};
  acc_t<T> hit = 1, smooth = 0, zeta2 = 0;  // 1 - s, s / V, 2 zeta

  template <class Tile>
  CODA_FN auto operator()(Tile& tile, auto z) const {
    auto row_lse = tile.load(lse), weight = tile.load(dloss), hot = tile.load(target);
    return transform.with([&](auto logit) {
      auto p = map(Exp{}, map(logit, z) - row_lse);
      auto dl = p * (row_lse * zeta2 + 1) - smooth - hot * hit;
      // dz is linear in dl: what a row shares is multiplied first.
      return map(WhereNonzero{}, backward(logit, z, weight).dz * dl, weight);
    });
  }
};

/// dz of stored pre-logits z, elementwise (no product); in place if dz is z.
template <class T, class Dot = RmsDot<T>>
struct CrossEntropyBackward {
  TileLoad<T> preact = {};  // (M, V)
  CrossEntropyGradient<T> gradient = {};
  TileStore<T> dz = {};  // (M, V)
  Dot dot = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    auto z = tile.load(preact);
    auto d = gradient(tile, z);
    tile.store(dz, d);
    dot(tile, map(WhereNonzero{}, z, d), d);
  }
};

/// The same for a block of the vocabulary whose z is computed again: the chunked form, which stores no logits.
template <class T, class Norm = RmsScale<T>, class Dot = RmsDot<T>>
struct GemmCrossEntropyBackward {
  Norm norm = {};
  CrossEntropyGradient<T> gradient = {};
  TileStore<T> dz = {};  // (M, chunk)
  Dot dot = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = norm(tile, acc);
    auto d = gradient(tile, z);
    tile.store(dz, d);
    dot(tile, map(WhereNonzero{}, z, d), d);
  }
};

}  // namespace coda
