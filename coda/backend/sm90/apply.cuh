// A program on a matrix that lies in memory: the elementwise kernels of the backward, and what follows a product that a
// library computed.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <limits>

#include "coda/backend/sm90/choice.h"
#include "coda/backend/sm90/enqueue.cuh"
#include "coda/backend/sm90/launch.cuh"
#include "coda/backend/sm90/lifecycle.cuh"
#include "coda/backend/sm90/ring.cuh"

namespace coda::sm90 {

namespace detail {

inline constexpr int kApplyThreads = 256;
inline constexpr int kApplyRows = kApplyThreads / Run<false>::kLanes;  // at once
/// Heads of a tile at most, for heads of two columns.
inline constexpr int kMaxHeads = static_cast<int>(kTileN) / 2;
/// Tiles of a thread block at most.
inline constexpr int kMostTiles = 128;
/// Tiles that a thread block works on at a time where a program has heads: all of a row use the same angles, which its
/// warps find in the L1 cache then.
inline constexpr int kHeadTiles = 4;

/// Rows [first_row, last_row) of a matrix of `cols` columns, in tiles of kTileM x tile_n, `tiles` of them side by side
/// to a thread block, which works on `across` of them at a time. `acc` is row first_row of the accumulator, if there is
/// a product.
struct Extent {
  int first_row, last_row, cols, tile_n, tiles, across;
  const float* acc;
  std::int64_t acc_pitch;
};

/// What decides how a thread block covers the matrix: values of a column that rows share, and of a row that columns do.
enum class Shares : std::uint8_t { nothing, columns, rows };
template <class P>
inline constexpr Shares kShares = Shares::nothing;
template <class T, Width W>
inline constexpr Shares kShares<RowVector<T, W>> = Shares::columns;
template <class T>
inline constexpr Shares kShares<HeadVector<T>> = Shares::columns;
template <class T>
inline constexpr Shares kShares<GatherLoad<T>> = Shares::rows;
template <class Program>
constexpr bool shares(Shares what) {
  bool found = false;
  const Program program{};
  for_each_port(program,
                [&](const auto& port) { found = found || kShares<std::remove_cvref_t<decltype(port)>> == what; });
  return found;
}

/// How a thread block covers a matrix: a few rows along n, tile after tile, or many rows of one tile, whose vectors
/// along n are read once. Behind a product, `kBatch` tiles or rows have their loads on the way together; else a ring
/// has them (kReadsAhead).
template <class Program, bool HasProduct, bool Ragged>
struct Cover {
  static constexpr bool kAlongN = !Ragged && !kHasHeadMeans<Program> && kRowFolds<Program> == 0 &&
                                  (shares<Program>(Shares::rows) || !shares<Program>(Shares::columns));
  /// Whether a block has a tile of several heads for each part of its threads, which have fewer rows of it then.
  static constexpr bool kTilesOfHeads = kHasHeadMeans<Program> && !Ragged;
  static constexpr bool kReadsAhead = !HasProduct && !Ragged;
  static constexpr int kBatch = Ragged || kReadsAhead ? 1 : 2;
  static constexpr int kSlots = kAlongN ? 1 : kBatch;
  static constexpr int kBlocks = Ragged ? 1 : 2;
  /// Along n: tiles of a block at most, and at a time. Two rows of 2 KiB at a time come from memory faster than sixteen
  /// of 256 bytes; a warp has two rows of a tile in any case.
  static constexpr int kTilesAtMost = kReadsAhead ? kMostTiles : 16, kAcross = kReadsAhead ? 8 : 1;

  static CODA_DEVICE int row(const Position& at, int slot) { return at.row + slot * at.slot_rows; }
  static CODA_FN int rows(int across) { return kAlongN ? kApplyRows / across : static_cast<int>(kTileM); }

