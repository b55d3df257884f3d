// The kernel: the main loop and a program's epilogue, run by two teams of warp groups that take the tiles of a thread
// block in turns. While one team multiplies, the other runs its epilogue:
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
//
// Between its tiles, a thread block may do some steps of others' (see schedule.h): a turn like any, but that the
// accumulators go to memory instead of an epilogue.
#pragma once

#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/cutlass.h>
#include <cutlass/fast_math.h>

#include <algorithm>
#include <cstdint>
#include <cute/arch/cluster_sm90.hpp>

#include "coda/backend/sm90/barrier.cuh"
#include "coda/backend/sm90/enqueue.cuh"
#include "coda/backend/sm90/mainloop.cuh"
#include "coda/backend/sm90/pace.cuh"
#include "coda/backend/sm90/schedule.h"

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

/// What clusters leave of each other's tiles, in memory that is the launch's alone.
struct Sums {
  float* values;         // of each slot of the schedule, thread block of a cluster and team, in turn
  std::uint64_t* flags;  // of the same: what is there is complete where this is the launch's number
  std::uint64_t launch;
};

template <class Mainloop_, class Epilogue_>
class TwoTeams {
 public:
  using Mainloop = Mainloop_;
  using Epilogue = Epilogue_;

  static constexpr int kM = Mainloop::kM, kN = Mainloop::kN, kK = Mainloop::kK, kStages = Mainloop::kStages;
  /// Each block of a cluster loads its part of a tile of A for all of them.
  static constexpr int kBoxRowsA = 64, kBoxesA = kM / kBoxRowsA / kClusterN;  // boxes of a thread block
  static constexpr int kTeamsAtOnce = Epilogue::kTeamsAtOnce;  // that multiply, and share operands: kM x kN
  static constexpr bool kCooperative = kTeamsAtOnce > 1;
  static constexpr int kWarpGroup = 128;
  static constexpr int kTeamThreads = Epilogue::kThreads, kThreads = kWarpGroup + kTeams * kTeamThreads;
  static constexpr int kMultiplyingThreads = kTeamsAtOnce * kTeamThreads;
  static_assert(cute::size(typename Mainloop::TiledMma()) == kMultiplyingThreads);

  /// Whether a thread block's last tile is for both teams, and a thread's accumulators: all, and of half a tile.
  static constexpr bool kShares = Epilogue::kUnits == kTeams;
  static constexpr int kValues = kM * kN / kMultiplyingThreads, kUnitValues = kValues / kTeams;
  static_assert(Epilogue::kRooms + kShares <= kStages,
                "coda: what comes late, and half a tile, come to stages of operands, each to its own");

  /// Of a slot of the schedule: what the teams leave there, and flags.
  static constexpr int kSlotFlags = kClusterN * kTeamsAtOnce, kSlotValues = kSlotFlags * kTeamThreads * kValues;

  // Registers of a thread at launch, and as the loading warp group hands most of its own to the teams.
  static constexpr int kAllRegisters = 65536;
  static constexpr int kLaunchRegisters = kAllRegisters / kThreads / 8 * 8;
  static constexpr int kLoadRegisters = kTeamThreads > kWarpGroup ? 32 : 40;
  static constexpr int kTeamRegisters =
      (kLaunchRegisters * kThreads - kLoadRegisters * kWarpGroup) / (kTeams * kTeamThreads) / 8 * 8;

  struct Params {
    // What the loader needs first lies together.
    int paced_steps;  // of a thread block: those that all have, or 0
    PaceCounts* pace;
    Schedule schedule;
    TileOrder order;
    Sums sums;
    CUtensorMap a, b;
    typename Epilogue::Params epilogue;
  };

 private:
  struct SharedStorage {
    alignas(1024) typename Mainloop::Operands operands;
    alignas(1024) typename Epilogue::Shared epilogue;
    typename Mainloop::Signals signals;
    Barrier team_order[kTeams];  // of the teams' products: the other one's are under way
    Barrier half_loaded;         // the first turn's operands: C may come without being in their way
    Barrier handed_over;         // the second half of the last tile
  };

 public:
  static constexpr int kSharedBytes = sizeof(SharedStorage);

