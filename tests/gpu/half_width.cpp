#include "tests/gpu/half_width.h"

#include "coda/backend/sm90/run.h"

#if !defined(CODA_TEST_CUDA)  // else in half_width.cu
template <>
void coda::sm90::Product<coda::bf16, coda::test::HalfWidth<coda::bf16>>::run(const ConstMatrix&, const ConstMatrix&,
                                                                             Layout, const test::HalfWidth<bf16>&,
                                                                             void*, const char* op) {
  throw Error(Status::unsupported, std::string(op) + ": expected a build with CUDA");
}
#endif
