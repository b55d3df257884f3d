#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/activation.h"

namespace coda::sm90 {

/// C and D are pairs, twice the registers and shared memory of other programs.
template <class T, class F>
struct Tuning<GemmGluBackward<T, F>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 32, 4, 2, true>;
  static constexpr Layouts kLayouts = kBackward;
};

#define PROGRAMS(T)                                          \
  template struct Product<T, GemmGluBackward<T>>;            \
  template struct Product<T, GemmGluBackward<T, GeGluTanh>>; \
  template struct Product<T, GemmGluBackward<T, ReGlu>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
