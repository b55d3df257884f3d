// The checked calls: one for each program of CODA. Made from coda/ops/ops.h by scripts/c_api.py, with its comments:
// they name the structs of C++ (GemmNorm is coda_gemm_norm_args here), and an Error there is a status other than
// CODA_OK here, with its message in coda_last_error.
//
// `coda_..._defaults()` is a struct whose options are off and whose views are absent. Every argument of a call (shape,
// dtype, pitch, alignment, null, overlap) is checked before anything is computed or written.
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

#include "coda/c/core.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint8_t coda_backend;
enum { CODA_BACKEND_CPU, CODA_BACKEND_SM90 };

/// Where a call runs. On sm90 pointers are device pointers and `stream` is a cudaStream_t.
typedef struct coda_target {
  coda_backend backend;
  void* stream;
} coda_target;

typedef uint8_t coda_activation;
enum {
  CODA_ACTIVATION_IDENTITY,
  CODA_ACTIVATION_SILU,
  CODA_ACTIVATION_GELU_ERF,
  CODA_ACTIVATION_GELU_TANH,
  CODA_ACTIVATION_RELU,
  CODA_ACTIVATION_RELU_SQUARED
};
typedef uint8_t coda_glu;
enum { CODA_GLU_SWIGLU, CODA_GLU_GEGLU_ERF, CODA_GLU_GEGLU_TANH, CODA_GLU_REGLU };

/// Number of column (row) blocks that a partial result over n columns (m rows) has on a backend; 0 if there is no such.
int64_t coda_tiles_n(int64_t n, coda_backend backend);
int64_t coda_tiles_m(int64_t m, coda_backend backend);

/// The normalisation whose scale was folded behind a product (z is what it gives).
/// none:       nothing given          z = acc
/// RMSNorm:    rstd                   z = rstd[m] acc
/// LayerNorm:  rstd, mean, u, c       z = rstd[m] (acc - mean[m] u[n]) + c[n],  u = W w, c = W b
/// rstd and mean are (M) statistics, u and c (N) of the statistics' dtype.
typedef struct coda_norm {
  coda_const_vector rstd, mean, u, c;
} coda_norm;

/// Row terms that a backward program reduces for the norm before its layer: zdz (M, tiles_n) = sum of dz z, or with a
/// LayerNorm zdz = sum of dz (z - c) and udz = sum of dz u.
typedef struct coda_norm_dot {
  coda_matrix zdz, udz;
  coda_const_vector u, c;
} coda_norm_dot;

// ---- forward

/// out = f(alpha a b + beta c + bias); preact (optional) is the value before f. out, c and preact (M, N) have one
/// dtype: T, or fp32 where T is a 16-bit type; bias (N) has T.
typedef struct coda_gemm_args {
  coda_const_matrix a, b;
  coda_layout layout;
  double alpha, beta;  // alpha 1 by default
  coda_const_matrix c;
  coda_const_vector bias;
  coda_activation activation;
  coda_matrix preact, out;
  coda_target on;
} coda_gemm_args;
coda_gemm_args coda_gemm_defaults(void);
coda_status coda_gemm(const coda_gemm_args* args);

/// x = a b + residual; h = x weight (optional); and statistics of x for the next norm: sum_sq (M, tiles_n) for RMSNorm,
/// or mean and m2 (M, tiles_n), of one pitch: mean and sum of squared deviations inside each tile, for LayerNorm.
typedef struct coda_gemm_residual_args {
  coda_const_matrix a, b;
  coda_layout layout;
  coda_const_matrix residual;
  coda_const_vector weight;
  coda_matrix x, h;
  coda_matrix sum_sq, mean, m2;
  coda_target on;
} coda_gemm_residual_args;
coda_gemm_residual_args coda_gemm_residual_defaults(void);
coda_status coda_gemm_residual(const coda_gemm_residual_args* args);

/// x[m] = table[token[m]] (table (V, N), token (M) int32 or int64 in [0, V)), and h and statistics as in gemm_residual.
typedef struct coda_embedding_args {
  coda_const_matrix table;
  coda_const_vector token, weight;
  coda_matrix x, h;
  coda_matrix sum_sq, mean, m2;
  coda_target on;
} coda_embedding_args;
coda_embedding_args coda_embedding_defaults(void);
coda_status coda_embedding(const coda_embedding_args* args);

