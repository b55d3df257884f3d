// Compiles the programs for Hopper; operators.cpp calls them, and needs no CUDA header.
#include "coda/backend/sm90/gemm.cuh"
#include "gpt_oss.h"

template struct coda::sm90::Product<coda::bf16, gpt_oss::Forward<coda::bf16>>;
template struct coda::sm90::Product<coda::bf16, gpt_oss::Backward<coda::bf16>>;
