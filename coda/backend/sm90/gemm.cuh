// The fused kernels of a program: whether one takes these arguments, its operands as the copy engine wants them,
// launch.
#pragma once

#include <cutlass/device_kernel.h>

#include <array>
#include <atomic>
#include <utility>

#include "coda/backend/sm90/kernel.cuh"
#include "coda/backend/sm90/product.cuh"

namespace coda::sm90 {

/// The order in which the persistent kernel walks over tiles: along m or n, in bands of at most `band` clusters. A band
/// keeps the operands of the tiles in flight in the L2 cache.
struct Raster {
  int band = 8;
  bool along_m = true;
};

/// The widest band, up to `most`, that adds next to no tiles: the scheduler rounds the clusters in both directions up
/// to whole bands and multiplies the tiles outside of the matrix as well.
inline int fitting_band(std::int64_t clusters_m, std::int64_t clusters_n, int most) {
  const auto tiles = [&](int band) {
    return (clusters_m + band - 1) / band * band * ((clusters_n + band - 1) / band * band);
  };
  int band = most;
  while (band > 1 && tiles(band) * 64 > tiles(1) * 65) band /= 2;
  return band;
}

struct Layouts {
  bool nt = true, nn = true;
};
#if defined(CODA_SM90_REDUCED)
inline constexpr Layouts kForward{true, false}, kBackward{false, true}, kBoth = kForward;
#else
inline constexpr Layouts kForward{true, false}, kBackward{false, true}, kBoth{true, true};
#endif

/// What was measured fastest for a program; specialise it beside the program's instantiation.
template <class Program>
struct Tuning {
  using Config = sm90::Config<128, 128, 1, 2, Groups::pingpong, 64, 4, 2>;
  /// Ports; a call that has none of them gets a second, faster kernel without them. 0: there is no such kernel.
  static constexpr PortMask kOptional = 0;
  static constexpr Raster raster{};
  /// Layouts that it is compiled for; the other way is taken for the rest.
  static constexpr Layouts kLayouts = kBoth;
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
  const std::int64_t tiles_m = (call.m + Config::kM - 1) / Config::kM, tiles_n = (call.n + Config::kN - 1) / Config::kN;
  args.scheduler.max_swizzle_size = fitting_band((tiles_m + Config::kClusterM - 1) / Config::kClusterM,
                                                 (tiles_n + Config::kClusterN - 1) / Config::kClusterN, raster.band);
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

/// A fused kernel that folds over heads takes tiles of whole heads.
template <class Program>
bool fits_heads(const Program& program) {
  return heads_divide<Quad>(program) && (!kHasHeadMeans<Program> || kTileN % head_dim_of(program) == 0);
}

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

/// With few rows or tiles the other way is faster: cuBLASLt splits K over the chip, and the elementwise kernel behind
/// it has little to do (results/h200/kernels.json has both, for few rows).
template <class Config>
bool pays(const Call& call) {
  if (way() == Way::fused) return true;
  constexpr std::int64_t kLeastRows = 65;
  const std::int64_t tiles = (call.m + Config::kM - 1) / Config::kM * ((call.n + Config::kN - 1) / Config::kN);
  return call.m >= kLeastRows && 4 * tiles >= 3 * current_device(call).multiprocessors;
}

template <class T, class Program>
bool launch_fused(const Call& call, MatrixOf<const T> a, MatrixOf<const T> b, const Program& program,
                  cudaStream_t stream) {
  constexpr std::int64_t kElement = sizeof(T);
  // The copy engine clips a row only at 16 bytes.
  if (call.k == 0 || call.k % 8 != 0 || call.n % 8 != 0) return false;
  if (!is_aligned(a.data, a.rows, a.pitch * kElement, 16) || !is_aligned(b.data, b.rows, b.pitch * kElement, 16)) {
    return false;
  }
  if (!ports_aligned(program, call.m) || !fits_heads(program)) return false;
  using Tuned = Tuning<Program>;
  if (!pays<typename Tuned::Config>(call)) return false;
  if constexpr (Tuned::kLayouts.nt) {
    if (call.layout == Layout::nt) return launch_fitting<T, Program, Layout::nt>(call, a, b, program, stream), true;
  }
  if constexpr (Tuned::kLayouts.nn) {
    if (call.layout == Layout::nn) return launch_fitting<T, Program, Layout::nn>(call, a, b, program, stream), true;
  }
  return false;
}

}  // namespace detail

}  // namespace coda::sm90
