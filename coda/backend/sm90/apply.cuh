// A program on a matrix that lies in memory: the elementwise kernels of the backward, and what follows a product that a
// library computed.
#pragma once

#include <limits>

#include "coda/backend/sm90/launch.cuh"
#include "coda/backend/sm90/lifecycle.cuh"

namespace coda::sm90 {

namespace detail {

inline constexpr int kApplyThreads = 256;
inline constexpr int kApplyRows = kApplyThreads / Run<false>::kLanes;  // at once
/// Heads of a tile at most, for heads of two columns.
inline constexpr int kMaxHeads = static_cast<int>(kTileN) / 2;

/// Rows [first_row, last_row) of a matrix of `cols` columns, in tiles of kTileM x tile_n. `acc` is row first_row of the
/// accumulator; null: it is 0.
struct Extent {
  int first_row, last_row, cols, tile_n;
  const float* acc;
  std::int64_t acc_pitch;
};

struct ApplyRows {
  static constexpr int kSlots = 1;
  static CODA_DEVICE int row(const Position& at, int) { return at.row; }
};

/// Means over heads of what the first pass left of the row: each lane takes every 16th column, then lanes are added up.
CODA_DEVICE void mean_of_heads(const HeadRow& row, float* means, int lane, int head_dim) {
  __syncwarp();
  for (int slot = 0; slot < kHeadSlots; ++slot) {
    for (int head = 0; head < row.width / head_dim; ++head) {
      const float* values = row.values + slot * row.width + head * head_dim;
      float sum = 0;
      for (int i = lane; i < head_dim; i += Run<false>::kLanes) sum += values[i];
      CODA_UNROLL for (int bit = 1; bit < Run<false>::kLanes; bit *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bit);
      if (lane == 0) means[slot * row.stride + head] = sum * (1.f / static_cast<float>(head_dim));
    }
  }
  __syncwarp();
}

template <class Program, bool Ragged>
__global__ void __launch_bounds__(kApplyThreads, Ragged ? 1 : 2)
    apply_kernel(const __grid_constant__ Program params, const __grid_constant__ Extent extent) {
  using G = Run<Ragged>;
  constexpr bool kFirstPass = kHasHeadMeans<Program>;
  // Heads wider than a patch are rare enough to share a kernel with everything ragged.
  constexpr int kPatches = kFirstPass && Ragged ? static_cast<int>(kMaxTileN) / G::kPatchN : 1;
  constexpr int kFolds = kRowFolds<Program>;
  extern __shared__ float head_memory[];
  __shared__ float fold_memory[kFolds > 0 ? kApplyRows : 1][kFolds > 0 ? G::kPatchN : 1];

  const int tiles_n = (extent.cols + extent.tile_n - 1) / extent.tile_n;
  const int block_m = static_cast<int>(blockIdx.x) / tiles_n, block_n = static_cast<int>(blockIdx.x) % tiles_n;
  const int thread_row = static_cast<int>(threadIdx.x) / G::kLanes;
  const Program program = params;
  Position at;
  at.lane = static_cast<int>(threadIdx.x) % G::kLanes;
  at.col = block_n * extent.tile_n;
  at.cols = min(extent.cols, at.col + extent.tile_n);
  at.rows = extent.last_row;
  at.tile_n = block_n;
  const int tile_row = extent.first_row + block_m * static_cast<int>(kTileM);
  const Lifecycle<G, ApplyRows> lifecycle{at};

  ColumnValues<Program, G, kPatches> columns;
  ColumnFolds<Program, kPatches> folds;
  int number = 0;
  for_each_port(program, [&](const auto& port) {
    lifecycle.template load_columns<kPatches>(port, at.col, columns.words[number++]);
  });
  const auto each_fold = [&](const auto& f) {
    int fold = 0;
    for_each_port(program, [&](const auto& port) {
      if constexpr (kFoldsRows<std::remove_cvref_t<decltype(port)>>) f(port, fold++);
    });
  };
  each_fold([&]<class Op>(const ReduceM<Op>&, int fold) {
    CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
      CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) folds.v[fold][patch][i] = Op::template neutral<float>;
    }
  });

  HeadRow heads;
  float* head_means = nullptr;
  if constexpr (kFirstPass) {
    heads.width = extent.tile_n;
    heads.stride = kMaxHeads;
    const int one = kHeadSlots * (extent.tile_n + kMaxHeads);
    heads.values = head_memory + thread_row * one;
    head_means = heads.values + kHeadSlots * extent.tile_n;
    heads.means = head_means;
  }

