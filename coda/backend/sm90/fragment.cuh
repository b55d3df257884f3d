// Where the values that a thread owns lie in a row of the tile, and how they travel between registers and memory.
//
// A patch is the part of a row of the tile that a few lanes share; a program runs on a thread's 8 values of one row at
// a time. Two geometries say which columns those are:
//
// Quad, as wgmma leaves an accumulator: 4 lanes share 32 columns. Of its warp's 16 rows a thread owns lane/4 and
// lane/4 + 8, and of a row the columns 8 j + 2 (lane % 4) + c, j < 4, c < 2:
//
//   column             0    1 |  2    3 |  4    5 |  6    7 |  8    9 | ...
//   lane of the quad        0 |       1 |       2 |       3 |       0 | ...
//
// Run, where values come from memory anyway: 16 lanes share 128 columns, 8 adjacent ones each.
//
// In both a pair of columns lies in one thread.
#pragma once

#include <limits>

#include "coda/epilogue/tile.h"

namespace coda::sm90 {

#define CODA_DEVICE __device__ __forceinline__

/// kGroups chunks of kColumns adjacent columns for each of kLanes lanes, kStride columns from one chunk to the next.
/// kRagged: a chunk may be inside the matrix in part, and addresses may have any alignment.
struct Quad {
  static constexpr int kGroups = 4, kColumns = 2, kStride = 8, kLanes = 4, kPatchN = 32;
  static constexpr bool kRagged = false;
};
template <bool Ragged>
struct Run {
  static constexpr int kGroups = 1, kColumns = 8, kStride = 128, kLanes = 16, kPatchN = 128;
  static constexpr bool kRagged = Ragged;
};

inline constexpr int kPatchN = Quad::kPatchN;
inline constexpr int kRowsHere = 2;  // rows of an accumulator patch that a thread owns
using Accumulator = Fragment<float, 8>;

/// Columns of a matrix of width W per column of the accumulator, as scaled<W>(2 columns).
template <Width W, class Int>
CODA_FN constexpr Int scaled(Int columns) {
  return W == Width::Half ? columns / 2 : columns * (static_cast<int>(W) / static_cast<int>(Width::Same));
}

/// Values of a fragment of width W in a chunk.
template <class G, Width W>
inline constexpr int kChunk = scaled<W>(G::kColumns);
/// Column of a value, counted from the patch's first, for lane 0; lane q is kChunk * q further.
template <class G, Width W>
CODA_FN constexpr int column_of(int value) {
  return value / kChunk<G, W> * scaled<W>(G::kStride) + value % kChunk<G, W>;
}

// ---- 16-bit pairs

template <class To, class From>
CODA_DEVICE To bits_as(const From& from) {  // std::bit_cast takes none of CUDA's 16-bit pairs
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}
CODA_DEVICE std::uint32_t pack(bf16, float low, float high) {
  return bits_as<std::uint32_t>(__floats2bfloat162_rn(low, high));
}
CODA_DEVICE std::uint32_t pack(fp16, float low, float high) {
  return bits_as<std::uint32_t>(__floats2half2_rn(low, high));
}
CODA_DEVICE Pair<float> unpack(bf16, std::uint32_t w) {
  return {__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u)};
}
CODA_DEVICE Pair<float> unpack(fp16, std::uint32_t w) {
  const float2 f = __half22float2(bits_as<__half2>(w));
  return {f.x, f.y};
}

/// `Count` elements of T, as floats, to and from words.
template <class T>
consteval void check_element() {
  static_assert(sizeof(T) <= 4, "coda: on Hopper the matrices and row vectors of a program hold bf16, fp16 or float");
}
template <class T, int Count>
inline constexpr int kWords = Count * static_cast<int>(sizeof(T)) / 4;
template <class T, int Count>
CODA_DEVICE void to_words(const float* x, std::uint32_t (&w)[kWords<T, Count>]) {
  check_element<T>();
  CODA_UNROLL for (int i = 0; i < kWords<T, Count>; ++i) {
    if constexpr (sizeof(T) == 4) {
      w[i] = __float_as_uint(x[i]);
    } else if constexpr (sizeof(T) == 2) {
      w[i] = pack(T(), x[2 * i], x[2 * i + 1]);
    }
  }
}
template <class T, int Count>
CODA_DEVICE void from_words(const std::uint32_t* w, float* x) {
  check_element<T>();
  CODA_UNROLL for (int i = 0; i < Count; ++i) {
    if constexpr (sizeof(T) == 4) {
      x[i] = __uint_as_float(w[i]);
    } else if constexpr (sizeof(T) == 2) {
      const Pair<float> p = unpack(T(), w[i / 2]);
      x[i] = i % 2 ? p.second : p.first;
    }
  }
}

