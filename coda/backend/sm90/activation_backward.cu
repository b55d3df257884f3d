#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/activation.h"

namespace coda::sm90 {

template <class T, class F>
struct Tuning<GemmActivationBackward<T, F>> : Tuning<void> {
  using Config = InHalves<sm90::Config<128, 128, 1, 32, 4, 2>>;
  // The first of them is faster where K is small and tiles are many; with more stages of C, or two rows at a time, it
  // spills registers.
  using Others = Configurations<sm90::Config<128, 128, 2, 32, 2, 2, true>, SplitsK, Cooperative<Tuning<void>::Config>>;
  static constexpr int kMostRows = 32;
  static constexpr Layouts kLayouts = kBackward;
};

template <class T, class F>
inline constexpr std::string_view kName<GemmActivationBackward<T, F>> = "gemm_activation_backward";

#define PROGRAMS(T)                                      \
  template struct Product<T, GemmActivationBackward<T>>; \
  template struct Product<T, GemmActivationBackward<T, GeluTanh>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
