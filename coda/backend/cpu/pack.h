// Copies of a block of a matrix in the order that a product wants: contiguous, transposed, converted to float, in
// blocks.
#pragma once

#include <algorithm>

#include "coda/epilogue/simd.h"

namespace coda::cpu {

/// out[r, c] = in[r, c], out contiguous.
template <class From, class To>
void copy_rows(const From* in, std::int64_t rows, std::int64_t cols, std::int64_t pitch, To* out) {
  constexpr int kL = kLanes<float>;
  for (std::int64_t r = 0; r < rows; ++r, in += pitch, out += cols) {
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(out, in, static_cast<std::size_t>(cols) * sizeof(To));
    } else {
      std::int64_t c = 0;
      for (; c + kL <= cols; c += kL) load_as<kL>(in + c).store(out + c);
      for (; c < cols; ++c) out[c] = static_cast<float>(in[c]);
    }
  }
}

namespace detail {

// Interleaves the low (or high) half of each 16-byte lane of two vectors, as the unpack instructions do.
template <bool High, class V, int... I>
CODA_FN V unpack(V a, V b, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I), lane = 16 / (static_cast<int>(sizeof(V)) / n);
  return __builtin_shufflevector(a, b, (I / lane * lane + (High ? lane / 2 : 0) + I % lane / 2 + (I % 2) * n)...);
}

// Transposes the square blocks that `R` vectors form lane by lane: log2(R) rounds of unpacking.
template <class V, int R>
CODA_FN void transpose_lanes(V (&v)[R]) {
  constexpr auto lanes = std::make_integer_sequence<int, sizeof(V) / (16 / R)>{};
  CODA_UNROLL for (int round = 1; round < R; round *= 2) {
    V next[R];
    CODA_UNROLL for (int i = 0; i < R / 2; ++i) {
      next[2 * i] = unpack<false>(v[i], v[i + R / 2], lanes);
      next[2 * i + 1] = unpack<true>(v[i], v[i + R / 2], lanes);
    }
    CODA_UNROLL for (int i = 0; i < R; ++i) v[i] = next[i];
  }
}

/// Rows and columns of a block that is transposed in registers.
template <class T>
inline constexpr int kTurnedRows = 16 / sizeof(T);
template <class T>
inline constexpr int kTurnedColumns = kSimdBytes / sizeof(T);

template <class T>
CODA_FN void transpose_block(const T* in, std::int64_t pitch, T* out, std::int64_t out_pitch) {
  constexpr int kR = kTurnedRows<T>, kC = kTurnedColumns<T>;
  using V = lanes_t<std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>, kC>;
  V v[kR];
  CODA_UNROLL for (int i = 0; i < kR; ++i) std::memcpy(&v[i], in + i * pitch, sizeof(V));
  transpose_lanes(v);
  CODA_UNROLL for (int l = 0; l < kC / kR; ++l) {
    CODA_UNROLL for (int i = 0; i < kR; ++i) {
      std::memcpy(out + (l * kR + i) * out_pitch, reinterpret_cast<const char*>(&v[i]) + 16 * l, 16);
    }
  }
}

}  // namespace detail

/// out[c, r] = in[r, c], out contiguous: (cols, rows).
template <class T>
void transpose(const T* in, std::int64_t rows, std::int64_t cols, std::int64_t pitch, T* out) {
  constexpr int kR = detail::kTurnedRows<T>, kC = detail::kTurnedColumns<T>, kLine = 64 / sizeof(T);
  // Rows of the output that begin a multiple of 1 KiB apart meet in a few sets of the cache, and few of their lines
  // stay there until they are full: each is put together elsewhere and written once, for 4 KiB in a third of the time.
  const bool meet = rows * static_cast<std::int64_t>(sizeof(T)) % 1024 == 0;
  const int step = meet ? kLine : kR;
  alignas(64) T lines[kC][kLine];
  std::int64_t r = 0;
  for (; r + step <= rows; r += step) {
    std::int64_t c = 0;
    for (; c + kC <= cols; c += kC) {
      const T* from = in + r * pitch + c;
      if (meet) {
        for (int i = 0; i < kLine; i += kR) detail::transpose_block(from + i * pitch, pitch, lines[0] + i, kLine);
        for (int j = 0; j < kC; ++j) std::memcpy(out + (c + j) * rows + r, lines[j], sizeof lines[j]);
      } else {
        detail::transpose_block(from, pitch, out + c * rows + r, rows);
      }
    }
    for (; c < cols; ++c) {
      for (int i = 0; i < step; ++i) out[c * rows + r + i] = in[(r + i) * pitch + c];
    }
  }
  for (; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) out[c * rows + r] = in[r * pitch + c];
  }
}

