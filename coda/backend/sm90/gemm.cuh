// The fused kernels of a program: whether one takes these arguments, its operands as the copy engine wants them,
// launch.
#pragma once

#include <array>
#include <atomic>
#include <utility>

#include "coda/backend/sm90/enqueue.cuh"
#include "coda/backend/sm90/product.cuh"
#include "coda/backend/sm90/tensor_map.cuh"

// Behind it: CUTLASS includes the driver's types inside of a namespace.
#include "coda/backend/sm90/kernel.cuh"

namespace coda::sm90 {

struct Layouts {
  bool nt = true, nn = true;
};
#if defined(CODA_SM90_REDUCED)
inline constexpr Layouts kForward{true, false}, kBackward{false, true}, kBoth = kForward;
#else
inline constexpr Layouts kForward{true, false}, kBackward{false, true}, kBoth{true, true};
#endif

/// Types of Config.
template <class... C>
struct Configurations {
  static constexpr int count = sizeof...(C);
};

/// What was measured fastest for a program; specialise it beside the program's instantiation. `Config` is what the rule
/// takes. `Others` are further ones that its fused kernel is built in, for shapes where the table says so; they are
/// numbered from 1 in their order.
template <class Program>
struct Tuning {
  using Config = sm90::Config<128, 128, 2, 32, load_stages<Program>(), 2, kHasLongRows<Program>>;
  using Others = Configurations<>;
  /// Those of Others that a reduced build has, too: between all programs each kind of kernel.
  using Reduced = Configurations<>;
  /// Ports; a call that has none of them gets a second, faster kernel without them. 0: there is no such kernel.
  static constexpr PortMask kOptional = 0;
  /// Rows up to which the kernel that splits K is faster than the unfused way, where its tiles do not fill the chip.
  static constexpr int kMostRows = Rule::kFewRows;
  /// Layouts that it is compiled for; the other way is taken for the rest.
  static constexpr Layouts kLayouts = kBoth;
};

namespace detail {

template <class Kernel>
__global__ void __launch_bounds__(Kernel::kThreads, 1) start(const __grid_constant__ typename Kernel::Params params) {
  extern __shared__ __align__(1024) char shared[];
  Kernel()(params, shared);
}

/// What kernels need once on each device. It has CUDA load their code, which takes some 100 us each: those that a
/// program's later calls may take are loaded at its first.
template <class... Kernels>
void prepare(const Call& call, const Device& device) {
  static OncePerDevice once;
  once(device, [&] {
    (check(cudaFuncSetAttribute(start<Kernels>, cudaFuncAttributeMaxDynamicSharedMemorySize, Kernels::kSharedBytes),
           call, "cudaFuncSetAttribute"),
     ...);
  });
}

/// A row pitch in bytes as the copy engine takes it; that of a single row means nothing.
constexpr std::int64_t pitch_bytes(std::int64_t rows, std::int64_t cols, std::int64_t pitch, std::int64_t element) {
  return rows > 1 ? pitch * element : (cols * element + 15) / 16 * 16;
}

/// Address and byte pitch of a carried port, which has `cols` words in a row; null if it is absent in this call.
template <int Number, int WordBytes, class Program>
std::pair<void*, std::int64_t> carried_matrix(const Program& program, std::int64_t rows, std::int64_t cols) {
  std::pair<void*, std::int64_t> found{nullptr, 16};
  visit_port<Number>(program, [&](const auto& port) {
    if constexpr (requires { port.width, port.pitch; }) {
      constexpr std::int64_t kElement = sizeof(*port.data), kInWord = WordBytes / kElement;
      if (port.data)
        found = {const_cast<void*>(static_cast<const void*>(port.data)),
                 pitch_bytes(rows, cols * kInWord, port.pitch, kElement)};
    }
  });
  return found;
}

/// Counts for a launch. Of this source: each has its own.
static PaceCounts* pace_of(const Call& call, const Device& device) {
  static std::array<std::atomic<PaceCounts*>, kMaxDevices> known{};
  static std::atomic<unsigned> next{0};
  std::atomic<PaceCounts*>& entry = known[static_cast<std::size_t>(device.number)];
  PaceCounts* counts = entry.load(std::memory_order_relaxed);
  if (!counts) {
    void* found = nullptr;
    check(cudaGetSymbolAddress(&found, pace_counts), call, "cudaGetSymbolAddress");
    entry.store(counts = static_cast<PaceCounts*>(found), std::memory_order_relaxed);
  }
  return counts + next.fetch_add(1, std::memory_order_relaxed) % kPaceCounts;
}

template <class T, class Program, PortMask Absent, Layout L, class Config>
void launch(const Call& call, const Device& device, MatrixOf<const T> a, MatrixOf<const T> b, const Program& program,
            Raster raster, cudaStream_t stream) {
  using Types = KernelTypes<T, Program, Absent, L, Config>;
  using Kernel = typename Types::Kernel;
  const auto operand_map = [&](const MatrixOf<const T>& x, int box_rows) {
    return tensor_map<sizeof(T)>(call, const_cast<T*>(x.data), x.rows, x.cols,
                                 pitch_bytes(x.rows, x.cols, x.pitch, sizeof(T)), box_rows,
                                 Kernel::Mainloop::kBoxColumns, Config::kSplitsK);
  };
  using Epilogue = typename Types::Epilogue;
  typename Epilogue::Params epilogue{};
  epilogue.program = program;
  epilogue.rows = static_cast<int>(call.m), epilogue.cols = static_cast<int>(call.n);
  if (auto [d, pitch] = carried_matrix<Epilogue::kD.port, Epilogue::kD.bytes()>(program, call.m, call.n); d) {
    epilogue.d =
        tensor_map<Epilogue::kD.bytes()>(call, d, call.m, call.n, pitch, Epilogue::SlabD::kRows, Config::kSubtileN);
    epilogue.stores = true;
  }
  Epilogue::each_load([&]<int Number>() {
    constexpr Carried kLoad = Epilogue::kC.port[Number];
    const auto [c, pitch] = carried_matrix<kLoad.port, kLoad.bytes()>(program, call.m, call.n);
    epilogue.loads[Number] = c != nullptr;
    // The copy engine wants some matrix in the place of one that is absent; nothing inside of it is read.
    epilogue.c[Number] =
        c ? tensor_map<kLoad.bytes()>(call, c, call.m, call.n, pitch, Config::kSubtileM, Config::kSubtileN)
          : tensor_map<kLoad.bytes()>(call, const_cast<T*>(a.data), 1, 8, 64, Config::kSubtileM, Config::kSubtileN);
  });

  const std::int64_t tiles_m = ceil_div(call.m, Kernel::kM), tiles_n = ceil_div(call.n, Config::kN);
  const int multiprocessors = device.chip.multiprocessors;
  if constexpr (Config::kSplitsK) {
    const int parts = Kernel::parts(call.m, call.n, call.k, multiprocessors);
    const typename Kernel::Params params{.k = static_cast<int>(call.k),
                                         .tiles_m = static_cast<int>(tiles_m),
                                         .stage_bytes = Kernel::stage_bytes(call.m),
                                         .a = operand_map(a, Kernel::box_rows_a(call.m)),
                                         .b = operand_map(b, Kernel::Mainloop::kBoxRowsB),
                                         .epilogue = epilogue};
    const Blocks blocks{.count = dim3(static_cast<unsigned>(tiles_m * tiles_n * parts)),
                        .threads = Kernel::kThreads,
                        .of_cluster = dim3(static_cast<unsigned>(parts)),
                        .shared_bytes = Kernel::kSharedBytes};
    check(launchable<start<Kernel>>.enqueue(stream, device, blocks, params), call, "cuLaunchKernelEx");
  } else {
    const TileOrder order(static_cast<int>(tiles_m), static_cast<int>(ceil_div(tiles_n, kClusterN)), raster.band,
                          raster.along_m);
    const int steps = static_cast<int>(ceil_div(call.k, Config::kK));
    const Rounds rounds = rounds_of(order.count(), steps, multiprocessors);
    const Schedule schedule(order.count(), rounds.clusters, steps, rounds.split);
    const std::size_t slots = static_cast<std::size_t>(schedule.slots());
    const Workspace sums = Workspace::of_kernel(
        slots * (Kernel::kSlotValues * sizeof(float) + Kernel::kSlotFlags * sizeof(std::uint64_t)), stream, call.op);
    float* values = sums.as<float>();
    const bool paced =
        keeps_pace(call.m, call.n, call.k, Kernel::kTeamsAtOnce * order.count() / rounds.clusters, device.chip);
    const typename Kernel::Params params{
        .paced_steps = paced ? schedule.least_steps() : 0,
        .pace = paced ? pace_of(call, device) : nullptr,
        .schedule = schedule,
        .order = order,
        .sums = {values, reinterpret_cast<std::uint64_t*>(values + slots * Kernel::kSlotValues), next_launch()},
        .a = operand_map(a, Kernel::kBoxRowsA),
        .b = operand_map(b, Kernel::Mainloop::kBoxRowsB),
        .epilogue = epilogue};
    const Blocks blocks{.count = dim3(static_cast<unsigned>(rounds.clusters), kClusterN),
                        .threads = Kernel::kThreads,
                        .of_cluster = {1, kClusterN, 1},
                        .shared_bytes = Kernel::kSharedBytes};
    check(launchable<start<Kernel>>.enqueue(stream, device, blocks, params), call, "cuLaunchKernelEx");
  }
}

/// A fused kernel that folds over heads takes tiles of whole heads.
template <class Program>
bool fits_heads(const Program& program) {
  return heads_divide<Quad>(program) && (!kHasHeadMeans<Program> || kTileN % head_dim_of(program) == 0);
}

template <class First, class Others>
struct Joined;
template <class First, class... Others>
struct Joined<First, Configurations<Others...>> {
  using type = Configurations<First, Others...>;
};
#if defined(CODA_SM90_REDUCED)
template <class Program>
using OtherConfigs = typename Tuning<Program>::Reduced;
#else
template <class Program>
using OtherConfigs = typename Tuning<Program>::Others;
#endif
template <class Program>
using AllConfigs = typename Joined<typename Tuning<Program>::Config, OtherConfigs<Program>>::type;

static_assert(SplitsK::kM == Rule::kFewRows);
/// The number of the configuration of which `is` is true; -1: of none.
template <class Is, class... Configs>
constexpr int number_of(Configurations<Configs...>, const Is& is) {
  int number = -1, found = -1;
  ((++number, found = is(Configs()) ? number : found), ...);
  return found;
}
template <class Program>
inline constexpr Rule kRule = [] {
  // What does not follow from the configurations is as listed.
  const FusedProgram* listed = find_fused(kName<Program>);
  Rule rule = listed ? listed->rule : Rule();
  constexpr AllConfigs<Program> kConfigs;
  rule.tile_m = Tuning<Program>::Config::kM, rule.tile_n = Tuning<Program>::Config::kN;
  rule.few_rows = number_of(kConfigs, [](auto config) { return config.kSplitsK; });
  rule.most = Tuning<Program>::kMostRows;
  rule.lean = number_of(kConfigs, [](auto config) { return config.kTeamsAtOnce > 1; });
  return rule;
}();

/// kFusedPrograms, which is there without CUDA too, tells what is compiled.
template <class Program>
constexpr bool listed_as_compiled() {
#if defined(CODA_SM90_REDUCED)
  return true;
#else
  constexpr const FusedProgram* listed = find_fused(kName<Program>);
  using Tuned = Tuning<Program>;
  return kName<Program>.empty() ||
         (listed && listed->nt == Tuned::kLayouts.nt && listed->nn == Tuned::kLayouts.nn &&
          listed->configurations == AllConfigs<Program>::count && listed->rule == kRule<Program>);
#endif
}

template <class T, class Program, Layout L, class Config>
void launch_with(const Call& call, const Device& device, MatrixOf<const T> a, MatrixOf<const T> b,
                 const Program& program, Raster raster, cudaStream_t stream) {
  constexpr PortMask kOptional = Tuning<Program>::kOptional;
  if constexpr (kOptional != 0) {
    if ((absent_ports(program) & kOptional) == kOptional) {
      return launch<T, Program, kOptional, L, Config>(call, device, a, b, program, raster, stream);
    }
  }
  launch<T, Program, 0, L, Config>(call, device, a, b, program, raster, stream);
}

/// The fused kernel in the configuration of that number; false if the other way is chosen for this shape.
template <class T, class Program, Layout L, class... Configs>
bool launch_chosen(const Call& call, const Device& device, MatrixOf<const T> a, MatrixOf<const T> b,
                   const Program& program, cudaStream_t stream, Configurations<Configs...>) {
  prepare<typename KernelTypes<T, Program, 0, L, Configs>::Kernel...>(call, device);
  if constexpr (constexpr PortMask kOptional = Tuning<Program>::kOptional; kOptional != 0) {
    prepare<typename KernelTypes<T, Program, kOptional, L, Configs>::Kernel...>(call, device);
  }
  static const std::span<const Entry> measured = table().part(measured_as(kName<Program>), L);
  const Choice choice =
      choose(measured, kRule<Program>, sizeof...(Configs), call.m, call.n, call.k, table().nearest(device.chip));
  if (choice.way == Way::unfused) return false;
  int number = 0;
  ((number++ == choice.config &&
    (launch_with<T, Program, L, Configs>(call, device, a, b, program, choice.raster, stream), true)) ||
   ...);
  return true;
}

template <class T, class Program>
bool launch_fused(const Call& call, const Device& device, MatrixOf<const T> a, MatrixOf<const T> b,
                  const Program& program, cudaStream_t stream) {
  static_assert(listed_as_compiled<Program>(), "coda: kFusedPrograms says otherwise of this program (choice.h)");
  constexpr std::int64_t kElement = sizeof(T);
  if (!sides_fit(call.n, call.k)) return false;
  if (!is_aligned(a.data, a.rows, a.pitch * kElement, 16) || !is_aligned(b.data, b.rows, b.pitch * kElement, 16)) {
    return false;
  }
  if (!ports_aligned(program, call.m) || !fits_heads(program)) return false;
  constexpr Layouts kLayouts = Tuning<Program>::kLayouts;
  constexpr AllConfigs<Program> kConfigs;
  if constexpr (kLayouts.nt) {
    if (call.layout == Layout::nt)
      return launch_chosen<T, Program, Layout::nt>(call, device, a, b, program, stream, kConfigs);
  }
  if constexpr (kLayouts.nn) {
    if (call.layout == Layout::nn)
      return launch_chosen<T, Program, Layout::nn>(call, device, a, b, program, stream, kConfigs);
  }
  return false;
}

}  // namespace detail

}  // namespace coda::sm90
