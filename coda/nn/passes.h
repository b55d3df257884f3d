// What the programs fuse, as separate passes over memory: the textbook steps of a Transformer and of its backward, each
// reading its inputs and writing its outputs once. Vectorised, on all cores, bitwise the same for any number of
// threads. Matrices are bf16, fp16, fp32 or fp64; arithmetic and statistics are fp32 (fp64 for fp64).
#pragma once

#include <cstdint>

#include "coda/core/tensor.h"
#include "coda/ops/ops.h"

namespace coda::nn::passes {

/// out[m] = table[token[m]]
void embedding(const ConstMatrix& table, const ConstVector& token, const Matrix& out);

/// out = a + b
void add(const ConstMatrix& a, const ConstMatrix& b, const Matrix& out);

/// rstd[m] = 1 / sqrt(mean(x[m]^2) + eps); out = x rstd weight
void rms_norm(const ConstMatrix& x, const ConstVector& weight, double eps, const Matrix& out, const Vector& rstd);

/// With n = x rstd and g = dout weight: dx = rstd (g - n mean(g n)); dweight (blocks of rows, width) = sums of dout n.
void rms_norm_backward(const ConstMatrix& x, const ConstVector& weight, const ConstVector& rstd,
                       const ConstMatrix& dout, const Matrix& dx, const Matrix& dweight);

/// Rotates the pairs of the q and k heads, v passes through: from `in` to `out`, which may be the same. `back` rotates
/// by the opposite angle, which is the backward.
void rotate(const ConstMatrix& in, const ops::Heads& heads, bool back, const Matrix& out);

/// RMSNorm of each q and k head with its weight; v passes through.
void head_norm(const ConstMatrix& in, const ops::Heads& heads, const ConstVector& q_weight, const ConstVector& k_weight,
               double eps, const Matrix& out);

/// Its backward; dweight (blocks of rows, width) is per column, for head_weight_gradient.
void head_norm_backward(const ConstMatrix& in, const ops::Heads& heads, const ConstVector& q_weight,
                        const ConstVector& k_weight, double eps, const ConstMatrix& dout, const Matrix& din,
                        const Matrix& dweight);

/// out[m, j] = silu(z[m, 2j]) z[m, 2j + 1]
void swiglu(const ConstMatrix& z, const Matrix& out);
void swiglu_backward(const ConstMatrix& z, const ConstMatrix& dout, const Matrix& dz);

/// lse[m] = log sum exp(logits[m]); loss[m] = lse[m] - logits[m, target[m]]
void cross_entropy(const ConstMatrix& logits, const ConstVector& target, const Vector& lse, const Vector& loss);
/// dlogits = exp(logits - lse), less 1 at the target; may be in place.
void cross_entropy_backward(const ConstMatrix& logits, const ConstVector& target, const ConstVector& lse,
                            const Matrix& dlogits);

/// Rows that one partial sum of a weight gradient covers.
inline constexpr std::int64_t kRowBlock = 256;
constexpr std::int64_t row_blocks(std::int64_t rows) { return (rows + kRowBlock - 1) / kRowBlock; }

}  // namespace coda::nn::passes
