// The bare product that programs are measured against.
#pragma once

#include "bench/gpu/timing.h"
#include "coda/core/tensor.h"

namespace coda::bench {

/// out = a b by cuBLASLt, bf16, with its heuristic's first choice.
class CublasLt {
 public:
  static constexpr std::size_t kWorkspace = std::size_t{64} << 20;

  CublasLt(const ConstMatrix& a, const ConstMatrix& b, Layout layout, const Matrix& out)
      : a_(a.data), b_(b.data), out_(out.data), workspace_(kWorkspace) {
    CHECK(cublasLtCreate(&handle_));
    CHECK(cublasLtMatmulDescCreate(&op_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    // cuBLAS is column-major: it computes the transpose of out, from b (its first operand) and a.
    const cublasOperation_t first = layout == Layout::nt ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = layout == Layout::tn ? CUBLAS_OP_T : CUBLAS_OP_N;
    CHECK(cublasLtMatmulDescSetAttribute(op_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    CHECK(cublasLtMatmulDescSetAttribute(op_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    const auto describe = [](cublasLtMatrixLayout_t& l, const ConstMatrix& x) {
      CHECK(cublasLtMatrixLayoutCreate(&l, CUDA_R_16BF, static_cast<std::uint64_t>(x.cols),
                                       static_cast<std::uint64_t>(x.rows), x.pitch));
    };
    describe(la_, a), describe(lb_, b), describe(lo_, out);
    cublasLtMatmulPreference_t preference = nullptr;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                               sizeof kWorkspace));
    int found = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, op_, lb_, la_, lo_, lo_, preference, 1, &choice_, &found));
    cublasLtMatmulPreferenceDestroy(preference);
    if (found == 0) throw std::runtime_error("cuBLASLt has no algorithm for this shape");
  }
  ~CublasLt() {
    for (cublasLtMatrixLayout_t l : {la_, lb_, lo_}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(op_);
    cublasLtDestroy(handle_);
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  void run(cudaStream_t stream) const {
    const float one = 1, zero = 0;
    CHECK(cublasLtMatmul(handle_, op_, &one, b_, lb_, a_, la_, &zero, out_, lo_, out_, lo_, &choice_.algo,
                         workspace_.data(), kWorkspace, stream));
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t op_ = nullptr;
  cublasLtMatrixLayout_t la_ = nullptr, lb_ = nullptr, lo_ = nullptr;
  cublasLtMatmulHeuristicResult_t choice_{};
  const void *a_, *b_;
  void* out_;
  DeviceBuffer workspace_;
};

}  // namespace coda::bench
