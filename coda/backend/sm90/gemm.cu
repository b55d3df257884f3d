// Products with a bias, another matrix or a kept pre-activation, and those with none of these.
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

template <class T>
struct Tuning<BareGemm<T>> : Tuning<void> {
  using Others = Configurations<SplitsK>;
  static constexpr int kMostRows = 0;
};
template <class T>
inline constexpr std::string_view kName<BareGemm<T>> = product_name(DType::bf16);

#define PROGRAMS(T)                    \
  template struct Product<T, Gemm<T>>; \
  template struct Product<T, BareGemm<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
