#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/residual.h"

namespace coda::sm90 {

template <class T>
struct Tuning<GemmRmsBackward<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 32, 4, 2, true>;
  static constexpr Layouts kLayouts = kBackward;
};

#define PROGRAMS(T) template struct Product<T, GemmRmsBackward<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
