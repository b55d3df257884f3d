// Casts, fills, the optimiser's step and norms: kernels that touch each element once, at the speed of a copy.
#include "coda/backend/sm90/kernels.cuh"
#include "coda/backend/sm90/kernels.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/epilogue/adamw.h"
#include "coda/epilogue/ports.h"

namespace coda::sm90 {
namespace {

using detail::Chunk;
using detail::ChunkGrid;
using detail::is_aligned;
using detail::kThreads;
using detail::Launch;
using detail::launchable;
using Place = ChunkGrid::Place;

/// Chunks of 16 bytes of the output if both matrices allow it, else single elements.
template <class In, class Out, int C>
struct Cast {
  static constexpr int kChunk = C, kItems = 4;
  using Item = Chunk<In, C>;
  const In* in;
  Out* out;
  std::int64_t in_pitch, out_pitch;
  float scale;

  CODA_KERNEL_FN void load(const Place& at, Item& x) const {
    x.template load<(C > 1)>(in + at.row * in_pitch + at.col, at.left);
  }
  CODA_KERNEL_FN void store(const Place& at, const Item& x) const {
    Chunk<Out, C> y;
#pragma unroll
    for (int c = 0; c < C; ++c) y.v[c] = Out(scale * static_cast<float>(x.v[c]));
    y.template store<(C > 1)>(out + at.row * out_pitch + at.col, at.left);
  }
};

template <class T, int C>
struct Fill {
  static constexpr int kChunk = C, kItems = 4;
  struct Item {};
  T* out;
  std::int64_t pitch;
  T value;

  CODA_KERNEL_FN void load(const Place&, Item&) const {}
  CODA_KERNEL_FN void store(const Place& at, const Item&) const {
    Chunk<T, C> x;
#pragma unroll
    for (int c = 0; c < C; ++c) x.v[c] = value;
    x.template store<(C > 1)>(out + at.row * pitch + at.col, at.left);
  }
};

/// Chunks of 16 bytes of the losses if all vectors allow it, else single elements.
template <class Index, int C>
struct MaskedDloss {
  static constexpr int kChunk = C, kItems = 2;
  struct Item {
    Chunk<float, C> dloss;
    Chunk<Index, C> target;
  };
  const float* dloss;
  const Index* target;
  std::int64_t ignore_index;
  std::uint64_t vocabulary;
  float* out;

  CODA_KERNEL_FN void load(const Place& at, Item& x) const {
    x.dloss.template load<(C > 1)>(dloss + at.col, at.left);
    x.target.template load<(C > 1)>(target + at.col, at.left);
  }
  CODA_KERNEL_FN void store(const Place& at, const Item& x) const {
    Chunk<float, C> y;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const std::int64_t index = x.target.v[c];
      y.v[c] = index == ignore_index || static_cast<std::uint64_t>(index) >= vocabulary ? 0.f : x.dloss.v[c];
    }
    y.template store<(C > 1)>(out + at.col, at.left);
  }
};

/// Rows that follow each other without a gap in all of them become one long row, whose pitch means nothing.
template <class... M>
void join_rows(M&... x) {
  if (((x.rows <= 1 || x.pitch == x.cols) && ...)) ((x.cols *= x.rows, x.rows = 1), ...);
}

// ---- AdamW

struct AdamwState {
  float *master, *m, *v;
  const double* squared_norm;
  double gradient_scale, clip_norm;
};

/// Elements of a chunk, and chunks of a thread: all loads of a thread are on the way before the first value is used,
/// and each is of 16 bytes of the state, so that a warp's stores leave no sector half written.
constexpr int kAdamwChunk = 4, kAdamwItems = 2;

template <class G, class W, bool Aligned>
__global__ void __launch_bounds__(kThreads, 3)
    adamw_kernel(const AdamwState state, AdamwUpdate<float> update, const G* gradient, W* weight, std::int64_t size) {
  detail::wait_for_turn();
  constexpr int C = kAdamwChunk, kItems = kAdamwItems;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kItems * kThreads + threadIdx.x) * C;
  Chunk<float, C> w[kItems], m[kItems], v[kItems];
  Chunk<G, C> g[kItems];
#pragma unroll
  for (int u = 0; u < kItems; ++u) {
    const std::int64_t at = first + u * kThreads * C, left = size - at;
    g[u].template load<Aligned>(gradient + at, left);
    w[u].template load<Aligned>(state.master + at, left);
    m[u].template load<Aligned>(state.m + at, left);
    v[u].template load<Aligned>(state.v + at, left);
  }
  if (state.squared_norm) {
    const double scale = clipped_gradient_scale(state.gradient_scale, *state.squared_norm, state.clip_norm);
    if (!(scale == scale)) return;
    update.gradient_scale = static_cast<float>(scale);
  }
#pragma unroll
  for (int u = 0; u < kItems; ++u) {
    const std::int64_t at = first + u * kThreads * C, left = size - at;
    Chunk<W, C> copy;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      update(static_cast<float>(g[u].v[c]), w[u].v[c], m[u].v[c], v[u].v[c]);
      copy.v[c] = W(w[u].v[c]);
    }
    w[u].template store<Aligned>(state.master + at, left);
    m[u].template store<Aligned>(state.m + at, left);
    v[u].template store<Aligned>(state.v + at, left);
    if (weight) copy.template store<Aligned>(weight + at, left);
  }
}

