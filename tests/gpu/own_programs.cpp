#include "tests/gpu/own_programs.h"

#include "coda/backend/sm90/run.h"

#if !defined(CODA_TEST_CUDA)  // else in own_programs.cu
template <class T, class P>
void coda::sm90::Product<T, P>::run(const ConstMatrix&, const ConstMatrix&, Layout, const P&, void*, const char* op) {
  throw Error(Status::unsupported, std::string(op) + ": expected a build with CUDA");
}
template <class P>
void coda::sm90::Elementwise<P>::run(std::int64_t, std::int64_t, const P&, void*, const char* op) {
  throw Error(Status::unsupported, std::string(op) + ": expected a build with CUDA");
}
template struct coda::sm90::Product<coda::bf16, coda::test::HalfWidth<coda::bf16>>;
template struct coda::sm90::Product<coda::bf16, coda::test::HalfWidth<float>>;
template struct coda::sm90::Product<coda::bf16, coda::test::ManyLoads<coda::bf16>>;
template struct coda::sm90::Product<coda::bf16, coda::test::ManyLoads<float>>;
template struct coda::sm90::Elementwise<coda::test::HalfWidth<float>>;
#endif
