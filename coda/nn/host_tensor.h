// An owning, zeroed, 64-byte aligned tensor in host memory: what weights, gradients and optimiser state live in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coda/backend/cpu/memory.h"
#include "coda/core/tensor.h"

namespace coda::nn {

using Shape = std::vector<std::int64_t>;

/// Number of elements of a shape; 1 for a scalar. Throws on a negative extent or more than 2^62 bytes.
std::int64_t element_count(const Shape& shape, DType dtype);

/// "[3, 4]"
std::string to_string(const Shape& shape);

class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, Shape shape);
  HostTensor clone() const;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t size() const { return size_; }
  std::int64_t rows() const { return shape_.empty() ? 1 : shape_[0]; }
  std::int64_t cols() const { return rows() == 0 ? 0 : size_ / rows(); }
  bool present() const { return data_ != nullptr; }

  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  std::span<std::byte> bytes() { return {data_.get(), byte_count()}; }
  std::span<const std::byte> bytes() const { return {data_.get(), byte_count()}; }

  /// The elements; throws when T is not the tensor's element type.
  template <class T>
  std::span<T> values() {
    expect(dtype_of<T>);
    return {reinterpret_cast<T*>(data_.get()), static_cast<std::size_t>(size_)};
  }
  template <class T>
  std::span<const T> values() const {
    expect(dtype_of<T>);
    return {reinterpret_cast<const T*>(data_.get()), static_cast<std::size_t>(size_)};
  }

  Matrix matrix() { return {data(), dtype_, rows(), cols()}; }
  ConstMatrix matrix() const { return {data(), dtype_, rows(), cols()}; }
  Vector vector() { return {data(), dtype_, size_}; }
  ConstVector vector() const { return {data(), dtype_, size_}; }

 private:
  std::size_t byte_count() const { return static_cast<std::size_t>(size_ * size_of(dtype_)); }
  void expect(DType asked) const;

  cpu::Memory data_;
  DType dtype_ = DType::fp32;
  Shape shape_;
  std::int64_t size_ = 0;
};

}  // namespace coda::nn
