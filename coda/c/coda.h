// All of the interface for C: the checked calls of coda/ops, for C99 and every language that calls C.
//
//   coda_gemm_args args = coda_gemm_defaults();
//   args.a = coda_const_matrix_of(a, CODA_DTYPE_BF16, m, k);
//   ...
//   if (coda_gemm(&args) != CODA_OK) fprintf(stderr, "%s\n", coda_last_error());
#pragma once

#include "coda/c/core.h"
#include "coda/c/layer.h"
#include "coda/c/ops.h"
