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
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

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
  std::int64_t pitch, alignment;
};
Side side_of(const ConstMatrix& x) {
  const auto address = reinterpret_cast<std::uintptr_t>(x.data);
  const std::int64_t alignment = std::min(kMaxAlignment, std::int64_t{1} << std::min(std::countr_zero(address), 8));
  // The pitch of a single row is never used: one that no algorithm minds.
  const std::int64_t pitch = x.rows > 1 ? x.pitch : (x.cols + kMaxAlignment - 1) / kMaxAlignment * kMaxAlignment;
  return {x.data, pitch, alignment};
}

/// All that a plan depends on.
struct Key {
  std::int64_t device, m, n, k;
  std::int64_t pitch_a, pitch_b, pitch_c, pitch_out;
  std::int64_t alignment_a, alignment_b, alignment_c, alignment_out;
  DType type, out;
  Layout layout;
  std::optional<Algorithm> algorithm;  // that the thread asks for

  bool operator==(const Key&) const = default;
};
Key key_of(int device, const Call& call, DType type, DType out, const Side& a, const Side& b, const Side& c,
           const Side& target) {
  return {.device = device,
          .m = call.m,
          .n = call.n,
          .k = call.k,
          .pitch_a = a.pitch,
          .pitch_b = b.pitch,
          .pitch_c = c.pitch,
          .pitch_out = target.pitch,
          .alignment_a = a.alignment,
          .alignment_b = b.alignment,
          .alignment_c = c.alignment,
          .alignment_out = target.alignment,
          .type = type,
          .out = out,
          .layout = call.layout,
          .algorithm = chosen_algorithm()};
}
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

/// cuBLASLt's matrices are column-major, so it computes the transpose of out from the transposes of b, its first
/// operand, and of a.
struct Description {
  cublasLtMatmulDescOpaque_t op;
  cublasLtMatrixLayoutOpaque_t b, a, c, out;
};
/// What cublasLtMatmul takes besides pointers.
struct Plan {
  Description matrices;
  cublasLtMatmulAlgo_t algo;
  std::size_t workspace;
};

/// cuBLASLt takes descriptors as pointers to non-const, and does not change them.
template <class T>
T* opaque(const T& x) {
  return const_cast<T*>(&x);
}

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

Description describe(const Key& key, const Call& call) {
  Description d;
  check_blas(cublasLtMatmulDescInit(&d.op, CUBLAS_COMPUTE_32F, CUDA_R_32F), call, "cublasLtMatmulDescInit");
  const auto set_transpose = [&](cublasLtMatmulDescAttributes_t attribute, bool transpose) {
    const cublasOperation_t value = transpose ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(cublasLtMatmulDescSetAttribute(&d.op, attribute, &value, sizeof value), call,
               "cublasLtMatmulDescSetAttribute");
  };
  const bool a_is_km = key.layout == Layout::tn, b_is_kn = key.layout != Layout::nt;
  set_transpose(CUBLASLT_MATMUL_DESC_TRANSA, !b_is_kn);
  set_transpose(CUBLASLT_MATMUL_DESC_TRANSB, a_is_km);
  const auto set_layout = [&](cublasLtMatrixLayoutOpaque_t& x, DType type, std::int64_t rows, std::int64_t cols,
                              std::int64_t pitch) {
    check_blas(cublasLtMatrixLayoutInit(&x, cuda_type(type), static_cast<std::uint64_t>(cols),
                                        static_cast<std::uint64_t>(rows), pitch),
               call, "cublasLtMatrixLayoutInit");
  };
  set_layout(d.a, key.type, a_is_km ? key.k : key.m, a_is_km ? key.m : key.k, key.pitch_a);
  set_layout(d.b, key.type, b_is_kn ? key.k : key.n, b_is_kn ? key.n : key.k, key.pitch_b);
  set_layout(d.c, key.out, key.m, key.n, key.pitch_c);
  set_layout(d.out, key.out, key.m, key.n, key.pitch_out);
  return d;
}

