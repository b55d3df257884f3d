// One matrix on the device with its type known, for tests that call kernels one by one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/gpu/image.h"

namespace coda::test {

using reference::Mat;
using reference::Vec;

/// How a matrix lies in memory: columns by which each row is longer than it is wide, and elements by which the first
/// is off a 256-byte boundary.
struct Placed {
  std::int64_t pad = 0, misalign = 0;
};

/// An image of one matrix (see image.h): guarded, and poisoned until it is set.
template <class T>
class OnDevice {
 public:
  OnDevice(std::int64_t rows, std::int64_t cols, Placed how = {}) : image_(ops::Backend::sm90), size_(rows * cols) {
    image_.add({.type = dtype_of<T>,
                .rows = rows,
                .cols = cols,
                .pitch = cols + how.pad,
                .misalign = how.misalign * static_cast<std::int64_t>(sizeof(T)),
                .output = true,
                .filled = true});
    image_.allocate();
    upload();
  }
  explicit OnDevice(const Mat& values, Placed how = {}) : OnDevice(values.rows, values.cols, how) { set(values); }

  void set(const Mat& values) {
    image_.set(0, values);
    upload();
  }
  void poison() {
    image_.poison(0);
    upload();
  }
  Matrix matrix() const { return image_.matrix(0); }
  Vector vector() const { return {image_.matrix(0).data, dtype_of<T>, size_}; }

  /// Brings the device's elements here: nothing outside of them may have changed, and all of them must have a value.
  OnDevice& fetch(const std::string& name, bool expect_written = true) {
    download();
    EXPECT_EQ(image_.fault([&](int) { return name; }), "");
    if (expect_written) {
      EXPECT_EQ(image_.unwritten(0), "") << name;
    }
    return *this;
  }
  // ---- what the last fetch brought
  Mat mat() const { return image_.get(0); }
  /// Empty, or the first element that still holds the poison.
  std::string unwritten(const std::string& name) const {
    const std::string text = image_.unwritten(0);
    return text.empty() ? text : name + ": " + text;
  }

  /// The device's bytes of all elements and what lies between and round them.
  std::vector<unsigned char> bits() const {
    download();
    return image_.bytes();
  }

 private:
  // Both wait for the device: a test may use any stream.
  void upload() {
    sm90::synchronize();
    image_.upload(nullptr);
  }
  void download() const {
    sm90::synchronize();
    image_.download(nullptr);
  }

  mutable gpu::Image image_;
  std::int64_t size_;
};

template <class T>
OnDevice<T> on_device(const Vec& values, std::int64_t misalign = 0) {
  return OnDevice<T>(reference::column(values), {.misalign = misalign});
}
inline Vec index_vec(const std::vector<std::int64_t>& x) { return Vec(x.begin(), x.end()); }

}  // namespace coda::test
