#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/activation.h"

namespace coda::sm90 {

template <class T, class F>
struct Tuning<GemmNormGlu<T, RmsScale<T>, F>> : Tuning<void> {
  using Others = Configurations<SplitsK, Cooperative<Tuning<void>::Config>>;
  static constexpr Layouts kLayouts = kForward;
};

template <class T>
inline constexpr std::string_view kName<GemmNormGlu<T>> = "gemm_rms_swiglu";
template <class T>
inline constexpr std::string_view kName<GemmNormGlu<T, RmsScale<T>, GeGluTanh>> = "gemm_rms_geglu_tanh";
template <class T>
inline constexpr std::string_view kName<GemmNormGlu<T, RmsScale<T>, ReGlu>> = "gemm_rms_reglu";

#define PROGRAMS(T)                                                   \
  template struct Product<T, GemmNormGlu<T>>;                         \
  template struct Product<T, GemmNormGlu<T, RmsScale<T>, GeGluTanh>>; \
  template struct Product<T, GemmNormGlu<T, RmsScale<T>, ReGlu>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
