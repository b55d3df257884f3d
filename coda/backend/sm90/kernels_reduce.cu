// Reductions of partial results, along rows and along columns. Sums are taken in fp64, as on the CPU: the kernels wait
// for memory, not for arithmetic.
#include <cooperative_groups.h>

#include <cstdint>
#include <limits>

#include "coda/backend/sm90/config.h"
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

// ---- along rows

template <class T>
struct RowsOf {
  using Element = T;
  const T* data;
  std::int64_t pitch;
  CODA_KERNEL_FN const T* row(std::int64_t m) const { return data + m * pitch; }
};
using Rows = RowsOf<float>;
Rows rows_of(const Launch& launch, const char* argument, const ConstMatrix& x) {
  detail::require_fp32(launch, argument, x.dtype);
  return {static_cast<const float*>(x.data), x.pitch};
}
float* values_of(const Launch& launch, const char* argument, const Vector& x) {
  detail::require_fp32(launch, argument, x.dtype);
  return static_cast<float*>(x.data);
}

/// Sums over the N lanes that share a row. All lanes of a warp take part, those without a row too.
template <int N>
CODA_KERNEL_FN double sum_lanes(double x) {
  for (int bit = N / 2; bit > 0; bit /= 2) x += __shfl_xor_sync(kAll, x, bit);
  return x;
}
template <int N>
CODA_KERNEL_FN float max_lanes(float x) {
  for (int bit = N / 2; bit > 0; bit /= 2) x = fmaxf(x, __shfl_xor_sync(kAll, x, bit));
  return x;
}

/// Lanes that share a row, rows that they have at a time, and chunks of each row that a lane has on the way.
template <int Lanes, int RowsAtATime, int Unroll>
struct RowShape {
  static constexpr int kLanes = Lanes, kRows = RowsAtATime, kUnroll = Unroll;
};

/// op.load(m, first column, columns from there on, item); op.first(state, item of the first column, in lane 0);
/// op.add(state, first column, columns from there on, items); op.reduce(state) over the lanes; op.finish(m, total),
/// which one lane of each row calls, all rows of a warp at once.
///
/// What counts is how many loads are on the way. So they have no condition (lanes without a row load the last one,
/// those without columns the first), and the compiler is told that only three blocks share a multiprocessor: without
/// it, it waits for one load before it issues the next, to save registers.
template <class Shape, bool Whole, class Op>
__global__ void __launch_bounds__(kThreads, Whole ? 3 : 2)
    row_kernel(const Op op, std::int64_t rows, std::int64_t cols) {
  detail::wait_for_turn();
  constexpr int N = Shape::kLanes, R = Shape::kRows, U = Shape::kUnroll, C = Op::kChunk;
  const int lane = static_cast<int>(threadIdx.x) % N;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * (kThreads / N) + threadIdx.x / N) * R;
  typename Op::State state[R] = {};
  for (std::int64_t t = 0; t < cols; t += U * N * C) {
    typename Op::Item x[R][U];
#pragma unroll
    for (int r = 0; r < R; ++r) {
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const std::int64_t at = t + (u * N + lane) * C;
        op.template load<Whole>(min(first + r, rows - 1), at < cols ? at : 0, cols - at, x[r][u]);
      }
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if (t == 0) op.template first<N>(state[r], x[r][0]);
      op.template add<N * C>(state[r], t + lane * C, cols - t - lane * C, x[r]);
    }
  }
  using Total = decltype(op.template reduce<N>(state[0]));
  Total mine{};
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const Total total = op.template reduce<N>(state[r]);
    if (lane == r) mine = total;
  }
  if (lane < R && first + lane < rows) op.finish(first + lane, mine);
}

/// Few: rows so short that several lanes' shares of one are not enough loads on the way. Of up to four columns a row is
/// a lane's alone.
template <class Op>
void launch_rows(const Launch& launch, const Op& op, const ConstMatrix& x, bool whole) {
  const auto run = [&]<class Shape>(Shape) {
    const std::int64_t rows_of_block = kThreads / Shape::kLanes * Shape::kRows;
    const auto with = [&](auto& kernel) {
      launch(kernel, detail::ceil_div(x.rows, rows_of_block), op, x.rows, x.cols);
    };
    if constexpr (Op::kChunk > 1) {
      if (whole) return with(launchable<row_kernel<Shape, true, Op>>);
    }
    with(launchable<row_kernel<Shape, false, Op>>);
  };
  if (x.cols <= 4) run(RowShape<1, 1, 4 / Op::kChunk>());
  else if (x.cols <= 64) run(typename Op::Few());
  else run(typename Op::Many());
}

