// A program as CUTLASS's epilogue sees it: the interface of its fusion callbacks, around Sm90Tile.
#pragma once

#include "coda/backend/sm90/worker.cuh"

// Before the collective epilogue: its own header of declarations would include those of every other architecture.
#include <cutlass/cutlass.h>
namespace cutlass::epilogue::collective {
template <class DispatchPolicy, class... Args>
class CollectiveEpilogue;
}
#include <cutlass/epilogue/collective/sm90_epilogue_tma_warpspecialized.hpp>

namespace coda::sm90 {

namespace fusion = cutlass::epilogue::fusion::detail;

/// ElementD: what CUTLASS stores.
template <class Program, PortMask Absent, class ElementD, class Config>
struct ProgramCallbacks {
  static constexpr bool kLoads = kLoadWith<Program, Absent>.port >= 0;
  using Arguments = Program;
  using Params = Arguments;
  using SharedStorage = SharedResults<Program, Config>;

  template <class Shape>
  static constexpr Params to_underlying_arguments(const Shape&, const Arguments& a, void*) {
    return a;
  }
  template <class Shape>
  static bool can_implement(const Shape&, const Arguments&) {
    return true;
  }
  template <class Shape>
  static std::size_t get_workspace_size(const Shape&, const Arguments&) {
    return 0;
  }
  template <class Shape>
  static cutlass::Status initialize_workspace(const Shape&, const Arguments&, void*, cudaStream_t,
                                              cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }

  ProgramCallbacks() = default;
  CUTLASS_HOST_DEVICE ProgramCallbacks(const Params& p, const SharedStorage& s)
      : params(&p), shared(const_cast<SharedStorage*>(&s)) {}

  CODA_DEVICE bool is_producer_load_needed() const { return kLoads; }
  CODA_DEVICE bool is_C_load_needed() const { return is_producer_load_needed(); }

  /// The warp that has C loaded runs ahead of the tile's epilogue. It asks the L2 cache for what the threads will load
  /// themselves, so that they do not wait for memory.
  struct Producer : fusion::ProducerLoadCallbacksImpl<cute::tuple<>> {
    const Program& program;
    int row, col, rows, cols, lane;

    CODA_DEVICE Producer(const Program& p, int m, int n, int rows_, int cols_, int lane_)
        : program(p), row(m * Config::kM), col(n * Config::kN), rows(rows_), cols(cols_), lane(lane_) {}
    CODA_DEVICE void begin() {
      int number = 0;
      for_each_port(program, [&]<class Port>(const Port& port) {
        if constexpr (kMatrixPort<Port>.load) {
          if (number != kLoadWith<Program, Absent>.port && !(Absent >> number & 1) && port.data) prefetch(port);
        }
        ++number;
      });
    }

   private:
    template <class T, Width W>
    CODA_DEVICE void prefetch(const TileLoad<T, W>& port) {
      constexpr int kLine = 128 / static_cast<int>(sizeof(T)), kLines = scaled<W>(Config::kN) / kLine;
      constexpr int kRowsAtOnce = 32 / kLines;
      const int column = scaled<W>(col) + lane % kLines * kLine;
      if (column >= scaled<W>(cols)) return;
      int left = rows - row - lane / kLines;  // rows below this lane's, with it
      const T* at = port.data + (row + lane / kLines) * port.pitch + column;
#pragma unroll 1
      for (int i = 0; i < Config::kM; i += kRowsAtOnce) {
        if (left > i) asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
        at += kRowsAtOnce * port.pitch;
      }
    }
  };
  template <class... A>
  CODA_DEVICE auto get_producer_load_callbacks(const fusion::ProducerLoadArgs<A...>& args) const {
    const auto [m, n, k, l] = args.tile_coord_mnkl;
    const auto [rows, cols, depth, batches] = args.problem_shape_mnkl;
    return Producer(*params, static_cast<int>(m), static_cast<int>(n), rows, cols, args.thread_idx);
  }

  template <class CTensor>
  struct Consumer : fusion::ConsumerStoreCallbacksImpl<cute::tuple<>> {
    using CElement = typename CTensor::value_type;
    Worker<Program, Absent, Config, CElement> worker;
    const CTensor& c;
    Ahead<Program> next;

    CODA_DEVICE Consumer(const Program& p, const Position& at, int thread, SharedStorage* shared, const CTensor& loaded)
        : worker(p, at, thread, shared), c(loaded) {}

