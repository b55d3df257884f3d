#include "coda/backend/sm90/blas.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "coda/backend/sm90/kernels.h"
#include "coda/backend/sm90/launch.cuh"
#include "coda/backend/sm90/relaxed_capture.cuh"
#include "coda/backend/sm90/workspace.h"

namespace coda::sm90 {
namespace {

using detail::Call;

constexpr std::size_t kMaxWorkspace = std::size_t{32} << 20;
/// No algorithm asks for more; a larger one would only make results depend on where a buffer happens to lie.
constexpr std::int64_t kMaxAlignment = 16;

void check_blas(cublasStatus_t status, const Call& call, const char* function) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  cudaGetLastError();  // the next call starts clean
  const bool refused = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
  call.fail(refused ? Status::unsupported : Status::device_error,
            std::string(function) + ": " + cublasLtGetStatusName(status));
}

cudaDataType_t cuda_type(DType t) {
  return t == DType::bf16 ? CUDA_R_16BF : t == DType::fp16 ? CUDA_R_16F : CUDA_R_32F;
}

/// A row-major view as cuBLASLt sees it: the transpose, column by column.
struct Side {
  const void* data;
  std::int64_t rows, cols, pitch, alignment;
};
Side side_of(const ConstMatrix& x) {
  const auto address = reinterpret_cast<std::uintptr_t>(x.data);
  const std::int64_t alignment = std::min(kMaxAlignment, std::int64_t{1} << std::min(std::countr_zero(address), 8));
  // The pitch of a single row is never used: one that no algorithm minds.
  const std::int64_t pitch = x.rows > 1 ? x.pitch : (x.cols + kMaxAlignment - 1) / kMaxAlignment * kMaxAlignment;
  return {x.data, x.rows, x.cols, pitch, alignment};
}

/// All that a plan depends on.
struct Key {
  std::int64_t device, m, n, k;
  std::int64_t pitch_a, pitch_b, pitch_c, pitch_out;
  std::int64_t alignment_a, alignment_b, alignment_c, alignment_out;
  DType type, out;
  Layout layout;

  bool operator==(const Key&) const = default;
};
struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t hash = static_cast<std::uint64_t>(key.type) << 16 | static_cast<std::uint64_t>(key.out) << 8 |
                         static_cast<std::uint64_t>(key.layout);
    for (const std::int64_t part :
         {key.device, key.m, key.n, key.k, key.pitch_a, key.pitch_b, key.pitch_c, key.pitch_out, key.alignment_a,
          key.alignment_b, key.alignment_c, key.alignment_out}) {
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

/// What cublasLtMatmul takes besides pointers. cuBLASLt's matrices are column-major, so it computes the transpose of
/// out from the transposes of b, its first operand, and of a.
struct Plan {
  cublasLtMatmulDescOpaque_t op;
  cublasLtMatrixLayoutOpaque_t b, a, c, out;
  cublasLtMatmulAlgo_t algo;
  std::size_t workspace;
};

cublasLtHandle_t handle_of(int device, const Call& call) {
  static std::array<std::atomic<cublasLtHandle_t>, detail::kMaxDevices> handles{};
  static std::mutex making;
  std::atomic<cublasLtHandle_t>& entry = handles[static_cast<std::size_t>(device)];
  cublasLtHandle_t handle = entry.load(std::memory_order_acquire);
  if (handle) return handle;
  const std::lock_guard lock(making);
  handle = entry.load(std::memory_order_relaxed);
  if (!handle) {
    const detail::RelaxedCapture relaxed;
    check_blas(cublasLtCreate(&handle), call, "cublasLtCreate");
    entry.store(handle, std::memory_order_release);
  }
  return handle;
}

class Preference {
 public:
  Preference(const Key& key, const Call& call) : call_(call) {
    check_blas(cublasLtMatmulPreferenceInit(&value_), call, "cublasLtMatmulPreferenceInit");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kMaxWorkspace});
    // A split K is summed from fp32 partial products by a kernel of its own, in one order. The other schemes add up
    // in the output as blocks finish, or round the partial products to 16 bits.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(key.alignment_b));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(key.alignment_a));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(key.alignment_c));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(key.alignment_out));
  }
  cublasLtMatmulPreference_t get() { return &value_; }

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& x) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(&value_, attribute, &x, sizeof x), call_,
               "cublasLtMatmulPreferenceSetAttribute");
  }

  cublasLtMatmulPreferenceOpaque_t value_{};
  const Call& call_;
};

