// Activations and their derivatives in closed form. The derivatives are written out by hand on purpose: the library
// derives its own from the forward functions, and the two must not share a mistake.
#pragma once

#include <cmath>
#include <numbers>

#include "tests/reference/mat.h"

namespace coda::reference {

enum class Activation { identity, silu, gelu, gelu_tanh, relu, relu2 };

inline constexpr Activation kActivations[] = {Activation::identity,  Activation::silu, Activation::gelu,
                                              Activation::gelu_tanh, Activation::relu, Activation::relu2};

inline const char* name_of(Activation f) {
  switch (f) {
    case Activation::identity:
      return "identity";
    case Activation::silu:
      return "silu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_tanh";
    case Activation::relu:
      return "relu";
    case Activation::relu2:
      return "relu2";
  }
  return "?";
}

namespace detail {

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

inline constexpr double kGeluCubic = 0.044715;
inline double gelu_tanh_inner(double x) { return std::sqrt(2.0 / std::numbers::pi) * (x + kGeluCubic * x * x * x); }
/// 1 + tanh(u), without the cancellation of the sum where tanh(u) is near -1.
inline double one_plus_tanh(double u) { return 2.0 / (1.0 + std::exp(-2.0 * u)); }

}  // namespace detail

inline double activate(Activation f, double x) {
  switch (f) {
    case Activation::identity:
      return x;
    case Activation::silu:
      return x * detail::sigmoid(x);
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::gelu_tanh:
      return 0.5 * x * detail::one_plus_tanh(detail::gelu_tanh_inner(x));
    case Activation::relu:
      return x < 0.0 ? 0.0 : x;  // so that NaN stays NaN
    case Activation::relu2:
      return x < 0.0 ? 0.0 : x * x;
  }
  return x;
}

/// d activate / dx; 0 at the kink of ReLU.
inline double activate_slope(Activation f, double x) {
  switch (f) {
    case Activation::identity:
      return 1.0;
    case Activation::silu: {
      const double s = detail::sigmoid(x);
      return s * (1.0 + x * (1.0 - s));
    }
    case Activation::gelu: {
      const double density = std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
      return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
    }
    case Activation::gelu_tanh: {
      const double u = detail::gelu_tanh_inner(x);
      const double above = detail::one_plus_tanh(u), below = detail::one_plus_tanh(-u);  // 1 + tanh(u), 1 - tanh(u)
      const double inner_slope = std::sqrt(2.0 / std::numbers::pi) * (1.0 + 3.0 * detail::kGeluCubic * x * x);
      return 0.5 * above + 0.5 * x * above * below * inner_slope;
    }
    case Activation::relu:
      return x <= 0.0 ? 0.0 : std::isnan(x) ? x : 1.0;
    case Activation::relu2:
      return x <= 0.0 ? 0.0 : 2.0 * x;
  }
  return 1.0;
}

/// dx of y = f(x) and dy. As in PyTorch, behind a ReLU that is off it is 0 for any dy.
inline double activate_backward(Activation f, double x, double dy) {
  const bool off = (f == Activation::relu || f == Activation::relu2) && x <= 0.0;
  return off ? 0.0 : dy * activate_slope(f, x);
}

}  // namespace coda::reference