/// The same with a conversion to float.
template <class From>
  requires(!std::is_same_v<From, float>)
void transpose(const From* in, std::int64_t rows, std::int64_t cols, std::int64_t pitch, float* out) {
  constexpr std::int64_t kBlock = 16;
  float block[kBlock * 256];
  for (std::int64_t r = 0; r < rows; r += kBlock) {
    for (std::int64_t c = 0; c < cols; c += 256) {
      const std::int64_t nr = std::min(kBlock, rows - r), nc = std::min<std::int64_t>(256, cols - c);
      copy_rows(in + r * pitch + c, nr, nc, pitch, block);
      for (std::int64_t j = 0; j < nc; ++j) {
        for (std::int64_t i = 0; i < nr; ++i) out[(c + j) * rows + r + i] = block[i * nc + j];
      }
    }
  }
}

/// The order in which oneDNN's kernels read a second operand: blocks of 64 columns by 64 bytes of inner steps each. A
/// block of fp32 is 16 rows of 64 columns; in one of bf16 the pairs (k, k + 1) of all columns lie side by side, as one
/// instruction takes them.
inline constexpr std::int64_t kBlockN = 64;
template <class T>
inline constexpr std::int64_t kBlockK = 64 / static_cast<std::int64_t>(sizeof(T));
/// Elements of n columns of k.
template <class T>
constexpr std::int64_t blocked_size(std::int64_t n, std::int64_t k) {
  return (n + kBlockN - 1) / kBlockN * kBlockN * ((k + kBlockK<T> - 1) / kBlockK<T> * kBlockK<T>);
}

namespace detail {

using Words = lanes_t<std::uint32_t, 16>;  // 16 floats or pairs of bf16

// Two of a's four-word lanes and two of b's: first and first + step of each.
template <int First, int Step, int... I>
CODA_FN Words pick_lanes(Words a, Words b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (16 * (I / 8) + 4 * (First + I / 4 % 2 * Step) + I % 4)...);
}

// Row j of out = word j of each of 16 rows, whole cache lines both ways.
template <class T>
void transpose_words(const T* in, std::int64_t pitch, T* out, std::int64_t out_pitch) {
  constexpr auto lanes = std::make_integer_sequence<int, 16>{};
  Words v[4][4];
  CODA_UNROLL for (int i = 0; i < 16; ++i) std::memcpy(&v[i / 4][i % 4], in + i * pitch, sizeof(Words));
  CODA_UNROLL for (auto& four : v) transpose_lanes(four);
  CODA_UNROLL for (int j = 0; j < 4; ++j) {
    const Words low_01 = pick_lanes<0, 1>(v[0][j], v[1][j], lanes), high_01 = pick_lanes<2, 1>(v[0][j], v[1][j], lanes);
    const Words low_23 = pick_lanes<0, 1>(v[2][j], v[3][j], lanes), high_23 = pick_lanes<2, 1>(v[2][j], v[3][j], lanes);
    const Words columns[] = {pick_lanes<0, 2>(low_01, low_23, lanes), pick_lanes<1, 2>(low_01, low_23, lanes),
                             pick_lanes<0, 2>(high_01, high_23, lanes), pick_lanes<1, 2>(high_01, high_23, lanes)};
    CODA_UNROLL for (int l = 0; l < 4; ++l) std::memcpy(out + (4 * l + j) * out_pitch, &columns[l], sizeof(Words));
  }
}

template <class V, int... I>
CODA_FN void zip_rows(const bf16* even, const bf16* odd, bf16* out, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  V a, b;
  std::memcpy(&a, even, sizeof a);
  std::memcpy(&b, odd, sizeof b);
  const V low = __builtin_shufflevector(a, b, (I / 2 + I % 2 * n)...);
  const V high = __builtin_shufflevector(a, b, (n / 2 + I / 2 + I % 2 * n)...);
  std::memcpy(out, &low, sizeof low);
  std::memcpy(out + n, &high, sizeof high);
}