std::shared_ptr<const Plan> make_plan(const Key& key, cublasLtHandle_t handle, const Call& call, const Side& a,
                                      const Side& b) {
  const auto plan = std::make_shared<Plan>();
  check_blas(cublasLtMatmulDescInit(&plan->op, CUBLAS_COMPUTE_32F, CUDA_R_32F), call, "cublasLtMatmulDescInit");
  const auto set_transpose = [&](cublasLtMatmulDescAttributes_t attribute, bool transpose) {
    const cublasOperation_t value = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(cublasLtMatmulDescSetAttribute(&plan->op, attribute, &value, sizeof value), call,
               "cublasLtMatmulDescSetAttribute");
  };
  set_transpose(CUBLASLT_MATMUL_DESC_TRANSA, key.layout == Layout::nt);
  set_transpose(CUBLASLT_MATMUL_DESC_TRANSB, key.layout == Layout::tn);
  const auto set_layout = [&](cublasLtMatrixLayoutOpaque_t& x, DType type, std::int64_t rows, std::int64_t cols,
                              std::int64_t pitch) {
    check_blas(cublasLtMatrixLayoutInit(&x, cuda_type(type), static_cast<std::uint64_t>(cols),
                                        static_cast<std::uint64_t>(rows), pitch),
               call, "cublasLtMatrixLayoutInit");
  };
  set_layout(plan->a, key.type, a.rows, a.cols, key.pitch_a);
  set_layout(plan->b, key.type, b.rows, b.cols, key.pitch_b);
  set_layout(plan->c, key.out, key.m, key.n, key.pitch_c);
  set_layout(plan->out, key.out, key.m, key.n, key.pitch_out);
  Preference preference(key, call);
  cublasLtMatmulHeuristicResult_t choice{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, &plan->op, &plan->b, &plan->a, &plan->c,
                                                               &plan->out, preference.get(), 1, &choice, &found);
  check_blas(status, call, "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) call.fail(Status::unsupported, "cublasLtMatmulAlgoGetHeuristic: no algorithm for these matrices");
  check_blas(choice.state, call, "cublasLtMatmulAlgoGetHeuristic");
  plan->algo = choice.algo;
  plan->workspace = choice.workspaceSize;
  return plan;
}

using Plans = std::unordered_map<Key, std::shared_ptr<const Plan>, KeyHash>;

/// Keeps `plans` from growing for ever where shapes never repeat.
void insert(Plans& plans, std::size_t limit, const Key& key, const std::shared_ptr<const Plan>& plan) {
  if (plans.size() >= limit) plans.clear();
  plans.insert_or_assign(key, plan);
}

/// Each thread has a table of its own, filled from the process's: only a shape that is new to the thread takes a lock.
/// A plan is never changed, and lives as long as a table has it.
const Plan& plan_of(const Key& key, cublasLtHandle_t handle, const Call& call, const Side& a, const Side& b) {
  thread_local Plans seen;
  if (const auto hit = seen.find(key); hit != seen.end()) return *hit->second;
  static std::mutex making;
  static Plans& all = *new Plans();  // never destroyed: threads may outlive main
  const std::lock_guard lock(making);
  auto found = all.find(key);
  if (found == all.end()) {
    const detail::RelaxedCapture relaxed;
    insert(all, 16384, key, make_plan(key, handle, call, a, b));
    found = all.find(key);
  }
  insert(seen, 4096, key, found->second);
  return *found->second;
}

Call describe_matmul(const char* op, const ConstMatrix& a, const ConstMatrix& b, Layout layout) {
  const bool a_km = layout == Layout::tn, b_kn = layout != Layout::nt;
  return {op, a_km ? a.cols : a.rows, b_kn ? b.cols : b.rows, a_km ? a.rows : a.cols, layout};
}
void check_matrix(const Call& call, const char* argument, const ConstMatrix& x, std::int64_t rows, std::int64_t cols,
                  DType type) {
  if (x.rows == rows && x.cols == cols && x.dtype == type && (x.data || rows * cols == 0)) return;
  const auto text = [](std::int64_t r, std::int64_t c, DType t) {
    return "(" + std::to_string(r) + ", " + std::to_string(c) + ") of " + name_of(t);
  };
  call.fail(Status::invalid_argument, std::string(argument) + ": expected a matrix " + text(rows, cols, type) +
                                          ", got " + (x.data ? "" : "a null pointer to ") +
                                          text(x.rows, x.cols, x.dtype));
}

}  // namespace

