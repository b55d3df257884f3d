// The gradient of an embedding table: rows are sorted by their token, and a warp adds up the rows of each token.
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

/// A warp has kWarpColumns columns of the rows of one token: of the warps at these columns, one for each place in the
/// sorted order, the one at the token's first place adds them all, in the order of the rows since the sort is stable.
constexpr int kColumns = 4, kUnits = 4, kWarpColumns = 32 * kColumns * kUnits;

template <class T, bool Whole>
__global__ void __launch_bounds__(kThreads, 3)
    add_kernel(const T* dx, std::int64_t dx_pitch, const std::uint32_t* key, const std::uint32_t* row,
               std::uint32_t rows, std::uint32_t vocabulary, float* table, std::int64_t table_pitch, std::int64_t cols,
               ChunkGrid grid) {
  constexpr int C = kColumns, kRows = Whole ? 8 / sizeof(T) : 1;  // as many as there are registers for
  using Batch = RowBatch<kRows>;
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (!grid.has(warp)) return;
  const ChunkGrid::Place at = grid.place<kWarpColumns>(warp);
  std::uint32_t place = static_cast<std::uint32_t>(at.row);
  const std::uint32_t token = key[place];
  Batch now(key, row, place, rows, token);
  if (token == vocabulary || (place > 0 && key[place - 1] == token)) return;
  const std::int64_t col = at.col + threadIdx.x % 32 * C, left = cols - col;
  const auto has = [&](int unit) { return unit * 32 * C < left; };
  const auto count = [&](int unit) { return Whole ? C : left - unit * 32 * C; };
  float* out = table + token * table_pitch + col;
  Chunk<float, C> sum[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) {
    if (has(i)) sum[i].template load<Whole>(out + i * 32 * C, count(i));
  }
  for (;;) {
    Chunk<T, C> x[kRows][kUnits];
#pragma unroll
    for (int u = 0; u < kRows; ++u) {
      if (!now.there[u]) continue;
      const T* from = dx + now.row[u] * dx_pitch + col;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        if (has(i)) x[u][i].template load<Whole>(from + i * 32 * C, count(i));
      }
    }
    place += kRows;
    const bool more = now.there[kRows - 1];
    const Batch next(key, row, place, rows, token);  // on the way while rows are added
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
    if (has(i)) sum[i].template store<Whole>(out + i * 32 * C, count(i));
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
  const Workspace memory(4 * part + sort_bytes, stream, op);
  const auto words = [&](std::size_t i) { return reinterpret_cast<Word*>(memory.as<char>() + i * part); };
  launch(key_kernel, detail::ceil_div(rows, kThreads), tokens, rows, vocabulary, words(0), words(1));
  sort(words(4), words(0), words(2), words(1), words(3));

  detail::with_type(launch, "dx", dx.dtype, [&](auto type) {
    using T = decltype(type);
    const ChunkGrid grid(dx.rows, dx.cols, kWarpColumns);
    const bool whole = has_whole_chunks(dx, kColumns) && has_whole_chunks(dtable, kColumns);
    launch(whole ? add_kernel<T, true> : add_kernel<T, false>, detail::ceil_div(grid.count(), kThreads / 32),
           static_cast<const T*>(dx.data), dx.pitch, words(2), words(3), rows, vocabulary,
           static_cast<float*>(dtable.data), dtable.pitch, dx.cols, grid);
  });
}

}  // namespace coda::sm90
