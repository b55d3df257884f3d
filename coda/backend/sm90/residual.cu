#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/residual.h"

namespace coda::sm90 {

/// Few stages of C: more of it on the way slows the operands down.
template <class T, class Stat>
struct Tuning<GemmResidual<T, Stat>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 2, 32, 2, 2>;
  using Others = Configurations<SplitsK, Cooperative<Config>>;
  using Reduced = Others;
};

template <class T>
inline constexpr std::string_view kName<GemmResidual<T>> = "gemm_residual_rms";
template <class T>
inline constexpr std::string_view kName<GemmResidual<T, Moments<T>>> = "gemm_residual_layernorm";

#define PROGRAMS(T)                            \
  template struct Product<T, GemmResidual<T>>; \
  template struct Product<T, GemmResidual<T, Moments<T>>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
