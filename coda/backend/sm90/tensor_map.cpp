#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <type_traits>

#include "coda/backend/sm90/driver.h"

namespace coda::sm90::detail {

// As in tensor_map.cuh, which only nvcc can read.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder();

PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder() {
  using Encode = std::remove_pointer_t<PFN_cuTensorMapEncodeTiled_v12000>;
  static const auto function = driver_function<Encode>("cuTensorMapEncodeTiled", 12000);
  return function;
}

}  // namespace coda::sm90::detail
