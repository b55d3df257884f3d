// Speed of each Hopper program against cuBLASLt's bare product of the same shape.
//
// Each candidate is a CUDA graph of three nodes: fill a buffer larger than the L2 cache, then the kernel between two
// event records. Candidates of a shape are replayed in turn (A B C A B C ...), since the chip's clock follows its
// power: only figures of one run compare. Reported are medians, and the product's time over the program's.
//
// usage: gpu_kernels [--out FILE] [--rounds N] [--commit ID] [--driver VERSION] [--date DATE] [M,N,K ...]
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "coda/backend/sm90/sm90.h"

namespace {

using coda::bf16;
using coda::DType;
using coda::Layout;
using coda::Matrix;
using coda::sm90::DeviceBuffer;

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cublasLtGetStatusString(status));
}
#define CHECK(call) check(call, #call)

struct Shape {
  std::int64_t m, n, k;
};

/// Random values: zeros or constants would draw less power and run faster than real data.
class Noise {
 public:
  Noise() : values_((1 << 20) + 7) {
    std::uint64_t state = 1;
    for (bf16& v : values_) {
      float sum = -2.f;  // of four uniform values: near enough to a normal one
      for (int i = 0; i < 4; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += static_cast<float>(state >> 40) / static_cast<float>(1 << 24);
      }
      v = bf16(sum);
    }
  }
  DeviceBuffer buffer(std::int64_t elements) const {
    DeviceBuffer b(static_cast<std::size_t>(elements) * sizeof(bf16));
    for (std::size_t at = 0; at < b.size(); at += values_.size() * sizeof(bf16)) {
      b.upload(values_.data(), std::min(b.size() - at, values_.size() * sizeof(bf16)), at);
    }
    return b;
  }

 private:
  std::vector<bf16> values_;
};

/// D = A B by cuBLASLt, with the heuristic's first choice.
class CublasLt {
 public:
  static constexpr std::size_t kWorkspace = std::size_t{64} << 20;

