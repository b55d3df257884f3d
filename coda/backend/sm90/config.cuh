// The shape of a kernel, which is what tuning chooses. Numbers here change speed, never results: partial results are
// per block of config.h, whatever the tile.
#pragma once

#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/fragment.cuh"

namespace coda::sm90 {

/// How two warp groups share the tiles of a thread block. Ping-pong: each has a tile of its own, and one multiplies
/// while the other runs its epilogue. Cooperative: both work on one tile.
enum class Groups { pingpong, cooperative };

/// M x N: the tile. ClusterM x ClusterN: thread blocks that share operand loads. SubtileN: columns of the epilogue's
/// subtile, the unit in which C arrives and D leaves; `StagesC` and `StagesD` of them may be under way.
/// RowByRow: a thread finishes a row before it begins the next, which takes fewer registers and hides less latency.
template <int M, int N, int ClusterM, int ClusterN, Groups G, int SubtileN, int StagesC, int StagesD,
          bool RowByRow = false>
struct Config {
  static constexpr Groups kGroups = G;
  static constexpr int kM = M, kN = N, kK = 64;  // 64 values of 16 bits: one 128-byte row of swizzled shared memory
  static constexpr int kClusterM = ClusterM, kClusterN = ClusterN;
  static constexpr int kSubtileM = G == Groups::cooperative ? 128 : 64, kSubtileN = SubtileN;
  static constexpr int kSubtilesM = kM / kSubtileM;
  /// That share a tile.
  static constexpr int kThreads = G == Groups::cooperative ? 256 : 128, kWarps = kThreads / 32;
  static constexpr bool kRowByRow = RowByRow;
  static constexpr int kStagesC = StagesC, kStagesD = StagesD;
  /// Rows of the tile that a thread owns.
  static constexpr int kSlots = kSubtilesM * kRowsHere;
  /// Subtiles side by side in a block of partial results.
  static constexpr int kBlockSubtiles = static_cast<int>(kTileN) / kSubtileN;

  static_assert(
      kSubtileN % kPatchN == 0 && kTileN % kSubtileN == 0 && kN % kTileN == 0,
      "coda: a tile is a whole number of blocks of partial results, a block of subtiles, a subtile of patches");
  static_assert(kSlots <= kRowsPerThread, "coda: ports keep values of at most kRowsPerThread rows");
};

}  // namespace coda::sm90
