// A program on the accumulators of one tile: its warps work side by side and never wait for each other. What it loads
// (here C) arrives and one of its outputs (here D) leaves through the bulk copy engine, in subtiles of shared memory of
// which each warp has a slab of 16 rows.
#pragma once

#include <cuda.h>

#include <algorithm>
#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm90.hpp>
#include <cute/arch/copy_sm90_tma.hpp>
#include <utility>

#include "coda/backend/sm90/barrier.cuh"
#include "coda/backend/sm90/worker.cuh"

namespace coda::sm90 {

/// A warp's rows of a subtile in shared memory, as the copy engine swizzles them: rows of 64 or 128 bytes, whose
/// 16-byte chunks change places from row to row so that neither a row nor a column of chunks meets the same banks
/// twice.
template <int Bytes, int Columns>
struct Slab {
  static constexpr int kRows = 16, kRowBytes = Bytes * Columns, kBytes = kRows * kRowBytes, kAlignment = 8 * kRowBytes;
  static_assert((Bytes == 2 || Bytes == 4) && (kRowBytes == 64 || kRowBytes == 128));
  /// Words of a thread's row of a patch.
  static constexpr int kWords = Accumulator::count * Bytes / 4;

  static CODA_DEVICE int chunk(int row, int number) {
    constexpr int kChunks = kRowBytes / 16;
    return row * kRowBytes + ((number ^ (kRowBytes == 128 ? row : row / 2)) % kChunks) * 16;
  }
  /// Words of 16 bits go through ldmatrix and stmatrix, whose 8x8 matrices are laid out as wgmma's accumulators.
  static CODA_DEVICE int matrix(int patch, int r, int lane) { return chunk(8 * r + lane % 8, 4 * patch + lane / 8); }
  static CODA_DEVICE int pair(int patch, int r, int lane, int j) {
    return chunk(8 * r + lane / 4, 8 * patch + 2 * j + lane % 4 / 2) + lane % 2 * 8;
  }

  static CODA_DEVICE void load(const char* slab, int patch, int r, int lane, std::uint32_t (&w)[kWords]) {
    if constexpr (Bytes == 2) {
      const auto& from = *reinterpret_cast<const cute::uint128_t*>(slab + matrix(patch, r, lane));
      cute::SM75_U32x4_LDSM_N::copy(from, w[0], w[1], w[2], w[3]);
    } else {
      CODA_UNROLL for (int j = 0; j < 4; ++j) {
        const auto x = *reinterpret_cast<const uint2*>(slab + pair(patch, r, lane, j));
        w[2 * j] = x.x, w[2 * j + 1] = x.y;
      }
    }
  }
  static CODA_DEVICE void store(char* slab, int patch, int r, int lane, const std::uint32_t (&w)[kWords]) {
    if constexpr (Bytes == 2) {
      auto& to = *reinterpret_cast<cute::uint128_t*>(slab + matrix(patch, r, lane));
      cute::SM90_U32x4_STSM_N::copy(w[0], w[1], w[2], w[3], to);
    } else {
      CODA_UNROLL for (int j = 0; j < 4; ++j) {
        *reinterpret_cast<uint2*>(slab + pair(patch, r, lane, j)) = make_uint2(w[2 * j], w[2 * j + 1]);
      }
    }
  }
};

/// `Absent`: ports that no call of this kernel has.
template <class Program, PortMask Absent, class Config>
class Epilogue {
 public:
  static constexpr CarriedLoads kC = kCarriedLoads<Program, Absent>;
  static constexpr Carried kD = kCarriedStore<Program>;
  static_assert(kD.port >= 0,
                "coda: a fused kernel needs one TileStore as wide as the accumulator, or twice as wide and of 16-bit "
                "elements: add one, which calls may leave absent, or specialise coda::sm90::kFused<program> as false");
  static constexpr int kLoads = kC.count;
  template <int Number>
  using SlabC = Slab<kC.port[Number].bytes(), Config::kSubtileN>;
  using SlabD = Slab<kD.bytes(), Config::kSubtileN>;
  /// D takes the place of the first load where both are as large.
  static constexpr bool kInPlace = kLoads > 0 && kC.port[0].bytes() == kD.bytes();

