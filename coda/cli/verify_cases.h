// How `coda verify` runs each entry of the catalog; see verify_case.h.
#pragma once

#include <utility>

#include "coda/cli/verify_case.h"

namespace coda::cli {

/// The library's and the reference's names of one function.
inline constexpr std::pair<ops::Activation, reference::Activation> kActivationPairs[] = {
    {ops::Activation::identity, reference::Activation::identity},
    {ops::Activation::silu, reference::Activation::silu},
    {ops::Activation::gelu_erf, reference::Activation::gelu},
    {ops::Activation::gelu_tanh, reference::Activation::gelu_tanh},
    {ops::Activation::relu, reference::Activation::relu},
    {ops::Activation::relu_squared, reference::Activation::relu2}};

void verify_gemm(VerifyCase& c);
void verify_gemm_residual_rms(VerifyCase& c);
void verify_gemm_residual_layernorm(VerifyCase& c);
void verify_embedding(VerifyCase& c);
void verify_gemm_rms(VerifyCase& c);
void verify_gemm_layernorm(VerifyCase& c);
void verify_gemm_rms_swiglu(VerifyCase& c);
void verify_gemm_rms_geglu_erf(VerifyCase& c);
void verify_gemm_rms_geglu_tanh(VerifyCase& c);
void verify_gemm_rms_reglu(VerifyCase& c);
void verify_gemm_rms_rope(VerifyCase& c);
void verify_gemm_rms_rotate(VerifyCase& c);
void verify_gemm_rms_qknorm_rope(VerifyCase& c);

void verify_gemm_lse(VerifyCase& c);
void verify_linear_cross_entropy(VerifyCase& c);
void verify_cross_entropy_backward(VerifyCase& c);
void verify_linear_cross_entropy_backward(VerifyCase& c);

void verify_gemm_rms_backward(VerifyCase& c);
void verify_gemm_layernorm_backward(VerifyCase& c);
void verify_gemm_swiglu_backward(VerifyCase& c);
void verify_gemm_geglu_erf_backward(VerifyCase& c);
void verify_gemm_geglu_tanh_backward(VerifyCase& c);
void verify_gemm_reglu_backward(VerifyCase& c);
void verify_gemm_activation_backward(VerifyCase& c);
void verify_rope_backward(VerifyCase& c);
void verify_qknorm_rope_backward(VerifyCase& c);

void verify_rms_finalize(VerifyCase& c);
void verify_layernorm_finalize(VerifyCase& c);
void verify_lse_finalize(VerifyCase& c);
void verify_sum_rows(VerifyCase& c);
void verify_sum_columns(VerifyCase& c);
void verify_head_weight_gradient(VerifyCase& c);
void verify_embedding_backward(VerifyCase& c);
void verify_cast(VerifyCase& c);
void verify_squared_norm(VerifyCase& c);
void verify_adamw(VerifyCase& c);

}  // namespace coda::cli
