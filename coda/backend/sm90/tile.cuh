// The Hopper view of a tile: one row of a patch at a time, of which a thread has 8
// values (see fragment.cuh).
#pragma once

#include "coda/backend/sm90/carried.cuh"
#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/fragment.cuh"

namespace coda::sm90 {

/// Where a thread stands in the matrix. Rows and columns fit 32 bits, offsets of elements do not.
struct Position {
  int warp_row;    // first row of the thread's warp
  int row, col;    // first row of the thread, first column of the tile
  int rows, cols;  // of the matrix
  int lane;        // in its quad
  int tile_n;      // first block of partial results along n
};

/// While all values are -inf the shift is 0: exp(-inf - 0) = 0, where exp(-inf + inf) would be NaN.
CODA_DEVICE float lse_shift(float max) { return max == -std::numeric_limits<float>::infinity() ? 0.f : max; }

/// (n, mean, m2) of two sets that do not overlap, after Chan, Golub and LeVeque.
CODA_DEVICE void merge_moments(float* into, float n, float mean, float m2) {
  const float total = into[0] + n, delta = mean - into[1];
  const float share = total > 0 ? n / total : 0.f;
  into[2] += m2 + delta * delta * into[0] * share;
  into[1] += delta * share;
  into[0] = total;
}

/// A chunk of a vector's elements, or of `otherwise`, as the words that it lies in memory as; one of 2 bytes as a
/// float.
template <Width W, class T>
CODA_DEVICE void load_chunk(const T* p, bool there, float otherwise, std::uint32_t* words) {
  float x[kChunk<W>];
  CODA_UNROLL for (int c = 0; c < kChunk<W>; ++c) x[c] = otherwise;
  if constexpr (kChunkBytes<T, W> >= 4) {
    std::uint32_t w[kWords<T, kChunk<W>>];
    to_words<T, kChunk<W>>(x, w);
    load_constant_words(p, w, there);
    CODA_UNROLL for (int i = 0; i < kWords<T, kChunk<W>>; ++i) words[i] = w[i];
  } else {
    words[0] = __float_as_uint(there ? static_cast<float>(*p) : otherwise);
  }
}
template <Width W, class T>
CODA_DEVICE void chunk_values(const std::uint32_t* words, float* x) {
  if constexpr (kChunkBytes<T, W> >= 4) {
    std::uint32_t w[kWords<T, kChunk<W>>];
    CODA_UNROLL for (int i = 0; i < kWords<T, kChunk<W>>; ++i) w[i] = words[i];
    from_words<T, kChunk<W>>(w, x);
  } else {
    x[0] = __uint_as_float(words[0]);
  }
}

/// Words of a chunk at most: those of a port of floats, twice as wide.
inline constexpr int kChunkWords = 4;

/// What the RowVectors of a program hold at a thread's columns of a subtile: all rows of it use the same values, and
/// they are asked for while the subtile before is stored. Only the entries of RowVectors are ever used, so only they
/// exist.
template <class Program, int Patches>
struct ColumnValues {
  std::uint32_t words[kPortCount<Program>][Patches][kGroups * kChunkWords];
};

/// One row of a patch. `Program` is the thread's own copy; `slot` is the row's number among those that the thread owns,
/// `row` and `col` are those of the patch's row in the matrix, `patch` is its number in the subtile. `c` has what
/// CUTLASS loaded, `d` takes what it stores. `Absent`: see PortMask.
template <class Program, PortMask Absent, int Patches, class CElement>
class Sm90Tile : public Tile<Sm90Tile<Program, Absent, Patches, CElement>, Accumulator> {
 public:
  using Base = Tile<Sm90Tile, Accumulator>;
  template <Width W>
  using fragment = typename Base::template fragment<W>;

  CODA_DEVICE Sm90Tile(const Program& program, const Position& at, const ColumnValues<Program, Patches>& columns,
                       int patch, int slot, int row, int col, const CElement* c, float* d)
      : program_(program), at_(at), columns_(columns), patch_(patch), slot_(slot), row_(row), col_(col), c_(c), d_(d) {}

  // ---- loads