  static constexpr int kTeamsAtOnce = Config::kTeamsAtOnce;
  static constexpr int kUnits = Config::kUnits, kSubtilesM = Config::kSubtilesM;
  static constexpr int kGroups = Config::kGroups, kThreads = Config::kThreads;  // of a team
  static constexpr int kSubtilesN = Config::kN / Config::kSubtileN;
  static constexpr int kUnitSubtiles = kSubtilesM * kSubtilesN, kSubtiles = kUnits * kUnitSubtiles;
  static constexpr int kStagesC = Config::kStagesC, kStagesD = Config::kStagesD;
  static_assert(kStagesC > 1 && kUnitSubtiles % kStagesC == 0 && kUnitSubtiles % kStagesD == 0,
                "coda: a unit is whole turns of the stages");
  /// Subtiles of C for which there is no stage. Those of a thread block's last tile come to where operands were:
  /// nothing hides its epilogue, and no further operands need their memory.
  static constexpr int kLate = kLoads > 0 ? kSubtiles - kStagesC : 0;

  struct Params {
    Program program;
    CUtensorMap c[kLoads > 0 ? kLoads : 1], d;    // of boxes of a subtile, and of a slab
    bool loads[kLoads > 0 ? kLoads : 1], stores;  // whether this call has them
    int rows, cols;
  };
  /// f.operator()<number>() for each carried load.
  template <class F>
  static CODA_FN constexpr void each_load(const F& f) {
    [&]<int... Number>(std::integer_sequence<int, Number...>) {
      (f.template operator()<Number>(), ...);
    }(std::make_integer_sequence<int, kLoads>());
  }

 private:
  struct Nothing {};
  /// Bytes of the loads before this one, of one warp.
  static constexpr int place(int number) {
    int bytes = 0;
    for (int i = 0; i < number; ++i) bytes += Config::kSubtileN * Slab<2, 32>::kRows * kC.port[i].bytes();
    return bytes;
  }
  static constexpr int kSubtileBytes = Config::kWarps * place(kLoads);
  struct Arrivals {
    alignas(1024) char slabs[kStagesC][kSubtileBytes];
  };
  /// Two tiles have barriers of their own for what is full: a team that waits two turns ahead would be let through.
  struct Signals {
    Barrier full[Config::kTeams][kStagesC], late[kLate > 0 ? kLate : 1];
    Barrier empty[kStagesC];
    int late_slabs[kLate > 0 ? kLate : 1];  // bytes behind the first stage: an address would lose what memory it is of
  };
  struct Departures {
    alignas(SlabD::kAlignment) char slab[Config::kTeams][Config::kWarps][kStagesD][SlabD::kBytes];
  };

 public:
  /// What is aligned comes first: a kilobyte that is lost here can cost a stage of operands.
  struct Shared {
    std::conditional_t<(kLoads > 0), Arrivals, Nothing> c;
    std::conditional_t<kInPlace, Nothing, Departures> d;
    std::conditional_t<(kLoads > 0), Signals, Nothing> signals;
    SharedResults<Program, Config> results[Config::kTeams];
  };

