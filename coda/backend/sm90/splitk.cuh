// The kernel for few rows. There a product waits for memory to bring B, and tiles are fewer than multiprocessors, all
// of which have to ask for it. So the thread blocks of a cluster share a tile: each multiplies a part of K, then adds
// up what all have of some of its rows, in their order, and runs the epilogue on these.
#pragma once

#include <cutlass/cutlass.h>

#include <cstdint>
#include <cute/arch/cluster_sm90.hpp>

#include "coda/backend/sm90/barrier.cuh"
#include "coda/backend/sm90/enqueue.cuh"
#include "coda/backend/sm90/mainloop.cuh"

namespace coda::sm90 {

template <class Mainloop_, class Epilogue_>
class SplitK {
 public:
  using Mainloop = Mainloop_;
  using Epilogue = Epilogue_;

  static constexpr int kM = Mainloop::kM, kN = Mainloop::kN, kK = Mainloop::kK, kStages = Mainloop::kStages;
  /// The team's warps come first, behind them one that loads operands and one that loads what the epilogue reads.
  static constexpr int kTeamThreads = cute::size(typename Mainloop::TiledMma()), kThreads = kTeamThreads + 64;
  static_assert(kTeamThreads == 128);
  static_assert(Epilogue::kLate == 0, "coda: with a stage for each subtile of C");

  struct Params {
    int k, tiles_m, stage_bytes;
    CUtensorMap a, b;
    typename Epilogue::Params epilogue;
  };

 private:
  static constexpr int kTeamWarps = kTeamThreads / 32;
  static constexpr int kValues = kM * kN / kTeamThreads;  // of a thread
  /// The rows of a warp, a band, are added up by the block of the cluster of that number, modulo their number.
  static constexpr int kBandRows = kM / kTeamWarps, kBandBytes = kBandRows * kN * static_cast<int>(sizeof(float));

  struct SharedStorage {
    alignas(1024) typename Mainloop::Operands operands;
    alignas(1024) typename Epilogue::Shared epilogue;
    typename Mainloop::Signals signals;
  };

 public:
  static constexpr int kSharedBytes = sizeof(SharedStorage);
  /// Parts of K. What they have of a block's rows comes to where it had operands.
  static constexpr int kMostParts = 7;
  static_assert((kTeamWarps + kMostParts) * kBandBytes <= sizeof(typename Mainloop::Operands));

  /// Rows of A in a box: the copy engine takes as long for a row outside of the matrix as for one inside. What is in
  /// memory behind them are the operands of rows that are not there.
  static int box_rows_a(std::int64_t rows) {
    int box = 8;
    while (box < kM && box < rows) box *= 2;
    return box;
  }
  static int stage_bytes(std::int64_t rows) { return (box_rows_a(rows) + kN) * kK * 2; }

  /// Thread blocks of a cluster: as many as find room at once, on the average chip. Never by what this very chip has
  /// room for, and up to kM rows not by their number: the sum's last bits depend on it.
  static int parts(std::int64_t m, std::int64_t n, std::int64_t k, int multiprocessors) {
    // What a chip of 132 multiprocessors holds of clusters: they do not span its parts, and some of these are smaller.
    // Those of one, two and four were measured, the others are guesses from these; what waits is only slower.
    constexpr int kChip = 132, kAtOnce[] = {132, 66, 40, 30, 20, 18, 14, 14};
    // K of a part: what one more block sends takes time as well.
    const auto least_k = [](int parts) { return parts <= 3 ? 256 : 1024; };
    const std::int64_t tiles = (m + kM - 1) / kM * ((n + kN - 1) / kN);
    int most = 1;
    for (int parts = 2; parts <= kMostParts; ++parts) {
      const bool fits = kChip * tiles <= std::int64_t{kAtOnce[parts - 1]} * multiprocessors;
      if (fits && k >= std::int64_t{parts} * least_k(parts)) most = parts;
    }
    return most;
  }

