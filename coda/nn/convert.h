// Run-time element types turned into loops over static ones.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "coda/core/error.h"
#include "coda/core/types.h"

namespace coda::nn {

/// Calls `f(std::type_identity<T>{})` with the floating-point T that `dtype` names.
template <class F>
decltype(auto) visit_real(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bf16:
      return std::forward<F>(f)(std::type_identity<bf16>{});
    case DType::fp16:
      return std::forward<F>(f)(std::type_identity<fp16>{});
    case DType::fp32:
      return std::forward<F>(f)(std::type_identity<float>{});
    case DType::fp64:
      return std::forward<F>(f)(std::type_identity<double>{});
    default:
      throw Error(Status::invalid_argument,
                  std::string("convert: dtype: expected bf16, fp16, fp32 or fp64, got ") + name_of(dtype));
  }
}

/// One value from one element type to another; to a 16-bit type by way of float, rounded to nearest even.
template <class To, class From>
CODA_FN To convert_to(From x) {
  if constexpr (std::is_same_v<To, From>) return x;
  else if constexpr (std::is_same_v<To, bf16> || std::is_same_v<To, fp16>) return To(static_cast<float>(x));
  else return static_cast<To>(x);
}

/// out[i] = source[offset + i] for 0 <= i < count, where source holds elements of `dtype`.
template <class To>
void load_as(const void* source, DType dtype, std::int64_t offset, std::int64_t count, To* out) {
  visit_real(dtype, [&]<class From>(std::type_identity<From>) {
    const From* from = static_cast<const From*>(source) + offset;
    for (std::int64_t i = 0; i < count; ++i) out[i] = convert_to<To>(from[i]);
  });
}

/// destination[offset + i] = values[i] for 0 <= i < count, where destination holds elements of `dtype`.
template <class From>
void store_as(const From* values, std::int64_t count, void* destination, DType dtype, std::int64_t offset) {
  visit_real(dtype, [&]<class To>(std::type_identity<To>) {
    To* to = static_cast<To*>(destination) + offset;
    for (std::int64_t i = 0; i < count; ++i) to[i] = convert_to<To>(values[i]);
  });
}

}  // namespace coda::nn
