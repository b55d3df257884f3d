#include <string>

#include "coda/core/error.h"
#include "tests/gpu/functions.h"

namespace coda::test {
namespace {

constexpr unsigned kThreads = 256;

template <class F>
__global__ void __launch_bounds__(kThreads)
    evaluate_kernel(F f, const float* x, float* value, float* slope, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  const Derivative<float> d = differentiate(f, x[i]);
  value[i] = d.value, slope[i] = d.dx;
}

}  // namespace

void evaluate(Function f, const float* x, float* value, float* slope, std::int64_t n, void* stream) {
  with_function(f, [&](auto function) {
    const auto blocks = static_cast<unsigned>((n + kThreads - 1) / kThreads);
    evaluate_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(function, x, value, slope, n);
  });
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) {
    throw Error(Status::device_error, std::string("test: evaluate: ") + cudaGetErrorString(status));
  }
}

}  // namespace coda::test