  /// Tiles side by side of a block: what a block's rows have in common is read before all else, so the fewest blocks
  /// that fill the chip, as far as kTilesAtMost goes; or kHeadTiles, if they fill it.
  static int tiles(std::int64_t rows_of_all, std::int64_t tiles_n, int multiprocessors) {
    if (!kAlongN && !kTilesOfHeads) return 1;
    const int chosen = chosen_tiles();
    const std::int64_t at_once = std::int64_t{kBlocks} * multiprocessors;
    const std::int64_t wanted = ceil_div(ceil_div(rows_of_all, rows(kAcross)) * tiles_n, at_once);
    if (kTilesOfHeads) return (chosen > 0 ? chosen : wanted) >= kHeadTiles ? kHeadTiles : 1;
    if (chosen > 0) return std::min(chosen, kTilesAtMost);
    const std::int64_t blocks_n = ceil_div(tiles_n, std::min<std::int64_t>(wanted, kTilesAtMost));
    return static_cast<int>(ceil_div(tiles_n, blocks_n));
  }
  static int across(int tiles) {
    if (kTilesOfHeads) return tiles;
    return std::min(kAcross, static_cast<int>(std::bit_floor(static_cast<unsigned>(tiles))));
  }
};

/// Means over heads of what the first pass left of the row: each lane takes every 16th column, then lanes are added up.
CODA_DEVICE void mean_of_heads(const HeadRow& row, float* means, int lane, int head_dim) {
  __syncwarp();
  for (int slot = 0; slot < kHeadSlots; ++slot) {
    for (int head = 0; head < row.width / head_dim; ++head) {
      const float* values = row.values + slot * row.width + head * head_dim;
      float sum = 0;
      for (int i = lane; i < head_dim; i += Run<true>::kLanes) sum += values[i];
      CODA_UNROLL for (int bit = 1; bit < Run<true>::kLanes; bit *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
      if (lane == 0) means[slot * row.stride + head] = sum * (1.f / static_cast<float>(head_dim));
    }
  }
  __syncwarp();
}
/// Makes of each lane's values the sums over the `lanes` lanes of its head.
CODA_DEVICE void sum_in_heads(float (&own)[kHeadSlots], int lane, int lanes) {
  if ((lanes & (lanes - 1)) == 0) {
    CODA_UNROLL for (int bit = 1; bit < Run<false>::kLanes; bit *= 2) {
      CODA_UNROLL for (float& x : own) {
        const float other = __shfl_xor_sync(0xffffffffu, x, bit);
        if (bit < lanes) x += other;
      }
    }
    return;
  }
  float sum[kHeadSlots] = {};
  const int first = lane / lanes * lanes;
#pragma unroll 1
  for (int i = 0; i < lanes; ++i) {
    CODA_UNROLL for (int slot = 0; slot < kHeadSlots; ++slot) {
      sum[slot] += __shfl_sync(0xffffffffu, own[slot], first + i, Run<false>::kLanes);
    }
  }
  CODA_UNROLL for (int slot = 0; slot < kHeadSlots; ++slot) own[slot] = sum[slot];
}

template <class Program, bool HasProduct, bool Ragged>
__global__ void __launch_bounds__(kApplyThreads, (Cover<Program, HasProduct, Ragged>::kBlocks))
    apply_kernel(const __grid_constant__ Program params, const __grid_constant__ Extent extent) {
  using G = Run<Ragged>;
  using Cover = detail::Cover<Program, HasProduct, Ragged>;
  constexpr bool kFirstPass = kHasHeadMeans<Program>;
  constexpr int kBatch = Cover::kBatch;
  // Heads wider than a patch are rare enough to share a kernel with everything ragged.
  constexpr int kPatches = kFirstPass && Ragged ? static_cast<int>(kMaxTileN) / G::kPatchN : 1;
  constexpr int kFolds = kRowFolds<Program>;
  extern __shared__ __align__(16) float shared_memory[];
  __shared__ float fold_memory[kFolds > 0 ? kApplyRows : 1][kFolds > 0 ? G::kPatchN : 1];

  wait_for_turn();
  const int tiles_n = (extent.cols + extent.tile_n - 1) / extent.tile_n;
  const int blocks_n = (tiles_n + extent.tiles - 1) / extent.tiles;
  const int block_m = static_cast<int>(blockIdx.x) / blocks_n;
  const int run = static_cast<int>(threadIdx.x) / G::kLanes;  // which one of the block
  const int rows_at_once = kApplyRows / extent.across, rows = Cover::rows(extent.across);
  const int thread_row = run % rows_at_once, first_block_n = static_cast<int>(blockIdx.x) % blocks_n * extent.tiles;
  const int block_n = first_block_n + run / rows_at_once;  // the thread's first tile
  const int first_col = first_block_n * extent.tile_n;
  const Program program = params;
  Position at;
  at.lane = static_cast<int>(threadIdx.x) % G::kLanes;
  at.col = block_n * extent.tile_n;
  at.cols = min(extent.cols, Cover::kTilesOfHeads ? at.col + extent.tile_n : first_col + extent.tiles * extent.tile_n);
  at.rows = extent.last_row;
  at.slot_rows = rows_at_once;
  if (const int head_dim = head_dim_of(program); head_dim > 0)
    at.head_column = (at.col + G::kColumns * at.lane) % head_dim;
  const int tile_row = extent.first_row + block_m * rows;
  const Lifecycle<G, Cover> lifecycle{at};

  using Columns = ColumnValues<Program, G, kPatches>;
  const auto load_columns = [&](int col, Columns& into) {
    for_each_numbered_port(program, [&](const auto& port, auto number) {
      lifecycle.template load_columns<kPatches>(port, col, into.words[number]);
    });
  };
  Columns shared_columns;
  if constexpr (!Cover::kAlongN) load_columns(at.col, shared_columns);
  ColumnFolds<Program, kPatches> folds;
  for_each_fold(program, [&]<class Op>(const ReduceM<Op>&, auto fold) {
    CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
      CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) folds.v[fold][patch][i] = Op::template neutral<float>;
    }
  });

