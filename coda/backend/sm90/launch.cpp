#include "coda/backend/sm90/launch.cuh"

#include <cudaTypedefs.h>

#include <array>
#include <atomic>
#include <random>
#include <type_traits>

#include "coda/backend/sm90/driver.h"
#include "coda/epilogue/program.h"

namespace coda::sm90::detail {

std::string Call::text() const {
  return std::string(op) + " (M=" + std::to_string(m) + ", N=" + std::to_string(n) + ", K=" + std::to_string(k) + ", " +
         name_of(layout) + ")";
}
void Call::fail(Status status, const std::string& message) const { throw Error(status, text() + ": " + message); }

void throw_device_error(cudaError_t status, const std::string& what, const char* function) {
  forget(status);
  throw Error(Status::device_error, what + ": " + function + ": " + cudaGetErrorString(status));
}

bool is_aligned(const void* data, std::int64_t rows, std::int64_t pitch_bytes, std::int64_t alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (!data) return true;
  return address % static_cast<std::uintptr_t>(alignment) == 0 && (rows <= 1 || pitch_bytes % alignment == 0);
}

int memory_gbs(int device) {
  int kilohertz = 0, bits = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device) != cudaSuccess) {
    return cudaGetLastError(), 0;
  }
  return static_cast<int>(2e-6 * kilohertz * bits / 8);  // bits move at both edges of the clock
}

Device current_device(const Call& call) {
  static std::array<std::atomic<Chip>, kMaxDevices> known{};  // no multiprocessors: not asked yet
  Device device;
  check(cudaGetDevice(&device.number), call, "cudaGetDevice");
  if (device.number >= kMaxDevices) {
    call.fail(Status::unsupported, "device: expected a number below " + std::to_string(kMaxDevices) + ", got " +
                                       std::to_string(device.number));
  }
  std::atomic<Chip>& entry = known[static_cast<std::size_t>(device.number)];
  device.chip = entry.load(std::memory_order_relaxed);
  if (device.chip.multiprocessors == 0) {
    cudaDeviceProp p{};
    check(cudaGetDeviceProperties(&p, device.number), call, "cudaGetDeviceProperties");
    if (p.major != 9 || p.minor != 0) {
      call.fail(Status::unsupported, "device " + std::to_string(device.number) + " (" + p.name +
                                         "): expected compute capability 9.0, got " + std::to_string(p.major) + "." +
                                         std::to_string(p.minor));
    }
    device.chip = {p.multiProcessorCount, memory_gbs(device.number)};
    entry.store(device.chip, std::memory_order_relaxed);
  }
  return device;
}

std::uint64_t next_launch() {
  // From another number on in each process, whose memory may be what another had.
  static std::atomic<std::uint64_t> launches{std::uint64_t{std::random_device()()} << 32};
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;  // odd: no two products with it are the same. 2^64 / 1.618..
  return (launches.fetch_add(1, std::memory_order_relaxed) + 1) * kSpread;
}

void ensure_context() {
  static const auto current =
      driver_function<std::remove_pointer_t<PFN_cuCtxGetCurrent_v4000>>("cuCtxGetCurrent", 4000);
  CUcontext context = nullptr;
  if (current) current(&context);
  if (int device = 0; !context && cudaGetDevice(&device) == cudaSuccess) cudaSetDevice(device);
}

cudaError_t launch_loaded(cudaFunction_t function, cudaStream_t stream, const Blocks& blocks, void** arguments) {
  using Launch = std::remove_pointer_t<PFN_cuLaunchKernelEx_v11060>;
  static const auto launch = driver_function<Launch>("cuLaunchKernelEx", 11060);
  if (!launch) return cudaErrorCallRequiresNewerDriver;
  CUlaunchAttribute attributes[2]{};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attributes[0].value.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim = {blocks.of_cluster.x, blocks.of_cluster.y, blocks.of_cluster.z};
  CUlaunchConfig config{};
  config.gridDimX = blocks.count.x, config.gridDimY = blocks.count.y, config.gridDimZ = blocks.count.z;
  config.blockDimX = static_cast<unsigned>(blocks.threads), config.blockDimY = config.blockDimZ = 1;
  config.sharedMemBytes = static_cast<unsigned>(blocks.shared_bytes);
  config.hStream = stream;
  config.attrs = attributes;
  config.numAttrs = blocks.of_cluster.x * blocks.of_cluster.y * blocks.of_cluster.z > 1 ? 2 : 1;
  ensure_context();
  return static_cast<cudaError_t>(launch(&config, function, arguments, nullptr));  // whose numbers are the driver's
}

Call describe(const char* op, const ConstMatrix& a, const ConstMatrix& b, Layout layout) {
  const auto [m, n, k] = product_size(op, a, b, layout);
  return {op, m, n, k, layout};
}

}  // namespace coda::sm90::detail
