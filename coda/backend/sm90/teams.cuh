// The kernel: CUTLASS's main loop and a program's epilogue, run by two teams of warp groups that take the tiles of a
// thread block in turns. While one team multiplies, the other runs its epilogue:
//
//   team 0:  multiply tile 0 | epilogue 0      | multiply tile 2 | ...
//   team 1:                  | multiply tile 1 | epilogue 1      | ...
//
// CUTLASS's own ping-pong kernel has teams of one warp group. Two of them halve a thread's accumulators and the time of
// an epilogue that nothing hides, which is that of a thread block's last tile.
//
// Or, in a Cooperative configuration, both multiply at once, tiles one below the other, and share what of B they need:
//
//   team 0:  multiply tile 0 | epilogue 0 | multiply tile 2 | ...
//   team 1:  multiply tile 1 | epilogue 1 | multiply tile 3 | ...
#pragma once

#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cutlass/fast_math.h>

#include <algorithm>
#include <cstdint>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/tensor.hpp>
#include <cutlass/pipeline/pipeline.hpp>

#include "coda/backend/sm90/config.cuh"
#include "coda/backend/sm90/enqueue.cuh"
#include "coda/backend/sm90/pace.cuh"

namespace coda::sm90 {

/// The order in which clusters of thread blocks walk over the tiles: along m or n, in bands of `band` clusters.
class TileOrder {
 public:
  TileOrder() = default;
  TileOrder(int clusters_m, int clusters_n, int band, bool along_m)
      : count_(clusters_m * clusters_n), along_m_(along_m) {
    const int across = along_m ? clusters_n : clusters_m, along = along_m ? clusters_m : clusters_n;
    band = std::min(band, across);
    of_band_ = cutlass::FastDivmod(band * along);
    width_ = cutlass::FastDivmod(band);
    full_bands_ = across / band;
    last_width_ = cutlass::FastDivmod(std::max(across % band, 1));
  }
  struct Cluster {
    int m, n;
  };
  CODA_FN int count() const { return count_; }
  CODA_FN Cluster operator[](int number) const {
    int band, rest, step, side;
    of_band_(band, rest, number);
    (band < full_bands_ ? width_ : last_width_)(step, side, rest);
    side += band * width_.divisor;
    return along_m_ ? Cluster{step, side} : Cluster{side, step};
  }

 private:
  int count_ = 0, full_bands_ = 0;
  // Numbers are divided by what the host made of the divisor: a division takes the device hundreds of cycles.
  cutlass::FastDivmod of_band_, width_, last_width_;
  bool along_m_ = false;
};

template <class Mainloop_, class Epilogue_, Layout L>
class TwoTeams {
 public:
  using Mainloop = Mainloop_;
  using Epilogue = Epilogue_;
  using TiledMma = typename Mainloop::TiledMma;
  using TileShape = typename Mainloop::TileShape;

  static constexpr int kM = cute::size<0>(TileShape()), kN = cute::size<1>(TileShape()),
                       kK = cute::size<2>(TileShape());
  /// Operands travel in boxes whose rows are 64 values, 128 bytes of shared memory: along k, or along n if B lies in
  /// memory as K x N. Each block of a cluster loads its part of a tile of A for all of them.
  static constexpr int kBoxColumns = 64, kBoxRowsA = 64, kBoxRowsB = L == Layout::nt ? kN : kK;
  static constexpr int kBoxesA = kM / kBoxRowsA / kClusterN;  // of a thread block
  static_assert(L != Layout::tn && kK == kBoxColumns);
  static constexpr int kTeamsAtOnce = Epilogue::kTeamsAtOnce;  // that multiply, and share operands: kM x kN
  static constexpr bool kCooperative = kTeamsAtOnce > 1;
  static constexpr int kWarpGroup = 128;
  static constexpr int kTeamThreads = Epilogue::kThreads, kThreads = kWarpGroup + kTeams * kTeamThreads;
  static_assert(cute::size(TiledMma()) == kTeamsAtOnce * kTeamThreads);

  /// Whether a thread block's last tile is for both teams, and a thread's accumulators of half a tile.
  static constexpr bool kShares = Epilogue::kUnits == kTeams;
  static constexpr int kUnitValues = kM * kN / kTeamsAtOnce / kTeamThreads / kTeams;
  static_assert(Epilogue::kRooms + kShares <= Mainloop::DispatchPolicy::Stages,
                "coda: what comes late, and half a tile, come to stages of operands, each to its own");

