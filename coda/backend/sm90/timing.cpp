#include "coda/backend/sm90/timing.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "coda/backend/sm90/launch.cuh"

namespace coda::sm90 {
namespace {

void check(cudaError_t status, const std::string& name, const char* function) {
  if (status != cudaSuccess) detail::throw_device_error(status, name, function);
}

cudaEvent_t event(void* e) { return static_cast<cudaEvent_t>(e); }
cudaStream_t stream_of(void* s) { return static_cast<cudaStream_t>(s); }
cudaGraphExec_t exec_of(void* e) { return static_cast<cudaGraphExec_t>(e); }

}  // namespace

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "Stream", "cudaStreamCreateWithFlags");
  stream_ = stream;
}
Stream::~Stream() { cudaStreamDestroy(stream_of(stream_)); }

Candidate::Candidate(std::string label, const std::function<void(void*)>& launch, const DeviceBuffer& flush,
                     void* stream)
    : Candidate(std::move(label)) {  // so that the destructor runs if what follows throws
  const cudaStream_t on = stream_of(stream);
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), name, "cudaEventCreate");
  begin_ = begin;
  check(cudaEventCreate(&end), name, "cudaEventCreate");
  end_ = end;
  check(cudaStreamBeginCapture(on, cudaStreamCaptureModeGlobal), name, "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    check(cudaMemsetAsync(flush.data(), 1, flush.size(), on), name, "cudaMemsetAsync");
    check(cudaEventRecordWithFlags(begin, on, cudaEventRecordExternal), name, "cudaEventRecord");
    launch(stream);
    check(cudaEventRecordWithFlags(end, on, cudaEventRecordExternal), name, "cudaEventRecord");
  } catch (...) {
    detail::forget(cudaStreamEndCapture(on, &graph));
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(on, &graph), name, "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  check(status, name, "cudaGraphInstantiate");
  exec_ = exec;
}
Candidate::~Candidate() {
  if (exec_) cudaGraphExecDestroy(exec_of(exec_));
  if (begin_) cudaEventDestroy(event(begin_));
  if (end_) cudaEventDestroy(event(end_));
}

void Candidate::replay(void* stream, bool keep) {
  check(cudaGraphLaunch(exec_of(exec_), stream_of(stream)), name, "cudaGraphLaunch");
  check(cudaStreamSynchronize(stream_of(stream)), name, "cudaStreamSynchronize");
  float ms = 0;
  check(cudaEventElapsedTime(&ms, event(begin_), event(end_)), name, "cudaEventElapsedTime");
  if (keep) times_.push_back(ms);
}

double Candidate::median() const {
  if (times_.empty()) return 0;
  std::vector<float> sorted = times_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

}  // namespace coda::sm90
