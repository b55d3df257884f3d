// The gated feed-forward of OpenAI's gpt-oss, as programs of one's own: the activation once, its backward derived.
#pragma once

#include "coda/epilogue/functions.h"
#include "coda/epilogue/tile.h"

namespace gpt_oss {

/// (up + 1) gate sigmoid(1.702 gate), with gate at most 7 and up from -7 to 7. Columns are gate 0, up 0, gate 1, ...
struct Glu {
  template <class Gate, class Up>
  CODA_FN auto operator()(Gate gate, Up up) const {
    using C = coda::base_t<Gate>;
    const auto g = coda::at_most(gate, C(7));
    const auto u = coda::at_most(coda::at_least(up, C(-7)), C(7));
    return (u + C(1)) * (g * coda::sigmoid(g * C(1.702)));
  }
};

/// z = x w^T + bias, out = glu(z)
template <class T>
struct Forward {
  coda::RowVector<const T> bias = {.otherwise = 0};  // (2F)
  coda::TileStore<T> preact = {};                    // (M, 2F): z, for the backward
  coda::TileStore<T, coda::Width::Half> out = {};    // (M, F)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto z = acc + tile.load(bias);
    tile.store(preact, z);
    tile.store(out, contract(z, Glu{}));
  }
};

/// Behind dout = dy w, the next layer's input gradient: dz = glu'(z) dout, and out again, which the forward need not
/// keep.
template <class T>
struct Backward {
  coda::TileLoad<T, coda::Width::Double> preact = {};    // (M, 2F)
  coda::TileStore<T, coda::Width::Double> dpreact = {};  // (M, 2F)
  coda::TileStore<T> out = {};                           // (M, F)

  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto acc) const {
    auto [dz, y] = backward(Glu{}, tile.load(preact), acc);
    tile.store(dpreact, dz);
    tile.store(out, y);
  }
};

}  // namespace gpt_oss
