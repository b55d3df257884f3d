#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/loss.h"

namespace coda::sm90 {

template <class T>
struct Tuning<GemmNormLse<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 32, 4, 2>;
  static constexpr Layouts kLayouts = kForward;
};
template <class T>
struct Tuning<GemmCrossEntropyBackward<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 32, 4, 2>;
  static constexpr Layouts kLayouts = kForward;
};

#define PROGRAMS(T)                           \
  template struct Product<T, GemmNormLse<T>>; \
  template struct Product<T, GemmCrossEntropyBackward<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