/// rstd[m] = 1 / sqrt(sum_t sum_sq[m, t] / n + eps); n is the width of the normalised rows.
typedef struct coda_rms_finalize_args {
  coda_const_matrix sum_sq;
  int64_t n;
  double eps;  // 1e-5 by default
  coda_vector rstd;
  coda_target on;
} coda_rms_finalize_args;
coda_rms_finalize_args coda_rms_finalize_defaults(void);
coda_status coda_rms_finalize(const coda_rms_finalize_args* args);

/// mean[m] and rstd[m] = 1 / sqrt(var + eps) from the tiles' means and m2 (merged as in Chan, Golub, LeVeque 1979).
typedef struct coda_layernorm_finalize_args {
  coda_const_matrix tile_mean, tile_m2;
  int64_t n;
  double eps;  // 1e-5 by default
  coda_vector mean, rstd;
  coda_target on;
} coda_layernorm_finalize_args;
coda_layernorm_finalize_args coda_layernorm_finalize_defaults(void);
coda_status coda_layernorm_finalize(const coda_layernorm_finalize_args* args);

/// z = norm(a b); out = f(z) (M, N); preact (optional) = z.
typedef struct coda_gemm_norm_args {
  coda_const_matrix a, b;
  coda_layout layout;
  coda_norm norm;
  coda_activation activation;
  coda_matrix preact, out;
  coda_target on;
} coda_gemm_norm_args;
coda_gemm_norm_args coda_gemm_norm_defaults(void);
coda_status coda_gemm_norm(const coda_gemm_norm_args* args);

/// z = norm(a b) (M, 2F); out[m, j] = act(z[m, 2j]) z[m, 2j+1] (M, F); preact (optional) = z. Weight rows are
/// interleaved gate 0, up 0, gate 1, up 1, ... (Shazeer, arXiv 2002.05202).
typedef struct coda_gemm_norm_glu_args {
  coda_const_matrix a, b;
  coda_layout layout;
  coda_norm norm;
  coda_glu function;
  coda_matrix preact, out;
  coda_target on;
} coda_gemm_norm_glu_args;
coda_gemm_norm_glu_args coda_gemm_norm_glu_defaults(void);
coda_status coda_gemm_norm_glu(const coda_gemm_norm_glu_args* args);

/// Head layout of a QKV projection and its rotary angles. Columns are q heads, k heads, v heads, head_dim each (even,
/// at most 512). Pair j of a q or k head is its columns 2j and 2j+1. Weights of models that rotate halves, as Hugging
/// Face's LLaMA and Qwen3 do, are to be permuted: row 2j of a head is its row j there, row 2j+1 its row j + head_dim/2,
/// and so are the weights of QK-norm. table (positions, head_dim) holds cos and sin of pair j at columns 2j and 2j+1
/// (of a model that scales attention by them, such as YaRN, both scaled), of the statistics' dtype, with a pitch of
/// head_dim (on sm90 at a multiple of 8 bytes); position (M) is int32 or int64 in [0, positions), absent: the row's
/// number. See rotary_table and rotary_table_from.
typedef struct coda_heads {
  int64_t q, k, v, head_dim;
  coda_const_matrix table;
  coda_const_vector position;
} coda_heads;

/// Fills a table (positions, head_dim) in host memory, fp32 or fp64, for Heads (to be copied to the device for sm90):
/// angle of pair j at p is p theta^(-2j / head_dim) (Su et al., arXiv 2104.09864), computed in fp64 and exact to fp32
/// at any position.
coda_status coda_rotary_table(coda_matrix table, double theta);

/// The same of any angles: p frequency[j] (head_dim / 2, fp64, in host memory), and of their cos and sin times scale.
/// Models that stretch their angles for longer texts have such ones (YaRN: Peng et al., arXiv 2309.00071).
coda_status coda_rotary_table_from(coda_matrix table, coda_const_vector frequency, double scale);

