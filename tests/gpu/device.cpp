#include "tests/gpu/device.h"

#include <chrono>
#include <string_view>
#include <thread>
#include <vector>

#include "coda/backend/sm90/workspace.h"
#include "coda/core/error.h"
#include "tests/gpu/compare.h"
#include "tests/gpu/functions.h"

#if defined(CODA_TEST_CUDA)
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "coda/backend/sm90/driver.h"
#endif

namespace coda::test {

#if defined(CODA_TEST_CUDA)

namespace {

using sm90::detail::driver_function;

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

void copy_on_device(void* to, const void* from, std::size_t bytes, void* stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(stream)), "cudaMemcpyAsync");
}

namespace {

cudaGraph_t captured(const Stream& stream, const std::function<void()>& work, Capture mode) {
  check(cudaStreamBeginCapture(stream_of(stream.get()), mode == Capture::global ? cudaStreamCaptureModeGlobal
                                                                                : cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
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
  return graph;
}
std::vector<cudaGraphNode_t> nodes_of(cudaGraph_t graph) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  return nodes;
}

/// Whether a kernel is this library's, by its name.
bool is_ours(cudaGraphNode_t node) {
  static auto* const params_of =
      driver_function<decltype(cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams", 12000);
  static auto* const name_of_function = driver_function<decltype(cuFuncGetName)>("cuFuncGetName", 12030);
  static auto* const name_of_kernel = driver_function<decltype(cuKernelGetName)>("cuKernelGetName", 12030);
  CUDA_KERNEL_NODE_PARAMS params{};
  if (!params_of || !name_of_function || !name_of_kernel || params_of(node, &params) != CUDA_SUCCESS) return false;
  const char* name = nullptr;
  const CUresult status = params.func ? name_of_function(&name, params.func) : name_of_kernel(&name, params.kern);
  return status == CUDA_SUCCESS && name && std::string_view(name).find("coda") != std::string_view::npos;
}

}  // namespace

Graph::Graph(const Stream& stream, const std::function<void()>& work, Capture mode) {
  cudaGraph_t graph = captured(stream, work, mode);
  graph_ = graph;
  for (const cudaGraphNode_t node : nodes_of(graph)) {
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    if (type != cudaGraphNodeTypeKernel) continue;
    ++kernels_;
    others_ += !is_ours(node);
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

int nodes_enqueued(const Stream& stream, const std::function<void()>& work) {
  const auto caught = [&] {
    try {
      work();
    } catch (const Error&) {
    }
  };
  cudaGraph_t graph = captured(stream, caught, Capture::global);
  const auto count = static_cast<int>(nodes_of(graph).size());
  cudaGraphDestroy(graph);
  return count;
}

Gate::Gate() {
  check(cudaLaunchHostFunc(stream_of(stream_.get()), wait, this), "cudaLaunchHostFunc");
  cudaEvent_t passed = nullptr;
  check(cudaEventCreateWithFlags(&passed, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  passed_ = passed;
  check(cudaEventRecord(passed, stream_of(stream_.get())), "cudaEventRecord");
}
Gate::~Gate() {
  open();
  cudaStreamSynchronize(stream_of(stream_.get()));
  cudaEventDestroy(static_cast<cudaEvent_t>(passed_));
}
void Gate::wait(void* gate) {
  Gate& self = *static_cast<Gate*>(gate);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!self.open_) {
    if (std::chrono::steady_clock::now() > end) self.timed_out_ = self.open_ = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
void Gate::hold(const Stream& stream) const {
  check(cudaStreamWaitEvent(stream_of(stream.get()), static_cast<cudaEvent_t>(passed_), 0), "cudaStreamWaitEvent");
}

void leave_an_error() {
  void* data = nullptr;
  if (cudaMalloc(&data, std::size_t{1} << 60) == cudaSuccess || cudaPeekAtLastError() == cudaSuccess)
    throw Error(Status::device_error, "test: expected an error of CUDA's, got none");
}

void forget_errors() { cudaGetLastError(); }

int device_count() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}
CurrentDevice::CurrentDevice(int number) {
  check(cudaGetDevice(&before_), "cudaGetDevice");
  check(cudaSetDevice(number), "cudaSetDevice");
}
CurrentDevice::~CurrentDevice() { cudaSetDevice(before_); }

std::size_t free_device_memory() {
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

std::size_t workspace_pool_bytes() {
  // The pool is the library's own; any of its memory leads to it.
  auto* const attribute_of = driver_function<decltype(cuPointerGetAttribute)>("cuPointerGetAttribute", 12000);
  if (!attribute_of) throw Error(Status::device_error, "test: no cuPointerGetAttribute in this driver");
  const Stream stream;
  const sm90::Workspace any(1, stream.get(), "test");
  CUmemoryPool pool = nullptr;
  const auto status =
      attribute_of(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, reinterpret_cast<CUdeviceptr>(any.data()));
  if (status != CUDA_SUCCESS || !pool) throw Error(Status::device_error, "test: a workspace that is of no pool");
  std::uint64_t bytes = 0;
  check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes), "cudaMemPoolGetAttribute");
  return bytes;
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
void copy_on_device(void*, const void*, std::size_t, void*) { refuse(); }
void compare_and_restore(void*, const void*, const void*, std::size_t, std::uint64_t*, void*) { refuse(); }
void evaluate(Function, const float*, float*, float*, std::int64_t, void*) { refuse(); }
Graph::Graph(const Stream&, const std::function<void()>&, Capture) { refuse(); }
Graph::~Graph() = default;
void Graph::launch(const Stream&) const { refuse(); }
int nodes_enqueued(const Stream&, const std::function<void()>&) { refuse(); }
Gate::Gate() { refuse(); }
Gate::~Gate() = default;
void Gate::hold(const Stream&) const { refuse(); }
void leave_an_error() { refuse(); }
void forget_errors() { refuse(); }
int device_count() { refuse(); }
CurrentDevice::CurrentDevice(int) { refuse(); }
CurrentDevice::~CurrentDevice() = default;
std::size_t free_device_memory() { refuse(); }
std::size_t workspace_pool_bytes() { refuse(); }

#endif

}  // namespace coda::test
