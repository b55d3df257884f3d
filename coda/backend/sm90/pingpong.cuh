// The kernel: CUTLASS's main loop and a program's epilogue, run by two teams of warp groups that take the tiles of a
// thread block in turns. While one team multiplies, the other runs its epilogue:
//
//   team 0:  multiply tile 0 | epilogue 0      | multiply tile 2 | ...
//   team 1:                  | multiply tile 1 | epilogue 1      | ...
//
// CUTLASS's own ping-pong kernel has teams of one warp group. Two of them halve a thread's accumulators and the time of
// an epilogue that nothing hides, which is that of a thread block's last tile.
#pragma once

#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>

#include <algorithm>
#include <cstdint>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/tensor.hpp>
#include <cutlass/pipeline/pipeline.hpp>

#include "coda/backend/sm90/config.cuh"

namespace coda::sm90 {

/// The order in which clusters of thread blocks walk over the tiles: along m or n, in bands of `band` clusters.
struct TileOrder {
  int clusters_m, clusters_n, band;
  bool along_m;

  struct Cluster {
    int m, n;
  };
  CODA_FN int count() const { return clusters_m * clusters_n; }
  CODA_FN Cluster operator[](int number) const {
    const int across = along_m ? clusters_n : clusters_m, along = along_m ? clusters_m : clusters_n;
    const int of_band = number / (band * along), first = of_band * band, rest = number - first * along;
    const int width = band < across - first ? band : across - first;
    const int step = rest / width, side = first + rest % width;
    return along_m ? Cluster{step, side} : Cluster{side, step};
  }
};

template <class Mainloop_, class Epilogue_>
class PingPong {
 public:
  using Mainloop = Mainloop_;
  using Epilogue = Epilogue_;
  using Cluster = typename Mainloop::DispatchPolicy::ClusterShape;
  using TiledMma = typename Mainloop::TiledMma;
  using TileShape = typename Mainloop::TileShape;
  using Shape = cute::Shape<int, int, int, int>;  // M, N, K, 1

  static constexpr int kClusterM = cute::size<0>(Cluster()), kClusterN = cute::size<1>(Cluster());
  static constexpr int kWarpGroup = 128;
  static constexpr int kTeamThreads = cute::size(TiledMma()), kThreads = kWarpGroup + kTeams * kTeamThreads;

  // Registers of a thread at launch, and as the loading warp group hands most of its own to the teams.
  static constexpr int kAllRegisters = 65536;
  static constexpr int kLaunchRegisters = kAllRegisters / kThreads / 8 * 8;
  static constexpr int kLoadRegisters = kTeamThreads > kWarpGroup ? 32 : 40;
  static constexpr int kTeamRegisters =
      (kLaunchRegisters * kThreads - kLoadRegisters * kWarpGroup) / (kTeams * kTeamThreads) / 8 * 8;

  struct Params {
    Shape shape;
    TileOrder order;
    typename Mainloop::Params mainloop;
    typename Epilogue::Params epilogue;
  };

 private:
  using LoadOrder = cutlass::OrderedSequenceBarrier<1, 2>;  // of the two loading warps' first loads
  // Of the teams' products, and of epilogues that load: a team that ran ahead of the other would take a stage's bytes
  // for those of the turn before.
  static constexpr bool kOneEpilogue = Epilogue::kLoads > 0;
  using TeamOrder = cutlass::OrderedSequenceBarrier<kOneEpilogue ? 2 : 1, kTeams>;
  using Pipeline = typename Mainloop::MainloopPipeline;
  using PipelineState = typename Mainloop::PipelineState;

  struct SharedStorage {
    alignas(1024) typename Mainloop::TensorStorage operands;
    alignas(1024) typename Epilogue::Shared epilogue;
    alignas(16) typename Mainloop::PipelineStorage pipeline;
    alignas(16) typename TeamOrder::SharedStorage team_order;
    alignas(16) typename LoadOrder::SharedStorage load_order;
  };

 public:
  static constexpr int kSharedBytes = sizeof(SharedStorage);

