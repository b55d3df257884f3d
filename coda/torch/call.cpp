#include "coda/torch/call.h"

#include <array>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "coda/torch/tensor.h"

namespace coda::pytorch {
namespace {

std::optional<coda_dtype> dtype_of(std::int32_t torch_dtype) {
  static const std::array<std::pair<std::int32_t, coda_dtype>, 6> known = {{
      {aoti_torch_dtype_bfloat16(), CODA_DTYPE_BF16},
      {aoti_torch_dtype_float16(), CODA_DTYPE_FP16},
      {aoti_torch_dtype_float32(), CODA_DTYPE_FP32},
      {aoti_torch_dtype_float64(), CODA_DTYPE_FP64},
      {aoti_torch_dtype_int32(), CODA_DTYPE_INT32},
      {aoti_torch_dtype_int64(), CODA_DTYPE_INT64},
  }};
  for (const auto& [theirs, ours] : known) {
    if (theirs == torch_dtype) return ours;
  }
  return std::nullopt;
}

/// PyTorch's name of a dtype that we have not.
std::string name_of_other(std::int32_t torch_dtype) {
  static const std::array<std::pair<std::int32_t, const char*>, 11> others = {{
      {aoti_torch_dtype_bool(), "bool"},
      {aoti_torch_dtype_uint8(), "uint8"},
      {aoti_torch_dtype_uint16(), "uint16"},
      {aoti_torch_dtype_uint32(), "uint32"},
      {aoti_torch_dtype_uint64(), "uint64"},
      {aoti_torch_dtype_int8(), "int8"},
      {aoti_torch_dtype_int16(), "int16"},
      {aoti_torch_dtype_float8_e4m3fn(), "float8_e4m3fn"},
      {aoti_torch_dtype_float8_e5m2(), "float8_e5m2"},
      {aoti_torch_dtype_complex64(), "complex64"},
      {aoti_torch_dtype_complex128(), "complex128"},
  }};
  for (const auto& [other, name] : others) {
    if (other == torch_dtype) return name;
  }
  return "another one";
}

std::string name_of(std::int32_t device_type, std::int32_t device_index) {
  if (device_type == aoti_torch_device_type_cpu()) return "cpu";
  if (device_type == aoti_torch_device_type_cuda()) return "cuda:" + std::to_string(device_index);
  return "a device of another kind";
}

std::string list_of(const std::int64_t* values, std::int64_t count) {
  std::string text = "(";
  for (std::int64_t i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + ")";
}

}  // namespace

void Call::wrong(const char* name, const std::string& what) {
  if (wrong_.empty()) wrong_ = std::string(operation_) + ": " + name + ": " + what;
}

void Call::throw_if_wrong() const {
  if (!wrong_.empty()) throw std::runtime_error(wrong_);
}

void Call::check(coda_status status) {
  if (status != CODA_OK) throw std::runtime_error(coda_last_error());
}

AtenTensorHandle Call::tensor(const char* name) {
  using torch::stable::detail::to;
  const auto given = to<std::optional<AtenTensorHandle>>(*next_++);
  if (!given) {
    absent_.push_back(name);
    return nullptr;
  }
  held_.emplace_back(*given);
  bool defined = true;
  if (aoti_torch_is_defined(*given, &defined) != AOTI_TORCH_SUCCESS) {
    wrong(name, "expected a tensor");
    return nullptr;
  }
  if (!defined) absent_.push_back(name);
  return defined ? *given : nullptr;
}

void Call::require(const char* name) {
  for (const char* absent : absent_) {
    if (std::string_view(absent) == name) wrong(name, "expected a tensor, got none");
  }
}

bool Call::dtype_and_device_of(const char* name, AtenTensorHandle tensor, coda_dtype& dtype) {
  std::int32_t torch_dtype = 0, type = 0, index = 0;
  if (aoti_torch_get_dtype(tensor, &torch_dtype) || aoti_torch_get_device_type(tensor, &type) ||
      aoti_torch_get_device_index(tensor, &index)) {
    return wrong(name, "expected a tensor with a dtype and a device"), false;
  }
  const auto known = dtype_of(torch_dtype);
  if (!known) {
    wrong(name, "expected dtype bf16, fp16, fp32, fp64, int32 or int64, got " + name_of_other(torch_dtype));
    return false;
  }
  dtype = *known;
  if (!first_) {
    first_ = name, device_type_ = type, device_index_ = index;
  } else if (type != device_type_ || (index != device_index_ && type != aoti_torch_device_type_cpu())) {
    wrong(name, "expected a tensor on " + name_of(device_type_, device_index_) + " as " + first_ + ", got one on " +
                    name_of(type, index));
    return false;
  }
  return true;
}

bool Call::shape_of(const char* name, AtenTensorHandle tensor, coda_const_matrix& view) {
  if (!dtype_and_device_of(name, tensor, view.dtype)) return false;
  std::int64_t dims = 0, *sizes = nullptr, *strides = nullptr;
  if (aoti_torch_get_dim(tensor, &dims) || aoti_torch_get_sizes(tensor, &sizes) ||
      aoti_torch_get_strides(tensor, &strides)) {
    return wrong(name, "expected a tensor with strides"), false;
  }
  if (dims < 2) return wrong(name, "expected 2 dimensions or more, got " + std::to_string(dims)), false;
  view.cols = sizes[dims - 1];
  view.rows = 1;
  view.pitch = view.cols;
  bool ordered = view.cols <= 1 || strides[dims - 1] == 1;
  for (std::int64_t dim = dims - 2; dim >= 0; --dim) {
    if (sizes[dim] != 1) {
      if (view.rows == 1) view.pitch = strides[dim];
      ordered = ordered && strides[dim] == view.pitch * view.rows;
    }
    view.rows *= sizes[dim];
  }
  if (view.rows == 0 || view.cols == 0) {
    view.pitch = view.cols;
    return true;
  }
  if (!ordered) {
    wrong(name, "expected dense rows at one distance from each other, got strides " + list_of(strides, dims));
  }
  return ordered;
}

bool Call::shape_of(const char* name, AtenTensorHandle tensor, coda_const_vector& view) {
  if (!dtype_and_device_of(name, tensor, view.dtype)) return false;
  bool contiguous = false;
  if (aoti_torch_get_numel(tensor, &view.size) || aoti_torch_is_contiguous(tensor, &contiguous) || !contiguous) {
    return wrong(name, "expected a contiguous tensor"), false;
  }
  return true;
}

void Call::take(const char* name, coda_const_matrix& view) {
  AtenTensorHandle const given = tensor(name);
  if (!given || !shape_of(name, given, view)) return;
  if (view.rows == 0 || view.cols == 0) {
    view.data = nothing;
  } else if (torch_get_const_data_ptr(given, &view.data) || !view.data) {
    wrong(name, "expected a tensor with memory");
  }
}

void Call::take(const char* name, coda_matrix& view) {
  AtenTensorHandle const given = tensor(name);
  coda_const_matrix shape = {};
  if (!given || !shape_of(name, given, shape)) return;
  view = {nullptr, shape.dtype, shape.rows, shape.cols, shape.pitch};
  if (view.rows == 0 || view.cols == 0) {
    view.data = nothing;
  } else if (torch_get_mutable_data_ptr(given, &view.data) || !view.data) {
    wrong(name, "expected a tensor with memory");
  }
}

void Call::take(const char* name, coda_const_vector& view) {
  AtenTensorHandle const given = tensor(name);
  if (!given || !shape_of(name, given, view)) return;
  if (view.size == 0) {
    view.data = nothing;
  } else if (torch_get_const_data_ptr(given, &view.data) || !view.data) {
    wrong(name, "expected a tensor with memory");
  }
}

void Call::take(const char* name, coda_vector& view) {
  AtenTensorHandle const given = tensor(name);
  coda_const_vector shape = {};
  if (!given || !shape_of(name, given, shape)) return;
  view = {nullptr, shape.dtype, shape.size};
  if (view.size == 0) {
    view.data = nothing;
  } else if (torch_get_mutable_data_ptr(given, &view.data) || !view.data) {
    wrong(name, "expected a tensor with memory");
  }
}

void Call::take(const char*, double& value) { value = torch::stable::detail::to<double>(*next_++); }
void Call::take(const char*, std::int64_t& value) { value = torch::stable::detail::to<std::int64_t>(*next_++); }

void Call::take(const char* name, std::uint8_t& value, std::span<const char* const> names) {
  const auto given = torch::stable::detail::to<std::string>(*next_++);
  std::string expected;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (given == names[i]) {
      value = static_cast<std::uint8_t>(i);
      return;
    }
    expected += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + std::string(names[i]);
  }
  wrong(name, "expected " + expected + ", got '" + given + "'");
}

coda_target Call::target() {
  coda_target on = {CODA_BACKEND_CPU, nullptr};
  if (!first_ || !wrong_.empty()) return on;
  if (device_type_ == aoti_torch_device_type_cuda()) {
    guard_.emplace(device_index_);
    on = {CODA_BACKEND_SM90, current_stream(device_index_)};
  } else if (device_type_ != aoti_torch_device_type_cpu()) {
    wrong(first_, "expected a tensor on cpu or cuda, got one on " + name_of(device_type_, device_index_));
  }
  return on;
}

coda_workspace Call::workspace(coda_status (*bytes)(const coda_layer_shape*, std::int64_t*),
                               const coda_layer_shape& shape) {
  std::int64_t size = 0;
  if (!wrong_.empty() || bytes(&shape, &size) != CODA_OK || size == 0) return {};
  const std::int64_t stride = 1;
  AtenTensorHandle memory = nullptr;
  coda_workspace workspace = {nullptr, static_cast<std::size_t>(size)};
  // PyTorch's own message, of what memory is left, is lost at this interface.
  if (aoti_torch_empty_strided(1, &size, &stride, aoti_torch_dtype_uint8(), device_type_, device_index_, &memory)) {
    throw std::runtime_error(std::string(operation_) + ": workspace: expected " + std::to_string(size) +
                             " bytes, got none from PyTorch's allocator");
  }
  held_.emplace_back(memory);
  if (torch_get_mutable_data_ptr(memory, &workspace.data)) return {};
  return workspace;
}

}  // namespace coda::pytorch
