#include "coda/backend/sm90/gemm.cuh"
#include "tests/gpu/own_programs.h"

template struct coda::sm90::Product<coda::bf16, coda::test::HalfWidth<coda::bf16>>;
template struct coda::sm90::Product<coda::bf16, coda::test::HalfWidth<float>>;
template struct coda::sm90::Product<coda::bf16, coda::test::ManyLoads<coda::bf16>>;
template struct coda::sm90::Product<coda::bf16, coda::test::ManyLoads<float>>;
template struct coda::sm90::Elementwise<coda::test::HalfWidth<float>>;
