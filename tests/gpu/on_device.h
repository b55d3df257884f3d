// Guarded buffers on the device, for tests of the Hopper backend.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/backend/sm90/device.h"
#include "coda/core/tensor.h"
#include "tests/support/guarded.h"

namespace coda::test {

/// How a matrix lies in memory: columns by which each row is longer than it is wide, and elements by which the first
/// is off a 256-byte boundary.
struct Placed {
  std::int64_t pad = 0, misalign = 0;
};

/// A guarded host buffer and its copy on the device, guard zones and row padding included.
template <class T>
class OnDevice {
 public:
  OnDevice(std::int64_t rows, std::int64_t cols, Placed how = {})
      : host_(rows, cols, {.pitch = cols + how.pad, .misalign = how.misalign * kSize}),
        offset_(static_cast<std::size_t>(how.misalign * kSize)),
        device_(bytes() + offset_) {
    upload();
  }
  explicit OnDevice(const Mat& values, Placed how = {}) : OnDevice(values.rows, values.cols, how) { set(values); }

  void set(const Mat& values) {
    host_.set(values);
    upload();
  }
  Matrix matrix() const { return MatrixOf<T>(data(), host_.rows(), host_.cols(), host_.pitch()); }
  Vector vector() const { return VectorOf<T>(data(), host_.rows() * host_.cols()); }
  void poison() {
    host_.poison();
    upload();
  }
  /// The device's bytes on the host, after which nothing outside of the elements may have changed.
  Guarded<T>& fetch(const std::string& name, bool expect_written = true) {
    host_.forbid_guards(false);
    device_.download(begin(), bytes(), offset_);
    host_.forbid_guards(true);
    host_.expect_guards_intact(name);
    if (expect_written) host_.expect_all_written(name);
    return host_;
  }
  std::vector<unsigned char> bits() const {
    std::vector<unsigned char> x(bytes());
    device_.download(x.data(), x.size(), offset_);
    return x;
  }

 private:
  static constexpr std::int64_t kGuard = Guarded<T>::kGuardBytes, kSize = sizeof(T);
  std::size_t bytes() const { return static_cast<std::size_t>(host_.rows() * host_.pitch() * kSize + 2 * kGuard); }
  unsigned char* begin() { return reinterpret_cast<unsigned char*>(host_.data()) - kGuard; }
  T* data() const { return reinterpret_cast<T*>(static_cast<unsigned char*>(device_.data()) + offset_ + kGuard); }
  void upload() {
    host_.forbid_guards(false);
    device_.upload(begin(), bytes(), offset_);
    host_.forbid_guards(true);
  }

  Guarded<T> host_;
  std::size_t offset_;
  sm90::DeviceBuffer device_;
};

}  // namespace coda::test
