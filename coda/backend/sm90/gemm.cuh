// GEMM plus epilogue on Hopper: checks what the hardware demands, describes the operands to the copy engine, launches.
#pragma once

#include <cutlass/device_kernel.h>

#include <array>
#include <atomic>
#include <limits>
#include <utility>

#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/kernel.cuh"
#include "coda/backend/sm90/launch.cuh"

namespace coda::sm90 {

/// The order in which the persistent kernel walks over tiles: along m or n, in bands of `band` tiles. A band keeps the
/// operands of the tiles in flight in the L2 cache.
struct Raster {
  int band = 8;
  bool along_m = false;
};

/// What was measured fastest for a program; specialise it beside the program's instantiation.
template <class Program>
struct Tuning {
  using Config = sm90::Config<128, 128, 2, 1, Groups::pingpong, 64, 4, 2>;
  /// Ports; a call that has none of them gets a second, faster kernel without them. 0: there is no such kernel.
  static constexpr PortMask kOptional = 0;
  static constexpr Raster raster{};
};

namespace detail {

// CUTLASS always loads C and stores D. These take the place of one that is absent in a call, as a matrix of one row of
// 16 bytes: what a store puts outside of it is clipped, and a load finds zeros there. Nobody reads the output.
static __device__ uint4 absent_output;
static __device__ uint4 absent_input;  // stays 0

struct Stand {
  void *input = nullptr, *output = nullptr;
};

/// What a kernel needs once on each device; returns where the stand-ins are there.
template <class Kernel>
Stand prepare(const Call& call, const Device& device) {
  struct Entry {
    std::atomic<bool> ready{false};
    std::atomic<void*> input{nullptr}, output{nullptr};
  };
  static std::array<Entry, kMaxDevices> known{};
  Entry& entry = known[static_cast<std::size_t>(device.number)];
  Stand stand;
  if (entry.ready.load(std::memory_order_acquire)) {
    stand.input = entry.input.load(std::memory_order_relaxed);
    stand.output = entry.output.load(std::memory_order_relaxed);
    return stand;
  }
  check(cudaFuncSetAttribute(cutlass::device_kernel<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             Kernel::SharedStorageSize),
        call, "cudaFuncSetAttribute");
  check(cudaGetSymbolAddress(&stand.input, absent_input), call, "cudaGetSymbolAddress");
  check(cudaGetSymbolAddress(&stand.output, absent_output), call, "cudaGetSymbolAddress");
  entry.input.store(stand.input, std::memory_order_relaxed);
  entry.output.store(stand.output, std::memory_order_relaxed);
  entry.ready.store(true, std::memory_order_release);
  return stand;
}

/// A row pitch in bytes as the copy engine takes it; that of a single row is never used.
constexpr std::int64_t pitch_bytes(std::int64_t rows, std::int64_t pitch, std::int64_t element) {
  return rows > 1 ? pitch * element : (pitch * element + 15) / 16 * 16;
}

/// Addresses and pitches that the ports' vector accesses rely on.
template <class Program>
void check_ports(const Call& call, const Program& program) {
  int number = 0;
  for_each_port(program, [&]<class Port>(const Port& port) {
    const std::string name = "program: port " + std::to_string(number++);
    if constexpr (requires { port.width; }) {
      using T = std::remove_const_t<std::remove_pointer_t<decltype(port.data)>>;
      constexpr int kElement = sizeof(T);
      if constexpr (requires { port.pitch; }) {
        constexpr int kAlign = Port::width == Width::Half ? kRunBytes<T, Port::width> : 16;
        check_aligned(call, name + (kMatrixPort<Port>.load ? " (TileLoad)" : " (TileStore)"), port.data, call.m,
                      port.pitch * kElement, kAlign);
      } else {
        check_aligned(call, name + " (RowVector)", port.data, 1, 0, kChunk<Port::width> * kElement);
      }
    }
  });
}

/// Address and byte pitch of a carried port; null if there is none or it is absent in this call.
template <int Number, class Program>
std::pair<void*, std::int64_t> carried_matrix(const Program& program, std::int64_t rows) {
  std::pair<void*, std::int64_t> found{nullptr, 16};
  visit_port<Number>(program, [&](const auto& port) {
    if constexpr (requires { port.width, port.pitch; }) {
      using Element = std::remove_pointer_t<decltype(port.data)>;
      if (port.data)
        found = {const_cast<void*>(static_cast<const void*>(port.data)),
                 pitch_bytes(rows, port.pitch, sizeof(Element))};
    }
  });
  return found;
}

template <class T, class Program, PortMask Absent, Layout L, class Config>
void launch(const Call& call, MatrixOf<const T> a, MatrixOf<const T> b, const Program& program, Raster raster,
            cudaStream_t stream) {
  using Types = KernelTypes<T, Program, Absent, L, Config>;
  using Kernel = typename Types::Kernel;
  using Element = typename Types::Element;
  using ElementD = typename Types::ElementD;
  constexpr std::int64_t kElement = sizeof(Element);

  const Device device = current_device(call);
  const Stand stand = prepare<Kernel>(call, device);
  auto [c, c_pitch] = carried_matrix<Types::kC.port>(program, call.m);
  auto [d, d_pitch] = carried_matrix<Types::kD.port>(program, call.m);
  [[maybe_unused]] const bool load = c != nullptr;
  const bool store = d != nullptr;

  typename Kernel::Arguments args{};
  args.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  args.problem_shape = {static_cast<int>(call.m), static_cast<int>(call.n), static_cast<int>(call.k), 1};
  args.mainloop.ptr_A = reinterpret_cast<const Element*>(a.data);
  args.mainloop.ptr_B = reinterpret_cast<const Element*>(b.data);
  cute::get<Types::kAIsKMajor ? 0 : 1>(args.mainloop.dA) = pitch_bytes(a.rows, a.pitch, kElement) / kElement;
  cute::get<Types::kBIsKMajor ? 0 : 1>(args.mainloop.dB) = pitch_bytes(b.rows, b.pitch, kElement) / kElement;
  args.epilogue.thread = program;
  if constexpr (Types::kC.port >= 0) {
    args.epilogue.ptr_C = static_cast<const typename Types::ElementC*>(load ? c : stand.input);
    cute::get<0>(args.epilogue.dC) = c_pitch / Types::kC.bytes();
  }
  args.epilogue.ptr_D = static_cast<ElementD*>(store ? d : stand.output);
  cute::get<0>(args.epilogue.dD) = d_pitch / Types::kD.bytes();
  args.hw_info.device_id = device.number;
  args.hw_info.sm_count = device.multiprocessors;
  args.scheduler.max_swizzle_size = raster.band;
  using Order = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90Params::RasterOrderOptions;
  args.scheduler.raster_order = raster.along_m ? Order::AlongM : Order::AlongN;

  typename Kernel::Params params = Kernel::to_underlying_arguments(args, nullptr);
  const auto one_row = [&](int element_bytes) {
    const auto shape = cute::make_shape(1, 16 / element_bytes, static_cast<int>(call.k), 1);
    return Types::Epilogue::to_underlying_arguments(shape, args.epilogue, nullptr);
  };
  if (!store) params.epilogue.tma_store_d = one_row(Types::kD.bytes()).tma_store_d;
  if constexpr (Types::kC.port >= 0) {
    if (!load) params.epilogue.tma_load_c = one_row(Types::kC.bytes()).tma_load_c;
  }

  cudaLaunchConfig_t config{};
  config.gridDim = Kernel::get_grid_shape(params);
  config.blockDim = Kernel::get_block_shape();
  config.dynamicSmemBytes = Kernel::SharedStorageSize;
  config.stream = stream;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {cute::size<0>(typename Types::Cluster{}), cute::size<1>(typename Types::Cluster{}), 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, cutlass::device_kernel<Kernel>, params), call, "cudaLaunchKernelEx");
}

/// The program's kernel for these arguments.
template <class T, class Program, Layout L>
void launch_fitting(const Call& call, MatrixOf<const T> a, MatrixOf<const T> b, const Program& program,
                    cudaStream_t stream) {
  using Config = typename Tuning<Program>::Config;
  constexpr Raster raster = Tuning<Program>::raster;
  constexpr PortMask kOptional = Tuning<Program>::kOptional;
  if constexpr (kOptional != 0) {
    if ((absent_ports(program) & kOptional) == kOptional) {
      return launch<T, Program, kOptional, L, Config>(call, a, b, program, raster, stream);
    }
  }
  launch<T, Program, 0, L, Config>(call, a, b, program, raster, stream);
}

}  // namespace detail

