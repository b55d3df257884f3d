#include "coda/backend/cpu/kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "coda/backend/cpu/threads.h"
#include "coda/epilogue/simd.h"

namespace coda::cpu {
namespace {

// Columns that one thread takes at a time where a kernel runs down the rows.
constexpr std::int64_t kColumnBlock = 256;

/// To float by rounding to odd: to the odd one of its neighbours where x is none of them. A second rounding, to 16
/// bits, then gives what one alone would (Boldo and Melquiond, 2008).
float rounded_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto back = static_cast<double>(nearest);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (!(back < x || back > x) || bits % 2 == 1) return nearest;
  const bool past = x < 0 ? back < x : back > x;  // further from zero than x
  return std::bit_cast<float>(past ? bits - 1 : bits + 1);
}
/// x as a To, rounded once to nearest even.
template <class To, class From>
To rounded(From x) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) return To(rounded_to_odd(x));
  else return static_cast<To>(static_cast<acc_t<To>>(x));
}
/// out[i] = in[i] for `count` elements, rounded once.
template <class From, class To>
void convert(const From* in, std::int64_t count, To* out) {
  std::int64_t i = 0;
  if constexpr (std::is_same_v<From, float> && std::is_same_v<To, fp16>) {  // vectors of bf16 have no subnormals
    constexpr int kL = kLanes<float>;
    for (; i + kL <= count; i += kL) store_as<kL>(out + i, load_as<kL>(in + i));
  }
  for (; i < count; ++i) out[i] = rounded<To>(in[i]);
}
/// out[i] = x[first + i] for `count` elements.
template <class Real>
void load_block(const ConstVector& x, std::int64_t first, std::int64_t count, Real* out) {
  with_real(x.dtype, [&](auto element) {
    const auto* in = static_cast<const decltype(element)*>(x.data) + first;
    for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<Real>(in[i]);
  });
}
template <class Real>
void store_block(const Real* in, std::int64_t first, std::int64_t count, const Vector& x) {
  with_real(x.dtype, [&](auto element) { convert(in, count, static_cast<decltype(element)*>(x.data) + first); });
}

/// out[n] = beta out[n] + the sum of row(i)[n] over 0 <= i < rows in this order: some columns of all rows at a time,
/// for each element of one column has a cache line of its own.
template <class Acc, class Row>
void sum_down(std::int64_t rows, std::int64_t cols, double beta, Acc* out, const Row& row) {
  for_each(ceil_div(cols, kColumnBlock), rows * cols > 65536 && cols > kColumnBlock, [&](std::int64_t b) {
    const std::int64_t first = b * kColumnBlock, count = std::min(kColumnBlock, cols - first);
    double sum[kColumnBlock];
    for (std::int64_t n = 0; n < count; ++n) sum[n] = beta == 0 ? 0 : beta * static_cast<double>(out[first + n]);
    for (std::int64_t i = 0; i < rows; ++i) {
      const Acc* in = row(i) + first;
      for (std::int64_t n = 0; n < count; ++n) sum[n] += static_cast<double>(in[n]);
    }
    for (std::int64_t n = 0; n < count; ++n) out[first + n] = static_cast<Acc>(sum[n]);
  });
}

}  // namespace

template <class Acc>
void rms_finalize(MatrixOf<const Acc> sum_sq, std::int64_t n, double eps, Acc* rstd) {
  for_each(sum_sq.rows, sum_sq.rows > 1024, [&](std::int64_t m) {
    double sum = 0;
    for (std::int64_t t = 0; t < sum_sq.cols; ++t) sum += static_cast<double>(sum_sq.row(m)[t]);
    rstd[m] = static_cast<Acc>(1 / std::sqrt(sum / static_cast<double>(n) + eps));
  });
}

