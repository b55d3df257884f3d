#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/activation.h"

namespace coda::sm90 {

template <class T>
struct Tuning<GemmNorm<T>> : Tuning<void> {
  static constexpr Layouts kLayouts = kForward;
};
/// Wider subtiles would spill registers.
template <class T, class Norm, class F>
struct Tuning<GemmNorm<T, Norm, F>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 32, 4, 2>;
  static constexpr Layouts kLayouts = kForward;
};

#define PROGRAMS(T)                                                     \
  template struct Product<T, GemmNorm<T>>;                              \
  template struct Product<T, GemmNorm<T, LayerNormScale<T>>>;           \
  template struct Product<T, GemmNorm<T, LayerNormScale<T>, GeluTanh>>; \
  template struct Product<T, GemmNorm<T, RmsScale<T>, Silu>>;           \
  template struct Product<T, GemmNorm<T, RmsScale<T>, GeluTanh>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
