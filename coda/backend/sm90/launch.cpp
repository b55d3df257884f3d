#include "coda/backend/sm90/launch.cuh"

#include <array>
#include <atomic>

namespace coda::sm90::detail {

std::string Call::text() const {
  return std::string(op) + " (M=" + std::to_string(m) + ", N=" + std::to_string(n) + ", K=" + std::to_string(k) + ", " +
         name_of(layout) + ")";
}
void Call::fail(Status status, const std::string& message) const { throw Error(status, text() + ": " + message); }

void check(cudaError_t status, const Call& call, const char* function) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // the next call starts clean
  call.fail(Status::device_error, std::string(function) + ": " + cudaGetErrorString(status));
}

bool is_aligned(const void* data, std::int64_t rows, std::int64_t pitch_bytes, std::int64_t alignment) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (!data) return true;
  return address % static_cast<std::uintptr_t>(alignment) == 0 && (rows <= 1 || pitch_bytes % alignment == 0);
}

Device current_device(const Call& call) {
  // 0: not asked yet, else the number of multiprocessors, and whether memory is slow.
  constexpr int kSlow = 1 << 16;
  static std::array<std::atomic<int>, kMaxDevices> known{};
  Device device;
  check(cudaGetDevice(&device.number), call, "cudaGetDevice");
  if (device.number >= kMaxDevices) {
    call.fail(Status::unsupported, "device: expected a number below " + std::to_string(kMaxDevices) + ", got " +
                                       std::to_string(device.number));
  }
  std::atomic<int>& entry = known[static_cast<std::size_t>(device.number)];
  int value = entry.load(std::memory_order_relaxed);
  if (value == 0) {
    cudaDeviceProp p{};
    check(cudaGetDeviceProperties(&p, device.number), call, "cudaGetDeviceProperties");
    if (p.major != 9 || p.minor != 0) {
      call.fail(Status::unsupported, "device " + std::to_string(device.number) + " (" + p.name +
                                         "): expected compute capability 9.0, got " + std::to_string(p.major) + "." +
                                         std::to_string(p.minor));
    }
    int kilohertz = 0, bits = 0;
    check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device.number), call,
          "cudaDeviceGetAttribute");
    check(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device.number), call,
          "cudaDeviceGetAttribute");
    // Bits move at both edges of the clock. An H100 has 3.35e12 bytes/s at most, an H200 4.9e12.
    const bool slow = 2e3 * kilohertz * bits / 8 < 4.2e12;
    value = p.multiProcessorCount + (slow ? kSlow : 0);
    entry.store(value, std::memory_order_relaxed);
  }
  device.multiprocessors = value % kSlow;
  device.slow_memory = value >= kSlow;
  return device;
}

Call describe(const char* op, const ConstMatrix& a, const ConstMatrix& b, Layout layout) {
  const bool a_is_km = layout == Layout::tn, b_is_kn = layout != Layout::nt;
  const Call call{op, a_is_km ? a.cols : a.rows, b_is_kn ? b.cols : b.rows, a_is_km ? a.rows : a.cols, layout};
  const std::int64_t depth = b_is_kn ? b.rows : b.cols;
  if (depth != call.k) {
    call.fail(Status::invalid_argument,
              "b: expected an inner dimension of " + std::to_string(call.k) + ", got " + std::to_string(depth));
  }
  return call;
}

}  // namespace coda::sm90::detail