// ---- squared norm

/// At most this many blocks, so many partial sums: enough to fill the chip, few enough for one block to add up.
constexpr int kNormBlocks = 1024;

/// The sum of a block's values, in thread 0: lanes first, then warps.
CODA_KERNEL_FN double block_sum(double x) {
  __shared__ double of_warp[32];
  for (int bit = 16; bit > 0; bit /= 2) x += __shfl_xor_sync(detail::kAll, x, bit);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (int w = 0; w < kThreads / 32; ++w) sum += of_warp[w];
  }
  return sum;
}

/// Which thread adds what does not depend on the alignment.
template <class T, bool Aligned>
__global__ void __launch_bounds__(kThreads) partial_norm_kernel(const T* x, std::int64_t size, double* partial) {
  detail::wait_for_turn();
  constexpr int C = 16 / sizeof(T), kUnroll = 4;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads * C;
  double sum = 0;
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * C; i < size;
       i += kUnroll * step) {
    Chunk<T, C> chunk[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int c = 0; c < C; ++c) chunk[u].v[c] = T(0.f);
      if (i + u * step < size) chunk[u].template load<Aligned>(x + i + u * step, size - i - u * step);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const double e = static_cast<double>(static_cast<float>(chunk[u].v[c]));
        sum += e * e;
      }
    }
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads)
    total_norm_kernel(const double* partial, int blocks, double beta, double* out) {
  detail::wait_for_turn();
  double sum = 0;
  for (int i = threadIdx.x; i < blocks; i += kThreads) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *out = (beta == 0 ? 0 : beta * *out) + sum;
}

}  // namespace

void cast(const char* op, const ConstMatrix& from, const Matrix& to, float scale, void* stream) {
  const Launch launch(op, to.rows, to.cols, stream);
  if (to.rows <= 0 || to.cols <= 0) return;
  ConstMatrix in = from;
  Matrix out = to;
  join_rows(in, out);
  detail::with_type(launch, "in", in.dtype, [&](auto in_type) {
    detail::with_type(launch, "out", out.dtype, [&](auto out_type) {
      using In = decltype(in_type);
      using Out = decltype(out_type);
      const auto run = [&]<int C>(std::integral_constant<int, C>) {
        const Cast<In, Out, C> kernel{static_cast<const In*>(in.data), static_cast<Out*>(out.data), in.pitch, out.pitch,
                                      scale};
        detail::launch_elementwise(launch, kernel, out.rows, out.cols);
      };
      // One store of 16 bytes a chunk: lanes that each stored two of them would leave every sector half written.
      constexpr int kStored = 16 / static_cast<int>(sizeof(Out));
      const bool aligned = is_aligned(in, Chunk<In, kStored>::kAlignment) && is_aligned(out, 16);
      aligned ? run(std::integral_constant<int, kStored>()) : run(std::integral_constant<int, 1>());
    });
  });
}

