// The CPU's view of a tile: one row of it at a time, in fragments of kVectors registers, while the accumulator is in
// cache.
#pragma once

#include <algorithm>
#include <array>

#include "coda/backend/cpu/vectors.h"
#include "coda/epilogue/tile.h"

namespace coda::cpu {

/// Where a tile lies in the matrix, and how much of it is inside.
struct TileGeometry {
  std::int64_t row, col;    // of the tile's first element
  std::int64_t rows, cols;  // inside the matrix
  std::int64_t tile_m, tile_n;
  /// Whether outputs go past the caches: that saves reading their lines before they are overwritten.
  bool stream = true;
};

inline constexpr int kVectors = 4;
/// The rows of a tile are short and far apart in memory: the processor does not see by itself what it will need next.
inline constexpr std::int64_t kRowsAhead = 3;
/// The widest tile that a program may ask for (it does for the sake of head_dim); the usual one is in gemm.h.
inline constexpr int kMaxTileN = 512;

template <class Acc>
using CpuFragment = Fragment<Simd<Acc, kLanes<Acc>>, kVectors>;

template <class Acc>
class CpuTile : public Tile<CpuTile<Acc>, CpuFragment<Acc>> {
 public:
  using Base = Tile<CpuTile<Acc>, CpuFragment<Acc>>;
  using scalar = typename Base::scalar;
  using accumulator = Acc;
  template <Width W>
  using fragment = typename Base::template fragment<W>;
  static constexpr int kL = kLanes<Acc>;
  static constexpr int kColumns = kL * kVectors;
  static constexpr Acc kNan = std::numeric_limits<Acc>::quiet_NaN();

  /// Cosine and sine of columns that are not rotated.
  alignas(64) static constexpr auto kNoAngles = [] {
    std::array<Acc, kColumns> angles{};
    for (std::size_t i = 0; i < angles.size(); i += 2) angles[i] = 1;
    return angles;
  }();

  CODA_FN explicit CpuTile(const TileGeometry& g) : geometry_(g) {}
  CODA_FN void set_row(std::int64_t row) {
    row_ = row;
    ahead_ = std::min(row + kRowsAhead, geometry_.row + geometry_.rows - 1);
  }
  CODA_FN void set_column(std::int64_t col) {
    col_ = col;
    valid_ = static_cast<int>(std::min<std::int64_t>(kColumns, geometry_.col + geometry_.cols - col));
  }

  // ---- ports: begin and end of a row

  template <class P>
  CODA_FN void begin(const P&) const {}
  template <class Op>
  CODA_FN void begin(const ReduceN<Op, Acc>& p) const {
    p.reg[0] = Op::template neutral<Acc>;
  }
  template <class Op>
  CODA_FN void begin(const ReduceM<Op, Acc>& p) const {
    if (!p.data || row_ != geometry_.row) return;
    std::fill_n(p.data + geometry_.tile_m * p.pitch + geometry_.col, geometry_.cols, Op::template neutral<Acc>);
  }
  CODA_FN void begin(const MomentsN<Acc>& p) const { p.reg[0] = p.reg[1] = p.reg[2] = 0; }
  CODA_FN void begin(const OnlineLse<Acc>&) const {
    lse_max_ = scalar(-std::numeric_limits<Acc>::infinity());
    lse_sum_ = scalar(Acc(0));
  }
  template <int Slot>
  CODA_FN void begin(const HeadMean<Acc, Slot>& p) const {
    Acc* head = heads_[Slot];
    for (std::int64_t c = 0; c < geometry_.cols; c += p.head_dim) *head++ = 0;
  }

  template <class P>
  CODA_FN void end(const P&) const {}
  template <class Op>
  CODA_FN void end(const ReduceN<Op, Acc>& p) const {
    if (p.data) p.data[row_ * p.pitch + geometry_.tile_n] = p.reg[0];
  }
  CODA_FN void end(const MomentsN<Acc>& p) const {
    if (!p.mean) return;
    p.mean[row_ * p.pitch + geometry_.tile_n] = p.reg[1];
    p.m2[row_ * p.pitch + geometry_.tile_n] = p.reg[2];
  }
  CODA_FN void end(const OnlineLse<Acc>& p) const {
    if (!p.max) return;
    const Acc m = fold_lanes(lse_max_, [](auto a, auto b) { return Max::fold(a, b); });
    const scalar s = lse_sum_ * exp(lse_max_ - lse_shift(scalar(m)));
    p.max[row_ * p.pitch + geometry_.tile_n] = m;
    p.sum[row_ * p.pitch + geometry_.tile_n] = fold_lanes(s, [](auto a, auto b) { return a + b; });
  }