/// z = norm(a b) (M, (q+k+v) head_dim); out: q and k heads rotated pairwise, v heads as they are.
typedef struct coda_gemm_norm_rope_args {
  coda_const_matrix a, b;
  coda_layout layout;
  coda_norm norm;
  coda_heads heads;
  coda_matrix out;
  coda_target on;
} coda_gemm_norm_rope_args;
coda_gemm_norm_rope_args coda_gemm_norm_rope_defaults(void);
coda_status coda_gemm_norm_rope(const coda_gemm_norm_rope_args* args);

/// z = norm(a b) (M, N); preact (optional) = z; pairs of columns 2j and 2j+1 of out are (z0 cos + z1 sin, z1 cos - z0
/// sin), rotated by minus the angle whose cos and sin are columns 2j and 2j+1 of angle (M, N), of T. This is the
/// rotary embedding of the paper's own kernels; gemm_norm_rope, whose angles are a table, has far less to read.
typedef struct coda_gemm_norm_rotate_args {
  coda_const_matrix a, b;
  coda_layout layout;
  coda_norm norm;
  coda_const_matrix angle;
  coda_matrix preact, out;
  coda_target on;
} coda_gemm_norm_rotate_args;
coda_gemm_norm_rotate_args coda_gemm_norm_rotate_defaults(void);
coda_status coda_gemm_norm_rotate(const coda_gemm_norm_rotate_args* args);

/// As gemm_norm_rope with an RMSNorm of each q and k head (weights q_weight, k_weight (head_dim)) before the rotation;
/// preact (optional, needed by the backward) = z.
typedef struct coda_gemm_norm_qknorm_rope_args {
  coda_const_matrix a, b;
  coda_layout layout;
  coda_norm norm;
  coda_heads heads;
  coda_const_vector q_weight, k_weight;
  double eps;  // 1e-6 by default
  coda_matrix preact, out;
  coda_target on;
} coda_gemm_norm_qknorm_rope_args;
coda_gemm_norm_qknorm_rope_args coda_gemm_norm_qknorm_rope_defaults(void);
coda_status coda_gemm_norm_qknorm_rope(const coda_gemm_norm_qknorm_rope_args* args);

// ---- loss

/// l = scale z, or cap tanh(scale z / cap) where cap is not 0.
typedef struct coda_logit_transform {
  double scale, cap;  // scale 1 by default
} coda_logit_transform;

/// z = norm(a b) (M, V), l = transform(z); of each row and tile max and sum of exp(l - max), (M, tiles_n), of one
/// pitch; optionally the row sums of l (for label smoothing), preact = z and logits = l (M, V). Where preact is given,
/// l is that of z as it is stored there, rounded to its dtype: what cross_entropy_backward makes of preact is then the
/// gradient of this loss. Of logits alone it would not be: lse is that of more exact ones. target (M), int32 or int64:
/// the target's logit goes to target_logit (M); rows whose target is outside of the block are left as they are.
/// `first_column` is the vocabulary index of column 0 where b is a block of the vocabulary.
typedef struct coda_gemm_lse_args {
  coda_const_matrix a, b;
  coda_layout layout;
  coda_norm norm;
  coda_logit_transform transform;
  coda_const_vector target;
  int64_t ignore_index, first_column;  // ignore_index -100 by default
  int64_t vocabulary;  // that targets are in; 0: first_column + V, so that none may lie behind this block
  coda_matrix preact, logits;
  coda_matrix max, sum, logit_sum;
  coda_vector target_logit;
  coda_target on;
} coda_gemm_lse_args;
coda_gemm_lse_args coda_gemm_lse_defaults(void);
coda_status coda_gemm_lse(const coda_gemm_lse_args* args);

/// Options of the cross-entropy: loss[m] = (1 - s)(lse - l[target]) + s (lse - mean(l)) + zeta lse^2; 0 where the
/// target is ignore_index. s: label smoothing; zeta: z-loss (PaLM, arXiv 2204.02311).
typedef struct coda_cross_entropy {
  double label_smoothing, z_loss;
  int64_t ignore_index;  // -100 by default
} coda_cross_entropy;

