// Element types: bf16 and fp16 as two-byte values that convert to and from float, and the run-time tag `DType`.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "coda/core/config.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace coda {

namespace detail {

// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
CODA_FN std::uint16_t bf16_bits(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((u >> 16) | 0x40u);
  return static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

CODA_FN float bf16_value(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// Round to nearest even in integer arithmetic; the adds of powers of two do the rounding of normals and subnormals.
CODA_FN std::uint16_t fp16_bits(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (u >> 16) & 0x8000u;
  const std::uint32_t mag = u & 0x7fffffffu;
  std::uint32_t out;
  if (mag > 0x7f800000u) {
    out = 0x7e00u | ((mag >> 13) & 0x3ffu);
  } else if (mag >= 0x477ff000u) {  // 65520 and above round to infinity
    out = 0x7c00u;
  } else if (mag < 0x38800000u) {  // below 2^-14: a subnormal, one unit is 2^-24
    out = std::bit_cast<std::uint32_t>(std::bit_cast<float>(mag) + 0.5f) - 0x3f000000u;
  } else {
    out = (mag - 0x38000000u + 0xfffu + ((mag >> 13) & 1u)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | out);
}

CODA_FN float fp16_value(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exp = (bits >> 10) & 0x1fu;
  const std::uint32_t man = bits & 0x3ffu;
  if (exp == 0) {  // zero or subnormal: man * 2^-24 is exact in float
    const float v = static_cast<float>(man) * 5.9604644775390625e-8f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(v));
  }
  const std::uint32_t out = exp == 31 ? 0x7f800000u | (man << 13) : ((exp + 112u) << 23) | (man << 13);
  return std::bit_cast<float>(sign | out);
}

}  // namespace detail

/// Brain float: 8 exponent bits, 7 stored mantissa bits. Storage only; arithmetic is done in float.
struct bf16 {
  std::uint16_t bits;
  bf16() = default;
#if defined(__CUDA_ARCH__)
  CODA_FN explicit bf16(float x) : bits(__bfloat16_as_ushort(__float2bfloat16_rn(x))) {}
#else
  CODA_FN explicit bf16(float x) : bits(detail::bf16_bits(x)) {}
#endif
  CODA_FN operator float() const { return detail::bf16_value(bits); }
};

/// IEEE binary16. Storage only; arithmetic is done in float.
struct fp16 {
  std::uint16_t bits;
  fp16() = default;
#if defined(__CUDA_ARCH__)
  CODA_FN explicit fp16(float x) : bits(__half_as_ushort(__float2half_rn(x))) {}
  CODA_FN operator float() const { return __half2float(__ushort_as_half(bits)); }
#else
  CODA_FN explicit fp16(float x) : bits(detail::fp16_bits(x)) {}
  CODA_FN operator float() const { return detail::fp16_value(bits); }
#endif
};

static_assert(sizeof(bf16) == 2 && sizeof(fp16) == 2);

enum class DType : std::uint8_t { bf16, fp16, fp32, fp64, int32, int64 };

constexpr std::int64_t size_of(DType t) {
  return t == DType::bf16 || t == DType::fp16 ? 2 : t == DType::fp32 || t == DType::int32 ? 4 : 8;
}

constexpr const char* name_of(DType t) {
  constexpr const char* names[] = {"bf16", "fp16", "fp32", "fp64", "int32", "int64"};
  const auto i = static_cast<std::size_t>(t);
  return i < std::size(names) ? names[i] : "no dtype";
}

/// Calls f with a value of the type that the tag names: bf16, fp16, fp32 or fp64. No other tag may come here.
template <class F>
void with_real(DType t, F&& f) {
  switch (t) {
    case DType::bf16:
      return f(bf16{});
    case DType::fp16:
      return f(fp16{});
    case DType::fp32:
      return f(float{});
    default:
      return f(double{});
  }
}

/// `dtype_of<T>`: the run-time tag of a compile-time element type.
template <class T>
inline constexpr DType dtype_of = [] {
  using U = std::remove_cv_t<T>;
  // NOLINTNEXTLINE(bugprone-branch-clone): those that are discarded
  if constexpr (std::is_same_v<U, bf16>) return DType::bf16;
  else if constexpr (std::is_same_v<U, fp16>) return DType::fp16;
  else if constexpr (std::is_same_v<U, float>) return DType::fp32;
  else if constexpr (std::is_same_v<U, double>) return DType::fp64;
  else if constexpr (std::is_same_v<U, std::int32_t>) return DType::int32;
  else {
    static_assert(std::is_same_v<U, std::int64_t>,
                  "coda: element types are bf16, fp16, float, double, int32_t, int64_t");
    return DType::int64;
  }
}();

template <class T>
inline constexpr bool is_real =
    std::is_same_v<std::remove_cv_t<T>, bf16> || std::is_same_v<std::remove_cv_t<T>, fp16> ||
    std::is_same_v<std::remove_cv_t<T>, float> || std::is_same_v<std::remove_cv_t<T>, double>;

/// The type a program computes in when its matrices hold T: float, or double where T is double. Statistics have it too.
template <class T>
using acc_t = std::conditional_t<std::is_same_v<std::remove_cv_t<T>, double>, double, float>;

}  // namespace coda
