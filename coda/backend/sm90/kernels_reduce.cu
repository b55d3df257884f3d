// Reductions of partial results, along rows and along columns. Sums are taken in fp64, as on the CPU: the kernels wait
// for memory, not for arithmetic.
#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/kernels.cuh"
#include "coda/backend/sm90/kernels.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/epilogue/ports.h"

namespace coda::sm90 {
namespace {

using detail::Chunk;
using detail::is_aligned;
using detail::kThreads;
using detail::Launch;

constexpr unsigned kAll = 0xffffffffu;

// ---- along rows

/// One of the N lanes that share a row. All lanes of a warp take part in each shuffle, those without a row too.
template <int N>
struct RowLane {
  static constexpr int kLanes = N, kUnroll = 8;
  int lane;

  CODA_KERNEL_FN double sum(double x) const {
    for (int bit = N / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(kAll, x, bit);
    return x;
  }
  CODA_KERNEL_FN float max(float x) const {
    for (int bit = N / 2; bit > 0; bit /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, bit));
    return x;
  }
  /// use(t, load(t)) for this lane's share of t in [0, count), several loads on the way at a time.
  template <class Load, class Use>
  CODA_KERNEL_FN void each(std::int64_t count, const Load& load, const Use& use) const {
    for (std::int64_t first = lane; first < count; first += kUnroll * N) {
      decltype(load(first)) x[kUnroll] = {};
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * N < count) x[u] = load(first + u * N);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * N < count) use(first + u * N, x[u]);
      }
    }
  }
  CODA_KERNEL_FN double sum_of(const float* row, std::int64_t count) const {
    double total = 0;
    each(
        count, [&](std::int64_t t) { return row[t]; }, [&](std::int64_t, float x) { total += static_cast<double>(x); });
    return sum(total);
  }
};

/// op(lane, m, number of columns, whether this lane writes the row's results). Without a row there are no columns.
template <int N, class Op>
__global__ void __launch_bounds__(kThreads) row_kernel(const Op op, std::int64_t rows, std::int64_t cols) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / N) + threadIdx.x / N;
  const RowLane<N> lane{static_cast<int>(threadIdx.x) % N};
  const bool there = row < rows;
  op(lane, there ? row : 0, there ? cols : 0, there && lane.lane == 0);
}
template <class Op>
void launch_rows(const Launch& launch, const Op& op, const ConstMatrix& x) {
  // Few columns: several rows a warp, so that each lane still has several loads on the way.
  if (x.cols <= 64) launch(row_kernel<8, Op>, detail::ceil_div(x.rows, kThreads / 8), op, x.rows, x.cols);
  else launch(row_kernel<32, Op>, detail::ceil_div(x.rows, kThreads / 32), op, x.rows, x.cols);
}

struct Rows {
  const float* data;
  std::int64_t pitch;
  CODA_KERNEL_FN const float* row(std::int64_t m) const { return data + m * pitch; }
};
Rows rows_of(const Launch& launch, const char* argument, const ConstMatrix& x) {
  detail::require_fp32(launch, argument, x.dtype);
  return {static_cast<const float*>(x.data), x.pitch};
}
float* values_of(const Launch& launch, const char* argument, const Vector& x) {
  detail::require_fp32(launch, argument, x.dtype);
  return static_cast<float*>(x.data);
}

struct SumRows {
  Rows partial;
  double scale;
  float* out;
  template <class Lane>
  CODA_KERNEL_FN void operator()(const Lane& lane, std::int64_t m, std::int64_t count, bool writes) const {
    const double sum = lane.sum_of(partial.row(m), count);
    if (writes) out[m] = static_cast<float>(scale * sum);
  }
};

struct RmsFinalize {
  Rows sum_sq;
  double n, eps;
  float* rstd;
  template <class Lane>
  CODA_KERNEL_FN void operator()(const Lane& lane, std::int64_t m, std::int64_t count, bool writes) const {
    const double sum = lane.sum_of(sum_sq.row(m), count);
    if (writes) rstd[m] = static_cast<float>(::rsqrt(sum / n + eps));
  }
};