/// lse[m] = log sum exp over the tiles; loss[m] as in CrossEntropy. logit_sum is needed with label smoothing only.
/// vocabulary, the number of a row's logits, is needed with label smoothing, and what targets are checked by if given.
/// The partial results may have any number of tiles (those of several blocks of the vocabulary side by side).
typedef struct coda_lse_finalize_args {
  coda_const_matrix max, sum, logit_sum;
  coda_const_vector target, target_logit;
  int64_t vocabulary;
  coda_cross_entropy options;
  coda_vector lse, loss;  // loss optional; needs target and target_logit
  coda_target on;
} coda_lse_finalize_args;
coda_lse_finalize_args coda_lse_finalize_defaults(void);
coda_status coda_lse_finalize(const coda_lse_finalize_args* args);

/// Cross-entropy of norm(a b^T) against target: writes lse and loss (M), the latter optional, holds few logits at a
/// time: one tile for each thread or, on Hopper where no fused kernel runs, 256 MiB of them at most, and two or, with
/// label smoothing, three partial results, (M, tiles_n(V)) each. weight (V, K).
typedef struct coda_linear_cross_entropy_args {
  coda_const_matrix a, weight;
  coda_norm norm;
  coda_logit_transform transform;
  coda_const_vector target;
  coda_cross_entropy options;
  coda_vector lse, loss;
  coda_target on;
} coda_linear_cross_entropy_args;
coda_linear_cross_entropy_args coda_linear_cross_entropy_defaults(void);
coda_status coda_linear_cross_entropy(const coda_linear_cross_entropy_args* args);

/// Its backward, a block of the vocabulary at a time: dloss (M) is the gradient of each row's loss (0 for ignored rows
/// is not needed: they contribute nothing). Writes da (M, K) = dz W of dtype T, adds dz^T h to dweight (V, K), fp32 (or
/// fp64) or T, optional, and writes the row terms of the norm, sums over the vocabulary as those of NormDot over tiles:
/// row_dot (M) = sum of dz z, or of dz (z - norm.c) behind a LayerNorm, which has row_udz (M) = sum of dz norm.u too
/// (both optional). `h` is the operand of the weight gradient: a itself without a norm, the normalised x with one.
/// Holds at most `chunk` columns of dz, da in fp32, and the partial row terms, (M, tiles) each.
typedef struct coda_linear_cross_entropy_backward_args {
  coda_const_matrix a, weight, h;
  coda_norm norm;
  coda_logit_transform transform;
  coda_const_vector target, lse, dloss;
  coda_cross_entropy options;
  int64_t chunk;  // 4096 by default
  coda_matrix da, dweight;
  coda_vector row_dot, row_udz;
  coda_target on;
} coda_linear_cross_entropy_backward_args;
coda_linear_cross_entropy_backward_args coda_linear_cross_entropy_backward_defaults(void);
coda_status coda_linear_cross_entropy_backward(const coda_linear_cross_entropy_backward_args* args);

// ---- backward

/// Backward of the linear layer behind an RMSNorm. acc = a b = dZ W = dH; x (M, N) the saved residual stream, rstd its
/// statistic, weight (N) the norm's, row_term[m] = sum(zdz) / N; dx_in (optional) the gradient from the residual
/// branch. dx = dx_in + rstd (dH weight - x rstd row_term); h = x rstd weight (optional); dweight (tiles_m, N)
/// (optional): the sums of dH x rstd over the rows of each tile, for sum_columns.
typedef struct coda_gemm_rms_backward_args {
  coda_const_matrix a, b;
  coda_layout layout;  // nn by default
  coda_const_matrix x, dx_in;
  coda_const_vector rstd, row_term, weight;
  coda_matrix dx, h, dweight;
  coda_target on;
} coda_gemm_rms_backward_args;
coda_gemm_rms_backward_args coda_gemm_rms_backward_defaults(void);
coda_status coda_gemm_rms_backward(const coda_gemm_rms_backward_args* args);

