// What the small kernels share: launches, chunks of elements that one thread moves, and elementwise kernels.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "coda/backend/sm90/enqueue.cuh"
#include "coda/backend/sm90/launch.cuh"
#include "coda/core/tensor.h"

namespace coda::sm90::detail {

inline constexpr int kThreads = 256;

/// Blocks of a launch; `cluster` of them that follow each other can read each other's shared memory.
struct Grid {
  std::int64_t blocks;
  int threads = kThreads, cluster = 1;
  std::size_t shared_bytes = 0;

  Grid(std::int64_t count) : blocks(count) {}
  Grid(std::int64_t count, int threads_of_block, int blocks_of_cluster, std::size_t dynamic_shared_bytes = 0)
      : blocks(count), threads(threads_of_block), cluster(blocks_of_cluster), shared_bytes(dynamic_shared_bytes) {}
};

/// "op (rows, cols)" with its device checked: what a small kernel is launched as.
struct Launch {
  const char* op;
  std::int64_t rows, cols;
  cudaStream_t stream;
  Device device;

  Launch(const char* operation, std::int64_t r, std::int64_t c, void* s)
      : op(operation),
        rows(r),
        cols(c),
        stream(static_cast<cudaStream_t>(s)),
        device(current_device(Call{op, rows, cols})) {}
  void check(cudaError_t status, const char* function) const {
    if (status != cudaSuccess) throw_device_error(status, text(), function);
  }
  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(Status::unsupported, text() + ": " + message);
  }
  std::string text() const { return std::string(op) + " (" + std::to_string(rows) + ", " + std::to_string(cols) + ")"; }

  template <class... Parameters, class... Arguments>
  void operator()(Launchable<Parameters...>& kernel, const Grid& grid, const Arguments&... arguments) const {
    if (grid.blocks == 0) return;
    if (grid.blocks > INT32_MAX) {
      refuse("expected at most 2147483647 blocks of threads, got " + std::to_string(grid.blocks));
    }
    const Blocks blocks{.count = dim3(static_cast<unsigned>(grid.blocks)),
                        .threads = grid.threads,
                        .of_cluster = dim3(static_cast<unsigned>(grid.cluster)),
                        .shared_bytes = grid.shared_bytes};
    check(kernel.enqueue(stream, device, blocks, static_cast<Parameters>(arguments)...), "cuLaunchKernelEx");
  }
};

inline bool is_aligned(const void* data, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0;
}
/// Whether every row of a matrix begins at a multiple of `bytes`.
inline bool is_aligned(const ConstMatrix& x, std::int64_t bytes) {
  return is_aligned(x.data, bytes) && (x.rows <= 1 || x.pitch * size_of(x.dtype) % bytes == 0);
}
/// Whether its rows are whole chunks of `columns` elements, each at a multiple of 16 bytes or of its own size.
inline bool has_whole_chunks(const ConstMatrix& x, std::int64_t columns) {
  return x.cols % columns == 0 && is_aligned(x, std::min<std::int64_t>(16, columns * size_of(x.dtype)));
}

/// f with a value of the matrix's element type, one of those that the GPU has.
template <class F>
void with_type(const Launch& launch, const char* argument, DType t, const F& f) {
  if (t == DType::bf16) return f(bf16{});
  if (t == DType::fp16) return f(fp16{});
  if (t == DType::fp32) return f(float{});
  launch.refuse(std::string(argument) + ": expected bf16, fp16 or fp32, got " + name_of(t));
}
inline void require_fp32(const Launch& launch, const char* argument, DType t) {
  if (t != DType::fp32) launch.refuse(std::string(argument) + ": expected fp32, got " + name_of(t));
}

#if defined(__CUDACC__)

#define CODA_KERNEL_FN __device__ __forceinline__

inline constexpr unsigned kAll = 0xffffffffu;  // the lanes of a warp

/// C adjacent elements in registers; an aligned chunk moves 16 bytes at a time.
template <class T, int C>
struct alignas(16) Chunk {
  static constexpr int kBytes = C * static_cast<int>(sizeof(T));
  static constexpr int kAlignment = kBytes < 16 ? kBytes : 16;  // that of its address
  T v[C];