// ---- memory

// Predicated instructions rather than branches: code without branches is what the compiler interleaves across rows.
// The widths of all matrices are multiples of 8 columns of the accumulator, so that an access is inside the matrix as a
// whole or not at all.

#define CODA_IF "{\n.reg .pred p;\nsetp.ne.s32 p, %"
/// Adjacent words in one access.
CODA_DEVICE void store_words(void* p, const std::uint32_t (&w)[1], bool inside) {
  asm volatile(CODA_IF "2, 0;\n@p st.global.b32 [%0], %1;\n}" ::"l"(p), "r"(w[0]), "r"(int(inside)) : "memory");
}
CODA_DEVICE void store_words(void* p, const std::uint32_t (&w)[2], bool inside) {
  asm volatile(CODA_IF "3, 0;\n@p st.global.v2.b32 [%0], {%1, %2};\n}" ::"l"(p), "r"(w[0]), "r"(w[1]), "r"(int(inside))
               : "memory");
}
CODA_DEVICE void store_words(void* p, const std::uint32_t (&w)[4], bool inside) {
  asm volatile(CODA_IF "5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}" ::"l"(p), "r"(w[0]), "r"(w[1]),
               "r"(w[2]), "r"(w[3]), "r"(int(inside))
               : "memory");
}
/// `w` keeps its values where it is outside. Past the L1 cache, where a store to the same line would have to wait for
/// the load: a gradient that is added to may be overwritten in place.
CODA_DEVICE void load_words(const void* p, std::uint32_t (&w)[1], bool inside) {
  asm volatile(CODA_IF "2, 0;\n@p ld.global.L1::no_allocate.b32 %0, [%1];\n}"
               : "+r"(w[0])
               : "l"(p), "r"(int(inside))
               : "memory");
}
CODA_DEVICE void load_words(const void* p, std::uint32_t (&w)[2], bool inside) {
  asm volatile(CODA_IF "3, 0;\n@p ld.global.L1::no_allocate.v2.b32 {%0, %1}, [%2];\n}"
               : "+r"(w[0]), "+r"(w[1])
               : "l"(p), "r"(int(inside))
               : "memory");
}
CODA_DEVICE void load_words(const void* p, std::uint32_t (&w)[4], bool inside) {
  asm volatile(CODA_IF "5, 0;\n@p ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])
               : "l"(p), "r"(int(inside))
               : "memory");
}
/// The same of memory that nothing writes while the kernel runs: not volatile, so that a value which two rows ask for
/// is read once, and free to go ahead of stores, which is 1 % of a product with rotary angles. It must not go ahead of
/// wait_for_turn: scripts/check_waits.py looks.
CODA_DEVICE void load_constant_words(const void* p, std::uint32_t (&w)[1], bool inside) {
  asm(CODA_IF "2, 0;\n@p ld.global.nc.b32 %0, [%1];\n}" : "+r"(w[0]) : "l"(p), "r"(int(inside)));
}
CODA_DEVICE void load_constant_words(const void* p, std::uint32_t (&w)[2], bool inside) {
  asm(CODA_IF "3, 0;\n@p ld.global.nc.v2.b32 {%0, %1}, [%2];\n}" : "+r"(w[0]), "+r"(w[1]) : "l"(p), "r"(int(inside)));
}
CODA_DEVICE void load_constant_words(const void* p, std::uint32_t (&w)[4], bool inside) {
  asm(CODA_IF "5, 0;\n@p ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])
      : "l"(p), "r"(int(inside)));
}
#undef CODA_IF

/// Trades `low` of the lanes whose number has the bit for `high` of those without it.
CODA_DEVICE void exchange_in_quad(std::uint32_t& low, std::uint32_t& high, int q, int bit) {
  const bool upper = q & bit;
  const std::uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? low : high, bit);
  low = upper ? got : low;
  high = upper ? high : got;
}
/// Lane q of a quad holds v[j] = m[j][q] of a 4x4 matrix of words before, m[q][j] after. Its own inverse.
CODA_DEVICE void transpose_in_quad(std::uint32_t (&v)[4], int q) {
  exchange_in_quad(v[0], v[1], q, 1), exchange_in_quad(v[2], v[3], q, 1);
  exchange_in_quad(v[0], v[2], q, 2), exchange_in_quad(v[1], v[3], q, 2);
}

