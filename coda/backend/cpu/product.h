// Products of one tile, by oneDNN.
#pragma once

#include <cstddef>

#include "coda/core/tensor.h"

namespace coda::cpu::detail {

/// One operand as (rows of the product's free dimension) x k, wherever its elements are.
struct Operand {
  const std::byte* data;
  DType dtype;
  std::int64_t free_stride, k_stride;  // in elements

  const void* at(std::int64_t i) const { return data + i * free_stride * size_of(dtype); }
};

/// bf16 products run on bf16 instructions where the machine has them, and on fp32 ones elsewhere: exact, since every
/// bf16 is a float, and four times as fast as oneDNN's own way without them.
bool native_bf16();
/// Whether products of bf16 run on AMX, whose tiles are done sooner than a second-level cache can bring others.
bool has_amx();

/// acc (m, n), rows of `ld` = a b^T.
void multiply(const Operand& a, const Operand& b, std::int64_t m, std::int64_t n, std::int64_t k, float* acc,
              std::int64_t ld);
void multiply(const Operand& a, const Operand& b, std::int64_t m, std::int64_t n, std::int64_t k, double* acc,
              std::int64_t ld);

/// Whether oneDNN has a kernel for tiles of this shape, of bf16 or fp32, whose second operand lies in blocks, as
/// `pack_blocks` has them: it is faster than the one that takes plain rows (by half in bf16, a tenth in fp32), and
/// needs no copy of that operand for each tile. A short product gains nothing, and for some of them with K = 63 the AMX
/// kernel of oneDNN 2.6.3 is no valid code: none below kLeastBlockedK.
inline constexpr std::int64_t kLeastBlockedK = 128;
bool has_blocked_product(DType t, std::int64_t m, std::int64_t n, std::int64_t k);
/// acc (m, n) = a b^T, or acc += a b^T if `add`: a (m, k) and acc contiguous, b in blocks.
void multiply_blocked(DType t, const void* a, const void* b, std::int64_t m, std::int64_t n, std::int64_t k, float* acc,
                      bool add = false);

}  // namespace coda::cpu::detail