  /// count: elements that are there; others are left as they are. Chunks that are not aligned are moved one by one.
  template <bool Aligned>
  CODA_KERNEL_FN void load(const T* p, std::int64_t count) {
    if (Aligned && count >= C) {
      load_words(p);
    } else {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if (c < count) v[c] = p[c];
      }
    }
  }
  template <bool Aligned>
  CODA_KERNEL_FN void store(T* p, std::int64_t count) const {
    if (Aligned && count >= C) {
      store_words(p);
    } else {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if (c < count) p[c] = v[c];
      }
    }
  }

 private:
  static CODA_KERNEL_FN void copy_small(void* to, const void* from) {
    if constexpr (kBytes == 8) *static_cast<uint2*>(to) = *static_cast<const uint2*>(from);
    else if constexpr (kBytes == 4) *static_cast<std::uint32_t*>(to) = *static_cast<const std::uint32_t*>(from);
    else *static_cast<std::uint16_t*>(to) = *static_cast<const std::uint16_t*>(from);
  }
  static_assert(kBytes % 16 == 0 || kBytes == 8 || kBytes == 4 || kBytes == 2);

  CODA_KERNEL_FN void load_words(const T* p) {
    if constexpr (kBytes < 16) {
      copy_small(v, p);
    } else {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) reinterpret_cast<uint4*>(v)[i] = reinterpret_cast<const uint4*>(p)[i];
    }
  }
  CODA_KERNEL_FN void store_words(T* p) const {
    if constexpr (kBytes < 16) {
      copy_small(p, v);
    } else {
#pragma unroll
      for (int i = 0; i < kBytes / 16; ++i) {
        // As an assignment, the compiler would split some of these into four.
        const uint4 word = reinterpret_cast<const uint4*>(v)[i];
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(reinterpret_cast<uint4*>(p) + i), "r"(word.x),
                     "r"(word.y), "r"(word.z), "r"(word.w)
                     : "memory");
      }
    }
  }
};

#endif  // __CUDACC__

/// Chunks of C elements of a (rows, cols) matrix, numbered row by row.
class ChunkGrid {
 public:
  ChunkGrid(std::int64_t rows, std::int64_t cols, int chunk)
      : cols_(cols),
        per_row_(ceil_div(cols, chunk)),
        count_(rows * per_row_),
        inverse_(per_row_ > 1 ? UINT64_MAX / static_cast<std::uint64_t>(per_row_) + 1 : 0) {}
  std::int64_t count() const { return count_; }

#if defined(__CUDACC__)
  struct Place {
    std::int64_t row, col, left;  // left: columns from col on
  };
  CODA_KERNEL_FN bool has(std::int64_t i) const { return i < count_; }
  template <int C>
  CODA_KERNEL_FN Place place(std::int64_t i) const {
    // Division by multiplication with the inverse, which from i * per_row = 2^64 on may be one too many.
    auto row = per_row_ > 1 ? static_cast<std::int64_t>(__umul64hi(static_cast<std::uint64_t>(i), inverse_)) : i;
    std::int64_t chunk = i - row * per_row_;
    if (chunk < 0) --row, chunk += per_row_;
    return {row, chunk * C, cols_ - chunk * C};
  }
#endif

 private:
  std::int64_t cols_, per_row_, count_;
  std::uint64_t inverse_;
};

#if defined(__CUDACC__)

/// Op::kItems chunks a thread, all loaded before the first is stored.
template <class Op>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(const Op op, const ChunkGrid grid) {
  wait_for_turn();
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * Op::kItems) + threadIdx.x;
  typename Op::Item items[Op::kItems];
#pragma unroll
  for (int u = 0; u < Op::kItems; ++u) {
    const std::int64_t i = first + u * kThreads;
    if (grid.has(i)) op.load(grid.template place<Op::kChunk>(i), items[u]);
  }
#pragma unroll
  for (int u = 0; u < Op::kItems; ++u) {
    const std::int64_t i = first + u * kThreads;
    if (grid.has(i)) op.store(grid.template place<Op::kChunk>(i), items[u]);
  }
}
template <class Op>
void launch_elementwise(const Launch& launch, const Op& op, std::int64_t rows, std::int64_t cols) {
  const ChunkGrid grid(rows, cols, Op::kChunk);
  launch(launchable<elementwise_kernel<Op>>, ceil_div(grid.count(), kThreads * Op::kItems), op, grid);
}

#endif  // __CUDACC__

}  // namespace coda::sm90::detail