  // ---- loads

  template <class T>
  CODA_FN fragment<Width::Same> load_port(const ColVector<T>& p) const {
    return filled<Width::Same>(p.data ? static_cast<Acc>(static_cast<acc_t<T>>(p.data[row_]))
                                      : static_cast<Acc>(p.otherwise));
  }
  template <class T, Width W>
  CODA_FN fragment<W> load_port(const RowVector<T, W>& p) const {
    return p.data ? read<W>(p.data + scaled<W>(col_)) : filled<W>(static_cast<Acc>(p.otherwise));
  }
  template <class T, Width W>
  CODA_FN fragment<W> load_port(const TileLoad<T, W>& p) const {
    if (!p.data) return filled<W>(Acc(0));
    prefetch<W>(p.data + ahead_ * p.pitch + scaled<W>(col_));
    return read<W>(p.data + row_ * p.pitch + scaled<W>(col_));
  }
  template <class T>
  CODA_FN fragment<Width::Same> load_port(const GatherLoad<T>& p) const {
    const std::int64_t row = p.index[row_];
    if (row < 0 || row >= p.rows) return filled<Width::Same>(kNan);
    return read<Width::Same>(p.data + row * p.pitch + col_);
  }
  CODA_FN fragment<Width::Same> load_port(const OneHot& p) const {
    const std::int64_t c = place_of(p.index, p.first_column);
    if (c < 0) return filled<Width::Same>(Acc(0));
    alignas(64) Acc tmp[kColumns] = {};
    tmp[c] = 1;
    return unpack<Width::Same>(tmp);
  }
  CODA_FN fragment<Width::Same> load_port(const RotaryTable<Acc>& p) const {
    const std::int64_t position = p.position[row_], in_head = col_ % p.head_dim;
    if (col_ >= p.columns) return unpack<Width::Same>(kNoAngles.data());
    const bool outside = position < 0 || position >= p.rows;
    const Acc* angles = p.table + (outside ? 0 : position) * p.head_dim;
    if (!outside && col_ + kColumns <= p.columns && in_head + kColumns <= p.head_dim) {
      return unpack<Width::Same>(angles + in_head);
    }
    auto tmp = kNoAngles;
    each_head_segment(p.head_dim, p.columns, [&](int at, int n, std::int64_t, std::int64_t offset) {
      outside ? std::fill_n(tmp.data() + at, n, kNan) : std::copy_n(angles + offset, n, tmp.data() + at);
    });
    return unpack<Width::Same>(tmp.data());
  }
  template <class T>
  CODA_FN fragment<Width::Same> load_port(const HeadVector<T>& p) const {
    if (in_one_head(p.head_dim, p.columns)) {
      return unpack<Width::Same>((col_ < p.q_columns ? p.q : p.k) + col_ % p.head_dim);
    }
    if (p.head_dim % kL == 0) {
      auto f = filled<Width::Same>(Acc(1));
      each_head_vector(p.head_dim, p.columns, [&](int i, std::int64_t column, std::int64_t offset) {
        f.v[i] = load_vector<Acc, kL>((column < p.q_columns ? p.q : p.k) + offset);
      });
      return f;
    }
    alignas(64) Acc tmp[kColumns];
    std::fill_n(tmp, kColumns, Acc(1));
    each_head_segment(p.head_dim, p.columns, [&](int at, int n, std::int64_t first, std::int64_t offset) {
      const T* w = (first < p.q_columns ? p.q : p.k) + offset;
      for (int i = 0; i < n; ++i) tmp[at + i] = static_cast<Acc>(static_cast<acc_t<T>>(w[i]));
    });
    return unpack<Width::Same>(tmp);
  }
  template <int Slot>
  CODA_FN fragment<Width::Same> load_port(const HeadMean<Acc, Slot>& p) const {
    const auto mean = [&](std::int64_t column) {
      return heads_[Slot][head_of(column, p.head_dim)] / static_cast<Acc>(p.head_dim) + p.eps;
    };
    if (in_one_head(p.head_dim, p.columns)) return filled<Width::Same>(mean(col_));
    if (p.head_dim % kL == 0) {
      auto f = filled<Width::Same>(p.otherwise);
      each_head_vector(p.head_dim, p.columns,
                       [&](int i, std::int64_t column, std::int64_t) { f.v[i] = scalar(mean(column)); });
      return f;
    }
    alignas(64) Acc tmp[kColumns];
    std::fill_n(tmp, kColumns, p.otherwise);
    each_head_segment(p.head_dim, p.columns,
                      [&](int at, int n, std::int64_t first, std::int64_t) { std::fill_n(tmp + at, n, mean(first)); });
    return unpack<Width::Same>(tmp);
  }

