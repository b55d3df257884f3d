// A program as CUTLASS's epilogue sees it: the interface of its fusion callbacks, around Sm90Tile.
#pragma once

#include "coda/backend/sm90/config.cuh"
#include "coda/backend/sm90/tile.cuh"

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
  struct SharedStorage {};

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
  CUTLASS_HOST_DEVICE ProgramCallbacks(const Params& p, const SharedStorage&) : params(&p) {}

  CODA_DEVICE bool is_producer_load_needed() const { return kLoads; }
  CODA_DEVICE bool is_C_load_needed() const { return is_producer_load_needed(); }

  template <class... A>
  CODA_DEVICE auto get_producer_load_callbacks(const fusion::ProducerLoadArgs<A...>&) const {
    return fusion::ProducerLoadCallbacksImpl<cute::tuple<>>{};
  }

  /// One thread's work on one tile.
  template <class CTensor>
  struct Consumer : fusion::ConsumerStoreCallbacksImpl<cute::tuple<>> {
    Program program;
    Position at;
    const CTensor& c;
    static constexpr int kPatches = Config::kSubtileN / kPatchN;
    ColumnValues<Program, kPatches> columns;

    CODA_DEVICE Consumer(const Program& p, const Position& where, const CTensor& loaded)
        : program(p), at(where), c(loaded) {}

    CODA_DEVICE void begin() {
      for_each_port(program, [&](const auto& port) { lifecycle().begin_tile(port); });
      load_columns(0);
    }
    CODA_DEVICE void begin_loop(int sub_m, int sub_n) {
      if (sub_m == 0 && sub_n % Config::kBlockSubtiles == 0) {
        for_each_port(program, [&](const auto& port) { lifecycle().begin_block(port); });
      }
    }
    template <class E, int Count>
    CODA_DEVICE auto visit(const cutlass::Array<E, Count>& acc, int v, int sub_m, int sub_n) {
      static_assert(Count == kRowsHere * Accumulator::count);
      using CElement = typename CTensor::value_type;
      cutlass::Array<float, Count> out;
      CODA_UNROLL for (int r = 0; r < kRowsHere; ++r) {
        const auto index = [r](int i) { return i / 2 * 2 * kRowsHere + 2 * r + i % 2; };  // c + 2 r + 4 j of c + 2 j
        Accumulator f;
        CElement loaded[Accumulator::count];
        float d[Accumulator::count] = {};
        CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) {
          f.v[i] = acc[index(i)];
          if constexpr (kLoads) loaded[i] = c(v * Count + index(i));
        }
        const int rows_before = sub_m * Config::kSubtileM + 8 * r;
        const int row = at.row + rows_before;
        const int col = at.col + sub_n * Config::kSubtileN + v * kPatchN;
        const Sm90Tile<Program, Absent, kPatches, CElement> tile(program, at, columns, v, sub_m * kRowsHere + r, row,
                                                                 col, loaded, d);
        static_assert(!HasFirstPass<Program, decltype(tile), Accumulator>,
                      "coda: the Hopper backend runs no program with a first pass over the accumulator");
        // All rows of the warp at once: the program exchanges values between lanes.
        const bool any_inside = !Config::kRowByRow || at.warp_row + rows_before < at.rows;
        if (any_inside) static_cast<const Program&>(program)(tile, f);
        CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) out[index(i)] = d[i];
      }
      return cutlass::NumericArrayConverter<ElementD, float, Count>{}(out);
    }
    /// The subtile is in shared memory, its store not yet issued.
    CODA_DEVICE void postreduce(int sub_m, int sub_n, int, bool) {
      if (sub_m == Config::kSubtilesM - 1 && sub_n + 1 < Config::kN / Config::kSubtileN) load_columns(sub_n + 1);
    }
    CODA_DEVICE void end_loop(int sub_m, int sub_n) {
      if (sub_m != Config::kSubtilesM - 1 || sub_n % Config::kBlockSubtiles != Config::kBlockSubtiles - 1) return;
      const int block = at.tile_n + sub_n / Config::kBlockSubtiles;
      if (block * static_cast<int>(kTileN) >= at.cols) return;
      for_each_port(program, [&](const auto& port) { lifecycle().end_block(port, block); });
    }

   private:
    CODA_DEVICE Lifecycle<Config> lifecycle() const { return {at}; }
    CODA_DEVICE void load_columns(int sub_n) {
      int number = 0;
      for_each_port(program, [&](const auto& port) {
        lifecycle().template load_columns<kPatches>(port, at.col + sub_n * Config::kSubtileN, columns.words[number++]);
      });
    }
  };

  template <bool ReferenceSource, class... A>
  CODA_DEVICE auto get_consumer_store_callbacks(const fusion::ConsumerStoreArgs<A...>& args) const {
    const auto [m, n, k, l] = args.tile_coord_mnkl;
    const auto [rows, cols, depth, batches] = args.problem_shape_mnkl;
    const int thread = args.thread_idx;
    Position at;
    // Taken from one lane, so that the compiler knows it to be the same in all.
    at.warp_row = static_cast<int>(m) * Config::kM + __shfl_sync(0xffffffffu, thread / 32, 0) * 16;
    at.row = at.warp_row + thread % 32 / 4;
    at.col = static_cast<int>(n) * Config::kN;
    at.rows = rows;
    at.cols = cols;
    at.lane = thread % 4;
    at.tile_n = static_cast<int>(n) * (Config::kN / static_cast<int>(kTileN));
    return Consumer<std::remove_cvref_t<decltype(args.tCrC)>>(*params, at, args.tCrC);
  }

  const Params* params = nullptr;
};

}  // namespace coda::sm90
