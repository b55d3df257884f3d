// Descriptors for the bulk copy engine: of matrices that an epilogue loads and stores, and how CUTLASS makes those of
// operands. To be included before any header of CUTLASS.
#pragma once

#include <cudaTypedefs.h>

#include <cutlass/cuda_host_adapter.hpp>
#include <string>

#include "coda/backend/sm90/launch.cuh"

namespace coda::sm90::detail {

/// The driver's cuTensorMapEncodeTiled, looked up once; null if it has none.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder();
/// Gives the calling thread the context of its current device, which it lacks until its first call of the runtime that
/// needs one. False if that fails.
bool make_context();

template <class... Args>
CUresult call_cuTensorMapEncodeTiled(Args... args) {
  const auto encode = tensor_map_encoder();
  if (!encode) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult status = encode(args...);
  return status == CUDA_ERROR_INVALID_CONTEXT && make_context() ? encode(args...) : status;
}

/// A matrix of rows x cols words of `Bytes` bytes (2 or 4), rows `pitch_bytes` apart, that travels in boxes of
/// box_rows x box_cols whose rows of 64 or 128 bytes lie swizzled in shared memory. What is outside of the matrix is
/// read as 0 and never written. Address and pitch are multiples of 16.
template <int Bytes>
CUtensorMap tensor_map(const Call& call, void* data, std::int64_t rows, std::int64_t cols, std::int64_t pitch_bytes,
                       int box_rows, int box_cols) {
  static_assert(Bytes == 2 || Bytes == 4);
  const cuuint64_t extent[] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t pitch[] = {static_cast<cuuint64_t>(pitch_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_cols), static_cast<cuuint32_t>(box_rows)}, step[] = {1, 1};
  CUtensorMap map;
  const CUresult status =
      call_cuTensorMapEncodeTiled(&map, Bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT32, 2,
                                  data, extent, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                  box_cols * Bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    call.fail(Status::device_error, "cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(status)));
  }
  return map;
}

using cutlass::call_cuTensorMapEncodeIm2col;  // CUTLASS names it; no kernel here calls it

}  // namespace coda::sm90::detail

// CUTLASS would look the driver's function up by its name for each descriptor.
#undef CUTLASS_CUDA_DRIVER_WRAPPER_CALL
#define CUTLASS_CUDA_DRIVER_WRAPPER_CALL(function) ::coda::sm90::detail::call_##function