  HeadRow heads;
  float head_sums[kHeadSlots] = {}, *head_means = head_sums;
  heads.values = head_sums, heads.stride = 1;
  if constexpr (kFirstPass && Ragged) {
    heads.width = extent.tile_n;
    heads.stride = kMaxHeads;
    const int one = kHeadSlots * (extent.tile_n + kMaxHeads);
    heads.values = shared_memory + run * one;
    head_means = heads.values + kHeadSlots * extent.tile_n;
  }
  heads.means = head_means;

  const auto begin_block = [&] { for_each_port(program, [&](const auto& port) { lifecycle.begin_block(port); }); };
  const auto end_block = [&](int block) {
    for_each_port(program, [&](const auto& port) { lifecycle.end_block(port, block); });
  };
  // A run's thread knows the head that its columns lie in.
  const auto reduce_heads = [&](const auto& tile, const Accumulator& acc) {
    if constexpr (kFirstPass) {
      const int head_dim = head_dim_of(program);
      CODA_UNROLL for (float& sum : head_sums) sum = 0;
      program.first(tile, acc);
      sum_in_heads(head_sums, at.lane, head_dim / G::kColumns);
      CODA_UNROLL for (float& sum : head_sums) sum *= 1.f / static_cast<float>(head_dim);
    }
  };

  const auto begin_tile = [](const auto& ports, const auto& there) {
    for_each_port(ports, [&](const auto& port) { there.begin_tile(port); });
  };