    CODA_DEVICE void begin() {
      worker.begin_tile();
      worker.load_columns(0);
      worker.fetch(0, 0, 0, 0, next);
    }
    CODA_DEVICE void begin_loop(int sub_m, int sub_n) {
      if (sub_m != 0) return;
      worker.begin_folds();
      if (sub_n % Config::kBlockSubtiles == 0) {
        for_each_port(worker.program, [&](const auto& port) { worker.lifecycle().begin_block(port); });
      }
    }
    template <class E, int Count>
    CODA_DEVICE auto visit(const cutlass::Array<E, Count>& acc, int patch, int sub_m, int sub_n) {
      static_assert(Count == kRowsHere * Accumulator::count);
      cutlass::Array<float, Count> out;
      CODA_UNROLL for (int r = 0; r < kRowsHere; ++r) {
        const Ahead<Program> now = next;
        fetch_after(r, patch, sub_m, sub_n);
        Accumulator f;
        CElement loaded[Accumulator::count];
        float d[Accumulator::count] = {};
        take_row([&](int i) { return acc[i]; }, 0, r, f.v);
        if constexpr (kLoads) take_row(c, patch * Count, r, loaded);
        // All rows of the warp at once: the program exchanges values between lanes.
        const bool any_inside =
            !Config::kRowByRow || worker.at.warp_row + sub_m * Config::kSubtileM + 8 * r < worker.at.rows;
        if (any_inside) {
          worker.on_row(sub_m, sub_n, patch, r, nullptr, &now, loaded, d,
                        [&](const auto& tile, const Program& program) { program(tile, f); });
        }
        CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) out[i / 2 * 2 * kRowsHere + 2 * r + i % 2] = d[i];
      }
      return cutlass::NumericArrayConverter<ElementD, float, Count>{}(out);
    }
    /// The subtile is in shared memory, its store not yet issued.
    CODA_DEVICE void postreduce(int sub_m, int sub_n, int, bool) {
      if (sub_m == Config::kSubtilesM - 1 && sub_n + 1 < Config::kN / Config::kSubtileN) worker.load_columns(sub_n + 1);
    }
    CODA_DEVICE void end_loop(int sub_m, int sub_n) {
      if (sub_m != Config::kSubtilesM - 1) return;
      worker.end_folds(sub_n);
      if (sub_n % Config::kBlockSubtiles != Config::kBlockSubtiles - 1) return;
      const int block = worker.at.tile_n + sub_n / Config::kBlockSubtiles;
      if (block * static_cast<int>(kTileN) >= worker.at.cols) return;
      for_each_port(worker.program, [&](const auto& port) { worker.lifecycle().end_block(port, block); });
    }
    CODA_DEVICE void end() { worker.write_folds(); }

   private:
    /// For the row that comes next: memory answers while this one is worked on.
    CODA_DEVICE void fetch_after(int r, int patch, int sub_m, int sub_n) {
      if (++r == kRowsHere) r = 0, ++patch;
      if (patch == Config::kSubtileN / kPatchN) patch = 0, ++sub_m;
      if (sub_m == Config::kSubtilesM) sub_m = 0, ++sub_n;
      if (sub_n < Config::kN / Config::kSubtileN) worker.fetch(sub_m, sub_n, patch, r, next);
    }
  };

  template <class Coord, class Shape>
  static CODA_DEVICE Position position(const Program& program, const Coord& coord, const Shape& shape, int thread) {
    const auto [m, n, k, l] = coord;
    const auto [rows, cols, depth, batches] = shape;
    Position at;
    // Taken from one lane, so that the compiler knows it to be the same in all.
    at.warp_row = static_cast<int>(m) * Config::kM + __shfl_sync(0xffffffffu, thread / 32, 0) * 16;
    at.row = at.warp_row + thread % 32 / 4;
    at.col = static_cast<int>(n) * Config::kN;
    at.rows = rows;
    at.cols = cols;
    at.lane = thread % 4;
    at.tile_n = static_cast<int>(n) * (Config::kN / static_cast<int>(kTileN));
    if (const int head_dim = head_dim_of(program); head_dim > 0) at.head_column = at.col % head_dim;
    return at;
  }
  template <bool ReferenceSource, class... A>
  CODA_DEVICE auto get_consumer_store_callbacks(const fusion::ConsumerStoreArgs<A...>& args) const {
    return Consumer<std::remove_cvref_t<decltype(args.tCrC)>>(
        *params, position(*params, args.tile_coord_mnkl, args.problem_shape_mnkl, args.thread_idx), args.thread_idx,
        shared, args.tCrC);
  }

  const Params* params = nullptr;
  SharedStorage* shared = nullptr;
};

/// CUTLASS's collective epilogue, which shows its callbacks a subtile at a time, for a program that first wants to see
/// the whole tile.
template <class Base, class Program, PortMask Absent, class Config>
class FirstPassEpilogue : public Base {
 public:
  using TensorStorage = typename Base::TensorStorage;

  CODA_DEVICE FirstPassEpilogue(const typename Base::Params& params, TensorStorage& shared)
      : Base(params, shared), program_(params.thread) {}

  template <class LoadPipeline, class LoadState, class StorePipeline, class StoreState, class Shape, class TileShape,
            class Coord, class Accumulators, class TiledMma>
  CODA_DEVICE auto store(LoadPipeline load, LoadState load_state, StorePipeline stores, StoreState store_state,
                         Shape shape, TileShape tile, Coord coord, Accumulators acc, TiledMma mma, int thread,
                         TensorStorage& shared) {
    using Callbacks = typename Base::FusionCallbacks;
    Worker<Program, Absent, Config, void> worker(program_, Callbacks::position(program_, coord, shape, thread), thread,
                                                 &shared.thread);
    worker.first_pass([&](int sub_m, int i) { return acc(i + sub_m * (Config::kN / 2)); }, head_dim_of(program_));
    return Base::store(load, load_state, stores, store_state, shape, tile, coord, acc, mma, thread, shared);
  }

 private:
  const Program& program_;
};

}  // namespace coda::sm90