/// Behind a LayerNorm: zdz and udz (M) are the row sums of NormDot divided by N. n = (x - mean) rstd:
/// dx = dx_in + rstd (dH weight - udz - n zdz); h = n weight + bias; dweight, dbias (tiles_m, N).
/// dx_in, h, dweight and dbias are optional.
typedef struct coda_gemm_layernorm_backward_args {
  coda_const_matrix a, b;
  coda_layout layout;  // nn by default
  coda_const_matrix x, dx_in;
  coda_const_vector rstd, mean, zdz, udz, weight, bias;
  coda_matrix dx, h, dweight, dbias;
  coda_target on;
} coda_gemm_layernorm_backward_args;
coda_gemm_layernorm_backward_args coda_gemm_layernorm_backward_defaults(void);
coda_status coda_gemm_layernorm_backward(const coda_gemm_layernorm_backward_args* args);

/// acc = a b = dY (M, F) of a gated activation whose preact (M, 2F) was saved: dpreact (M, 2F), out = y again
/// (optional), and the row terms (optional). Derivatives are derived from the forward function.
typedef struct coda_gemm_glu_backward_args {
  coda_const_matrix a, b;
  coda_layout layout;  // nn by default
  coda_glu function;
  coda_const_matrix preact;
  coda_matrix dpreact, out;
  coda_norm_dot dot;
  coda_target on;
} coda_gemm_glu_backward_args;
coda_gemm_glu_backward_args coda_gemm_glu_backward_defaults(void);
coda_status coda_gemm_glu_backward(const coda_gemm_glu_backward_args* args);

/// The same for a plain activation; preact, dpreact and out are (M, N).
typedef struct coda_gemm_activation_backward_args {
  coda_const_matrix a, b;
  coda_layout layout;          // nn by default
  coda_activation activation;  // silu by default
  coda_const_matrix preact;
  coda_matrix dpreact, out;
  coda_norm_dot dot;
  coda_target on;
} coda_gemm_activation_backward_args;
coda_gemm_activation_backward_args coda_gemm_activation_backward_defaults(void);
coda_status coda_gemm_activation_backward(const coda_gemm_activation_backward_args* args);

/// dz = R^T dy of gemm_norm_rope, from its output y and dy (M, N); in place if dz is dy.
typedef struct coda_rope_backward_args {
  coda_const_matrix y, dy;
  coda_heads heads;
  coda_matrix dz;
  coda_norm_dot dot;
  coda_target on;
} coda_rope_backward_args;
coda_rope_backward_args coda_rope_backward_defaults(void);
coda_status coda_rope_backward(const coda_rope_backward_args* args);

/// Column blocks of the partial results of qknorm_rope_backward, whose blocks are whole heads. Throws
/// Error(invalid_argument) if head_dim is less than 1, or there is no such backend.
coda_status coda_head_tiles_n(int64_t n, int64_t head_dim, coda_backend backend, int64_t* result);

/// Backward of gemm_norm_qknorm_rope from its preact and dy. dot's partial results have head_tiles_n columns. dweight
/// (optional): (tiles_m, N), per column; summing it over rows and heads (head_weight_gradient) gives the gradients of
/// q_weight and k_weight.
typedef struct coda_qknorm_rope_backward_args {
  coda_const_matrix preact, dy;
  coda_heads heads;
  coda_const_vector q_weight, k_weight;
  double eps;  // 1e-6 by default
  coda_matrix dz, dweight;
  coda_norm_dot dot;
  coda_target on;
} coda_qknorm_rope_backward_args;
coda_qknorm_rope_backward_args coda_qknorm_rope_backward_defaults(void);
coda_status coda_qknorm_rope_backward(const coda_qknorm_rope_backward_args* args);

/// dz of the loss of CrossEntropy, from the stored preact of gemm_lse (equal to the logits if transform does nothing)
/// and lse; dloss (M), the gradient of each row's loss. In place if dz is preact. Rows with ignore_index get 0.
typedef struct coda_cross_entropy_backward_args {
  coda_const_matrix preact;
  coda_logit_transform transform;
  coda_const_vector target, lse, dloss;
  coda_cross_entropy options;
  coda_matrix dz;
  coda_norm_dot dot;
  coda_target on;
} coda_cross_entropy_backward_args;
coda_cross_entropy_backward_args coda_cross_entropy_backward_defaults(void);
coda_status coda_cross_entropy_backward(const coda_cross_entropy_backward_args* args);

