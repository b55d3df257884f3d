#include "coda/backend/sm90/gemm.cuh"
#include "tests/gpu/own_programs.h"

namespace coda::sm90 {

// Between them the copy engine brings loads, threads ask ahead for some, and load others where they use them.
template <class T>
using Many = coda::test::ManyLoads<T>;
static_assert(kCarriedLoads<Many<bf16>, 0>.count == 3 && kCarriedLoads<Many<float>, 0>.count == 1);
static_assert(asks_ahead<Many<bf16>, 0>(4) && !asks_ahead<Many<bf16>, 0>(5) && !asks_ahead<Many<bf16>, 0>(6));
static_assert(asks_ahead<Many<float>, 0>(1) && !asks_ahead<Many<float>, 0>(2));

}  // namespace coda::sm90

template struct coda::sm90::Product<coda::bf16, coda::test::HalfWidth<coda::bf16>>;
template struct coda::sm90::Product<coda::bf16, coda::test::HalfWidth<float>>;
template struct coda::sm90::Product<coda::bf16, coda::test::ManyLoads<coda::bf16>>;
template struct coda::sm90::Product<coda::bf16, coda::test::ManyLoads<float>>;
template struct coda::sm90::Elementwise<coda::test::HalfWidth<float>>;
