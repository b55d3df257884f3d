// The kernel for few rows. There a product waits for memory to bring B, and tiles are fewer than multiprocessors, all
// of which have to ask for it. So the thread blocks of a cluster share a tile: each multiplies a part of K, then adds
// up what all have of some of its rows, in their order, and runs the epilogue on these.
#pragma once

#include <cutlass/arch/barrier.h>
#include <cutlass/cutlass.h>

#include <cstdint>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/tensor.hpp>

#include "coda/backend/sm90/config.cuh"
#include "coda/backend/sm90/enqueue.cuh"

namespace coda::sm90 {

template <class Mainloop_, class Epilogue_, Layout L>
class SplitK {
 public:
  using Mainloop = Mainloop_;
  using Epilogue = Epilogue_;
  using TiledMma = typename Mainloop::TiledMma;
  using TileShape = typename Mainloop::TileShape;

  static constexpr int kM = cute::size<0>(TileShape()), kN = cute::size<1>(TileShape()),
                       kK = cute::size<2>(TileShape());
  static constexpr int kBoxColumns = 64, kBoxRowsB = L == Layout::nt ? kN : kK;
  /// The team's warps come first, behind them one that loads operands and one that loads what the epilogue reads.
  static constexpr int kTeamThreads = cute::size(TiledMma()), kThreads = kTeamThreads + 64;
  static constexpr int kStages = Mainloop::DispatchPolicy::Stages;
  static_assert(L != Layout::tn && kK == kBoxColumns && kTeamThreads == 128);
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
    alignas(1024) typename Mainloop::TensorStorage operands;
    alignas(1024) typename Epilogue::Shared epilogue;
    cutlass::arch::ClusterTransactionBarrier full[kStages];
    cutlass::arch::ClusterBarrier empty[kStages];
  };

 public:
  static constexpr int kSharedBytes = sizeof(SharedStorage);
  /// Parts of K. What they have of a block's rows comes to where it had operands.
  static constexpr int kMostParts = 7;
  static_assert((kTeamWarps + kMostParts) * kBandBytes <= sizeof(typename Mainloop::TensorStorage));

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
        shared.full[stage].init(1);
        shared.empty[stage].init(kTeamWarps);
      }
      cutlass::arch::fence_barrier_init();
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
    auto accumulators = cute::partition_fragment_C(TiledMma(), cute::take<0, 2>(TileShape()));
    multiply(shared, thread, steps, accumulators);
    const bool has_rows = work.at.warp_row < work.at.rows;
    if (parts > 1) {
      const int owner = warp % parts, first_band = warp / parts * parts;
      // All blocks have read their operands.
      cute::cluster_arrive();
      cute::cluster_wait();
      if (has_rows) send(shared, owner, first_band + part, thread % 32, accumulators);
      cute::cluster_arrive();
      cute::cluster_wait();
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
    constexpr auto kHint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);
    detail::wait_for_turn();
    for (int i = 0; i < steps; ++i) {
      const int stage = i % kStages, k = (first + i) * kK;
      shared.empty[stage].wait(static_cast<std::uint32_t>(i / kStages & 1) ^ 1);
      shared.full[stage].arrive_and_expect_tx(params.stage_bytes);
      auto* full = reinterpret_cast<std::uint64_t*>(&shared.full[stage]);
      auto* b = shared.operands.smem_B.data() + stage * kN * kK;
      if constexpr (L == Layout::nt) {
        cute::SM90_TMA_LOAD_2D::copy(&params.b, full, kHint, b, k, n * kN);
      } else {
        CODA_UNROLL for (int c = 0; c < kN; c += kBoxColumns) {
          cute::SM90_TMA_LOAD_2D::copy(&params.b, full, kHint, b + c * kK, n * kN + c, k);
        }
      }
      auto* a = shared.operands.smem_A.data() + stage * kM * kK;
      cute::SM90_TMA_LOAD_2D::copy(&params.a, full, kHint, a, k, m * kM);
    }
  }

  template <class Accumulators>
  static CODA_DEVICE void multiply(SharedStorage& shared, int thread, int steps, Accumulators& accumulators) {
    const auto a = cute::make_tensor(cute::make_smem_ptr(shared.operands.smem_A.data()),
                                     typename Mainloop::SmemLayoutA());  // kM x kK x stages
    const auto b =
        cute::make_tensor(cute::make_smem_ptr(shared.operands.smem_B.data()), typename Mainloop::SmemLayoutB());
    TiledMma mma;
    const auto mine = mma.get_slice(0);
    const auto of_a = mine.make_fragment_A(mine.partition_A(a));
    const auto of_b = mine.make_fragment_B(mine.partition_B(b));
    const auto free = [&](int i) {
      if (thread % 32 == 0) shared.empty[i % kStages].arrive();
    };
    mma.accumulate_ = cute::GMMA::ScaleOut::Zero;
    cute::warpgroup_fence_operand(accumulators);
    for (int i = 0; i < steps; ++i) {
      const int stage = i % kStages;
      shared.full[stage].wait(static_cast<std::uint32_t>(i / kStages & 1));
      cute::warpgroup_arrive();
      CODA_UNROLL for (int k = 0; k < cute::size<2>(of_a); ++k) {
        cute::gemm(mma, of_a(cute::_, cute::_, k, stage), of_b(cute::_, cute::_, k, stage), accumulators);
        mma.accumulate_ = cute::GMMA::ScaleOut::One;
      }
      cute::warpgroup_commit_batch();
      // One step's products may be under way; those of the step before are complete.
      cute::warpgroup_wait<1>();
      if (i > 0) free(i - 1);
    }
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(accumulators);
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
