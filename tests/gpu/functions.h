// The elementary functions that programs are made of, each by itself on the device. No CUDA header is needed here.
#pragma once

#include <cstdint>
#include <type_traits>

#include "coda/epilogue/dual.h"

namespace coda::test {

enum class Function : std::uint8_t {
  exp,
  log,
  tanh,
  sigmoid,
  softplus,
  erf,
  normal_cdf,
  sqrt,
  rsqrt,
  reciprocal,
  end,
};

/// One of them as a function object for any scalar.
template <Function f>
struct Apply {
  template <class S>
  CODA_FN auto operator()(S x) const {
    using enum Function;
    if constexpr (f == exp) return coda::exp(x);
    else if constexpr (f == log) return coda::log(x);
    else if constexpr (f == tanh) return coda::tanh(x);
    else if constexpr (f == sigmoid) return coda::sigmoid(x);
    else if constexpr (f == softplus) return coda::softplus(x);
    else if constexpr (f == erf) return coda::erf(x);
    else if constexpr (f == normal_cdf) return coda::normal_cdf(x);
    else if constexpr (f == sqrt) return coda::sqrt(x);
    else if constexpr (f == rsqrt) return coda::rsqrt(x);
    else return coda::reciprocal(x);
  }
};

/// run(Apply<f>())
template <Function First = Function::exp, class Run>
void with_function(Function f, const Run& run) {
  if constexpr (First != Function::end) {
    if (f == First) return run(Apply<First>());
    with_function<static_cast<Function>(static_cast<int>(First) + 1)>(f, run);
  }
}

/// value[i] = f(x[i]) and slope[i] = f'(x[i]) for i < n, all of them on the device. Does not wait.
void evaluate(Function f, const float* x, float* value, float* slope, std::int64_t n, void* stream);

}  // namespace coda::test