  at.row = tile_row + thread_row;
  // All threads of a warp take as many rows, since they exchange values: as many as the first of them.
  const int warp_row = at.row - thread_row % 2, last_row = at.col < extent.cols ? min(at.rows, tile_row + rows) : 0;
  if constexpr (Cover::kReadsAhead) {
    // A step is a tile of the thread's row, or a row of its tile.
    const int first_row = at.row, step_cols = extent.across * static_cast<int>(kTileN);
    int steps = (last_row - warp_row + rows_at_once - 1) / rows_at_once;
    if constexpr (Cover::kAlongN) steps = warp_row < last_row ? (at.cols - at.col + step_cols - 1) / step_cols : 0;
    const auto row_of = [&](int s) { return Cover::kAlongN ? first_row : first_row + s * rows_at_once; };
    const auto col_of = [&](int s) { return Cover::kAlongN ? at.col + s * step_cols : at.col; };

    const Ring<Program, kApplyThreads, Cover::kBlocks> ring(shared_memory, static_cast<int>(threadIdx.x));
    const Program asking = params;  // its ports hold what they know of the row that is asked for
    Position asked = at;
    const Lifecycle<G, Cover> lifecycle_of_asked{asked};
    if constexpr (Cover::kAlongN) begin_tile(asking, lifecycle_of_asked), begin_tile(program, lifecycle);
    const auto ask = [&](int s) {
      if (s < steps) {
        asked.row = row_of(s);
        if constexpr (!Cover::kAlongN) begin_tile(asking, lifecycle_of_asked);
        ring.ask(s, asking,
                 Sm90Tile<Program, G, kPatches>(asking, asked, shared_columns, folds, heads, nullptr, 0, 0, asked.row,
                                                col_of(s), nullptr, nullptr));
      }
      ring.close();
    };
    for (int s = 0; s < ring.kStages; ++s) ask(s);
    for (int s = 0; s < steps; ++s) {
      at.row = row_of(s);
      Columns columns;
      if constexpr (Cover::kAlongN) load_columns(col_of(s), columns);
      else begin_tile(program, lifecycle);
      Ahead<Program> ahead;
      ring.take(s, program, ahead);
      ask(s + ring.kStages);
      const Sm90Tile<Program, G, kPatches> tile(program, at, Cover::kAlongN ? columns : shared_columns, folds, heads,
                                                &ahead, 0, 0, at.row, col_of(s), nullptr, nullptr);
      begin_block();
      reduce_heads(tile, Accumulator{});
      program(tile, Accumulator{});
      end_block(Cover::kAlongN ? block_n + s * extent.across : block_n);
    }
  } else {
    const int step = Cover::kSlots * rows_at_once;
    for (int i = 0; warp_row + i < last_row; i += step, at.row += step) {
      Ahead<Program> ahead[kBatch];
      const auto tile_at = [&](int number, int slot, int patch, int col, const Columns& columns) {
        return Sm90Tile<Program, G, kPatches>(program, at, columns, folds, heads, &ahead[number], patch, slot,
                                              lifecycle.row(slot), col, nullptr, nullptr);
      };
      const auto fetch = [&](const auto& tile, Ahead<Program>& into) {
        for_each_numbered_port(
            program, [&](const auto& port, auto number) { tile.fetch_port(port, RunWords{into.words[number]}); });
      };
      const auto accumulator = [&](int slot, int col) {
        Accumulator acc{};
        if constexpr (HasProduct) {
          const int row = lifecycle.row(slot);
          if constexpr (Ragged) {
            const float* from = extent.acc + (row - extent.first_row) * extent.acc_pitch + col;
            load_row(G(), from, acc, at.lane, row < at.rows ? at.cols - col : 0);
          } else {
            const int column = col + G::kColumns * at.lane;
            std::uint32_t words[Accumulator::count];
            RunWords{words}.copy<Accumulator::count>(
                rows_behind(extent.acc + column, extent.acc_pitch, row - extent.first_row),
                row < at.rows && column < at.cols);
            from_words<float, Accumulator::count>(words, acc.v);
          }
        }
        return acc;
      };
      begin_tile(program, lifecycle);
      if constexpr (Cover::kAlongN) {
        for (int t = 0; t < extent.tiles; t += kBatch) {
          Accumulator acc[kBatch];
          Columns columns[kBatch];
          const auto col = [&](int b) { return at.col + (t + b) * static_cast<int>(kTileN); };
          if (col(0) >= at.cols) break;
          CODA_UNROLL for (int b = 0; b < kBatch; ++b) {
            acc[b] = accumulator(0, col(b));
            load_columns(col(b), columns[b]);
            fetch(tile_at(b, 0, 0, col(b), columns[b]), ahead[b]);
          }
          CODA_UNROLL for (int b = 0; b < kBatch; ++b) {
            if (col(b) >= at.cols) break;
            begin_block();
            const auto tile = tile_at(b, 0, 0, col(b), columns[b]);
            program(tile, acc[b]);
            end_block(block_n + t + b);
          }
        }
      } else if constexpr (!Ragged) {
        Accumulator acc[kBatch];
        CODA_UNROLL for (int slot = 0; slot < kBatch; ++slot) {
          acc[slot] = accumulator(slot, at.col);
          fetch(tile_at(slot, slot, 0, at.col, shared_columns), ahead[slot]);
        }
        begin_block();
        CODA_UNROLL for (int slot = 0; slot < kBatch; ++slot) {
          const auto tile = tile_at(slot, slot, 0, at.col, shared_columns);
          reduce_heads(tile, acc[slot]);
          program(tile, acc[slot]);
        }
        end_block(block_n);
      } else {
        const auto each_patch = [&](const auto& f) {
          CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
            if (patch > 0 && patch * G::kPatchN >= extent.tile_n) break;
            const int col = at.col + patch * G::kPatchN;
            f(tile_at(0, 0, patch, col, shared_columns), accumulator(0, col));
          }
        };
        begin_block();
        if constexpr (kFirstPass) {
          each_patch([&](const auto& tile, const Accumulator& acc) { program.first(tile, acc); });
          mean_of_heads(heads, head_means, at.lane, head_dim_of(program));
        }
        each_patch([&](const auto& tile, const Accumulator& acc) { program(tile, acc); });
        end_block(block_n);
        if constexpr (kFirstPass) __syncwarp();  // the next row's values come into the same memory
      }
    }
  }

