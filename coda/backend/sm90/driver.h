// Functions of the CUDA driver. They are asked for, not linked: a program that has the library starts without a driver.
#pragma once

#include <cuda_runtime_api.h>

namespace coda::sm90::detail {

/// The driver's function `name` of type F as of a version of CUDA (12000: 12.0); null if the driver has none.
template <class F>
F* driver_function(const char* name, [[maybe_unused]] unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult query = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &query);
#else  // as of the toolkit's own version
  const cudaError_t status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &query);
#endif
  if (status != cudaSuccess) cudaGetLastError();
  return query == cudaDriverEntryPointSuccess ? reinterpret_cast<F*>(found) : nullptr;
}

}  // namespace coda::sm90::detail