/// The same of 16-bit values, two to a word: lane q holds m[j][q] in half j % 2 of w[j / 2] before, m[q][j] after.
CODA_DEVICE void transpose_halves_in_quad(std::uint32_t (&w)[2], int q) {
  exchange_in_quad(w[0], w[1], q, 2);  // now rows 2 (q / 2) and the next, of lanes q % 2 and q % 2 + 2
  const bool odd = q % 2;
  const std::uint32_t got =
      __shfl_xor_sync(0xffffffffu, __byte_perm(w[0], w[1], odd ? 0x5410 : 0x7632), 1);  // the other row's
  w[0] = __byte_perm(w[0], got, odd ? 0x3254 : 0x5410);
  w[1] = __byte_perm(w[1], got, odd ? 0x3276 : 0x7610);
}

// The four lanes of a quad together move whole sectors of 32 bytes. Chunks of 8 and 16 bytes do that as they are. Of
// 4-byte chunks a lane trades two with its neighbour and moves two runs of two. Of 2-byte chunks a lane gathers four
// into one run.
template <class G, class T, Width W>
inline constexpr int kChunkBytes = kChunk<G, W> * static_cast<int>(sizeof(T));

/// The first column that lane q stores of a patch.
template <class T, Width W>
CODA_DEVICE int lane_column(int q) {
  constexpr int kN = kChunk<Quad, W>, kBytes = kChunkBytes<Quad, T, W>;
  if constexpr (kBytes >= 8) return kN * q;
  if constexpr (kBytes == 4) return (q & 1) * scaled<W>(8) + kN * (q & 2);
  return 4 * q;
}
/// A fragment to `row`, which points at that column; the first `left` elements from it on are inside the matrix, if the
/// row is. All lanes of a warp call it together.
template <class T, Width W, int Count>
CODA_DEVICE void store_row(Quad, T* row, const Fragment<float, Count, W>& f, int q, bool inside, int left) {
  constexpr int kN = kChunk<Quad, W>, kBytes = kChunkBytes<Quad, T, W>;
  if constexpr (kBytes >= 8) {
    CODA_UNROLL for (int j = 0; j < Quad::kGroups; ++j) {
      std::uint32_t w[kWords<T, kN>];
      to_words<T, kN>(f.v + j * kN, w);
      constexpr int kStride = scaled<W>(8);
      store_words(row + j * kStride, w, inside && j * kStride < left);
    }
  } else if constexpr (kBytes == 4) {
    CODA_UNROLL for (int j = 0; j < Quad::kGroups; j += 2) {
      std::uint32_t low[1], high[1];
      to_words<T, kN>(f.v + j * kN, low);
      to_words<T, kN>(f.v + (j + 1) * kN, high);
      exchange_in_quad(low[0], high[0], q, 1);
      const std::uint32_t w[2] = {low[0], high[0]};
      constexpr int kStride = scaled<W>(8);
      store_words(row + j * kStride, w, inside && j * kStride < left);
    }
  } else {
    std::uint32_t w[2] = {pack(T(), f.v[0], f.v[1]), pack(T(), f.v[2], f.v[3])};
    transpose_halves_in_quad(w, q);
    store_words(row, w, inside && 0 < left);
  }
}

/// The inverse in two steps, so that memory can answer in between: `fetch_row` asks for the words that a thread loads,
/// `unpack_row` makes the fragment of them. What is outside of the matrix is 0.
template <class T, Width W, int Count>
inline constexpr int kRowWords = Count * static_cast<int>(sizeof(T)) / 4;
template <class T, Width W, int Count>
CODA_DEVICE void fetch_row(Quad, const T* row, std::uint32_t* words, int q, int valid) {
  constexpr int kN = kChunk<Quad, W>, kBytes = kChunkBytes<Quad, T, W>;
  constexpr int kAccess = kBytes > 4 ? kBytes / 4 : 2;  // words
  CODA_UNROLL for (int i = 0; i < kRowWords<T, W, Count> / kAccess; ++i) {
    int column = i * scaled<W>(8) + kN * q;
    if constexpr (kBytes == 4) column = (2 * i + q % 2) * scaled<W>(8) + kN * (q - q % 2);
    if constexpr (kBytes == 2) column = 4 * q;
    std::uint32_t w[kAccess] = {};
    load_words(row + column, w, column < valid);
    CODA_UNROLL for (int k = 0; k < kAccess; ++k) words[i * kAccess + k] = w[k];
  }
}
template <class T, Width W, int Count>
CODA_DEVICE void unpack_row(Quad, const std::uint32_t* words, Fragment<float, Count, W>& f, int q) {
  constexpr int kN = kChunk<Quad, W>, kBytes = kChunkBytes<Quad, T, W>;
  if constexpr (kBytes >= 8) {
    from_words<T, Count>(words, f.v);
  } else if constexpr (kBytes == 4) {
    CODA_UNROLL for (int j = 0; j < Quad::kGroups; j += 2) {
      std::uint32_t low = words[j], high = words[j + 1];
      exchange_in_quad(low, high, q, 1);
      from_words<T, kN>(&low, f.v + j * kN);
      from_words<T, kN>(&high, f.v + (j + 1) * kN);
    }
  } else {
    std::uint32_t v[4];
    CODA_UNROLL for (int j = 0; j < 4; ++j) {
      const Pair<float> p = unpack(T(), words[j / 2]);
      v[j] = __float_as_uint(j % 2 ? p.second : p.first);
    }
    transpose_in_quad(v, q);
    CODA_UNROLL for (int j = 0; j < 4; ++j) f.v[j] = __uint_as_float(v[j]);
  }
}

