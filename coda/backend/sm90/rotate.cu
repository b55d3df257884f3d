#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/rope.h"

namespace coda::sm90 {

/// As the residual program, whose measurements serve it: a matrix in and two out.
template <class T>
struct Tuning<GemmNormRotate<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 2, 32, 2, 2>;
  using Others = Configurations<SplitsK, Cooperative<Config>>;
  static constexpr Layouts kLayouts = kForward;
};

template <class T>
inline constexpr std::string_view kName<GemmNormRotate<T>> = "gemm_rms_rotate";

#define PROGRAMS(T) template struct Product<T, GemmNormRotate<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
