#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/rope.h"

namespace coda::sm90 {

/// One warp group has the registers to ask for angles a column of subtiles ahead.
template <class T>
struct Tuning<GemmNormRope<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 32, 4, 2>;
  using Others = Configurations<SplitsK, Cooperative<Config>>;
  static constexpr Layouts kLayouts = kForward;
};
template <class T>
struct Tuning<GemmNormQkNormRope<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 1, 32, 4, 2>;
  // The first of them is faster where a thread block has few tiles.
  using Others = Configurations<InHalves<Config>, SplitsK, Cooperative<Config>>;
  static constexpr Layouts kLayouts = kForward;
};

template <class T>
inline constexpr std::string_view kName<GemmNormRope<T>> = "gemm_rms_rope";
template <class T>
inline constexpr std::string_view kName<GemmNormQkNormRope<T>> = "gemm_rms_qknorm_rope";

#define PROGRAMS(T)                            \
  template struct Product<T, GemmNormRope<T>>; \
  template struct Product<T, GemmNormQkNormRope<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