  /// By one thread, before the others use what is shared.
  static CODA_DEVICE void prepare(const Params& params, Shared& shared) {
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&params.d));
    if constexpr (kLoads > 0) {
      for (const CUtensorMap& c : params.c) {
        cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&c));
      }
      for (int stage = 0; stage < kStagesC; ++stage) {
        for (auto& full : shared.signals.full) full[stage].init(1);
        shared.signals.empty[stage].init(Config::kWarps);
      }
      for (auto& late : shared.signals.late) late.init(1);
    }
    for (auto& results : shared.results) results.folded.init(Config::kThreads);
  }

  /// Memory of a stage of operands, which lies in two places.
  struct Room {
    static constexpr int kBytes = Config::kM * Config::kK * 2;
    char *a, *b;

    CODA_DEVICE char* at(int at) const { return at < kBytes ? a + at : b + (at - kBytes); }
  };
  static constexpr int kOfRoom = kLate > 0 ? 2 * Room::kBytes / std::max(kSubtileBytes, 1) : 1;  // late subtiles
  static constexpr int kRooms = (kLate + kOfRoom - 1) / kOfRoom;
  static_assert(kLate == 0 || (Config::kM == Config::kN && kOfRoom / 2 * kSubtileBytes == Room::kBytes));

  /// One warp, ahead of the tile's epilogue: has the loads brought for the block's i-th tile, tile (m, n) of the
  /// matrix; those of its last but for the late ones.
  static CODA_DEVICE void load(const Params& params, Shared& shared, int i, bool last, int m, int n, int lane) {
    if constexpr (kLoads > 0) {
      prefetch(params, m * Config::kM, n * Config::kN, lane);
      if (lane != 0) return;
      for (int s = 0; s < (last ? kStagesC : kSubtiles); ++s) {
        const int stage = s % kStagesC;
        shared.signals.empty[stage].wait(phase(i, s) ^ 1);
        load_subtile(params, shared.signals.full[i % Config::kTeams][stage], shared.c.slabs[stage], m, n, s);
      }
    }
  }
  /// One thread: those late ones of the block's last tile that have their place in the `room_number`-th room.
  static CODA_DEVICE void load_late(const Params& params, Shared& shared, const Room& room, int room_number, int m,
                                    int n) {
    for (int i = 0; i < kOfRoom; ++i) {
      const int number = room_number * kOfRoom + i;
      if (number == kLate) break;
      char* to = room.at(i * kSubtileBytes);
      shared.signals.late_slabs[number] = static_cast<int>(to - shared.c.slabs[0]);  // for those that wait for it
      load_subtile(params, shared.signals.late[number], to, m, n, kStagesC + number);
    }
  }

  /// A thread of a team, ahead of its work on a unit of tile (m, n), and best ahead of the product, which hides the
  /// time that memory takes: asks for what depends on its rows alone, and on its first columns. `thread` counts inside
  /// the team.
  using Work = Worker<Program, Absent, Config, true>;
  static CODA_DEVICE Work begin(const Params& params, Shared& shared, int m, int n, int unit, int team, int thread) {
    Work worker(params.program, position(params, m, n, unit, thread), team, thread, &shared.results[team]);
    worker.begin_tile();
    worker.load_columns(0);
    worker.fetch(0);
    return worker;
  }

  /// A team: the program on the accumulators of a unit of the block's i-th tile. Unsigned, so that its half takes one
  /// instruction.
  template <class Accumulators>
  static CODA_DEVICE void run(const Params& params, Shared& shared, unsigned i, bool last, int unit, Work& worker,
                              const Accumulators& acc) {
    const Position& at = worker.at;
    const int team = worker.team, thread = worker.thread;
    const auto value = [&](int sub_m, int number) { return acc(number + sub_m * (Config::kN / 2)); };
    if constexpr (kHasHeadMeans<Program>) {
      Worker<Program, Absent, Config, false> first(worker.program, at, team, thread, worker.shared);
      first.first_pass(value, head_dim_of(params.program));
    }
    const auto lifecycle = worker.lifecycle();
    const int warp = at.warp_row % Config::kSubtileM / SlabD::kRows, lane = thread % 32;

    CODA_UNROLL for (int s = 0; s < kUnitSubtiles; ++s) {
      const int sub_n = s / kSubtilesM, sub_m = s % kSubtilesM, of_tile = unit * kUnitSubtiles + s;
      const bool begins_block = sub_m == 0 && sub_n % Config::kBlockSubtiles == 0;
      if (sub_m == 0) worker.begin_folds();
      if (begins_block) for_each_port(worker.program, [&](const auto& port) { lifecycle.begin_block(port); });

      // Vectors along n: a subtile's work ahead of their use, where there are registers for two columns of them.
      const bool ends_column = sub_m == kSubtilesM - 1, asks = ends_column && sub_n + 1 < kSubtilesN;
      if (asks && !Config::kRowByRow) worker.load_columns(sub_n + 1);

      [[maybe_unused]] char* c = nullptr;  // the subtile
      if constexpr (kLoads > 0) {
        if (last && of_tile >= kStagesC) {
          shared.signals.late[of_tile - kStagesC].wait(0);
          c = shared.c.slabs[0] + shared.signals.late_slabs[of_tile - kStagesC];
        } else {
          shared.signals.full[i % Config::kTeams][s % kStagesC].wait(phase(i / Config::kTeams, of_tile));
          c = shared.c.slabs[s % kStagesC];
        }
      }
      char* d = nullptr;
      if constexpr (kInPlace) {
        d = slab_of<0>(c, warp);
      } else {
        d = shared.d.slab[team][warp][s % kStagesD];
        if (lane == 0) cute::tma_store_wait<kStagesD - 1>();
        __syncwarp();
      }
      CODA_UNROLL for (int patch = 0; patch < kPatches; ++patch) {
        LoadedRow loaded[kRowsHere][kLoads > 0 ? kLoads : 1];
        const auto load = [&](int r) {
          each_load([&]<int Number>() {
            std::uint32_t words[SlabC<Number>::kWords];
            SlabC<Number>::load(slab_of<Number>(c, warp), patch, r, lane, words);
            CODA_UNROLL for (int w = 0; w < SlabC<Number>::kWords; ++w) loaded[r][Number][w] = words[w];
          });
          if constexpr (kInPlace) __syncwarp();  // a lane's words are another's to overwrite
        };
        if constexpr (!Config::kRowByRow) {
          CODA_UNROLL for (int r = 0; r < kRowsHere; ++r) load(r);
        }
        CODA_UNROLL for (int r = 0; r < kRowsHere; ++r) {
          if constexpr (Config::kRowByRow) load(r);
          // The same row of the next column: memory answers while the rows between are worked on.
          const Ahead<Program> now = worker.ahead[sub_m][patch][r];
          if (!Config::kRowByRow && sub_n + 1 < kSubtilesN) worker.fetch(sub_m, sub_n + 1, patch, r);
          Accumulator f;
          take_row([&](int at) { return value(sub_m, at); },
                   (sub_n * kPatches + patch) * kRowsHere * Accumulator::count, r, f.v);
          std::uint32_t stored[SlabD::kWords] = {};
          // All rows of the warp at once: the program exchanges values between lanes.
          const bool any_inside = !Config::kRowByRow || at.warp_row + sub_m * Config::kSubtileM + 8 * r < at.rows;
          if (any_inside) {
            worker.on_row(sub_m, sub_n, patch, r, nullptr, &now, loaded[r], stored,
                          [&](const auto& tile, const Program& program) { program(tile, f); });
          }
          SlabD::store(d, patch, r, lane, stored);
        }
      }
      if constexpr (kLoads > 0 && !kInPlace) {
        if (!last) release(shared, s % kStagesC, lane);
      }
      const int row = at.warp_row + sub_m * Config::kSubtileM, col = at.col + sub_n * Config::kSubtileN;
      publish_to_copy_engine();
      __syncwarp();
      if (lane == 0) {
        if (params.stores && row < at.rows && col < at.cols) cute::SM90_TMA_STORE_2D::copy(&params.d, d, col, row);
        cute::tma_store_arrive();
        if constexpr (kInPlace) {
          if (of_tile > 0 && !last) {  // the store before this one has left its slab
            cute::tma_store_wait<1>();
            shared.signals.empty[(s + kStagesC - 1) % kStagesC].arrive();
          }
        }
      }
      if (!ends_column) continue;
      if (asks && Config::kRowByRow) worker.fetch(sub_n + 1), worker.load_columns(sub_n + 1);
      worker.end_folds(sub_n);
      const int block = at.tile_n + sub_n / Config::kBlockSubtiles;
      if (sub_n % Config::kBlockSubtiles == Config::kBlockSubtiles - 1 && block * static_cast<int>(kTileN) < at.cols) {
        for_each_port(worker.program, [&](const auto& port) { lifecycle.end_block(port, block); });
      }
    }
    const bool shared_tile = kUnits > 1 && last;
    if (!shared_tile && unit < kUnits - 1) return;
    if constexpr (kInPlace) {
      if (lane == 0 && !last) {
        cute::tma_store_wait<0>();
        shared.signals.empty[(kSubtiles - 1) % kStagesC].arrive();
      }
    }
    worker.write_folds(shared_tile);
  }
  /// A thread block's shared memory must outlive the stores from it.
  static CODA_DEVICE void finish() { cute::tma_store_wait<0>(); }

 private:
  static constexpr int kPatches = Config::kSubtileN / kPatchN;

  template <int Number>
  static CODA_DEVICE char* slab_of(char* subtile, int warp) {
    return subtile + Config::kWarps * place(Number) + warp * SlabC<Number>::kBytes;
  }
  /// Subtile s of tile (m, n), to where `full` tells that it is there.
  static CODA_DEVICE void load_subtile(const Params& params, Barrier& full, char* to, int m, int n, int s) {
    full.arrive_and_expect(kSubtileBytes);
    const int sub_n = s % kUnitSubtiles / kSubtilesM, sub_m = s / kUnitSubtiles * kSubtilesM + s % kSubtilesM;
    const int col = n * Config::kN + sub_n * Config::kSubtileN, row = m * Config::kM + sub_m * Config::kSubtileM;
    each_load([&]<int Number>() {
      // What a call does not have is 0, as everything is outside of a matrix.
      constexpr int kOutside = 1 << 30;
      cute::SM90_TMA_LOAD_2D::copy(&params.c[Number], full.state(),
                                   static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL),
                                   slab_of<Number>(to, 0), params.loads[Number] ? col : kOutside, row);
    });
  }
  /// Of the barriers of subtile s of a tile, which is the i-th of the block or of the team, whose barrier it is.
  static CODA_DEVICE std::uint32_t phase(int i, int s) {
    return static_cast<std::uint32_t>(i * (kSubtiles / kStagesC) + s / kStagesC) & 1;
  }
  static CODA_DEVICE void release(Shared& shared, int stage, int lane) {
    publish_to_copy_engine();
    __syncwarp();
    if (lane == 0) shared.signals.empty[stage].arrive();
  }
  static CODA_DEVICE Position position(const Params& params, int m, int n, int unit, int thread) {
    Position at;
    // Taken from one lane, so that the compiler knows it to be the same in all.
    at.warp_row = m * Config::kM + unit * kSubtilesM * Config::kSubtileM +
                  __shfl_sync(0xffffffffu, thread / 32, 0) * SlabD::kRows;
    at.row = at.warp_row + thread % 32 / 4;
    at.col = n * Config::kN;
    at.rows = params.rows;
    at.cols = params.cols;
    at.lane = thread % 4;
    at.tile_n = n * (Config::kN / static_cast<int>(kTileN));
    if (const int head_dim = head_dim_of(params.program); head_dim > 0) at.head_column = at.col % head_dim;
    return at;
  }

  // ---- asks the L2 cache for what the threads will load themselves, so that they do not wait for memory

  static CODA_DEVICE void prefetch(const Params& params, int row, int col, int lane) {
    for_each_numbered_port(params.program, [&]<class Port>(const Port& port, auto number) {
      if constexpr (kMatrixPort<Port>.load && !is_in(Absent, number) && kC.number_of(number) < 0) {
        if (port.data) prefetch(port, row, params.rows, col, params.cols, lane);
      }
    });
  }
  template <class T, Width W>
  static CODA_DEVICE void prefetch(const TileLoad<T, W>& port, int row, int rows, int col, int cols, int lane) {
    constexpr int kLine = 128 / static_cast<int>(sizeof(T)), kLines = scaled<W>(Config::kN) / kLine;
    constexpr int kRowsAtOnce = 32 / kLines;
    const int column = scaled<W>(col) + lane % kLines * kLine;
    if (column >= scaled<W>(cols)) return;
    int left = rows - row - lane / kLines;  // rows below this lane's, with it
    const T* at = port.data + (row + lane / kLines) * port.pitch + column;
#pragma unroll 1
    for (int i = 0; i < Config::kM; i += kRowsAtOnce) {
      if (left > i) asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
      at += kRowsAtOnce * port.pitch;
    }
  }
};

}  // namespace coda::sm90
