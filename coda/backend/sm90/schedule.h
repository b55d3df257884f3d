// Which steps of which tiles each cluster of a launch computes.
//
// A round is a tile for each cluster, and what is left over for the last one costs as much as a full one: of 2048
// tiles, 66 clusters have 31 rounds and 2 tiles. So the last round may be split along K: clusters that have no tile in
// it do the last steps of those that are left, ahead of the last of their own tiles, and leave their accumulators in
// memory; the tile's cluster begins with the sums of these in place of 0 and has fewer steps to do:
//
//   cluster 0:   tile 0   | tile 66  | ... | piece of X | tile 1980
//   cluster 1:   tile 1   | tile 67  | ... | piece of X | tile 1981
//   ...
//   cluster 64:  tile 64  | tile 130 | ... | tile 2044  | what remains of X
//   cluster 65:  tile 65  | tile 131 | ... | tile 2045  | what remains of Y
//
// Until then all clusters are at the same step of their tiles, so that they share what the level-2 cache brings. A
// cluster waits only for some of lower numbers, which wait for none. As thread blocks begin in the order of their
// numbers (which CUDA does not promise, and every chip does), none waits for one that waits for its multiprocessor.
#pragma once

#include <algorithm>
#include <cstdint>

#include "coda/backend/sm90/config.h"
#include "coda/core/config.h"

namespace coda::sm90 {

/// How the last round is split: each tile has `helpers`, and each helper pieces of `tiles` of them. One of the two is
/// 1; without helpers, it is not split.
struct Split {
  int helpers = 0, tiles = 1;

  /// The steps of a tile that its own cluster does: no fewer than a helper has of all its pieces.
  constexpr int own_steps(int steps) const {
    return tiles == 1 ? (steps + helpers) / (helpers + 1) : steps - steps / (tiles + 1);
  }
};

class Schedule {
 public:
  static constexpr int kMostClusters = 256;  // with a last round that is split: see piece

  Schedule() = default;
  /// `tiles` of `steps` steps each, for as many clusters at most. With a split that there are too few clusters or steps
  /// for, the last round is not split.
  Schedule(int tiles, int clusters, int steps, Split split)
      : steps_(steps), left_steps_(steps), clusters_(clusters), rounds_(tiles / clusters), left_(tiles % clusters) {
    if (!fits(left_, clusters, steps, split)) return;
    first_owner_ = clusters - left_;
    left_steps_ = split.own_steps(steps);
    of_tile_ = split.helpers, of_helper_ = split.tiles;
    piece_steps_ = piece_steps(steps, split), helpers_ = (left_ * of_tile_ + of_helper_ - 1) / of_helper_;
    per_tile_ = (65536 + of_tile_ - 1) / of_tile_;
    ahead_ = rounds_ - 1;
  }
  /// Whether `left` tiles can be split so.
  static constexpr bool fits(int left, int clusters, int steps, Split split) {
    if (left == 0 || split.helpers == 0 || clusters > kMostClusters) return false;
    const int helpers = (left * split.helpers + split.tiles - 1) / split.tiles, piece = piece_steps(steps, split);
    return helpers <= clusters - left && piece > 0 && split.own_steps(steps) + (split.helpers - 1) * piece < steps;
  }

  /// A turn of a cluster: `steps` steps from step k of a tile on, which is not 0 for a piece of another's tile. Ahead
  /// of it, the cluster has done `done` steps.
  struct Turn {
    int tile, k, steps, done;
  };
  /// A cluster's pieces of others' tiles, and tiles of its own.
  CODA_FN int pieces(int cluster) const {
    if (cluster >= helpers_) return 0;
    return of_helper_ == 1 ? 1 : std::min(of_helper_, left_ - cluster * of_helper_);
  }
  CODA_FN int tiles(int cluster) const { return rounds_ + (cluster >= first_owner_ && cluster < first_owner_ + left_); }
  /// A cluster's turn of that number, of pieces(cluster) + tiles(cluster).
  CODA_FN Turn turn(int cluster, int number, int pieces) const {
    const bool is_piece = number >= ahead_ && number < ahead_ + pieces;
    return is_piece ? piece(cluster, number - ahead_) : tile(cluster, own(number, pieces));
  }
  /// Of a turn that is no piece, its number among those.
  CODA_FN int own(int number, int pieces) const { return number < ahead_ ? number : number - pieces; }
  CODA_FN Turn tile(int cluster, int number) const {
    const bool is_left = number == rounds_;
    return {number * clusters_ + cluster - (is_left ? first_owner_ : 0), 0, is_left ? left_steps_ : steps_,
            number * steps_ + (number < ahead_ ? 0 : done_helping(cluster))};
  }
  /// Steps that every cluster has at least.
  CODA_FN int least_steps() const { return rounds_ * steps_; }