/// Runs `program` on the product of a and b, which the layout reads as in `Layout` (nt or nn). T is bf16 or fp16. M = 0
/// or N = 0 does nothing. Enqueues one kernel on `stream`; allocates nothing and does not wait.
/// Partial results of the program have shape (M, tiles_n(N)) or (tiles_m(M), N). Outputs must not overlap inputs that
/// other tiles still read: a residual may be overwritten in place, an operand of the product may not.
template <class T, Program P>
void gemm(std::type_identity_t<MatrixOf<const T>> a, std::type_identity_t<MatrixOf<const T>> b, const P& program,
          Layout layout = Layout::nt, cudaStream_t stream = nullptr, const char* op = "gemm") {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, fp16>, "coda: the Hopper backend multiplies bf16 or fp16");
  const detail::Call call = detail::describe(op, a, b, layout);
  if (call.m == 0 || call.n == 0) return;
  if (call.k == 0) call.fail(Status::unsupported, "K: expected at least 1, got 0");
  constexpr std::int64_t kMax = std::numeric_limits<int>::max() - 256;  // a tile past the end is still an int
  if (call.m > kMax || call.n > kMax || call.k > kMax) {
    call.fail(Status::unsupported, "M, N, K: expected at most " + std::to_string(kMax));
  }
  for (const auto& [name, size] : {std::pair{"N", call.n}, std::pair{"K", call.k}}) {
    // The copy engine clips a row only at 16 bytes.
    if (size % 8 != 0)
      call.fail(Status::unsupported, std::string(name) + ": expected a multiple of 8, got " + std::to_string(size));
  }
  if (!a.data || !b.data)
    call.fail(Status::invalid_argument, std::string(a.data ? "b" : "a") + ": expected a matrix, got a null pointer");
  constexpr std::int64_t kElement = sizeof(T);
  detail::check_aligned(call, "a", a.data, a.rows, a.pitch * kElement, 16);
  detail::check_aligned(call, "b", b.data, b.rows, b.pitch * kElement, 16);
  detail::check_ports(call, program);

#if !defined(CODA_SM90_REDUCED)
  if (layout == Layout::nn) return detail::launch_fitting<T, P, Layout::nn>(call, a, b, program, stream);
#endif
  if (layout != Layout::nt)
    call.fail(Status::unsupported, std::string("layout: this build has nt only, got ") + name_of(layout));
  detail::launch_fitting<T, P, Layout::nt>(call, a, b, program, stream);
}

/// f(T()) with the element type of that tag: bf16 or fp16.
template <class F>
void with_element(DType dtype, const F& f) {
#if !defined(CODA_SM90_REDUCED)
  if (dtype == DType::fp16) return f(fp16());
#endif
  if (dtype != DType::bf16)
    throw Error(Status::unsupported, std::string("gemm: this build has bf16 only, got ") + name_of(dtype));
  f(bf16());
}

}  // namespace coda::sm90
