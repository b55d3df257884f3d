// The elementary functions that epilogues are made of, for each scalar a program may run on: float and double, and
// Simd vectors of them. `dual.h` adds their derivatives. Everything is branch-free, so that a vector costs one pass.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "coda/core/config.h"
#if !defined(__CUDACC__)  // nvcc knows neither vector extensions nor the shuffles that Simd is made of
#include "coda/epilogue/simd.h"
#endif

namespace coda {

// ---- float and double

template <class S>
concept Scalar = std::is_same_v<S, float> || std::is_same_v<S, double>;

template <Scalar S>
CODA_FN S select(bool condition, S a, S b) {
  return condition ? a : b;
}
template <Scalar S>
CODA_FN S exp(S x) {
#if defined(__CUDA_ARCH__)
  // The special-function unit's 2^t; results below the smallest normal number are 0. Relative error 2e-7 (1 + |x| / 4).
  if constexpr (std::is_same_v<S, float>) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
  }
#endif
  return std::exp(x);
}
template <Scalar S>
CODA_FN S reciprocal(S x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<S, float>) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));  // at most 1 unit in the last place off
    return y;
  }
#endif
  return S(1) / x;
}
template <Scalar S>
CODA_FN S tanh(S x) {
#if defined(__CUDA_ARCH__)
  // One special-function instruction pair instead of the library's branches; absolute error 2e-7.
  if constexpr (std::is_same_v<S, float>) {
    const float t = 1.f - 2.f * reciprocal(exp(2.f * fabsf(x)) + 1.f);
    const float s = x * x;
    const float small = x * (1.f + s * (-0.33332387f + s * (0.13308778f + s * (-0.051972292f + s * 0.015225884f))));
    return fabsf(x) < 0.625f ? small : copysignf(t, x);
  }
#endif
  return std::tanh(x);
}
template <Scalar S>
CODA_FN S erf(S x) {
  return std::erf(x);
}

template <Scalar S>
CODA_FN S rsqrt(S x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<S, float>) return ::rsqrtf(x);
#endif
  return S(1) / std::sqrt(x);
}
template <Scalar S>
CODA_FN S sqrt(S x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<S, float>) {
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));  // at most 1 unit in the last place off
    return y;
  }
#endif
  return std::sqrt(x);
}
template <Scalar S>
CODA_FN S abs(S x) {
  return std::fabs(x);
}

/// The standard normal distribution function at a point, and its slope: together, since an exponential serves both.
template <class S>
struct Normal {
  S cdf, pdf;
};
namespace detail {
inline constexpr double kInvSqrt2 = 0.70710678118654752, kInvSqrt2Pi = 0.39894228040143268;

/// In float. Relative error of cdf below 1e-6 (1 + x^2 / 4), far on the negative side, too. On vectors it is 0 where it
/// would fall below the smallest normal number: some processors take a hundred cycles and more for a subnormal one.
template <class V>
CODA_FN Normal<V> normal(V x) {
  // Phi(-|x|) = exp(-x^2 / 2) p(1 / (1 + c |x|)): Abramowitz and Stegun's form, 7.1.26, fitted anew.
  const V t = V(-0.5f) * (x * x), u = reciprocal(abs(x) * V(0.35f) + V(1.f));
  V e = exp(t);
  if constexpr (!Scalar<V>) e = select(t < V(-83.6f), V(0.f), e);
  V p = V(0.045832768f);
  p = p * u + V(-0.18913219f);
  p = p * u + V(0.21832062f);
  p = p * u + V(0.0033134918f);
  p = p * u + V(0.14543121f);
  p = p * u + V(0.13642575f);
  p = p * u + V(0.13980843f);
  const V below = e * (p * u);
  return {select(x < V(0.f), below, V(1.f) - below), e * V(static_cast<float>(kInvSqrt2Pi))};
}
}  // namespace detail
template <Scalar S>
CODA_FN Normal<S> normal(S x) {
  if constexpr (std::is_same_v<S, float>) {
    return detail::normal(x);
  } else {
    return {S(0.5) * std::erfc(x * S(-detail::kInvSqrt2)), S(detail::kInvSqrt2Pi) * exp(S(-0.5) * (x * x))};
  }
}