template <class Acc>
void layernorm_finalize(MatrixOf<const Acc> tile_mean, MatrixOf<const Acc> tile_m2, std::int64_t n, std::int64_t tile_n,
                        double eps, Acc* mean, Acc* rstd) {
  for_each(tile_mean.rows, tile_mean.rows > 1024, [&](std::int64_t m) {
    double count = 0, mu = 0, m2 = 0;
    for (std::int64_t t = 0; t < tile_mean.cols; ++t) {
      const auto columns = static_cast<double>(std::min(tile_n, n - t * tile_n));
      const double total = count + columns, delta = static_cast<double>(tile_mean.row(m)[t]) - mu;
      mu += delta * columns / total;
      m2 += static_cast<double>(tile_m2.row(m)[t]) + delta * delta * count * columns / total;
      count = total;
    }
    mean[m] = static_cast<Acc>(mu);
    rstd[m] = static_cast<Acc>(1 / std::sqrt(m2 / static_cast<double>(n) + eps));
  });
}

template <class Acc>
void lse_finalize(MatrixOf<const Acc> max, MatrixOf<const Acc> sum, MatrixOf<const Acc> logit_sum, IndexVector target,
                  const Acc* target_logit, const LossOptions& o, Acc* lse, Acc* loss) {
  for_each(max.rows, max.rows > 256, [&](std::int64_t m) {
    double top = -std::numeric_limits<double>::infinity(), total = 0, logits = 0;
    for (std::int64_t t = 0; t < max.cols; ++t) {
      const auto x = static_cast<double>(max.row(m)[t]);
      if (!(x <= top)) top = x;
    }
    const double shift = std::isinf(top) ? 0 : top;  // as lse_shift
    for (std::int64_t t = 0; t < max.cols; ++t) {
      total += static_cast<double>(sum.row(m)[t]) * std::exp(static_cast<double>(max.row(m)[t]) - shift);
    }
    const double value = shift + std::log(total);
    lse[m] = static_cast<Acc>(value);
    if (!loss) return;
    if (target[m] == o.ignore_index) {
      loss[m] = 0;
      return;
    }
    double l = (1 - o.label_smoothing) * (value - static_cast<double>(target_logit[m]));
    if (o.label_smoothing != 0) {
      for (std::int64_t t = 0; t < logit_sum.cols; ++t) logits += static_cast<double>(logit_sum.row(m)[t]);
      l += o.label_smoothing * (value - logits / static_cast<double>(o.vocabulary));
    }
    if (o.z_loss != 0) l += o.z_loss * value * value;
    loss[m] = static_cast<Acc>(l);
  });
}

template <class Acc>
void sum_rows(MatrixOf<const Acc> partial, double scale, Acc* out) {
  for_each(partial.rows, partial.rows > 1024, [&](std::int64_t m) {
    double sum = 0;
    for (std::int64_t t = 0; t < partial.cols; ++t) sum += static_cast<double>(partial.row(m)[t]);
    out[m] = static_cast<Acc>(scale * sum);
  });
}

template <class Acc>
void sum_columns(MatrixOf<const Acc> partial, double beta, Acc* out) {
  sum_down(partial.rows, partial.cols, beta, out, [&](std::int64_t t) { return partial.row(t); });
}

template <class Acc>
void sum_heads(MatrixOf<const Acc> partial, std::int64_t first_column, std::int64_t heads, std::int64_t head_dim,
               double beta, Acc* out) {
  sum_down(partial.rows * heads, head_dim, beta, out,
           [&](std::int64_t i) { return partial.row(i / heads) + first_column + i % heads * head_dim; });
}

template <class T, class Acc>
void embedding_backward(MatrixOf<const T> dx, IndexVector token, MatrixOf<Acc> table) {
  // Each thread owns some columns and goes down all rows: no two threads meet, and the order is that of the rows.
  const std::int64_t blocks = (dx.cols + kColumnBlock - 1) / kColumnBlock;
  for_each(blocks, true, [&](std::int64_t b) {
    const std::int64_t first = b * kColumnBlock, last = std::min(dx.cols, first + kColumnBlock);
    for (std::int64_t m = 0; m < dx.rows; ++m) {
      Acc* out = table.row(token[m]);
      const T* in = dx.row(m);
      for (std::int64_t n = first; n < last; ++n) out[n] += static_cast<Acc>(in[n]);
    }
  });
}

template <class From, class To>
void cast(MatrixOf<const From> in, MatrixOf<To> out) {
  for_each(in.rows, true, [&](std::int64_t m) { convert(in.row(m), in.cols, out.row(m)); });
}

