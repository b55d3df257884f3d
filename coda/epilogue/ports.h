// Ports: the typed members of a program, one for each resource that it reads or writes. A port here is only a
// description (pointer, pitch, options); what loading or storing through it means is written once in each backend.
//
// A port made of a view, an array or a container keeps its shape; a call compares it with what it reads or writes. No
// output may share memory with another port or an operand, but that a TileStore may write what a TileLoad of the same
// view has read.
//
// A port keeps its running values of the current tile (`reg`: one per row that the calling thread owns) in itself: the
// backend gives each thread a copy of the program, resets these values when a tile begins and writes them when it ends.
#pragma once

#include <cstddef>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "coda/core/error.h"
#include "coda/core/tensor.h"
#include "coda/epilogue/fragment.h"

namespace coda {

/// Rows of a tile that one thread owns, at most, on any backend.
inline constexpr int kRowsPerThread = 4;

/// What a port knows of the size of what it was made of; a bare pointer tells none.
inline constexpr std::int64_t kUnknownSize = std::numeric_limits<std::int64_t>::min();

/// The matrix of a port as its view said, which a call compares with what it reads or writes.
struct ViewShape {
  std::int64_t rows = kUnknownSize, cols = kUnknownSize;

  ViewShape() = default;
  template <class T>
  explicit ViewShape(const MatrixOf<T>& m) : rows(m.rows), cols(m.cols) {}
};

namespace detail {
template <class C>
concept SizedContainer = requires(C& c) { std::data(c), std::size(c); };
template <class C>
using ElementOf = std::remove_pointer_t<decltype(std::data(std::declval<C&>()))>;
/// A pointer itself, and no array, whose size is known.
template <class P, class T>
concept PointerTo = std::is_pointer_v<P> && std::is_convertible_v<P, T*>;
}  // namespace detail

/// The elements of a vector, in the place of a pointer to them. Of a view, an array or a container that outlives the
/// call the size is kept, and a call compares it with what it reads or writes. Absent: null, or a view without data.
template <class T>
struct Elements {
  T* data = nullptr;
  std::int64_t size = kUnknownSize;

  Elements() = default;
  CODA_FN Elements(std::nullptr_t) {}
  template <detail::PointerTo<T> P>
  CODA_FN Elements(const P& p) : data(p) {}
  template <class U>
    requires(std::is_convertible_v<U*, T*>)
  Elements(VectorOf<U> v) : data(v.data), size(v.data ? v.size : kUnknownSize) {}
  template <class U>
    requires(std::is_same_v<const U, T>)
  CODA_FN Elements(const Elements<U>& e) : data(e.data), size(e.size) {}
  template <class U, std::size_t N>
    requires(std::is_convertible_v<U*, T*>)
  Elements(std::span<U, N> s) : data(s.data()), size(static_cast<std::int64_t>(s.size())) {}
  template <detail::SizedContainer C>
    requires(std::is_convertible_v<detail::ElementOf<C>*, T*>)
  Elements(C& c) : data(std::data(c)), size(static_cast<std::int64_t>(std::size(c))) {}
  CODA_FN operator T*() const { return data; }
};

#define CODA_PORT_TYPE(T, port) \
  static_assert(is_real<T>, "coda: the element type of a " port " is bf16, fp16, float or double")

/// A value for each row m, broadcast along n. Absent (null): loads as `otherwise`. `ColVector<T>` may be stored to as
/// well, and so has memory that no other port has: it takes the fragment's value at column 0 of the matrix.
template <class T>
struct ColVector {
  CODA_PORT_TYPE(T, "ColVector");
  Elements<T> data = {};
  acc_t<T> otherwise = 1;
  mutable acc_t<T> reg[kRowsPerThread] = {};
};

/// A value for each column n (of a matrix as wide as the port), broadcast along m. Absent: loads as `otherwise`.
/// Stored to from row 0 of the matrix.
template <class T, Width W = Width::Same>
struct RowVector {
  CODA_PORT_TYPE(T, "RowVector");
  static constexpr Width width = W;
  Elements<T> data = {};
  acc_t<T> otherwise = 1;
};

/// A block of a matrix beside the accumulator, half as wide, as wide or twice as wide as it. Absent: loads as 0.
template <class T, Width W = Width::Same>
struct TileLoad {
  CODA_PORT_TYPE(T, "TileLoad");
  static_assert(!std::is_const_v<T>, "coda: a TileLoad only reads: write its element type without const");
  static constexpr Width width = W;
  const T* data = nullptr;
  std::int64_t pitch = 0;
  ViewShape view = {};