  // Registers of a thread at launch, and as the loading warp group hands most of its own to the teams.
  static constexpr int kAllRegisters = 65536;
  static constexpr int kLaunchRegisters = kAllRegisters / kThreads / 8 * 8;
  static constexpr int kLoadRegisters = kTeamThreads > kWarpGroup ? 32 : 40;
  static constexpr int kTeamRegisters =
      (kLaunchRegisters * kThreads - kLoadRegisters * kWarpGroup) / (kTeams * kTeamThreads) / 8 * 8;

  struct Params {
    // What the loader needs first lies together.
    int k;
    int paced_tiles;  // of a thread block: those that all have, or 0
    PaceCounts* pace;
    TileOrder order;
    CUtensorMap a, b;
    typename Epilogue::Params epilogue;
  };

 private:
  using TeamOrder = cutlass::OrderedSequenceBarrier<1, kTeams>;  // of the teams' products
  using Pipeline = typename Mainloop::MainloopPipeline;
  using PipelineState = typename Mainloop::PipelineState;

  struct SharedStorage {
    alignas(1024) typename Mainloop::TensorStorage operands;
    alignas(1024) typename Epilogue::Shared epilogue;
    alignas(16) typename Mainloop::PipelineStorage pipeline;
    alignas(16) typename TeamOrder::SharedStorage team_order;
    cutlass::arch::ClusterBarrier half_loaded;  // the first tile's operands: C may come without being in their way
    cutlass::arch::ClusterBarrier handed_over;  // the second half of the last tile
  };

 public:
  static constexpr int kSharedBytes = sizeof(SharedStorage);

  CODA_DEVICE void operator()(const Params& params, char* memory) const {
    auto& shared = *reinterpret_cast<SharedStorage*>(memory);
    const int thread = static_cast<int>(threadIdx.x), warp = cutlass::canonical_warp_idx_sync();
    const bool loads = warp < kWarpGroup / 32;
    const bool loads_operands = warp == 0, loads_c = warp == 1;

    if (warp == 0 && cute::elect_one_sync()) {
      cute::prefetch_tma_descriptor(&params.a);
      cute::prefetch_tma_descriptor(&params.b);
      Epilogue::prepare(params.epilogue, shared.epilogue);
      shared.half_loaded.init(1);
      shared.handed_over.init(kTeamThreads);
    }
    typename Pipeline::Params pipeline_params;
    pipeline_params.role = loads ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
    pipeline_params.is_leader = thread % kWarpGroup == 0;
    pipeline_params.num_consumers = kTeamsAtOnce * kTeamThreads;
    pipeline_params.num_producers = Mainloop::NumProducerThreadEvents;
    pipeline_params.transaction_bytes = Mainloop::TmaTransactionBytes;
    Pipeline pipeline(shared.pipeline, pipeline_params, cute::Shape<cute::_1, cute::Int<kClusterN>, cute::_1>());
    TeamOrder team_order(shared.team_order, {static_cast<std::uint32_t>(loads ? 0 : own_team()), kTeamThreads});

    // The barriers above are set up for the whole cluster before anybody uses one.
    cute::cluster_arrive_relaxed();
    // This cluster's tiles are every so many of the order's.
    const int clusters = static_cast<int>(gridDim.x), cluster = static_cast<int>(blockIdx.x);
    const int tiles = (params.order.count() - cluster + clusters - 1) / clusters;
    const int k_tiles = (params.k + kK - 1) / kK;
    cute::cluster_wait();
    detail::wait_for_turn();

    // Two questions rather than one and an else: so the loader's code lies right behind, not behind that of the teams,
    // from where memory would have to bring it before anything else can happen.
    if (loads) {
      cutlass::arch::warpgroup_reg_dealloc<kLoadRegisters>();
      if (loads_operands && cute::elect_one_sync()) {
        load_operands(params, shared, pipeline, tiles, k_tiles);
      } else if (loads_c && Epilogue::kLoads > 0) {
        shared.half_loaded.wait(0);
        const int count = tiles * kTeamsAtOnce;
        for (int i = 0; i < count; ++i) {
          const auto at = team_tile(params, i);
          Epilogue::load(params.epilogue, shared.epilogue, i, i == count - 1, at.m, at.n, thread % 32);
        }
      }
    }
    if (thread_index() < kWarpGroup) return;

    cutlass::arch::warpgroup_reg_alloc<kTeamRegisters>();
    const int team = own_team();  // asked anew: kept since the barriers it would take a register
    Mainloop mainloop;
    const int count = tiles * kTeamsAtOnce;
    for (int turn = team; turn < count + kShares; turn += kTeams) {
      // The team that has not the last tile comes by once more, for its second half.
      const bool helps = kShares && turn == count;
      // Unsigned, as all that is made of it: dividing what may be negative takes three instructions more.
      const int i = turn - helps, rank = static_cast<unsigned>(thread_index() - kWarpGroup) % kTeamThreads;
      const auto at = team_tile(params, i);
      auto accumulators = cute::partition_fragment_C(TiledMma(), cute::take<0, 2>(TileShape()));
      auto work = Epilogue::begin(params.epilogue, shared.epilogue, at.m, at.n, helps, team, rank);
      if (!helps) {
        const PipelineState state = after(static_cast<std::uint64_t>(i / kTeamsAtOnce) * k_tiles);
        if constexpr (!kCooperative) team_order.wait();
        mainloop.mma(pipeline, state, accumulators, k_tiles, thread_of_product(team, rank), shared.operands, {});
        if constexpr (!kCooperative) team_order.arrive();
        mainloop.mma_tail(pipeline, state, k_tiles);
      }
      if constexpr (!kShares) {
        Epilogue::run(params.epilogue, shared.epilogue, i, i == count - 1, 0, work, accumulators);
      } else {
        const bool last = i == count - 1;
        if (last) {
          const PipelineState free = after(static_cast<std::uint64_t>(tiles) * k_tiles + Epilogue::kRooms);
          // The other team, and the cluster's other block, have read what was there.
          if (!helps) shared.pipeline.empty_barrier_[free.index()].wait(free.phase() ^ 1);
          share(helps, team, rank, accumulators, room(shared, free.index()), shared.handed_over);
        }
        int unit = helps;
#pragma unroll 1
        while (true) {
          Epilogue::run(params.epilogue, shared.epilogue, i, last, unit, work, accumulators);
          if (last || ++unit == kTeams) break;
          work = Epilogue::begin(params.epilogue, shared.epilogue, at.m, at.n, unit, team, rank);
          CODA_UNROLL for (int v = 0; v < kUnitValues; ++v) accumulators(v) = accumulators(v + kUnitValues);
        }
      }
    }
    Epilogue::finish();
  }

