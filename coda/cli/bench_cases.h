// How `coda bench` runs each entry of the catalog that has a product; see bench_case.h.
#pragma once

#include "coda/cli/bench_case.h"

namespace coda::cli {

void bench_gemm(BenchCase& c);
void bench_gemm_residual_rms(BenchCase& c);
void bench_gemm_residual_layernorm(BenchCase& c);
void bench_gemm_rms(BenchCase& c);
void bench_gemm_layernorm(BenchCase& c);
void bench_gemm_rms_swiglu(BenchCase& c);
void bench_gemm_rms_geglu_erf(BenchCase& c);
void bench_gemm_rms_geglu_tanh(BenchCase& c);
void bench_gemm_rms_reglu(BenchCase& c);
void bench_gemm_rms_rope(BenchCase& c);
void bench_gemm_rms_rotate(BenchCase& c);
void bench_gemm_rms_qknorm_rope(BenchCase& c);
void bench_gemm_lse(BenchCase& c);
void bench_linear_cross_entropy(BenchCase& c);
void bench_gemm_rms_backward(BenchCase& c);
void bench_gemm_layernorm_backward(BenchCase& c);
void bench_gemm_swiglu_backward(BenchCase& c);
void bench_gemm_geglu_erf_backward(BenchCase& c);
void bench_gemm_geglu_tanh_backward(BenchCase& c);
void bench_gemm_reglu_backward(BenchCase& c);
void bench_gemm_activation_backward(BenchCase& c);

}  // namespace coda::cli