  TileLoad() = default;
  TileLoad(MatrixOf<const T> m) : data(m.data), pitch(m.pitch), view(m) {}
  TileLoad(MatrixOf<T> m)
    requires(!std::is_const_v<T>)
      : data(m.data), pitch(m.pitch), view(m) {}
};

/// Absent: nothing is stored.
template <class T, Width W = Width::Same>
struct TileStore {
  CODA_PORT_TYPE(T, "TileStore");
  static_assert(!std::is_const_v<T>, "coda: a TileStore writes: its element type is not const");
  static constexpr Width width = W;
  T* data = nullptr;
  std::int64_t pitch = 0;
  ViewShape view = {};

  TileStore() = default;
  TileStore(MatrixOf<T> m) : data(m.data), pitch(m.pitch), view(m) {}
};

// ---- block reductions

struct Sum {
  template <class S>
  static CODA_FN S first(S x) {
    return x;
  }
  template <class S>
  static CODA_FN S fold(S a, S b) {
    return a + b;
  }
  template <class S>
  static constexpr S neutral = S(0);
};
namespace detail {
/// The larger one; a NaN, wherever it is.
template <class S>
CODA_FN S larger(S a, S b) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<S, float>) {
    float max;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(max) : "f"(a), "f"(b));
    return max;
  }
#endif
  return select(b <= a, a, select(a <= a, b, a));
}
}  // namespace detail

struct Max {
  template <class S>
  static CODA_FN S first(S x) {
    return x;
  }
  template <class S>
  static CODA_FN S fold(S a, S b) {
    return detail::larger(a, b);
  }
  template <class S>
  static constexpr S neutral = -std::numeric_limits<S>::infinity();
};
struct AbsMax {
  template <class S>
  static CODA_FN S first(S x) {
    return abs(x);
  }
  template <class S>
  static CODA_FN S fold(S a, S b) {
    return detail::larger(a, b);
  }
  template <class S>
  static constexpr S neutral = S(0);
};

/// Folds a tile along n: out[m, t] over the columns of tile t, shape (M, ceil(N / tile_n)). Absent: nothing is done.
template <class Op, class Acc = float>
struct ReduceN {
  using op = Op;
  using accumulator = Acc;
  Acc* data = nullptr;
  std::int64_t pitch = 0;
  ViewShape view = {};
  mutable Acc reg[kRowsPerThread] = {};

  ReduceN() = default;
  ReduceN(MatrixOf<Acc> m) : data(m.data), pitch(m.pitch), view(m) {}
};

/// Folds a tile along m: out[t, n] over the rows of tile t, shape (ceil(M / tile_m), N). Absent: nothing is done.
template <class Op, class Acc = float>
struct ReduceM {
  using op = Op;
  using accumulator = Acc;
  Acc* data = nullptr;
  std::int64_t pitch = 0;
  ViewShape view = {};

  ReduceM() = default;
  ReduceM(MatrixOf<Acc> m) : data(m.data), pitch(m.pitch), view(m) {}
};

// ---- stateful transforms: a running state along n

