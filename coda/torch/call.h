// How an operator of PyTorch's dispatcher calls its function of C's interface. Private to this folder: not installed.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coda/c/coda.h"

namespace coda::pytorch {

/// One call of an operator. Its arguments are taken from the dispatcher's stack one by one, in the schema's order. What
/// is wrong with one is told by `run`, not before: the stack owns memory until everything was taken.
///
/// A tensor of two or more dimensions serves as a matrix of all but its last dimension times the last one, if its rows
/// lie at one distance from each other; one of any shape as a vector, if it is contiguous. All tensors of a call lie on
/// one device, which is where it runs: on the CPU, or on a GPU's current stream.
class Call {
 public:
  Call(const char* operation, StableIValue* stack) : operation_(operation), next_(stack) {}

  void take(const char* name, coda_const_matrix& view);
  void take(const char* name, coda_matrix& view);
  void take(const char* name, coda_const_vector& view);
  void take(const char* name, coda_vector& view);
  void take(const char* name, double& value);
  void take(const char* name, std::int64_t& value);
  /// A number for the name among `names`.
  void take(const char* name, std::uint8_t& value, std::span<const char* const> names);

  /// Tells of a tensor that was not given. It has to be asked for by name, when all are taken.
  void require(const char* name);

  /// Where the tensors so far lie.
  coda_target target();

  /// Memory of as many bytes as the layer's function says, from PyTorch's allocator; it goes back to it at the end of
  /// the call, whose stream uses it first. Nothing if the function fails: the layer's call will say why.
  coda_workspace workspace(coda_status (*bytes)(const coda_layer_shape*, std::int64_t*), const coda_layer_shape& shape);

  /// Throws std::runtime_error with the message of what was wrong with an argument or of the function itself.
  template <class Args>
  void run(coda_status (*function)(const Args*), const Args& args) {
    throw_if_wrong();
    check(function(&args));
  }
  void check(coda_status status);
  void throw_if_wrong() const;

 private:
  struct Delete {
    void operator()(AtenTensorOpaque* tensor) const { aoti_torch_delete_tensor_object(tensor); }
  };

  /// Keeps the tensor until the end of the call; null if none was given.
  AtenTensorHandle tensor(const char* name);
  /// Whether the matrix (vector) can be made of the tensor; the message is kept if it cannot.
  bool shape_of(const char* name, AtenTensorHandle tensor, coda_const_matrix& view);
  bool shape_of(const char* name, AtenTensorHandle tensor, coda_const_vector& view);
  bool dtype_and_device_of(const char* name, AtenTensorHandle tensor, coda_dtype& dtype);
  void wrong(const char* name, const std::string& what);

  const char* operation_;
  StableIValue* next_;
  std::string wrong_;
  std::vector<std::unique_ptr<AtenTensorOpaque, Delete>> held_;
  std::vector<const char*> absent_;
  const char* first_ = nullptr;  // the first tensor's name; its device is the call's
  std::int32_t device_type_ = 0, device_index_ = -1;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
};

}  // namespace coda::pytorch
