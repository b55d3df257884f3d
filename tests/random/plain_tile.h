// A backend of a page: programs on pairs of columns, one after the other, in doubles. What its tile does is what
// ports.h says of each port, and nothing else, so that it can tell what a program nobody has a formula of must give.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "coda/epilogue/tile.h"
#include "tests/reference/mat.h"

namespace coda::test {

/// Of the whole call: M, N, and rows and columns of a tile, which partial results are of.
struct PlainExtent {
  std::int64_t m, n, tile_m, tile_n;
};

class PlainTile : public Tile<PlainTile, Fragment<double, 2>> {
 public:
  using accumulator = double;
  template <Width W>
  using fragment = Tile::fragment<W>;

  explicit PlainTile(const PlainExtent& extent) : extent_(extent) {}
  void move_to(std::int64_t row, std::int64_t column) { row_ = row, column_ = column; }
  void begin_row() {
    for (auto& sums : heads_) sums.clear();
  }

  // ---- before and behind all of it
  template <class P>
  void begin(const P&) const {}
  template <class Op>
  void begin(const ReduceN<Op, double>& p) const {
    fill(p, extent_.m, tiles_n(), Op::template neutral<double>);
  }
  template <class Op>
  void begin(const ReduceM<Op, double>& p) const {
    fill(p, ceil_div(extent_.m, extent_.tile_m), extent_.n, Op::template neutral<double>);
  }
  template <class P>
  void end(const P&) {}
  void end(const MomentsN<double>& p) {
    for (const auto& [place, moments] : moments_[p.mean]) {
      const auto [row, tile] = place;
      const double mean = moments.sum / moments.count;
      p.mean[row * p.pitch + tile] = mean;
      p.m2[row * p.pitch + tile] = moments.squares - mean * moments.sum;
    }
  }
  void end(const OnlineLse<double>& p) {
    for (const auto& [place, values] : logits_[p.max]) {
      const auto [row, tile] = place;
      double max = -std::numeric_limits<double>::infinity(), sum = 0;
      for (const double x : values) max = std::max(max, x);
      for (const double x : values) sum += std::exp(x - max);
      p.max[row * p.pitch + tile] = max, p.sum[row * p.pitch + tile] = sum;
    }
  }

  // ---- loads
  template <class T>
  fragment<Width::Same> load_port(const ColVector<T>& p) const {
    return each<Width::Same>([&](std::int64_t) { return p.data ? p.data[row_] : p.otherwise; });
  }
  template <class T, Width W>
  fragment<W> load_port(const RowVector<T, W>& p) const {
    return each<W>([&](std::int64_t n) { return p.data ? p.data[n] : p.otherwise; });
  }
  template <Width W>
  fragment<W> load_port(const TileLoad<double, W>& p) const {
    return each<W>([&](std::int64_t n) { return p.data ? p.data[row_ * p.pitch + n] : 0.0; });
  }
  fragment<Width::Same> load_port(const GatherLoad<double>& p) const {
    return each<Width::Same>([&](std::int64_t n) {
      const std::int64_t row = p.index[row_];
      return row >= 0 && row < p.rows ? p.data[row * p.pitch + n] : std::nan("");
    });
  }
  fragment<Width::Same> load_port(const OneHot& p) const {
    return each<Width::Same>([&](std::int64_t n) { return n == p.index[row_] - p.first_column ? 1.0 : 0.0; });
  }
  fragment<Width::Same> load_port(const RotaryTable<double>& p) const {
    return each<Width::Same>([&](std::int64_t n) {
      const std::int64_t position = p.position[row_];
      if (n >= p.columns) return n % 2 == 0 ? 1.0 : 0.0;
      return position >= 0 && position < p.rows ? p.table[position * p.head_dim + n % p.head_dim] : std::nan("");
    });
  }
  fragment<Width::Same> load_port(const HeadVector<double>& p) const {
    return each<Width::Same>(
        [&](std::int64_t n) { return n >= p.columns ? 1.0 : (n < p.q_columns ? p.q : p.k)[n % p.head_dim]; });
  }
  template <int Slot>
  fragment<Width::Same> load_port(const HeadMean<double, Slot>& p) const {
    return each<Width::Same>([&](std::int64_t n) {
      return n >= p.columns ? p.otherwise : heads_[Slot].at(n / p.head_dim) / p.head_dim + p.eps;
    });
  }

  // ---- stores
  template <Width W>
  void store_port(const TileStore<double, W>& p, const fragment<W>& f) const {
    if (p.data) for_each<W>(f, [&](std::int64_t n, double x) { p.data[row_ * p.pitch + n] = x; });
  }
  void store_port(const ColVector<double>& p, const fragment<Width::Same>& f) const {
    if (p.data && column_ == 0) p.data[row_] = f.v[0];
  }
  template <Width W>
  void store_port(const RowVector<double, W>& p, const fragment<W>& f) const {
    if (p.data && row_ == 0) for_each<W>(f, [&](std::int64_t n, double x) { p.data[n] = x; });
  }

