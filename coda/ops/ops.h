// The checked calls: one for each program of CODA. Every argument is checked (shape, dtype, pitch, alignment, null,
// overlap, numbers that are not finite in the type that is computed in) before anything is computed or written; what is
// wrong is told by an Error "operation: argument: expected ..., got ...".
//
// Conventions. Matrices are row-major views with a pitch; M rows are tokens. T is the dtype of the operands `a` and `b`
// (bf16, fp16, fp32 or fp64) and of every matrix and weight vector that is not said to be a statistic; statistics are
// fp32 (fp64 if T is fp64) and partial ones have shape (M, tiles_n(N)) or (tiles_m(M), N). A view without
// data, such as a default-made one, means that an optional argument is not given. Inputs that the epilogue reads
// element by element (residual, saved pre-activations, gradients) may be overwritten in place by an output of the same
// shape; nothing else may overlap. Tokens, targets and positions are checked on the CPU. On a device they are not
// looked at before the kernel runs: one that is out of range is skipped there or gives NaN (a target: a loss of NaN and
// no gradient), and nothing outside of the arguments is read or written. bf16 below the smallest normal number may be
// read as 0 by a product, and stored as 0, where the CPU has instructions for bf16. The caller's fenv plays no part.
//
// Running. A call on the CPU has ended when it returns; it uses OpenMP's threads (omp_set_num_threads, OMP_NUM_THREADS;
// GCC's ends the program if it gets none), in a parallel region or a child forked behind a call only the caller's. A
// call on sm90 is enqueued on its stream (null: the legacy default stream) and returns: it does not wait, and an error
// while it runs is CUDA's to tell at the next synchronisation. Any number of host threads may call at once, on any
// streams; the caller's own work on a stream keeps its order with the calls. No call may come from the destructor of a
// static object: what a thread keeps is gone then. In C and C++ the memory must be of the thread's current device; its
// primary context is used, and must not be reset. Calls can be captured in a CUDA graph. Where one needs memory between
// its kernels it takes it from a stream-ordered pool of the library's own, which keeps what it has: up to 18 MB for a
// product whose last round of tiles is split, up to 32 MB for one of cuBLASLt's, some 256 MB where a program runs
// unfused behind a product (`coda info --explain` tells which), and what a call's own comment says. A call of several
// kernels asks for it as it goes: where memory ends, the first of them may have run. In a graph such memory is a node,
// so that the graph can be no child graph and no body of a conditional node, and has one executable at a time.
//
// Formulas are those of the CODA paper (arXiv 2605.19269) unless said otherwise.
#pragma once

#include "coda/core/error.h"
#include "coda/core/tensor.h"

