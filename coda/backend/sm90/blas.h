// Products without an epilogue, by cuBLASLt: no CUDA header is needed here or in a caller, and a build without CUDA has
// the same function, which throws Error(unsupported).
#pragma once

#include <cstdint>
#include <vector>

#include "coda/backend/sm90/choice.h"
#include "coda/core/tensor.h"

namespace coda::sm90 {

/// out = alpha a b + beta c, accumulated in fp32. Row-major device matrices with any pitches, sizes and alignment: a
/// and b of one type, bf16 or fp16; out, and c where beta is not 0, of that type or fp32; c may be out. Layouts as in
/// coda/core/tensor.h. K = 0 gives beta c. `op` names the call in errors.
///
/// Which algorithm runs follows from the shape, pitches, types and alignment (up to 16 bytes) alone: that of the table
/// of measured shapes (find_product) where it has one that takes these matrices, else what cuBLASLt's heuristic puts
/// first. Nothing is timed, and results are bitwise the same in every run and process of one cuBLASLt, table and device
/// model. The choice is made at the first call and kept; later ones allocate nothing and take no lock.
void matmul(const char* op, const ConstMatrix& a, const ConstMatrix& b, Layout layout, float alpha, float beta,
            const ConstMatrix& c, const Matrix& out, void* stream);

/// What `coda tune` tries for a product of contiguous matrices, aligned to 16 bytes: what cuBLASLt's heuristic offers,
/// its own choice in front, each with and without a swizzled order of tiles. Throws as matmul does.
std::vector<Algorithm> algorithms(const char* op, DType type, DType out, Layout layout, std::int64_t m, std::int64_t n,
                                  std::int64_t k);

}  // namespace coda::sm90
