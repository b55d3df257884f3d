#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/residual.h"

namespace coda::sm90 {

/// Two matrices to load: few stages of them, so that operands have as many as in other programs.
template <class T>
struct Tuning<GemmRmsBackward<T>> : Tuning<void> {
  using Config = InHalves<sm90::Config<128, 128, 1, 32, 2, 2>>;
  using Lean = Cooperative<sm90::Config<128, 128, 1, 32, 2, 2>>;
  using Others = Configurations<InHalves<sm90::Config<128, 128, 1, 32, 4, 2>>, Lean>;  // the first: where K is small
  using Reduced = Others;
  static constexpr Layouts kLayouts = kBackward;
};

template <class T>
inline constexpr std::string_view kName<GemmRmsBackward<T>> = "gemm_rms_backward";

#define PROGRAMS(T) template struct Product<T, GemmRmsBackward<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
