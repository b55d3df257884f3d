// How an elementwise kernel keeps memory busy: a thread has what it will want of the next rows or tiles copied to its
// own places in shared memory, in the background. What is on the way costs no registers, and nobody waits for it while
// there is something to compute.
#pragma once

#include <algorithm>
#include <bit>

#include "coda/backend/sm90/tile.cuh"

namespace coda::sm90::detail {

inline constexpr int kPieceWords = 4;  // of a copy: 16 bytes

/// Pieces that a run's thread reads of a port for one row of a patch.
template <class Port>
inline constexpr int kPieces = 0;
template <class T, Width W>
inline constexpr int kPieces<TileLoad<T, W>> =
    (kRowWords<T, W, scaled<W>(Accumulator::count)> + kPieceWords - 1) / kPieceWords;
template <class T>
inline constexpr int kPieces<GatherLoad<T>> = kPieces<TileLoad<T, Width::Same>>;
template <>
inline constexpr int kPieces<RotaryTable<float>> = Accumulator::count / kPieceWords;

template <class Program>
inline constexpr int kPiecesOfProgram = [] {
  int pieces = 0;
  const Program program{};
  for_each_port(program, [&](const auto& port) { pieces += kPieces<std::remove_cvref_t<decltype(port)>>; });
  return pieces;
}();

/// The places of a port's words of one row, for Sm90Tile::fetch_port: pieces that lie kStride bytes apart, so that the
/// lanes of a warp move adjacent ones.
template <int Threads>
struct SharedWords {
  static constexpr int kStride = Threads * kPieceWords * 4;
  std::uint32_t address;

  /// Zeros where it is not `inside`, whatever `from` is then.
  template <int Words>
  CODA_DEVICE void copy(const void* from, bool inside) const {
    constexpr int kBytes = Words < kPieceWords ? Words * 4 : kPieceWords * 4;
    CODA_UNROLL for (int i = 0; i < Words * 4 / kBytes; ++i) {
      const char* piece = static_cast<const char*>(from) + i * kBytes;
      if constexpr (kBytes == 16) {  // past the L1 cache
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address + i * kStride), "l"(piece),
                     "r"(inside ? kBytes : 0)
                     : "memory");
      } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address + i * kStride), "l"(piece),
                     "n"(kBytes), "r"(inside ? kBytes : 0)
                     : "memory");
      }
    }
  }
  /// Piece i of what rows share: through the L1 cache; `otherwise` where it is not `inside`.
  CODA_DEVICE void copy_shared(int i, const void* from, bool inside,
                               const std::uint32_t (&otherwise)[kPieceWords]) const {
    const std::uint32_t to = address + i * kStride;
    if (inside) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    } else {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(otherwise[0]), "r"(otherwise[1]),
                   "r"(otherwise[2]), "r"(otherwise[3])
                   : "memory");
    }
  }
};

/// Each of `Threads` threads has a ring of kStages stages to itself, so nothing has to be synchronised; `Blocks` thread
/// blocks share a multiprocessor's memory. A stage is filled by a call of `ask` and one of `close`.
template <class Program, int Threads, int Blocks>
class Ring {
  static constexpr int kStageBytes = kPiecesOfProgram<Program> * SharedWords<Threads>::kStride;
  static constexpr int kBytesOfMultiprocessor = 200 * 1024, kMostStages = 8;

 public:
  static constexpr int kStages = static_cast<int>(std::bit_floor(
      static_cast<unsigned>(std::clamp(kBytesOfMultiprocessor / Blocks / std::max(kStageBytes, 1), 2, kMostStages))));
  static constexpr int kBytes = kStages * kStageBytes;

  CODA_DEVICE explicit Ring(const void* shared, int thread)
      : place_(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)) + thread * kPieceWords * 4) {}

  template <class Tile>
  CODA_DEVICE void ask(int step, const Program& program, const Tile& tile) const {
    each_port(program, step, [&](const auto& port, auto, std::uint32_t address) {
      tile.fetch_port(port, SharedWords<Threads>{address});
    });
  }
  /// What was asked for since the last call is a stage.
  CODA_DEVICE void close() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  /// The words of the oldest stage of kStages that are on the way.
  CODA_DEVICE void take(int step, const Program& program, Ahead<Program>& into) const {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
    each_port(program, step, [&]<class Port>(const Port&, auto number, std::uint32_t address) {
      std::uint32_t* words = into.words[number];
      CODA_UNROLL for (int i = 0; i < kPieces<Port>; ++i, words += kPieceWords) {
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address + i * SharedWords<Threads>::kStride)
                     : "memory");
      }
    });
  }

 private:
  /// f(port, its number, its first place)
  template <class F>
  CODA_DEVICE void each_port(const Program& program, int step, const F& f) const {
    std::uint32_t address = place_ + step % kStages * kStageBytes;
    for_each_numbered_port(program, [&]<class Port>(const Port& port, auto number) {
      if constexpr (kPieces<Port> > 0) f(port, number, address);
      address += kPieces<Port> * SharedWords<Threads>::kStride;
    });
  }

  std::uint32_t place_;
};

}  // namespace coda::sm90::detail
