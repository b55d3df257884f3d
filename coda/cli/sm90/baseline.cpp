#include "coda/cli/sm90/baseline.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "coda/backend/sm90/device.h"
#include "coda/core/error.h"

namespace coda::bench {
namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;

[[noreturn]] void fail(const char* call, const char* what) {
  throw Error(Status::device_error, std::string("bench: ") + call + ": " + what);
}
void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(call, cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, cublasLtGetStatusString(status));
}
#define CHECK(call) check(call, #call)

}  // namespace

struct CublasLt::Impl {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t op = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, out = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
  const void *a_data = nullptr, *b_data = nullptr;
  void* out_data = nullptr;
  sm90::DeviceBuffer workspace{kWorkspace};

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    for (cublasLtMatrixLayout_t l : {a, b, out})
      if (l) cublasLtMatrixLayoutDestroy(l);
    if (op) cublasLtMatmulDescDestroy(op);
    if (handle) cublasLtDestroy(handle);
  }
};

CublasLt::CublasLt(const ConstMatrix& a, const ConstMatrix& b, Layout layout, const Matrix& out)
    : impl_(std::make_unique<Impl>()) {
  Impl& i = *impl_;
  i.a_data = a.data, i.b_data = b.data, i.out_data = out.data;
  CHECK(cublasLtCreate(&i.handle));
  CHECK(cublasLtMatmulDescCreate(&i.op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  // cuBLAS is column-major: it computes the transpose of out, from b (its first operand) and a.
  const cublasOperation_t first = layout == Layout::nt ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = layout == Layout::tn ? CUBLAS_OP_T : CUBLAS_OP_N;
  CHECK(cublasLtMatmulDescSetAttribute(i.op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
  CHECK(cublasLtMatmulDescSetAttribute(i.op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
  const auto describe = [](cublasLtMatrixLayout_t& l, const ConstMatrix& x) {
    CHECK(cublasLtMatrixLayoutCreate(&l, CUDA_R_16BF, static_cast<std::uint64_t>(x.cols),
                                     static_cast<std::uint64_t>(x.rows), x.pitch));
  };
  describe(i.a, a), describe(i.b, b), describe(i.out, out);
  cublasLtMatmulPreference_t preference = nullptr;
  CHECK(cublasLtMatmulPreferenceCreate(&preference));
  CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                             sizeof kWorkspace));
  int found = 0;
  CHECK(cublasLtMatmulAlgoGetHeuristic(i.handle, i.op, i.b, i.a, i.out, i.out, preference, 1, &i.choice, &found));
  cublasLtMatmulPreferenceDestroy(preference);
  if (found == 0) throw Error(Status::unsupported, "bench: cuBLASLt has no algorithm for this shape");
}
CublasLt::~CublasLt() = default;

void CublasLt::run(void* stream) const {
  const Impl& i = *impl_;
  const float one = 1, zero = 0;
  CHECK(cublasLtMatmul(i.handle, i.op, &one, i.b_data, i.b, i.a_data, i.a, &zero, i.out_data, i.out, i.out_data, i.out,
                       &i.choice.algo, i.workspace.data(), kWorkspace, static_cast<cudaStream_t>(stream)));
}

void copy(void* to, const void* from, std::size_t bytes, void* stream) {
  CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)));
}
void set_bytes(void* to, unsigned char value, std::size_t bytes, void* stream) {
  CHECK(cudaMemsetAsync(to, value, bytes, static_cast<cudaStream_t>(stream)));
}

}  // namespace coda::bench
