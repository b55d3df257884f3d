// Linear layers behind a norm, plain, activated or gated; and the backward of each, derived from the function.
#pragma once

#include "coda/programs/norm.h"

namespace coda {

/// z = norm(acc), out = f(z). With Identity: gemm_rms and gemm_layernorm.
template <class T, class Norm = RmsScale<T>, class F = Identity>
struct GemmNorm {
  Norm norm = {};
  TileStore<T> preact = {}, out = {};  // (M, N); preact, the value z, is optional

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = norm(tile, acc);
    tile.store(preact, z);
    tile.store(out, map(F{}, z));
  }
};

/// z = norm(acc), out = f(gate, up) of the pairs of z: weight rows are interleaved gate 0, up 0, gate 1, up 1, ...
template <class T, class Norm = RmsScale<T>, class F = SwiGlu>
struct GemmNormGlu {
  Norm norm = {};
  TileStore<T> preact = {};            // (M, 2F), optional: kept for the backward
  TileStore<T, Width::Half> out = {};  // (M, F)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = norm(tile, acc);
    tile.store(preact, z);
    tile.store(out, contract(z, F{}));
  }
};

/// acc = dY of a gated activation (zw = Double, f of a pair) or a plain one (Same): dz, y again, and z dz.
template <class T, class F, Width ZW, class Dot = RmsDot<T, ZW>>
struct GemmFunctionBackward {
  TileLoad<T, ZW> preact = {};    // (M, N) or (M, 2N)
  TileStore<T, ZW> dpreact = {};  // as preact
  TileStore<T> out = {};          // (M, N)
  Dot dot = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = tile.load(preact);
    auto [dz, y] = backward(F{}, z, acc);
    tile.store(dpreact, dz);
    dot(tile, z, dz);
    tile.store(out, y);
  }
};

template <class T, class F = SwiGlu, class Dot = RmsDot<T, Width::Double>>
using GemmGluBackward = GemmFunctionBackward<T, F, Width::Double, Dot>;
template <class T, class F = Silu, class Dot = RmsDot<T>>
using GemmActivationBackward = GemmFunctionBackward<T, F, Width::Same, Dot>;

}  // namespace coda