// ---- small reductions around the programs

/// out[m] = scale * sum_t partial[m, t], in a fixed order.
typedef struct coda_sum_rows_args {
  coda_const_matrix partial;
  double scale;  // 1 by default
  coda_vector out;
  coda_target on;
} coda_sum_rows_args;
coda_sum_rows_args coda_sum_rows_defaults(void);
coda_status coda_sum_rows(const coda_sum_rows_args* args);

/// out[n] = beta * out[n] + sum_t partial[t, n], in a fixed order. beta 0 or 1.
typedef struct coda_sum_columns_args {
  coda_const_matrix partial;
  double beta;
  coda_vector out;
  coda_target on;
} coda_sum_columns_args;
coda_sum_columns_args coda_sum_columns_defaults(void);
coda_status coda_sum_columns(const coda_sum_columns_args* args);

/// dq_weight[d] and dk_weight[d] = beta * itself + the sum of partial (tiles_m, N) over its rows and heads. beta 0
/// or 1.
typedef struct coda_head_weight_gradient_args {
  coda_const_matrix partial;
  coda_heads heads;
  double beta;
  coda_vector dq_weight, dk_weight;
  coda_target on;
} coda_head_weight_gradient_args;
coda_head_weight_gradient_args coda_head_weight_gradient_defaults(void);
coda_status coda_head_weight_gradient(const coda_head_weight_gradient_args* args);

/// dtable[token[m]] += dx[m], in an order that depends on the tokens alone; dtable (V, N) is fp32 (or fp64). On sm90
/// rows whose token is not in [0, V) are skipped, and sorting takes some 16 bytes a row and two rows of fp32 for
/// each 32.
typedef struct coda_embedding_backward_args {
  coda_const_matrix dx;
  coda_const_vector token;
  coda_matrix dtable;
  coda_target on;
} coda_embedding_backward_args;
coda_embedding_backward_args coda_embedding_backward_defaults(void);
coda_status coda_embedding_backward(const coda_embedding_backward_args* args);

// ---- optimiser and conversions

/// out = in, element by element, rounded once to out's dtype. fp64 on the CPU only.
typedef struct coda_cast_args {
  coda_const_matrix in;
  coda_matrix out;
  coda_target on;
} coda_cast_args;
coda_cast_args coda_cast_defaults(void);
coda_status coda_cast(const coda_cast_args* args);

/// out[0] = beta * out[0] + sum of x^2. One call for each gradient, the first with beta = 0 and the others with 1,
/// gives the sum over all of them. out is one fp64.
typedef struct coda_squared_norm_args {
  coda_const_vector x;
  double beta;
  coda_vector out;
  coda_target on;
} coda_squared_norm_args;
coda_squared_norm_args coda_squared_norm_defaults(void);
coda_status coda_squared_norm(const coda_squared_norm_args* args);

/// One step of AdamW (Loshchilov and Hutter, arXiv 1711.05101) on master weights and moments of fp32 (or fp64 on the
/// CPU), all of one size; `weight` (optional) gets the new master, rounded to its dtype. With g = gradient_scale
/// gradient:
///   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
///   master = master (1 - rate weight_decay) - rate (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps).
/// squared_norm (optional), one fp64 from squared_norm over all gradients: g is scaled down to a global norm of
/// clip_norm (0: no limit), and nothing is changed where the norm is not finite. It is read on the device; nothing
/// waits for it.
typedef struct coda_adamw_args {
  coda_vector master, m, v;
  coda_vector weight;
  coda_const_vector gradient;
  double rate, beta1, beta2, eps, weight_decay;  // beta1 0.9, beta2 0.95, eps 1e-8 by default
  int64_t step;                                  // from 1 on; 1 by default
  double gradient_scale;                         // 1 by default
  coda_const_vector squared_norm;
  double clip_norm;
  coda_target on;
} coda_adamw_args;
coda_adamw_args coda_adamw_defaults(void);
coda_status coda_adamw(const coda_adamw_args* args);

#ifdef __cplusplus
}
#endif