  template <class T>
  CODA_DEVICE fragment<Width::Same> load_port(const ColVector<T>& p) const {
    return filled<Width::Same>(p.reg[slot_]);
  }
  template <class T, Width W>
  CODA_DEVICE fragment<W> load_port(const RowVector<T, W>& p) const {
    if (is_masked<Absent>(program_, &p)) return filled<W>(static_cast<float>(p.otherwise));
    fragment<W> f;
    int number = 0;
    for_each_port(program_, [&](const auto& port) {
      if (static_cast<const void*>(&port) == &p) {
        CODA_UNROLL for (int j = 0; j < kGroups; ++j) {
          chunk_values<W, std::remove_const_t<T>>(columns_.words[number][patch_] + j * kChunkWords,
                                                  f.v + j * kChunk<W>);
        }
      }
      ++number;
    });
    return f;
  }
  template <class T, Width W>
  CODA_DEVICE fragment<W> load_port(const TileLoad<T, W>& p) const {
    if (is_masked<Absent>(program_, &p)) return filled<W>(0.f);
    fragment<W> f;
    constexpr Carried kC = kLoadWith<Program, Absent>;
    if constexpr (kC.port >= 0 && kC.width == W && kC.dtype == dtype_of<T>) {
      if (is_port<kC.port>(program_, &p)) {
        CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) {
          if constexpr (W == Width::Double) {
            const Pair<float> pair = unpack(T(), __float_as_uint(c_[i]));
            f.v[2 * i] = pair.first, f.v[2 * i + 1] = pair.second;
          } else {
            f.v[i] = static_cast<float>(c_[i]);
          }
        }
        return f;
      }
    }
    load_row(p.data + offset<W>(p.pitch), f, at_.lane, p.data && inside() ? width<W>() : 0);
    return f;
  }
  CODA_DEVICE fragment<Width::Same> load_port(const OneHot& p) const {
    fragment<Width::Same> f;
    const int hot = here(p.reg[slot_]);
    each<Width::Same>([&](int i, int column) { f.v[i] = column == hot ? 1.f : 0.f; });
    return f;
  }
  CODA_DEVICE fragment<Width::Same> load_port(const RotaryTable<float>& p) const {
    fragment<Width::Same> f;
    CODA_UNROLL for (int j = 0; j < kGroups; ++j) {
      const int column = group_column(j);
      float2 angle = {1.f, 0.f};
      if (column < p.columns && column < at_.cols) {
        angle = __ldg(reinterpret_cast<const float2*>(p.table + p.reg[slot_] * p.head_dim + column % p.head_dim));
      }
      f.v[2 * j] = angle.x, f.v[2 * j + 1] = angle.y;
    }
    return f;
  }
  template <class T>
  CODA_DEVICE fragment<Width::Same> load_port(const HeadVector<T>& p) const {
    fragment<Width::Same> f;
    CODA_UNROLL for (int j = 0; j < kGroups; ++j) {
      const int column = group_column(j);
      const bool normed = column < p.columns && column < at_.cols;
      std::uint32_t words[2];
      load_chunk<Width::Same>((column < p.q_columns ? p.q : p.k) + column % p.head_dim, normed, 1.f, words);
      chunk_values<Width::Same, std::remove_const_t<T>>(words, f.v + 2 * j);
    }
    return f;
  }

  // ---- stores

