// Which steps of which tiles each cluster of a launch computes: all of them once, whatever is split.
#include "coda/backend/sm90/schedule.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace coda::sm90 {
namespace {

struct Launch {
  int clusters, rounds, left, steps;
  int tiles() const { return rounds * clusters + left; }
};

std::vector<Split> splits() {
  std::vector<Split> all{{}};
  for (int i = 1; i <= 7; ++i) all.push_back({i, 1});
  for (int i = 2; i <= 7; ++i) all.push_back({1, i});
  return all;
}

/// Empty, or what is wrong with what the clusters do between them.
std::string fault_of(const Launch& launch, Split split) {
  const auto [clusters, rounds, left, steps] = launch;
  const Schedule schedule(launch.tiles(), clusters, steps, split);
  const bool fits = Schedule::fits(left, clusters, steps, split);
  std::vector<std::vector<int>> times(static_cast<std::size_t>(launch.tiles()),
                                      std::vector<int>(static_cast<std::size_t>(steps)));
  std::set<int> left_in;  // slots
  int last = 0;
  for (int c = 0; c < clusters; ++c) {
    const int pieces = schedule.pieces(c), turns = pieces + schedule.tiles(c);
    int done = 0;
    for (int number = 0; number < turns; ++number) {
      const Schedule::Turn turn = schedule.turn(c, number, pieces);
      if (turn.done != done)
        return fmt::format("cluster {}, turn {}: {} steps before, got {}", c, number, done, turn.done);
      if (turn.tile < 0 || turn.tile >= launch.tiles() || turn.k < 0 || turn.steps < 1 || turn.k + turn.steps > steps) {
        return fmt::format("cluster {}, turn {}: tile {}, {} steps from {}", c, number, turn.tile, turn.steps, turn.k);
      }
      for (int k = turn.k; k < turn.k + turn.steps; ++k) {
        ++times[static_cast<std::size_t>(turn.tile)][static_cast<std::size_t>(k)];
      }
      done += turn.steps;
      const Schedule::Slots slots = schedule.slots_of(turn.tile);
      if (turn.k > 0) {
        const int slot = schedule.slot(c, turn.tile);
        if (slot < slots.first || slot >= slots.first + slots.count) return fmt::format("cluster {}: slot {}", c, slot);
        if (!left_in.insert(slot).second) return fmt::format("cluster {}: slot {} is another's", c, slot);
        if (c >= clusters - left) return fmt::format("cluster {} waits, and others for it", c);
        if (number == turns - 1) return fmt::format("cluster {} ends with a piece", c);
      } else {
        const Schedule::Turn own = schedule.tile(c, schedule.own(number, pieces));
        if (own.tile != turn.tile || own.done != turn.done) return fmt::format("cluster {}: turn {}", c, number);
        if ((slots.count > 0) != (turn.steps < steps)) return fmt::format("tile {}: {} slots", turn.tile, slots.count);
      }
    }
    if (done < schedule.least_steps()) return fmt::format("cluster {}: {} steps", c, done);
    last = std::max(last, done);
  }
  for (const auto& of_tile : times) {
    if (std::count(of_tile.begin(), of_tile.end(), 1) != steps) return "a step is done twice, or not at all";
  }
  if (static_cast<int>(left_in.size()) != schedule.slots()) return fmt::format("{} slots", schedule.slots());
  if (fits != (schedule.slots() > 0)) return fmt::format("{} slots", schedule.slots());
  const int longest = rounds * steps + (left == 0 ? 0 : fits ? split.own_steps(steps) : steps);
  if (last != longest) return fmt::format("{} steps at most, expected {}", last, longest);
  return "";
}

TEST(Schedule, DoesEachStepOfEachTileOnce) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int kThinned = 4;  // where it takes ten times as long
#else
  constexpr int kThinned = 1;
#endif
  int split_ones = 0;
  for (const int clusters : {1, 2, 5, 57, 66, 256}) {
    for (const int steps : {1, 2, 3, 5, 7, 16, 17, 64, 129}) {
      for (const int rounds : {1, 2, 5}) {
        const int every = clusters > 100 ? 23 * kThinned : clusters > 50 ? 3 * kThinned : 1;
        for (int left = 0; left < clusters; left += left == 0 ? 1 : every) {
          for (const Split split : splits()) {
            const Launch launch{clusters, rounds, left, steps};
            ASSERT_EQ(fault_of(launch, split), "")
                << clusters << " clusters, " << rounds << " rounds and " << left << " tiles of " << steps << " steps, "
                << split.helpers << " helpers with " << split.tiles << " tiles";
            split_ones += Schedule::fits(left, clusters, steps, split);
          }
        }
      }
    }
  }
  EXPECT_GT(split_ones, 5000 / kThinned);
}

TEST(Schedule, IsNotSplitForMoreClustersThanItDividesExactly) {
  EXPECT_TRUE(Schedule::fits(1, Schedule::kMostClusters, 64, {7, 1}));
  EXPECT_FALSE(Schedule::fits(1, Schedule::kMostClusters + 1, 64, {7, 1}));
}

TEST(BestSplit, TakesNoLongerThanNone) {
  for (const int clusters : {1, 2, 57, 66, 72}) {
    for (const int steps : {1, 8, 16, 32, 64, 128, 448, 2048}) {
      for (int tiles = clusters; tiles < 4 * clusters; ++tiles) {
        const Split split = best_split(tiles, clusters, steps);
        if (split.helpers == 0) continue;
        ASSERT_TRUE(Schedule::fits(tiles % clusters, clusters, steps, split)) << tiles << " of " << steps << " steps";
        ASSERT_LT(split.own_steps(steps), steps) << tiles << " of " << steps << " steps";
      }
    }
  }
}

/// 66 clusters, as of an H100 or H200. Splitting costs a few steps; there must be more to gain.
TEST(BestSplit, IsAsMeasured) {
  const auto best = [](int left, int rounds, int steps) {
    const Split split = best_split(rounds * 66 + left, 66, steps);
    return std::pair(split.helpers, split.tiles);
  };
  const std::pair none(0, 1);
  EXPECT_EQ(best(0, 8, 128), none);
  EXPECT_EQ(best(2, 31, 128), std::pair(7, 1));  // 8192^3
  EXPECT_EQ(best(50, 7, 64), none);              // 4096^3
  EXPECT_EQ(best(50, 7, 128), std::pair(1, 4));  // 4096 x 4096 x 8192
  EXPECT_EQ(best(10, 3, 64), std::pair(5, 1));
  EXPECT_EQ(best(34, 7, 64), std::pair(1, 2));
  EXPECT_EQ(best(14, 1, 16), none);
  EXPECT_EQ(best(12, 2, 16), std::pair(3, 1));
  EXPECT_EQ(best(6, 5, 8), none);
}

TEST(Rounds, AreOfOneClusterAtLeast) {
  for (const int multiprocessors : {0, 1, 2, 3}) {
    const Rounds rounds = rounds_of(8, 8, multiprocessors);
    EXPECT_EQ(rounds.clusters, 1) << multiprocessors;
    EXPECT_EQ(rounds.full, 8) << multiprocessors;
    EXPECT_EQ(rounds.left, 0) << multiprocessors;
  }
}

}  // namespace
}  // namespace coda::sm90
