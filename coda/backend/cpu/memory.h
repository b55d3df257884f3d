// Memory for matrices.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace coda::cpu {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<std::byte, Free>;

/// At least `bytes`, 64-byte aligned; null if there is no more. Larger pieces lie on large pages where the system lends
/// them: tiles are walked with long strides, and on pages of 4 KiB a product took a quarter longer and an epilogue up
/// to a third (measured at 1024^3 in bf16).
inline Memory allocate(std::size_t bytes) {
  constexpr std::size_t kLine = 64, kLargePage = std::size_t{2} << 20;
  const std::size_t alignment = bytes < kLargePage / 4 ? kLine : kLargePage;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  Memory memory(static_cast<std::byte*>(std::aligned_alloc(alignment, bytes == 0 ? kLine : bytes)));
#if defined(MADV_HUGEPAGE)
  if (memory && alignment == kLargePage) madvise(memory.get(), bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

}  // namespace coda::cpu