  template <class T, Width W>
  CODA_DEVICE void store_port(const TileStore<T, W>& p, const fragment<W>& f) const {
    if (is_masked<Absent>(program_, &p)) return;
    constexpr Carried kD = kCarriedStore<Program>;
    if constexpr (kD.port >= 0 && kD.width == W && kD.dtype == dtype_of<T>) {
      if (is_port<kD.port>(program_, &p)) {
        CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) {
          if constexpr (W == Width::Double) {
            d_[i] = __uint_as_float(pack(T(), f.v[2 * i], f.v[2 * i + 1]));
          } else {
            d_[i] = f.v[i];
          }
        }
        return;
      }
    }
    store_row(p.data + offset<W>(p.pitch), f, at_.lane, p.data && inside() ? width<W>() : 0);
  }
  template <class T>
  CODA_DEVICE void store_port(const ColVector<T>& p, const fragment<Width::Same>& f) const {
    if (p.data && col_ == 0 && at_.lane == 0 && inside()) p.data[row_] = T(f.v[0]);
  }
  template <class T, Width W>
  CODA_DEVICE void store_port(const RowVector<T, W>& p, const fragment<W>& f) const {
    if (!p.data || row_ != 0) return;
    each<W>([&](int i, int column) {
      if (valid<W>(i)) p.data[scaled<W>(col_) + column] = T(f.v[i]);
    });
  }

  // ---- reductions and stateful transforms, over the columns that are in the matrix

  template <class Op, Width W>
  CODA_DEVICE void reduce_port(const ReduceN<Op>& p, const fragment<W>& f) const {
    float acc = p.reg[slot_];  // also where the port is absent: a branch would cost more
    CODA_UNROLL for (int j = 0; j < kGroups; ++j) {
      const float* x = f.v + j * kChunk<W>;
      float sum = Op::first(x[0]);
      CODA_UNROLL for (int c = 1; c < kChunk<W>; ++c) sum = Op::fold(sum, Op::first(x[c]));
      acc = col_ + 8 * j < at_.cols ? Op::fold(acc, sum) : acc;
    }
    p.reg[slot_] = acc;
  }
  template <Width W>
  CODA_DEVICE void reduce_port(const MomentsN<float>& p, const fragment<W>& f) const {
    if (!p.mean) return;
    float n = 0, sum = 0, m2 = 0;
    each<W>([&](int i, int) {
      if (valid<W>(i)) n += 1.f, sum += f.v[i];
    });
    const float mean = n > 0 ? sum / n : 0.f;
    each<W>([&](int i, int) {
      if (valid<W>(i)) m2 += (f.v[i] - mean) * (f.v[i] - mean);
    });
    merge_moments(p.reg + 3 * slot_, n, mean, m2);
  }
  template <Width W>
  CODA_DEVICE void reduce_port(const OnlineLse<float>& p, const fragment<W>& f) const {
    if (!p.max) return;
    float* reg = p.reg + 2 * slot_;
    float max = reg[0];
    each<W>([&](int i, int) {
      if (valid<W>(i)) max = Max::fold(max, f.v[i]);
    });
    const float shift = lse_shift(max);
    float sum = reg[1] * exp(reg[0] - shift);
    each<W>([&](int i, int) {
      if (valid<W>(i)) sum += exp(f.v[i] - shift);
    });
    reg[0] = max, reg[1] = sum;
  }
  CODA_DEVICE void reduce_port(const TargetSelect<float>& p, const fragment<Width::Same>& f) const {
    if (!p.data || !inside() || p.reg[slot_] >= at_.cols) return;
    const int target = here(p.reg[slot_]);
    each<Width::Same>([&](int i, int column) {
      if (column == target) p.data[row_] = f.v[i];
    });
  }

 private:
  CODA_DEVICE bool inside() const { return row_ < at_.rows; }
  /// Columns of a matrix of width W that are left from the patch's first on; more than the patch has, or less.
  template <Width W>
  CODA_DEVICE int width() const {
    return scaled<W>(at_.cols) - scaled<W>(col_);
  }
  /// Whether a value's column is in the matrix: that of a whole group of 8 is, or none.
  template <Width W>
  CODA_DEVICE bool valid(int value) const {
    return col_ + value / kChunk<W> * 8 < at_.cols;
  }
  template <Width W>
  CODA_DEVICE std::int64_t offset(std::int64_t pitch) const {
    return row_ * pitch + scaled<W>(col_);
  }
  CODA_DEVICE int group_column(int j) const { return col_ + 8 * j + 2 * at_.lane; }
  /// A column's number inside this patch, or -1.
  CODA_DEVICE int here(std::int64_t column) const {
    const std::int64_t c = column - col_;
    return c >= 0 && c < kPatchN ? static_cast<int>(c) : -1;
  }
  /// f(value, its column in the patch)
  template <Width W, class F>
  CODA_DEVICE void each(const F& f) const {
    CODA_UNROLL for (int i = 0; i < fragment<W>::count; ++i) f(i, column_of<W>(i) + kChunk<W> * at_.lane);
  }
  template <Width W>
  static CODA_DEVICE fragment<W> filled(float x) {
    fragment<W> f;
    CODA_UNROLL for (int i = 0; i < f.count; ++i) f.v[i] = x;
    return f;
  }

  const Program& program_;
  const Position& at_;
  const ColumnValues<Program, Patches>& columns_;
  int patch_, slot_, row_, col_;
  const CElement* c_;
  float* d_;
};

// ---- lifecycles: what a port does when a tile begins, and when a block of kTileN columns of it ends

/// For a kernel's Config.
template <class Config>
struct Lifecycle {
  const Position& at;

  CODA_DEVICE int row(int slot) const { return at.row + slot / kRowsHere * Config::kSubtileM + slot % kRowsHere * 8; }
  template <class F>
  CODA_DEVICE void each_slot(const F& f) const {
    CODA_UNROLL for (int s = 0; s < Config::kSlots; ++s) f(s);
  }

