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

void check_aligned(const Call& call, const std::string& argument, const void* data, std::int64_t rows,
                   std::int64_t pitch_bytes, std::int64_t alignment) {
  if (!data) return;
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::string expected = ": expected a multiple of " + std::to_string(alignment) + " bytes, got ";
  if (address % static_cast<std::uintptr_t>(alignment) != 0) {
    call.fail(Status::unsupported, argument + ": address" + expected + std::to_string(address));
  }
  if (rows > 1 && pitch_bytes % alignment != 0) {
    call.fail(Status::unsupported, argument + ": row pitch" + expected + std::to_string(pitch_bytes));
  }
}

Device current_device(const Call& call) {
  // 0: not asked yet, -1: not sm_90, else the number of multiprocessors.
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
    value = p.multiProcessorCount;
    entry.store(value, std::memory_order_relaxed);
  }
  device.multiprocessors = value;
  return device;
}

Call describe(const char* op, const ConstMatrix& a, const ConstMatrix& b, Layout layout) {
  Call call{op, a.rows, layout == Layout::nt ? b.rows : b.cols, a.cols, layout};
  if (layout == Layout::tn) call.fail(Status::unsupported, "layout: expected nt or nn, got tn");
  const std::int64_t depth = layout == Layout::nt ? b.cols : b.rows;
  if (depth != a.cols) {
    call.fail(Status::invalid_argument,
              "b: expected an inner dimension of " + std::to_string(a.cols) + ", got " + std::to_string(depth));
  }
  return call;
}

void check_matrix(const Call& call, const char* argument, const ConstMatrix& x, std::int64_t rows, std::int64_t cols,
                  DType dtype, Presence presence) {
  const auto shape = [](std::int64_t r, std::int64_t c) {
    return "(" + std::to_string(r) + ", " + std::to_string(c) + ")";
  };
  const std::string name = argument;
  if (!x.data) {
    if (presence == Presence::optional || rows * cols == 0) return;
    call.fail(Status::invalid_argument, name + ": expected a matrix " + shape(rows, cols) + ", got a null pointer");
  }
  if (x.rows != rows || x.cols != cols) {
    call.fail(Status::invalid_argument,
              name + ": expected shape " + shape(rows, cols) + ", got " + shape(x.rows, x.cols));
  }
  if (x.pitch < x.cols) {
    call.fail(Status::invalid_argument,
              name + ": expected a pitch of at least " + std::to_string(x.cols) + ", got " + std::to_string(x.pitch));
  }
  if (x.dtype != dtype) {
    call.fail(Status::invalid_argument, name + ": expected " + name_of(dtype) + ", got " + name_of(x.dtype));
  }
}

void check_vector(const Call& call, const char* argument, const ConstVector& x, std::int64_t size, DType dtype,
                  Presence presence) {
  const std::string name = argument;
  if (!x.data) {
    if (presence == Presence::optional || size == 0) return;
    call.fail(Status::invalid_argument, name + ": expected " + std::to_string(size) + " values, got a null pointer");
  }
  if (x.size != size) {
    call.fail(Status::invalid_argument,
              name + ": expected " + std::to_string(size) + " values, got " + std::to_string(x.size));
  }
  if (x.dtype != dtype) {
    call.fail(Status::invalid_argument, name + ": expected " + name_of(dtype) + ", got " + name_of(x.dtype));
  }
}

DType check_dtype(const Call& call, const ConstMatrix& a, const ConstMatrix& b) {
  if (a.dtype != DType::bf16 && a.dtype != DType::fp16) {
    call.fail(Status::unsupported, std::string("a: expected bf16 or fp16, got ") + name_of(a.dtype));
  }
  check_matrix(call, "a", a, call.m, call.k, a.dtype, Presence::required);
  const bool nt = call.layout == Layout::nt;
  check_matrix(call, "b", b, nt ? call.n : call.k, nt ? call.k : call.n, a.dtype, Presence::required);
  return a.dtype;
}

}  // namespace coda::sm90::detail
