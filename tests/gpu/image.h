// The memory of one call: all of its matrices in one image, on the host and, for Hopper, on the device. Every test of
// the Hopper backend has its guard zones and its poison from here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "coda/backend/sm90/device.h"
#include "coda/core/tensor.h"
#include "coda/ops/ops.h"
#include "tests/reference/mat.h"

namespace coda::test::gpu {

using coda::Layout;

using reference::Mat;
using reference::Vec;

/// Bytes round each matrix that nothing may write, and what they, and outputs before a call, hold.
inline constexpr std::int64_t kGuard = 4096;
inline constexpr unsigned char kPoison = 0xff;

/// One matrix of an image. `misalign` is a number of bytes past a 256-byte boundary.
struct Block {
  DType type = DType::fp32;
  std::int64_t rows = 0, cols = 0, pitch = 0, misalign = 0;
  bool output = false;  // its elements may change
  bool filled = false;  // they have a value before the call
};

/// Every byte begins as poison, a NaN in each real type: guard zones round each matrix, the padding of its rows, and
/// outputs. After a call only elements of outputs may have changed, and all of those must have.
///
/// Where CODA_TEST_SEPARATE_BUFFERS is set, each matrix lies in device memory of its own instead, of its exact size and
/// with nothing put into outputs, for tools that watch each access.
class Image {
 public:
  explicit Image(ops::Backend backend) : backend_(backend) {}

  // ---- before allocate()
  int add(const Block& block);
  void allocate();

  // ---- after it
  const Block& block(int i) const { return blocks_[static_cast<std::size_t>(i)]; }
  int blocks() const { return static_cast<int>(blocks_.size()); }
  /// What `i` holds before a call: these values, or poison.
  void set(int i, const Mat& values);
  void poison(int i);
  Mat get(int i) const;
  Matrix matrix(int i) const;
  Vector vector(int i) const;
  /// Where element (row, 0) is, as download() left it.
  const unsigned char* row(int i, std::int64_t row) const { return at(after_, i, row); }

  /// Puts what `set` wrote, and poison, in place; waits.
  void upload(void* stream);
  /// Brings what a call left; waits.
  void download(void* stream);
  /// The bytes of all matrices as the last download left them.
  std::vector<unsigned char> bytes() const {
    const auto begin = after_.begin() + static_cast<std::ptrdiff_t>(base_);
    return {begin, begin + static_cast<std::ptrdiff_t>(size_)};
  }
  /// All of it on the device, guard zones included; not with separate buffers.
  void* device_data() const { return device_.data(); }
  std::size_t device_size() const { return device_.size(); }

  /// Empty, or what was written that must not be, or what of an output that is not `filled` was not; `name` names
  /// block i.
  template <class Name>
  std::string fault(const Name& name) const {
    int which = 0;
    const std::string text = find_fault(&which);
    return text.empty() ? text : std::string(name(which)) + ": " + text;
  }
  /// Empty, or the first element of block i that still holds the poison.
  std::string unwritten(int i) const;

 private:
  static constexpr std::int64_t kAlign = 256;

  std::int64_t size_of_block(int i) const {
    const Block& b = block(i);
    return b.rows * b.pitch * size_of(b.type);
  }
  std::size_t row_bytes(int i) const { return static_cast<std::size_t>(block(i).cols * size_of(block(i).type)); }
  std::size_t offset(int i) const { return offsets_[static_cast<std::size_t>(i)]; }
  std::size_t offset(int i, std::int64_t row) const {
    return offset(i) + static_cast<std::size_t>(row * block(i).pitch * size_of(block(i).type));
  }
  const unsigned char* at(const std::vector<unsigned char>& image, int i, std::int64_t row) const {
    return image.data() + base_ + offset(i, row);
  }
  unsigned char* at(std::vector<unsigned char>& image, int i, std::int64_t row) const {
    return image.data() + base_ + offset(i, row);
  }
  void* address(int i) const;
  std::string find_fault(int* which) const;

  ops::Backend backend_;
  std::vector<Block> blocks_;
  std::vector<std::size_t> offsets_;
  std::size_t size_ = 0, base_ = 0;            // base_: to the next aligned address of the host's memory
  std::vector<unsigned char> before_, after_;  // after_ is also where the CPU backend works
  bool separate_ = false;
  sm90::DeviceBuffer device_;
  std::vector<sm90::DeviceBuffer> parts_;
};

/// One element to and from a number; any DType.
double load_element(const void* from, DType type);
void store_element(void* to, DType type, double value);

}  // namespace coda::test::gpu
