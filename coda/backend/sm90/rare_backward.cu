// Backward programs of activations that few models run: no fused kernel is built for them.
#include "coda/backend/sm90/product.cuh"
#include "coda/programs/activation.h"

namespace coda::sm90 {

template <class T, class F, Width W, class Dot>
inline constexpr bool kFused<GemmFunctionBackward<T, F, W, Dot>> = false;

#define PROGRAMS(T)                                                                          \
  template struct Product<T, GemmGluBackward<T, GeGluErf>>;                                  \
  template struct Product<T, GemmGluBackward<T, SwiGlu, LayerNormDot<T, Width::Double>>>;    \
  template struct Product<T, GemmGluBackward<T, GeGluErf, LayerNormDot<T, Width::Double>>>;  \
  template struct Product<T, GemmGluBackward<T, GeGluTanh, LayerNormDot<T, Width::Double>>>; \
  template struct Product<T, GemmGluBackward<T, ReGlu, LayerNormDot<T, Width::Double>>>;     \
  template struct Product<T, GemmActivationBackward<T, Identity>>;                           \
  template struct Product<T, GemmActivationBackward<T, GeluErf>>;                            \
  template struct Product<T, GemmActivationBackward<T, Relu>>;                               \
  template struct Product<T, GemmActivationBackward<T, ReluSquared>>;                        \
  template struct Product<T, GemmActivationBackward<T, Identity, LayerNormDot<T>>>;          \
  template struct Product<T, GemmActivationBackward<T, Silu, LayerNormDot<T>>>;              \
  template struct Product<T, GemmActivationBackward<T, GeluErf, LayerNormDot<T>>>;           \
  template struct Product<T, GemmActivationBackward<T, GeluTanh, LayerNormDot<T>>>;          \
  template struct Product<T, GemmActivationBackward<T, Relu, LayerNormDot<T>>>;              \
  template struct Product<T, GemmActivationBackward<T, ReluSquared, LayerNormDot<T>>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
