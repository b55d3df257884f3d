// The Hopper view of a tile: a thread's 8 values of one row of a patch at a time (see fragment.cuh), and what each kind
// of port does with them.
#pragma once

#include "coda/backend/sm90/carried.cuh"
#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/fragment.cuh"

namespace coda::sm90 {

/// Where a thread stands in the matrix. Rows and columns fit 32 bits, offsets of elements do not.
struct Position {
  int warp_row;         // first row of the thread's warp
  int row, col;         // first row of the thread, first column of the tile
  int rows, cols;       // of the matrix
  int lane;             // among those that share a row
  int tile_n;           // first block of partial results along n
  int head_column = 0;  // inside its attention head, of the tile's first column; of a run, of the thread's first one
  int slot_rows = 0;    // of runs: from a row of the thread to its next one
};

/// (n, mean, m2) of two sets that do not overlap, after Chan, Golub and LeVeque.
CODA_DEVICE void merge_moments(float* into, float n, float mean, float m2) {
  const float total = into[0] + n, delta = mean - into[1];
  const float share = n * reciprocal(fmaxf(total, 1.f));
  into[2] += m2 + delta * (into[0] * share) * delta;  // a large delta meets the 0 of a first chunk
  into[1] += delta * share;
  into[0] = total;
}

/// A chunk of a vector's elements, of which the first `valid` are read and the others are `otherwise`, as the words
/// that it lies in memory as; one of 2 bytes as a float.
template <class G, Width W, class T>
CODA_DEVICE void load_chunk(const T* p, int valid, float otherwise, std::uint32_t* words) {
  constexpr int kN = kChunk<G, W>;
  float x[kN];
  CODA_UNROLL for (int c = 0; c < kN; ++c) {
    x[c] = otherwise;
    if (G::kRagged && c < valid) x[c] = static_cast<float>(p[c]);
  }
  if constexpr (kChunkBytes<G, T, W> >= 4) {
    constexpr int kCount = kWords<T, kN>, kPiece = kCount < 4 ? kCount : 4;
    std::uint32_t w[kCount];
    to_words<T, kN>(x, w);
    CODA_UNROLL for (int i = 0; i < kCount; i += kPiece) {
      std::uint32_t piece[kPiece];
      CODA_UNROLL for (int j = 0; j < kPiece; ++j) piece[j] = w[i + j];
      if constexpr (!G::kRagged) load_constant_words(reinterpret_cast<const std::uint32_t*>(p) + i, piece, valid > 0);
      CODA_UNROLL for (int j = 0; j < kPiece; ++j) words[i + j] = piece[j];
    }
  } else {
    words[0] = __float_as_uint(valid > 0 ? static_cast<float>(*p) : otherwise);
  }
}
template <class G, Width W, class T>
CODA_DEVICE void chunk_values(const std::uint32_t* words, float* x) {
  constexpr int kN = kChunk<G, W>;
  if constexpr (kChunkBytes<G, T, W> >= 4) {
    from_words<T, kN>(words, x);
  } else {
    x[0] = __uint_as_float(words[0]);
  }
}

/// Words of a chunk at most: those of a port of floats, twice as wide.
template <class G>
inline constexpr int kChunkWords = 2 * G::kColumns;

/// What the vectors along n of a program hold at a thread's columns of a subtile: all rows of it use the same values,
/// and they are asked for while the subtile before is stored. Only the entries of such ports are ever used, so only
/// they exist.
template <class Program, class G, int Patches>
struct ColumnValues {
  std::uint32_t words[kPortCount<Program>][Patches][G::kGroups * kChunkWords<G>];
};

/// A program's ports that fold along m, of those before its port number `end`.
template <class Program>
consteval int count_folds(int end) {
  int count = 0;
  const Program program{};
  for_each_numbered_port(program, [&](const auto& port, auto number) {
    count += kFoldsRows<std::remove_cvref_t<decltype(port)>> && number < end;
  });
  return count;
}
template <class Program>
inline constexpr int kRowFolds = count_folds<Program>(kPortCount<Program>);
/// Calls f(port, its number among them) on each of them.
template <class Program, class F>
CODA_FN void for_each_fold(const Program& program, const F& f) {
  for_each_numbered_port(program, [&](const auto& port, auto number) {
    if constexpr (kFoldsRows<std::remove_cvref_t<decltype(port)>>) {
      f(port, std::integral_constant<int, count_folds<Program>(number)>());
    }
  });
}
/// Their running values at a thread's columns.
template <class Program, int Patches>
struct ColumnFolds {
  float v[kRowFolds<Program> > 0 ? kRowFolds<Program> : 1][Patches][Accumulator::count];
};

template <class Program>
inline constexpr bool kHasHeadMeans = [] {
  bool has = false;
  const Program program{};
  for_each_port(program, [&](const auto& port) { has = has || kIsHeadMean<std::remove_cvref_t<decltype(port)>>; });
  return has;
}();
/// Columns of an attention head, as all ports of a program know them that have to do with one. 0: there are none.
template <class Program>
CODA_FN int head_dim_of(const Program& program) {
  int head_dim = 0;
  for_each_port(program, [&](const auto& port) {
    if constexpr (requires { port.head_dim; }) head_dim = port.head_dim;
  });
  return head_dim;
}

/// What a program's first pass makes of a row, for the row at hand: `means[slot * stride + head]` over the columns of
/// each head of the tile; a run's thread knows that of its own head only. How they come about differs: `values` are a
/// thread's running sums of one head, by slot; those of a ragged run are the row itself, in shared memory, `width` to a
/// slot.
struct HeadRow {
  const float* means = nullptr;
  float* values = nullptr;
  int stride = 0, width = 0;
};

/// What a thread has asked memory for ahead of time, of one row of a patch: the words of matrices that nothing else
/// carries, and rotary angles. Only the entries of such ports exist.
inline constexpr int kAheadWords = 2 * Accumulator::count;
template <class Program>
struct Ahead {
  std::uint32_t words[kPortCount<Program>][kAheadWords];
};

/// The words of a thread's row of a patch of one carried load.
using LoadedRow = std::uint32_t[Accumulator::count];

/// Columns that no head divides: a quad's patch, a run's chunk (see heads_divide). Where all is ragged, any pair.
template <class G>
inline constexpr int kHeadGrain = G::kRagged       ? 2
                                  : G::kGroups > 1 ? G::kPatchN
                                                   : G::kColumns;
/// Whether all heads of a program are made of whole grains.
template <class G, class Program>
bool heads_divide(const Program& program) {
  bool divide = true;
  for_each_port(program, [&](const auto& port) {
    if constexpr (requires { port.head_dim; })
      divide = divide && port.head_dim > 0 && port.head_dim % kHeadGrain<G> == 0;
  });
  return divide;
}
/// Where a quad's patch at column `col` begins inside its head. One division is for all of a tile (head_column).
CODA_DEVICE int patch_in_head(const Position& at, int col, int head_dim) {
  int column = at.head_column + (col - at.col);
  CODA_UNROLL for (int h = 1; h < kTileN / kPatchN; ++h) column -= column >= head_dim ? head_dim : 0;
  return column;
}
/// Walks over the pairs of columns of a lane, in the heads that they lie in.
struct HeadWalk {
  int head, column;  // column: inside its head
  int head_dim;
  CODA_DEVICE HeadWalk(int first_column, int head_dim_)
      : head(first_column / head_dim_), column(first_column % head_dim_), head_dim(head_dim_) {}
  template <class G>
  CODA_DEVICE void advance(int columns) {
    column += columns;
    if constexpr (G::kRagged) {
      while (column >= head_dim) column -= head_dim, ++head;
    }
  }
};

/// One row of a patch. `Program` is the thread's own copy; `slot` is the row's number among those that the thread owns,
/// `row` and `col` are those of the patch's row in the matrix, `patch` is its number in the subtile. `c` has the
/// words of the carried loads, `d` takes those of the carried store; not `Carries`: there are neither. `Absent`: see
/// PortMask.
template <class Program, class G, int Patches, PortMask Absent = 0, bool Carries = false>
class Sm90Tile : public Tile<Sm90Tile<Program, G, Patches, Absent, Carries>, Accumulator> {
 public:
  using Base = Tile<Sm90Tile, Accumulator>;
  using accumulator = float;
  template <Width W>
  using fragment = typename Base::template fragment<W>;

