// The step of AdamW (Loshchilov and Hutter, arXiv 1711.05101), one element at a time: the same source for every
// backend.
#pragma once

#include <cmath>
#include <cstdint>

#include "coda/core/config.h"

namespace coda {

/// g = gradient gradient_scale;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
/// w = keep w - rate (m m_scale) / (sqrt(v v_scale) + eps), with the constants of one step in the type of the state,
/// each rounded once: 1 - b2 of a b2 in fp32 would be 1.7e-4 of itself off at 0.9999.
template <class Real>
struct AdamwUpdate {
  Real gradient_scale, beta1, beta2, rest1, rest2, keep, rate, m_scale, v_scale, eps;

  /// step counts from 1: it corrects the moments' bias towards their start at 0.
  AdamwUpdate(double rate_, double beta1_, double beta2_, double eps_, double weight_decay, std::int64_t step,
              double gradient_scale_)
      : gradient_scale(static_cast<Real>(gradient_scale_)),
        beta1(static_cast<Real>(beta1_)),
        beta2(static_cast<Real>(beta2_)),
        rest1(static_cast<Real>(1 - beta1_)),
        rest2(static_cast<Real>(1 - beta2_)),
        keep(static_cast<Real>(1 - rate_ * weight_decay)),
        rate(static_cast<Real>(rate_)),
        m_scale(static_cast<Real>(1 / (1 - std::pow(beta1_, static_cast<double>(step))))),
        v_scale(static_cast<Real>(1 / (1 - std::pow(beta2_, static_cast<double>(step))))),
        eps(static_cast<Real>(eps_)) {}

  CODA_FN void operator()(Real gradient, Real& w, Real& m, Real& v) const {
    const Real g = gradient * gradient_scale;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    w = keep * w - rate * (m * m_scale) / (std::sqrt(v * v_scale) + eps);
  }
};

/// What a gradient is multiplied with so that the global norm is at most clip_norm (0: any): squared_norm is that of
/// all gradients before gradient_scale. Not finite, if the norm is not: the step is to be left out then.
CODA_FN double clipped_gradient_scale(double gradient_scale, double squared_norm, double clip_norm) {
  const double norm = std::sqrt(squared_norm) * std::abs(gradient_scale);
  if (!(norm - norm == 0)) return norm - norm;  // NaN
  return clip_norm > 0 && norm > clip_norm ? gradient_scale * (clip_norm / norm) : gradient_scale;
}

}  // namespace coda
