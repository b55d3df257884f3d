// The O(M) kernels between programs. Each sums in a fixed order, so results do not depend on the number of threads.
#pragma once

#include "coda/core/tensor.h"
#include "coda/epilogue/adamw.h"
#include "coda/epilogue/ports.h"

namespace coda::cpu {

/// rstd[m] = 1 / sqrt(sum_t sum_sq[m, t] / n + eps)
template <class Acc>
void rms_finalize(MatrixOf<const Acc> sum_sq, std::int64_t n, double eps, Acc* rstd);

/// Merges the tiles' means and sums of squared deviations; tile t holds min(tile_n, n - t tile_n) columns.
template <class Acc>
void layernorm_finalize(MatrixOf<const Acc> tile_mean, MatrixOf<const Acc> tile_m2, std::int64_t n, std::int64_t tile_n,
                        double eps, Acc* mean, Acc* rstd);

/// What lse_finalize needs of the cross-entropy's options.
struct LossOptions {
  double label_smoothing, z_loss;
  std::int64_t ignore_index, vocabulary;
};
/// lse[m] from the tiles' (max, sum); loss[m] too unless null.
template <class Acc>
void lse_finalize(MatrixOf<const Acc> max, MatrixOf<const Acc> sum, MatrixOf<const Acc> logit_sum, IndexVector target,
                  const Acc* target_logit, const LossOptions& options, Acc* lse, Acc* loss);

/// out[m] = scale * sum_t partial[m, t]
template <class Acc>
void sum_rows(MatrixOf<const Acc> partial, double scale, Acc* out);
/// out[n] = beta * out[n] + sum_t partial[t, n]
template <class Acc>
void sum_columns(MatrixOf<const Acc> partial, double beta, Acc* out);
/// out[d] = beta * out[d] + the sum over rows and over heads h of partial[t, first_column + h head_dim + d]
template <class Acc>
void sum_heads(MatrixOf<const Acc> partial, std::int64_t first_column, std::int64_t heads, std::int64_t head_dim,
               double beta, Acc* out);

/// table[token[m]] += dx[m], in row order
template <class T, class Acc>
void embedding_backward(MatrixOf<const T> dx, IndexVector token, MatrixOf<Acc> table);

/// out = in, element by element, rounded to the output's type
template <class From, class To>
void cast(MatrixOf<const From> in, MatrixOf<To> out);

/// Elements of a vector that one thread takes at a time, whatever the number of threads: what the first-level cache has
/// room for.
inline constexpr std::int64_t kVectorBlock = 2048;

/// sum of x^2; partial: memory for a number of each kVectorBlock elements.
double squared_norm(const ConstVector& x, double* partial);

/// One step; gradient and weight, which may be absent, are of any real type.
template <class Real>
void adamw(const AdamwUpdate<Real>& update, const ConstVector& gradient, VectorOf<Real> master, Real* m, Real* v,
           const Vector& weight);

}  // namespace coda::cpu
