// What the programs in this folder share: checked CUDA calls, inputs, and candidates that are timed in turn.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "coda/backend/sm90/device.h"
#include "coda/core/types.h"

namespace coda::bench {

using sm90::DeviceBuffer;

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cublasLtGetStatusString(status));
}
#define CHECK(call) ::coda::bench::check(call, #call)

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

/// A CUDA graph of three nodes: fill a buffer larger than the L2 cache, then the work between two event records.
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

/// Warms up, then replays all candidates in turn (A B C A B C ...), since the chip's clock follows its power.
template <class Candidates>
void interleave(const Candidates& candidates, cudaStream_t stream, int rounds) {
  constexpr int kWarmUp = 10;
  for (int round = 0; round < rounds + kWarmUp; ++round) {
    for (const auto& candidate : candidates) candidate->replay(stream, round >= kWarmUp);
  }
}

/// What a result file says once: where its records were measured.
struct Provenance {
  std::string commit = "unknown", driver = "unknown", date = "unknown";
};
inline void write_provenance(std::FILE* f, const Provenance& p) {
  const auto info = sm90::device_info();
  const auto version = [](int v) { return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10); };
  std::fprintf(f, "  \"device\": \"%s\",\n  \"driver\": \"%s\",\n  \"cuda_driver\": \"%s\",\n  \"cuda\": \"%s\",\n",
               info.name.c_str(), p.driver.c_str(), version(info.driver).c_str(), version(info.runtime).c_str());
  std::fprintf(f, "  \"cutlass\": \"%s\",\n  \"cublaslt\": \"%zu\",\n  \"commit\": \"%s\",\n  \"date\": \"%s\",\n",
               info.cutlass.c_str(), cublasLtGetVersion(), p.commit.c_str(), p.date.c_str());
}
/// A result file: `write` puts the members of one record.
template <class Records, class Write>
void write_file(const std::string& path, const Provenance& from, const std::string& method, const Records& records,
                const Write& write) {
  std::FILE* f = std::fopen(path.c_str(), "w");
  if (!f) throw std::runtime_error("cannot write " + path);
  std::fprintf(f, "{\n");
  write_provenance(f, from);
  std::fprintf(f, "  \"method\": \"%s\",\n  \"records\": [\n", method.c_str());
  for (std::size_t i = 0; i < records.size(); ++i) {
    std::fprintf(f, "    {");
    write(f, records[i]);
    std::fprintf(f, "}%s\n", i + 1 < records.size() ? "," : "");
  }
  std::fprintf(f, "  ]\n}\n");
  if (std::fclose(f) != 0) throw std::runtime_error("cannot write " + path);
}

}  // namespace coda::bench
