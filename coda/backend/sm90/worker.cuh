// One thread's work on one tile: the program on each row of each patch, and what the threads of a tile do together.
#pragma once

#include "coda/backend/sm90/barrier.cuh"
#include "coda/backend/sm90/config.cuh"
#include "coda/backend/sm90/lifecycle.cuh"

namespace coda::sm90 {

/// What the warps of a team share of a program's first pass and of its folds along m.
template <class Program, class Config>
struct SharedResults {
  static constexpr int kHeads = Config::kN / kPatchN;  // of a tile, at most
  static constexpr bool kFirstPass = kHasHeadMeans<Program>;
  static constexpr int kHeadRows = kFirstPass ? Config::kM : 1;
  static constexpr int kFolds = kRowFolds<Program>;
  static constexpr int kRows = Config::kUnits * Config::kWarps;  // of partial folds: one for each warp's part of a tile

  float heads[kHeadRows][kHeadSlots * kHeads];
  float columns[kFolds > 0 ? kFolds : 1][kFolds > 0 ? kRows : 1][kFolds > 0 ? Config::kN : 1];
  Barrier folded;  // the first half of a tile of which the other team has the second
};

/// A row's 8 values of a patch: those of rows r < 2 lie in `acc` as c + 2 r + 4 j, here as c + 2 j.
template <class E, class Source>
CODA_DEVICE void take_row(const Source& acc, int first, int r, E (&out)[Accumulator::count]) {
  CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) {
    out[i] = acc(first + i / 2 * 2 * kRowsHere + 2 * r + i % 2);
  }
}

/// One thread's work on one unit of a tile, apart from what the copy engine moves (see Sm90Tile's Carries).
template <class Program, PortMask Absent, class Config, bool Carries>
struct Worker {
  static constexpr int kPatches = Config::kSubtileN / kPatchN;
  using Shared = SharedResults<Program, Config>;
  using Columns = ColumnValues<Program, Quad, kPatches>;
  using Folds = ColumnFolds<Program, kPatches>;

  Program program;
  Position at;
  int team, thread;  // thread: of the Config::kThreads of the team
  Shared* shared;    // the team's own; that of the other team lies beside it
  Folds folds;
  // What was asked for: of this column of subtiles and the next; of each row until its turn comes.
  static constexpr int kColumns = Config::kRowByRow ? 1 : 2;
  Columns columns[kColumns];
  Ahead<Program> ahead[Config::kSubtilesM][kPatches][kRowsHere];

  CODA_DEVICE Worker(const Program& p, const Position& where, int team_, int thread_, Shared* s)
      : program(p), at(where), team(team_), thread(thread_), shared(s) {}

  struct Rows {
    static constexpr int kSlots = Config::kSubtilesM * kRowsHere;
    static CODA_DEVICE int row(const Position& at, int slot) {
      return at.row + slot / kRowsHere * Config::kSubtileM + slot % kRowsHere * 8;
    }
  };
  CODA_DEVICE Lifecycle<Quad, Rows> lifecycle() const { return {at}; }

  CODA_DEVICE void begin_tile() {
    for_each_port(program, [&](const auto& port) { lifecycle().begin_tile(port); });
  }
  CODA_DEVICE void load_columns(int sub_n) {
    for_each_numbered_port(program, [&](const auto& port, auto number) {
      lifecycle().template load_columns<kPatches>(port, at.col + sub_n * Config::kSubtileN,
                                                  columns[sub_n % kColumns].words[number]);
    });
  }
  /// Calls f(tile, program) for one row of a patch.
  template <class F>
  CODA_DEVICE void on_row(int sub_m, int sub_n, int patch, int r, float* head_values, const Ahead<Program>* words,
                          const LoadedRow* c, std::uint32_t* d, const F& f) {
    const int row = at.row + sub_m * Config::kSubtileM + 8 * r;
    const int col = at.col + sub_n * Config::kSubtileN + patch * kPatchN;
    HeadRow heads;
    if constexpr (Shared::kFirstPass) {
      heads = {shared->heads[row_of_tile() + (row - at.row)], head_values, Shared::kHeads, 0};
    }
    const Sm90Tile<Program, Quad, kPatches, Absent, Carries> tile(program, at, columns[sub_n % kColumns], folds, heads,
                                                                  words, patch, sub_m * kRowsHere + r, row, col, c, d);
    f(tile, static_cast<const Program&>(program));
  }