  CODA_DEVICE Sm90Tile(const Program& program, const Position& at, const ColumnValues<Program, G, Patches>& columns,
                       ColumnFolds<Program, Patches>& folds, HeadRow heads, const Ahead<Program>* ahead, int patch,
                       int slot, int row, int col, const LoadedRow* c, std::uint32_t* d)
      : program_(program),
        at_(at),
        columns_(columns),
        folds_(folds),
        heads_(heads),
        ahead_(ahead),
        patch_(patch),
        slot_(slot),
        row_(row),
        col_(col),
        c_(c),
        d_(d) {}

  // ---- loads

  template <class T>
  CODA_DEVICE fragment<Width::Same> load_port(const ColVector<T>& p) const {
    return filled<Width::Same>(p.reg[slot_]);
  }
  template <class T, Width W>
  CODA_DEVICE fragment<W> load_port(const RowVector<T, W>& p) const {
    if (is_masked<Absent>(program_, &p)) return filled<W>(static_cast<float>(p.otherwise));
    return column_values<W, std::remove_const_t<T>>(p);
  }
  template <class T>
  CODA_DEVICE fragment<Width::Same> load_port(const HeadVector<T>& p) const {
    return column_values<Width::Same, std::remove_const_t<T>>(p);
  }
  template <class T, Width W>
  CODA_DEVICE fragment<W> load_port(const TileLoad<T, W>& p) const {
    if (is_masked<Absent>(program_, &p)) return filled<W>(0.f);
    fragment<W> f;
    with_number(p, [&](auto number) {
      if constexpr (kLoad<number> >= 0) {
        from_words<T, fragment<W>::count>(c_[kLoad<number>], f.v);
      } else if constexpr (kIsRun) {
        from_words<T, fragment<W>::count>(ahead_->words[number], f.v);
      } else if constexpr (kAsksAhead<number>) {
        unpack_row<T, W, fragment<W>::count>(G(), ahead_->words[number], f, at_.lane);
      } else {
        load_row(G(), p.data + offset<W>(p.pitch), f, at_.lane, p.data && inside() ? width<W>() : 0);
      }
    });
    return f;
  }
  /// A row that the table does not have is NaN: its index cannot be checked before the kernel runs.
  template <class T>
  CODA_DEVICE fragment<Width::Same> load_port(const GatherLoad<T>& p) const {
    const std::int64_t index = p.reg[slot_];
    if (index < 0 || index >= p.rows) return filled<Width::Same>(kNan);
    fragment<Width::Same> f;
    if constexpr (kIsRun) {
      with_number(p, [&](auto number) { from_words<T, f.count>(ahead_->words[number], f.v); });
    } else {
      load_row(G(), p.data + index * p.pitch + col_, f, at_.lane, inside() ? width<Width::Same>() : 0);
    }
    return f;
  }
  CODA_DEVICE fragment<Width::Same> load_port(const OneHot& p) const {
    fragment<Width::Same> f;
    const int hot = p.reg[slot_] - col_ - kChunk<G, Width::Same> * at_.lane;  // as lane 0 counts columns
    CODA_UNROLL for (int i = 0; i < f.count; ++i) f.v[i] = column_of<G, Width::Same>(i) == hot ? 1.f : 0.f;
    return f;
  }
  CODA_DEVICE fragment<Width::Same> load_port(const RotaryTable<float>& p) const {
    fragment<Width::Same> f;
    if constexpr (!Carries && !kIsRun) {
      std::uint32_t words[Accumulator::count];
      fetch_port(p, words);
      from_words<float, Accumulator::count>(words, f.v);
    } else {
      with_number(p, [&](auto number) { from_words<float, Accumulator::count>(ahead_->words[number], f.v); });
    }
    return f;
  }