namespace coda::ops {

enum class Backend : std::uint8_t { cpu, sm90 };

/// Where a call runs. On sm90 pointers are device pointers and `stream` is a cudaStream_t.
struct Target {
  Backend backend = Backend::cpu;
  void* stream = nullptr;
};

enum class Activation : std::uint8_t { identity, silu, gelu_erf, gelu_tanh, relu, relu_squared };
enum class Glu : std::uint8_t { swiglu, geglu_erf, geglu_tanh, reglu };
const char* name_of(Activation f);
const char* name_of(Glu f);

/// Number of column (row) blocks that a partial result over n columns (m rows) has on a backend; 0 if there is no such.
std::int64_t tiles_n(std::int64_t n, Backend backend = Backend::cpu);
std::int64_t tiles_m(std::int64_t m, Backend backend = Backend::cpu);

/// The normalisation whose scale was folded behind a product (z is what it gives).
/// none:       nothing given          z = acc
/// RMSNorm:    rstd                   z = rstd[m] acc
/// LayerNorm:  rstd, mean, u, c       z = rstd[m] (acc - mean[m] u[n]) + c[n],  u = W w, c = W b
/// rstd and mean are (M) statistics, u and c (N) of the statistics' dtype.
struct Norm {
  ConstVector rstd = {}, mean = {}, u = {}, c = {};
};

/// Row terms that a backward program reduces for the norm before its layer: zdz (M, tiles_n) = sum of dz z, or with a
/// LayerNorm zdz = sum of dz (z - c) and udz = sum of dz u.
struct NormDot {
  Matrix zdz = {}, udz = {};
  ConstVector u = {}, c = {};
};

// ---- forward

/// out = f(alpha a b + beta c + bias); preact (optional) is the value before f. out, c and preact (M, N) have one
/// dtype: T, or fp32 where T is a 16-bit type; bias (N) has T.
struct Gemm {
  ConstMatrix a, b;
  Layout layout = Layout::nt;
  double alpha = 1, beta = 0;
  ConstMatrix c = {};
  ConstVector bias = {};
  Activation activation = Activation::identity;
  Matrix preact = {}, out = {};
  Target on = {};
};
void gemm(const Gemm& args);

/// x = a b + residual; h = x weight (optional); and statistics of x for the next norm: sum_sq (M, tiles_n) for RMSNorm,
/// or mean and m2 (M, tiles_n), of one pitch: mean and sum of squared deviations inside each tile, for LayerNorm.
struct GemmResidual {
  ConstMatrix a, b;
  Layout layout = Layout::nt;
  ConstMatrix residual = {};
  ConstVector weight = {};
  Matrix x = {}, h = {};
  Matrix sum_sq = {}, mean = {}, m2 = {};
  Target on = {};
};
void gemm_residual(const GemmResidual& args);

/// x[m] = table[token[m]] (table (V, N), token (M) int32 or int64 in [0, V)), and h and statistics as in gemm_residual.
struct Embedding {
  ConstMatrix table;
  ConstVector token, weight = {};
  Matrix x = {}, h = {};
  Matrix sum_sq = {}, mean = {}, m2 = {};
  Target on = {};
};
void embedding(const Embedding& args);

/// rstd[m] = 1 / sqrt(sum_t sum_sq[m, t] / n + eps); n is the width of the normalised rows.
struct RmsFinalize {
  ConstMatrix sum_sq;
  std::int64_t n = 0;
  double eps = 1e-5;
  Vector rstd = {};
  Target on = {};
};
void rms_finalize(const RmsFinalize& args);

/// mean[m] and rstd[m] = 1 / sqrt(var + eps) from the tiles' means and m2 (merged as in Chan, Golub, LeVeque 1979).
struct LayerNormFinalize {
  ConstMatrix tile_mean, tile_m2;
  std::int64_t n = 0;
  double eps = 1e-5;
  Vector mean = {}, rstd = {};
  Target on = {};
};
void layernorm_finalize(const LayerNormFinalize& args);

/// z = norm(a b); out = f(z) (M, N); preact (optional) = z.
struct GemmNorm {
  ConstMatrix a, b;
  Layout layout = Layout::nt;
  Norm norm = {};
  Activation activation = Activation::identity;
  Matrix preact = {}, out = {};
  Target on = {};
};
void gemm_norm(const GemmNorm& args);

/// z = norm(a b) (M, 2F); out[m, j] = act(z[m, 2j]) z[m, 2j+1] (M, F); preact (optional) = z. Weight rows are
/// interleaved gate 0, up 0, gate 1, up 1, ... (Shazeer, arXiv 2002.05202).
struct GemmNormGlu {
  ConstMatrix a, b;
  Layout layout = Layout::nt;
  Norm norm = {};
  Glu function = Glu::swiglu;
  Matrix preact = {}, out = {};
  Target on = {};
};
void gemm_norm_glu(const GemmNormGlu& args);

/// Head layout of a QKV projection and its rotary angles. Columns are q heads, k heads, v heads, head_dim each (even,
/// at most 512). Pair j of a q or k head is its columns 2j and 2j+1. Weights of models that rotate halves, as Hugging
/// Face's LLaMA and Qwen3 do, are to be permuted: row 2j of a head is its row j there, row 2j+1 its row j + head_dim/2,
/// and so are the weights of QK-norm. table (positions, head_dim) holds cos and sin of pair j at columns 2j and 2j+1
/// (of a model that scales attention by them, such as YaRN, both scaled), of the statistics' dtype, with a pitch of
/// head_dim (on sm90 at a multiple of 8 bytes); position (M) is int32 or int64 in [0, positions), absent: the row's
/// number. See rotary_table and rotary_table_from.
struct Heads {
  std::int64_t q = 0, k = 0, v = 0, head_dim = 0;
  ConstMatrix table = {};
  ConstVector position = {};
};

/// Fills a table (positions, head_dim) in host memory, fp32 or fp64, for Heads (to be copied to the device for sm90):
/// angle of pair j at p is p theta^(-2j / head_dim) (Su et al., arXiv 2104.09864), computed in fp64 and exact to fp32
/// at any position.
void rotary_table(Matrix table, double theta);

/// The same of any angles: p frequency[j] (head_dim / 2, fp64, in host memory), and of their cos and sin times scale.
/// Models that stretch their angles for longer texts have such ones (YaRN: Peng et al., arXiv 2309.00071).
void rotary_table_from(Matrix table, ConstVector frequency, double scale);

/// z = norm(a b) (M, (q+k+v) head_dim); out: q and k heads rotated pairwise, v heads as they are.
struct GemmNormRope {
  ConstMatrix a, b;
  Layout layout = Layout::nt;
  Norm norm = {};
  Heads heads = {};
  Matrix out = {};
  Target on = {};
};
void gemm_norm_rope(const GemmNormRope& args);

/// z = norm(a b) (M, N); preact (optional) = z; pairs of columns 2j and 2j+1 of out are (z0 cos + z1 sin, z1 cos - z0
/// sin), rotated by minus the angle whose cos and sin are columns 2j and 2j+1 of angle (M, N), of T. This is the
/// rotary embedding of the paper's own kernels; gemm_norm_rope, whose angles are a table, has far less to read.
struct GemmNormRotate {
  ConstMatrix a, b;
  Layout layout = Layout::nt;
  Norm norm = {};
  ConstMatrix angle = {};
  Matrix preact = {}, out = {};
  Target on = {};
};
void gemm_norm_rotate(const GemmNormRotate& args);

/// As gemm_norm_rope with an RMSNorm of each q and k head (weights q_weight, k_weight (head_dim)) before the rotation;
/// preact (optional, needed by the backward) = z.
struct GemmNormQkNormRope {
  ConstMatrix a, b;
  Layout layout = Layout::nt;
  Norm norm = {};
  Heads heads = {};
  ConstVector q_weight = {}, k_weight = {};
  double eps = 1e-6;
  Matrix preact = {}, out = {};
  Target on = {};
};
void gemm_norm_qknorm_rope(const GemmNormQkNormRope& args);

// ---- loss

/// l = scale z, or cap tanh(scale z / cap) where cap is not 0.
struct LogitTransform {
  double scale = 1, cap = 0;
};

/// z = norm(a b) (M, V), l = transform(z); of each row and tile max and sum of exp(l - max), (M, tiles_n), of one
/// pitch; optionally the row sums of l (for label smoothing), preact = z and logits = l (M, V). Where preact is given,
/// l is that of z as it is stored there, rounded to its dtype: what cross_entropy_backward makes of preact is then the
/// gradient of this loss. Of logits alone it would not be: lse is that of more exact ones. target (M), int32 or int64:
/// the target's logit goes to target_logit (M); rows whose target is outside of the block are left as they are.
/// `first_column` is the vocabulary index of column 0 where b is a block of the vocabulary.
struct GemmLse {
  ConstMatrix a, b;
  Layout layout = Layout::nt;
  Norm norm = {};
  LogitTransform transform = {};
  ConstVector target = {};
  std::int64_t ignore_index = -100, first_column = 0;
  std::int64_t vocabulary = 0;  // that targets are in; 0: first_column + V, so that none may lie behind this block
  Matrix preact = {}, logits = {};
  Matrix max = {}, sum = {}, logit_sum = {};
  Vector target_logit = {};
  Target on = {};
};
void gemm_lse(const GemmLse& args);

/// Options of the cross-entropy: loss[m] = (1 - s)(lse - l[target]) + s (lse - mean(l)) + zeta lse^2; 0 where the
/// target is ignore_index. s: label smoothing; zeta: z-loss (PaLM, arXiv 2204.02311).
struct CrossEntropy {
  double label_smoothing = 0, z_loss = 0;
  std::int64_t ignore_index = -100;
};

/// lse[m] = log sum exp over the tiles; loss[m] as in CrossEntropy. logit_sum is needed with label smoothing only.
/// vocabulary, the number of a row's logits, is needed with label smoothing, and what targets are checked by if given.
/// The partial results may have any number of tiles (those of several blocks of the vocabulary side by side).
struct LseFinalize {
  ConstMatrix max, sum, logit_sum = {};
  ConstVector target = {}, target_logit = {};
  std::int64_t vocabulary = 0;
  CrossEntropy options = {};
  Vector lse = {}, loss = {};  // loss optional; needs target and target_logit
  Target on = {};
};
void lse_finalize(const LseFinalize& args);

/// Cross-entropy of norm(a b^T) against target: writes lse and loss (M), the latter optional, holds few logits at a
/// time: one tile for each thread or, on Hopper where no fused kernel runs, 256 MiB of them at most, and two or, with
/// label smoothing, three partial results, (M, tiles_n(V)) each. weight (V, K).
struct LinearCrossEntropy {
  ConstMatrix a, weight;
  Norm norm = {};
  LogitTransform transform = {};
  ConstVector target = {};
  CrossEntropy options = {};
  Vector lse = {}, loss = {};
  Target on = {};
};
void linear_cross_entropy(const LinearCrossEntropy& args);

/// Its backward, a block of the vocabulary at a time: dloss (M) is the gradient of each row's loss (0 for ignored rows
/// is not needed: they contribute nothing). Writes da (M, K) = dz W of dtype T, adds dz^T h to dweight (V, K), fp32 (or
/// fp64) or T, optional, and writes the row terms of the norm, sums over the vocabulary as those of NormDot over tiles:
/// row_dot (M) = sum of dz z, or of dz (z - norm.c) behind a LayerNorm, which has row_udz (M) = sum of dz norm.u too
/// (both optional). `h` is the operand of the weight gradient: a itself without a norm, the normalised x with one.
/// Holds at most `chunk` columns of dz, da in fp32, and the partial row terms, (M, tiles) each.
struct LinearCrossEntropyBackward {
  ConstMatrix a, weight, h = {};
  Norm norm = {};
  LogitTransform transform = {};
  ConstVector target = {}, lse = {}, dloss = {};
  CrossEntropy options = {};
  std::int64_t chunk = 4096;
  Matrix da = {}, dweight = {};
  Vector row_dot = {}, row_udz = {};
  Target on = {};
};
void linear_cross_entropy_backward(const LinearCrossEntropyBackward& args);

// ---- backward

/// Backward of the linear layer behind an RMSNorm. acc = a b = dZ W = dH; x (M, N) the saved residual stream, rstd its
/// statistic, weight (N) the norm's, row_term[m] = sum(zdz) / N; dx_in (optional) the gradient from the residual
/// branch. dx = dx_in + rstd (dH weight - x rstd row_term); h = x rstd weight (optional); dweight (tiles_m, N)
/// (optional): the sums of dH x rstd over the rows of each tile, for sum_columns.
struct GemmRmsBackward {
  ConstMatrix a, b;
  Layout layout = Layout::nn;
  ConstMatrix x = {}, dx_in = {};
  ConstVector rstd = {}, row_term = {}, weight = {};
  Matrix dx = {}, h = {}, dweight = {};
  Target on = {};
};
void gemm_rms_backward(const GemmRmsBackward& args);

/// Behind a LayerNorm: zdz and udz (M) are the row sums of NormDot divided by N. n = (x - mean) rstd:
/// dx = dx_in + rstd (dH weight - udz - n zdz); h = n weight + bias; dweight, dbias (tiles_m, N).
/// dx_in, h, dweight and dbias are optional.
struct GemmLayerNormBackward {
  ConstMatrix a, b;
  Layout layout = Layout::nn;
  ConstMatrix x = {}, dx_in = {};
  ConstVector rstd = {}, mean = {}, zdz = {}, udz = {}, weight = {}, bias = {};
  Matrix dx = {}, h = {}, dweight = {}, dbias = {};
  Target on = {};
};
void gemm_layernorm_backward(const GemmLayerNormBackward& args);

/// acc = a b = dY (M, F) of a gated activation whose preact (M, 2F) was saved: dpreact (M, 2F), out = y again
/// (optional), and the row terms (optional). Derivatives are derived from the forward function.
struct GemmGluBackward {
  ConstMatrix a, b;
  Layout layout = Layout::nn;
  Glu function = Glu::swiglu;
  ConstMatrix preact = {};
  Matrix dpreact = {}, out = {};
  NormDot dot = {};
  Target on = {};
};
void gemm_glu_backward(const GemmGluBackward& args);

/// The same for a plain activation; preact, dpreact and out are (M, N).
struct GemmActivationBackward {
  ConstMatrix a, b;
  Layout layout = Layout::nn;
  Activation activation = Activation::silu;
  ConstMatrix preact = {};
  Matrix dpreact = {}, out = {};
  NormDot dot = {};
  Target on = {};
};
void gemm_activation_backward(const GemmActivationBackward& args);

/// dz = R^T dy of gemm_norm_rope, from its output y and dy (M, N); in place if dz is dy.
struct RopeBackward {
  ConstMatrix y, dy;
  Heads heads = {};
  Matrix dz = {};
  NormDot dot = {};
  Target on = {};
};
void rope_backward(const RopeBackward& args);

/// Column blocks of the partial results of qknorm_rope_backward, whose blocks are whole heads. Throws
/// Error(invalid_argument) if head_dim is less than 1, or there is no such backend.
std::int64_t head_tiles_n(std::int64_t n, std::int64_t head_dim, Backend backend = Backend::cpu);

/// Backward of gemm_norm_qknorm_rope from its preact and dy. dot's partial results have head_tiles_n columns. dweight
/// (optional): (tiles_m, N), per column; summing it over rows and heads (head_weight_gradient) gives the gradients of
/// q_weight and k_weight.
struct QkNormRopeBackward {
  ConstMatrix preact, dy;
  Heads heads = {};
  ConstVector q_weight = {}, k_weight = {};
  double eps = 1e-6;
  Matrix dz = {}, dweight = {};
  NormDot dot = {};
  Target on = {};
};
void qknorm_rope_backward(const QkNormRopeBackward& args);

/// dz of the loss of CrossEntropy, from the stored preact of gemm_lse (equal to the logits if transform does nothing)
/// and lse; dloss (M), the gradient of each row's loss. In place if dz is preact. Rows with ignore_index get 0.
struct CrossEntropyBackward {
  ConstMatrix preact;
  LogitTransform transform = {};
  ConstVector target = {}, lse = {}, dloss = {};
  CrossEntropy options = {};
  Matrix dz = {};
  NormDot dot = {};
  Target on = {};
};
void cross_entropy_backward(const CrossEntropyBackward& args);

// ---- small reductions around the programs

/// out[m] = scale * sum_t partial[m, t], in a fixed order.
struct SumRows {
  ConstMatrix partial;
  double scale = 1;
  Vector out = {};
  Target on = {};
};
void sum_rows(const SumRows& args);

/// out[n] = beta * out[n] + sum_t partial[t, n], in a fixed order. beta 0 or 1.
struct SumColumns {
  ConstMatrix partial;
  double beta = 0;
  Vector out = {};
  Target on = {};
};
void sum_columns(const SumColumns& args);

/// dq_weight[d] and dk_weight[d] = beta * itself + the sum of partial (tiles_m, N) over its rows and heads. beta 0
/// or 1.
struct HeadWeightGradient {
  ConstMatrix partial;
  Heads heads = {};
  double beta = 0;
  Vector dq_weight = {}, dk_weight = {};
  Target on = {};
};
void head_weight_gradient(const HeadWeightGradient& args);

/// dtable[token[m]] += dx[m], in an order that depends on the tokens alone; dtable (V, N) is fp32 (or fp64). On sm90
/// rows whose token is not in [0, V) are skipped, and sorting takes some 16 bytes a row and two rows of fp32 for
/// each 32.
struct EmbeddingBackward {
  ConstMatrix dx;
  ConstVector token = {};
  Matrix dtable = {};
  Target on = {};
};
void embedding_backward(const EmbeddingBackward& args);

// ---- optimiser and conversions

/// out = in, element by element, rounded once to out's dtype. fp64 on the CPU only.
struct Cast {
  ConstMatrix in;
  Matrix out = {};
  Target on = {};
};
void cast(const Cast& args);

/// out[0] = beta * out[0] + sum of x^2. One call for each gradient, the first with beta = 0 and the others with 1,
/// gives the sum over all of them. out is one fp64.
struct SquaredNorm {
  ConstVector x;
  double beta = 0;
  Vector out = {};
  Target on = {};
};
void squared_norm(const SquaredNorm& args);

/// One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101) on master weights and moments of fp32 (or fp64 on the
/// CPU), all of one size; `weight` (optional) gets the new master, rounded to its dtype. With g = gradient_scale
/// gradient:
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
///   master = master (1 - rate weight_decay) - rate (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps).
/// squared_norm (optional), one fp64 from squared_norm over all gradients: g is scaled down to a global norm of
/// clip_norm (0: no limit), and nothing is changed where the norm is not finite. It is read on the device; nothing
/// waits for it.
struct AdamW {
  Vector master, m, v;
  Vector weight = {};
  ConstVector gradient = {};
  double rate = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  std::int64_t step = 1;  // from 1 on
  double gradient_scale = 1;
  ConstVector squared_norm = {};
  double clip_norm = 0;
  Target on = {};
};
void adamw(const AdamW& args);

}  // namespace coda::ops