namespace detail {
/// The first of two outputs that a port writes, which have one shape and one pitch.
template <class Acc>
const MatrixOf<Acc>& like_each_other(const char* what, const MatrixOf<Acc>& first, const MatrixOf<Acc>& second) {
  const auto fail = [&](const std::string& expected, const std::string& got) {
    throw Error(Status::invalid_argument,
                std::string(what) + ": expected two matrices of one " + expected + ", got " + got);
  };
  const auto text = [](const MatrixOf<Acc>& m) {
    return std::string("(").append(std::to_string(m.rows)).append(", ").append(std::to_string(m.cols)).append(")");
  };
  if (!first.data || !second.data) return first;  // the call will say that one is missing
  if (first.rows != second.rows || first.cols != second.cols) fail("shape", text(first) + " and " + text(second));
  if (first.rows > 1 && second.pitch != first.pitch) {
    fail("pitch", std::to_string(first.pitch) + " and " + std::to_string(second.pitch));
  }
  return first;
}
}  // namespace detail

/// Mean and sum of squared deviations of each row inside each tile, merged pairwise (Chan, Golub, LeVeque 1979): out
/// mean[m, t] and m2[m, t]. Sums of x and x^2 would lose a variance much smaller than the mean squared.
template <class Acc = float>
struct MomentsN {
  using accumulator = Acc;
  Acc* mean = nullptr;
  Acc* m2 = nullptr;
  std::int64_t pitch = 0;
  ViewShape view = {};
  mutable Acc reg[3 * kRowsPerThread] = {};

  MomentsN() = default;
  MomentsN(MatrixOf<Acc> mean_, MatrixOf<Acc> m2_)
      : mean(mean_.data), m2(m2_.data), pitch(detail::like_each_other("MomentsN", mean_, m2_).pitch), view(mean_) {}
};

/// Online (max, sum of exp(x - max)) of each row inside each tile (Milakov and Gimelshein, arXiv 1805.02867).
template <class Acc = float>
struct OnlineLse {
  using accumulator = Acc;
  Acc* max = nullptr;
  Acc* sum = nullptr;
  std::int64_t pitch = 0;
  ViewShape view = {};
  mutable Acc reg[2 * kRowsPerThread] = {};

  OnlineLse() = default;
  OnlineLse(MatrixOf<Acc> max_, MatrixOf<Acc> sum_)
      : max(max_.data), sum(sum_.data), pitch(detail::like_each_other("OnlineLse", max_, sum_).pitch), view(max_) {}
};

/// What to subtract before exp: 0 for a maximum that is infinite. While all values are -inf, exp(-inf - 0) = 0, and of
/// a value of inf the sum is inf; with the maximum both would be NaN.
template <class S>
CODA_FN S lse_shift(S max) {
  return select(S(std::numeric_limits<float>::infinity()) <= abs(max), S(0.f), max);
}

namespace detail {
template <class From, class I>
concept Makes = std::is_constructible_v<Elements<const I>, From>;
/// One of the two: a null pointer and what converts to anything could be either.
template <class From>
concept MakesIndices = Makes<From, std::int32_t> != Makes<From, std::int64_t>;
template <class From>
auto indices_of(From& from) {
  if constexpr (Makes<From&, std::int32_t>) return Elements<const std::int32_t>(from);
  else return Elements<const std::int64_t>(from);
}
}  // namespace detail

/// A row's integer (token, target, position), int32 or int64. Absent: the row's own number.
struct IndexVector {
  const void* data = nullptr;
  bool wide = false;
  std::int64_t size = kUnknownSize;

  IndexVector() = default;
  /// Of what Elements of int32 or of int64 are made of.
  template <detail::MakesIndices From>
  IndexVector(From&& from) {  // NOLINT(bugprone-forwarding-reference-overload): From is never one itself
    const auto elements = detail::indices_of(from);
    data = elements.data, wide = sizeof(*elements.data) == sizeof(std::int64_t), size = elements.size;
  }
  CODA_FN std::int64_t operator[](std::int64_t m) const {
    if (!data) return m;
    return wide ? static_cast<const std::int64_t*>(data)[m] : static_cast<const std::int32_t*>(data)[m];
  }
};