/// The mean first, then the squared deviations from it: the second reading comes from the cache.
struct LayerNormFinalize {
  Rows tile_mean, tile_m2;
  std::int64_t n;
  double eps;
  float *mean, *rstd;
  CODA_KERNEL_FN double columns(std::int64_t t) const {
    const std::int64_t left = n - t * kTileN;
    return static_cast<double>(left < kTileN ? left : kTileN);
  }
  template <class Lane>
  CODA_KERNEL_FN void operator()(const Lane& lane, std::int64_t m, std::int64_t count, bool writes) const {
    const float *means = tile_mean.row(m), *squares = tile_m2.row(m);
    double sum = 0, m2 = 0;
    lane.each(
        count, [&](std::int64_t t) { return means[t]; },
        [&](std::int64_t t, float x) { sum += columns(t) * static_cast<double>(x); });
    const double mu = lane.sum(sum) / static_cast<double>(n);
    lane.each(
        count, [&](std::int64_t t) { return make_float2(means[t], squares[t]); },
        [&](std::int64_t t, float2 x) {
          const double delta = static_cast<double>(x.x) - mu;
          m2 += static_cast<double>(x.y) + columns(t) * delta * delta;
        });
    m2 = lane.sum(m2);
    if (writes) {
      mean[m] = static_cast<float>(mu);
      rstd[m] = static_cast<float>(::rsqrt(m2 / static_cast<double>(n) + eps));
    }
  }
};

/// While all maxima are -inf the shift is 0: exp(-inf - 0) = 0, where exp(-inf + inf) would be NaN.
CODA_KERNEL_FN float shift_of(float max) { return max == -INFINITY ? 0.f : max; }

struct LseFinalize {
  Rows max, sum, logit_sum;
  IndexVector target;
  const float* target_logit;
  double label_smoothing, z_loss, logits_scale;  // logits_scale: 1 / vocabulary
  std::int64_t ignore_index;
  float *lse, *loss;

  /// (top, total): total exp(top) is the sum over the row of sum exp(max). One pass, rescaled once per batch of loads;
  /// a NaN in max reaches total through exp.
  template <class Lane>
  CODA_KERNEL_FN float2 fold(const Lane& lane, std::int64_t m, std::int64_t count) const {
    constexpr int kUnroll = Lane::kUnroll, kLanes = Lane::kLanes;
    const float *maxima = max.row(m), *sums = sum.row(m);
    float top = -INFINITY, total = 0;
    for (std::int64_t first = lane.lane; first < count; first += kUnroll * kLanes) {
      float x[kUnroll], s[kUnroll], higher = top;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const bool there = first + u * kLanes < count;
        x[u] = there ? maxima[first + u * kLanes] : -INFINITY;
        s[u] = there ? sums[first + u * kLanes] : 0.f;
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) higher = fmaxf(higher, x[u]);
      const float shift = shift_of(higher);
      total *= expf(top - shift);
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) total += s[u] * expf(x[u] - shift);
      top = higher;
    }
    return make_float2(top, total);
  }
  template <class Lane>
  CODA_KERNEL_FN void operator()(const Lane& lane, std::int64_t m, std::int64_t count, bool writes) const {
    const float2 mine = fold(lane, m, count);
    const float shift = shift_of(lane.max(mine.x));
    const double total = lane.sum(static_cast<double>(mine.y) * static_cast<double>(expf(mine.x - shift)));
    const double value = static_cast<double>(shift) + ::log(total);
    if (writes) lse[m] = static_cast<float>(value);
    if (!loss) return;
    double x = (1 - label_smoothing) * (value - static_cast<double>(writes ? target_logit[m] : 0.f));
    if (label_smoothing != 0) x += label_smoothing * (value - lane.sum_of(logit_sum.row(m), count) * logits_scale);
    if (z_loss != 0) x += z_loss * value * value;
    if (writes) loss[m] = target[m] == ignore_index ? 0.f : static_cast<float>(x);
  }
};

// ---- along columns

