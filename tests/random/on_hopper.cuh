// A random program for Hopper: in a fused kernel, if it has a store that such a kernel needs, and behind cuBLASLt's
// product.
#pragma once

#include "coda/backend/sm90/gemm.cuh"

#define CODA_RANDOM_ON_HOPPER(Program)                                   \
  template <>                                                            \
  inline constexpr bool coda::sm90::kFused<Program<coda::bf16, float>> = \
      coda::sm90::kCarriedStore<Program<coda::bf16, float>>.port >= 0;   \
  template struct coda::sm90::Product<coda::bf16, Program<coda::bf16, float>>;
