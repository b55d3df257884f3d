#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/activation.h"

namespace coda::sm90 {

template <class T, class F>
struct Tuning<GemmActivationBackward<T, F>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 32, 4, 2>;
  static constexpr Layouts kLayouts = kBackward;
};

#define PROGRAMS(T)                                      \
  template struct Product<T, GemmActivationBackward<T>>; \
  template struct Product<T, GemmActivationBackward<T, GeluTanh>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