  CublasLt(const Shape& s, Layout layout, const void* a, const void* b, void* d)
      : a_(a), b_(b), d_(d), workspace_(kWorkspace) {
    CHECK(cublasLtCreate(&handle_));
    CHECK(cublasLtMatmulDescCreate(&op_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    // cuBLAS is column-major: it computes the transpose of D, from B (its first operand) and A.
    const cublasOperation_t first = layout == Layout::nt ? CUBLAS_OP_T : CUBLAS_OP_N;
    CHECK(cublasLtMatmulDescSetAttribute(op_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    const std::int64_t rows = layout == Layout::nt ? s.k : s.n, cols = layout == Layout::nt ? s.n : s.k;
    CHECK(cublasLtMatrixLayoutCreate(&lb_, CUDA_R_16BF, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(cols), rows));
    CHECK(cublasLtMatrixLayoutCreate(&la_, CUDA_R_16BF, static_cast<std::uint64_t>(s.k),
                                     static_cast<std::uint64_t>(s.m), s.k));
    CHECK(cublasLtMatrixLayoutCreate(&ld_, CUDA_R_16BF, static_cast<std::uint64_t>(s.n),
                                     static_cast<std::uint64_t>(s.m), s.n));
    cublasLtMatmulPreference_t preference = nullptr;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                               sizeof kWorkspace));
    int found = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, op_, lb_, la_, ld_, ld_, preference, 1, &choice_, &found));
    cublasLtMatmulPreferenceDestroy(preference);
    if (found == 0) throw std::runtime_error("cuBLASLt has no algorithm for this shape");
  }
  ~CublasLt() {
    for (cublasLtMatrixLayout_t l : {la_, lb_, ld_}) cublasLtMatrixLayoutDestroy(l);
    cublasLtMatmulDescDestroy(op_);
    cublasLtDestroy(handle_);
  }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  void run(cudaStream_t stream) const {
    const float one = 1, zero = 0;
    CHECK(cublasLtMatmul(handle_, op_, &one, b_, lb_, a_, la_, &zero, d_, ld_, d_, ld_, &choice_.algo,
                         workspace_.data(), kWorkspace, stream));
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t op_ = nullptr;
  cublasLtMatrixLayout_t la_ = nullptr, lb_ = nullptr, ld_ = nullptr;
  cublasLtMatmulHeuristicResult_t choice_{};
  const void *a_, *b_;
  void* d_;
  DeviceBuffer workspace_;
};

class Candidate {
 public:
  Candidate(std::string label, const std::function<void(cudaStream_t)>& launch, const DeviceBuffer& flush,
            cudaStream_t stream)
      : name(std::move(label)) {
    CHECK(cudaEventCreate(&begin_));
    CHECK(cudaEventCreate(&end_));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemsetAsync(flush.data(), 1, flush.size(), stream));
    CHECK(cudaEventRecordWithFlags(begin_, stream, cudaEventRecordExternal));
    launch(stream);
    CHECK(cudaEventRecordWithFlags(end_, stream, cudaEventRecordExternal));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec_, graph, 0));
    cudaGraphDestroy(graph);
  }
  ~Candidate() {
    cudaGraphExecDestroy(exec_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Candidate(const Candidate&) = delete;
  Candidate& operator=(const Candidate&) = delete;

  void replay(cudaStream_t stream, bool keep) {
    CHECK(cudaGraphLaunch(exec_, stream));
    CHECK(cudaStreamSynchronize(stream));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    if (keep) times_.push_back(ms);
  }
  double median() {
    std::sort(times_.begin(), times_.end());
    return times_[times_.size() / 2];
  }

  std::string name;

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaGraphExec_t exec_ = nullptr;
  std::vector<float> times_;
};

struct Record {
  std::string program;
  Shape shape;
  Layout layout;
  double ms, cublaslt_ms;
};

std::vector<Record> measure(const Shape& s, Layout layout, const Noise& noise, const DeviceBuffer& flush, int rounds) {
  using namespace coda::sm90;
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  const DeviceBuffer a = noise.buffer(s.m * s.k), b = noise.buffer(s.n * s.k), c = noise.buffer(2 * s.m * s.n),
                     w = noise.buffer(s.n);
  const DeviceBuffer d0(static_cast<std::size_t>(s.m * s.n) * 4), d1(static_cast<std::size_t>(s.m * s.n) * 2);
  const DeviceBuffer partial(static_cast<std::size_t>(s.m * tiles_n(s.n)) * 4);
  DeviceBuffer rstd(static_cast<std::size_t>(s.m) * 4);
  const std::vector<float> ones(static_cast<std::size_t>(s.m), 0.75f);
  rstd.upload(ones.data(), rstd.size());
  const auto matrix = [](const DeviceBuffer& x, std::int64_t rows, std::int64_t cols) {
    return Matrix(x.data(), DType::bf16, rows, cols);
  };
  const Matrix ma = matrix(a, s.m, s.k), mb = layout == Layout::nt ? matrix(b, s.n, s.k) : matrix(b, s.k, s.n);
  const Matrix statistics(partial.data(), DType::fp32, s.m, tiles_n(s.n));

  const CublasLt bare(s, layout, a.data(), b.data(), d0.data());
  std::vector<std::unique_ptr<Candidate>> candidates;
  const auto add = [&](const char* name, const std::function<void(cudaStream_t)>& launch) {
    candidates.push_back(std::make_unique<Candidate>(name, launch, flush, stream));
  };
  add("cublaslt", [&](cudaStream_t on) { bare.run(on); });
  add("gemm", [&](cudaStream_t on) { gemm({.a = ma, .b = mb, .layout = layout, .out = matrix(d0, s.m, s.n)}, on); });
  add("gemm_rms_swiglu", [&](cudaStream_t on) {
    gemm_rms_swiglu({.a = ma,
                     .b = mb,
                     .layout = layout,
                     .rstd = coda::ConstVector(rstd.data(), DType::fp32, s.m),
                     .preact = matrix(d0, s.m, s.n),
                     .out = matrix(d1, s.m, s.n / 2)},
                    on);
  });
  add("gemm_rms_swiglu_without_preact", [&](cudaStream_t on) {
    gemm_rms_swiglu({.a = ma,
                     .b = mb,
                     .layout = layout,
                     .rstd = coda::ConstVector(rstd.data(), DType::fp32, s.m),
                     .out = matrix(d1, s.m, s.n / 2)},
                    on);
  });
  add("gemm_residual_rms", [&](cudaStream_t on) {
    gemm_residual_rms({.a = ma,
                       .b = mb,
                       .layout = layout,
                       .residual = matrix(c, s.m, s.n),
                       .weight = coda::ConstVector(w.data(), DType::bf16, s.n),
                       .x = matrix(d0, s.m, s.n),
                       .h = matrix(d1, s.m, s.n),
                       .sum_of_squares = statistics},
                      on);
  });
  add("gemm_swiglu_backward", [&](cudaStream_t on) {
    gemm_swiglu_backward({.a = ma,
                          .b = mb,
                          .layout = layout,
                          .preact = matrix(c, s.m, 2 * s.n),
                          .dpreact = matrix(d0, s.m, 2 * s.n),
                          .out = matrix(d1, s.m, s.n),
                          .zdz = statistics},
                         on);
  });

  constexpr int kWarmUp = 10;
  for (int round = 0; round < rounds + kWarmUp; ++round) {
    for (const auto& candidate : candidates) candidate->replay(stream, round >= kWarmUp);
  }
  const double bare_ms = candidates.front()->median();
  std::vector<Record> records;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    records.push_back({candidates[i]->name, s, layout, candidates[i]->median(), bare_ms});
  }
  candidates.clear();
  CHECK(cudaStreamDestroy(stream));
  return records;
}

