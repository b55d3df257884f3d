// The gradient of an embedding table: rows are sorted by their token, and warps add up the rows of each token.
#include <bit>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_scan.cuh>
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
using detail::launchable;

/// A row's token above its number: to sort one word takes two thirds of the time that a key and a value take.
using TokenRow = std::uint64_t;
CODA_KERNEL_FN std::uint32_t token_of(TokenRow x) { return static_cast<std::uint32_t>(x >> 32); }
CODA_KERNEL_FN std::uint32_t row_of(TokenRow x) { return static_cast<std::uint32_t>(x); }

/// A token, or `vocabulary`, which sorts behind all, in place of what is none.
CODA_KERNEL_FN std::uint32_t sorted_token(std::int64_t t, std::uint32_t vocabulary) {
  return t >= 0 && t < vocabulary ? static_cast<std::uint32_t>(t) : vocabulary;
}

__global__ void __launch_bounds__(kThreads)
    token_row_kernel(IndexVector token, std::uint32_t rows, std::uint32_t vocabulary, TokenRow* unsorted) {
  detail::wait_for_turn();
  const std::uint32_t m = blockIdx.x * kThreads + threadIdx.x;
  if (m < rows) unsorted[m] = TokenRow{sorted_token(token[m], vocabulary)} << 32 | m;
}

/// Few rows are sorted by one kernel, each block of which reads all tokens and sorts those of its own bucket, as words
/// of a token and its row. Any order of the tokens will do, so buckets go by their lowest bits, which spread better
/// than the highest.
struct BucketSort {
  static constexpr int kThreads = 512, kItems = 32;
  static constexpr int kBucketBits = 7, kRowBits = 14;
  static constexpr std::uint32_t kBuckets = 1u << kBucketBits, kMostRows = kThreads * kItems;
  static_assert(kMostRows == 1u << kRowBits);

  /// Words that are sorted by comparing each with all; more are sorted digit by digit, so many by a thread.
  static constexpr std::uint32_t kFew = 256;
  static constexpr int kSome = 4;
  template <int Items>
  using Sort = cub::BlockRadixSort<std::uint32_t, kThreads, Items, cub::NullType, 4, false>;
  using Scan = cub::BlockScan<std::uint32_t, kThreads>;
  union Shared {
    std::uint32_t words[kMostRows + kThreads];
    typename Sort<kSome>::TempStorage some;
    typename Sort<kItems>::TempStorage many;
    typename Scan::TempStorage scan;
  };

  std::uint32_t vocabulary;
  int last_bit = kRowBits + std::bit_width(vocabulary / kBuckets);

  /// Whether words hold a row and what is left of its token without the bucket.
  static bool fits(std::uint32_t rows, std::uint32_t vocabulary) {
    return rows <= kMostRows && BucketSort{vocabulary}.last_bit <= 32;
  }
  /// Where a bucket's word is in shared memory: each thread's are in other banks.
  static CODA_KERNEL_FN std::uint32_t place(std::uint32_t i) { return i + i / kItems; }
  /// What is no token is in the last bucket, where its number is behind all that is one.
  CODA_KERNEL_FN std::uint32_t bucket_of(std::uint32_t token) const {
    return token == vocabulary ? kBuckets - 1 : token % kBuckets;
  }
  CODA_KERNEL_FN std::uint32_t word(std::uint32_t token, std::uint32_t row) const {
    return token / kBuckets << kRowBits | row;
  }
  /// Goes over every 32nd row from `first` on, those of a lane. Lane i gets the mask of the warp's i-th 32 rows that
  /// are in this block's bucket. Returns numbers to be added up: in the lower half of a word how many of the warp's
  /// rows are in this bucket (the first lane has it), in the upper half how many of the lane's are in those below it.
  template <class Index>
  CODA_KERNEL_FN std::uint32_t count(const Index* token, std::uint32_t first, std::uint32_t rows,
                                     unsigned& mask) const {
    constexpr int kAtOnce = 16;
    std::uint32_t mine = 0, below = 0;
#pragma unroll 1
    for (int from = 0; from < kItems; from += kAtOnce) {
      Index t[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) t[i] = token[min(first + (from + i) * 32, rows - 1)];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const std::uint32_t bucket = bucket_of(sorted_token(t[i], vocabulary));
        const bool there = first + (from + i) * 32 < rows;
        const unsigned ballot = __ballot_sync(kAll, there && bucket == blockIdx.x);
        if (threadIdx.x % 32 == from + i) mask = ballot;
        mine += __popc(ballot);
        below += there && bucket < blockIdx.x;
      }
    }
    return below << 16 | (threadIdx.x % 32 == 0 ? mine : 0);
  }
  /// Sorts the first `count` words, whose rows are in order already.
  template <int Items, class Storage>
  CODA_KERNEL_FN void sort_digits(Shared& shared, Storage& storage, std::uint32_t count, TokenRow* sorted) const {
    std::uint32_t words[Items];
#pragma unroll
    for (std::uint32_t i = 0; i < Items; ++i) {
      const std::uint32_t j = threadIdx.x * Items + i;
      words[i] = j < count ? shared.words[place(j)] : UINT32_MAX;
    }
    __syncthreads();
    Sort<Items>(storage).SortBlockedToStriped(words, kRowBits, last_bit);
#pragma unroll
    for (std::uint32_t i = 0; i < Items; ++i) {
      const std::uint32_t j = threadIdx.x + i * kThreads;
      if (j < count) sorted[j] = token_row(words[i]);
    }
  }
  CODA_KERNEL_FN TokenRow token_row(std::uint32_t word) const {
    const std::uint32_t token = min(word >> kRowBits << kBucketBits | blockIdx.x, vocabulary);
    return TokenRow{token} << 32 | word % kMostRows;
  }
};

