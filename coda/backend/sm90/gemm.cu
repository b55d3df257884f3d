// Products with a bias, another matrix or a kept pre-activation, or none of these.
#include "coda/backend/sm90/gemm.cuh"
#include "coda/programs/gemm.h"

namespace coda::sm90 {

/// The bare product, without c, bias and preact, has a kernel of its own.
template <class T>
struct Tuning<Gemm<T>> : Tuning<void> {
  static constexpr PortMask kOptional = 0b0111;
};

template <class T>
inline constexpr std::string_view kName<Gemm<T>> = "gemm";

#define PROGRAMS(T) template struct Product<T, Gemm<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
