// Programs that few models run: no fused kernel is built for them.
#include "coda/backend/sm90/product.cuh"
#include "coda/programs/activation.h"
#include "coda/programs/gemm.h"
#include "coda/programs/loss.h"
#include "coda/programs/residual.h"
#include "coda/programs/rope.h"

namespace coda::sm90 {

template <class T, class F, class Out>
inline constexpr bool kFused<Gemm<T, F, Out>> = false;
template <class T, class Norm, class F>
inline constexpr bool kFused<GemmNorm<T, Norm, F>> = false;
template <class T, class Norm, class F>
inline constexpr bool kFused<GemmNormGlu<T, Norm, F>> = false;
template <class T, class F, Width W, class Dot>
inline constexpr bool kFused<GemmFunctionBackward<T, F, W, Dot>> = false;
template <class T, class Norm>
inline constexpr bool kFused<GemmNormRope<T, Norm>> = false;
template <class T, class Norm>
inline constexpr bool kFused<GemmNormRotate<T, Norm>> = false;
template <class T, class Norm>
inline constexpr bool kFused<GemmNormQkNormRope<T, Norm>> = false;
template <class T, class Norm>
inline constexpr bool kFused<GemmNormLse<T, Norm>> = false;
template <class T, class Norm, class Dot>
inline constexpr bool kFused<GemmCrossEntropyBackward<T, Norm, Dot>> = false;
template <class T>
inline constexpr bool kFused<GemmLayerNormBackward<T>> = false;

#define PROGRAMS(T)                                                                            \
  template struct Product<T, Gemm<T, Silu>>;                                                   \
  template struct Product<T, Gemm<T, GeluErf>>;                                                \
  template struct Product<T, Gemm<T, GeluTanh>>;                                               \
  template struct Product<T, Gemm<T, Relu>>;                                                   \
  template struct Product<T, Gemm<T, ReluSquared>>;                                            \
  template struct Product<T, Gemm<T, Identity, float>>;                                        \
  template struct Product<T, Gemm<T, Silu, float>>;                                            \
  template struct Product<T, Gemm<T, GeluErf, float>>;                                         \
  template struct Product<T, Gemm<T, GeluTanh, float>>;                                        \
  template struct Product<T, Gemm<T, Relu, float>>;                                            \
  template struct Product<T, Gemm<T, ReluSquared, float>>;                                     \
  template struct Product<T, GemmNorm<T, RmsScale<T>, GeluErf>>;                               \
  template struct Product<T, GemmNorm<T, RmsScale<T>, Relu>>;                                  \
  template struct Product<T, GemmNorm<T, RmsScale<T>, ReluSquared>>;                           \
  template struct Product<T, GemmNorm<T, LayerNormScale<T>, Silu>>;                            \
  template struct Product<T, GemmNorm<T, LayerNormScale<T>, GeluErf>>;                         \
  template struct Product<T, GemmNorm<T, LayerNormScale<T>, Relu>>;                            \
  template struct Product<T, GemmNorm<T, LayerNormScale<T>, ReluSquared>>;                     \
  template struct Product<T, GemmNormGlu<T, RmsScale<T>, GeGluErf>>;                           \
  template struct Product<T, GemmNormGlu<T, LayerNormScale<T>, SwiGlu>>;                       \
  template struct Product<T, GemmNormGlu<T, LayerNormScale<T>, GeGluErf>>;                     \
  template struct Product<T, GemmNormGlu<T, LayerNormScale<T>, GeGluTanh>>;                    \
  template struct Product<T, GemmNormGlu<T, LayerNormScale<T>, ReGlu>>;                        \
  template struct Product<T, GemmNormRope<T, LayerNormScale<T>>>;                              \
  template struct Product<T, GemmNormRotate<T, LayerNormScale<T>>>;                            \
  template struct Product<T, GemmNormQkNormRope<T, LayerNormScale<T>>>;                        \
  template struct Product<T, GemmNormLse<T, LayerNormScale<T>>>;                               \
  template struct Product<T, GemmCrossEntropyBackward<T, LayerNormScale<T>, LayerNormDot<T>>>; \
  template struct Product<T, GemmLayerNormBackward<T>>;
CODA_FOR_ELEMENTS(PROGRAMS)

}  // namespace coda::sm90