  CODA_DEVICE void operator()(const Params& params, char* memory) const {
    auto& shared = *reinterpret_cast<SharedStorage*>(memory);
    const int warp = cutlass::canonical_warp_idx_sync();
    const int part = static_cast<int>(cute::block_rank_in_cluster()), parts = static_cast<int>(cute::cluster_shape().x);
    const int tile = static_cast<int>(blockIdx.x) / parts, m = tile % params.tiles_m, n = tile / params.tiles_m;
    const int all_steps = (params.k + kK - 1) / kK;
    const int first = part * all_steps / parts, steps = (part + 1) * all_steps / parts - first;

    if (warp == kTeamWarps && cute::elect_one_sync()) {
      cute::prefetch_tma_descriptor(&params.a);
      cute::prefetch_tma_descriptor(&params.b);
      Epilogue::prepare(params.epilogue, shared.epilogue);
      for (int stage = 0; stage < kStages; ++stage) {
        shared.signals.full[stage].init(1);
        shared.signals.empty[stage].init(kTeamWarps);
      }
      publish_barriers();
    }
    __syncthreads();

    const int thread = static_cast<int>(threadIdx.x);
    if (warp >= kTeamWarps) {
      if (warp == kTeamWarps && cute::elect_one_sync()) {
        load_operands(params, shared, m, n, first, steps);
      } else if (warp == kTeamWarps + 1 && part < kTeamWarps && m * kM + part * kBandRows < params.epilogue.rows) {
        detail::wait_for_turn();
        Epilogue::load(params.epilogue, shared.epilogue, 0, true, m, n, thread % 32);
      }
      return;
    }

    detail::wait_for_turn();
    auto work = Epilogue::begin(params.epilogue, shared.epilogue, m, n, 0, 0, thread);
    auto accumulators = Mainloop::accumulators();
    cute::clear(accumulators);
    const auto free = [&](BarrierAt empty) {
      if (thread % 32 == 0) empty.arrive(part);
    };
    Mainloop::multiply(shared.operands, shared.signals, 0, 0, steps, accumulators, free, [] {});
    const bool has_rows = work.at.warp_row < work.at.rows;
    if (parts > 1) {
      const int owner = warp % parts, first_band = warp / parts * parts;
      // All blocks have read their operands.
      synchronize_cluster();
      if (has_rows) send(shared, owner, first_band + part, thread % 32, accumulators);
      synchronize_cluster();
      if (part != owner) return;
      if (has_rows) add(shared, first_band, parts, thread % 32, accumulators);
    }
    if (!has_rows) return;
    Epilogue::run(params.epilogue, shared.epilogue, 0, true, 0, work, accumulators);
    Epilogue::finish();
  }

 private:
  static CODA_DEVICE void load_operands(const Params& params, SharedStorage& shared, int m, int n, int first,
                                        int steps) {
    detail::wait_for_turn();
    typename Mainloop::Stage stage(0);
    for (int i = 0; i < steps; ++i, ++stage) {
      const int k = (first + i) * kK;
      shared.signals.empty[stage.index].wait(stage.phase ^ 1);
      shared.signals.full[stage.index].arrive_and_expect(params.stage_bytes);
      auto* full = shared.signals.full[stage.index].state();
      Mainloop::load_b(params.b, shared.operands, full, stage.index, n * kN, k);
      cute::SM90_TMA_LOAD_2D::copy(&params.a, full, Mainloop::kHint, shared.operands.a[stage.index], k, m * kM);
    }
  }

  /// Where a lane's four values from v on of that band lie: a block has place for those of all parts, band by band.
  static CODA_DEVICE char* place(SharedStorage& shared, int band, int lane, int v) {
    return reinterpret_cast<char*>(&shared.operands) + band * kBandBytes +
           (32 * v + 4 * lane) * static_cast<int>(sizeof(float));
  }
  template <class Accumulators>
  static CODA_DEVICE void send(SharedStorage& shared, int block, int band, int lane, const Accumulators& accumulators) {
    CODA_UNROLL for (int v = 0; v < kValues; v += 4) {
      const std::uint32_t to = cute::set_block_rank(cute::cast_smem_ptr_to_uint(place(shared, band, lane, v)),
                                                    static_cast<std::uint32_t>(block));
      asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(accumulators(v)),
                   "f"(accumulators(v + 1)), "f"(accumulators(v + 2)), "f"(accumulators(v + 3))
                   : "memory");
    }
  }
  template <class Accumulators>
  static CODA_DEVICE void add(SharedStorage& shared, int band, int parts, int lane, Accumulators& accumulators) {
    cute::clear(accumulators);
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      CODA_UNROLL for (int v = 0; v < kValues; v += 4) {
        const float4 x = *reinterpret_cast<const float4*>(place(shared, band + part, lane, v));
        accumulators(v) += x.x, accumulators(v + 1) += x.y, accumulators(v + 2) += x.z, accumulators(v + 3) += x.w;
      }
    }
  }
};

}  // namespace coda::sm90
