// The gradient of an embedding table: rows are sorted by their token, and warps add up the rows of each token.
#include <bit>
#include <cub/device/device_radix_sort.cuh>

#include "coda/backend/sm90/kernels.cuh"
#include "coda/backend/sm90/kernels.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/epilogue/ports.h"

namespace coda::sm90 {
namespace {

using detail::Chunk;
using detail::ChunkGrid;
using detail::has_whole_chunks;
using detail::kAll;
using detail::kThreads;
using detail::Launch;

/// A row's token above its number: to sort one word takes two thirds of the time that a key and a value take.
using TokenRow = std::uint64_t;
CODA_KERNEL_FN std::uint32_t token_of(TokenRow x) { return static_cast<std::uint32_t>(x >> 32); }
CODA_KERNEL_FN std::uint32_t row_of(TokenRow x) { return static_cast<std::uint32_t>(x); }

/// The token of each row, or `vocabulary`, which sorts behind all, where it is none.
__global__ void __launch_bounds__(kThreads)
    token_row_kernel(IndexVector token, std::uint32_t rows, std::uint32_t vocabulary, TokenRow* unsorted) {
  detail::wait_for_turn();
  const std::uint32_t m = blockIdx.x * kThreads + threadIdx.x;
  if (m >= rows) return;
  const std::int64_t t = token[m];
  unsorted[m] = TokenRow{t >= 0 && t < vocabulary ? static_cast<std::uint32_t>(t) : vocabulary} << 32 | m;
}

/// Columns of a lane, which lie kUnitColumns apart; of a warp that adds up rows, and of one that joins partial sums.
constexpr int kColumns = 4, kUnits = 2, kUnitColumns = 32 * kColumns, kWarpColumns = kUnits * kUnitColumns;
/// Places of the sorted order that one warp adds up: one for each lane. Some tokens have a good part of all rows: one
/// whose places lie in several chunks has a partial sum for each.
constexpr std::uint32_t kChunkPlaces = 32;
/// Chunks of a warp that joins them.
constexpr std::uint32_t kJoinedChunks = 8;

template <class T>
struct EmbeddingGradient {
  const T* dx;
  std::int64_t dx_pitch;
  const TokenRow* sorted;
  std::uint32_t rows, vocabulary;
  float* table;
  std::int64_t table_pitch, cols;
  float* partial;  // two rows for each chunk: of the token that comes from the chunk before, and of that which goes on

