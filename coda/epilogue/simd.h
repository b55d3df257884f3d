// Simd<T, N>: N lanes of T as one value, on the compiler's vector extension. It is the scalar that the CPU backend runs
// programs on; every operator is lane-wise, so a function written for `float` works on it unchanged.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "coda/core/types.h"

#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif

namespace coda {

#if defined(__AVX512F__)
inline constexpr int kSimdBytes = 64;
#elif defined(__AVX__)
inline constexpr int kSimdBytes = 32;
#else
inline constexpr int kSimdBytes = 16;
#endif

/// Lanes of T in the widest register of the machine that is compiled for.
template <class T>
inline constexpr int kLanes = kSimdBytes / static_cast<int>(sizeof(T));

namespace detail {
template <class T, int N>
struct Lanes {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
}  // namespace detail
/// The compiler's own vector of N lanes of T.
template <class T, int N>
using lanes_t = typename detail::Lanes<T, N>::type;

template <class T, int N>
struct Simd {
  using Native = lanes_t<T, N>;
  using Mask = lanes_t<std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>, N>;
  Native v;

  Simd() = default;
  CODA_FN Simd(Native n) : v(n) {}
  CODA_FN explicit Simd(T x) : v(x - Native{}) {}  // x - 0 keeps the sign of -0, x + 0 would not
  template <class U>
    requires(std::is_arithmetic_v<U> && !std::is_same_v<U, T>)
  CODA_FN explicit Simd(U x) : Simd(static_cast<T>(x)) {}

  static CODA_FN Simd load(const T* p) {
    Simd s;
    std::memcpy(&s.v, p, sizeof s.v);
    return s;
  }
  CODA_FN void store(T* p) const { std::memcpy(p, &v, sizeof v); }
  CODA_FN T operator[](int i) const { return v[i]; }

