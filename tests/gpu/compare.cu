#include <algorithm>
#include <string>

#include "coda/core/error.h"
#include "tests/gpu/compare.h"

namespace coda::test {
namespace {

constexpr unsigned kThreads = 256, kBlocks = 1024;

__global__ void __launch_bounds__(kThreads)
    compare_and_restore_kernel(uint4* now, const uint4* expected, const uint4* initial, std::size_t words,
                               unsigned long long* differing) {
  for (std::size_t i = blockIdx.x * kThreads + threadIdx.x; i < words; i += gridDim.x * kThreads) {
    const uint4 x = now[i], y = expected[i];
    if (x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w) atomicAdd(differing, 1);
    now[i] = initial[i];
  }
}

}  // namespace

void compare_and_restore(void* now, const void* expected, const void* initial, std::size_t bytes,
                         std::uint64_t* differing, void* stream) {
  static_assert(sizeof(std::uint64_t) == sizeof(unsigned long long));
  const std::size_t words = bytes / sizeof(uint4);
  const auto blocks = static_cast<unsigned>(std::min<std::size_t>(kBlocks, (words + kThreads - 1) / kThreads));
  compare_and_restore_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      static_cast<uint4*>(now), static_cast<const uint4*>(expected), static_cast<const uint4*>(initial), words,
      reinterpret_cast<unsigned long long*>(differing));
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) {
    throw Error(Status::device_error, std::string("test: compare_and_restore: ") + cudaGetErrorString(status));
  }
}

}  // namespace coda::test