/// The sum of a row in each lane, for what follows from it alone.
struct RowSum {
  static constexpr int kChunk = 4;
  using Few = RowShape<8, 4, 2>;
  using Many = RowShape<32, 2, 4>;
  using State = double;
  using Item = Chunk<float, kChunk>;
  Rows rows;

  template <int N>
  CODA_KERNEL_FN void first(State&, const Item&) const {}
  template <bool Whole>
  CODA_KERNEL_FN void load(std::int64_t m, std::int64_t t, std::int64_t left, Item& x) const {
    x = {};
    x.template load<Whole>(rows.row(m) + t, Whole ? kChunk : left);
  }
  template <int Step, int U>
  CODA_KERNEL_FN void add(State& sum, std::int64_t, std::int64_t left, const Item (&x)[U]) const {
#pragma unroll
    for (int u = 0; u < U; ++u) {
#pragma unroll
      for (int c = 0; c < kChunk; ++c) sum += u * Step < left ? static_cast<double>(x[u].v[c]) : 0.0;
    }
  }
  template <int N>
  CODA_KERNEL_FN double reduce(State sum) const {
    return sum_lanes<N>(sum);
  }
};

struct SumRows : RowSum {
  double scale;
  float* out;
  CODA_KERNEL_FN void finish(std::int64_t m, double sum) const { out[m] = static_cast<float>(scale * sum); }
};

struct RmsFinalize : RowSum {
  double n, eps;
  float* rstd;
  CODA_KERNEL_FN void finish(std::int64_t m, double sum) const { rstd[m] = static_cast<float>(::rsqrt(sum / n + eps)); }
};

/// One pass: deviations are from the first tile's mean, exact in fp64, so that rows far from 0 lose nothing.
struct LayerNormFinalize {
  static constexpr int kChunk = 4;
  using Few = RowShape<8, 2, 2>;
  using Many = RowShape<32, 1, 4>;
  struct State {
    double shift = 0, sum = 0, squares = 0;  // of deviations, times the number of columns; and what tile_m2 adds
  };
  struct Item {
    Chunk<float, kChunk> mean, m2;
  };
  Rows tile_mean, tile_m2;
  std::int64_t n, last;  // last: the last tile's number
  double last_columns, eps;
  float *mean, *rstd;

  template <int N>
  CODA_KERNEL_FN void first(State& s, const Item& x) const {
    const float shift = __shfl_sync(kAll, x.mean.v[0], 0, N);
    s.shift = isfinite(shift) ? static_cast<double>(shift) : 0.0;
  }
  template <bool Whole>
  CODA_KERNEL_FN void load(std::int64_t m, std::int64_t t, std::int64_t left, Item& x) const {
    x = {};
    x.mean.template load<Whole>(tile_mean.row(m) + t, Whole ? kChunk : left);
    x.m2.template load<Whole>(tile_m2.row(m) + t, Whole ? kChunk : left);
  }
  template <int Step, int U>
  CODA_KERNEL_FN void add(State& s, std::int64_t t, std::int64_t left, const Item (&x)[U]) const {
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const bool there = u * Step < left;
#pragma unroll
      for (int c = 0; c < kChunk; ++c) {
        const std::int64_t tile = t + u * Step + c;
        const double columns = tile < last ? static_cast<double>(kTileN) : tile == last ? last_columns : 0.0;
        const double deviation = there ? static_cast<double>(x[u].mean.v[c]) - s.shift : 0.0, sum = columns * deviation;
        s.sum += sum;
        s.squares += (there ? static_cast<double>(x[u].m2.v[c]) : 0.0) + sum * deviation;
      }
    }
  }
  template <int N>
  CODA_KERNEL_FN State reduce(const State& s) const {
    return {s.shift, sum_lanes<N>(s.sum), sum_lanes<N>(s.squares)};
  }
  CODA_KERNEL_FN void finish(std::int64_t m, const State& s) const {
    const double count = static_cast<double>(n), deviation = s.sum / count;
    mean[m] = static_cast<float>(s.shift + deviation);
    rstd[m] = static_cast<float>(::rsqrt((s.squares - s.sum * deviation) / count + eps));
  }
};

