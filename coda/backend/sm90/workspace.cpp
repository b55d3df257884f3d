#include "coda/backend/sm90/workspace.h"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "coda/backend/sm90/launch.cuh"
#include "coda/backend/sm90/relaxed_capture.cuh"

namespace coda::sm90 {
namespace {

void check_pool(cudaError_t status, const char* op, std::size_t bytes, const char* function) {
  if (status == cudaSuccess) return;
  detail::throw_device_error(status, std::string(op) + ": workspace of " + std::to_string(bytes) + " bytes", function);
}

cudaMemPool_t make_pool(int device, const char* op, std::size_t bytes) {
  const detail::RelaxedCapture relaxed;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {.type = cudaMemLocationTypeDevice, .id = device};
  cudaMemPool_t pool = nullptr;
  check_pool(cudaMemPoolCreate(&pool, &properties), op, bytes, "cudaMemPoolCreate");
  std::uint64_t keep = UINT64_MAX;
  // Else the driver may make one stream wait for another only to reuse its memory.
  int wait_for_others = 0;
  cudaError_t status = cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep);
  if (status == cudaSuccess)
    status = cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &wait_for_others);
  if (status != cudaSuccess) detail::forget(cudaMemPoolDestroy(pool));
  check_pool(status, op, bytes, "cudaMemPoolSetAttribute");
  return pool;
}

std::size_t device_number(const char* op, std::size_t bytes) {
  int device = 0;
  check_pool(cudaGetDevice(&device), op, bytes, "cudaGetDevice");
  if (device >= detail::kMaxDevices) check_pool(cudaErrorInvalidDevice, op, bytes, "cudaGetDevice");
  return static_cast<std::size_t>(device);
}

/// The current device's pool, made at the first call. It lives as long as the process.
cudaMemPool_t current_pool(const char* op, std::size_t bytes) {
  static std::array<std::atomic<cudaMemPool_t>, detail::kMaxDevices> pools{};
  static std::mutex making;
  const std::size_t device = device_number(op, bytes);
  std::atomic<cudaMemPool_t>& entry = pools[device];
  cudaMemPool_t pool = entry.load(std::memory_order_acquire);
  if (pool) return pool;
  const std::lock_guard lock(making);
  pool = entry.load(std::memory_order_relaxed);
  if (!pool) {
    pool = make_pool(static_cast<int>(device), op, bytes);
    entry.store(pool, std::memory_order_release);
  }
  return pool;
}

/// Of a device, the memory that some streams keep, in the order in which they asked for it. A stream that is gone keeps
/// it: its identity will never be another's.
class KeptMemory {
 public:
  /// The memory of the stream of that identity; null if there is none left for it.
  void* of(unsigned long long identity, cudaStream_t stream, cudaMemPool_t pool) {
    for (Entry& entry : entries_) {
      void* memory = entry.memory.load(std::memory_order_acquire);
      if (!memory) memory = fill(entry, identity, stream, pool);
      if (!memory || entry.identity == identity) return memory;
    }
    return nullptr;
  }

 private:
  struct Entry {
    unsigned long long identity = 0;  // of the stream, where there is memory
    std::atomic<void*> memory{nullptr};
  };
  /// The entry's memory; it becomes this stream's, unless another thread has filled it.
  void* fill(Entry& entry, unsigned long long identity, cudaStream_t stream, cudaMemPool_t pool) {
    const std::lock_guard lock(filling_);
    void* memory = entry.memory.load(std::memory_order_relaxed);
    if (memory) return memory;
    const detail::RelaxedCapture relaxed;
    const cudaError_t status = cudaMallocFromPoolAsync(&memory, Workspace::kKeptBytes, pool, stream);
    if (status != cudaSuccess) return detail::forget(status), nullptr;
    entry.identity = identity;
    entry.memory.store(memory, std::memory_order_release);
    return memory;
  }

  std::array<Entry, Workspace::kStreams> entries_;
  std::mutex filling_;
};

/// What a stream keeps; null if it keeps nothing, or is captured.
void* kept_memory(cudaStream_t stream, const char* op, std::size_t bytes) {
  static std::array<KeptMemory, detail::kMaxDevices> of_devices;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t status = cudaStreamIsCapturing(stream, &capture);
  if (status != cudaSuccess) return detail::forget(status), nullptr;
  if (capture != cudaStreamCaptureStatusNone) return nullptr;
  unsigned long long identity = 0;  // not to be asked for in a capture, which it would break
  status = cudaStreamGetId(stream, &identity);
  if (status != cudaSuccess) return detail::forget(status), nullptr;
  return of_devices[device_number(op, bytes)].of(identity, stream, current_pool(op, bytes));
}

}  // namespace

Workspace Workspace::of_kernel(std::size_t bytes, void* stream, const char* op) {
  Workspace kept;
  if (bytes > 0 && bytes <= kKeptBytes) kept.data_ = kept_memory(static_cast<cudaStream_t>(stream), op, bytes);
  kept.kept_ = kept.data_ != nullptr;
  return kept.kept_ ? std::move(kept) : Workspace(bytes, stream, op);
}

// Anybody's capture in progress would be broken by memory that is asked for or given back outside of it.
Workspace::Workspace(std::size_t bytes, void* stream, const char* op) : stream_(stream) {
  if (bytes == 0) return;
  const detail::RelaxedCapture relaxed;
  check_pool(cudaMallocFromPoolAsync(&data_, bytes, current_pool(op, bytes), static_cast<cudaStream_t>(stream)), op,
             bytes, "cudaMallocFromPoolAsync");
}
Workspace::~Workspace() {
  if (!data_ || kept_) return;
  const detail::RelaxedCapture relaxed;
  detail::forget(cudaFreeAsync(data_, static_cast<cudaStream_t>(stream_)));
}
Workspace::Workspace(Workspace&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_), kept_(other.kept_) {}
Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(stream_, other.stream_);
  std::swap(kept_, other.kept_);
  return *this;
}

}  // namespace coda::sm90