  template <int Slot>
  CODA_DEVICE fragment<Width::Same> load_port(const HeadMean<float, Slot>& p) const {
    fragment<Width::Same> f;
    const float* means = heads_.means + Slot * heads_.stride;
    if constexpr (std::is_same_v<G, Quad>) {
      // The whole patch is in one head, the number of which a tile of 128 columns and heads of 32 or more bound.
      const int column = col_ - at_.col;
      int head = 0;
      CODA_UNROLL for (int h = 1; h < kTileN / kPatchN; ++h) head += column >= h * p.head_dim;
      const float mean = means[head];  // there is one in any case, and a branch would cost more
      return filled<Width::Same>(col_ < p.columns ? mean + p.eps : p.otherwise);
    }
    if constexpr (kIsRun) {  // all of a lane's columns are in one head
      return filled<Width::Same>(run_column() < p.columns ? means[0] + p.eps : p.otherwise);
    }
    each_pair(p.head_dim, [&](int i, int column, const HeadWalk& at) {
      f.v[i] = f.v[i + 1] = column < p.columns ? means[at.head - at_.col / p.head_dim] + p.eps : p.otherwise;
    });
    return f;
  }

  // ---- asks for what load_port will want of this row. `Words`: where it goes, of runs RunWords or the like

  template <class P, class Words>
  CODA_DEVICE void fetch_port(const P&, Words) const {}
  template <class Words>
  CODA_DEVICE void fetch_port(const RotaryTable<float>& p, Words words) const {
    const int position = p.reg[slot_];
    const bool known = position >= 0;
    const float* row = rows_behind(p.table, p.head_dim, position);
    // (cos, sin) of pairs: (1, 0) where nothing is rotated, NaN where the table has no such row.
    if constexpr (kIsRun) {  // all of a lane's columns are side by side in one head
      const int column = run_column();
      const int column_of_head = col_ == at_.col ? at_.head_column : column % p.head_dim;
      const bool rotated = column < p.columns && column < at_.cols;
      const std::uint32_t cos = __float_as_uint(rotated ? kNan : 1.f), sin = __float_as_uint(rotated ? kNan : 0.f);
      CODA_UNROLL for (int i = 0; i < Accumulator::count / 4; ++i) {
        words.copy_shared(i, row + column_of_head + 4 * i, rotated && known, {cos, sin, cos, sin});
      }
    } else {
      const auto ask = [&](int i, bool rotated, int column_of_head) {
        std::uint32_t angle[2] = {__float_as_uint(rotated ? kNan : 1.f), __float_as_uint(rotated ? kNan : 0.f)};
        load_constant_words(row + column_of_head, angle, rotated && known);
        words[i] = angle[0], words[i + 1] = angle[1];
      };
      if constexpr (std::is_same_v<G, Quad>) {  // the whole patch is in one head
        const int column_of_head = patch_in_head(at_, col_, p.head_dim) + G::kColumns * at_.lane;
        CODA_UNROLL for (int i = 0; i < Accumulator::count; i += 2) {
          ask(i, col_ < p.columns, column_of_head + column_of<G, Width::Same>(i));
        }
      } else {
        each_pair(p.head_dim, [&](int i, int column, const HeadWalk& at) {
          ask(i, column < p.columns && column < at_.cols, at.column);
        });
      }
    }
  }
  template <class T, class Words>
  CODA_DEVICE void fetch_port(const GatherLoad<T>& p, Words words) const {
    if constexpr (kIsRun) {
      const std::int64_t index = p.reg[slot_];
      const bool known = index >= 0 && index < p.rows;
      words.template copy<kRowWords<T, Width::Same, Accumulator::count>>(p.data + (index * p.pitch + run_column()),
                                                                         known && holds_run(p.data));
    }
  }
  template <class T, Width W, class Words>
  CODA_DEVICE void fetch_port(const TileLoad<T, W>& p, Words words) const {
    if (is_masked<Absent>(program_, &p)) return;
    with_number(p, [&](auto number) {
      if constexpr (kLoad<number> >= 0) {
        // The copy engine brings it.
      } else if constexpr (kIsRun) {
        words.template copy<kRowWords<T, W, fragment<W>::count>>(run_of<W>(p.data, p.pitch), holds_run(p.data));
      } else if constexpr (kAsksAhead<number>) {
        fetch_row<T, W, fragment<W>::count>(G(), p.data + offset<W>(p.pitch), words, at_.lane,
                                            p.data && inside() ? width<W>() : 0);
      }
    });
  }