__global__ void __launch_bounds__(BucketSort::kThreads)
    bucket_sort_kernel(const BucketSort sort, IndexVector token, std::uint32_t rows, TokenRow* sorted) {
  detail::wait_for_turn();
  using S = BucketSort;
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<S::Shared*>(memory);
  const std::uint32_t thread = threadIdx.x, lane = thread % 32, first = thread / 32 * 32 * S::kItems + lane;
  static_assert(2 * S::kMostRows <= 1u << 16 && S::kItems == 32);
  unsigned mask = 0;
  const std::uint32_t count = token.wide ? sort.count(static_cast<const std::int64_t*>(token.data), first, rows, mask)
                                         : sort.count(static_cast<const std::int32_t*>(token.data), first, rows, mask);
  std::uint32_t before, all;
  S::Scan(shared.scan).ExclusiveSum(count, before, all);
  before = __shfl_sync(kAll, before, 0) % (1u << 16);
  const std::uint32_t mine = all % (1u << 16), below = all >> 16;
  __syncthreads();
#pragma unroll 4
  for (int i = 0; i < S::kItems; ++i) {
    const unsigned of_bucket = __shfl_sync(kAll, mask, i);
    if (of_bucket >> lane & 1) {
      const std::uint32_t m = first + i * 32;
      shared.words[S::place(before + __popc(of_bucket & ((1u << lane) - 1)))] =
          sort.word(sorted_token(token[m], sort.vocabulary), m);
    }
    before += __popc(of_bucket);
  }
  __syncthreads();
  if (mine <= S::kFew) {
    if (thread >= mine) return;
    const std::uint32_t word = shared.words[S::place(thread)];
    std::uint32_t smaller = 0;
#pragma unroll 16
    for (std::uint32_t i = 0; i < mine; ++i) smaller += shared.words[S::place(i)] < word;
    sorted[below + smaller] = sort.token_row(word);
  } else if (mine <= S::kSome * S::kThreads) {
    sort.sort_digits<S::kSome>(shared, shared.some, mine, sorted + below);
  } else {
    sort.sort_digits<S::kItems>(shared, shared.many, mine, sorted + below);
  }
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

  const bool few = BucketSort::fits(rows, vocabulary);
  std::size_t sort_bytes = 0;
  const auto sort = [&](void* memory, const TokenRow* unsorted, TokenRow* sorted) {
    const int last_bit = 32 + std::bit_width(vocabulary);
    cudaGetLastError();  // CUB would take an error that somebody left behind for its own
    launch.check(cub::DeviceRadixSort::SortKeys(memory, sort_bytes, unsorted, sorted, static_cast<int>(rows), 32,
                                                last_bit, launch.stream),
                 "cub::DeviceRadixSort::SortKeys");
  };
  if (!few) sort(nullptr, nullptr, nullptr);
  const std::size_t part = padded(rows * sizeof(TokenRow));
  const std::int64_t chunks = detail::ceil_div(rows, kChunkPlaces);
  const std::size_t partial_bytes = padded(static_cast<std::size_t>(2 * chunks * dx.cols) * sizeof(float));
  const Workspace memory(partial_bytes + 2 * part + sort_bytes, stream, op);
  char* behind = memory.as<char>() + partial_bytes;
  auto* const unsorted = reinterpret_cast<TokenRow*>(behind);
  auto* const sorted = reinterpret_cast<TokenRow*>(behind + part);
  if (few) {
    constexpr std::size_t kShared = sizeof(BucketSort::Shared);
    static detail::OncePerDevice once;
    once(launch.device, [&] {
      launch.check(cudaFuncSetAttribute(bucket_sort_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
                   "cudaFuncSetAttribute");
    });
    launch(launchable<bucket_sort_kernel>, {BucketSort::kBuckets, BucketSort::kThreads, 1, kShared},
           BucketSort{vocabulary}, tokens, rows, sorted);
  } else {
    launch(launchable<token_row_kernel>, detail::ceil_div(rows, kThreads), tokens, rows, vocabulary, unsorted);
    sort(behind + 2 * part, unsorted, sorted);
  }

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
    launch(whole ? launchable<add_kernel<T, true>> : launchable<add_kernel<T, false>>,
           detail::ceil_div(grid.count(), kThreads / 32), gradient, grid);
    launch(whole ? launchable<join_kernel<T, true>> : launchable<join_kernel<T, false>>,
           detail::ceil_div(join_grid.count(), kThreads / 32), gradient, join_grid);
  });
}

}  // namespace coda::sm90