  CODA_KERNEL_FN float* partial_row(std::uint32_t chunk, bool goes_on) const {
    return partial + (2 * static_cast<std::int64_t>(chunk) + goes_on) * cols;
  }
  CODA_KERNEL_FN std::uint32_t token_at(std::uint32_t i) const { return token_of(sorted[i]); }
  CODA_KERNEL_FN bool same_token(std::uint32_t i, std::uint32_t other) const {
    return other < rows && token_at(i) == token_at(other);
  }
};

/// A warp for each chunk and kWarpColumns columns walks over the chunk's places. Where a token's last row was added it
/// adds the sum to the table; that of a token which began before, or goes on behind, is partial.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads, 4) add_kernel(const EmbeddingGradient<T> gradient, const ChunkGrid grid) {
  detail::wait_for_turn();
  constexpr int C = kColumns, kRows = 2;  // rows that have their loads on the way together
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (!grid.has(warp)) return;
  const ChunkGrid::Place at = grid.place<kWarpColumns>(warp);
  const auto chunk = static_cast<std::uint32_t>(at.row), first = chunk * kChunkPlaces, lane = threadIdx.x % 32;
  const std::uint32_t place = min(first + lane, gradient.rows - 1);
  const std::uint32_t token = token_of(gradient.sorted[place]), row = row_of(gradient.sorted[place]);
  const bool there = first + lane < gradient.rows && token != gradient.vocabulary;
  const unsigned ends = __ballot_sync(kAll, !gradient.same_token(place, place + 1));
  const int count = __popc(__ballot_sync(kAll, there));  // rows without a token are behind all others
  bool begun = first > 0 && gradient.same_token(first, first - 1);
  const std::int64_t col = at.col + lane * C, left = gradient.cols - col;
  const auto each_unit = [&](const auto& f) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      if (i * kUnitColumns < left) f(i, i * kUnitColumns, Whole ? C : left - i * kUnitColumns);
    }
  };
  Chunk<float, C> sum[kUnits] = {};
  for (int from = 0; from < count; from += kRows) {
    Chunk<T, C> x[kRows][kUnits] = {};
    Chunk<float, C> table[kRows][kUnits] = {};
    float* out[kRows];
    bool writes[kRows];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const int i = from + u;
      const auto dx_row = static_cast<std::int64_t>(__shfl_sync(kAll, row, i));
      const auto table_row = static_cast<std::int64_t>(__shfl_sync(kAll, token, i));
      const bool ends_here = i < count && (ends >> i & 1), goes_on = i == kChunkPlaces - 1 && i < count && !ends_here;
      const bool partial = goes_on || (ends_here && begun);
      writes[u] = ends_here || goes_on;
      out[u] =
          col + (partial ? gradient.partial_row(chunk, !begun) : gradient.table + table_row * gradient.table_pitch);
      if (i < count) {
        const T* dx = gradient.dx + dx_row * gradient.dx_pitch + col;
        each_unit([&](int unit, int step, std::int64_t n) { x[u][unit].template load<Whole>(dx + step, n); });
      }
      if (writes[u] && !partial) {
        each_unit([&](int unit, int step, std::int64_t n) { table[u][unit].template load<Whole>(out[u] + step, n); });
      }
      begun = begun && !ends_here;
    }
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
#pragma unroll
        for (int c = 0; c < C; ++c) sum[unit].v[c] += static_cast<float>(x[u][unit].v[c]);
      }
      if (!writes[u]) continue;
      each_unit([&](int unit, int step, std::int64_t n) {
#pragma unroll
        for (int c = 0; c < C; ++c) table[u][unit].v[c] += sum[unit].v[c];
        table[u][unit].template store<Whole>(out[u] + step, n);
        sum[unit] = {};
      });
    }
  }
}

/// A warp for each kJoinedChunks chunks and kUnitColumns columns: of the tokens that begin in one of them and go on
/// behind it, it adds the partial sums, in the order of the chunks. A warp for each chunk would mostly find nothing to
/// do, and starting a thread block costs more than looking.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads) join_kernel(const EmbeddingGradient<T> gradient, const ChunkGrid grid) {
  detail::wait_for_turn();
  constexpr int C = kColumns, kSums = 16;  // partial sums that are on the way together
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (!grid.has(warp)) return;
  const ChunkGrid::Place at = grid.place<kUnitColumns>(warp);
  const auto lane = threadIdx.x % 32, mine = static_cast<std::uint32_t>(at.row) * kJoinedChunks + lane;
  const std::int64_t col = at.col + lane * C, left = gradient.cols - col;
  const std::uint64_t next_place = std::uint64_t{mine + 1} * kChunkPlaces;
  bool begins = false;
  if (lane < kJoinedChunks && next_place < gradient.rows) {
    const auto next = static_cast<std::uint32_t>(next_place), first = next - kChunkPlaces;
    begins = gradient.same_token(next - 1, next) && gradient.token_at(next) != gradient.vocabulary &&
             (first == 0 || !gradient.same_token(next, first - 1));
  }
  for (unsigned tokens = __ballot_sync(kAll, begins); tokens != 0; tokens &= tokens - 1) {
    const std::uint32_t chunk =
        static_cast<std::uint32_t>(at.row) * kJoinedChunks + __ffs(static_cast<int>(tokens)) - 1;
    const std::uint32_t token = gradient.token_at((chunk + 1) * kChunkPlaces);
    Chunk<float, C> sum = {}, table = {};
    float* out = gradient.table + token * gradient.table_pitch + col;
    if (left > 0) {
      table.template load<Whole>(out, left);
      sum.template load<Whole>(gradient.partial_row(chunk, true) + col, left);
    }
    // The chunks behind it at whose first place the token still is, 32 at a time.
    for (std::uint32_t behind = chunk + 1, count = 32; count == 32; behind += 32) {
      const std::uint64_t first = std::uint64_t{behind + lane} * kChunkPlaces;
      count = __popc(
          __ballot_sync(kAll, first < gradient.rows && gradient.token_at(static_cast<std::uint32_t>(first)) == token));
      for (std::uint32_t from = 0; from < count; from += kSums) {
        Chunk<float, C> more[kSums] = {};
#pragma unroll
        for (std::uint32_t u = 0; u < kSums; ++u) {
          if (from + u >= count || left <= 0) continue;
          more[u].template load<Whole>(gradient.partial_row(behind + from + u, false) + col, left);
        }
#pragma unroll
        for (std::uint32_t u = 0; u < kSums; ++u) {
#pragma unroll
          for (int c = 0; c < C; ++c) sum.v[c] += more[u].v[c];
        }
      }
    }
    if (left <= 0) continue;
#pragma unroll
    for (int c = 0; c < C; ++c) table.v[c] += sum.v[c];
    table.template store<Whole>(out, left);
  }
}