  for_each_fold(program, [&]<class Op>(const ReduceM<Op>& port, auto fold) {
    CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
      if (patch > 0 && patch * G::kPatchN >= extent.tile_n) break;
      __syncthreads();
      CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) {
        fold_memory[run][G::kColumns * at.lane + i] = folds.v[fold][patch][i];
      }
      __syncthreads();
      // A thread for each column of the block's tiles.
      for (int i = static_cast<int>(threadIdx.x); i < extent.across * G::kPatchN && port.data; i += kApplyThreads) {
        const int tile = i / G::kPatchN, column = i % G::kPatchN, first_run = tile * rows_at_once;
        const int tile_col = first_col + tile * extent.tile_n, col = tile_col + patch * G::kPatchN + column;
        if (col >= min(extent.cols, tile_col + extent.tile_n)) continue;
        float sum = fold_memory[first_run][column];
        for (int row = 1; row < rows_at_once; ++row) sum = Op::fold(sum, fold_memory[first_run + row][column]);
        port.data[tile_row / kTileM * port.pitch + col] = sum;
      }
    }
  });
}

/// Whether the rows of all matrices, and the vectors along n, have the alignment that vector accesses need.
template <class Program>
bool ports_aligned(const Program& program, std::int64_t rows, std::int64_t vector_bytes = 16) {
  bool aligned = true;
  for_each_port(program, [&]<class Port>(const Port& port) {
    if constexpr (requires { port.width; }) {
      if constexpr (requires { port.pitch; }) {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(port.data)>>;
        constexpr std::int64_t kAlign = std::min<std::int64_t>(16, kChunkBytes<Run<false>, T, Port::width>);
        aligned = aligned && is_aligned(port.data, rows, port.pitch * static_cast<std::int64_t>(sizeof(T)), kAlign);
      } else {
        aligned = aligned && is_aligned(port.data, 1, 0, vector_bytes);
      }
    } else if constexpr (requires { port.q, port.k; }) {
      constexpr std::int64_t kPair = 2 * sizeof(*port.q);
      aligned = aligned && is_aligned(port.q, 1, 0, kPair) && is_aligned(port.k, 1, 0, kPair);
    } else if constexpr (requires { port.table; }) {
      aligned = aligned && is_aligned(port.table, 1, 0, 16);
    } else if constexpr (requires { port.data, port.index, port.rows; }) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(port.data)>>;
      aligned = aligned && is_aligned(port.data, 2, port.pitch * static_cast<std::int64_t>(sizeof(T)), 16);
    }
  });
  return aligned;
}

/// Whether rows of all that a program reads and writes begin fewer than kMostRowBytes apart.
template <class Program>
bool rows_are_near(const Program& program, std::int64_t acc_pitch) {
  constexpr std::int64_t kMost = kMostRowBytes / static_cast<std::int64_t>(sizeof(double));
  bool near = acc_pitch <= kMost;
  for_each_port(program, [&](const auto& port) {
    if constexpr (requires { port.pitch; }) near = near && port.pitch <= kMost;
  });
  return near;
}

template <class Program>
std::int64_t tile_n_for(const Call& call, const Program& program) {
  const int head_dim = head_dim_of(program);
  if (!kHasHeadMeans<Program>) return kTileN;
  if (head_dim > kMaxTileN) {
    call.fail(Status::unsupported, "program: expected a head_dim of at most " + std::to_string(kMaxTileN) + ", got " +
                                       std::to_string(head_dim));
  }
  return tile_n_for_heads(head_dim);
}

/// Dynamic shared memory of a kernel: a program with heads of `tile_n` columns, or as many in a tile, keeps its rows
/// there where they are not whole chunks.
template <class Program, bool HasProduct, bool Ragged>
constexpr int shared_bytes(std::int64_t tile_n) {
  using Cover = detail::Cover<Program, HasProduct, Ragged>;
  if (Cover::kReadsAhead) return Ring<Program, kApplyThreads, Cover::kBlocks>::kBytes;
  return kHasHeadMeans<Program> && Ragged ? kApplyRows * kHeadSlots * (static_cast<int>(tile_n) + kMaxHeads) * 4 : 0;
}
/// Allows it once on each device, for the widest heads: the limit is that of all threads' launches.
template <class Program, bool HasProduct, bool Ragged>
void allow_shared(const Call& call, const Device& device) {
  constexpr int kMost = shared_bytes<Program, HasProduct, Ragged>(kMaxTileN);
  if constexpr (kMost > 0) {
    static OncePerDevice once;
    once(device, [&] {
      check(cudaFuncSetAttribute(apply_kernel<Program, HasProduct, Ragged>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 kMost),
            call, "cudaFuncSetAttribute");
    });
  }
}