  // -- begin of a tile: what depends on the row alone is read once
  template <class P>
  CODA_DEVICE void begin_tile(const P&) const {}
  template <class T>
  CODA_DEVICE void begin_tile(const ColVector<T>& p) const {
    each_slot([&](int s) {
      p.reg[s] = p.otherwise;
      if (p.data && row(s) < at.rows) p.reg[s] = static_cast<float>(p.data[row(s)]);
    });
  }
  template <class P>
  CODA_DEVICE void read_index(const P& p, const IndexVector& index, std::int64_t first) const {
    each_slot([&](int s) { p.reg[s] = row(s) < at.rows ? index[row(s)] - first : 0; });
  }
  CODA_DEVICE void begin_tile(const TargetSelect<float>& p) const {
    if (p.data) read_index(p, p.index, p.first_column);
  }
  CODA_DEVICE void begin_tile(const OneHot& p) const { read_index(p, p.index, p.first_column); }
  CODA_DEVICE void begin_tile(const RotaryTable<float>& p) const { read_index(p, p.position, 0); }

  // -- begin of a column of subtiles, whose first column is `col`
  template <int Patches, class P, class Words>
  CODA_DEVICE void load_columns(const P&, int, Words&) const {}
  template <int Patches, class T, Width W, class Words>
  CODA_DEVICE void load_columns(const RowVector<T, W>& p, int col, Words& words) const {
    CODA_UNROLL for (int patch = 0; patch < Patches; ++patch) {
      CODA_UNROLL for (int j = 0; j < kGroups; ++j) {
        const int column = col + patch * kPatchN + 8 * j + 2 * at.lane;
        load_chunk<W>(p.data + scaled<W>(column), p.data && column < at.cols, static_cast<float>(p.otherwise),
                      words[patch] + j * kChunkWords);
      }
    }
  }

  // -- begin and end of a block of partial results
  template <class P>
  CODA_DEVICE void begin_block(const P&) const {}
  template <class Op>
  CODA_DEVICE void begin_block(const ReduceN<Op>& p) const {
    each_slot([&](int s) { p.reg[s] = Op::template neutral<float>; });
  }
  CODA_DEVICE void begin_block(const MomentsN<float>& p) const {
    each_slot([&](int s) { p.reg[3 * s] = p.reg[3 * s + 1] = p.reg[3 * s + 2] = 0; });
  }
  CODA_DEVICE void begin_block(const OnlineLse<float>& p) const {
    each_slot([&](int s) { p.reg[2 * s] = -std::numeric_limits<float>::infinity(), p.reg[2 * s + 1] = 0; });
  }

  template <class P>
  CODA_DEVICE void end_block(const P&, int) const {}
  template <class Op>
  CODA_DEVICE void end_block(const ReduceN<Op>& p, int block) const {
    if (!p.data) return;
    each_slot([&](int s) {
      in_quad([&](int bit) { p.reg[s] = Op::fold(p.reg[s], other(p.reg[s], bit)); });
      write(p.data, p.pitch, s, block, p.reg[s]);
    });
  }
  CODA_DEVICE void end_block(const MomentsN<float>& p, int block) const {
    if (!p.mean) return;
    each_slot([&](int s) {
      float* reg = p.reg + 3 * s;
      in_quad([&](int bit) {
        const float n = other(reg[0], bit), mean = other(reg[1], bit), m2 = other(reg[2], bit);
        merge_moments(reg, n, mean, m2);
      });
      write(p.mean, p.pitch, s, block, reg[1]);
      write(p.m2, p.pitch, s, block, reg[2]);
    });
  }
  CODA_DEVICE void end_block(const OnlineLse<float>& p, int block) const {
    if (!p.max) return;
    each_slot([&](int s) {
      float* reg = p.reg + 2 * s;
      in_quad([&](int bit) {
        const float m = Max::fold(reg[0], other(reg[0], bit));
        const float shift = lse_shift(m);
        const float sum = reg[1] * exp(reg[0] - shift);
        reg[0] = m;
        reg[1] = sum + other(sum, bit);
      });
      write(p.max, p.pitch, s, block, reg[0]);
      write(p.sum, p.pitch, s, block, reg[1]);
    });
  }

 private:
  template <class F>
  static CODA_DEVICE void in_quad(const F& f) {
    f(1), f(2);
  }
  static CODA_DEVICE float other(float x, int bit) { return __shfl_xor_sync(0xffffffffu, x, bit); }
  /// All four lanes have the value of slot s; lane 0 writes it.
  CODA_DEVICE void write(float* out, std::int64_t pitch, int s, int block, float x) const {
    if (at.lane == 0 && row(s) < at.rows) out[row(s) * pitch + block] = x;
  }
};

}  // namespace coda::sm90