/// Parts of one workspace, each 256-byte aligned.
constexpr std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

void embedding_backward(const char* op, const ConstMatrix& dx, const ConstVector& token, const Matrix& dtable,
                        void* stream) {
  const Launch launch(op, dx.rows, dx.cols, stream);
  detail::require_fp32(launch, "dtable", dtable.dtype);
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (dx.rows >= kMost) launch.refuse("dx: expected less than 2^31 rows, got " + std::to_string(dx.rows));
  if (dtable.rows >= kMost) launch.refuse("dtable: expected less than 2^31 rows, got " + std::to_string(dtable.rows));
  if (dx.rows <= 0 || dx.cols <= 0 || dtable.rows <= 0) return;
  const auto rows = static_cast<std::uint32_t>(dx.rows), vocabulary = static_cast<std::uint32_t>(dtable.rows);
  IndexVector tokens(static_cast<const std::int32_t*>(token.data));
  tokens.wide = token.dtype == DType::int64;

  std::size_t sort_bytes = 0;
  const auto sort = [&](void* memory, const TokenRow* unsorted, TokenRow* sorted) {
    const int last_bit = 32 + std::bit_width(vocabulary);
    cudaGetLastError();  // CUB would take an error that somebody left behind for its own
    launch.check(cub::DeviceRadixSort::SortKeys(memory, sort_bytes, unsorted, sorted, static_cast<int>(rows), 32,
                                                last_bit, launch.stream),
                 "cub::DeviceRadixSort::SortKeys");
  };
  sort(nullptr, nullptr, nullptr);
  const std::size_t part = padded(rows * sizeof(TokenRow));
  const std::int64_t chunks = detail::ceil_div(rows, kChunkPlaces);
  const std::size_t partial_bytes = padded(static_cast<std::size_t>(2 * chunks * dx.cols) * sizeof(float));
  const Workspace memory(partial_bytes + 2 * part + sort_bytes, stream, op);
  char* behind = memory.as<char>() + partial_bytes;
  auto* const unsorted = reinterpret_cast<TokenRow*>(behind);
  auto* const sorted = reinterpret_cast<TokenRow*>(behind + part);
  launch(token_row_kernel, detail::ceil_div(rows, kThreads), tokens, rows, vocabulary, unsorted);
  sort(behind + 2 * part, unsorted, sorted);

  detail::with_type(launch, "dx", dx.dtype, [&](auto type) {
    using T = decltype(type);
    const ChunkGrid grid(chunks, dx.cols, kWarpColumns),
        join_grid(detail::ceil_div(chunks, kJoinedChunks), dx.cols, kUnitColumns);
    const EmbeddingGradient<T> gradient{.dx = static_cast<const T*>(dx.data),
                                        .dx_pitch = dx.pitch,
                                        .sorted = sorted,
                                        .rows = rows,
                                        .vocabulary = vocabulary,
                                        .table = static_cast<float*>(dtable.data),
                                        .table_pitch = dtable.pitch,
                                        .cols = dx.cols,
                                        .partial = memory.as<float>()};
    const bool whole = has_whole_chunks(dx, kColumns) && has_whole_chunks(dtable, kColumns);
    launch(whole ? add_kernel<T, true> : add_kernel<T, false>, detail::ceil_div(grid.count(), kThreads / 32), gradient,
           grid);
    launch(whole ? join_kernel<T, true> : join_kernel<T, false>, detail::ceil_div(join_grid.count(), kThreads / 32),
           gradient, join_grid);
  });
}

}  // namespace coda::sm90
