// What a port does when a tile begins, before a column of subtiles, and when a block of partial results ends.
#pragma once

#include "coda/backend/sm90/tile.cuh"

namespace coda::sm90 {

/// `Rows` says which rows a thread owns: kSlots of them, row(at, slot) each.
template <class G, class Rows>
struct Lifecycle {
  const Position& at;

  CODA_DEVICE int row(int slot) const { return Rows::row(at, slot); }
  template <class F>
  CODA_DEVICE void each_slot(const F& f) const {
    CODA_UNROLL for (int s = 0; s < Rows::kSlots; ++s) f(s);
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
  CODA_DEVICE void begin_tile(const TargetSelect<float>& p) const {
    if (p.data) read_index(p, p.index, p.first_column);
  }
  CODA_DEVICE void begin_tile(const OneHot& p) const { read_index(p, p.index, p.first_column); }
  CODA_DEVICE void begin_tile(const RotaryTable<float>& p) const {
    each_index(p.position, [&](int s, std::int64_t i) {
      const std::int64_t rows = min(p.rows, std::int64_t{1} << 31);
      p.reg[s] = static_cast<std::uint64_t>(i) < static_cast<std::uint64_t>(rows) ? static_cast<int>(i) : -1;
    });
  }
  template <class T>
  CODA_DEVICE void begin_tile(const GatherLoad<T>& p) const {
    each_index(p.index, [&](int s, std::int64_t i) { p.reg[s] = i; });
  }

  // -- begin of a column of subtiles, whose first column is `col`
  template <int Patches, class P, class Words>
  CODA_DEVICE void load_columns(const P&, int, Words&) const {}
  template <int Patches, class T, Width W, class Words>
  CODA_DEVICE void load_columns(const RowVector<T, W>& p, int col, Words& words) const {
    each_chunk<Patches>(col, words, [&](int column, std::uint32_t* chunk) {
      const int valid = p.data ? scaled<W>(at.cols) - scaled<W>(column) : 0;
      load_chunk<G, W>(p.data + scaled<W>(column), valid, static_cast<float>(p.otherwise), chunk);
    });
  }
  template <int Patches, class T, class Words>
  CODA_DEVICE void load_columns(const HeadVector<T>& p, int col, Words& words) const {
    if constexpr (std::is_same_v<G, Quad>) {  // a patch is in one head
      CODA_UNROLL for (int patch = 0; patch < Patches; ++patch) {
        const int first = col + patch * kPatchN;
        const T* weight = (first < p.q_columns ? p.q : p.k) + patch_in_head(at, first, p.head_dim) + 2 * at.lane;
        CODA_UNROLL for (int j = 0; j < Quad::kGroups; ++j) {
          load_chunk<Quad, Width::Same>(weight + Quad::kStride * j, first < p.columns, 1.f,
                                        words[patch] + j * kChunkWords<Quad>);
        }
      }
    } else {
      using Element = std::remove_const_t<T>;
      each_chunk<Patches>(col, words, [&](int column, std::uint32_t* chunk) {
        float x[G::kColumns];
        HeadWalk walk(column, p.head_dim);
        CODA_UNROLL for (int i = 0; i < G::kColumns; i += 2) {
          const bool normed = column + i < p.columns && column + i < at.cols;
          const T* weight = (column + i < p.q_columns ? p.q : p.k) + walk.column;
          x[i] = normed ? static_cast<float>(weight[0]) : 1.f;
          x[i + 1] = normed ? static_cast<float>(weight[1]) : 1.f;
          walk.template advance<G>(2);
        }
        std::uint32_t w[kWords<Element, G::kColumns>];
        to_words<Element, G::kColumns>(x, w);
        CODA_UNROLL for (int i = 0; i < kWords<Element, G::kColumns>; ++i) chunk[i] = w[i];
      });
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
    across_lanes([&](int bit) { each_slot([&](int s) { p.reg[s] = Op::fold(p.reg[s], other(p.reg[s], bit)); }); });
    each_slot([&](int s) { write(p.data, p.pitch, s, block, p.reg[s]); });
  }
  CODA_DEVICE void end_block(const MomentsN<float>& p, int block) const {
    if (!p.mean) return;
    each_slot([&](int s) {
      float* reg = p.reg + 3 * s;
      across_lanes([&](int bit) {
        const float n = other(reg[0], bit), mean = other(reg[1], bit), m2 = other(reg[2], bit);
        merge_moments(reg, n, mean, m2);
      });
      write(p.mean, p.pitch, s, block, reg[1]);
      write(p.m2, p.pitch, s, block, reg[2]);
    });
  }
  CODA_DEVICE void end_block(const OnlineLse<float>& p, int block) const {
    if (!p.max) return;
    across_lanes([&](int bit) {
      each_slot([&](int s) {
        float* reg = p.reg + 2 * s;
        const float m = Max::fold(reg[0], other(reg[0], bit));
        const float shift = lse_shift(m);
        const float sum = reg[1] * exp(reg[0] - shift);
        reg[0] = m;
        reg[1] = sum + other(sum, bit);
      });
    });
    each_slot([&](int s) {
      write(p.max, p.pitch, s, block, p.reg[2 * s]);
      write(p.sum, p.pitch, s, block, p.reg[2 * s + 1]);
    });
  }

 private:
  template <class P>
  CODA_DEVICE void read_index(const P& p, const IndexVector& index, std::int64_t first) const {
    each_index(index, [&](int s, std::int64_t i) {
      constexpr std::uint64_t kMost = std::numeric_limits<int>::max();
      const std::uint64_t x = static_cast<std::uint64_t>(i) - static_cast<std::uint64_t>(first);
      p.reg[s] = x <= kMost ? static_cast<int>(x) : -1;  // no matrix has such a column or row
    });
  }
  /// f(slot, index of its row, or of the last one), once all were asked for.
  template <class F>
  CODA_DEVICE void each_index(const IndexVector& index, const F& f) const {
    std::int64_t found[Rows::kSlots];
    const auto from = [&](const auto* data) { each_slot([&](int s) { found[s] = data[min(row(s), at.rows - 1)]; }); };
    if (!index.data) each_slot([&](int s) { found[s] = row(s); });
    else if (index.wide) from(static_cast<const std::int64_t*>(index.data));
    else from(static_cast<const std::int32_t*>(index.data));
    each_slot([&](int s) { f(s, found[s]); });
  }
  /// f(column, words of its chunk)
  template <int Patches, class Words, class F>
  CODA_DEVICE void each_chunk(int col, Words& words, const F& f) const {
    CODA_UNROLL for (int patch = 0; patch < Patches; ++patch) {
      CODA_UNROLL for (int j = 0; j < G::kGroups; ++j) {
        f(col + patch * G::kPatchN + G::kStride * j + G::kColumns * at.lane, words[patch] + j * kChunkWords<G>);
      }
    }
  }
  template <class F>
  static CODA_DEVICE void across_lanes(const F& f) {
    CODA_UNROLL for (int bit = 1; bit < G::kLanes; bit *= 2) f(bit);
  }
  static CODA_DEVICE float other(float x, int bit) { return __shfl_xor_sync(0xffffffffu, x, bit); }
  /// All lanes of the row have the value of slot s; lane 0 writes it.
  CODA_DEVICE void write(float* out, std::int64_t pitch, int s, int block, float x) const {
    const bool writes = at.lane == 0 && row(s) < at.rows;
    if constexpr (std::is_same_v<G, Quad>) {
      // Unsigned: a row's sign would have a register through the whole epilogue.
      out += (static_cast<unsigned>(row(0)) * pitch + block) + (row(s) - row(0)) * pitch;
      const std::uint32_t w[1] = {__float_as_uint(x)};
      store_words(out, w, writes);
    } else if (writes) {
      if constexpr (G::kRagged) out[row(s) * pitch + block] = x;
      else *rows_behind(out + block, pitch, row(s)) = x;
    }
  }
};

}  // namespace coda::sm90