  // ---- stores

  template <class T, Width W>
  CODA_DEVICE void store_port(const TileStore<T, W>& p, const fragment<W>& f) const {
    if (is_masked<Absent>(program_, &p)) return;
    if constexpr (Carries) {
      constexpr Carried kD = kCarriedStore<Program>;
      if constexpr (kD.port >= 0 && kD.width == W && kD.dtype == dtype_of<T>) {
        bool carried = false;
        with_number(p, [&](auto number) { carried = number == kD.port; });
        if (carried) {
          std::uint32_t words[kWords<T, fragment<W>::count>];
          to_words<T, fragment<W>::count>(f.v, words);
          CODA_UNROLL for (int i = 0; i < kWords<T, fragment<W>::count>; ++i) d_[i] = words[i];
          return;
        }
      }
    }
    if constexpr (std::is_same_v<G, Quad>) {
      // What all rows and patches of the tile share comes first: it is computed once.
      const int first = lane_column<T, W>(at_.lane);
      T* row = p.data + (at_.row * p.pitch + scaled<W>(at_.col) + first);
      row += (row_ - at_.row) * p.pitch + scaled<W>(col_ - at_.col);
      const int left = (scaled<W>(at_.cols - at_.col) - first) - scaled<W>(col_ - at_.col);
      store_row(G(), row, f, at_.lane, row_ < (p.data ? at_.rows : 0), left);
    } else if constexpr (kIsRun) {
      store_run(run_of<W>(p.data, p.pitch), f, holds_run(p.data));
    } else {
      store_row(G(), p.data + offset<W>(p.pitch), f, at_.lane, p.data && inside() ? width<W>() : 0);
    }
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

  template <class T, Width W>
  CODA_DEVICE fragment<W> rounded(const fragment<W>& f) const {
    fragment<W> out;
    std::uint32_t words[kWords<T, fragment<W>::count>];
    to_words<T, fragment<W>::count>(f.v, words);
    from_words<T, fragment<W>::count>(words, out.v);
    return out;
  }

  // ---- reductions and stateful transforms, over the columns that are in the matrix

  template <class Op, Width W>
  CODA_DEVICE void reduce_port(const ReduceN<Op>& p, const fragment<W>& f) const {
    float acc = p.reg[slot_];  // also where the port is absent: a branch would cost more
    if constexpr (G::kRagged) {
      each<W>([&](int i, int) { acc = valid<W>(i) ? Op::fold(acc, Op::first(f.v[i])) : acc; });
    } else {
      constexpr int kN = kChunk<G, W>;
      CODA_UNROLL for (int j = 0; j < G::kGroups; ++j) {
        const float* x = f.v + j * kN;
        float sum = Op::first(x[0]);
        CODA_UNROLL for (int c = 1; c < kN; ++c) sum = Op::fold(sum, Op::first(x[c]));
        acc = valid<W>(j * kN) ? Op::fold(acc, sum) : acc;
      }
    }
    p.reg[slot_] = acc;
  }
  template <class Op>
  CODA_DEVICE void reduce_port(const ReduceM<Op>& p, const fragment<Width::Same>& f) const {
    for_each_fold(program_, [&](const auto& port, auto number) {
      if (static_cast<const void*>(&port) != &p) return;
      float* acc = folds_.v[number][patch_];
      CODA_UNROLL for (int i = 0; i < f.count; ++i) {
        acc[i] = inside() ? Op::fold(acc[i], Op::first(f.v[i])) : acc[i];
      }
    });
  }
  template <Width W>
  CODA_DEVICE void reduce_port(const MomentsN<float>& p, const fragment<W>& f) const {
    if (!p.mean) return;
    float n = 0, sum = 0, m2 = 0;
    each<W>([&](int i, int) {
      if (valid<W>(i)) n += 1.f, sum += f.v[i];
    });
    const float mean = sum * reciprocal(fmaxf(n, 1.f));
    each<W>([&](int i, int) {
      if (valid<W>(i)) m2 += (f.v[i] - mean) * (f.v[i] - mean);
    });
    merge_moments(p.reg + 3 * slot_, n, mean, m2);
  }
  template <Width W>
  CODA_DEVICE void reduce_port(const OnlineLse<float>& p, const fragment<W>& f) const {
    float* reg = p.reg + 2 * slot_;
    fragment<W> x;
    each<W>([&](int i, int) { x.v[i] = valid<W>(i) ? f.v[i] : -std::numeric_limits<float>::infinity(); });
    const float max = Max::fold(reg[0], folded<Max>(x)), shift = lse_shift(max);
    each<W>([&](int i, int) { x.v[i] = exp(x.v[i] - shift); });
    reg[1] = reg[1] * exp(reg[0] - shift) + folded<Sum>(x);
    reg[0] = max;
  }
  CODA_DEVICE void reduce_port(const TargetSelect<float>& p, const fragment<Width::Same>& f) const {
    // One patch of the row has the target, if any: the others pass by with one test.
    const int target = p.reg[slot_] - col_;
    if (static_cast<unsigned>(target) >= static_cast<unsigned>(G::kPatchN)) [[likely]]
      return;
    bool mine = false;
    float x = 0;
    each<Width::Same>([&](int i, int column) {
      if (column == target) mine = true, x = f.v[i];
    });
    if (mine && p.data && inside() && p.reg[slot_] < at_.cols) p.data[row_] = x;
  }
  template <int Slot>
  CODA_DEVICE void reduce_port(const HeadMean<float, Slot>&, const fragment<Width::Same>& f) const {
    if constexpr (!G::kRagged) {
      float sum = f.v[0];
      CODA_UNROLL for (int i = 1; i < f.count; ++i) sum += f.v[i];
      heads_.values[Slot] += sum;
    } else {
      float* row = heads_.values + Slot * heads_.width + (col_ - at_.col);
      each<Width::Same>([&](int i, int column) {
        if (col_ - at_.col + column < heads_.width) row[column] = valid<Width::Same>(i) ? f.v[i] : 0.f;
      });
    }
  }

 private:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr bool kIsRun = std::is_same_v<G, Run<false>>;

  CODA_DEVICE bool inside() const { return row_ < at_.rows; }
  /// Which of the carried loads a port is, by its number; -1: none.
  template <int Number>
  static constexpr int kLoad = Carries ? kCarriedLoads<Program, Absent>.number_of(Number) : -1;
  /// Whether `ahead` has the words of a matrix of a fused kernel; else they are loaded where they are used.
  template <int Number>
  static constexpr bool kAsksAhead = Carries && asks_ahead<Program, Absent>(Number);
  /// f(the number of a port of the program). Of several of one type the compiler knows which one it is, as all
  /// addresses are in one local struct; what depends on that is in f.
  template <class P, class F>
  CODA_DEVICE void with_number(const P& p, const F& f) const {
    for_each_numbered_port(program_, [&]<class Other>(const Other& port, auto number) {
      if constexpr (std::is_same_v<Other, P>) {
        if (&port == &p) f(number);
      }
    });
  }
  /// Columns of a matrix of width W that are left from the patch's first on; more than the patch has, or less.
  template <Width W>
  CODA_DEVICE int width() const {
    return scaled<W>(at_.cols) - scaled<W>(col_);
  }
  /// Whether a value's column is in the matrix. Unless ragged, a group of 8 columns is in it as a whole or not at all.
  template <Width W>
  CODA_DEVICE bool valid(int value) const {
    if constexpr (G::kRagged) {
      return column_of<G, W>(value) + kChunk<G, W> * at_.lane < width<W>();
    } else {
      return col_ + G::kColumns * at_.lane + value / kChunk<G, W> * G::kStride < at_.cols;
    }
  }
  template <Width W>
  CODA_DEVICE std::int64_t offset(std::int64_t pitch) const {
    return row_ * pitch + scaled<W>(col_);
  }
  // Of a run: the thread's first column, its first element in a row of a matrix, and whether the matrix has that.
  CODA_DEVICE int run_column() const { return col_ + G::kColumns * at_.lane; }
  template <Width W, class T>
  CODA_DEVICE T* run_of(T* data, std::int64_t pitch) const {
    // A thread walks along the rows of one tile, or along the tiles of one row: what stays comes first.
    if constexpr (kHasHeadMeans<Program>) return rows_behind(data + scaled<W>(run_column()), pitch, row_);
    return rows_behind(data + kChunk<G, W> * at_.lane, pitch, row_) + scaled<W>(col_);
  }
  CODA_DEVICE bool holds_run(const void* data) const { return row_ < (data ? at_.rows : 0) && run_column() < at_.cols; }
  /// f(value, its column in the patch)
  template <Width W, class F>
  CODA_DEVICE void each(const F& f) const {
    CODA_UNROLL for (int i = 0; i < fragment<W>::count; ++i) f(i, column_of<G, W>(i) + kChunk<G, W> * at_.lane);
  }
  /// f(first value of a pair, its column in the matrix, where that is in its head)
  template <class F>
  CODA_DEVICE void each_pair(int head_dim, const F& f) const {
    HeadWalk at(col_ + G::kColumns * at_.lane, head_dim);
    CODA_UNROLL for (int i = 0; i < Accumulator::count; i += 2) {
      f(i, col_ + column_of<G, Width::Same>(i) + G::kColumns * at_.lane, at);
      if (i + 2 < Accumulator::count)
        at.template advance<G>(column_of<G, Width::Same>(i + 2) - column_of<G, Width::Same>(i));
    }
  }
  /// All of a fragment, in as few steps as there are.
  template <class Op, Width W>
  static CODA_DEVICE float folded(fragment<W> f) {
    static_assert((f.count & (f.count - 1)) == 0);
    CODA_UNROLL for (int half = f.count / 2; half > 0; half /= 2) {
      CODA_UNROLL for (int i = 0; i < half; ++i) f.v[i] = Op::fold(f.v[i], f.v[i + half]);
    }
    return f.v[0];
  }
  template <Width W>
  static CODA_DEVICE fragment<W> filled(float x) {
    fragment<W> f;
    CODA_UNROLL for (int i = 0; i < f.count; ++i) f.v[i] = x;
    return f;
  }
  template <Width W, class T, class P>
  CODA_DEVICE fragment<W> column_values(const P& p) const {
    fragment<W> f;
    with_number(p, [&](auto number) {
      CODA_UNROLL for (int j = 0; j < G::kGroups; ++j) {
        chunk_values<G, W, T>(columns_.words[number][patch_] + j * kChunkWords<G>, f.v + j * kChunk<G, W>);
      }
    });
    return f;
  }

  const Program& program_;
  const Position& at_;
  const ColumnValues<Program, G, Patches>& columns_;
  ColumnFolds<Program, Patches>& folds_;
  HeadRow heads_;
  const Ahead<Program>* ahead_;
  int patch_, slot_, row_, col_;
  const LoadedRow* c_;
  std::uint32_t* d_;
};

}  // namespace coda::sm90
