// Programs without a product.
#include "coda/backend/sm90/product.cuh"
#include "coda/programs/loss.h"
#include "coda/programs/residual.h"
#include "coda/programs/rope.h"

namespace coda::sm90 {

#define PROGRAMS(T)                                                    \
  template struct Elementwise<Embedding<T>>;                           \
  template struct Elementwise<Embedding<T, Moments<T>>>;               \
  template struct Elementwise<RopeBackward<T>>;                        \
  template struct Elementwise<RopeBackward<T, LayerNormDot<T>>>;       \
  template struct Elementwise<QkNormRopeBackward<T>>;                  \
  template struct Elementwise<QkNormRopeBackward<T, LayerNormDot<T>>>; \
  template struct Elementwise<CrossEntropyBackward<T>>;                \
  template struct Elementwise<CrossEntropyBackward<T, LayerNormDot<T>>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