/// Warp w adds rows w, w + 8, w + 16, ...; then the warps' sums are added in their order. C columns a lane.
template <int C, class Out>
__global__ void __launch_bounds__(kThreads) column_kernel(const float* partial, std::int64_t pitch, std::int64_t rows,
                                                          std::int64_t cols, double beta, Out* out) {
  constexpr int kWarps = kThreads / 32, kUnroll = 4, kColumns = 32 * C;
  __shared__ double of_warp[kWarps][kColumns];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kColumns, col = first + lane * C;
  double sum[C] = {};
  for (std::int64_t row = warp; row < rows; row += kUnroll * kWarps) {
    Chunk<float, C> x[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t r = row + u * kWarps;
      if (r < rows) x[u].template load<(C > 1)>(partial + r * pitch + col, cols - col);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int c = 0; c < C; ++c) sum[c] += static_cast<double>(x[u].v[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < C; ++c) of_warp[warp][lane * C + c] = sum[c];
  __syncthreads();
  const int c = threadIdx.x;
  if (c >= kColumns || first + c >= cols) return;
  double total = beta == 0 ? 0 : beta * static_cast<double>(out[first + c]);
  for (int w = 0; w < kWarps; ++w) total += of_warp[w][c];
  out[first + c] = static_cast<Out>(total);
}

template <class Out>
void launch_columns(const Launch& launch, const ConstMatrix& partial, double beta, Out* out) {
  const auto* data = static_cast<const float*>(partial.data);
  // Four columns a lane move 16 bytes at a time; one makes four times the blocks, where there are too few.
  constexpr std::int64_t kBlocks = 256;
  const auto run = [&]<int C>(std::integral_constant<int, C>) {
    launch(column_kernel<C, Out>, detail::ceil_div(partial.cols, 32 * C), data, partial.pitch, partial.rows,
           partial.cols, beta, out);
  };
  if (is_aligned(partial, 16) && partial.cols >= kBlocks * 128) run(std::integral_constant<int, 4>());
  else run(std::integral_constant<int, 1>());
}

__global__ void __launch_bounds__(kThreads)
    head_kernel(const double* columns, std::int64_t heads, std::int64_t head_dim, double beta, float* out) {
  const std::int64_t d = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (d >= head_dim) return;
  double sum = beta == 0 ? 0 : beta * static_cast<double>(out[d]);
  for (std::int64_t h = 0; h < heads; ++h) sum += columns[h * head_dim + d];
  out[d] = static_cast<float>(sum);
}

}  // namespace

void rms_finalize(const char* op, const ConstMatrix& sum_sq, std::int64_t n, double eps, const Vector& rstd,
                  void* stream) {
  const Launch launch(op, sum_sq.rows, sum_sq.cols, stream);
  launch_rows(
      launch,
      RmsFinalize{rows_of(launch, "sum_sq", sum_sq), static_cast<double>(n), eps, values_of(launch, "rstd", rstd)},
      sum_sq);
}

void layernorm_finalize(const char* op, const ConstMatrix& tile_mean, const ConstMatrix& tile_m2, std::int64_t n,
                        double eps, const Vector& mean, const Vector& rstd, void* stream) {
  const Launch launch(op, tile_mean.rows, tile_mean.cols, stream);
  launch_rows(launch,
              LayerNormFinalize{rows_of(launch, "tile_mean", tile_mean), rows_of(launch, "tile_m2", tile_m2), n, eps,
                                values_of(launch, "mean", mean), values_of(launch, "rstd", rstd)},
              tile_mean);
}

void lse_finalize(const char* op, const LseFinalizeArgs& args, void* stream) {
  const Launch launch(op, args.max.rows, args.max.cols, stream);
  const bool smoothing = args.loss && args.label_smoothing != 0;
  IndexVector target(static_cast<const std::int32_t*>(args.target.data));
  target.wide = args.target.dtype == DType::int64;
  launch_rows(launch,
              LseFinalize{.max = rows_of(launch, "max", args.max),
                          .sum = rows_of(launch, "sum", args.sum),
                          .logit_sum = smoothing ? rows_of(launch, "logit_sum", args.logit_sum) : Rows{},
                          .target = target,
                          .target_logit = static_cast<const float*>(args.target_logit.data),
                          .label_smoothing = smoothing ? args.label_smoothing : 0,
                          .z_loss = args.z_loss,
                          .logits_scale = smoothing ? 1 / static_cast<double>(args.vocabulary) : 0,
                          .ignore_index = args.ignore_index,
                          .lse = values_of(launch, "lse", args.lse),
                          .loss = args.loss ? values_of(launch, "loss", args.loss) : nullptr},
              args.max);
}

void sum_rows(const char* op, const ConstMatrix& partial, double scale, const Vector& out, void* stream) {
  const Launch launch(op, partial.rows, partial.cols, stream);
  launch_rows(launch, SumRows{rows_of(launch, "partial", partial), scale, values_of(launch, "out", out)}, partial);
}

void sum_columns(const char* op, const ConstMatrix& partial, double beta, const Vector& out, void* stream) {
  const Launch launch(op, partial.rows, partial.cols, stream);
  detail::require_fp32(launch, "partial", partial.dtype);
  launch_columns(launch, partial, beta, values_of(launch, "out", out));
}

void sum_heads(const char* op, const ConstMatrix& partial, std::int64_t first_column, std::int64_t heads,
               std::int64_t head_dim, double beta, const Vector& out, void* stream) {
  const Launch launch(op, partial.rows, heads * head_dim, stream);
  detail::require_fp32(launch, "partial", partial.dtype);
  // Columns first: heads alone would be too few threads.
  const Workspace columns(static_cast<std::size_t>(heads * head_dim) * sizeof(double), stream, op);
  ConstMatrix part = partial;
  part.cols = heads * head_dim;
  if (partial.data) part.data = static_cast<const float*>(partial.data) + first_column;
  launch_columns(launch, part, 0, columns.as<double>());
  launch(head_kernel, detail::ceil_div(head_dim, kThreads), columns.as<double>(), heads, head_dim, beta,
         values_of(launch, "out", out));
}

}  // namespace coda::sm90