  friend CODA_FN Simd operator+(Simd a, Simd b) { return a.v + b.v; }
  friend CODA_FN Simd operator-(Simd a, Simd b) { return a.v - b.v; }
  friend CODA_FN Simd operator*(Simd a, Simd b) { return a.v * b.v; }
  friend CODA_FN Simd operator/(Simd a, Simd b) { return a.v / b.v; }
  friend CODA_FN Simd operator-(Simd a) { return -a.v; }
  friend CODA_FN Mask operator<(Simd a, Simd b) { return a.v < b.v; }
  friend CODA_FN Mask operator<=(Simd a, Simd b) { return a.v <= b.v; }
  friend CODA_FN Mask operator>(Simd a, Simd b) { return a.v > b.v; }
};

/// Lane-wise `mask ? a : b`.
template <class T, int N>
CODA_FN Simd<T, N> select(typename Simd<T, N>::Mask mask, Simd<T, N> a, Simd<T, N> b) {
  return mask ? a.v : b.v;
}

namespace detail {

template <class T, int N, class F>
CODA_FN Simd<T, N> per_lane(Simd<T, N> x, F f) {
  Simd<T, N> out;
  CODA_UNROLL for (int i = 0; i < N; ++i) out.v[i] = f(x.v[i]);
  return out;
}

template <class T, int N, int... I>
CODA_FN std::pair<Simd<T, N>, Simd<T, N>> even_odd(Simd<T, N> a, Simd<T, N> b, std::integer_sequence<int, I...>) {
  return {__builtin_shufflevector(a.v, b.v, (2 * I)...), __builtin_shufflevector(a.v, b.v, (2 * I + 1)...)};
}

template <class T, int N, int... I>
CODA_FN std::pair<Simd<T, N>, Simd<T, N>> zip(Simd<T, N> a, Simd<T, N> b, std::integer_sequence<int, I...>) {
  return {__builtin_shufflevector(a.v, b.v, (I / 2 + (I % 2) * N)...),
          __builtin_shufflevector(a.v, b.v, (N / 2 + I / 2 + (I % 2) * N)...)};
}

template <int Offset, class T, int N, int... I>
CODA_FN Simd<T, N> rotate_lanes(Simd<T, N> a, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a.v, a.v, ((I + Offset) % N)...);
}

// A butterfly: after log2(N) steps each lane holds the whole result, always folded in the same order.
template <int Offset, class T, int N, class Op>
CODA_FN Simd<T, N> butterfly(Simd<T, N> a, Op op) {
  if constexpr (Offset == 0) {
    return a;
  } else {
    return butterfly<Offset / 2>(op(a, rotate_lanes<Offset>(a, std::make_integer_sequence<int, N>{})), op);
  }
}

}  // namespace detail

/// Two vectors of adjacent columns, split into the even and the odd columns; `interleave` is the inverse. On a scalar,
/// whose two arguments already are an even and an odd column, both do nothing.
template <class T, int N>
CODA_FN std::pair<Simd<T, N>, Simd<T, N>> deinterleave(Simd<T, N> a, Simd<T, N> b) {
  return detail::even_odd(a, b, std::make_integer_sequence<int, N>{});
}
template <class T, int N>
CODA_FN std::pair<Simd<T, N>, Simd<T, N>> interleave(Simd<T, N> even, Simd<T, N> odd) {
  return detail::zip(even, odd, std::make_integer_sequence<int, N>{});
}

#if defined(__AVX512F__)
namespace detail {
/// The larger one; a NaN, wherever it is. One instruction and a correction: it returns its second operand where either
/// is NaN.
CODA_FN Simd<float, 16> larger(Simd<float, 16> a, Simd<float, 16> b) {
  const __m512 max = _mm512_maskz_max_ps(0xffff, b.v, a.v);
  return Simd<float, 16>(_mm512_mask_mov_ps(max, _mm512_cmp_ps_mask(b.v, b.v, _CMP_UNORD_Q), b.v));
}
}  // namespace detail
#endif

/// All lanes folded with `op`, in a fixed order.
template <class T, int N, class Op>
CODA_FN T fold_lanes(Simd<T, N> a, Op op) {
  return detail::butterfly<N / 2>(a, op).v[0];
}

// ---- conversion to and from 16-bit storage, lane by lane equal to bf16(x), fp16(x), float(x) but where said

template <int N>
CODA_FN Simd<float, N> load_as(const bf16* p) {
#if defined(__AVX512F__)
  if constexpr (N == 16) {  // GCC would widen the two halves one after the other
    const __m256i h = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    const __m512i w = _mm512_maskz_cvtepu16_epi32(0xffff, h);
    return Simd<float, N>(std::bit_cast<lanes_t<float, N>>(_mm512_maskz_slli_epi32(0xffff, w, 16)));
  }
#endif
  using Half = lanes_t<std::uint16_t, N>;
  using Word = lanes_t<std::uint32_t, N>;
  Half h;
  std::memcpy(&h, p, sizeof h);
  const Word w = __builtin_convertvector(h, Word) << 16;
  return Simd<float, N>(std::bit_cast<typename Simd<float, N>::Native>(w));
}

// With AVX512-BF16, results below 2^-126 in magnitude (subnormals) become 0, as in products of that instruction set.
template <int N>
CODA_FN void store_as(bf16* p, Simd<float, N> x) {
#if defined(__AVX512BF16__)
  if constexpr (N == 16) {
    const auto h = _mm512_cvtneps_pbh(x.v);
    std::memcpy(p, &h, sizeof h);
    return;
  }
#endif
  using Word = lanes_t<std::uint32_t, N>;
  const auto u = std::bit_cast<Word>(x.v);
  const Word rounded = u + 0x7fffu + ((u >> 16) & 1u);
  const Word high = (x.v == x.v ? rounded : (u | 0x400000u)) >> 16;
#if defined(__AVX512F__)
  if constexpr (N == 16) {
    const __m256i h = _mm512_maskz_cvtepi32_epi16(0xffff, std::bit_cast<__m512i>(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
    return;
  }
#endif
  const auto h = __builtin_convertvector(high, lanes_t<std::uint16_t, N>);
  std::memcpy(p, &h, sizeof h);
}

template <int N>
CODA_FN Simd<float, N> load_as(const fp16* p) {
#if defined(__AVX512F__)
  if constexpr (N == 16) {
    return Simd<float, N>(_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
  }
#endif
#if defined(__F16C__)
  if constexpr (N == 8) return Simd<float, N>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#endif
  Simd<float, N> out;
  for (int i = 0; i < N; ++i) out.v[i] = static_cast<float>(p[i]);
  return out;
}

template <int N>
CODA_FN void store_as(fp16* p, Simd<float, N> x) {
#if defined(__AVX512F__)
  if constexpr (N == 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtps_ph(0xffff, x.v, _MM_FROUND_TO_NEAREST_INT));
    return;
  }
#endif
#if defined(__F16C__)
  if constexpr (N == 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
    return;
  }
#endif
  for (int i = 0; i < N; ++i) p[i] = fp16(x.v[i]);
}

template <int N>
CODA_FN Simd<float, N> load_as(const float* p) {
  return Simd<float, N>::load(p);
}
template <int N>
CODA_FN void store_as(float* p, Simd<float, N> x) {
  x.store(p);
}
template <int N>
CODA_FN Simd<double, N> load_as(const double* p) {
  return Simd<double, N>::load(p);
}
template <int N>
CODA_FN void store_as(double* p, Simd<double, N> x) {
  x.store(p);
}

// fp64 is the accumulator of gradient tests; there vectors held in a narrower type are converted lane by lane.
template <class Acc, int N, class T>
CODA_FN Simd<Acc, N> load_vector(const T* p) {
  if constexpr (std::is_same_v<Acc, acc_t<T>>) {
    return load_as<N>(p);
  } else {
    Simd<Acc, N> out;
    CODA_UNROLL for (int i = 0; i < N; ++i) out.v[i] = static_cast<Acc>(static_cast<acc_t<T>>(p[i]));
    return out;
  }
}
template <class T, class Acc, int N>
CODA_FN void store_vector(T* p, Simd<Acc, N> x) {
  if constexpr (std::is_same_v<Acc, acc_t<T>>) {
    store_as<N>(p, x);
  } else {
    CODA_UNROLL for (int i = 0; i < N; ++i) p[i] = static_cast<T>(static_cast<acc_t<T>>(x.v[i]));
  }
}

/// What memory of T would hold of x.
template <class T, class Acc, int N>
CODA_FN Simd<Acc, N> rounded_to(Simd<Acc, N> x) {
  T stored[N];
  store_vector(stored, x);
  return load_vector<Acc, N>(stored);
}

}  // namespace coda