  CODA_DEVICE void operator()(const Params& params, char* memory) const {
    auto& shared = *reinterpret_cast<SharedStorage*>(memory);
    const int thread = static_cast<int>(threadIdx.x), warp = cutlass::canonical_warp_idx_sync();
    const bool loads = warp < kWarpGroup / 32;
    const bool loads_operands = warp == 0, loads_c = warp == 1;
    const int team = (warp - kWarpGroup / 32) / (kTeamThreads / 32);  // of threads that do not load

    // This cluster's tiles are every so many of the order's.
    const int clusters = static_cast<int>(gridDim.x) / kClusterM, cluster = static_cast<int>(blockIdx.x) / kClusterM;
    const int tiles = (params.order.count() - cluster + clusters - 1) / clusters;
    const auto tile = [&](int i) {
      const auto at = params.order[cluster + i * clusters];
      const int m = at.m * kClusterM + static_cast<int>(blockIdx.x) % kClusterM;
      const int n = at.n * kClusterN + static_cast<int>(blockIdx.y);
      return cute::make_coord(m, n, cute::_, 0);
    };
    Mainloop mainloop;
    const auto operands = mainloop.load_init(params.shape, params.mainloop);
    const int k_tiles = cute::size<3>(cute::get<0>(operands));

    if (warp == 0 && cute::elect_one_sync()) {
      Mainloop::prefetch_tma_descriptors(params.mainloop);
      Epilogue::prepare(params.epilogue, shared.epilogue);
    }
    typename Pipeline::Params pipeline_params;
    pipeline_params.role = loads ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
    pipeline_params.is_leader = thread % kWarpGroup == 0;
    pipeline_params.num_consumers = kTeamThreads;
    pipeline_params.num_producers = Mainloop::NumProducerThreadEvents;
    pipeline_params.transaction_bytes = params.mainloop.tma_transaction_bytes;
    Pipeline pipeline(shared.pipeline, pipeline_params, Cluster());
    LoadOrder load_order(shared.load_order, {static_cast<std::uint32_t>(!loads_operands), 32});
    TeamOrder team_order(shared.team_order, {static_cast<std::uint32_t>(loads ? 0 : team), kTeamThreads});

    // The barriers above are set up for the whole cluster before anybody uses one.
    if constexpr (kClusterM * kClusterN > 1) {
      cute::cluster_arrive_relaxed();
      cute::cluster_wait();
    } else {
      __syncthreads();
    }

    if (loads) {
      cutlass::arch::warpgroup_reg_dealloc<kLoadRegisters>();
      if (loads_operands) {
        auto state = cutlass::make_producer_start_state<Pipeline>();
        for (int i = 0; i < tiles; ++i) {
          mainloop.load(params.mainloop, pipeline, state, operands, tile(i), cute::make_coord_iterator(k_tiles),
                        k_tiles, thread % 32, cute::block_rank_in_cluster(), shared.operands);
          state.advance(k_tiles);
          if (i == 0) load_order.arrive();
        }
        mainloop.load_tail(pipeline, state);  // a block of the cluster must not end while others write to it
      } else if (loads_c && Epilogue::kLoads) {
        load_order.wait();
        for (int i = 0; i < tiles; ++i) {
          const auto [m, n, k, batch] = tile(i);
          Epilogue::load(params.epilogue, shared.epilogue, i, m, n, thread % 32);
        }
      }
      return;
    }

    cutlass::arch::warpgroup_reg_alloc<kTeamRegisters>();
    const int rank = (thread - kWarpGroup) % kTeamThreads;
    for (int i = team; i < tiles; i += kTeams) {
      auto accumulators = cute::partition_fragment_C(TiledMma(), cute::take<0, 2>(TileShape()));
      const PipelineState state = after(static_cast<std::uint64_t>(i) * k_tiles);
      team_order.wait();
      mainloop.mma(pipeline, state, accumulators, k_tiles, rank, shared.operands, params.mainloop);
      team_order.arrive();
      mainloop.mma_tail(pipeline, state, k_tiles);
      const auto [m, n, k, batch] = tile(i);
      if constexpr (kOneEpilogue) team_order.wait();
      Epilogue::run(params.epilogue, shared.epilogue, i, m, n, team, rank, accumulators);
      if constexpr (kOneEpilogue) team_order.arrive();
    }
    Epilogue::finish();
  }

 private:
  /// The state of the pipeline's consumer after so many steps.
  static CODA_DEVICE PipelineState after(std::uint64_t steps) {
    return PipelineState(static_cast<int>(steps % PipelineState::Stages),
                         static_cast<std::uint32_t>(steps / PipelineState::Stages & 1), 0);
  }
};

}  // namespace coda::sm90
