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
using detail::kThreads;
using detail::Launch;

/// The token of each row, or `vocabulary`, which sorts behind all, where it is none.
__global__ void __launch_bounds__(kThreads) key_kernel(IndexVector token, std::uint32_t rows, std::uint32_t vocabulary,
                                                       std::uint32_t* key, std::uint32_t* row) {
  const std::uint32_t m = blockIdx.x * kThreads + threadIdx.x;
  if (m >= rows) return;
  const std::int64_t t = token[m];
  key[m] = t >= 0 && t < vocabulary ? static_cast<std::uint32_t>(t) : vocabulary;
  row[m] = m;
}

/// Rows of one token that follow each other in the sorted order.
template <int kRows>
struct RowBatch {
  std::uint32_t row[kRows];
  bool there[kRows];

  CODA_KERNEL_FN RowBatch(const std::uint32_t* keys, const std::uint32_t* order, std::uint32_t place,
                          std::uint32_t rows, std::uint32_t token) {
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      const std::uint32_t p = min(place + u, rows - 1);
      row[u] = order[p];
      there[u] = place + u < rows && keys[p] == token;
    }
  }
};

/// A warp's columns: units of 32 lanes with kColumns each.
constexpr int kColumns = 4, kUnits = 4, kUnitColumns = 32 * kColumns, kWarpColumns = kUnits * kUnitColumns;
/// Places of the sorted order that one warp adds up at most: some tokens have a good part of all rows. A token whose
/// places lie in several such chunks has a partial sum for each.
constexpr std::uint32_t kChunkPlaces = 128;

template <class T>
struct EmbeddingGradient {
  const T* dx;
  std::int64_t dx_pitch;
  const std::uint32_t *key, *row;  // in sorted order
  std::uint32_t rows, vocabulary;
  float* table;
  std::int64_t table_pitch, cols;
  float* partial;  // two rows for each chunk: of the token that comes from the chunk before, and of that which goes on

  CODA_KERNEL_FN float* partial_row(std::uint32_t chunk, bool goes_on) const {
    return partial + (2 * static_cast<std::int64_t>(chunk) + goes_on) * cols;
  }
  CODA_KERNEL_FN bool same_token(std::uint32_t place, std::uint32_t other) const {
    return other < rows && key[place] == key[other];
  }
};

/// A warp for each place and kWarpColumns columns. That at a token's first place in a chunk adds all of the token's
/// rows in the chunk, in their order since the sort is stable.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads, 4) add_kernel(const EmbeddingGradient<T> gradient, const ChunkGrid grid) {
  constexpr int C = kColumns, kRows = Whole ? 4 / sizeof(T) : 1;  // as many as there are registers for
  using Batch = RowBatch<kRows>;
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (!grid.has(warp)) return;
  const ChunkGrid::Place at = grid.place<kWarpColumns>(warp);
  auto place = static_cast<std::uint32_t>(at.row);
  const std::uint32_t token = gradient.key[place], chunk = place / kChunkPlaces;
  const std::uint32_t end = min((chunk + 1) * kChunkPlaces, gradient.rows);
  Batch now(gradient.key, gradient.row, place, end, token);
  const bool begun = place > 0 && gradient.same_token(place, place - 1), goes_on = gradient.same_token(place, end);
  if (token == gradient.vocabulary || (begun && place % kChunkPlaces != 0)) return;
  const std::int64_t col = at.col + threadIdx.x % 32 * C, left = gradient.cols - col;
  const auto has = [&](int unit) { return unit * kUnitColumns < left; };
  const auto count = [&](int unit) { return Whole ? C : left - unit * kUnitColumns; };
  const bool alone = !begun && !goes_on;
  float* out = col + (alone ? gradient.table + token * gradient.table_pitch : gradient.partial_row(chunk, !begun));
  Chunk<float, C> sum[kUnits] = {};
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    if (alone && has(i)) sum[i].template load<Whole>(out + i * kUnitColumns, count(i));
  }
  for (;;) {
    Chunk<T, C> x[kRows][kUnits];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (!now.there[u]) continue;
      const T* from = gradient.dx + now.row[u] * gradient.dx_pitch + col;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        if (has(i)) x[u][i].template load<Whole>(from + i * kUnitColumns, count(i));
      }
    }
    place += kRows;
    const bool more = now.there[kRows - 1];
    const Batch next(gradient.key, gradient.row, place, end, token);  // on the way while rows are added
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (!now.there[u]) continue;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
#pragma unroll
        for (int c = 0; c < C; ++c) sum[i].v[c] += static_cast<float>(x[u][i].v[c]);
      }
    }
    if (!more) break;
    now = next;
  }
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    if (has(i)) sum[i].template store<Whole>(out + i * kUnitColumns, count(i));
  }
}