  /// Asks for what the program will load of one row of a patch.
  CODA_DEVICE void fetch(int sub_m, int sub_n, int patch, int r) {
    on_row(sub_m, sub_n, patch, r, nullptr, nullptr, nullptr, nullptr, [&](const auto& tile, const Program& p) {
      for_each_numbered_port(
          p, [&](const auto& port, auto number) { tile.fetch_port(port, ahead[sub_m][patch][r].words[number]); });
    });
  }
  /// The same of all rows of a column of subtiles.
  CODA_DEVICE void fetch(int sub_n) {
    CODA_UNROLL for (int sub_m = 0; sub_m < Config::kSubtilesM; ++sub_m) {
      CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
        CODA_UNROLL for (int r = 0; r < kRowsHere; ++r) fetch(sub_m, sub_n, patch, r);
      }
    }
  }

  // ---- folds along m: over a thread's rows as they come, then over its warp's, then over the tile's warps

  CODA_DEVICE void begin_folds() {
    for_each_fold(program, [&]<class Op>(const ReduceM<Op>&, auto number) {
      CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
        CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) {
          folds.v[number][patch][i] = Op::template neutral<float>;
        }
      }
    });
  }
  CODA_DEVICE void end_folds(int sub_n) {
    const int lane = thread % 32, row = unit() * Config::kWarps + thread / 32;
    for_each_fold(program, [&]<class Op>(const ReduceM<Op>&, auto number) {
      CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
        // Three halvings: of two lanes whose rows differ in one bit each takes one half of the columns.
        float v[Accumulator::count];
        CODA_UNROLL for (int i = 0; i < Accumulator::count; ++i) v[i] = folds.v[number][patch][i];
        CODA_UNROLL for (int half = 4; half > 0; half /= 2) {
          const bool upper = lane & 4 * half;
          CODA_UNROLL for (int i = 0; i < half; ++i) {
            const float mine = upper ? v[i + half] : v[i], theirs = upper ? v[i] : v[i + half];
            v[i] = Op::fold(mine, __shfl_xor_sync(0xffffffffu, theirs, 4 * half));
          }
        }
        const int value = lane / 4, column = value / 2 * 8 + 2 * (lane % 4) + value % 2;
        shared->columns[number][row][sub_n * Config::kSubtileN + patch * kPatchN + column] = v[0];
      }
    });
  }
  /// Behind the tile's last unit or, if each team has one of its units, behind that: then the second team adds up what
  /// both have, each in memory of its own.
  CODA_DEVICE void write_folds(bool shared_tile) {
    if constexpr (kRowFolds<Program> > 0) {
      static_assert(Config::kM == kTileM, "coda: a program that folds along m has tiles of one block of rows");
      Shared* first = shared;  // who has the rows of the first unit
      if (shared_tile) {
        if (unit() == 0) return shared->folded.arrive();
        first += 1 - 2 * team;
        first->folded.wait(0);
      }
      synchronize();
      for (int column = thread; column < Config::kN; column += Config::kThreads) {
        for_each_fold(program, [&]<class Op>(const ReduceM<Op>& port, auto number) {
          float sum = first->columns[number][0][column];
          CODA_UNROLL for (int row = 1; row < Shared::kRows; ++row) {
            const Shared* from = row < Config::kWarps ? first : shared;
            sum = Op::fold(sum, from->columns[number][row][column]);
          }
          // A cluster may have a tile that lies outside of the matrix as a whole.
          const int block = at.warp_row / static_cast<int>(kTileM);
          const bool inside = block * static_cast<int>(kTileM) < at.rows && at.col + column < at.cols;
          if (port.data && inside) port.data[block * port.pitch + at.col + column] = sum;
        });
      }
      synchronize();  // the next tile's values come into the same memory
    }
  }

  // ---- the first pass, over the whole accumulator: what a quad's lanes have of each head's columns

  template <class Accumulators>
  CODA_DEVICE void first_pass(const Accumulators& acc, int head_dim) {
    float sums[Rows::kSlots][kHeadSlots] = {};
    CODA_UNROLL for (int sub_n = 0; sub_n < Config::kN / Config::kSubtileN; ++sub_n) {
      load_columns(sub_n);
      CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
        CODA_UNROLL for (int slot = 0; slot < Rows::kSlots; ++slot) {
          const int sub_m = slot / kRowsHere, r = slot % kRowsHere;
          Accumulator f;
          take_row([&](int i) { return acc(sub_m, i); }, (sub_n * kPatches + patch) * kRowsHere * f.count, r, f.v);
          on_row(sub_m, sub_n, patch, r, sums[slot], nullptr, nullptr, nullptr,
                 [&](const auto& tile, const Program& p) { p.first(tile, f); });
        }
        const int end = sub_n * Config::kSubtileN + (patch + 1) * kPatchN;
        if ((end & (head_dim - 1)) == 0) {  // heads divide 128 columns: a power of two
          int head = 0;
          CODA_UNROLL for (int h = 1; h < Shared::kHeads; ++h) head += end > h * head_dim;
          write_heads(sums, head, 1.f / static_cast<float>(head_dim));
        }
      }
    }
    __syncwarp();  // a quad reads what its lane 0 wrote
  }

 private:
  CODA_DEVICE int row_of_tile() const { return static_cast<unsigned>(at.row) % Config::kM; }
  CODA_DEVICE void write_heads(float (&sums)[Rows::kSlots][kHeadSlots], int head, float share) {
    const auto each = [&](const auto& f) {
      CODA_UNROLL for (int slot = 0; slot < Rows::kSlots; ++slot) {
        CODA_UNROLL for (int h = 0; h < kHeadSlots; ++h) f(slot, h, sums[slot][h]);
      }
    };
    CODA_UNROLL for (int bit = 1; bit < Quad::kLanes; bit *= 2) {
      each([&](int, int, float& sum) { sum += __shfl_xor_sync(0xffffffffu, sum, bit); });
    }
    each([&](int slot, int h, float& sum) {
      const int row = row_of_tile() + (Rows::row(at, slot) - at.row);
      if (at.lane == 0) shared->heads[row][h * Shared::kHeads + head] = sum * share;
      sum = 0;
    });
  }
  CODA_DEVICE int unit() const {
    return Config::kUnits == 1 ? 0 : at.warp_row / (Config::kM / Config::kUnits) % Config::kUnits;
  }
  CODA_DEVICE void synchronize() const { synchronize_team(team, Config::kThreads); }
};

}  // namespace coda::sm90