 private:
  // Read anew where they are needed: an epilogue has no register to keep them in.
  static CODA_DEVICE int thread_index() {
    int x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
  }
  /// Of a thread that does not load. One lane's, so that the compiler knows it to be the same in all.
  static CODA_DEVICE int own_team() {
    return __shfl_sync(0xffffffffu, (thread_index() - kWarpGroup) / kTeamThreads, 0);
  }
  static CODA_DEVICE int2 block_index() {
    int2 block;
    asm volatile("mov.u32 %0, %%ctaid.x;\n\tmov.u32 %1, %%ctaid.y;" : "=r"(block.x), "=r"(block.y));
    return block;
  }

  /// The thread block's i-th tile.
  static CODA_DEVICE TileOrder::Cluster tile(const Params& params, int i) {
    const int2 block = block_index();
    const auto at = params.order[block.x + i * static_cast<int>(gridDim.x)];
    return {at.m, at.n * kClusterN + block.y};
  }

  /// The tile of the i-th turn: of a team.
  static CODA_DEVICE TileOrder::Cluster team_tile(const Params& params, int i) {
    if constexpr (!kCooperative) return tile(params, i);
    const auto at = tile(params, i / kTeams);
    return {at.m * kTeams + i % kTeams, at.n};
  }
  static CODA_DEVICE int thread_of_product(int team, int rank) {
    return kCooperative ? team * kTeamThreads + rank : rank;
  }
  /// The product gives 64 rows to each of its warp groups in turn. So that those of a team are side by side, boxes of
  /// them may change places in shared memory: where rows of the box at place `box` begin in the tile.
  static constexpr CODA_FN int first_row(int box) {
    constexpr int kGroups = Epilogue::kGroups, kAtOnce = kTeamsAtOnce * kGroups, kTurns = kM / kBoxRowsA / kAtOnce;
    const int turn = box / kAtOnce, team = box % kAtOnce / kGroups, group = box % kGroups;
    return ((team * kTurns + turn) * kGroups + group) * kBoxRowsA;
  }

