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

/// The current device's pool, made at the first call. It lives as long as the process.
cudaMemPool_t current_pool(const char* op, std::size_t bytes) {
  static std::array<std::atomic<cudaMemPool_t>, detail::kMaxDevices> pools{};
  static std::mutex making;
  int device = 0;
  check_pool(cudaGetDevice(&device), op, bytes, "cudaGetDevice");
  if (device >= detail::kMaxDevices) check_pool(cudaErrorInvalidDevice, op, bytes, "cudaGetDevice");
  std::atomic<cudaMemPool_t>& entry = pools[static_cast<std::size_t>(device)];
  cudaMemPool_t pool = entry.load(std::memory_order_acquire);
  if (pool) return pool;
  const std::lock_guard lock(making);
  pool = entry.load(std::memory_order_relaxed);
  if (!pool) {
    pool = make_pool(device, op, bytes);
    entry.store(pool, std::memory_order_release);
  }
  return pool;
}

}  // namespace

Workspace::Workspace(std::size_t bytes, void* stream, const char* op) : stream_(stream) {
  if (bytes == 0) return;
  check_pool(cudaMallocFromPoolAsync(&data_, bytes, current_pool(op, bytes), static_cast<cudaStream_t>(stream)), op,
             bytes, "cudaMallocFromPoolAsync");
}
Workspace::~Workspace() {
  if (data_) detail::forget(cudaFreeAsync(data_, static_cast<cudaStream_t>(stream_)));
}
Workspace::Workspace(Workspace&& other) noexcept : data_(std::exchange(other.data_, nullptr)), stream_(other.stream_) {}
Workspace& Workspace::operator=(Workspace&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(stream_, other.stream_);
  return *this;
}

}  // namespace coda::sm90
