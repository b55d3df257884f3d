// The kernel: CUTLASS's main loop and a program's epilogue, run by two teams of warp groups that take the tiles of a
// thread block in turns. While one team multiplies, the other runs its epilogue:
//
//   team 0:  multiply tile 0 | epilogue 0      | multiply tile 2 | ...
//   team 1:                  | multiply tile 1 | epilogue 1      | ...
//
// CUTLASS's own ping-pong kernel has teams of one warp group. Two of them halve a thread's accumulators and the time of
// an epilogue that nothing hides, which is that of a thread block's last tile.
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
  static constexpr int kTileK = cute::size<2>(TileShape());
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
  using TeamOrder = cutlass::OrderedSequenceBarrier<1, kTeams>;  // of the teams' products
  using Pipeline = typename Mainloop::MainloopPipeline;
  using PipelineState = typename Mainloop::PipelineState;

  struct SharedStorage {
    alignas(1024) typename Mainloop::TensorStorage operands;
    alignas(1024) typename Epilogue::Shared epilogue;
    alignas(16) typename Mainloop::PipelineStorage pipeline;
    alignas(16) typename TeamOrder::SharedStorage team_order;
    cutlass::arch::ClusterBarrier half_loaded;  // the first tile's operands: C may come without being in their way
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
    const int k_tiles = (cute::get<2>(params.shape) + kTileK - 1) / kTileK;

    if (warp == 0 && cute::elect_one_sync()) {
      Mainloop::prefetch_tma_descriptors(params.mainloop);
      Epilogue::prepare(params.epilogue, shared.epilogue);
      shared.half_loaded.init(1);
    }
    typename Pipeline::Params pipeline_params;
    pipeline_params.role = loads ? Pipeline::ThreadCategory::Producer : Pipeline::ThreadCategory::Consumer;
    pipeline_params.is_leader = thread % kWarpGroup == 0;
    pipeline_params.num_consumers = kTeamThreads;
    pipeline_params.num_producers = Mainloop::NumProducerThreadEvents;
    pipeline_params.transaction_bytes = params.mainloop.tma_transaction_bytes;
    Pipeline pipeline(shared.pipeline, pipeline_params, Cluster());
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
      if (loads_operands && cute::elect_one_sync()) {
        load_operands(params, shared, pipeline, tiles, k_tiles);
      } else if (loads_c && Epilogue::kLoads > 0) {
        shared.half_loaded.wait(0);
        for (int i = 0; i < tiles; ++i) {
          const auto at = tile(params, i);
          Epilogue::load(params.epilogue, shared.epilogue, i, at.m, at.n, thread % 32);
        }
      }
      return;
    }

    cutlass::arch::warpgroup_reg_alloc<kTeamRegisters>();
    Mainloop mainloop;
    for (int i = team; i < tiles; i += kTeams) {
      const int rank = (thread_index() - kWarpGroup) % kTeamThreads;
      const auto at = tile(params, i);
      auto accumulators = cute::partition_fragment_C(TiledMma(), cute::take<0, 2>(TileShape()));
      const PipelineState state = after(static_cast<std::uint64_t>(i) * k_tiles);
      auto work = Epilogue::begin(params.epilogue, shared.epilogue, at.m, at.n, team, rank);
      team_order.wait();
      mainloop.mma(pipeline, state, accumulators, k_tiles, rank, shared.operands, params.mainloop);
      team_order.arrive();
      mainloop.mma_tail(pipeline, state, k_tiles);
      Epilogue::run(params.epilogue, shared.epilogue, i, work, accumulators);
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
  static CODA_DEVICE int2 block_index() {
    int2 block;
    asm volatile("mov.u32 %0, %%ctaid.x;\n\tmov.u32 %1, %%ctaid.y;" : "=r"(block.x), "=r"(block.y));
    return block;
  }

  /// The thread block's i-th tile.
  static CODA_DEVICE TileOrder::Cluster tile(const Params& params, int i) {
    const int2 block = block_index();
    const int clusters = static_cast<int>(gridDim.x) / kClusterM;
    const auto at = params.order[block.x / kClusterM + i * clusters];
    return {at.m * kClusterM + block.x % kClusterM, at.n * kClusterN + block.y};
  }

  /// One thread: has the operands of all tiles brought, as far ahead as there are stages.
  static CODA_DEVICE void load_operands(const Params& params, SharedStorage& shared, Pipeline& pipeline, int tiles,
                                        int k_tiles) {
    using namespace cute;
    const auto& tma_a = params.mainloop.tma_load_a;
    const auto& tma_b = params.mainloop.tma_load_b;
    const int rank = static_cast<int>(block_rank_in_cluster()), cluster_m = rank % kClusterM,
              cluster_n = rank / kClusterM;
    const auto [a, b] = Mainloop().load_init(params.shape, params.mainloop);
    const auto slice_a = tma_a.get_slice(cluster_n);
    const auto slice_b = tma_b.get_slice(cluster_m);
    const auto from_a = slice_a.partition_S(a(_, _, _, _, 0));
    const auto from_b = slice_b.partition_S(b(_, _, _, _, 0));
    auto to_a = slice_a.partition_D(
        make_tensor(make_smem_ptr(shared.operands.smem_A.data()), typename Mainloop::SmemLayoutA()));
    auto to_b = slice_b.partition_D(
        make_tensor(make_smem_ptr(shared.operands.smem_B.data()), typename Mainloop::SmemLayoutB()));
    // Thread blocks that are side by side share rows of A, those below each other columns of B.
    const auto share_a = static_cast<std::uint16_t>(kRowOfBlocks << cluster_m);
    const auto share_b = static_cast<std::uint16_t>(kColumnOfBlocks << cluster_n * kClusterM);

    auto state = cutlass::make_producer_start_state<Pipeline>();
    for (int i = 0; i < tiles; ++i) {
      const auto at = tile(params, i);
      for (int k = 0; k < k_tiles; ++k) {
        pipeline.producer_acquire(state);
        auto* barrier = pipeline.producer_get_barrier(state);
        copy(tma_a.with(*barrier, share_a), from_a(_, _, _, at.m, k), to_a(_, _, _, state.index()));
        copy(tma_b.with(*barrier, share_b), from_b(_, _, _, at.n, k), to_b(_, _, _, state.index()));
        ++state;
        if (i == 0 && k == k_tiles / 2) shared.half_loaded.arrive();
      }
    }
    pipeline.producer_tail(state);  // a block of the cluster must not end while others write to it
  }
  /// Masks of the blocks of a cluster with the same m or n.
  static constexpr unsigned kRowOfBlocks = [] {
    unsigned mask = 0;
    for (int n = 0; n < kClusterN; ++n) mask |= 1u << n * kClusterM;
    return mask;
  }();
  static constexpr unsigned kColumnOfBlocks = (1u << kClusterM) - 1;

  /// The state of the pipeline's consumer after so many steps.
  static CODA_DEVICE PipelineState after(std::uint64_t steps) {
    return PipelineState(static_cast<int>(steps % PipelineState::Stages),
                         static_cast<std::uint32_t>(steps / PipelineState::Stages & 1), 0);
  }
};

}  // namespace coda::sm90