  // ---- stores

  template <class T, Width W>
  CODA_FN void store_port(const TileStore<T, W>& p, const fragment<W>& f) const {
    if (!p.data) return;
    T* to = p.data + row_ * p.pitch + scaled<W>(col_);
    if (geometry_.stream && valid_ == kColumns && is_line(to)) [[likely]]
      pack<true>(to, f);
    else write(to, f);
  }
  template <class T>
  CODA_FN void store_port(const ColVector<T>& p, const fragment<Width::Same>& f) const {
    if (p.data && col_ == 0) p.data[row_] = static_cast<T>(static_cast<acc_t<T>>(f.v[0][0]));
  }
  template <class T, Width W>
  CODA_FN void store_port(const RowVector<T, W>& p, const fragment<W>& f) const {
    if (p.data && row_ == 0) write(p.data + scaled<W>(col_), f);
  }

  template <class T, Width W>
  CODA_FN fragment<W> rounded(fragment<W> f) const {
    CODA_UNROLL for (int i = 0; i < f.count; ++i) f.v[i] = rounded_to<T>(f.v[i]);
    return f;
  }

  // ---- reductions and stateful transforms

  template <class Op, Width W>
  CODA_FN void reduce_port(const ReduceN<Op, Acc>& p, const fragment<W>& f) const {
    if (!p.data) return;
    fragment<W> x = f;
    CODA_UNROLL for (int i = 0; i < x.count; ++i) x.v[i] = Op::first(x.v[i]);
    p.reg[0] = Op::fold(p.reg[0], fold<Op>(masked(x, Op::template neutral<Acc>)));
  }
  template <class Op>
  CODA_FN void reduce_port(const ReduceM<Op, Acc>& p, const fragment<Width::Same>& f) const {
    if (!p.data) return;
    Acc* out = p.data + geometry_.tile_m * p.pitch + col_;
    auto x = read<Width::Same>(out);
    CODA_UNROLL for (int i = 0; i < kVectors; ++i) x.v[i] = Op::fold(x.v[i], Op::first(f.v[i]));
    write(out, x);
  }
  template <Width W>
  CODA_FN void reduce_port(const MomentsN<Acc>& p, const fragment<W>& f) const {
    if (!p.mean) return;
    const Acc n = static_cast<Acc>(scaled<W>(valid_));
    if (n <= 0) return;  // the last column of an odd number, half as wide
    const Acc mean = fold<Sum>(masked(f, Acc(0))) / n;
    fragment<W> d = f;
    CODA_UNROLL for (int i = 0; i < d.count; ++i) d.v[i] = (d.v[i] - scalar(mean)) * (d.v[i] - scalar(mean));
    const Acc m2 = fold<Sum>(masked(d, Acc(0)));
    const Acc total = p.reg[0] + n, delta = mean - p.reg[1];
    p.reg[1] += delta * n / total;
    p.reg[2] += m2 + delta * (p.reg[0] * n / total) * delta;  // large ones meet the 0 of a first chunk
    p.reg[0] = total;
  }
  template <Width W>
  CODA_FN void reduce_port(const OnlineLse<Acc>& p, const fragment<W>& f) const {
    if (!p.max) return;
    const fragment<W> x = masked(f, -std::numeric_limits<Acc>::infinity());
    scalar m = lse_max_;
    CODA_UNROLL for (int i = 0; i < x.count; ++i) m = Max::fold(m, x.v[i]);
    const scalar shift = lse_shift(m);
    scalar s = lse_sum_ * exp(lse_max_ - shift);
    CODA_UNROLL for (int i = 0; i < x.count; ++i) s = s + exp(x.v[i] - shift);
    lse_max_ = m;
    lse_sum_ = s;
  }
  CODA_FN void reduce_port(const TargetSelect<Acc>& p, const fragment<Width::Same>& f) const {
    if (!p.data) return;
    const std::int64_t c = place_of(p.index, p.first_column);
    if (c < 0) return;
    alignas(64) Acc tmp[kColumns];
    pack(tmp, f);
    p.data[row_] = tmp[c];
  }
  template <int Slot>
  CODA_FN void reduce_port(const HeadMean<Acc, Slot>& p, const fragment<Width::Same>& f) const {
    const auto add = [&](std::int64_t column, Acc x) { heads_[Slot][head_of(column, p.head_dim)] += x; };
    if (in_one_head(p.head_dim, p.columns)) {
      scalar sum = f.v[0];
      CODA_UNROLL for (int i = 1; i < kVectors; ++i) sum = sum + f.v[i];
      return add(col_, fold_lanes(sum, [](auto a, auto b) { return a + b; }));
    }
    if (p.head_dim % kL == 0) {
      each_head_vector(p.head_dim, p.columns, [&](int i, std::int64_t column, std::int64_t) {
        add(column, fold_lanes(f.v[i], [](auto a, auto b) { return a + b; }));
      });
      return;
    }
    alignas(64) Acc tmp[kColumns];
    pack(tmp, f);
    each_head_segment(p.head_dim, p.columns, [&](int at, int n, std::int64_t first, std::int64_t) {
      Acc sum = 0;
      for (int i = 0; i < n; ++i) sum += tmp[at + i];
      add(first, sum);
    });
  }

