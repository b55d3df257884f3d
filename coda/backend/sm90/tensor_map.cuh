// Descriptors for the bulk copy engine.
#pragma once

#include <cudaTypedefs.h>

#include <string>

#include "coda/backend/sm90/launch.cuh"

namespace coda::sm90::detail {

/// The driver's cuTensorMapEncodeTiled, looked up once; null if it has none.
PFN_cuTensorMapEncodeTiled_v12000 tensor_map_encoder();

/// A matrix of rows x cols words of `Bytes` bytes (2 or 4), rows `pitch_bytes` apart, that travels in boxes of
/// box_rows x box_cols whose rows of 64 or 128 bytes lie swizzled in shared memory. What is outside of the matrix is
/// read as 0 and never written. Address and pitch are multiples of 16. `streams`: rows are read from end to end, so
/// that the L2 cache may bring 256 bytes for 128.
template <int Bytes>
CUtensorMap tensor_map(const Call& call, void* data, std::int64_t rows, std::int64_t cols, std::int64_t pitch_bytes,
                       int box_rows, int box_cols, bool streams = false) {
  static_assert(Bytes == 2 || Bytes == 4);
  const cuuint64_t extent[] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t pitch[] = {static_cast<cuuint64_t>(pitch_bytes)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_cols), static_cast<cuuint32_t>(box_rows)}, step[] = {1, 1};
  CUtensorMap map;
  CUresult status = CUDA_ERROR_NOT_SUPPORTED;
  ensure_context();
  if (const auto encode = tensor_map_encoder()) {
    status = encode(&map, Bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, data, extent,
                    pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                    box_cols * Bytes == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                    streams ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  }
  if (status != CUDA_SUCCESS) {
    call.fail(Status::device_error, "cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(status)));
  }
  return map;
}

}  // namespace coda::sm90::detail
