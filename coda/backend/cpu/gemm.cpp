// The loop over tiles. Each thread goes down a share of them, some rows at a time, brings the columns of B that it
// needs into the order that oneDNN likes best, asks oneDNN for the product and runs the epilogue on it. An operand that
// has to be contiguous, or in another type, is packed by all threads before that, in groups that bound the memory this
// takes.
#include "coda/backend/cpu/gemm.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "coda/backend/cpu/memory.h"
#include "coda/backend/cpu/pack.h"
#include "coda/backend/cpu/product.h"
#include "coda/backend/cpu/threads.h"

namespace coda::cpu::detail {
namespace {

// At most this much of each operand is held packed at a time (but one tile's share at least).
constexpr std::int64_t kPackBytes = std::int64_t{64} << 20;

// Elements of an output from which on it is not to be found in a second-level cache when it is read again.
constexpr std::int64_t kStreamed = std::int64_t{1} << 18;

// A grow-only buffer of one thread.
struct Buffer {
  Memory data;
  std::size_t size = 0;
  void* get(std::size_t bytes) {
    if (bytes > size) {
      size = 0;
      data.reset();  // before, so that never both are held
      data = allocate(bytes);
      if (!data) throw std::bad_alloc();
      size = bytes;
    }
    return data.get();
  }
};

bool needs_widening(DType t) { return t == DType::fp16 || (t == DType::bf16 && !native_bf16()); }

// Copies `count` rows of the free dimension from `first` on, as the product wants them: contiguous, in fp32 where the
// type has no product of its own, and with the dimension `inner_free ? free : k` running fastest.
void pack(const Operand& in, std::int64_t first, std::int64_t count, std::int64_t k, bool inner_free, void* out) {
  const bool free_runs = in.free_stride == 1 && in.k_stride != 1;
  const std::int64_t rows = free_runs ? k : count, cols = free_runs ? count : k;
  const std::int64_t pitch = free_runs ? in.k_stride : in.free_stride;
  const bool turn = free_runs != inner_free;
  const auto copy = [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    const auto* source = static_cast<const From*>(in.at(first));
    turn ? transpose(source, rows, cols, pitch, static_cast<To*>(out))
         : copy_rows(source, rows, cols, pitch, static_cast<To*>(out));
  };
  if (in.dtype == DType::fp32) copy(float{}, float{});
  else if (in.dtype == DType::fp16) copy(fp16{}, float{});
  else if (needs_widening(in.dtype)) copy(bf16{}, float{});
  else copy(bf16{}, bf16{});
}

// The first exception of a parallel region, to be thrown after it.
class Failure {
 public:
  template <class F>
  void guard(const F& f) noexcept {
    try {
      f();
    } catch (...) {
#pragma omp critical(coda_cpu_failure)
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

// How a panel's elements are ordered in memory of ours; `as_is`: they stay where they are; `blocks`: each thread has
// strips of its own.
enum class Order { as_is, free_inner, k_inner, blocks };

// How k is cut: into chunks of `size`; the last takes in what would be too short for a product in blocks of its own.
struct Chunks {
  std::int64_t k, size;
  bool whole() const { return size >= k; }
  std::int64_t steps(std::int64_t from) const { return k - from < size + kLeastBlockedK ? k - from : size; }
  /// f(first step, number of steps) for each chunk.
  template <class F>
  void each(const F& f) const {
    for (std::int64_t from = 0; from < k; from += steps(from)) f(from, steps(from));
  }
};

// How an operand is cut into tiles along its free dimension, and those of them that are packed at present.
struct Panels {
  Operand operand;
  std::int64_t size;
  Chunks chunks;  // a packed panel has one after the other
  std::int64_t tile;
  Order order;
  std::int64_t per_group;
  void* memory = nullptr;

  Panels(const Operand& o, std::int64_t size_, const Chunks& chunks_, std::int64_t tile_, Order order_)
      : operand(o), size(size_), chunks(chunks_), tile(tile_), order(order_) {
    per_group = packed() ? std::clamp<std::int64_t>(kPackBytes / panel_bytes(), 1, count()) : count();
  }
  bool packed() const { return order == Order::free_inner || order == Order::k_inner; }
  std::int64_t count() const { return ceil_div(size, tile); }
  std::int64_t extent(std::int64_t i) const { return std::min(tile, size - i * tile); }
  DType stored() const { return needs_widening(operand.dtype) ? DType::fp32 : operand.dtype; }
  std::int64_t panel_bytes() const { return ceil_div(tile * chunks.k * size_of(stored()), 64) * 64; }
  std::size_t group_bytes() const { return packed() ? static_cast<std::size_t>(per_group * panel_bytes()) : 0; }
  void* slot(std::int64_t i) const { return static_cast<std::byte*>(memory) + (i % per_group) * panel_bytes(); }
  /// Parts that a panel can be filled in by several threads.
  std::int64_t parts() const { return order == Order::free_inner ? 1 : ceil_div(tile, kBlockN); }
  /// Part `part` of `of` of panel i; `of` is 1 or parts().
  void fill(std::int64_t i, std::int64_t part, std::int64_t of) const {
    const std::int64_t first = part * kBlockN, count = of == 1 ? extent(i) : std::min(kBlockN, extent(i) - first);
    if (count <= 0) return;
    chunks.each([&](std::int64_t from, std::int64_t steps) {
      Operand some = operand;
      some.data += from * operand.k_stride * size_of(operand.dtype);
      auto* to = static_cast<std::byte*>(slot(i)) + (from * extent(i) + first * steps) * size_of(stored());
      pack(some, i * tile + first, count, steps, order == Order::free_inner, to);
    });
  }
  /// Where the panel is, or the chunk of it that begins at step `from`; not for blocks, which have no strides.
  Operand get(std::int64_t i, std::int64_t from = 0) const {
    if (!packed()) {
      return {static_cast<const std::byte*>(operand.at(i * tile)), operand.dtype, operand.free_stride,
              operand.k_stride};
    }
    const bool free_inner = order == Order::free_inner;
    return {static_cast<const std::byte*>(slot(i)) + from * extent(i) * size_of(stored()), stored(),
            free_inner ? 1 : chunks.steps(from), free_inner ? extent(i) : 1};
  }
};

// Columns of B in blocks, of one thread. To share them costs more than it saves: what one thread writes and many read
// has to be taken out of all their caches before it can be written again (16 threads with AMX: at 1024^3 ten times as
// long as a strip of one's own, half of the product's time).
class Strip {
 public:
  /// Columns `first` to `first + count` of b, from the `past`th of them on, a multiple of 64: the chunk that begins at
  /// step `from`.
  const void* get(const Panels& b, std::int64_t first, std::int64_t count, std::int64_t past, std::int64_t from) {
    if (first_ != first) {
      first_ = -1;
      const DType t = b.operand.dtype;
      if (t == DType::fp32) fill<float, float>(b, first, count);
      else if (t == DType::fp16) fill<fp16, float>(b, first, count);
      else if (needs_widening(t)) fill<bf16, float>(b, first, count);
      else fill<bf16, bf16>(b, first, count);
      first_ = first;
    }
    const std::int64_t steps = b.chunks.steps(from);
    const std::int64_t before = b.stored() == DType::bf16
                                    ? 2 * (blocked_size<bf16>(count, from) + blocked_size<bf16>(past, steps))
                                    : 4 * (blocked_size<float>(count, from) + blocked_size<float>(past, steps));
    return static_cast<const std::byte*>(memory_.get(0)) + before;
  }
  void forget() { first_ = -1; }

 private:
  template <class From, class To>
  void fill(const Panels& b, std::int64_t first, std::int64_t count) {
    void* to = memory_.get(static_cast<std::size_t>(blocked_size<To>(count, b.chunks.k)) * sizeof(To));
    const Operand& in = b.operand;
    b.chunks.each([&](std::int64_t from, std::int64_t steps) {
      pack_blocks(static_cast<const From*>(in.at(first)) + from * in.k_stride, count, steps, in.free_stride,
                  in.k_stride, static_cast<To*>(to) + blocked_size<To>(count, from));
    });
  }

  Buffer memory_;
  std::int64_t first_ = -1;
};

// What a thread works on at a time: so many rows and columns of a tile, or a whole tile of which products take so many.
// Never by the number of threads, since the sums' last bits may depend on it.
struct Piece {
  std::int64_t rows, cols;
  bool whole = false;
};

// Tiles so few that threads share them, and pieces so few that columns are shared, too, if they are worth a call.
constexpr std::int64_t kFewTiles = 16, kFewPieces = 32, kLeastWork = std::int64_t{1} << 18;
bool has_few_tiles(const GemmCall& c) { return ceil_div(c.m, kTileM) * ceil_div(c.n, c.tile_n) < kFewTiles; }
std::int64_t columns_of(const GemmCall& c, std::int64_t rows) {
  const std::int64_t down = ceil_div(c.m, c.folds.rows ? kTileM : rows);
  const bool worth = std::min(c.m, rows) * kBlockN * c.k >= kLeastWork;
  if (c.folds.columns || !worth) return c.tile_n;
  // No narrower than need be: each piece brings all of its rows of A from a cache far away.
  for (const std::int64_t cols : {c.tile_n, 2 * kBlockN})
    if (down * ceil_div(c.n, cols) >= kFewPieces) return cols;
  return kBlockN;
}

// AMX is so fast that operands must come from a second-level cache, of 2 MiB. Of a long K so few columns of B at a time
// that they stay there beside a stripe of A: 128, or 64 of a longer one. Where columns are folded the accumulator is a
// whole tile's then, which costs more than is gained at K = 2048 and less at 3072.
constexpr std::int64_t kLongOnAmx = 2048, kLongForWhole = 2560, kLongerOnAmx = 4096, kTooLongOnAmx = 6144;
bool is_long_on_amx(const GemmCall& c, DType stored) { return stored == DType::bf16 && c.k >= kLongOnAmx && has_amx(); }
std::int64_t narrow_strip(std::int64_t k) { return k > kLongerOnAmx ? kBlockN : 2 * kBlockN; }

// With B in blocks a kernel needs no more rows to be fast, and 64 rows of fp32 are still in the nearest caches when the
// epilogue reads them. Of a long fp32 product all rows at once, where tiles are many: its panel of B does not stay in a
// second-level cache of 2 MiB from one stripe to the next.
constexpr std::int64_t kStripe = 64, kLongK = 1024;
Piece piece_in_blocks(const GemmCall& c, DType stored) {
  if (c.strip > 0) return {kStripe, c.strip, true};
  if (is_long_on_amx(c, stored)) {
    const bool whole = c.folds.columns && c.k > kLongForWhole && !has_few_tiles(c);
    if (whole || !c.folds.columns) return {kStripe, std::min(columns_of(c, kStripe), narrow_strip(c.k)), whole};
  }
  const bool all = stored == DType::fp32 && c.k > kLongK && (!has_few_tiles(c) || c.folds.rows);
  const std::int64_t rows = all ? kTileM : kStripe;
  return {rows, columns_of(c, rows)};
}

// Where that is not enough, or a fold keeps rows or columns together, so many steps of K at a time that those of a
// whole tile stay there. A has to be packed for that, which pays where B is large.
constexpr std::int64_t kChunk = 512, kLargeB = std::int64_t{1} << 23;
Chunks chunks_of(const GemmCall& c, DType stored) {
  if (c.chunk > 0) return {c.k, c.chunk};
  const bool longer = c.k > (c.folds.columns || c.folds.rows ? kLongOnAmx : kTooLongOnAmx);
  const bool pays = longer && is_long_on_amx(c, stored) && c.n * c.k >= kLargeB && !has_few_tiles(c);
  return {c.k, pays ? kChunk : c.k};
}
// Whole tiles, or halves and quarters of them where they are few.
Piece piece_in_chunks(const GemmCall& c) {
  Piece piece{kTileM, c.tile_n};
  const auto few = [&] { return ceil_div(c.m, piece.rows) * ceil_div(c.n, piece.cols) < kFewPieces; };
  for (int halvings = 0; halvings < 2 && few(); ++halvings) {
    const bool cut_rows = !c.folds.rows && (c.folds.columns || halvings > 0);
    if (cut_rows) piece.rows /= 2;
    else if (!c.folds.columns) piece.cols /= 2;
  }
  return piece;
}

bool has_blocked_products(const GemmCall& c, DType t, Piece piece, const Chunks& chunks) {
  bool all = true;
  for (const std::int64_t m : {std::min(c.m, piece.rows), c.m % piece.rows}) {
    for (const std::int64_t panel : {std::min(c.n, c.tile_n), c.n % c.tile_n}) {
      for (const std::int64_t n : {std::min(panel, piece.cols), panel % piece.cols}) {
        if (m <= 0 || n <= 0) continue;
        chunks.each([&](std::int64_t, std::int64_t steps) { all = all && has_blocked_product(t, m, n, steps); });
      }
    }
  }
  return all;
}

struct Plan {
  Order a, b;
  Piece piece;
  Chunks chunks;
};

Plan plan_of(const GemmCall& c, const Operand& a, const Operand& b) {
  const Chunks whole_k{c.k, c.k};
  if (a.dtype == DType::fp64) return {Order::as_is, Order::as_is, {kStripe, c.tile_n}, whole_k};
  const bool widen = needs_widening(a.dtype), one_tile = c.n <= c.tile_n;
  const DType stored = widen ? DType::fp32 : a.dtype;
  // A bf16 product that takes rows of B as they are stored is fast enough to be overtaken by one in blocks only by this
  // much work; but its tiles cannot be shared. What is widened is written anew in any case.
  const bool as_stored = stored == DType::bf16 && c.layout == Layout::nt && !has_few_tiles(c);
  const std::int64_t enough = as_stored ? 2 * kTileM : 2 * kStripe;
  const Chunks chunks = chunks_of(c, stored);
  const Piece piece = chunks.whole() ? piece_in_blocks(c, stored) : piece_in_chunks(c);
  if ((c.m > enough || widen) && has_blocked_products(c, stored, piece, chunks)) {
    const bool contiguous = a.k_stride == 1 && a.free_stride == c.k && chunks.whole();
    return {contiguous && !widen ? Order::as_is : Order::k_inner, Order::blocks, piece, chunks};
  }
  // Else packing pays where more than one tile reads an operand whose stored order oneDNN would have to change each
  // time (A stored (K, M); B stored (N, K) in fp32: its bf16 products take that order as it is), or a B whose rows all
  // fall into the same few sets of the cache.
  const bool aliased = b.k_stride * size_of(b.dtype) % 1024 == 0;
  const bool turn_b = b.free_stride != 1 && b.dtype == DType::fp32;
  return {widen || (a.k_stride != 1 && !one_tile) ? Order::k_inner : Order::as_is,
          widen || (turn_b && c.m > kTileM) || (b.free_stride == 1 && aliased && c.m > 2 * kTileM) ? Order::free_inner
                                                                                                   : Order::as_is,
          {kTileM, columns_of(c, kTileM)},
          whole_k};
}

/// A matrix (free dimension, k), or (k, free dimension) if `k_first`.
Operand operand_of(const ConstMatrix& x, bool k_first) {
  // The pitch of a single row means nothing, and may be any number: strides are multiplied, and would overflow.
  const std::int64_t pitch = x.rows > 1 ? x.pitch : x.cols;
  return {static_cast<const std::byte*>(x.data), x.dtype, k_first ? 1 : pitch, k_first ? pitch : 1};
}

// A^T B as the transpose of B^T A. oneDNN takes its first operand row by row, and both are stored the other way round:
// to turn the narrower one costs less, and to turn a tile, which is in cache, next to nothing.
void run_turned_epilogue(const void* program, const TileGeometry& g, std::int64_t first, std::int64_t count,
                         const void* accumulator, std::int64_t ld, std::int64_t) {
  const GemmCall& c = *static_cast<const GemmCall*>(program);
  thread_local Buffer buffer;
  constexpr std::int64_t kBeyond = CpuTile<float>::kColumns;  // fragments are read whole
  auto* acc = static_cast<float*>(buffer.get(static_cast<std::size_t>(g.cols * count + kBeyond) * sizeof(float)));
  transpose(static_cast<const float*>(accumulator), count, g.cols, ld, acc);
  const TileGeometry turned{g.col, g.row + first, g.cols, count, g.tile_n, g.tile_m, g.stream};
  c.epilogue(c.program, turned, 0, g.cols, acc, count, kTileM);
}
GemmCall turned(const GemmCall& c) {
  GemmCall t = c;
  std::swap(t.m, t.n);
  std::swap(t.a, t.b);
  t.epilogue = &run_turned_epilogue;
  t.program = &c;
  return t;
}

bool pays_turned(const GemmCall& c) {
  const bool wide = c.layout == Layout::tn && 2 * c.n <= c.m, folds = c.folds.rows || c.folds.columns || c.strip > 0;
  if (!wide || folds || c.a.dtype == DType::fp64 || c.tile_n != kTileM) return false;
  return plan_of(turned(c), operand_of(c.b, true), operand_of(c.a, true)).b == Order::blocks;
}

struct Range {
  std::int64_t first, last;
};

// The products of some rows and columns of a tile and their epilogue, a stripe of rows after the other or, of whole
// tiles, when all products are there.
template <class Acc>
void run_piece(const GemmCall& c, const Panels& a, const Panels& b, Strip& strip, std::int64_t tm, std::int64_t tn,
               Range rows, Range cols, const Piece& piece) {
  const std::int64_t last_row = std::min(rows.last, a.extent(tm)), last_col = std::min(cols.last, b.extent(tn));
  const TileGeometry g{tm * kTileM, tn * c.tile_n + cols.first, a.extent(tm), last_col - cols.first, tm,
                       tn,          c.m * c.n >= kStreamed};
  if (last_row <= rows.first || g.cols <= 0) return;
  constexpr std::int64_t kColumns = CpuTile<Acc>::kColumns;
  const bool blocked = b.order == Order::blocks;
  const std::int64_t ld = blocked ? g.cols : ceil_div(g.cols, kColumns) * kColumns;
  const std::int64_t stripe = piece.whole ? last_row - rows.first : piece.rows;
  thread_local Buffer buffer;
  Acc* acc = static_cast<Acc*>(buffer.get(static_cast<std::size_t>(stripe * ld + kColumns) * sizeof(Acc)));
  for (std::int64_t r = rows.first; r < last_row; r += stripe) {
    const std::int64_t count = std::min(stripe, last_row - r);
    if constexpr (std::is_same_v<Acc, float>) {
      for (std::int64_t s = 0; blocked && s < g.cols; s += piece.cols) {
        const std::int64_t width = std::min(piece.cols, g.cols - s);
        for (std::int64_t q = 0; q < count; q += piece.rows) {
          b.chunks.each([&](std::int64_t from, std::int64_t steps) {
            multiply_blocked(b.stored(), a.get(tm, from).at(r + q), strip.get(b, g.col, g.cols, s, from),
                             std::min(piece.rows, count - q), width, steps, acc + s * count + q * width, from > 0);
          });
        }
      }
    }
    if (!blocked) {
      Operand some = a.get(tm), columns = b.get(tn);
      some.data = static_cast<const std::byte*>(some.at(r));
      columns.data = static_cast<const std::byte*>(columns.at(cols.first));
      multiply(some, columns, count, g.cols, c.k, acc, ld);
    }
    c.epilogue(c.program, g, r, count, acc, ld, piece.cols);
  }
}

// Hands out the pieces 0 to `count` of a parallel region. A thread has a share of its own, in order, so that it needs
// few columns; when it is done it takes over what is left of the largest share.
class Shares {
 public:
  Shares(std::int64_t count, std::int64_t threads) : count_(count), taken_(static_cast<std::size_t>(threads)) {}

  /// f(piece) for all that this thread of so many gets.
  template <class F>
  void each(std::int64_t thread, std::int64_t threads, const F& f) {
    for (std::int64_t share = thread; share >= 0; share = largest(threads)) {
      const std::int64_t first = first_of(share, threads), last = first_of(share + 1, threads);
      for (std::int64_t i; (i = first + taken_[share].count.fetch_add(1)) < last;) f(i);
    }
  }

 private:
  struct alignas(64) Taken {  // a cache line each
    std::atomic<std::int64_t> count = 0;
  };
  std::int64_t first_of(std::int64_t share, std::int64_t threads) const { return share * count_ / threads; }
  /// The share of which most is left; -1: none has anything.
  std::int64_t largest(std::int64_t threads) const {
    std::int64_t most = 0, share = -1;
    for (std::int64_t t = 0; t < threads; ++t) {
      const std::int64_t left = first_of(t + 1, threads) - first_of(t, threads) - taken_[t].count;
      if (left > most) most = left, share = t;
    }
    return share;
  }

  std::int64_t count_;
  std::vector<Taken> taken_;
};

// No product: a few whole rows at a time, since memory likes long ones, or tiles where rows are few. All rows of the
// accumulator are the same one of zeros.
template <class Acc>
void run_elementwise(const GemmCall& c) {
  constexpr std::int64_t kFewRows = 8;
  alignas(64) static constexpr Acc kZeros[kMaxTileN + CpuTile<Acc>::kColumns] = {};
  const std::int64_t tiles = ceil_div(c.n, c.tile_n), rows = c.folds.rows ? kTileM : kStripe;
  const std::int64_t blocks = ceil_div(c.m, rows);
  const std::int64_t width = blocks >= 2 * most_threads() ? tiles : 1;  // tiles of a row that a thread takes
  const std::int64_t across = ceil_div(tiles, width);
#pragma omp parallel if (blocks * across > 1 && may_share())
  {
    const DefaultRounding rounding;
#pragma omp for schedule(static) nowait
    for (std::int64_t i = 0; i < blocks * across; ++i) {
      const std::int64_t first = i / across * rows, last = std::min(first + rows, c.m), tm = first / kTileM;
      const std::int64_t first_tile = i % across * width, last_tile = std::min(first_tile + width, tiles);
      for (std::int64_t r = first; r < last; r += kFewRows) {
        for (std::int64_t tn = first_tile; tn < last_tile; ++tn) {
          const TileGeometry g{tm * kTileM,
                               tn * c.tile_n,
                               std::min(kTileM, c.m - tm * kTileM),
                               std::min(c.tile_n, c.n - tn * c.tile_n),
                               tm,
                               tn,
                               c.m * c.n >= kStreamed};
          c.epilogue(c.program, g, r - g.row, std::min(kFewRows, last - r), kZeros, 0, c.tile_n);
        }
      }
    }
    end_of_streams();
  }
}

template <class Acc>
void run_typed(const GemmCall& c) {
  if (c.k <= 0) return run_elementwise<Acc>(c);
  const Operand a = operand_of(c.a, c.layout == Layout::tn), b = operand_of(c.b, c.layout != Layout::nt);
  const Plan plan = plan_of(c, a, b);
  Panels pa(a, c.m, plan.chunks, kTileM, plan.a), pb(b, c.n, plan.chunks, c.tile_n, plan.b);
  const std::int64_t count_m = pa.count(), count_n = pb.count();
  thread_local Buffer buffer_a, buffer_b;
  pa.memory = pa.packed() ? buffer_a.get(pa.group_bytes()) : nullptr;
  pb.memory = pb.packed() ? buffer_b.get(pb.group_bytes()) : nullptr;

  // Rows that are folded are one thread's.
  const Piece piece = plan.piece;
  const std::int64_t rows = c.folds.rows || piece.whole ? kTileM : piece.rows;
  const std::int64_t cols = piece.whole ? c.tile_n : piece.cols, slices = ceil_div(std::min(c.n, c.tile_n), cols);

  Failure failure;
  const std::int64_t threads = most_threads();
  for (std::int64_t m0 = 0; m0 < count_m; m0 += pa.per_group) {
    const std::int64_t m1 = std::min(count_m, m0 + pa.per_group);
    for (std::int64_t n0 = 0; n0 < count_n; n0 += pb.per_group) {
      const std::int64_t n1 = std::min(count_n, n0 + pb.per_group);
      const std::int64_t fill_a = pa.packed() && n0 == 0 ? m1 - m0 : 0, fill_b = pb.packed() ? n1 - n0 : 0;
      // Where panels are few, threads share them.
      const bool shared = fill_a + fill_b < 2 * threads;
      const std::int64_t parts_a = shared ? pa.parts() : 1, parts_b = shared ? pb.parts() : 1;
      const std::int64_t fills_a = fill_a * parts_a, fills = fills_a + fill_b * parts_b;
      // Pieces are counted down the rows, a slice of a tile's columns after the other.
      const std::int64_t down = ceil_div(std::min(m1 * kTileM, c.m) - m0 * kTileM, rows);
      const std::int64_t pieces = down * (n1 - n0) * slices;
      Shares shares(pieces, threads);
      const bool parallel = pieces + fills > 1 && threads > 1;
#pragma omp parallel if (parallel)
      {
        const DefaultRounding rounding;
        // oneDNN would cut a lone tile's inner dimension among the threads: another sum for each number of them.
        omp_set_num_threads(1);
        if (fills > 0) {
#pragma omp for schedule(dynamic)
          for (std::int64_t i = 0; i < fills; ++i) {
            failure.guard([&] {
              if (i < fills_a) pa.fill(m0 + i / parts_a, i % parts_a, parts_a);
              else pb.fill(n0 + (i - fills_a) / parts_b, (i - fills_a) % parts_b, parts_b);
            });
          }
        }
        thread_local Strip strip;
        strip.forget();
        shares.each(omp_get_thread_num(), omp_get_num_threads(), [&](std::int64_t i) {
          failure.guard([&] {
            const std::int64_t tn = n0 + i / down / slices, col = i / down % slices * cols;
            const std::int64_t row = m0 * kTileM + i % down * rows, tm = row / kTileM, first = row % kTileM;
            run_piece<Acc>(c, pa, pb, strip, tm, tn, {first, first + rows}, {col, col + cols}, piece);
          });
        });
        end_of_streams();
      }
    }
  }
  failure.rethrow();
}

}  // namespace

void run(const GemmCall& call) {
  if (call.m <= 0 || call.n <= 0) return;
  try {
    if (pays_turned(call)) run_typed<float>(turned(call));
    else call.a.dtype == DType::fp64 ? run_typed<double>(call) : run_typed<float>(call);
  } catch (const dnnl::error& e) {
    throw Error(Status::device_error,
                std::string(call.op) + ": oneDNN: " + e.what() + " (status " + std::to_string(e.status) + ")");
  } catch (const std::bad_alloc&) {
    throw Error(Status::device_error, std::string(call.op) + ": workspace: out of memory");
  } catch (const std::exception& e) {  // of the standard library, used by oneDNN: a promise broken for lack of memory
    throw Error(Status::device_error, std::string(call.op) + ": oneDNN: " + e.what());
  }
}

}  // namespace coda::cpu::detail