  CODA_DEVICE void operator()(const Params& params, char* memory) const {
    auto& shared = *reinterpret_cast<SharedStorage*>(memory);
    const int warp = cutlass::canonical_warp_idx_sync();
    const bool loads = warp < kWarpGroup / 32;
    const bool loads_operands = warp == 0, loads_c = warp == 1;

    if (warp == 0 && cute::elect_one_sync()) {
      cute::prefetch_tma_descriptor(&params.a);
      cute::prefetch_tma_descriptor(&params.b);
      Epilogue::prepare(params.epilogue, shared.epilogue);
      for (int stage = 0; stage < kStages; ++stage) {
        shared.signals.full[stage].init(1);
        shared.signals.empty[stage].init(kClusterN * kMultiplyingThreads / kWarpGroup);
      }
      for (auto& turn : shared.team_order) turn.init(kTeamThreads / 32);
      shared.half_loaded.init(1);
      shared.handed_over.init(kTeamThreads);
      publish_barriers();
    }
    // The barriers above are set up for the whole cluster before anybody uses one.
    cute::cluster_arrive_relaxed();
    cute::cluster_wait();
    detail::wait_for_turn();

    // Two questions rather than one and an else: so the loader's code lies right behind, not behind that of the teams,
    // from where memory would have to bring it before anything else can happen.
    if (loads) {
      cutlass::arch::warpgroup_reg_dealloc<kLoadRegisters>();
      if (loads_operands && cute::elect_one_sync()) {
        load_operands(params, shared);
      } else if (loads_c && Epilogue::kLoads > 0) {
        shared.half_loaded.wait(0);
        const int cluster = own_cluster(), count = params.schedule.tiles(cluster) * kTeamsAtOnce;
        for (int i = 0; i < count; ++i) {
          const auto turn = params.schedule.tile(cluster, i / kTeamsAtOnce);
          const auto at = team_tile(params, turn.tile, i % kTeamsAtOnce);
          Epilogue::load(params.epilogue, shared.epilogue, i, i == count - 1, at.m, at.n, thread_index() % 32);
        }
      }
    }
    if (thread_index() < kWarpGroup) return;

    cutlass::arch::warpgroup_reg_alloc<kTeamRegisters>();
    const int team = own_team();
    const int cluster = own_cluster(), pieces = params.schedule.pieces(cluster);
    const int turns = pieces + params.schedule.tiles(cluster);
    for (int number = kCooperative ? 0 : team; number < turns + kShares; number += kCooperative ? 1 : kTeams) {
      // The team that has not the last tile comes by once more, for its second half.
      const bool helps = kShares && number == turns;
      const auto turn = params.schedule.turn(cluster, number - helps, pieces);
      const bool is_piece = turn.k > 0;
      const auto at = team_tile(params, turn.tile, team);
      // Unsigned, as all that is made of it: dividing what may be negative takes three instructions more.
      const int rank = static_cast<unsigned>(thread_index() - kWarpGroup) % kTeamThreads;
      auto accumulators = Mainloop::accumulators();
      cute::clear(accumulators);
      cute::warpgroup_fence_operand(accumulators);  // once for both ways to go on: the compiler would write zeros anew
      if (!is_piece && !helps) take(params, turn.tile, team, rank, accumulators);
      auto work = Epilogue::begin(params.epilogue, shared.epilogue, at.m, at.n, helps, team, rank);
      if (!helps) multiply(shared, number, team, rank, turn, accumulators);
      if (is_piece) [[unlikely]] {
        give(params, params.schedule.slot(cluster, turn.tile), team, rank, accumulators);
        continue;
      }
      // Of the tiles that the teams work on, one after the other in the order in which C comes.
      const int own = params.schedule.own(number - helps, pieces);
      const auto i = static_cast<unsigned>(kCooperative ? own * kTeams + team : own);
      const bool last = number - helps == turns - 1 && (!kCooperative || team == kTeams - 1);
      if constexpr (!kShares) {
        Epilogue::run(params.epilogue, shared.epilogue, i, last, 0, work, accumulators);
      } else {
        if (last) {
          const typename Mainloop::Stage free(turn.done + turn.steps + Epilogue::kRooms);
          // The other team, and the cluster's other block, have read what was there.
          if (!helps) shared.signals.empty[free.index].wait(free.phase ^ 1);
          share(helps, team, rank, accumulators, room(shared, free.index), shared.handed_over);
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
  static CODA_DEVICE int2 block_index() {
    int2 block;
    asm volatile("mov.u32 %0, %%ctaid.x;\n\tmov.u32 %1, %%ctaid.y;" : "=r"(block.x), "=r"(block.y));
    return block;
  }
  // One lane's, so that the compiler knows them to be the same in all.
  static CODA_DEVICE int own_team() {  // of a thread that does not load
    return __shfl_sync(0xffffffffu, (thread_index() - kWarpGroup) / kTeamThreads, 0);
  }
  static CODA_DEVICE int own_cluster() { return __shfl_sync(0xffffffffu, block_index().x, 0); }

  /// Where a thread block's tile of that number is, and where what a team has of it is, in tiles of a team.
  static CODA_DEVICE TileOrder::Cluster tile(const Params& params, int number) {
    const auto at = params.order[number];
    return {at.m, at.n * kClusterN + block_index().y};
  }
  static CODA_DEVICE TileOrder::Cluster team_tile(const Params& params, int number, int team) {
    const auto at = tile(params, number);
    return {kCooperative ? at.m * kTeams + team : at.m, at.n};
  }
  /// The product gives 64 rows to each of its warp groups in turn. So that those of a team are side by side, boxes of
  /// them may change places in shared memory: where rows of the box at place `box` begin in the tile.
  static constexpr CODA_FN int first_row(int box) {
    constexpr int kGroups = Epilogue::kGroups, kAtOnce = kTeamsAtOnce * kGroups, kTurns = kM / kBoxRowsA / kAtOnce;
    const int turn = box / kAtOnce, team = box % kAtOnce / kGroups, group = box % kGroups;
    return ((team * kTurns + turn) * kGroups + group) * kBoxRowsA;
  }

  /// One thread: has the operands of all turns brought, as far ahead as there are stages. The blocks of a cluster share
  /// rows of A: each loads its part for all of them.
  static CODA_DEVICE void load_operands(const Params& params, SharedStorage& shared) {
    constexpr std::uint16_t kAllBlocks = (1 << kClusterN) - 1;
    const int block = static_cast<int>(cute::block_rank_in_cluster());
    const int clusters = static_cast<int>(gridDim.x), cluster = static_cast<int>(blockIdx.x);
    const int pieces = params.schedule.pieces(cluster), turns = pieces + params.schedule.tiles(cluster);
    // The other blocks of the cluster follow the first, which loads a part of their A.
    const bool paces = block == 0 && params.paced_steps > 0;
    Pace pace(params.pace, clusters);
    int unit = paces ? 0 : -1;  // the step at which the next one begins
    typename Mainloop::Stage stage(0);
    for (int i = 0; i < turns; ++i) {
      const auto turn = params.schedule.turn(cluster, i, pieces);
      const auto at = tile(params, turn.tile);
      for (int step = 0; step < turn.steps; ++step, ++stage) {
        if (turn.done + step == unit) {
          pace.step(), unit += Pace::kSteps;
          if (unit >= params.paced_steps) unit = -1;
        }
        const int k = (turn.k + step) * kK;
        shared.signals.empty[stage.index].wait(stage.phase ^ 1);
        shared.signals.full[stage.index].arrive_and_expect(Mainloop::kStageBytes);
        auto* full = shared.signals.full[stage.index].state();
        CODA_UNROLL for (int i_a = 0; i_a < kBoxesA; ++i_a) {
          const int box = block * kBoxesA + i_a;
          cute::SM90_TMA_LOAD_MULTICAST_2D::copy(&params.a, full, kAllBlocks, Mainloop::kHint,
                                                 shared.operands.a[stage.index] + box * kBoxRowsA * kK, k,
                                                 at.m * kM + first_row(box));
        }
        Mainloop::load_b(params.b, shared.operands, full, stage.index, at.n * kN, k);
        if (i == 0 && step == turn.steps / 2) shared.half_loaded.arrive();
      }
    }
    if (paces) pace.finish();
    if constexpr (Epilogue::kLate > 0) {
      const auto last = params.schedule.turn(cluster, turns - 1, pieces);
      const auto at = team_tile(params, last.tile, kTeamsAtOnce - 1);
      auto free = stage;
      for (int number = 0; number < Epilogue::kRooms; ++number, ++free) {
        shared.signals.empty[free.index].wait(free.phase ^ 1);
        Epilogue::load_late(params.epilogue, shared.epilogue, room(shared, free.index), number, at.m, at.n);
      }
    }
    // A block of the cluster must not end while others write to it, and to its barriers.
    for (int i = 0; i < kStages; ++i, ++stage) shared.signals.empty[stage.index].wait(stage.phase ^ 1);
  }

  /// A team's turn of that number at the tensor cores: one that has to itself what they can do, but in a Cooperative
  /// configuration.
  template <class Accumulators>
  static CODA_DEVICE void multiply(SharedStorage& shared, int number, int team, int rank, const Schedule::Turn& turn,
                                   Accumulators& accumulators) {
    const int warp_group =
        __shfl_sync(0xffffffffu, rank / kWarpGroup, 0) + (kCooperative ? team * (kTeamThreads / kWarpGroup) : 0);
    // A warp group tells each block of the cluster, parts of whose A are in the stage.
    const int block = rank % kWarpGroup;
    const auto free = [&](BarrierAt empty) {
      if (block < kClusterN) empty.arrive(block);
    };
    // The first team's first turn is after none; its others, and the second team's, are each after one of the other's.
    if constexpr (!kCooperative) {
      shared.team_order[team].wait(static_cast<unsigned>(number / kTeams + team + 1) & 1);
    }
    Mainloop::multiply(shared.operands, shared.signals, warp_group, turn.done, turn.steps, accumulators, free, [&] {
      if (!kCooperative && rank % 32 == 0) shared.team_order[1 - team].arrive();
    });
  }

  /// Where a team's part of a slot is: the number of its flag. The next slot's is kSlotFlags further on.
  static CODA_DEVICE int part_of(int slot, int team) {
    return slot * kSlotFlags + block_index().y * kTeamsAtOnce + (kCooperative ? team : 0);
  }
  static CODA_DEVICE float4* values_at(const Params& params, int part, int rank) {
    return reinterpret_cast<float4*>(params.sums.values) + part * (kTeamThreads * kValues / 4) + rank;
  }
  /// Leaves the team's accumulators, of a piece of a tile that is another cluster's.
  template <class Accumulators>
  static CODA_DEVICE void give(const Params& params, int slot, int team, int rank, const Accumulators& accumulators) {
    const int part = part_of(slot, team);
    float4* to = values_at(params, part, rank);
    CODA_UNROLL for (int v = 0; v < kValues; v += 4) {
      to[v / 4 * kTeamThreads] =
          make_float4(accumulators(v), accumulators(v + 1), accumulators(v + 2), accumulators(v + 3));
    }
    synchronize(team);
    if (rank == 0) {
      asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(params.sums.flags + part), "l"(params.sums.launch)
                   : "memory");
    }
  }
  /// Adds to the accumulators what others have left of the tile, in the order of the slots.
  template <class Accumulators>
  static CODA_DEVICE void take(const Params& params, int tile, int team, int rank, Accumulators& accumulators) {
    const auto slots = params.schedule.slots_of(tile);
    if (slots.count == 0) [[likely]]
      return;
    const int part = part_of(slots.first, team);
    // All lanes look, each at some flag: of one that looks for all, the compiler would not know that it brings the
    // others along.
    const std::uint64_t* flag = params.sums.flags + part + std::min(rank % 32, slots.count - 1) * kSlotFlags;
    while (true) {
      std::uint64_t there;
      asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(there) : "l"(flag) : "memory");
      if (!__any_sync(0xffffffffu, there != params.sums.launch)) break;
      __nanosleep(32);
    }
    __syncwarp();
    const float4* from = values_at(params, part, rank);
#pragma unroll 1
    for (int i = 0; i < slots.count; ++i, from += kSlotValues / 4) {
      CODA_UNROLL for (int v = 0; v < kValues; v += 4) {
        float4 x;
        asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                     : "l"(from + v / 4 * kTeamThreads)
                     : "memory");
        accumulators(v) += x.x, accumulators(v + 1) += x.y, accumulators(v + 2) += x.z, accumulators(v + 3) += x.w;
      }
    }
    // A graph launches with the same number each time.
    synchronize(team);
    if (rank < slots.count) params.sums.flags[part + rank * kSlotFlags] = 0;
  }
  static CODA_DEVICE void synchronize(int team) { synchronize_team(team, kTeamThreads); }

  using Room = typename Epilogue::Room;
  static CODA_DEVICE Room room(SharedStorage& shared, int stage) {
    return {reinterpret_cast<char*>(shared.operands.a[stage]), reinterpret_cast<char*>(shared.operands.b[stage])};
  }

  /// The second half of a block's last tile goes to the team that has nothing left to do, by way of shared memory.
  template <class Accumulators>
  static CODA_DEVICE void share(bool helps, int team, int rank, Accumulators& accumulators, const Room& room,
                                Barrier& handed_over) {
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
      synchronize(team);
      CODA_UNROLL for (int v = 0; v < kUnitValues; v += 4) {
        const int i = kUnitValues + v;
        chunk(v) = make_float4(accumulators(i), accumulators(i + 1), accumulators(i + 2), accumulators(i + 3));
      }
      handed_over.arrive();
    }
  }
};

}  // namespace coda::sm90
