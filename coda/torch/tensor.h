// Tensors of PyTorch's stable ABI as views, for operators of one's own: see examples/pytorch_program.
#pragma once

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "coda/core/error.h"
#include "coda/core/tensor.h"

namespace coda::pytorch {

using torch::stable::Tensor;

/// Where an empty tensor points: null would mean that it is absent.
alignas(64) inline char nothing[64];

/// The current stream of a GPU, a cudaStream_t. PyTorch without CUDA lacks the function's library, so that it is looked
/// up where it is called. Throws Error(unsupported) if this PyTorch does not tell.
inline void* current_stream(std::int32_t device) {
  using Function = AOTITorchError (*)(std::int32_t, void**);
  static const auto function = [] {
    void* const library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return library ? reinterpret_cast<Function>(dlsym(library, "aoti_torch_get_current_cuda_stream")) : nullptr;
  }();
  void* stream = nullptr;
  if (!function || function(device, &stream) != AOTI_TORCH_SUCCESS) {
    throw Error(Status::unsupported,
                "coda: expected a PyTorch that tells the current stream of cuda:" + std::to_string(device));
  }
  return stream;
}

template <class T>
constexpr torch::headeronly::ScalarType scalar_type() {
  using torch::headeronly::ScalarType;
  constexpr ScalarType types[] = {ScalarType::BFloat16, ScalarType::Half, ScalarType::Float,
                                  ScalarType::Double,   ScalarType::Int,  ScalarType::Long};
  static_assert(static_cast<int>(DType::bf16) == 0 && static_cast<int>(DType::int64) == 5);
  return types[static_cast<int>(dtype_of<T>)];
}

namespace detail {

[[noreturn]] inline void fail(const char* name, const std::string& expected, const std::string& got) {
  throw Error(Status::invalid_argument, std::string(name) + ": expected " + expected + ", got " + got);
}
template <class T>
void check_tensor(const char* name, const Tensor& tensor, std::int64_t dimensions) {
  if (tensor.scalar_type() != scalar_type<T>()) {
    fail(name, std::string("dtype ") + name_of(dtype_of<T>), torch::headeronly::toString(tensor.scalar_type()));
  }
  if (tensor.dim() != dimensions) {
    fail(name, std::to_string(dimensions) + " dimensions", std::to_string(tensor.dim()));
  }
  if (tensor.stride(dimensions - 1) != 1 && tensor.size(dimensions - 1) > 1) {
    fail(name, "elements that follow each other", "a stride of " + std::to_string(tensor.stride(dimensions - 1)));
  }
}
template <class T>
T* data_of(const Tensor& tensor) {
  if (tensor.numel() == 0) return reinterpret_cast<T*>(nothing);
  if constexpr (std::is_const_v<T>) return static_cast<T*>(tensor.const_data_ptr());
  else return static_cast<T*>(tensor.mutable_data_ptr());
}

}  // namespace detail

/// A tensor of shape (rows, cols), whose rows are dense. `name` is the argument that errors speak of.
/// Throws Error(invalid_argument) for another dtype, another number of dimensions, or columns apart.
template <class T>
MatrixOf<T> matrix(const char* name, const Tensor& tensor) {
  detail::check_tensor<T>(name, tensor, 2);
  return {detail::data_of<T>(tensor), tensor.size(0), tensor.size(1), tensor.stride(0)};
}
/// A tensor of one dimension, whose elements follow each other. Throws as `matrix`.
template <class T>
VectorOf<T> vector(const char* name, const Tensor& tensor) {
  detail::check_tensor<T>(name, tensor, 1);
  return {detail::data_of<T>(tensor), tensor.size(0)};
}

/// Where a call with this tensor runs, made its thread's device as long as this lives: a GPU's current stream, or the
/// CPU. Throws Error(invalid_argument) unless all tensors are on one of these.
class Place {
 public:
  template <class... Tensors>
  explicit Place(const Tensor& first, const Tensors&... others) : cuda_(first.is_cuda()) {
    if (!cuda_ && !first.is_cpu()) detail::fail("tensors", "ones on cpu or cuda", "one on another device");
    const auto same = [&](const Tensor& other) {
      return other.is_cuda() == cuda_ && other.is_cpu() != cuda_ &&
             (!cuda_ || other.get_device_index() == first.get_device_index());
    };
    if (!(same(others) && ...)) detail::fail("tensors", "all of them on one device", "several");
    if (!cuda_) return;
    guard_.emplace(first.get_device_index());
    stream_ = current_stream(first.get_device_index());
  }
  bool on_gpu() const { return cuda_; }
  /// Of a GPU.
  void* stream() const { return stream_; }

 private:
  bool cuda_;
  void* stream_ = nullptr;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
};

}  // namespace coda::pytorch