double squared_norm(const ConstVector& x, double* partial) {
  const DefaultRounding rounding;
  const std::int64_t blocks = (x.size + kVectorBlock - 1) / kVectorBlock;
  for_each(blocks, true, [&](std::int64_t b) {
    constexpr std::int64_t kLanes = 8;
    const std::int64_t first = b * kVectorBlock, count = std::min(kVectorBlock, x.size - first);
    std::array<double, kVectorBlock> value{};
    load_block(x, first, count, value.data());
    // The lanes are explicit, so that the order of the additions is the source's.
    std::array<double, kLanes> lane{};
    for (std::int64_t i = 0; i < count; i += kLanes) {
      for (std::int64_t l = 0; l < kLanes; ++l) {
        const double e = value[static_cast<std::size_t>(i + l)];
        lane[static_cast<std::size_t>(l)] += e * e;
      }
    }
    double sum = 0;
    for (const double l : lane) sum += l;
    partial[b] = sum;
  });
  double sum = 0;
  for (std::int64_t b = 0; b < blocks; ++b) sum += partial[b];
  return sum;
}

template <class Real>
void adamw(const AdamwUpdate<Real>& update, const ConstVector& gradient, VectorOf<Real> master, Real* m, Real* v,
           const Vector& weight) {
  const std::int64_t blocks = (master.size + kVectorBlock - 1) / kVectorBlock;
  for_each(blocks, true, [&](std::int64_t b) {
    const std::int64_t first = b * kVectorBlock, count = std::min(kVectorBlock, master.size - first);
    std::array<Real, kVectorBlock> g;
    load_block(gradient, first, count, g.data());
    Real* w = master.data + first;
    for (std::int64_t i = 0; i < count; ++i) update(g[static_cast<std::size_t>(i)], w[i], m[first + i], v[first + i]);
    if (weight) store_block(w, first, count, weight);
  });
}

#define CODA_INSTANTIATE(Acc)                                                                                         \
  template void rms_finalize<Acc>(MatrixOf<const Acc>, std::int64_t, double, Acc*);                                   \
  template void layernorm_finalize<Acc>(MatrixOf<const Acc>, MatrixOf<const Acc>, std::int64_t, std::int64_t, double, \
                                        Acc*, Acc*);                                                                  \
  template void lse_finalize<Acc>(MatrixOf<const Acc>, MatrixOf<const Acc>, MatrixOf<const Acc>, IndexVector,         \
                                  const Acc*, const LossOptions&, Acc*, Acc*);                                        \
  template void sum_rows<Acc>(MatrixOf<const Acc>, double, Acc*);                                                     \
  template void sum_columns<Acc>(MatrixOf<const Acc>, double, Acc*);                                                  \
  template void sum_heads<Acc>(MatrixOf<const Acc>, std::int64_t, std::int64_t, std::int64_t, double, Acc*);          \
  template void adamw<Acc>(const AdamwUpdate<Acc>&, const ConstVector&, VectorOf<Acc>, Acc*, Acc*, const Vector&);
CODA_INSTANTIATE(float)
CODA_INSTANTIATE(double)
#undef CODA_INSTANTIATE

template void embedding_backward<bf16, float>(MatrixOf<const bf16>, IndexVector, MatrixOf<float>);
template void embedding_backward<fp16, float>(MatrixOf<const fp16>, IndexVector, MatrixOf<float>);
template void embedding_backward<float, float>(MatrixOf<const float>, IndexVector, MatrixOf<float>);
template void embedding_backward<double, double>(MatrixOf<const double>, IndexVector, MatrixOf<double>);

#define CODA_INSTANTIATE(From)                                            \
  template void cast<From, bf16>(MatrixOf<const From>, MatrixOf<bf16>);   \
  template void cast<From, fp16>(MatrixOf<const From>, MatrixOf<fp16>);   \
  template void cast<From, float>(MatrixOf<const From>, MatrixOf<float>); \
  template void cast<From, double>(MatrixOf<const From>, MatrixOf<double>);
CODA_INSTANTIATE(bf16)
CODA_INSTANTIATE(fp16)
CODA_INSTANTIATE(float)
CODA_INSTANTIATE(double)
#undef CODA_INSTANTIATE

}  // namespace coda::cpu