/// A warp for each chunk and kWarpColumns columns adds the partial sums of the token that begins in the chunk and goes
/// on behind it, in the order of the chunks.
template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads) join_kernel(const EmbeddingGradient<T> gradient, const ChunkGrid grid) {
  constexpr int C = kColumns;
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (!grid.has(warp)) return;
  const ChunkGrid::Place at = grid.place<kWarpColumns>(warp);
  const auto chunk = static_cast<std::uint32_t>(at.row);
  const std::uint32_t first = chunk * kChunkPlaces, last = first + kChunkPlaces - 1;
  if (!gradient.same_token(last, last + 1)) return;
  const std::uint32_t token = gradient.key[last];
  if (token == gradient.vocabulary || (first > 0 && gradient.key[first - 1] == token)) return;
  const std::int64_t col = at.col + threadIdx.x % 32 * C, left = gradient.cols - col;
  float* out = gradient.table + token * gradient.table_pitch + col;
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    const std::int64_t at_unit = i * kUnitColumns, count = Whole ? C : left - at_unit;
    if (at_unit >= left) break;
    Chunk<float, C> sum, more;
    sum.template load<Whole>(out + at_unit, count);
    std::uint32_t other = chunk;
    do {
      more.template load<Whole>(gradient.partial_row(other, other == chunk) + col + at_unit, count);
#pragma unroll
      for (int c = 0; c < C; ++c) sum.v[c] += more.v[c];
      ++other;
    } while (gradient.same_token(last, other * kChunkPlaces));
    sum.template store<Whole>(out + at_unit, count);
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

  using Word = std::uint32_t;
  std::size_t sort_bytes = 0;
  const int bits = std::bit_width(vocabulary);
  const auto sort = [&](void* memory, const Word* keys, Word* sorted_keys, const Word* values, Word* sorted_values) {
    launch.check(cub::DeviceRadixSort::SortPairs(memory, sort_bytes, keys, sorted_keys, values, sorted_values,
                                                 static_cast<int>(rows), 0, bits, launch.stream),
                 "cub::DeviceRadixSort::SortPairs");
  };
  sort(nullptr, nullptr, nullptr, nullptr, nullptr);
  const std::size_t part = padded(rows * sizeof(Word));
  const std::int64_t chunks = detail::ceil_div(rows, kChunkPlaces);
  const std::size_t partial_bytes = padded(static_cast<std::size_t>(2 * chunks * dx.cols) * sizeof(float));
  const Workspace memory(partial_bytes + 4 * part + sort_bytes, stream, op);
  const auto words = [&](std::size_t i) {
    return reinterpret_cast<Word*>(memory.as<char>() + partial_bytes + i * part);
  };
  launch(key_kernel, detail::ceil_div(rows, kThreads), tokens, rows, vocabulary, words(0), words(1));
  sort(words(4), words(0), words(2), words(1), words(3));

  detail::with_type(launch, "dx", dx.dtype, [&](auto type) {
    using T = decltype(type);
    const ChunkGrid grid(dx.rows, dx.cols, kWarpColumns);
    const EmbeddingGradient<T> gradient{.dx = static_cast<const T*>(dx.data),
                                        .dx_pitch = dx.pitch,
                                        .key = words(2),
                                        .row = words(3),
                                        .rows = rows,
                                        .vocabulary = vocabulary,
                                        .table = static_cast<float*>(dtable.data),
                                        .table_pitch = dtable.pitch,
                                        .cols = dx.cols,
                                        .partial = memory.as<float>()};
    const bool whole = has_whole_chunks(dx, kColumns) && has_whole_chunks(dtable, kColumns);
    launch(whole ? add_kernel<T, true> : add_kernel<T, false>, detail::ceil_div(grid.count(), kThreads / 32), gradient,
           grid);
    const ChunkGrid chunk_grid(chunks, dx.cols, kWarpColumns);
    launch(whole ? join_kernel<T, true> : join_kernel<T, false>, detail::ceil_div(chunk_grid.count(), kThreads / 32),
           gradient, chunk_grid);
  });
}

}  // namespace coda::sm90
