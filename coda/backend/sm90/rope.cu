#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/rope.h"

namespace coda::sm90 {

/// Wider subtiles would spill registers.
template <class T>
struct Tuning<GemmNormRope<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 32, 4, 2, true>;
  static constexpr Layouts kLayouts = kForward;
};
template <class T>
struct Tuning<GemmNormQkNormRope<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 32, 4, 2, true>;
  static constexpr Layouts kLayouts = kForward;
};

#define PROGRAMS(T)                            \
  template struct Product<T, GemmNormRope<T>>; \
  template struct Product<T, GemmNormQkNormRope<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
