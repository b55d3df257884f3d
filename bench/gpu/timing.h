// What the programs in this folder share: checked CUDA calls, candidates that are timed in turn, result files.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "bench/gpu/noise.h"
#include "coda/backend/sm90/timing.h"

namespace coda::bench {

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}
inline void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(call) + ": " + cublasLtGetStatusString(status));
}
#define CHECK(call) ::coda::bench::check(call, #call)

/// What the library times, with launches that take a cudaStream_t.
class Candidate : public sm90::Candidate {
 public:
  Candidate(std::string label, const std::function<void(cudaStream_t)>& launch, const DeviceBuffer& flush,
            cudaStream_t stream)
      : sm90::Candidate(std::move(label), [&](void* on) { launch(static_cast<cudaStream_t>(on)); }, flush, stream) {}
};
using sm90::interleave;

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
