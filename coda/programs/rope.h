// QKV projections: rotary embedding of the q and k heads, with or without an RMSNorm of each head before it.
#pragma once

#include "coda/programs/norm.h"

namespace coda {

/// z = norm(acc); q and k columns are rotated pairwise by the row's position, v columns pass through.
template <class T, class Norm = RmsScale<T>>
struct GemmNormRope {
  Norm norm = {};
  RotaryTable<acc_t<T>> rope = {};
  TileStore<T> out = {};  // (M, N), N = (q + k + v heads) * head_dim

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    tile.store(out, pairwise(norm(tile, acc), tile.load(rope), Rotate{}));
  }
};

/// z = norm(acc); each pair of columns is rotated back by an angle of its own, as the paper's kernels have it.
template <class T, class Norm = RmsScale<T>>
struct GemmNormRotate {
  Norm norm = {};
  TileLoad<T> angle = {};              // (M, N): cos and sin of pair j at columns 2j and 2j+1
  TileStore<T> preact = {}, out = {};  // (M, N); preact, the value z, is optional

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = norm(tile, acc), turn = tile.load(angle);
    tile.store(preact, z);
    tile.store(out, pairwise(z, turn, RotateBack{}));
  }
};

struct Rsqrt {
  template <class S>
  CODA_FN S operator()(S x) const {
    return rsqrt(x);
  }
};

/// z = norm(acc); each q and k head is RMS-normalised with its weight, then rotated (Qwen3, Gemma 3).
template <class T, class Norm = RmsScale<T>>
struct GemmNormQkNormRope {
  Norm norm = {};
  HeadMean<acc_t<T>> square = {};  // of each head, eps added
  HeadVector<T> weight = {};
  RotaryTable<acc_t<T>> rope = {};
  TileStore<T> preact = {}, out = {};  // (M, N); preact, the value z, is optional: kept for the backward

  template <class Tile>
  CODA_FN void first(Tile& tile, auto acc) const {
    auto z = norm(tile, acc);
    tile.reduce(square, z * z);
  }
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = norm(tile, acc);
    tile.store(preact, z);
    auto normed = z * map(Rsqrt{}, tile.load(square)) * tile.load(weight);
    tile.store(out, pairwise(normed, tile.load(rope), Rotate{}));
  }
};

/// dz = R^T dy, elementwise (no product), and the row terms of the norm before the projection.
template <class T, class Dot = RmsDot<T>>
struct RopeBackward {
  TileLoad<T> y = {}, dy = {};  // (M, N) the forward's output and its gradient
  RotaryTable<acc_t<T>> rope = {};
  TileStore<T> dz = {};  // (M, N), may be dy
  Dot dot = {};

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    auto g = tile.load(dy), d = pairwise(g, tile.load(rope), RotateBack{});
    tile.store(dz, d);
    dot.of_output(tile, tile.load(y), g, d);
  }
};

/// The same through the norm of each head: g = R^T dy * w, dz = r (g - n mean(g n)) with n = z r, r = rstd of the head;
/// v columns have no such term.
template <class T, class Dot = RmsDot<T>>
struct QkNormRopeBackward {
  TileLoad<T> preact = {}, dy = {};  // (M, N)
  HeadMean<acc_t<T>, 0> square = {};
  HeadMean<acc_t<T>, 1> gz = {.otherwise = 0};  // mean of g z over each head
  HeadVector<T> weight = {};
  RotaryTable<acc_t<T>> rope = {};
  TileStore<T> dz = {};                 // (M, N), may be dy
  ReduceM<Sum, acc_t<T>> dweight = {};  // (tiles, N): R^T dy * n, to be summed over the heads
  Dot dot = {};

  template <class Tile>
  CODA_FN void first(Tile& tile, auto) const {
    auto z = tile.load(preact);
    tile.reduce(square, z * z);
    tile.reduce(gz, pairwise(tile.load(dy), tile.load(rope), RotateBack{}) * tile.load(weight) * z);
  }
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    auto z = tile.load(preact), r = map(Rsqrt{}, tile.load(square));
    auto back = pairwise(tile.load(dy), tile.load(rope), RotateBack{});
    auto d = r * map(MinusProduct{}, back * tile.load(weight), z, r * r * tile.load(gz));
    tile.store(dz, d);
    tile.reduce(dweight, back * (z * r));
    dot(tile, z, d);
  }
};

}  // namespace coda