  /// Where others have left what they did of a tile: in `count` slots from `first` on; none, if it is done in one go.
  struct Slots {
    int first, count;
  };
  CODA_FN Slots slots_of(int tile) const {
    const int left = tile - rounds_ * clusters_;
    return {left * of_tile_, left < 0 ? 0 : of_tile_};
  }
  /// Where a cluster leaves its piece of a tile, of all slots.
  CODA_FN int slot(int cluster, int tile) const { return of_helper_ == 1 ? cluster : tile - rounds_ * clusters_; }
  CODA_FN int slots() const { return left_ * of_tile_; }

 private:
  static constexpr int piece_steps(int steps, Split split) {
    return (steps - split.own_steps(steps) + split.helpers - 1) / split.helpers;
  }
  CODA_FN int done_helping(int cluster) const {
    const int count = pieces(cluster);
    return count == 0 ? 0 : (count - 1) * piece_steps_ + piece(cluster, 0).steps;
  }
  CODA_FN Turn piece(int cluster, int number) const {
    // cluster / of_tile_, exact for up to 2^16 / of_tile_ clusters. A division takes the device hundreds of cycles.
    const int left = cluster * per_tile_ >> 16, part = cluster - left * of_tile_;
    const int k = left_steps_ + part * piece_steps_;
    return {rounds_ * clusters_ + left * of_helper_ + number, k, std::min(piece_steps_, steps_ - k),
            ahead_ * steps_ + number * piece_steps_};
  }

  int steps_ = 0, left_steps_ = 0;  // of a tile; of one of the last round, by the cluster whose tile it is
  int clusters_ = 1, rounds_ = 0;   // rounds that are full
  int left_ = 0, first_owner_ = 0;  // tiles of the last round, and the first cluster that has one
  // Helpers, those of a tile, and tiles of one of them; of a helper's own tiles, those ahead of its pieces.
  int helpers_ = 0, of_tile_ = 0, of_helper_ = 1, ahead_ = 0;
  int piece_steps_ = 0, per_tile_ = 0;
};

/// The split of the last round after which a launch ends first, if it is not best left as it is.
constexpr Split best_split(int tiles, int clusters, int steps) {
  // Measured on an H200, in steps of some 0.35 us: what it takes to split at all, and then for each helper of a tile
  // and for each piece of a helper. Of several rounds, those before the last hide a part of it.
  const bool hides = tiles >= 2 * clusters;
  const int overhead = hides ? 5 : 7, of_helper = hides ? 1 : 2, of_piece = 3;
  constexpr int kMost = 7;
  Split best;
  int least = steps;
  const auto consider = [&](Split split) {
    if (!Schedule::fits(tiles % clusters, clusters, steps, split)) return;
    const int cost = split.own_steps(steps) + overhead + of_helper * split.helpers + of_piece * (split.tiles - 1);
    if (cost < least) best = split, least = cost;
  };
  for (int helpers = 1; helpers <= kMost; ++helpers) consider({helpers, 1});
  for (int pieces = 2; pieces <= kMost; ++pieces) consider({1, pieces});
  return best;
}

/// A launch's tiles as a cluster's blocks have them side by side: so many rounds of a tile for each cluster, and what
/// is left.
struct Rounds {
  int clusters = 1;
  std::int64_t full = 0;
  int left = 0;
  Split split;  // of what is left
};
constexpr Rounds rounds_of(std::int64_t tiles, std::int64_t steps, int multiprocessors) {
  const int most = std::max(1, multiprocessors / kClusterN);  // a share of a GPU may be of one multiprocessor
  const auto clusters = static_cast<int>(std::min<std::int64_t>(tiles, most));
  Rounds rounds{clusters, tiles / clusters, static_cast<int>(tiles % clusters), {}};
  constexpr std::int64_t kMost = 1 << 30;
  if (tiles < kMost && steps < kMost) {
    rounds.split = best_split(static_cast<int>(tiles), clusters, static_cast<int>(steps));
  }
  return rounds;
}

}  // namespace coda::sm90