 private:
  /// Where this fragment has column index[row] - first_column of the matrix; -1 if it has not.
  CODA_FN std::int64_t place_of(const IndexVector& index, std::int64_t first_column) const {
    const std::int64_t first = first_column + col_, column = index[row_];
    return column >= first && column - first < valid_ ? column - first : -1;
  }
  template <Width W>
  static CODA_FN std::int64_t scaled(std::int64_t columns) {
    return columns * static_cast<int>(W) / static_cast<int>(Width::Same);
  }
  template <Width W, class T>
  static CODA_FN void prefetch(const T* p) {
    constexpr int kLine = 64 / static_cast<int>(sizeof(T));
    CODA_UNROLL for (int i = 0; i < fragment<W>::count * kL; i += kLine) __builtin_prefetch(p + i);
  }
  template <Width W>
  static CODA_FN fragment<W> filled(Acc x) {
    fragment<W> f;
    CODA_UNROLL for (int i = 0; i < f.count; ++i) f.v[i] = scalar(x);
    return f;
  }
  template <Width W, class T>
  static CODA_FN fragment<W> unpack(const T* p) {
    fragment<W> f;
    if constexpr (W == Width::Double) load_pairs(p, f.v);
    else load_vectors(p, f.v);
    return f;
  }
  /// Past the caches if `Stream`, where p must be the begin of a line.
  template <bool Stream = false, class T, Width W>
  static CODA_FN void pack(T* p, const fragment<W>& f) {
    if constexpr (W == Width::Double) store_pairs<Stream>(p, f.v);
    else if constexpr (Stream) stream_vectors(p, f.v);
    else store_vectors(p, f.v);
  }
  template <Width W, class T>
  CODA_FN fragment<W> read(const T* p) const {
    if (valid_ == kColumns) [[likely]]
      return unpack<W>(p);
    std::remove_const_t<T> tmp[fragment<W>::count * kL] = {};
    std::copy_n(p, scaled<W>(valid_), tmp);
    return unpack<W>(tmp);
  }
  template <class T, Width W>
  CODA_FN void write(T* p, const fragment<W>& f) const {
    if (valid_ == kColumns) [[likely]]
      return pack(p, f);
    T tmp[fragment<W>::count * kL];
    pack(tmp, f);
    std::copy_n(tmp, scaled<W>(valid_), p);
  }
  /// The fragment with columns outside the matrix replaced.
  template <Width W>
  CODA_FN fragment<W> masked(const fragment<W>& f, Acc outside) const {
    if (valid_ == kColumns) [[likely]]
      return f;
    alignas(64) Acc tmp[fragment<W>::count * kL];
    pack(tmp, f);
    std::fill(tmp + scaled<W>(valid_), tmp + fragment<W>::count * kL, outside);
    return unpack<W>(tmp);
  }
  template <class Op, Width W>
  static CODA_FN Acc fold(const fragment<W>& f) {
    auto x = f.v[0];
    CODA_UNROLL for (int i = 1; i < f.count; ++i) x = Op::fold(x, f.v[i]);
    return fold_lanes(x, [](auto a, auto b) { return Op::fold(a, b); });
  }
  /// A column's head, counted from the tile's first one. In 32 bits: the division is a good part of a short row's time.
  CODA_FN int head_of(std::int64_t column, int head_dim) const {
    return static_cast<int>(column - geometry_.col) / head_dim;
  }
  /// Whether all of this fragment lies in one head before column `columns`: fragments begin where heads may.
  CODA_FN bool in_one_head(int head_dim, std::int64_t columns) const {
    return head_dim % kColumns == 0 && valid_ == kColumns && col_ + kColumns <= columns;
  }
  /// f(i, column, offset in the head) for each vector i of this fragment before column `columns`, where heads are made
  /// of whole vectors.
  template <class F>
  CODA_FN void each_head_vector(int head_dim, std::int64_t columns, const F& f) const {
    const std::int64_t stop = std::min<std::int64_t>(columns - col_, valid_);
    std::int64_t offset = col_ % head_dim;
    CODA_UNROLL for (int i = 0; i < kVectors; ++i) {
      if (i * kL < stop) f(i, col_ + i * kL, offset);
      offset = offset + kL == head_dim ? 0 : offset + kL;
    }
  }
  /// f(at, n, column, offset) for each run of this fragment's columns that lies in one head before column `columns`.
  template <class F>
  CODA_FN void each_head_segment(int head_dim, std::int64_t columns, const F& f) const {
    const int stop = static_cast<int>(std::clamp<std::int64_t>(columns - col_, 0, valid_));
    for (int at = 0; at < stop;) {
      const std::int64_t offset = (col_ + at) % head_dim;
      const int n = static_cast<int>(std::min<std::int64_t>(head_dim - offset, stop - at));
      f(at, n, col_ + at, offset);
      at += n;
    }
  }

