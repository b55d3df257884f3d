#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/activation.h"

namespace coda::sm90 {

template <class T, class Norm, class F>
struct Tuning<GemmNorm<T, Norm, F>> : Tuning<void> {
  using Others = Configurations<SplitsK, Cooperative<Tuning<void>::Config>>;
  static constexpr Layouts kLayouts = kForward;
};
template <class T, class F>
struct Tuning<GemmNorm<T, LayerNormScale<T>, F>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 32, 4, 2>;
  using RowByRow = sm90::Config<128, 128, 2, 32, 4, 2, true>;  // faster where there are few tiles
  using Others = Configurations<RowByRow, SplitsK, Cooperative<RowByRow>>;
  static constexpr Layouts kLayouts = kForward;
};

template <class T, class F>
inline constexpr std::string_view kName<GemmNorm<T, RmsScale<T>, F>> = "gemm_rms";
template <class T, class F>
inline constexpr std::string_view kName<GemmNorm<T, LayerNormScale<T>, F>> = "gemm_layernorm";

#define PROGRAMS(T)                                                     \
  template struct Product<T, GemmNorm<T>>;                              \
  template struct Product<T, GemmNorm<T, LayerNormScale<T>>>;           \
  template struct Product<T, GemmNorm<T, LayerNormScale<T>, GeluTanh>>; \
  template struct Product<T, GemmNorm<T, RmsScale<T>, Silu>>;           \
  template struct Product<T, GemmNorm<T, RmsScale<T>, GeluTanh>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