// Where (n, k) is in its block.
template <class T>
constexpr std::int64_t in_block(std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kGroup = 4 / static_cast<std::int64_t>(sizeof(T));
  return (k / kGroup * kBlockN + n) * kGroup + k % kGroup;
}

// 16 rows of `Cols` elements as floats, side by side.
template <int Cols, class From>
void widen_rows(const From* in, std::int64_t pitch, float* out) {
  constexpr int kL = kLanes<float>;
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < Cols; c += kL) load_as<kL>(in + r * pitch + c).store(out + r * Cols + c);
  }
}

// Whole blocks whose columns are columns in memory.
template <class From>
void pack_block_kn(const From* in, std::int64_t pitch, float* out) {
  widen_rows<kBlockN>(in, pitch, out);
}
inline void pack_block_kn(const bf16* in, std::int64_t pitch, bf16* out) {
  constexpr int kL = kSimdBytes / 2;
  for (std::int64_t k = 0; k < kBlockK<bf16>; k += 2) {
    for (std::int64_t n = 0; n < kBlockN; n += kL) {
      zip_rows<lanes_t<std::uint16_t, kL>>(in + k * pitch + n, in + (k + 1) * pitch + n, out + k * kBlockN + 2 * n,
                                           std::make_integer_sequence<int, kL>{});
    }
  }
}

// Whole blocks whose columns are rows in memory: 16 of the columns.
template <class From>
void pack_columns_nk(const From* in, std::int64_t pitch, float* out) {
  if constexpr (std::is_same_v<From, float>) {
    transpose_words(in, pitch, out, kBlockN);
  } else {
    alignas(64) float block[16 * 16];
    widen_rows<16>(in, pitch, block);
    transpose_words(block, 16, out, kBlockN);
  }
}
inline void pack_columns_nk(const bf16* in, std::int64_t pitch, bf16* out) {
  transpose_words(in, pitch, out, 2 * kBlockN);
}

}  // namespace detail

/// `n` columns, each `n_stride` from the next, of `k` elements with k_stride between them; one of the strides is 1.
/// What a block holds beyond n and k is 0.
template <class From, class To>
void pack_blocks(const From* in, std::int64_t n, std::int64_t k, std::int64_t n_stride, std::int64_t k_stride,
                 To* out) {
  constexpr std::int64_t kK = kBlockK<To>;
  const std::int64_t blocks_k = (k + kK - 1) / kK, whole_n = n / kBlockN, whole_k = k / kK;
  const auto block = [&](std::int64_t i, std::int64_t j) { return out + (i * blocks_k + j) * kBlockN * kK; };
  if (k_stride == 1) {
    // Few rows at a time, all the way along k: so the processor sees what to fetch next.
    for (std::int64_t i = 0; i < whole_n * kBlockN; i += 16) {
      for (std::int64_t j = 0; j < whole_k; ++j) {
        detail::pack_columns_nk(in + i * n_stride + j * kK, n_stride,
                                block(i / kBlockN, j) + detail::in_block<To>(i % kBlockN, 0));
      }
    }
  } else {
    for (std::int64_t j = 0; j < whole_k; ++j) {
      for (std::int64_t i = 0; i < whole_n; ++i) {
        detail::pack_block_kn(in + i * kBlockN + j * kK * k_stride, k_stride, block(i, j));
      }
    }
  }
  for (std::int64_t j = 0; j < blocks_k; ++j) {
    for (std::int64_t i = j < whole_k ? whole_n : 0; i * kBlockN < n; ++i) {
      std::fill_n(block(i, j), kBlockN * kK, To(0.F));
      for (std::int64_t d = j * kK; d < std::min(k, (j + 1) * kK); ++d) {
        for (std::int64_t c = i * kBlockN; c < std::min(n, (i + 1) * kBlockN); ++c) {
          const From x = in[c * n_stride + d * k_stride];
          To& y = block(i, j)[detail::in_block<To>(c % kBlockN, d % kK)];
          if constexpr (std::is_same_v<From, To>) y = x;
          else y = static_cast<float>(x);
        }
      }
    }
  }
}

}  // namespace coda::cpu
