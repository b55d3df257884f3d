// Products with a bias, another matrix or a kept pre-activation, or none of these.
#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/gemm.h"

namespace coda::sm90 {

/// Without c, where nothing is loaded beside the operands, it has a kernel of its own.
template <class T>
struct Tuning<Gemm<T>> : Tuning<void> {
  using Others = Configurations<SplitsK>;
  using Reduced = Others;
  static constexpr PortMask kOptional = 0b0001;
};

template <class T>
inline constexpr std::string_view kName<Gemm<T>> = "gemm";

#define PROGRAMS(T) template struct Product<T, Gemm<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
