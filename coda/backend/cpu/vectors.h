// A fragment's vectors to and from memory, two at a time where that takes fewer instructions.
#pragma once

#include <tuple>

#include "coda/epilogue/simd.h"

namespace coda::cpu {

/// v[i] = elements i N ... i N + N - 1 at p.
template <class Acc, int N, int Count, class T>
CODA_FN void load_vectors(const T* p, Simd<Acc, N> (&v)[Count]) {
#if defined(__AVX512BW__)
  // Each word goes to the upper half of its lane by one permutation, in place of a widening and a shift.
  if constexpr (std::is_same_v<std::remove_const_t<T>, bf16> && std::is_same_v<Acc, float> && N == 16 &&
                Count % 2 == 0) {
    const auto lanes = [](int first) {
      const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
      return _mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(first)), 16);
    };
    CODA_UNROLL for (int i = 0; i < Count; i += 2) {
      const __m512i words = _mm512_loadu_si512(p + i * N);
      v[i].v = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, lanes(0), words));
      v[i + 1].v = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, lanes(16), words));
    }
    return;
  }
#endif
  CODA_UNROLL for (int i = 0; i < Count; ++i) v[i] = load_vector<Acc, N>(p + i * N);
}

/// The same of pairs: v[2j] = the even columns of as many as v[2j] and v[2j + 1] have lanes, v[2j + 1] = the odd ones.
template <class Acc, int N, int Count, class T>
CODA_FN void load_pairs(const T* p, Simd<Acc, N> (&v)[Count]) {
  static_assert(Count % 2 == 0);
#if defined(__AVX512F__)
  // A pair of bf16 is a word: one half of it has to be moved up, the other to be cleared.
  if constexpr (std::is_same_v<std::remove_const_t<T>, bf16> && std::is_same_v<Acc, float> && N == 16) {
    CODA_UNROLL for (int i = 0; i < Count; i += 2) {
      const __m512i words = _mm512_loadu_si512(p + i * N);
      v[i].v = _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, words, 16));
      v[i + 1].v = _mm512_castsi512_ps(_mm512_maskz_and_epi32(0xffff, words, _mm512_set1_epi32(-0x10000)));
    }
    return;
  }
#endif
  load_vectors(p, v);
  CODA_UNROLL for (int i = 0; i < Count; i += 2) std::tie(v[i], v[i + 1]) = deinterleave(v[i], v[i + 1]);
}

/// Whether p is where a cache line begins.
inline bool is_line(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 64 == 0; }

/// The inverse of load_vectors, rounded to T.
template <class T, class Acc, int N, int Count>
CODA_FN void store_vectors(T* p, const Simd<Acc, N> (&v)[Count]) {
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<T, bf16> && std::is_same_v<Acc, float> && N == 16 && Count % 2 == 0) {
    CODA_UNROLL for (int i = 0; i < Count; i += 2) {
      const auto words = _mm512_cvtne2ps_pbh(v[i + 1].v, v[i].v);
      std::memcpy(p + i * N, &words, sizeof words);
    }
    return;
  }
#endif
  CODA_UNROLL for (int i = 0; i < Count; ++i) store_vector(p + i * N, v[i]);
}

/// The same past the caches, where vectors of T fill lines; p must be where one begins. Other threads see it after
/// end_of_streams().
template <class T, class Acc, int N, int Count>
CODA_FN void stream_vectors(T* p, const Simd<Acc, N> (&v)[Count]) {
#if defined(__AVX512BF16__) && !defined(__SANITIZE_ADDRESS__)  // which does not check these stores
  if constexpr (std::is_same_v<T, bf16> && std::is_same_v<Acc, float> && N == 16 && Count % 2 == 0) {
    CODA_UNROLL for (int i = 0; i < Count; i += 2) {
      const auto words = _mm512_cvtne2ps_pbh(v[i + 1].v, v[i].v);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(p + i * N), std::bit_cast<__m512i>(words));
    }
    return;
  }
#endif
  store_vectors(p, v);
}

/// The inverse of load_pairs, rounded to T; past the caches if `Stream`, as stream_vectors.
template <bool Stream, class T, class Acc, int N, int Count>
CODA_FN void store_pairs(T* p, const Simd<Acc, N> (&v)[Count]) {
  static_assert(Count % 2 == 0);
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
  // Half of the permutations: of what is rounded.
  if constexpr (std::is_same_v<T, bf16> && std::is_same_v<Acc, float> && N == 16) {
    const auto alternating = [] {
      const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
      return _mm512_or_si512(_mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(16)), 16), lane);
    };
    CODA_UNROLL for (int i = 0; i < Count; i += 2) {
      const auto rounded = std::bit_cast<__m512i>(_mm512_cvtne2ps_pbh(v[i + 1].v, v[i].v));
      const __m512i words = _mm512_maskz_permutexvar_epi16(0xffffffff, alternating(), rounded);
#if !defined(__SANITIZE_ADDRESS__)
      if constexpr (Stream) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(p + i * N), words);
        continue;
      }
#endif
      std::memcpy(p + i * N, &words, sizeof words);
    }
    return;
  }
#endif
  Simd<Acc, N> in_order[Count];
  CODA_UNROLL for (int i = 0; i < Count; i += 2) std::tie(in_order[i], in_order[i + 1]) = interleave(v[i], v[i + 1]);
  if constexpr (Stream) stream_vectors(p, in_order);
  else store_vectors(p, in_order);
}

inline void end_of_streams() {
#if defined(__AVX512BF16__)
  _mm_sfence();
#endif
}

}  // namespace coda::cpu