  TileGeometry geometry_;
  std::int64_t row_ = 0, ahead_ = 0, col_ = 0;
  int valid_ = kColumns;
  mutable Acc heads_[kHeadSlots][kMaxTileN / 2];
  mutable scalar lse_max_, lse_sum_;  // lane by lane; of the one OnlineLse that a program may have
};

/// Runs a program over `count` rows from `first` on of one tile, whose accumulator is in memory: acc[r * ld + c] is
/// that of row first + r. Or, if the tile has more columns than `strip`, which is a multiple of a fragment's: one strip
/// of so many columns lies behind the other, each with rows as long as it is wide. What a row holds past the tile's
/// last column is read up to a whole fragment (anything may be there) but never used. Rows that a port of the program
/// folds are to be run in order, by one thread. Outputs that went past the caches are for other threads to see after
/// end_of_streams().
template <class Acc, class P>
void run_epilogue(const void* program, const TileGeometry& g, std::int64_t first, std::int64_t count,
                  const void* accumulator, std::int64_t ld,
                  std::int64_t strip = std::numeric_limits<std::int64_t>::max()) {
  check_program<Acc, P, CpuTile<Acc>, CpuFragment<Acc>>();
  static_assert(count_ports<OnlineLse<Acc>, P>() <= 1, "coda: a program has one OnlineLse at most");
  const P p = *static_cast<const P*>(program);  // this thread's own: ports keep running values
  CpuTile<Acc> tile(g);
  using F = CpuFragment<Acc>;
  const auto sweep = [&](std::int64_t r, auto&& pass) {
    const Acc* acc = static_cast<const Acc*>(accumulator);
    for (std::int64_t s = 0; s < g.cols; s += strip) {
      const std::int64_t width = std::min(strip, g.cols - s);
      const Acc* row = acc + s * count + r * (strip < g.cols ? width : ld);
      for (std::int64_t c = 0; c < width; c += tile.kColumns) {
        tile.set_column(g.col + s + c);
        F f;
        CODA_UNROLL for (int i = 0; i < kVectors; ++i) f.v[i] = load_as<tile.kL>(row + c + i * tile.kL);
        pass(f);
      }
      if (strip >= g.cols) break;
    }
  };
  for (std::int64_t r = 0; r < count; ++r) {
    tile.set_row(g.row + first + r);
    for_each_port(p, [&](const auto& port) { tile.begin(port); });
    if constexpr (HasFirstPass<P, CpuTile<Acc>, F>) sweep(r, [&](const F& f) { p.first(tile, f); });
    sweep(r, [&](const F& f) { p(tile, f); });
    for_each_port(p, [&](const auto& port) { tile.end(port); });
  }
}

}  // namespace coda::cpu
