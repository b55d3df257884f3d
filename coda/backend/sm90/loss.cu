#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/loss.h"

namespace coda::sm90 {

template <class T>
struct Tuning<GemmNormLse<T>> : Tuning<void> {
  using Config = InHalves<sm90::Config<128, 128, 1, 32, 4, 2>>;
  using Others = Configurations<Cooperative<Tuning<void>::Config>>;
  static constexpr Layouts kLayouts = kForward;
};
template <class T>
struct Tuning<GemmCrossEntropyBackward<T>> : Tuning<void> {
  using Config = InHalves<sm90::Config<128, 128, 1, 32, 4, 2>>;
  static constexpr Layouts kLayouts = kForward;
};

template <class T>
inline constexpr std::string_view kName<GemmNormLse<T>> = "gemm_lse";
template <class T>
inline constexpr std::string_view kName<GemmCrossEntropyBackward<T>> = "gemm_cross_entropy_backward";

#define PROGRAMS(T)                           \
  template struct Product<T, GemmNormLse<T>>; \
  template struct Product<T, GemmCrossEntropyBackward<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