/// One pass, rescaled once per batch of loads; a NaN in max reaches the total through exp. Single elements: a
/// vocabulary's number of tiles leaves rows unaligned.
template <bool Smoothing>
struct LseFinalize {
  static constexpr int kChunk = 1;
  using Few = RowShape<8, 1, 8>;
  using Many = RowShape<32, 1, 8>;
  struct State {
    float top = -INFINITY, total = 0;  // total exp(top) is the sum of sum exp(max)
    double logits = 0;
  };
  struct Item {
    float max, sum, logits;
  };
  struct Total {
    float shift;
    double total, logits;
  };
  Rows max, sum, logit_sum;
  IndexVector target;
  const float* target_logit;
  double label_smoothing, z_loss, logits_scale;  // logits_scale: 1 / vocabulary
  std::int64_t ignore_index;
  std::uint64_t vocabulary;  // the largest number if it is not known
  float *lse, *loss;

  /// sum exp(x), but 0 where there is no sum: x may be inf there.
  static CODA_KERNEL_FN float scaled(float sum, float x) { return sum == 0 ? 0.f : sum * expf(x); }

  template <int N>
  CODA_KERNEL_FN void first(State&, const Item&) const {}
  template <bool Whole>
  CODA_KERNEL_FN void load(std::int64_t m, std::int64_t t, std::int64_t, Item& x) const {
    x.max = max.row(m)[t];
    x.sum = sum.row(m)[t];
    if constexpr (Smoothing) x.logits = logit_sum.row(m)[t];
  }
  template <int Step, int U>
  CODA_KERNEL_FN void add(State& s, std::int64_t, std::int64_t left, const Item (&x)[U]) const {
    float top = s.top;  // what is loaded in place of columns that are not there does not change the maximum
#pragma unroll
    for (int u = 0; u < U; ++u) top = fmaxf(top, x[u].max);
    const float shift = lse_shift(top);
    s.total = scaled(s.total, s.top - shift);
    s.top = top;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      s.total += scaled(u * Step < left ? x[u].sum : 0.f, x[u].max - shift);
      if constexpr (Smoothing) s.logits += u * Step < left ? static_cast<double>(x[u].logits) : 0.0;
    }
  }
  template <int N>
  CODA_KERNEL_FN Total reduce(const State& s) const {
    const float shift = lse_shift(max_lanes<N>(s.top));
    const double total = sum_lanes<N>(static_cast<double>(scaled(s.total, s.top - shift)));
    return {shift, total, Smoothing ? sum_lanes<N>(s.logits) : 0};
  }
  CODA_KERNEL_FN void finish(std::int64_t m, const Total& row) const {
    const double value = static_cast<double>(row.shift) + ::log(row.total);
    lse[m] = static_cast<float>(value);
    if (!loss) return;
    const std::int64_t index = target[m];
    double x = (1 - label_smoothing) * (value - static_cast<double>(target_logit[m]));
    if constexpr (Smoothing) x += label_smoothing * (value - row.logits * logits_scale);
    if (z_loss != 0) x += z_loss * value * value;
    // Of a target that is none nobody has written a logit.
    if (static_cast<std::uint64_t>(index) >= vocabulary) x = __longlong_as_double(0x7ff8000000000000);
    loss[m] = index == ignore_index ? 0.f : static_cast<float>(x);
  }
};

// ---- along columns

/// The rows of a matrix.
template <class T>
struct PlainRows : RowsOf<T> {
  std::int64_t count;
  std::int64_t rows() const { return count; }
};

/// The heads of all rows, several in each, in their order.
struct HeadRows {
  using Element = float;
  const float* data;
  std::int64_t pitch, head_dim;
  ChunkGrid grid;
  std::int64_t rows() const { return grid.count(); }
  CODA_KERNEL_FN const float* row(std::int64_t i) const {
    const ChunkGrid::Place at = grid.place<1>(i);
    return data + at.row * pitch + at.col * head_dim;
  }
};

/// Columns of a block: four a lane, and eight lanes for a row of them, so 128 bytes of fp32.
constexpr int kSlice = 32, kSliceLanes = kSlice / 4;

