// The programs of the Hopper backend behind plain functions: no CUDA header is needed here or in a caller, and a build
// without CUDA has the same functions, which throw Error(unsupported).
//
// All take row-major device matrices of one 16-bit type T (bf16 or fp16), float vectors of statistics, and a
// cudaStream_t as `stream`. They enqueue one kernel and return; nothing is allocated, and the host waits for nothing.
// Matrices must have 16-byte aligned addresses and rows (8-byte for the half-width output); pitches may exceed widths,
// N and K are multiples of 8. Layout nt: b is (N, K); nn: b is (K, N). M >= 0, N >= 0, K >= 1. Errors:
// Error(invalid_argument) for shapes, types and null pointers, Error(unsupported) for alignment, layout and device,
// Error(device_error) for what CUDA reports.
#pragma once

#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/device.h"
#include "coda/core/error.h"
#include "coda/core/tensor.h"

namespace coda::sm90 {

/// out = z = alpha * A B + beta * c + bias; preact = z.
struct GemmArgs {
  ConstMatrix a = {}, b = {};
  Layout layout = Layout::nt;
  float alpha = 1, beta = 0;
  ConstMatrix c = {};     // (M, N) T, read where beta is not 0
  ConstVector bias = {};  // (N) T, optional
  Matrix preact = {};     // (M, N) T, optional
  Matrix out = {};        // (M, N) T
};
void gemm(const GemmArgs& args, void* stream);

/// x = A B + residual; h = x * weight; sum_of_squares[m, t] = sum of x^2 over block t of kTileN columns.
struct GemmResidualRmsArgs {
  ConstMatrix a = {}, b = {};
  Layout layout = Layout::nt;
  ConstMatrix residual = {};   // (M, N) T; may be x
  ConstVector weight = {};     // (N) T, optional: 1
  Matrix x = {};               // (M, N) T
  Matrix h = {};               // (M, N) T, optional
  Matrix sum_of_squares = {};  // (M, tiles_n(N)) float, optional
};
void gemm_residual_rms(const GemmResidualRmsArgs& args, void* stream);

/// z = rstd[m] * A B; preact = z; out[m, j] = silu(z[m, 2j]) * z[m, 2j + 1].
struct GemmRmsSwigluArgs {
  ConstMatrix a = {}, b = {};
  Layout layout = Layout::nt;
  ConstVector rstd = {};  // (M) float, optional: 1
  Matrix preact = {};     // (M, N) T, optional
  Matrix out = {};        // (M, N / 2) T
};
void gemm_rms_swiglu(const GemmRmsSwigluArgs& args, void* stream);

/// dY = A B; (dpreact, out, zdz) = SwiGLU's backward at z = preact, its value, and
/// zdz[m, t] = sum of z dpreact over block t of kTileN columns of dY.
struct GemmSwigluBackwardArgs {
  ConstMatrix a = {}, b = {};
  Layout layout = Layout::nt;
  ConstMatrix preact = {};  // (M, 2N) T
  Matrix dpreact = {};      // (M, 2N) T; may be preact
  Matrix out = {};          // (M, N) T, optional
  Matrix zdz = {};          // (M, tiles_n(N)) float, optional
};
void gemm_swiglu_backward(const GemmSwigluBackwardArgs& args, void* stream);

}  // namespace coda::sm90
