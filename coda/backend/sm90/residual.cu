#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/residual.h"

namespace coda::sm90 {

/// Wider subtiles would spill registers.
template <class T, class Stat>
struct Tuning<GemmResidual<T, Stat>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 32, 4, 2>;
};

#define PROGRAMS(T)                            \
  template struct Product<T, GemmResidual<T>>; \
  template struct Product<T, GemmResidual<T, Moments<T>>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
