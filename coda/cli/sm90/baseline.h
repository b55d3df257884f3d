// What programs and kernels are measured against: CUDA's own libraries.
#pragma once

#include <cstddef>
#include <memory>

#include "coda/core/tensor.h"

namespace coda::bench {

/// out = a b by cuBLASLt, bf16, with its heuristic's first choice and 64 MiB of workspace.
class CublasLt {
 public:
  CublasLt(const ConstMatrix& a, const ConstMatrix& b, Layout layout, const Matrix& out);
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  void run(void* stream) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The driver's copy and fill of device memory.
void copy(void* to, const void* from, std::size_t bytes, void* stream);
void set_bytes(void* to, unsigned char value, std::size_t bytes, void* stream);

}  // namespace coda::bench