void write_json(std::FILE* f, const std::vector<Record>& records, const std::string& commit, const std::string& driver,
                const std::string& date, int rounds) {
  const auto info = coda::sm90::device_info();
  const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  std::fprintf(f, "{\n  \"device\": \"%s\",\n  \"driver\": \"%s\",\n  \"cuda_driver\": \"%s\",\n  \"cuda\": \"%s\",\n",
               info.name.c_str(), driver.c_str(), version(info.driver).c_str(), version(info.runtime).c_str());
  std::fprintf(f, "  \"cutlass\": \"%s\",\n  \"cublaslt\": \"%zu\",\n  \"commit\": \"%s\",\n  \"date\": \"%s\",\n",
               info.cutlass.c_str(), cublasLtGetVersion(), commit.c_str(), date.c_str());
  std::fprintf(
      f,
      "  \"method\": \"graph replay, L2 flushed before each, interleaved, median of %d; ratio = cublaslt_ms / ms\",\n",
      rounds);
  std::fprintf(f, "  \"records\": [\n");
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& r = records[i];
    std::fprintf(
        f,
        "    {\"program\": \"%s\", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"dtype\": \"bf16\", \"layout\": \"%s\", "
        "\"ms\": %.5f, \"cublaslt_ms\": %.5f, \"ratio\": %.4f}%s\n",
        r.program.c_str(), static_cast<long long>(r.shape.m), static_cast<long long>(r.shape.n),
        static_cast<long long>(r.shape.k), coda::name_of(r.layout), r.ms, r.cublaslt_ms, r.cublaslt_ms / r.ms,
        i + 1 < records.size() ? "," : "");
  }
  std::fprintf(f, "  ]\n}\n");
}

int run(int argc, char** argv) {
  std::string out, commit = "unknown", driver = "unknown", date = "unknown";
  std::vector<Shape> shapes;
  int rounds = 40;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw std::runtime_error(arg + ": expected a value");
      return argv[++i];
    };
    if (arg == "--out") out = value();
    else if (arg == "--commit") commit = value();
    else if (arg == "--driver") driver = value();
    else if (arg == "--date") date = value();
    else if (arg == "--rounds") rounds = std::max(1, std::atoi(value().c_str()));
    else {
      long long m = 0, n = 0, k = 0;
      if (std::sscanf(arg.c_str(), "%lld,%lld,%lld", &m, &n, &k) != 3 || m <= 0 || n <= 0 || k <= 0) {
        throw std::runtime_error("expected an option or M,N,K, got '" + arg + "'");
      }
      shapes.push_back({m, n, k});
    }
  }
  if (shapes.empty()) shapes = {{2048, 2048, 2048}, {4096, 4096, 4096}, {8192, 8192, 8192}};
  std::string why;
  if (!coda::sm90::available(&why)) throw std::runtime_error(why);

  const Noise noise;
  const DeviceBuffer flush(std::size_t{256} << 20);
  std::vector<Record> records;
  std::printf("%-32s %-6s %6s %6s %6s %10s %10s %7s\n", "program", "layout", "m", "n", "k", "ms", "bare ms", "ratio");
  for (const Shape& s : shapes) {
    for (const Layout layout : {Layout::nt, Layout::nn}) {
      for (const Record& r : measure(s, layout, noise, flush, rounds)) {
        std::printf("%-32s %-6s %6lld %6lld %6lld %10.4f %10.4f %7.3f\n", r.program.c_str(), coda::name_of(layout),
                    static_cast<long long>(s.m), static_cast<long long>(s.n), static_cast<long long>(s.k), r.ms,
                    r.cublaslt_ms, r.cublaslt_ms / r.ms);
        records.push_back(r);
      }
      std::fflush(stdout);
    }
  }
  if (!out.empty()) {
    std::FILE* f = std::fopen(out.c_str(), "w");
    if (!f) throw std::runtime_error("--out: cannot write " + out);
    write_json(f, records, commit, driver, date, rounds);
    if (std::fclose(f) != 0) throw std::runtime_error("--out: cannot write " + out);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_kernels: %s\n", e.what());
    return 1;
  }
}