/// log(1 + exp(x)), and its slope: sigmoid(x).
template <class S>
struct Softplus {
  S value, slope;
};
namespace detail {

/// x = mantissa 2^exponent, mantissa from sqrt(1/2) to sqrt(2), of a positive normal number.
template <class V>
struct Split {
  V mantissa, exponent;
};
inline constexpr std::int32_t kSqrtHalf = 0x3f3504f3;  // its bits
CODA_FN Split<float> split(float x) {
  const auto bits = std::bit_cast<std::int32_t>(x), exponent = (bits - kSqrtHalf) >> 23;
  return {std::bit_cast<float>(bits - (exponent << 23)), static_cast<float>(exponent)};
}
#if !defined(__CUDACC__)
template <int N>
CODA_FN Split<Simd<float, N>> split(Simd<float, N> x) {
  using Native = typename Simd<float, N>::Native;
  const auto bits = std::bit_cast<typename Simd<float, N>::Mask>(x.v), exponent = (bits - kSqrtHalf) >> 23;
  return {std::bit_cast<Native>(bits - (exponent << 23)), __builtin_convertvector(exponent, Native)};
}
#endif

/// log((1 + s) / (1 - s)) = 2 (s + s^3 / 3 + s^5 / 5 + ...) for |s| <= 1/3, in float; relative error below 2e-7.
template <class V>
CODA_FN V log_of_ratio(V s) {
  const V z = s * s, twice = s + s;
  V p = V(0.1401223f);
  p = p * z + V(0.13999571f);
  p = p * z + V(0.2001085f);
  p = p * z + V(0.33333206f);
  return twice + twice * (z * p);
}

/// In float. Relative error below 3e-7, near 1, too.
template <class V>
CODA_FN V log(V x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto subnormal = x < V(std::numeric_limits<float>::min());
  const auto [m, exponent] = split(abs(select(subnormal, x * V(0x1p24f), x)));
  const V e = select(subnormal, exponent - V(24.f), exponent);
  const V r = e * V(0.69314718f) + log_of_ratio((m - V(1.f)) * reciprocal(m + V(1.f)));
  const V not_positive = select(x < V(0.f), V(std::numeric_limits<float>::quiet_NaN()), V(-kInfinity));
  return select(x <= V(0.f), not_positive, select(x < V(kInfinity), r, x));
}

/// In float. Relative error below 4e-7; on a GPU, where exp's grows with |x|, that times 1 + |x| / 4 for negative x.
template <class V>
CODA_FN Softplus<V> softplus(V x) {
  // exp of what is at most 0, so that nothing overflows; log(1 + e) = log((1 + s) / (1 - s)) of s = e / (2 + e).
  const V e = exp(-abs(x)), s = e * reciprocal(e + V(2.f));
  return {select(x <= V(0.f), V(0.f), x) + log_of_ratio(s), select(x < V(0.f), e, V(1.f)) * reciprocal(e + V(1.f))};
}

}  // namespace detail
template <Scalar S>
CODA_FN S log(S x) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<S, float>) return detail::log(x);
#endif
  return std::log(x);
}
template <Scalar S>
CODA_FN Softplus<S> softplus_and_slope(S x) {
  if constexpr (std::is_same_v<S, float>) {
    return detail::softplus(x);
  } else {
    const S e = exp(-abs(x));
    return {select(x <= S(0), S(0), x) + std::log1p(e), select(x < S(0), e, S(1)) / (S(1) + e)};
  }
}

/// A scalar is its own even and odd column: see `deinterleave` of Simd.
template <Scalar S>
CODA_FN std::pair<S, S> deinterleave(S a, S b) {
  return {a, b};
}
template <Scalar S>
CODA_FN std::pair<S, S> interleave(S a, S b) {
  return {a, b};
}

#if !defined(__CUDACC__)
// ---- Simd: polynomials fitted for this library (relative error below 2e-7 in float), double goes through libm

template <int N>
CODA_FN Simd<float, N> exp(Simd<float, N> x) {
  using V = Simd<float, N>;
  const V low(-87.33654f), high(89.f);  // below: 0, since subnormals are slow; exp(89) overflows by itself
#if defined(__AVX512F__)
  constexpr bool kScales = N == 16;  // an instruction for p * 2^n, which can leave lanes out
#else
  constexpr bool kScales = false;
#endif
  V t = x;
#if defined(__AVX512F__)
  if constexpr (kScales) t = V(_mm512_maskz_min_ps(0xffff, high.v, x.v));  // NaN stays NaN
#endif
  if constexpr (!kScales) {
    t = select(high < x, high, x);
    t = select(x < low, low, t);
  }
  // n = round(t / ln 2): adding 1.5 * 2^23 leaves n in the low mantissa bits.
  const V magic(12582912.f);
  const V shifted = t * V(1.44269504f) + magic;
  const V n = shifted - magic;
  const V r = (t - n * V(0.693359375f)) - n * V(-2.12194440e-4f);
  V p = V(0.008290315f);
  p = p * r + V(0.04189793f);
  p = p * r + V(0.16667636f);
  p = p * r + V(0.4999915f);
  p = p * r + V(0.9999997f);
  p = p * r + V(1.f);
#if defined(__AVX512F__)
  if constexpr (kScales) {
    return V(_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x.v, low.v, _CMP_NLT_UQ), p.v, n.v));
  }