  /// One thread: has the operands of all tiles brought, as far ahead as there are stages. The blocks of a cluster share
  /// rows of A: each loads its part for all of them.
  static CODA_DEVICE void load_operands(const Params& params, SharedStorage& shared, Pipeline& pipeline, int tiles,
                                        int k_tiles) {
    constexpr auto kHint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);
    constexpr std::uint16_t kAllBlocks = (1 << kClusterN) - 1;
    const int block = static_cast<int>(cute::block_rank_in_cluster());
    const int clusters = static_cast<int>(gridDim.x);
    // The other blocks of the cluster follow the first, which loads a part of their A.
    const int paced_tiles = block == 0 ? params.paced_tiles : 0;
    Pace pace(params.pace, clusters);
    auto state = cutlass::make_producer_start_state<Pipeline>();
    for (int i = 0; i < tiles; ++i) {
      const auto at = tile(params, i);
      for (int k = 0, unit = i < paced_tiles ? 0 : k_tiles; k < k_tiles; ++k) {
        if (k == unit) pace.step(), unit += Pace::kSteps;
        pipeline.producer_acquire(state);
        auto* full = pipeline.producer_get_barrier(state);
        auto* a = shared.operands.smem_A.data() + state.index() * kM * kK;
        auto* b = shared.operands.smem_B.data() + state.index() * kN * kK;
        CODA_UNROLL for (int i_a = 0; i_a < kBoxesA; ++i_a) {
          const int box = block * kBoxesA + i_a;
          cute::SM90_TMA_LOAD_MULTICAST_2D::copy(&params.a, full, kAllBlocks, kHint, a + box * kBoxRowsA * kK, k * kK,
                                                 at.m * kM + first_row(box));
        }
        if constexpr (L == Layout::nt) {
          cute::SM90_TMA_LOAD_2D::copy(&params.b, full, kHint, b, k * kK, at.n * kN);
        } else {
          CODA_UNROLL for (int n = 0; n < kN; n += kBoxColumns) {
            cute::SM90_TMA_LOAD_2D::copy(&params.b, full, kHint, b + n * kK, at.n * kN + n, k * kK);
          }
        }
        ++state;
        if (i == 0 && k == k_tiles / 2) shared.half_loaded.arrive();
      }
    }
    if (paced_tiles > 0) pace.finish();
    if constexpr (Epilogue::kLate > 0) {
      const auto at = team_tile(params, tiles * kTeamsAtOnce - 1);
      auto free = state;
      for (int number = 0; number < Epilogue::kRooms; ++number, ++free) {
        shared.pipeline.empty_barrier_[free.index()].wait(free.phase());
        Epilogue::load_late(params.epilogue, shared.epilogue, room(shared, free.index()), number, at.m, at.n);
      }
    }
    pipeline.producer_tail(state);  // a block of the cluster must not end while others write to it
  }

  using Room = typename Epilogue::Room;
  static CODA_DEVICE Room room(SharedStorage& shared, int stage) {
    return {reinterpret_cast<char*>(shared.operands.smem_A.data() + stage * kM * kK),
            reinterpret_cast<char*>(shared.operands.smem_B.data() + stage * kN * kK)};
  }

  /// The second half of a block's last tile goes to the team that has nothing left to do, by way of shared memory.
  template <class Accumulators>
  static CODA_DEVICE void share(bool helps, int team, int rank, Accumulators& accumulators, const Room& room,
                                cutlass::arch::ClusterBarrier& handed_over) {
    const auto chunk = [&](int v) -> float4& {
      return *reinterpret_cast<float4*>(room.at((v * kTeamThreads + 4 * rank) * static_cast<int>(sizeof(float))));
    };
    if (helps) {
      handed_over.wait(0);
      CODA_UNROLL for (int v = 0; v < kUnitValues; v += 4) {
        const float4 x = chunk(v);
        accumulators(v) = x.x, accumulators(v + 1) = x.y, accumulators(v + 2) = x.z, accumulators(v + 3) = x.w;
      }
    } else {
      // All of the team have read the operands that were there.
      cutlass::arch::NamedBarrier::sync(kTeamThreads, static_cast<std::uint32_t>(team));
      CODA_UNROLL for (int v = 0; v < kUnitValues; v += 4) {
        const int i = kUnitValues + v;
        chunk(v) = make_float4(accumulators(i), accumulators(i + 1), accumulators(i + 2), accumulators(i + 3));
      }
      handed_over.arrive();
    }
  }

  /// The state of the pipeline's consumer after so many steps.
  static CODA_DEVICE PipelineState after(std::uint64_t steps) {
    return PipelineState(static_cast<int>(steps % PipelineState::Stages),
                         static_cast<std::uint32_t>(steps / PipelineState::Stages & 1), 0);
  }
};

}  // namespace coda::sm90
