#include "coda/backend/sm90/gemm.cuh"
#include "own_program.h"

void run_on_hopper(coda::MatrixOf<const coda::bf16> x, coda::MatrixOf<const coda::bf16> w,
                   const TanhColumnSums& program) {
  coda::sm90::gemm<coda::bf16>(x, w, program);
}