#endif
  // Two factors of two: 2^n itself overflows at the top of the range, where n = 128.
  using Bits = typename V::Mask;
  const Bits i = std::bit_cast<Bits>(shifted.v) - std::bit_cast<Bits>(magic.v);
  const Bits half = i >> 1;
  p = p * V(std::bit_cast<typename V::Native>((half + 127) << 23));
  p = p * V(std::bit_cast<typename V::Native>((i - half + 127) << 23));
  return select(x < low, V(0.f), p);
}

template <int N>
CODA_FN Simd<float, N> abs(Simd<float, N> x) {
  using Bits = typename Simd<float, N>::Mask;
  return Simd<float, N>(std::bit_cast<typename Simd<float, N>::Native>(std::bit_cast<Bits>(x.v) & 0x7fffffff));
}
template <int N>
CODA_FN Simd<float, N> copysign(Simd<float, N> magnitude, Simd<float, N> sign) {
  using Bits = typename Simd<float, N>::Mask;
  const Bits s = std::bit_cast<Bits>(sign.v) & std::numeric_limits<std::int32_t>::min();
  return Simd<float, N>(
      std::bit_cast<typename Simd<float, N>::Native>((std::bit_cast<Bits>(magnitude.v) & 0x7fffffff) | s));
}

template <class T, int N>
CODA_FN Simd<T, N> reciprocal(Simd<T, N> x) {
#if defined(__AVX512F__)
  // A third of the time of a division: 14 bits and a Newton step. Where the estimate is infinite or 0 (of 0, of what is
  // so small that its reciprocal overflows, of infinity) the step would give NaN: it is right already, and e is -inf or
  // NaN.
  if constexpr (std::is_same_v<T, float> && N == 16) {
    const __m512 r = _mm512_maskz_rcp14_ps(0xffff, x.v);
    const __m512 e = _mm512_fnmadd_ps(x.v, r, _mm512_set1_ps(1.f));
    return Simd<T, N>(_mm512_mask3_fmadd_ps(e, r, r, _mm512_cmp_ps_mask(e, _mm512_set1_ps(-1.f), _CMP_GT_OQ)));
  }
#endif
  return Simd<T, N>(T(1)) / x;
}
template <int N>
CODA_FN Simd<float, N> sigmoid(Simd<float, N> x) {
  using V = Simd<float, N>;
#if defined(__AVX512F__)
  // As below, in half of the instructions: exp(-x) = 2^t needs no second part of ln 2 (relative error 2e-7 + 1.4e-8
  // |x|), nor any care for infinities where x is kept in the range in which 1 + exp(-x) and its inverse are normal
  // numbers.
  if constexpr (N == 16) {
    const V limit(87.f);
    const V s(_mm512_maskz_min_ps(0xffff, limit.v, _mm512_maskz_max_ps(0xffff, (-limit).v, x.v)));  // NaN stays NaN
    const V base(-1.44269504f), magic(12582912.f);
    const V n = (s * base + magic) - magic;
    const V r(_mm512_fmsub_ps(s.v, base.v, n.v));
    V p = V(0.0013264727f);
    p = p * r + V(0.0096715130f);
    p = p * r + V(0.055507336f);
    p = p * r + V(0.24022242f);
    p = p * r + V(0.69314700f);
    p = p * r + V(1.f);
    const V d = V(1.f) + V(_mm512_maskz_scalef_ps(0xffff, p.v, n.v));
    const __m512 guess = _mm512_maskz_rcp14_ps(0xffff, d.v);
    const __m512 error = _mm512_fnmadd_ps(d.v, guess, _mm512_set1_ps(1.f));
    return V(_mm512_maskz_fmadd_ps(_mm512_cmp_ps_mask(x.v, (-limit).v, _CMP_NLT_UQ), error, guess, guess));
  }
#endif
  return reciprocal(V(1.f) + exp(-x));
}

template <int N>
CODA_FN Simd<float, N> tanh(Simd<float, N> x) {
  using V = Simd<float, N>;
  const V s = x * x;
  V small = V(0.015225884f);
  small = small * s + V(-0.051972292f);
  small = small * s + V(0.13308778f);
  small = small * s + V(-0.33332387f);
  small = (small * s + V(1.f)) * x;  // keeps the sign of -0
  const V big = V(1.f) - V(2.f) * sigmoid(abs(x) * V(-2.f));
  return select(abs(x) < V(0.625f), small, copysign(big, x));
}

