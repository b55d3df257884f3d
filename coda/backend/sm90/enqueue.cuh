// How kernels are launched: close behind each other (programmatic dependent launch). While the last blocks of one are
// at work, those of the stream's next are set up where there is room; then they wait until all ahead of them is done
// and can be read. That saves some half a microsecond between two kernels.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <type_traits>

#include "coda/backend/sm90/launch.cuh"

namespace coda::sm90::detail {

/// Every thread of every kernel calls it before it touches memory that other kernels write or read. A kernel has to
/// wait itself even if it needs nothing of the one ahead: the next waits for this one alone, and means all before it.
__device__ __forceinline__ void wait_for_turn() {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

/// A kernel that calls wait_for_turn, with what each device has loaded of it. To launch it by its address has the
/// driver look for that every time: 1.3 us of 4.5 in a library of some 600 kernels.
template <class... Parameters>
class Launchable {
 public:
  explicit constexpr Launchable(void (*kernel)(Parameters...)) : kernel_(kernel) {}

  /// Not <<<>>>, after which one has to ask for an error that may be somebody else's. `device` is the current one.
  cudaError_t enqueue(cudaStream_t stream, const Device& device, const Blocks& blocks,
                      const std::type_identity_t<Parameters>&... arguments) {
    std::atomic<cudaFunction_t>& entry = loaded_[static_cast<std::size_t>(device.number)];
    cudaFunction_t function = entry.load(std::memory_order_acquire);
    if (!function) {
      const cudaError_t status = cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(kernel_));
      if (status != cudaSuccess) return status;
      entry.store(function, std::memory_order_release);
    }
    void* addresses[] = {const_cast<Parameters*>(&arguments)...};
    return launch_loaded(function, stream, blocks, addresses);
  }

 private:
  void (*kernel_)(Parameters...);
  std::array<std::atomic<cudaFunction_t>, kMaxDevices> loaded_{};
};

template <auto Kernel>
inline Launchable launchable{Kernel};

}  // namespace coda::sm90::detail