/// Of the `parts` blocks that share a slice of columns, block p adds rows p S + s, p S + s + parts S, ... in its slot
/// s, S being the slots of a block. Lanes of a warp that share columns are added next, then warps in their order, then
/// the blocks of a cluster in theirs. Each cluster of the slice writes a row of out.
template <int Threads, bool Whole, class In, class Out>
__global__ void __launch_bounds__(Threads, Threads == kThreads ? 3 : 1)
    column_kernel(const In x, std::int64_t rows, std::int64_t cols, unsigned parts, double beta, Out* out) {
  detail::wait_for_turn();
  constexpr int kSlots = Threads / kSliceLanes, kWarps = Threads / 32, kUnroll = Whole ? 8 : 2;
  __shared__ double of_warp[kWarps][kSlice], of_block[kSlice];
  const cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const unsigned slice = blockIdx.x / parts, part = blockIdx.x % parts;
  const std::int64_t first = static_cast<std::int64_t>(slice) * kSlice, col = first + thread % kSliceLanes * 4;
  const std::int64_t step = static_cast<std::int64_t>(parts) * kSlots;
  double sum[4] = {};
  const std::int64_t from = col < cols ? col : first, left = Whole ? 4 : cols - col;
  for (std::int64_t row = part * kSlots + thread / kSliceLanes; row < rows; row += kUnroll * step) {
    Chunk<typename In::Element, 4> chunk[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      chunk[u].template load<Whole>(x.row(min(row + u * step, rows - 1)) + from, left);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int c = 0; c < 4; ++c) sum[c] += row + u * step < rows ? static_cast<double>(chunk[u].v[c]) : 0.0;
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    for (int bit = kSliceLanes; bit < 32; bit *= 2) sum[c] += __shfl_xor_sync(kAll, sum[c], bit);
    if (lane < kSliceLanes) of_warp[thread / 32][lane * 4 + c] = sum[c];
  }
  __syncthreads();
  double total = 0;
  if (thread < kSlice) {
    for (int w = 0; w < kWarps; ++w) total += of_warp[w][thread];
  }
  const unsigned blocks = cluster.num_blocks();
  if (blocks > 1) {
    if (thread < kSlice) of_block[thread] = total;
    cluster.sync();
    if (thread < kSlice && cluster.block_rank() == 0) {
      total = 0;
      for (unsigned b = 0; b < blocks; ++b) total += *cluster.map_shared_rank(&of_block[thread], b);
    }
    cluster.sync();  // no block's shared memory goes away before it was read
  }
  if (thread >= kSlice || first + thread >= cols || cluster.block_rank() != 0) return;
  Out& y = out[part / blocks * cols + first + thread];
  y = static_cast<Out>((beta == 0 ? 0 : beta * static_cast<double>(y)) + total);
}

/// The last stage or the only one: out[n] = beta out[n] + the sum of x's rows. It depends on the shape alone how many
/// blocks share a slice: as many as fill the chip, while each slot has several rows.
template <class In>
void launch_columns(const Launch& launch, const In& x, std::int64_t cols, bool whole, double beta, float* out) {
  constexpr int kFill = 1024, kMostParts = 8, kRowsOfPart = 256;
  const std::int64_t slices = detail::ceil_div(cols, kSlice);
  int parts = 1;
  while (parts < kMostParts && slices * parts < kFill && x.rows() > parts * kRowsOfPart) parts *= 2;
  const auto run = [&]<int Threads>(std::integral_constant<int, Threads>) {
    launch(whole ? launchable<column_kernel<Threads, true, In, float>>
                 : launchable<column_kernel<Threads, false, In, float>>,
           detail::Grid(slices * parts, Threads, parts), x, x.rows(), cols, static_cast<unsigned>(parts), beta, out);
  };
  // A few slices with many rows need larger blocks.
  if (slices < 32 && x.rows() > kMostParts * kRowsOfPart) run(std::integral_constant<int, 512>());
  else run(std::integral_constant<int, kThreads>());
}

template <class In>
void sum_stack(const Launch& launch, const In& x, std::int64_t cols, bool whole, double beta, float* out) {
  if (cols <= 0) return;
  // So many rows that a cluster for each slice would leave most of the chip idle: first into several rows of sums.
  constexpr std::int64_t kStageRows = 16384, kStageBlocks = 384, kRowsOfGroup = 512;
  const std::int64_t slices = detail::ceil_div(cols, kSlice);
  if (x.rows() <= kStageRows || slices > 32) return launch_columns(launch, x, cols, whole, beta, out);
  const auto groups = static_cast<unsigned>(std::min(kStageBlocks / slices, x.rows() / kRowsOfGroup));
  const Workspace sums(static_cast<std::size_t>(groups * cols) * sizeof(double), launch.stream, launch.op);
  launch(whole ? launchable<column_kernel<kThreads, true, In, double>>
               : launchable<column_kernel<kThreads, false, In, double>>,
         slices * groups, x, x.rows(), cols, groups, 0.0, sums.as<double>());
  launch_columns(launch, PlainRows<double>{{sums.as<double>(), cols}, groups}, cols, cols % 4 == 0, beta, out);
}

}  // namespace