template <int N>
CODA_FN Simd<float, N> erf(Simd<float, N> x) {
  using V = Simd<float, N>;
  const V s = x * x, t = abs(x);
  V small = V(7.9334124e-05f);
  small = small * s + V(-0.0008034819f);
  small = small * s + V(0.005191215f);
  small = small * s + V(-0.026855398f);
  small = small * s + V(0.11283626f);
  small = small * s + V(-0.3761263f);
  small = (small * s + V(1.1283792f)) * x;
  const V c = select(V(4.f) < t, V(4.f), t);  // erf(4) rounds to 1
  V q = V(0.00016478919f);
  q = q * c + V(-0.002761136f);
  q = q * c + V(0.021190709f);
  q = q * c + V(-0.10195344f);
  q = q * c + V(-0.6392543f);
  q = q * c + V(-1.1265452f);
  q = q * c + V(-0.00044696784f);
  return select(t < V(0.95f), small, copysign(V(1.f) - exp(q), x));
}

template <int N>
CODA_FN Normal<Simd<float, N>> normal(Simd<float, N> x) {
  return detail::normal(x);
}

template <class T, int N>
CODA_FN Simd<T, N> rsqrt(Simd<T, N> x) {
#if defined(__AVX512F__)
  // As in reciprocal.
  if constexpr (std::is_same_v<T, float> && N == 16) {
    const __m512 r = _mm512_maskz_rsqrt14_ps(0xffff, x.v);
    const __m512 e = _mm512_fnmadd_ps(_mm512_mul_ps(x.v, r), r, _mm512_set1_ps(1.f));
    return Simd<T, N>(
        _mm512_mask3_fmadd_ps(_mm512_mul_ps(e, _mm512_set1_ps(0.5f)), r, r, _mm512_cmp_ps_mask(e, e, _CMP_ORD_Q)));
  }
#endif
  return detail::per_lane(x, [](T v) { return T(1) / std::sqrt(v); });
}
template <int N>
CODA_FN Simd<float, N> log(Simd<float, N> x) {
  return detail::log(x);
}
template <int N>
CODA_FN Softplus<Simd<float, N>> softplus_and_slope(Simd<float, N> x) {
  return detail::softplus(x);
}

template <class T, int N>
CODA_FN Simd<T, N> sqrt(Simd<T, N> x) {
  return detail::per_lane(x, [](T v) { return std::sqrt(v); });
}
template <int N>
CODA_FN Simd<double, N> exp(Simd<double, N> x) {
  return detail::per_lane(x, [](double v) { return std::exp(v); });
}
template <int N>
CODA_FN Simd<double, N> tanh(Simd<double, N> x) {
  return detail::per_lane(x, [](double v) { return std::tanh(v); });
}
template <int N>
CODA_FN Simd<double, N> erf(Simd<double, N> x) {
  return detail::per_lane(x, [](double v) { return std::erf(v); });
}
template <int N>
CODA_FN Normal<Simd<double, N>> normal(Simd<double, N> x) {
  return {detail::per_lane(x, [](double v) { return normal(v).cdf; }),
          detail::per_lane(x, [](double v) { return normal(v).pdf; })};
}
template <int N>
CODA_FN Simd<double, N> log(Simd<double, N> x) {
  return detail::per_lane(x, [](double v) { return std::log(v); });
}
template <int N>
CODA_FN Softplus<Simd<double, N>> softplus_and_slope(Simd<double, N> x) {
  return {detail::per_lane(x, [](double v) { return softplus_and_slope(v).value; }),
          detail::per_lane(x, [](double v) { return softplus_and_slope(v).slope; })};
}
template <int N>
CODA_FN Simd<double, N> abs(Simd<double, N> x) {
  return detail::per_lane(x, [](double v) { return std::abs(v); });
}
#endif

// ---- on any of them, and on Dual numbers

template <class S>
CODA_FN auto sigmoid(S x) {
  return reciprocal(S(1) + exp(-x));
}
/// The standard normal distribution function.
template <class S>
CODA_FN S normal_cdf(S x) {
  return normal(x).cdf;
}
/// log(1 + exp(x)), which no x makes overflow.
template <class S>
CODA_FN S softplus(S x) {
  return softplus_and_slope(x).value;
}
/// max(x, 0), NaN stays NaN.
template <class S>
CODA_FN auto relu(S x) {
  return select(x <= S(0), S(0), x);
}
/// min(x, c), NaN stays NaN; max(x, c).
template <class S>
CODA_FN auto at_most(S x, std::type_identity_t<S> c) {
  return select(c < x, c, x);
}
template <class S>
CODA_FN auto at_least(S x, std::type_identity_t<S> c) {
  return select(x < c, c, x);
}
template <class S>
CODA_FN auto square(S x) {
  return x * x;
}

}  // namespace coda
