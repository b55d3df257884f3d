// The small kernels between the programs of the Hopper backend: no CUDA header is needed here or in a caller, and a
// build without CUDA has the same functions, which throw Error(unsupported).
//
// Pointers are device pointers, `stream` is a cudaStream_t, `op` names the call in errors. Matrices are row-major with
// any pitch and alignment; statistics are fp32, others bf16, fp16 or fp32. Shapes are the caller's to check
// (coda/ops). The kernels are enqueued, and the host waits for nothing. All sums are taken in an order that depends on
// the shape alone, so results are bitwise the same in every run. Empty inputs are no error.
#pragma once

#include <cstdint>

#include "coda/core/error.h"
#include "coda/core/tensor.h"

namespace coda::sm90 {

/// rstd[m] = 1 / sqrt(sum_t sum_sq[m, t] / n + eps)
void rms_finalize(const char* op, const ConstMatrix& sum_sq, std::int64_t n, double eps, const Vector& rstd,
                  void* stream);

/// Mean and 1 / sqrt(variance + eps) of rows of n values from the means and the sums of squared deviations of their
/// blocks of kTileN columns, of which the last may be narrower.
void layernorm_finalize(const char* op, const ConstMatrix& tile_mean, const ConstMatrix& tile_m2, std::int64_t n,
                        double eps, const Vector& mean, const Vector& rstd, void* stream);

/// lse[m] = log sum_t sum[m, t] exp(max[m, t]); -inf where every max is. loss, optional, needs target (M) int32 or
/// int64 and target_logit (M): (1 - s)(lse - target_logit) + s (lse - sum_t logit_sum[m, t] / vocabulary) + zeta lse^2,
/// 0 where target is ignore_index, and NaN where it is none of a `vocabulary` above 0. s: label_smoothing; zeta:
/// z_loss.
struct LseFinalizeArgs {
  ConstMatrix max = {}, sum = {}, logit_sum = {};
  ConstVector target = {}, target_logit = {};
  double label_smoothing = 0, z_loss = 0;
  std::int64_t ignore_index = -100, vocabulary = 0;
  Vector lse = {}, loss = {};
};
void lse_finalize(const char* op, const LseFinalizeArgs& args, void* stream);

/// out[m] = scale sum_t partial[m, t]
void sum_rows(const char* op, const ConstMatrix& partial, double scale, const Vector& out, void* stream);
/// out[n] = beta out[n] + sum_t partial[t, n]
void sum_columns(const char* op, const ConstMatrix& partial, double beta, const Vector& out, void* stream);
/// out[d] = beta out[d] + the sum over rows t and heads h of partial[t, first_column + h head_dim + d]
void sum_heads(const char* op, const ConstMatrix& partial, std::int64_t first_column, std::int64_t heads,
               std::int64_t head_dim, double beta, const Vector& out, void* stream);

/// out[m] = dloss[m], but 0 where target[m] is ignore_index or not in [0, vocabulary).
void masked_dloss(const char* op, const ConstVector& dloss, const ConstVector& target, std::int64_t ignore_index,
                  std::int64_t vocabulary, const Vector& out, void* stream);

/// out = scale in, rounded once to out's type. in may be out.
void cast(const char* op, const ConstMatrix& in, const Matrix& out, float scale, void* stream);
/// Every element of out is `value`, rounded to its type.
void fill(const char* op, const Matrix& out, double value, void* stream);

/// dtable[token[m]] += dx[m] in an order that depends on the tokens alone, dtable (V, N) fp32, token (M) int32 or
/// int64. Rows whose token is not in [0, V) are skipped.
void embedding_backward(const char* op, const ConstMatrix& dx, const ConstVector& token, const Matrix& dtable,
                        void* stream);

/// One step of AdamW as coda/epilogue/adamw.h computes it, on fp32 master weights and moments, all of one size.
/// squared_norm, optional, is one fp64: the squared norm of all gradients before gradient_scale, to which they are
/// clipped; where it is not finite nothing is changed.
struct AdamwArgs {
  Vector master = {}, m = {}, v = {};
  Vector weight = {};  // optional: a copy of master in another type
  ConstVector gradient = {};
  double rate = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  std::int64_t step = 1;
  double gradient_scale = 1;
  ConstVector squared_norm = {};
  double clip_norm = 0;
};
void adamw(const char* op, const AdamwArgs& args, void* stream);

/// out[0] = beta out[0] + sum of x^2, out fp64.
void squared_norm(const char* op, const ConstVector& x, double beta, const Vector& out, void* stream);

}  // namespace coda::sm90