  for (int i = thread_row; i < kTileM; i += kApplyRows) {
    at.row = tile_row + i;
    at.warp_row = at.row - thread_row % 2;
    if (at.warp_row >= at.rows) break;  // all of the warp, which exchanges values
    for_each_port(program, [&](const auto& port) {
      lifecycle.begin_tile(port);
      lifecycle.begin_block(port);
    });
    const auto each_patch = [&](const auto& f) {
      CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
        if (patch > 0 && patch * G::kPatchN >= extent.tile_n) break;
        const int col = at.col + patch * G::kPatchN;
        Accumulator acc;
        const bool there = extent.acc != nullptr && at.row < at.rows;
        const float* from = extent.acc + (at.row - extent.first_row) * extent.acc_pitch + col;
        load_row(G(), from, acc, at.lane, there ? at.cols - col : 0);
        const Sm90Tile<Program, G, kPatches> tile(program, at, columns, folds, heads, nullptr, patch, 0, at.row, col,
                                                  nullptr, nullptr);
        f(tile, acc);
      }
    };
    if constexpr (kFirstPass) {
      each_patch([&](const auto& tile, const Accumulator& acc) { program.first(tile, acc); });
      mean_of_heads(heads, head_means, at.lane, head_dim_of(program));
    }
    each_patch([&](const auto& tile, const Accumulator& acc) { program(tile, acc); });
    for_each_port(program, [&](const auto& port) { lifecycle.end_block(port, block_n); });
    if constexpr (kFirstPass) __syncwarp();  // the next row's values come into the same memory
  }

  each_fold([&]<class Op>(const ReduceM<Op>& port, int fold) {
    CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
      if (patch > 0 && patch * G::kPatchN >= extent.tile_n) break;
      __syncthreads();
      CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) {
        fold_memory[thread_row][G::kColumns * at.lane + i] = folds.v[fold][patch][i];
      }
      __syncthreads();
      const int column = static_cast<int>(threadIdx.x), col = at.col + patch * G::kPatchN + column;
      if (column < G::kPatchN && col < at.cols && port.data) {
        float sum = fold_memory[0][column];
        for (int row = 1; row < kApplyRows; ++row) sum = Op::fold(sum, fold_memory[row][column]);
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
      using T = std::remove_const_t<std::remove_pointer_t<decltype(port.data)>>;
      if constexpr (requires { port.pitch; }) {
        constexpr std::int64_t kAlign = Port::width == Width::Half ? kRunBytes<T, Port::width> : 16;
        aligned = aligned && is_aligned(port.data, rows, port.pitch * static_cast<std::int64_t>(sizeof(T)), kAlign);
      } else {
        aligned = aligned && is_aligned(port.data, 1, 0, vector_bytes);
      }
    } else if constexpr (requires { port.data, port.index, port.rows; }) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(port.data)>>;
      aligned = aligned && is_aligned(port.data, 2, port.pitch * static_cast<std::int64_t>(sizeof(T)), 16);
    }
  });
  return aligned;
}

template <class Program>
std::int64_t tile_n_for(const Call& call, const Program& program) {
  const int head_dim = head_dim_of(program);
  if (!kHasHeadMeans<Program>) return kTileN;
  if (head_dim < 2 || head_dim > kMaxTileN) {
    call.fail(Status::unsupported,
              "head_dim: expected 2 to " + std::to_string(kMaxTileN) + ", got " + std::to_string(head_dim));
  }
  return tile_n_for_heads(head_dim);
}

/// Rows [first, last) of the program's matrices.
template <class Program>
void launch_apply(const Call& call, const Program& program, std::int64_t first, std::int64_t last, const float* acc,
                  cudaStream_t stream) {
  const std::int64_t tile_n = tile_n_for(call, program);
  const Extent extent{
      static_cast<int>(first), static_cast<int>(last), static_cast<int>(call.n), static_cast<int>(tile_n), acc, call.n};
  const bool ragged = call.n % 8 != 0 || tile_n % 8 != 0 || tile_n > kTileN || !heads_divide<Run<false>>(program) ||
                      !ports_aligned(program, call.m);
  const std::int64_t blocks = (last - first + kTileM - 1) / kTileM * ((call.n + tile_n - 1) / tile_n);
  if (blocks > std::numeric_limits<int>::max()) {
    call.fail(Status::unsupported, "M, N: expected at most " + std::to_string(std::numeric_limits<int>::max()) +
                                       " tiles, got " + std::to_string(blocks));
  }
  const std::size_t shared =
      kHasHeadMeans<Program> ? static_cast<std::size_t>(kApplyRows * kHeadSlots * (tile_n + kMaxHeads)) * 4 : 0;
  const auto start = [&](auto kernel) {
    if constexpr (kHasHeadMeans<Program>) {
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), call,
            "cudaFuncSetAttribute");
    }
    kernel<<<static_cast<unsigned>(blocks), kApplyThreads, shared, stream>>>(program, extent);
    check(cudaGetLastError(), call, "kernel launch");
  };
  ragged ? start(apply_kernel<Program, true>) : start(apply_kernel<Program, false>);
}

/// M and N fit the device code's 32-bit rows and columns.
inline void check_extent(const Call& call) {
  constexpr std::int64_t kMax = std::numeric_limits<int>::max() - 256;  // a tile past the end is still an int
  if (call.m > kMax || call.n > kMax || call.k > kMax) {
    call.fail(Status::unsupported, "M, N, K: expected at most " + std::to_string(kMax));
  }
}

}  // namespace detail

/// Runs a program with no product on an M x N tile space: its accumulator is 0, what it works on comes through its
/// ports. Any M, N and alignment. Enqueues one kernel on `stream`.
template <Program P>
void apply(std::int64_t m, std::int64_t n, const P& program, cudaStream_t stream = nullptr, const char* op = "apply") {
  const detail::Call call{op, m, n, 0, Layout::nt};
  if (m == 0 || n == 0) return;
  detail::check_extent(call);
  detail::current_device(call);
  detail::launch_apply(call, program, 0, m, nullptr, stream);
}

}  // namespace coda::sm90
