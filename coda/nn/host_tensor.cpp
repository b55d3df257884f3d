#include "coda/nn/host_tensor.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <utility>

#include "coda/core/error.h"

namespace coda::nn {

std::int64_t element_count(const Shape& shape, DType dtype) {
  const std::int64_t limit = (std::int64_t{1} << 62) / size_of(dtype);
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      throw Error(Status::invalid_argument,
                  fmt::format("tensor: shape: expected no negative extent, got {}", to_string(shape)));
    }
    if (extent != 0 && count > limit / extent) {
      throw Error(Status::invalid_argument, fmt::format("tensor: shape: expected at most 2^62 bytes, got {} of {}",
                                                        to_string(shape), name_of(dtype)));
    }
    count *= extent;
  }
  return count;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

HostTensor::HostTensor(DType dtype, Shape shape)
    : dtype_(dtype), shape_(std::move(shape)), size_(element_count(shape_, dtype)) {
  data_ = cpu::allocate(byte_count() + 1);  // an empty tensor still gets an address of its own
  if (!data_) throw std::bad_alloc();
  std::memset(data_.get(), 0, byte_count());
}

HostTensor HostTensor::clone() const {
  if (!present()) return {};
  HostTensor copy(dtype_, shape_);
  std::memcpy(copy.data(), data(), byte_count());
  return copy;
}

void HostTensor::expect(DType asked) const {
  if (asked == dtype_) return;
  throw Error(Status::invalid_argument,
              fmt::format("tensor: values: expected the element type {}, got {}", name_of(dtype_), name_of(asked)));
}

}  // namespace coda::nn
