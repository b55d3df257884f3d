// Activations, each written once on a generic scalar: float or a vector of lanes in the forward, a Dual in the
// backward. One of your own is a struct like these: arguments of any type (those of a pair may differ), result `auto`,
// constants `base_t<S>(0.5)`, made of + - * /, exp, log, tanh, sigmoid, softplus, erf, normal_cdf, relu, abs, square,
// sqrt, rsqrt and reciprocal of this namespace, and of at_most(x, c) and at_least(x, c), the smaller and the larger one
// of x and a constant. It has no branches.
#pragma once

#include "coda/epilogue/dual.h"

namespace coda {

struct Identity {
  static constexpr const char* name = "identity";
  template <class S>
  CODA_FN auto operator()(S x) const {
    return x;
  }
};

/// x * sigmoid(x)
struct Silu {
  static constexpr const char* name = "silu";
  template <class S>
  CODA_FN auto operator()(S x) const {
    return x * sigmoid(x);
  }
};

/// x * Phi(x), Phi the normal distribution function (Hendrycks and Gimpel, arXiv 1606.08415)
struct GeluErf {
  static constexpr const char* name = "gelu_erf";
  template <class S>
  CODA_FN auto operator()(S x) const {
    return x * normal_cdf(x);
  }
};

/// The tanh form of the same paper: 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3). It is x sigmoid(2u),
/// which costs less and, where tanh(u) is near -1, loses nothing.
struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  template <class S>
  CODA_FN auto operator()(S x) const {
    using C = base_t<S>;
    return x * sigmoid(x * ((x * x) * C(2 * kCubic) + C(2 * kLinear)));
  }
  static constexpr double kLinear = 0.79788456080286536, kCubic = kLinear * 0.044715;
};

struct Relu {
  static constexpr const char* name = "relu";
  template <class S>
  CODA_FN auto operator()(S x) const {
    return relu(x);
  }
};

/// relu(x)^2 (So et al., Primer, arXiv 2109.08668)
struct ReluSquared {
  static constexpr const char* name = "relu_squared";
  template <class S>
  CODA_FN auto operator()(S x) const {
    return square(relu(x));
  }
};

/// act(gate) * up (Shazeer, arXiv 2002.05202); gate is the even column of a pair, up the odd one.
template <class Act>
struct Gated {
  static constexpr const char* name = Act::name;
  template <class G, class U>
  CODA_FN auto operator()(G gate, U up) const {
    return Act{}(gate)*up;
  }
};
using SwiGlu = Gated<Silu>;
using GeGluErf = Gated<GeluErf>;
using GeGluTanh = Gated<GeluTanh>;
using ReGlu = Gated<Relu>;

/// A multiple, the same over a call.
template <class Acc>
struct Scaled {
  Acc scale;
  template <class S>
  CODA_FN auto operator()(S z) const {
    return z * base_t<S>(scale);
  }
};

/// Logit soft-cap: cap * tanh(scale * z / cap). Both are uniform over a call.
template <class Acc>
struct SoftCap {
  Acc scale, cap;
  template <class S>
  CODA_FN auto operator()(S z) const {
    using C = base_t<S>;
    return tanh(z * C(scale / cap)) * C(cap);
  }
};

}  // namespace coda