void fill(const char* op, const Matrix& to, double value, void* stream) {
  const Launch launch(op, to.rows, to.cols, stream);
  if (to.rows <= 0 || to.cols <= 0) return;
  Matrix out = to;
  join_rows(out);
  detail::with_type(launch, "out", out.dtype, [&](auto type) {
    using T = decltype(type);
    const auto run = [&]<int C>(std::integral_constant<int, C>) {
      const Fill<T, C> kernel{static_cast<T*>(out.data), out.pitch, T(static_cast<float>(value))};
      detail::launch_elementwise(launch, kernel, out.rows, out.cols);
    };
    constexpr int kStored = 16 / static_cast<int>(sizeof(T));
    is_aligned(out, 16) ? run(std::integral_constant<int, kStored>()) : run(std::integral_constant<int, 1>());
  });
}

void masked_dloss(const char* op, const ConstVector& dloss, const ConstVector& target, std::int64_t ignore_index,
                  std::int64_t vocabulary, const Vector& out, void* stream) {
  const Launch launch(op, out.size, 1, stream);
  if (out.size <= 0) return;
  detail::require_fp32(launch, "dloss", dloss.dtype);
  const auto run = [&]<class Index, int C>(Index, std::integral_constant<int, C>) {
    const MaskedDloss<Index, C> kernel{static_cast<const float*>(dloss.data), static_cast<const Index*>(target.data),
                                       ignore_index, static_cast<std::uint64_t>(vocabulary),
                                       static_cast<float*>(out.data)};
    detail::launch_elementwise(launch, kernel, 1, out.size);
  };
  const bool aligned = is_aligned(dloss.data, 16) && is_aligned(target.data, 16) && is_aligned(out.data, 16);
  const auto run_chunks = [&](auto index) {
    aligned ? run(index, std::integral_constant<int, 4>()) : run(index, std::integral_constant<int, 1>());
  };
  target.dtype == DType::int64 ? run_chunks(std::int64_t()) : run_chunks(std::int32_t());
}

void adamw(const char* op, const AdamwArgs& args, void* stream) {
  const std::int64_t size = args.master.size;
  const Launch launch(op, size, 1, stream);
  if (size <= 0) return;
  for (const Vector* state : {&args.master, &args.m, &args.v}) detail::require_fp32(launch, "master", state->dtype);
  const AdamwState state{static_cast<float*>(args.master.data),
                         static_cast<float*>(args.m.data),
                         static_cast<float*>(args.v.data),
                         static_cast<const double*>(args.squared_norm.data),
                         args.gradient_scale,
                         args.clip_norm};
  const AdamwUpdate<float> update(args.rate, args.beta1, args.beta2, args.eps, args.weight_decay, args.step,
                                  args.gradient_scale);
  bool aligned = true;
  for (const void* p : {args.master.data, args.m.data, args.v.data, args.weight.data}) {
    aligned = aligned && is_aligned(p, 16);
  }
  aligned = aligned && is_aligned(args.gradient.data, 16);
  detail::with_type(launch, "gradient", args.gradient.dtype, [&](auto gradient) {
    detail::with_type(launch, "weight", args.weight.dtype, [&](auto weight) {
      using G = decltype(gradient);
      using W = decltype(weight);
      launch(aligned ? launchable<adamw_kernel<G, W, true>> : launchable<adamw_kernel<G, W, false>>,
             detail::ceil_div(size, kThreads * kAdamwChunk * kAdamwItems), state, update,
             static_cast<const G*>(args.gradient.data), static_cast<W*>(args.weight.data), size);
    });
  });
}

void squared_norm(const char* op, const ConstVector& x, double beta, const Vector& out, void* stream) {
  const Launch launch(op, x.size, 1, stream);
  if (out.dtype != DType::fp64) launch.refuse(std::string("out: expected fp64, got ") + name_of(out.dtype));
  const auto blocks = std::min<std::int64_t>(kNormBlocks, detail::ceil_div(x.size * size_of(x.dtype), kThreads * 16));
  const Workspace partial(static_cast<std::size_t>(blocks) * sizeof(double), stream, op);
  detail::with_type(launch, "x", x.dtype, [&](auto type) {
    using T = decltype(type);
    launch(
        is_aligned(x.data, 16) ? launchable<partial_norm_kernel<T, true>> : launchable<partial_norm_kernel<T, false>>,
        blocks, static_cast<const T*>(x.data), x.size, partial.as<double>());
  });
  launch(launchable<total_norm_kernel>, 1, partial.as<double>(), blocks, beta, static_cast<double*>(out.data));
}

}  // namespace coda::sm90