/// What the heuristic offers, at most `most` and at least one, its own choice first.
std::vector<cublasLtMatmulHeuristicResult_t> heuristic(const Description& d, const Key& key, cublasLtHandle_t handle,
                                                       const Call& call, int most) {
  std::vector<cublasLtMatmulHeuristicResult_t> choices(static_cast<std::size_t>(most));
  Preference preference(key, call);
  int found = 0;
  check_blas(cublasLtMatmulAlgoGetHeuristic(handle, opaque(d.op), opaque(d.b), opaque(d.a), opaque(d.c), opaque(d.out),
                                            preference.get(), most, choices.data(), &found),
             call, "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) call.fail(Status::unsupported, "cublasLtMatmulAlgoGetHeuristic: no algorithm for these matrices");
  check_blas(choices.front().state, call, "cublasLtMatmulAlgoGetHeuristic");
  choices.resize(static_cast<std::size_t>(found));
  return choices;
}

/// The members of Algorithm but the first, as cuBLASLt names them. Of some attributes it takes 16 bits.
struct Attribute {
  int Algorithm::*member;
  cublasLtMatmulAlgoConfigAttributes_t name;
  std::size_t bytes;
};
constexpr Attribute kAttributes[] = {{&Algorithm::tile, CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
                                     {&Algorithm::stages, CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
                                     {&Algorithm::split_k, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
                                     {&Algorithm::reduction, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
                                     {&Algorithm::swizzle, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
                                     {&Algorithm::custom, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
                                     {&Algorithm::inner_shape, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
                                     {&Algorithm::cluster_shape, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2}};

/// Makes `x` the plan's algorithm if it is for these matrices. cuBLASLt's own check knows nothing of their alignment.
bool take(Plan& plan, const Algorithm& x, const Key& key, cublasLtHandle_t handle) {
  for (const std::int64_t alignment : {key.alignment_a, key.alignment_b, key.alignment_c, key.alignment_out})
    if (alignment < kMaxAlignment) return false;
  for (const auto& [pitch, type] : {std::pair(key.pitch_a, key.type), std::pair(key.pitch_b, key.type),
                                    std::pair(key.pitch_c, key.out), std::pair(key.pitch_out, key.out)})
    if (pitch * size_of(type) % kMaxAlignment != 0) return false;
  const cudaDataType_t type = cuda_type(key.type), out = cuda_type(key.out);
  cublasLtMatmulHeuristicResult_t checked{};
  if (cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, type, type, out, out, x.id, &checked.algo) !=
      CUBLAS_STATUS_SUCCESS)
    return false;
  for (const Attribute& a : kAttributes) {
    // Little-endian: the low bytes are the value.
    if (cublasLtMatmulAlgoConfigSetAttribute(&checked.algo, a.name, &(x.*a.member), a.bytes) != CUBLAS_STATUS_SUCCESS)
      return false;
  }
  const cublasLtMatmulAlgo_t algo = checked.algo;
  const Description& d = plan.matrices;
  if (cublasLtMatmulAlgoCheck(handle, opaque(d.op), opaque(d.b), opaque(d.a), opaque(d.c), opaque(d.out), &algo,
                              &checked) != CUBLAS_STATUS_SUCCESS ||
      checked.workspaceSize > kMaxWorkspace)
    return false;
  plan.algo = algo;
  plan.workspace = checked.workspaceSize;
  return true;
}

/// What the thread asks for, else what was measured; the heuristic's if neither has one.
Algorithm algorithm_of(const Key& key, const Chip& chip) {
  if (key.algorithm) return *key.algorithm;
  // Never destroyed: threads may outlive main.
  static const std::string& version = *new std::string(std::to_string(cublasLtGetVersion()));
  const Entry* entry = find_product(key.out, key.layout, key.m, key.n, key.k, chip, version);
  return entry ? entry->algorithm : Algorithm();
}

std::shared_ptr<const Plan> make_plan(const Key& key, const Chip& chip, cublasLtHandle_t handle, const Call& call) {
  const auto plan = std::make_shared<Plan>();
  plan->matrices = describe(key, call);
  const Algorithm measured = algorithm_of(key, chip);
  if (measured != Algorithm() && take(*plan, measured, key, handle)) return plan;
  const cublasLtMatmulHeuristicResult_t first = heuristic(plan->matrices, key, handle, call, 1).front();
  plan->algo = first.algo;
  plan->workspace = first.workspaceSize;
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
const Plan& plan_of(const Key& key, const Chip& chip, cublasLtHandle_t handle, const Call& call) {
  thread_local Plans seen;
  if (const auto hit = seen.find(key); hit != seen.end()) return *hit->second;
  static std::mutex making;
  static Plans& all = *new Plans();  // never destroyed: threads may outlive main
  const std::lock_guard lock(making);
  auto found = all.find(key);
  if (found == all.end()) {
    const detail::RelaxedCapture relaxed;
    insert(all, 16384, key, make_plan(key, chip, handle, call));
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
  const Key key = key_of(device.number, call, a.dtype, out_type, left, right, addend, target);
  cublasLtHandle_t handle = handle_of(device.number, call);
  const Plan& plan = plan_of(key, device.chip, handle, call);
  const Workspace workspace(plan.workspace, stream, op);
  const detail::RelaxedCapture relaxed;  // the algorithm's code may be loaded by its first call
  const Description& d = plan.matrices;
  check_blas(cublasLtMatmul(handle, opaque(d.op), &alpha, right.data, opaque(d.b), left.data, opaque(d.a), &beta,
                            addend.data, opaque(d.c), out.data, opaque(d.out), &plan.algo, workspace.data(),
                            plan.workspace, static_cast<cudaStream_t>(stream)),
             call, "cublasLtMatmul");
}

std::vector<Algorithm> algorithms(const char* op, DType type, DType out, Layout layout, std::int64_t m, std::int64_t n,
                                  std::int64_t k) {
  const Call call{op, m, n, k, layout};
  const detail::Device device = detail::current_device(call);
  const auto side = [](std::int64_t pitch) { return Side{nullptr, pitch, kMaxAlignment}; };
  const Key key = key_of(device.number, call, type, out, side(layout == Layout::tn ? m : k),
                         side(layout == Layout::nt ? k : n), side(n), side(n));
  constexpr int kMost = 16;
  cublasLtHandle_t handle = handle_of(device.number, call);
  Plan plan;
  plan.matrices = describe(key, call);
  std::vector<Algorithm> all{{}};
  for (const cublasLtMatmulHeuristicResult_t& offer : heuristic(plan.matrices, key, handle, call, kMost)) {
    Algorithm x;
    const auto value = [&](cublasLtMatmulAlgoConfigAttributes_t name, std::size_t bytes) {
      int v = 0;
      std::size_t written = 0;
      check_blas(cublasLtMatmulAlgoConfigGetAttribute(&offer.algo, name, &v, bytes, &written), call,
                 "cublasLtMatmulAlgoConfigGetAttribute");
      return v;
    };
    x.id = value(CUBLASLT_ALGO_CONFIG_ID, sizeof x.id);
    for (const Attribute& a : kAttributes) x.*a.member = value(a.name, a.bytes);
    for (const int swizzle : {0, 1}) {
      x.swizzle = swizzle;
      if (std::find(all.begin(), all.end(), x) == all.end() && take(plan, x, key, handle)) all.push_back(x);
    }
  }
  return all;
}

}  // namespace coda::sm90
