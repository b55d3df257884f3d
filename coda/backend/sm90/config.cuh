// The shape of a kernel, which is what tuning chooses. Numbers here change speed and not results, but for the last bit
// of sums along m: partial results are per block of config.h, whatever the tile.
#pragma once

#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/fragment.cuh"

namespace coda::sm90 {

/// Teams of warp groups that share the tiles of a thread block (see teams.cuh).
inline constexpr int kTeams = 2;

/// M x N: the tile. Groups: warp groups of a team, which works on a tile. SubtileN: columns of the epilogue's subtile,
/// the unit in which C arrives and D leaves; `StagesC` of them may be under way for the thread block, `StagesD` for a
/// warp where D does not take the place of C. RowByRow: a thread finishes a row before it begins the next, and
/// a column of subtiles before it asks for what the next one loads: fewer registers, less latency hidden.
template <int M, int N, int Groups, int SubtileN, int StagesC, int StagesD, bool RowByRow = false>
struct Config {
  static constexpr int kGroups = Groups;
  static constexpr int kM = M, kN = N, kK = kStepK;
  static constexpr int kSubtileM = 64 * Groups, kSubtileN = SubtileN;
  /// What a team works on at a time, and its rows of subtiles.
  static constexpr int kUnits = 1, kSubtilesM = kM / kSubtileM;
  static constexpr int kThreads = 128 * Groups, kWarps = kThreads / 32;  // of a team
  static constexpr bool kRowByRow = RowByRow;
  static constexpr bool kSplitsK = false;
  static constexpr int kTeams = sm90::kTeams, kTeamsAtOnce = 1;  // kTeamsAtOnce: that multiply, and share operands
  static constexpr int kStagesC = StagesC, kStagesD = StagesD;
  /// Subtiles side by side in a block of partial results.
  static constexpr int kBlockSubtiles = static_cast<int>(kTileN) / kSubtileN;

  static_assert(
      kSubtileN % kPatchN == 0 && kTileN % kSubtileN == 0 && kN % kTileN == 0,
      "coda: a tile is a whole number of blocks of partial results, a block of subtiles, a subtile of patches");
  static_assert(kSubtilesM * kRowsHere <= kRowsPerThread, "coda: ports keep values of at most kRowsPerThread rows");
};

/// A team of one warp group works on the upper half of its tile, then on the lower one. Of a thread block's last tile
/// the lower half is for the other team, which has nothing left to do. For programs that load much and have a long
/// epilogue; where tiles are many and K is small, others are faster in one go.
template <class C>
struct InHalves : C {
  static constexpr int kUnits = 2, kSubtilesM = C::kSubtilesM / kUnits;
  static_assert(kUnits == kTeams && kUnits * kSubtilesM == C::kSubtilesM);
};

/// Both teams multiply at the same time, tiles one right below the other with the same columns of B: a quarter less
/// comes into shared memory than for two tiles one after the other. Nothing hides an epilogue. For long work on a long
/// K, where the chip's clock is what the power that it draws leaves of it.
template <class C>
struct Cooperative : C {
  static_assert(C::kUnits == 1);
  static constexpr int kTeamsAtOnce = C::kTeams;
};

/// For few rows, or few tiles: the thread blocks of a cluster multiply a part of K each (see splitk.cuh).
struct SplitsK : Config<64, 128, 1, 32, 4, 2> {
  static constexpr bool kSplitsK = true;
  static constexpr int kTeams = 1;
};

}  // namespace coda::sm90
