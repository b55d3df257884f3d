// The CUDA device as the rest of the library sees it: no CUDA header is needed here or in a caller.
#pragma once

#include <cstddef>
#include <string>

namespace coda::sm90 {

struct DeviceInfo {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int memory_gbs = 0;  // see Chip
  std::size_t memory_bytes = 0;
  int driver = 0, runtime = 0;  // CUDA versions: 13000 is 13.0
  std::string cutlass;          // version of the headers that the kernels were built with
  std::string cublaslt;         // version of the library, as it writes it: 130100 is 13.1.0
};

/// Whether the calling thread's current device runs the Hopper programs; if not, `why` says what is missing.
bool available(std::string* why = nullptr);

/// The current device. Throws Error(unsupported) if there is none or the library was built without CUDA.
DeviceInfo device_info();

/// Whether the current device can use the memory at an address. Host memory that CUDA does not know, and that of
/// another device, cannot be used. That addresses are the device's is remembered for a thread and 2 MiB of them. While
/// `stream` is captured any address is good: what the graph will allocate is not there yet.
class Reach {
 public:
  /// Of the device that is the calling thread's current one now.
  explicit Reach(void* stream);
  /// If it cannot, `why` says what the memory is.
  bool operator()(const void* address, std::string* why = nullptr) const;

 private:
  int device_ = -1;  // none: whatever follows says why
  void* stream_;
};

/// Memory of the current device. Throws Error(device_error) if there is not enough of it.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  void* data() const { return data_; }
  std::size_t size() const { return size_; }

  /// Both wait for the device: what ran on any of its streams before is done.
  void upload(const void* from, std::size_t bytes, std::size_t offset = 0);
  void download(void* to, std::size_t bytes, std::size_t offset = 0) const;
  void fill(unsigned char value);

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Waits for all work of the current device; throws Error(device_error) if any of it failed.
void synchronize();

}  // namespace coda::sm90