/// Row index[m] of another matrix, as wide as the accumulator: an embedding's look-up.
template <class T>
struct GatherLoad {
  CODA_PORT_TYPE(T, "GatherLoad");
  static_assert(!std::is_const_v<T>, "coda: a GatherLoad only reads: write its element type without const");
  const T* data = nullptr;
  std::int64_t pitch = 0;
  IndexVector index = {};
  /// Of the matrix. An index outside of it loads as NaN.
  std::int64_t rows = std::numeric_limits<std::int64_t>::max();
  mutable std::int64_t reg[kRowsPerThread] = {};
};

/// Keeps of each row the value at its own column: out[m] = x[m, index[m] - first_column], if that column is in the
/// matrix. Rows whose index is elsewhere are not written.
template <class Acc = float>
struct TargetSelect {
  using accumulator = Acc;
  IndexVector index = {};
  Elements<Acc> data = {};
  std::int64_t first_column = 0;
  mutable std::int32_t reg[kRowsPerThread] = {};
};

/// Loads as 1 at column index[m] - first_column of row m and 0 elsewhere.
struct OneHot {
  IndexVector index = {};
  std::int64_t first_column = 0;
  mutable std::int32_t reg[kRowsPerThread] = {};
};

// ---- ports for attention heads

/// Rotary angles: loads (cos, sin) at the even and odd columns of a pair, from a table of (positions, head_dim) floats
/// with cos and sin of pair j at 2j and 2j+1. Columns from `columns` on (the v heads) load (1, 0): they pass through.
template <class Acc = float>
struct RotaryTable {
  const Acc* table = nullptr;
  IndexVector position = {};
  std::int64_t columns = 0;
  int head_dim = 0;
  /// Positions of the table; one outside of it loads as NaN.
  std::int64_t rows = std::numeric_limits<std::int64_t>::max();
  mutable std::int32_t reg[kRowsPerThread] = {};
};

/// A weight for each column of a head: q heads take `q`, k heads `k` (head_dim values each), v heads 1.
template <class T>
struct HeadVector {
  CODA_PORT_TYPE(T, "HeadVector");
  Elements<const T> q = {}, k = {};
  std::int64_t q_columns = 0, columns = 0;
  int head_dim = 0;
};

inline constexpr int kHeadSlots = 2;
/// Mean over each head of a row, plus `eps`, of what a program's first pass reduced into it; loaded in the second.
/// Columns from `columns` on load `otherwise`. The head must lie inside one tile: the backend picks tile_n a multiple
/// of head_dim. A program with two of them gives them different slots.
template <class Acc = float, int Slot = 0>
struct HeadMean {
  using accumulator = Acc;
  static_assert(Slot >= 0 && Slot < kHeadSlots, "coda: the slot of a HeadMean is 0 or 1");
  std::int64_t columns = 0;
  int head_dim = 0;
  Acc eps = 0, otherwise = 1;
};

#undef CODA_PORT_TYPE

namespace detail {
template <class T>
struct IsPort : std::false_type {};
template <class T>
struct IsPort<ColVector<T>> : std::true_type {};
template <class T, Width W>
struct IsPort<RowVector<T, W>> : std::true_type {};
template <class T, Width W>
struct IsPort<TileLoad<T, W>> : std::true_type {};
template <class T, Width W>
struct IsPort<TileStore<T, W>> : std::true_type {};
template <class Op, class A>
struct IsPort<ReduceN<Op, A>> : std::true_type {};
template <class Op, class A>
struct IsPort<ReduceM<Op, A>> : std::true_type {};
template <class A>
struct IsPort<MomentsN<A>> : std::true_type {};
template <class A>
struct IsPort<OnlineLse<A>> : std::true_type {};
template <class A>
struct IsPort<TargetSelect<A>> : std::true_type {};
template <>
struct IsPort<OneHot> : std::true_type {};
template <class A>
struct IsPort<RotaryTable<A>> : std::true_type {};
template <class T>
struct IsPort<GatherLoad<T>> : std::true_type {};
template <class T>
struct IsPort<HeadVector<T>> : std::true_type {};
template <class A, int S>
struct IsPort<HeadMean<A, S>> : std::true_type {};
}  // namespace detail

template <class T>
concept Port = detail::IsPort<std::remove_cvref_t<T>>::value;

}  // namespace coda
