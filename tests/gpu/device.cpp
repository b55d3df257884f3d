#include "tests/gpu/device.h"

#include <vector>

#include "coda/core/error.h"

#if defined(CODA_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace coda::test {

#if defined(CODA_TEST_CUDA)

namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();
  throw Error(Status::device_error, std::string("test: ") + call + ": " + cudaGetErrorString(status));
}
cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  stream_ = stream;
}
Stream::~Stream() { cudaStreamDestroy(stream_of(stream_)); }
void Stream::wait() const { check(cudaStreamSynchronize(stream_of(stream_)), "cudaStreamSynchronize"); }

void copy_to_device(void* to, const void* from, std::size_t bytes, void* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_of(stream)), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}
void copy_to_host(void* to, const void* from, std::size_t bytes, void* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(stream)), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}
void copy_rows_to_host(void* to, const void* from, std::size_t pitch, std::size_t width, std::size_t rows,
                       void* stream) {
  if (width == 0 || rows == 0) return;
  check(cudaMemcpy2DAsync(to, pitch, from, pitch, width, rows, cudaMemcpyDeviceToHost, stream_of(stream)),
        "cudaMemcpy2DAsync");
  check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

Graph::Graph(const Stream& stream, const std::function<void()>& work) {
  check(cudaStreamBeginCapture(stream_of(stream.get()), cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream_of(stream.get()), &graph);
    if (graph) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  check(cudaStreamEndCapture(stream_of(stream.get()), &graph), "cudaStreamEndCapture");
  graph_ = graph;
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    kernels_ += type == cudaGraphNodeTypeKernel;
  }
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  executable_ = executable;
}
Graph::~Graph() {
  if (executable_) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
  if (graph_) cudaGraphDestroy(static_cast<cudaGraph_t>(graph_));
}
void Graph::launch(const Stream& stream) const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), stream_of(stream.get())), "cudaGraphLaunch");
}

std::size_t free_device_memory() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

#else

namespace {

[[noreturn]] void refuse() { throw Error(Status::unsupported, "test: this build has no CUDA"); }

}  // namespace

Stream::Stream() { refuse(); }
Stream::~Stream() = default;
void Stream::wait() const { refuse(); }
void copy_to_device(void*, const void*, std::size_t, void*) { refuse(); }
void copy_to_host(void*, const void*, std::size_t, void*) { refuse(); }
void copy_rows_to_host(void*, const void*, std::size_t, std::size_t, std::size_t, void*) { refuse(); }
Graph::Graph(const Stream&, const std::function<void()>&) { refuse(); }
Graph::~Graph() = default;
void Graph::launch(const Stream&) const { refuse(); }
std::size_t free_device_memory() { refuse(); }

#endif

}  // namespace coda::test
