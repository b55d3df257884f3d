// Where the values that a thread owns lie in a patch of the tile, and how they travel between registers and memory.
//
// A patch is 32 columns of 64 or 128 rows. As wgmma leaves them, a thread owns 16 values of it: of its warp's 16 rows
// the rows lane/4 + 8 r, r < 2, and of these the columns 8 j + 2 (lane % 4) + c, j < 4, c < 2; value[c + 2 r + 4 j].
// The four lanes of a quad share their rows:
//
//   column             0    1 |  2    3 |  4    5 |  6    7 |  8    9 | ...
//   lane of the quad        0 |       1 |       2 |       3 |       0 | ...
//
// A program runs on one row at a time (value[c + 2 j]): pairs of columns lie in one thread, a value of the row is one
// register, and half as many values are live as if both rows were worked on together.
#pragma once

#include "coda/epilogue/tile.h"

namespace coda::sm90 {

#define CODA_DEVICE __device__ __forceinline__

inline constexpr int kPatchN = 32;
inline constexpr int kGroups = 4;    // j: groups of 8 columns in a patch
inline constexpr int kRowsHere = 2;  // r: rows of a patch that a thread owns
using Accumulator = Fragment<float, 2 * kGroups>;

/// Columns of a matrix of width W per column of the accumulator, as scaled<W>(2 columns).
template <Width W, class Int>
CODA_FN constexpr Int scaled(Int columns) {
  return columns * static_cast<int>(W) / static_cast<int>(Width::Same);
}

/// A thread's values of a fragment of width W: a chunk of adjacent columns in each group.
template <Width W>
inline constexpr int kChunk = scaled<W>(2);
/// Column of a value, counted from the patch's first, for quad lane 0; lane q is kChunk * q further.
template <Width W>
CODA_FN constexpr int column_of(int value) {
  return value / kChunk<W> * scaled<W>(8) + value % kChunk<W>;
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
template <class T, int Count>
inline constexpr int kWords = Count * static_cast<int>(sizeof(T)) / 4;
template <class T, int Count>
CODA_DEVICE void to_words(const float* x, std::uint32_t (&w)[kWords<T, Count>]) {
  CODA_UNROLL for (int i = 0; i < kWords<T, Count>; ++i) {
    if constexpr (sizeof(T) == 4) {
      w[i] = __float_as_uint(x[i]);
    } else {
      w[i] = pack(T(), x[2 * i], x[2 * i + 1]);
    }
  }
}
template <class T, int Count>
CODA_DEVICE void from_words(const std::uint32_t (&w)[kWords<T, Count>], float* x) {
  CODA_UNROLL for (int i = 0; i < Count; ++i) {
    if constexpr (sizeof(T) == 4) {
      x[i] = __uint_as_float(w[i]);
    } else {
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
/// `w` keeps its values where it is outside.
CODA_DEVICE void load_words(const void* p, std::uint32_t (&w)[1], bool inside) {
  asm volatile(CODA_IF "2, 0;\n@p ld.global.b32 %0, [%1];\n}" : "+r"(w[0]) : "l"(p), "r"(int(inside)) : "memory");
}
CODA_DEVICE void load_words(const void* p, std::uint32_t (&w)[2], bool inside) {
  asm volatile(CODA_IF "3, 0;\n@p ld.global.v2.b32 {%0, %1}, [%2];\n}"
               : "+r"(w[0]), "+r"(w[1])
               : "l"(p), "r"(int(inside))
               : "memory");
}
CODA_DEVICE void load_words(const void* p, std::uint32_t (&w)[4], bool inside) {
  asm volatile(CODA_IF "5, 0;\n@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
               : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])
               : "l"(p), "r"(int(inside))
               : "memory");
}
/// The same of memory that nothing writes while the kernel runs: not volatile, so that a value which two rows ask for
/// is read once.
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

// The four lanes of a quad together move whole sectors of 32 bytes. Chunks of 8 and 16 bytes do that as they are. Of
// 4-byte chunks a lane trades two with its neighbour and moves two runs of two. Of 2-byte chunks a lane gathers four
// into one run; those are exchanged as floats.
template <class T, Width W>
inline constexpr int kChunkBytes = kChunk<W> * static_cast<int>(sizeof(T));
/// Bytes of one access: what the rows of a port's matrix are aligned to.
template <class T, Width W>
inline constexpr int kRunBytes = kChunkBytes<T, W> < 8 ? 8 : kChunkBytes<T, W>;

/// A fragment to `row`, which points at the patch's first element; the first `valid` are inside the matrix. All lanes
/// of a warp call it together: those whose row is outside pass 0.
template <class T, Width W, int Count>
CODA_DEVICE void store_row(T* row, const Fragment<float, Count, W>& f, int q, int valid) {
  if constexpr (kChunkBytes<T, W> >= 8) {
    CODA_UNROLL for (int j = 0; j < kGroups; ++j) {
      std::uint32_t w[kWords<T, kChunk<W>>];
      to_words<T, kChunk<W>>(f.v + j * kChunk<W>, w);
      const int column = j * scaled<W>(8) + kChunk<W> * q;
      store_words(row + column, w, column < valid);
    }
  } else if constexpr (kChunkBytes<T, W> == 4) {
    CODA_UNROLL for (int j = 0; j < kGroups; j += 2) {
      std::uint32_t low[1], high[1];
      to_words<T, kChunk<W>>(f.v + j * kChunk<W>, low);
      to_words<T, kChunk<W>>(f.v + (j + 1) * kChunk<W>, high);
      exchange_in_quad(low[0], high[0], q, 1);
      const std::uint32_t w[2] = {low[0], high[0]};
      const int column = (j + q % 2) * scaled<W>(8) + kChunk<W> * (q - q % 2);
      store_words(row + column, w, column < valid);
    }
  } else {
    std::uint32_t v[kGroups];
    CODA_UNROLL for (int j = 0; j < kGroups; ++j) v[j] = __float_as_uint(f.v[j]);
    transpose_in_quad(v, q);
    const std::uint32_t w[2] = {pack(T(), __uint_as_float(v[0]), __uint_as_float(v[1])),
                                pack(T(), __uint_as_float(v[2]), __uint_as_float(v[3]))};
    store_words(row + kGroups * q, w, kGroups * q < valid);
  }
}

/// The inverse; what is outside of the matrix is 0.
template <class T, Width W, int Count>
CODA_DEVICE void load_row(const T* row, Fragment<float, Count, W>& f, int q, int valid) {
  if constexpr (kChunkBytes<T, W> >= 8) {
    CODA_UNROLL for (int j = 0; j < kGroups; ++j) {
      std::uint32_t w[kWords<T, kChunk<W>>] = {};
      const int column = j * scaled<W>(8) + kChunk<W> * q;
      load_words(row + column, w, column < valid);
      from_words<T, kChunk<W>>(w, f.v + j * kChunk<W>);
    }
  } else if constexpr (kChunkBytes<T, W> == 4) {
    CODA_UNROLL for (int j = 0; j < kGroups; j += 2) {
      std::uint32_t w[2] = {};
      const int column = (j + q % 2) * scaled<W>(8) + kChunk<W> * (q - q % 2);
      load_words(row + column, w, column < valid);
      exchange_in_quad(w[0], w[1], q, 1);
      const std::uint32_t low[1] = {w[0]}, high[1] = {w[1]};
      from_words<T, kChunk<W>>(low, f.v + j * kChunk<W>);
      from_words<T, kChunk<W>>(high, f.v + (j + 1) * kChunk<W>);
    }
  } else {
    std::uint32_t w[2] = {};
    load_words(row + kGroups * q, w, kGroups * q < valid);
    std::uint32_t v[kGroups];
    CODA_UNROLL for (int j = 0; j < kGroups; ++j) {
      const Pair<float> p = unpack(T(), w[j / 2]);
      v[j] = __float_as_uint(j % 2 ? p.second : p.first);
    }
    transpose_in_quad(v, q);
    CODA_UNROLL for (int j = 0; j < kGroups; ++j) f.v[j] = __uint_as_float(v[j]);
  }
}

}  // namespace coda::sm90
