// The stream that PyTorch would use now.
#pragma once

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>
#include <string>

#include "coda/core/error.h"

namespace coda::pytorch {

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

}  // namespace coda::pytorch
