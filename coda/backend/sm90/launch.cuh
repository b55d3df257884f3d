// What the host does around a kernel, apart from its types: checks, the device's properties, errors. Used by .cu files.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "coda/backend/sm90/choice.h"
#include "coda/core/error.h"
#include "coda/core/tensor.h"

namespace coda::sm90::detail {

using coda::ceil_div;

/// A product's name for messages: "gemm_rms_swiglu (M=.., N=.., K=.., nt)".
struct Call {
  const char* op;
  std::int64_t m = 0, n = 0, k = 0;
  Layout layout = Layout::nt;

  std::string text() const;
  [[noreturn]] void fail(Status status, const std::string& message) const;
};

/// Throws Error(device_error): "what: function: what CUDA says of it". Whoever asks CUDA for its last error will not
/// find this one.
[[noreturn]] void throw_device_error(cudaError_t status, const std::string& what, const char* function);
/// For what must not throw: as above, nobody will find its error.
inline void forget(cudaError_t status) {
  if (status != cudaSuccess) cudaGetLastError();
}
inline void check(cudaError_t status, const Call& call, const char* function) {
  if (status != cudaSuccess) throw_device_error(status, call.text(), function);
}

/// Whether address and rows are multiples of `alignment` bytes; one row has no pitch to look at, null is aligned.
bool is_aligned(const void* data, std::int64_t rows, std::int64_t pitch_bytes, std::int64_t alignment);

struct Device {
  int number = 0;
  Chip chip;
};
/// The bandwidth of a device's memory, from the clock and the width of its bus: 3352 GB/s of an H100, 4814 or 4917 of
/// an H200. 0 if CUDA does not tell.
int memory_gbs(int device);
inline constexpr int kMaxDevices = 64;
/// The current device, asked for its properties once; throws Error(unsupported) unless it is of compute capability 9.0.
Device current_device(const Call& call);

/// Something that has to be done once on each device. Threads that are the first ones at the same time all do it.
class OncePerDevice {
 public:
  template <class F>
  void operator()(const Device& device, const F& f) {
    std::atomic<bool>& done = done_[static_cast<std::size_t>(device.number)];
    if (done.load(std::memory_order_acquire)) return;
    f();
    done.store(true, std::memory_order_release);
  }

 private:
  std::array<std::atomic<bool>, kMaxDevices> done_{};
};

struct Blocks {
  dim3 count;
  int threads;
  dim3 of_cluster = {1, 1, 1};
  std::size_t shared_bytes = 0;
};
/// Enqueues a kernel that begins while the one ahead of it still runs (see enqueue.cuh). `arguments`: their addresses.
cudaError_t launch_loaded(cudaFunction_t function, cudaStream_t stream, const Blocks& blocks, void** arguments);
/// A number that no other launch of this process has: all 64 bits change from one to the next, so that what happens to
/// lie in memory is taken for one of them no sooner than once in 2^64 times.
std::uint64_t next_launch();
/// Gives the calling thread the context of its current device if it has none. It lacks one until its first call of the
/// runtime that needs one, and a call of the driver is none; where this fails, that call tells of it.
void ensure_context();

/// The product of these operands; throws Error(invalid_argument) as `product_size` does.
Call describe(const char* op, const ConstMatrix& a, const ConstMatrix& b, Layout layout);

}  // namespace coda::sm90::detail
