// Copies and transposes of a block of a matrix into a contiguous one, with a conversion to float on the way if wanted.
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

}  // namespace detail

/// out[c, r] = in[r, c], out contiguous: (cols, rows).
template <class T>
void transpose(const T* in, std::int64_t rows, std::int64_t cols, std::int64_t pitch, T* out) {
  using Bits = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  constexpr int kR = 16 / sizeof(T), kC = kSimdBytes / sizeof(T);  // rows and columns of a block
  using V = lanes_t<Bits, kC>;
  std::int64_t r = 0;
  for (; r + kR <= rows; r += kR) {
    std::int64_t c = 0;
    for (; c + kC <= cols; c += kC) {
      V v[kR];
      CODA_UNROLL for (int i = 0; i < kR; ++i) std::memcpy(&v[i], in + (r + i) * pitch + c, sizeof(V));
      detail::transpose_lanes(v);
      CODA_UNROLL for (int l = 0; l < kC / kR; ++l) {
        CODA_UNROLL for (int i = 0; i < kR; ++i) {
          std::memcpy(out + (c + l * kR + i) * rows + r, reinterpret_cast<const char*>(&v[i]) + 16 * l, 16);
        }
      }
    }
    for (; c < cols; ++c) {
      for (int i = 0; i < kR; ++i) out[c * rows + r + i] = in[(r + i) * pitch + c];
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

}  // namespace coda::cpu
