// Memory that an operation needs between its kernels: no CUDA header is needed here or in a caller.
#pragma once

#include <cstddef>

namespace coda::sm90 {

/// Memory of the current device that belongs to the work on `stream` from construction to destruction: kernels launched
/// in between may use it, and what runs on the stream afterwards may get the same addresses. It comes from a pool that
/// the library keeps for each device and never gives back, so that after the first use neither the driver allocates
/// nor the host waits. Inside of a stream capture it becomes a node of the graph (which CUDA refuses in the body of a
/// conditional one). Throws Error(device_error), named `op`, if there is not enough memory. 256-byte aligned; null if
/// `bytes` is 0.
class Workspace {
 public:
  Workspace() = default;
  Workspace(std::size_t bytes, void* stream, const char* op);
  ~Workspace();
  Workspace(Workspace&& other) noexcept;
  Workspace& operator=(Workspace&& other) noexcept;

  /// The same for a single kernel, at less of the host's time: the pool's memory stays with a stream, for one such
  /// kernel after the other. That goes for the first kStreams streams of a device that ask for it, for up to kKeptBytes
  /// and not inside of a capture; else it is as above.
  static Workspace of_kernel(std::size_t bytes, void* stream, const char* op);
  static constexpr int kStreams = 8;
  static constexpr std::size_t kKeptBytes = std::size_t{18} << 20;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  void* stream_ = nullptr;
  bool kept_ = false;  // by the stream
};

}  // namespace coda::sm90