// A run's lanes move adjacent accesses of up to 16 bytes. Ordinary loads and stores: the compiler may move them across
// what is computed, which matters more here than predication does.
template <int Words>
using AccessOf = std::conditional_t<Words % 4 == 0, uint4, std::conditional_t<Words % 2 == 0, uint2, std::uint32_t>>;

/// Where accesses are not ragged, rows of a matrix begin at most so many bytes apart.
inline constexpr std::int64_t kMostRowBytes = std::numeric_limits<int>::max();
/// What is `rows` rows behind `data`: one instruction, to which the compiler, on its own, does not find from 64-bit
/// pitches.
template <class T>
CODA_DEVICE T* rows_behind(T* data, std::int64_t pitch, int rows) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  const int row_bytes = static_cast<int>(pitch) * static_cast<int>(sizeof(T));
  std::int64_t offset;
  asm("mul.wide.s32 %0, %1, %2;" : "=l"(offset) : "r"(rows), "r"(row_bytes));
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(data) + offset);
}

/// `first`: the thread's first element. Of a row that is not ragged it has all of them, or none.
template <class T, Width W, int Count>
CODA_DEVICE void store_run(T* first, const Fragment<float, Count, W>& f, bool inside) {
  if (!inside) return;
  constexpr int kCount = kWords<T, Count>;
  using Access = AccessOf<kCount>;
  alignas(16) std::uint32_t w[kCount];
  to_words<T, Count>(f.v, w);
  CODA_UNROLL for (int i = 0; i < kCount * 4 / static_cast<int>(sizeof(Access)); ++i) {
    reinterpret_cast<Access*>(first)[i] = reinterpret_cast<const Access*>(w)[i];
  }
}
/// Words of a row on their way into registers.
struct RunWords {
  std::uint32_t* words;

  template <int Words>
  CODA_DEVICE void copy(const void* from, bool inside) const {
    using Access = AccessOf<Words>;
    constexpr int kAccesses = Words * 4 / static_cast<int>(sizeof(Access));
    CODA_UNROLL for (int i = 0; i < kAccesses; ++i) {
      Access access{};
      if (inside) access = static_cast<const Access*>(from)[i];
      __builtin_memcpy(words + i * (Words / kAccesses), &access, sizeof access);
    }
  }
  /// Four of them, from 4 i on, of what rows share; `otherwise` where it is not `inside`.
  CODA_DEVICE void copy_shared(int i, const void* from, bool inside, const std::uint32_t (&otherwise)[4]) const {
    std::uint32_t w[4] = {otherwise[0], otherwise[1], otherwise[2], otherwise[3]};
    load_constant_words(from, w, inside);
    CODA_UNROLL for (int j = 0; j < 4; ++j) words[4 * i + j] = w[j];
  }
};
template <class T, Width W, int Count>
CODA_DEVICE void store_row(Run<true>, T* row, const Fragment<float, Count, W>& f, int lane, int valid) {
  const int left = valid - Count * lane;
  CODA_UNROLL for (int i = 0; i < Count; ++i) {
    if (i < left) row[Count * lane + i] = T(f.v[i]);
  }
}
template <class T, Width W, int Count>
CODA_DEVICE void load_row(Run<true>, const T* row, Fragment<float, Count, W>& f, int lane, int valid) {
  const int left = valid - Count * lane;
  CODA_UNROLL for (int i = 0; i < Count; ++i) f.v[i] = i < left ? static_cast<float>(row[Count * lane + i]) : 0.f;
}
template <class T, Width W, int Count>
CODA_DEVICE void load_row(Quad, const T* row, Fragment<float, Count, W>& f, int lane, int valid) {
  std::uint32_t words[kRowWords<T, W, Count>];
  fetch_row<T, W, Count>(Quad(), row, words, lane, valid);
  unpack_row<T, W, Count>(Quad(), words, f, lane);
}

}  // namespace coda::sm90
