// The backward of SwiGLU on one fragment, derived by dual numbers or (BY_HAND) written out: CheckDerivedCost.cmake
// compiles both and counts their instructions.
#include "coda/epilogue/fragment.h"

using Lane = coda::Simd<float, coda::kLanes<float>>;
using Z = coda::Fragment<Lane, 8, coda::Width::Double>;
using Y = coda::Fragment<Lane, 4>;

#if defined(BY_HAND)
CODA_FN coda::Backward<Z, Y> swiglu(const Z& z, const Y& dy) {
  coda::Backward<Z, Y> r;
  CODA_UNROLL for (int j = 0; j < 4; ++j) {
    const Lane gate = z.v[2 * j], up = z.v[2 * j + 1];
    const Lane s = coda::sigmoid(gate), silu = gate * s;
    const Lane slope = s + s * (Lane(1.f) - s) * gate;
    r.dz.v[2 * j] = slope * up * dy.v[j];
    r.dz.v[2 * j + 1] = silu * dy.v[j];
    r.out.v[j] = silu * up;
  }
  return r;
}
#else
CODA_FN coda::Backward<Z, Y> swiglu(const Z& z, const Y& dy) { return coda::backward(coda::SwiGlu{}, z, dy); }
#endif

extern "C" void swiglu_backward(const float* z, const float* dy, float* dz, float* y) {
  constexpr int n = coda::kLanes<float>;
  Z z_;
  Y dy_;
  CODA_UNROLL for (int i = 0; i < 8; ++i) z_.v[i] = Lane::load(z + i * n);
  CODA_UNROLL for (int i = 0; i < 4; ++i) dy_.v[i] = Lane::load(dy + i * n);
  const auto r = swiglu(z_, dy_);
  CODA_UNROLL for (int i = 0; i < 8; ++i) r.dz.v[i].store(dz + i * n);
  CODA_UNROLL for (int i = 0; i < 4; ++i) r.out.v[i].store(y + i * n);
}