void matmul(const char* op, const ConstMatrix& a, const ConstMatrix& b, Layout layout, float alpha, float beta,
            const ConstMatrix& c, const Matrix& out, void* stream) {
  const Call call = describe_matmul(op, a, b, layout);
  if (a.dtype != DType::bf16 && a.dtype != DType::fp16) {
    call.fail(Status::unsupported, std::string("a: expected bf16 or fp16, got ") + name_of(a.dtype));
  }
  check_matrix(call, "a", a, a.rows, a.cols, a.dtype);
  check_matrix(call, "b", b, layout == Layout::nt ? call.n : call.k, layout == Layout::nt ? call.k : call.n, a.dtype);
  const DType out_type = out.dtype == DType::fp32 ? DType::fp32 : a.dtype;
  check_matrix(call, "out", out, call.m, call.n, out_type);
  if (call.m == 0 || call.n == 0) return;
  if (beta != 0) check_matrix(call, "c", c, call.m, call.n, out_type);
  const detail::Device device = detail::current_device(call);
  if (call.k == 0) {
    if (beta == 0) return fill(op, out, 0, stream);
    return cast(op, c, out, beta, stream);
  }

  const Side left = side_of(a), right = side_of(b), target = side_of(out), addend = beta != 0 ? side_of(c) : target;
  const Key key{.device = device.number,
                .m = call.m,
                .n = call.n,
                .k = call.k,
                .pitch_a = left.pitch,
                .pitch_b = right.pitch,
                .pitch_c = addend.pitch,
                .pitch_out = target.pitch,
                .alignment_a = left.alignment,
                .alignment_b = right.alignment,
                .alignment_c = addend.alignment,
                .alignment_out = target.alignment,
                .type = a.dtype,
                .out = out_type,
                .layout = layout};
  cublasLtHandle_t handle = handle_of(device.number, call);
  const Plan& plan = plan_of(key, handle, call, left, right);
  const Workspace workspace(plan.workspace, stream, op);
  const detail::RelaxedCapture relaxed;  // the algorithm's code may be loaded by its first call
  // cuBLASLt takes descriptors as pointers to non-const, and does not change them.
  const auto opaque = [](auto& x) { return const_cast<std::remove_cvref_t<decltype(x)>*>(&x); };
  check_blas(cublasLtMatmul(handle, opaque(plan.op), &alpha, right.data, opaque(plan.b), left.data, opaque(plan.a),
                            &beta, addend.data, opaque(plan.c), out.data, opaque(plan.out), &plan.algo,
                            workspace.data(), plan.workspace, static_cast<cudaStream_t>(stream)),
             call, "cublasLtMatmul");
}

}  // namespace coda::sm90