void rms_finalize(const char* op, const ConstMatrix& sum_sq, std::int64_t n, double eps, const Vector& rstd,
                  void* stream) {
  const Launch launch(op, sum_sq.rows, sum_sq.cols, stream);
  const RmsFinalize kernel{
      {rows_of(launch, "sum_sq", sum_sq)}, static_cast<double>(n), eps, values_of(launch, "rstd", rstd)};
  launch_rows(launch, kernel, sum_sq, has_whole_chunks(sum_sq, 4));
}

void layernorm_finalize(const char* op, const ConstMatrix& tile_mean, const ConstMatrix& tile_m2, std::int64_t n,
                        double eps, const Vector& mean, const Vector& rstd, void* stream) {
  const Launch launch(op, tile_mean.rows, tile_mean.cols, stream);
  const std::int64_t last = tile_mean.cols - 1;
  const LayerNormFinalize kernel{.tile_mean = rows_of(launch, "tile_mean", tile_mean),
                                 .tile_m2 = rows_of(launch, "tile_m2", tile_m2),
                                 .n = n,
                                 .last = last,
                                 .last_columns = static_cast<double>(n - last * kTileN),
                                 .eps = eps,
                                 .mean = values_of(launch, "mean", mean),
                                 .rstd = values_of(launch, "rstd", rstd)};
  launch_rows(launch, kernel, tile_mean, has_whole_chunks(tile_mean, 4) && has_whole_chunks(tile_m2, 4));
}

void lse_finalize(const char* op, const LseFinalizeArgs& args, void* stream) {
  const Launch launch(op, args.max.rows, args.max.cols, stream);
  IndexVector target(static_cast<const std::int32_t*>(args.target.data));
  target.wide = args.target.dtype == DType::int64;
  const auto run = [&]<bool Smoothing>(std::bool_constant<Smoothing>) {
    const LseFinalize<Smoothing> kernel{.max = rows_of(launch, "max", args.max),
                                        .sum = rows_of(launch, "sum", args.sum),
                                        .logit_sum = Smoothing ? rows_of(launch, "logit_sum", args.logit_sum) : Rows{},
                                        .target = target,
                                        .target_logit = static_cast<const float*>(args.target_logit.data),
                                        .label_smoothing = Smoothing ? args.label_smoothing : 0,
                                        .z_loss = args.z_loss,
                                        .logits_scale = Smoothing ? 1 / static_cast<double>(args.vocabulary) : 0,
                                        .ignore_index = args.ignore_index,
                                        .vocabulary = args.vocabulary > 0 ? static_cast<std::uint64_t>(args.vocabulary)
                                                                          : std::numeric_limits<std::uint64_t>::max(),
                                        .lse = values_of(launch, "lse", args.lse),
                                        .loss = args.loss ? values_of(launch, "loss", args.loss) : nullptr};
    launch_rows(launch, kernel, args.max, false);
  };
  const bool smoothing = args.loss && args.label_smoothing != 0;
  smoothing ? run(std::true_type()) : run(std::false_type());
}

void sum_rows(const char* op, const ConstMatrix& partial, double scale, const Vector& out, void* stream) {
  const Launch launch(op, partial.rows, partial.cols, stream);
  const SumRows kernel{{rows_of(launch, "partial", partial)}, scale, values_of(launch, "out", out)};
  launch_rows(launch, kernel, partial, has_whole_chunks(partial, 4));
}

void sum_columns(const char* op, const ConstMatrix& partial, double beta, const Vector& out, void* stream) {
  const Launch launch(op, partial.rows, partial.cols, stream);
  sum_stack(launch, PlainRows<float>{rows_of(launch, "partial", partial), partial.rows}, partial.cols,
            has_whole_chunks(partial, 4), beta, values_of(launch, "out", out));
}

void sum_heads(const char* op, const ConstMatrix& partial, std::int64_t first_column, std::int64_t heads,
               std::int64_t head_dim, double beta, const Vector& out, void* stream) {
  const Launch launch(op, partial.rows, heads * head_dim, stream);
  ConstMatrix part = partial;
  part.cols = head_dim;
  if (partial.data) part.data = static_cast<const float*>(partial.data) + first_column;
  const Rows x = rows_of(launch, "partial", part);
  sum_stack(launch, HeadRows{x.data, x.pitch, head_dim, ChunkGrid(part.rows, heads, 1)}, head_dim,
            has_whole_chunks(part, 4), beta, values_of(launch, "out", out));
}

}  // namespace coda::sm90
