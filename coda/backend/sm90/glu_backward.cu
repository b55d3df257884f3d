#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/activation.h"

namespace coda::sm90 {

/// C and D are pairs, twice the registers and shared memory of other programs: it would spill registers in pairs.
template <class T, class F>
struct Tuning<GemmGluBackward<T, F>> : Tuning<void> {
  using Whole = sm90::Config<128, 128, 1, 32, 4, 2>;
  using Config = InHalves<Whole>;
  using Others = Configurations<Whole, SplitsK>;  // Whole is faster where K is small and tiles are many
  static constexpr int kMostRows = 32;
  static constexpr Layouts kLayouts = kBackward;
};

template <class T>
inline constexpr std::string_view kName<GemmGluBackward<T>> = "gemm_swiglu_backward";
template <class T>
inline constexpr std::string_view kName<GemmGluBackward<T, GeGluTanh>> = "gemm_geglu_tanh_backward";
template <class T>
inline constexpr std::string_view kName<GemmGluBackward<T, ReGlu>> = "gemm_reglu_backward";

#define PROGRAMS(T)                                          \
  template struct Product<T, GemmGluBackward<T>>;            \
  template struct Product<T, GemmGluBackward<T, GeGluTanh>>; \
  template struct Product<T, GemmGluBackward<T, ReGlu>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