  // ---- reductions
  template <class Op, Width W>
  void reduce_port(const ReduceN<Op, double>& p, const fragment<W>& f) const {
    if (!p.data) return;
    double& out = p.data[row_ * p.pitch + column_ / extent_.tile_n];
    for_each<W>(f, [&](std::int64_t, double x) { out = Op::fold(out, Op::first(x)); });
  }
  template <class Op>
  void reduce_port(const ReduceM<Op, double>& p, const fragment<Width::Same>& f) const {
    if (!p.data) return;
    for_each<Width::Same>(f, [&](std::int64_t n, double x) {
      double& out = p.data[row_ / extent_.tile_m * p.pitch + n];
      out = Op::fold(out, Op::first(x));
    });
  }
  template <Width W>
  void reduce_port(const MomentsN<double>& p, const fragment<W>& f) const {
    if (!p.mean) return;
    Moments& to = moments_[p.mean][place()];
    for_each<W>(f, [&](std::int64_t, double x) { to.count += 1, to.sum += x, to.squares += x * x; });
  }
  template <Width W>
  void reduce_port(const OnlineLse<double>& p, const fragment<W>& f) const {
    if (p.max) for_each<W>(f, [&](std::int64_t, double x) { logits_[p.max][place()].push_back(x); });
  }
  void reduce_port(const TargetSelect<double>& p, const fragment<Width::Same>& f) const {
    if (!p.data) return;
    for_each<Width::Same>(f, [&](std::int64_t n, double x) {
      if (n == p.index[row_] - p.first_column) p.data[row_] = x;
    });
  }
  template <int Slot>
  void reduce_port(const HeadMean<double, Slot>& p, const fragment<Width::Same>& f) const {
    for_each<Width::Same>(f, [&](std::int64_t n, double x) { heads_[Slot][n / p.head_dim] += x; });
  }

 private:
  struct Moments {
    double count = 0, sum = 0, squares = 0;
  };
  using Place = std::pair<std::int64_t, std::int64_t>;  // row, tile

  Place place() const { return {row_, column_ / extent_.tile_n}; }
  std::int64_t tiles_n() const { return ceil_div(extent_.n, extent_.tile_n); }
  template <Width W>
  static std::int64_t scaled(std::int64_t columns) {
    return columns * static_cast<int>(W) / static_cast<int>(Width::Same);
  }
  /// f(column) for each column of the fragment that the matrix has.
  template <Width W, class F>
  fragment<W> each(const F& f) const {
    fragment<W> out{};
    for (int i = 0; i < out.count; ++i) {
      const std::int64_t n = scaled<W>(column_) + i;
      if (n < scaled<W>(extent_.n)) out.v[i] = f(n);
    }
    return out;
  }
  template <Width W, class F>
  void for_each(const fragment<W>& values, const F& f) const {
    for (int i = 0; i < values.count; ++i) {
      const std::int64_t n = scaled<W>(column_) + i;
      if (n < scaled<W>(extent_.n)) f(n, values.v[i]);
    }
  }
  template <class P>
  static void fill(const P& p, std::int64_t rows, std::int64_t cols, double x) {
    if (!p.data) return;
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t n = 0; n < cols; ++n) p.data[m * p.pitch + n] = x;
  }

  PlainExtent extent_;
  std::int64_t row_ = 0, column_ = 0;
  mutable std::map<std::int64_t, double> heads_[kHeadSlots];
  mutable std::map<const double*, std::map<Place, Moments>> moments_;
  mutable std::map<const double*, std::map<Place, std::vector<double>>> logits_;
};

/// Runs a program whose ports are of doubles on a product.
template <class P>
void run_plainly(const P& program, const reference::Mat& product, const PlainExtent& extent) {
  PlainTile tile(extent);
  using F = PlainTile::fragment<Width::Same>;
  for_each_port(program, [&](const auto& port) { tile.begin(port); });
  const auto sweep = [&](std::int64_t m, auto&& pass) {
    for (std::int64_t n = 0; n < extent.n; n += 2) {
      tile.move_to(m, n);
      pass(F{{product(m, n), n + 1 < extent.n ? product(m, n + 1) : 0.0}});
    }
  };
  for (std::int64_t m = 0; m < extent.m; ++m) {
    tile.begin_row();
    if constexpr (HasFirstPass<P, PlainTile, F>) sweep(m, [&](const F& acc) { program.first(tile, acc); });
    sweep(m, [&](const F& acc) { program(tile, acc); });
  }
  for_each_port(program, [&](const auto& port) { tile.end(port); });
}

}  // namespace coda::test