/// Rows [first, last) of the program's matrices. `acc` is row `first` of the accumulator, null if there is no product.
template <bool HasProduct, class Program>
void launch_apply(const Call& call, const Device& device, const Program& program, std::int64_t first, std::int64_t last,
                  const float* acc, cudaStream_t stream) {
  const std::int64_t tile_n = tile_n_for(call, program), tiles_n = ceil_div(call.n, tile_n);
  const bool ragged = call.n % 8 != 0 || tile_n % 8 != 0 || tile_n > kTileN || !heads_divide<Run<false>>(program) ||
                      !ports_aligned(program, call.m) || !rows_are_near(program, call.n);
  Extent extent{static_cast<int>(first),
                static_cast<int>(last),
                static_cast<int>(call.n),
                static_cast<int>(tile_n),
                1,
                1,
                acc,
                call.n};
  const auto start = [&]<bool Ragged>(std::bool_constant<Ragged>) {
    using Cover = detail::Cover<Program, HasProduct, Ragged>;
    extent.tiles = Cover::tiles(last - first, tiles_n, device.chip.multiprocessors);
    extent.across = Cover::across(extent.tiles);
    const std::int64_t blocks = ceil_div(last - first, Cover::rows(extent.across)) * ceil_div(tiles_n, extent.tiles);
    if (blocks > std::numeric_limits<int>::max()) {
      call.fail(Status::unsupported, "M, N: expected at most " + std::to_string(std::numeric_limits<int>::max()) +
                                         " tiles, got " + std::to_string(blocks));
    }
    allow_shared<Program, HasProduct, Ragged>(call, device);
    const Blocks shape{.count = dim3(static_cast<unsigned>(blocks)),
                       .threads = kApplyThreads,
                       .shared_bytes = static_cast<std::size_t>(shared_bytes<Program, HasProduct, Ragged>(tile_n))};
    auto& kernel = launchable<apply_kernel<Program, HasProduct, Ragged>>;
    check(kernel.enqueue(stream, device, shape, program, extent), call, "cuLaunchKernelEx");
  };
  ragged ? start(std::true_type()) : start(std::false_type());
}

/// What can be wrong with a program; and M, N and the columns of all matrices fit the device code's 32 bits.
template <class Program>
void check_call(const Call& call, const Program& program, const ConstMatrix& a = {}, const ConstMatrix& b = {}) {
  check_program<float, Program, const Sm90Tile<Program, Run<false>, 1>, Accumulator>();
  checked_head_dim(call.op, program);
  check_ports(call.op, program, {call.m, call.n, tiles_m(call.m), ceil_div(call.n, tile_n_for(call, program))}, a, b);
  // The tiles of a thread block past the end are still an int.
  constexpr std::int64_t kMost = std::numeric_limits<int>::max() - 2 * kMostTiles * kTileN;
  bool doubles = false;
  for_each_port(program, [&](const auto& port) {
    if constexpr (requires { port.width; }) doubles = doubles || port.width == Width::Double;
  });
  const std::int64_t most_n = doubles ? kMost / 2 : kMost;
  if (call.m > kMost || call.n > most_n || call.k > kMost) {
    call.fail(Status::unsupported, "M, N, K: expected at most " + std::to_string(kMost) + ", " +
                                       std::to_string(most_n) + ", " + std::to_string(kMost));
  }
}

}  // namespace detail

/// Runs a program with no product on an M x N tile space: its accumulator is 0, what it works on comes through its
/// ports. Any M, N and alignment. Enqueues one kernel on `stream`.
template <Program P>
void apply(std::int64_t m, std::int64_t n, const P& program, cudaStream_t stream = nullptr, const char* op = "apply") {
  const detail::Call call{op, m, n, 0, Layout::nt};
  if (std::min(m, n) == 0) return;  // the other may be below 0
  detail::check_call(call, program);
  const detail::Device device = detail::current_device(call);
  detail::launch_apply<false>(call, device, program, 0, m, nullptr, stream);
}

}  // namespace coda::sm90
