#include "coda/backend/sm90/device.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cutlass/version.h>

#include <array>
#include <cstdint>
#include <utility>

#include "coda/backend/sm90/launch.cuh"
#include "coda/core/error.h"

namespace coda::sm90 {

namespace {

void check_memory(cudaError_t status, const char* function, std::size_t bytes) {
  if (status == cudaSuccess) return;
  detail::throw_device_error(status, "DeviceBuffer of " + std::to_string(bytes) + " bytes", function);
}

}  // namespace

bool available(std::string* why) {
  int device = 0, major = 0, minor = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  std::string reason;
  if (status != cudaSuccess) {
    cudaGetLastError();
    reason = std::string("no CUDA device: ") + cudaGetErrorString(status);
  } else if (major != 9 || minor != 0) {
    reason = "the current device has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
             ", expected 9.0";
  }
  if (why) *why = reason;
  return reason.empty();
}

DeviceInfo device_info() {
  int device = 0;
  cudaDeviceProp p{};
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&p, device);
  DeviceInfo info;
  if (status == cudaSuccess) status = cudaDriverGetVersion(&info.driver);
  if (status == cudaSuccess) status = cudaRuntimeGetVersion(&info.runtime);
  if (status != cudaSuccess) {
    cudaGetLastError();
    throw Error(Status::unsupported, std::string("device_info: no CUDA device: ") + cudaGetErrorString(status));
  }
  info.name = p.name;
  info.compute_major = p.major;
  info.compute_minor = p.minor;
  info.multiprocessors = p.multiProcessorCount;
  info.memory_gbs = detail::memory_gbs(device);
  info.memory_bytes = p.totalGlobalMem;
  info.cutlass =
      std::to_string(CUTLASS_MAJOR) + "." + std::to_string(CUTLASS_MINOR) + "." + std::to_string(CUTLASS_PATCH);
  info.cublaslt = std::to_string(cublasLtGetVersion());
  return info;
}

Reach::Reach(void* stream) : stream_(stream) {
  if (cudaGetDevice(&device_) != cudaSuccess) cudaGetLastError();
}
bool Reach::operator()(const void* address, std::string* why) const {
  struct Known {
    std::uintptr_t block = 0;
    int device = -1;
  };
  constexpr unsigned kBits = 10;  // more than a model has tensors
  static thread_local std::array<Known, std::size_t{1} << kBits> known;
  if (device_ < 0) return true;
  const std::uintptr_t block = reinterpret_cast<std::uintptr_t>(address) >> 21;
  Known& entry = known[block * 0x9e3779b97f4a7c15u >> (64 - kBits)];
  if (entry.block == block && entry.device == device_) return true;
  cudaPointerAttributes found{};
  if (cudaPointerGetAttributes(&found, address) != cudaSuccess) return cudaGetLastError(), true;
  if (found.type == cudaMemoryTypeUnregistered) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(static_cast<cudaStream_t>(stream_), &capture) != cudaSuccess) cudaGetLastError();
    if (capture != cudaStreamCaptureStatusNone) return true;
    if (why) *why = "host memory";
    return false;
  }
  if (found.type == cudaMemoryTypeDevice && found.device != device_) {
    if (why)
      *why =
          "memory of device " + std::to_string(found.device) + ", not of the current one, " + std::to_string(device_);
    return false;
  }
  // Not of memory on the host: given back to the system, its addresses may soon be those of memory that CUDA does not
  // know.
  if (found.type == cudaMemoryTypeDevice) entry = {block, device_};
  return true;
}

DeviceBuffer::DeviceBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes > 0) check_memory(cudaMalloc(&data_, bytes), "cudaMalloc", bytes);
}
DeviceBuffer::~DeviceBuffer() { detail::forget(cudaFree(data_)); }
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void DeviceBuffer::upload(const void* from, std::size_t bytes, std::size_t offset) {
  synchronize();
  check_memory(cudaMemcpy(static_cast<char*>(data_) + offset, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy",
               bytes);
  synchronize();  // cudaMemcpy from pageable memory returns before its last bytes are there
}
void DeviceBuffer::download(void* to, std::size_t bytes, std::size_t offset) const {
  synchronize();
  check_memory(cudaMemcpy(to, static_cast<const char*>(data_) + offset, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy",
               bytes);
}
void DeviceBuffer::fill(unsigned char value) {
  if (size_ > 0) check_memory(cudaMemset(data_, value, size_), "cudaMemset", size_);
  synchronize();
}

void synchronize() {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess) detail::throw_device_error(status, "synchronize", "cudaDeviceSynchronize");
}

}  // namespace coda::sm90
