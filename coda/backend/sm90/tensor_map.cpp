#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

namespace coda::sm90::detail {

// As in tensor_map.cuh, which only nvcc can read.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder();
bool make_context();

PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult query = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &query);
    if (status != cudaSuccess) cudaGetLastError();
    return query == cudaDriverEntryPointSuccess ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found) : nullptr;
  }();
  return function;
}

bool make_context() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess;
}

}  // namespace coda::sm90::detail
