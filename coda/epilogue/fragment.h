// Fragment: the values of a tile that one thread holds, and what may be done with them. A value is a float or double on
// a GPU and a vector of lanes on a CPU; adjacent columns are adjacent values (or lanes), so a pair never leaves a
// thread.
#pragma once

#include <utility>

#include "coda/epilogue/functions.h"

namespace coda {

/// How wide a matrix is beside the accumulator: half, the same, twice.
enum class Width : int { Half = 1, Same = 2, Double = 4 };

/// Columns lie in order, but for vectors of lanes of double width, which is only ever read and written in pairs: there
/// v[2j] has the even columns and v[2j+1] the odd ones of as many as both have lanes.
template <class S, int Count, Width W = Width::Same>
struct Fragment {
  using scalar = S;
  static constexpr int count = Count;
  static constexpr Width width = W;
  S v[Count];
};

namespace detail {
template <class T>
struct IsFragment : std::false_type {};
template <class S, int N, Width W>
struct IsFragment<Fragment<S, N, W>> : std::true_type {};
template <class>
inline constexpr bool kNever = false;
}  // namespace detail

template <class T>
concept AnyFragment = detail::IsFragment<std::remove_cvref_t<T>>::value;

// ---- elementwise: 1 -> 1

/// f on each value of one or more fragments of the same width.
template <class F, AnyFragment A, class... B>
CODA_FN auto map(const F& f, const A& a, const B&... b) {
  static_assert((std::is_same_v<A, B> && ...), "coda: map takes fragments of one width");
  A out;
  CODA_UNROLL for (int i = 0; i < A::count; ++i) out.v[i] = f(a.v[i], b.v[i]...);
  return out;
}

#define CODA_FRAGMENT_OPERATOR(op)                                                                                 \
  template <AnyFragment A, AnyFragment B>                                                                          \
  CODA_FN auto operator op(const A& a, const B& b) {                                                               \
    static_assert(std::is_same_v<A, B>,                                                                            \
                  "coda: the two fragments differ in width: contract() the wider or expand() the narrower first"); \
    if constexpr (std::is_same_v<A, B>) {                                                                          \
      A out;                                                                                                       \
      CODA_UNROLL for (int i = 0; i < A::count; ++i) out.v[i] = a.v[i] op b.v[i];                                  \
      return out;                                                                                                  \
    } else {                                                                                                       \
      return a;                                                                                                    \
    }                                                                                                              \
  }                                                                                                                \
  template <AnyFragment A, class C>                                                                                \
    requires std::is_arithmetic_v<C>                                                                               \
  CODA_FN auto operator op(const A& a, C c) {                                                                      \
    A out;                                                                                                         \
    CODA_UNROLL for (int i = 0; i < A::count; ++i) out.v[i] = a.v[i] op typename A::scalar(c);                     \
    return out;                                                                                                    \
  }                                                                                                                \
  template <AnyFragment A, class C>                                                                                \
    requires std::is_arithmetic_v<C>                                                                               \
  CODA_FN auto operator op(C c, const A& a) {                                                                      \
    A out;                                                                                                         \
    CODA_UNROLL for (int i = 0; i < A::count; ++i) out.v[i] = typename A::scalar(c) op a.v[i];                     \
    return out;                                                                                                    \
  }                                                                                                                \
  template <AnyFragment A, class B>                                                                                \
  CODA_FN A& operator op##=(A & a, const B & b) {                                                                  \
    return a = a op b;                                                                                             \
  }
CODA_FRAGMENT_OPERATOR(+)
CODA_FRAGMENT_OPERATOR(-)
CODA_FRAGMENT_OPERATOR(*)
CODA_FRAGMENT_OPERATOR(/)
#undef CODA_FRAGMENT_OPERATOR

template <AnyFragment A>
CODA_FN auto operator-(const A& a) {
  A out;
  CODA_UNROLL for (int i = 0; i < A::count; ++i) out.v[i] = -a.v[i];
  return out;
}

// ---- pairwise, on columns (2j, 2j+1)

template <class S>
struct Pair {
  S first, second;
};

namespace detail {

template <Width W>
constexpr Width halved() {
  static_assert(W != Width::Half, "coda: contract() halves a fragment; this one is half the tile's width already");
  return W == Width::Double ? Width::Same : Width::Half;
}
template <Width W>
constexpr Width doubled() {
  static_assert(W != Width::Double, "coda: expand() doubles a fragment; this one is twice the tile's width already");
  return W == Width::Half ? Width::Same : Width::Double;
}

/// The even and the odd columns of v[2j] and v[2j+1] of a fragment of this width; `from_pairs` is the inverse.
template <Width W, class S>
CODA_FN std::pair<S, S> as_pairs(S a, S b) {
  if constexpr (W == Width::Double) return {a, b};
  else return deinterleave(a, b);
}
template <Width W, class S>
CODA_FN std::pair<S, S> from_pairs(S even, S odd) {
  if constexpr (W == Width::Double) return {even, odd};
  else return interleave(even, odd);
}

}  // namespace detail

/// 2 -> 1: out[j] = f(in[2j], in[2j+1]), half as wide.
template <class F, class S, int N, Width W>
CODA_FN auto contract(const Fragment<S, N, W>& in, const F& f) {
  Fragment<S, N / 2, detail::halved<W>()> out;
  CODA_UNROLL for (int j = 0; j < N / 2; ++j) {
    const auto [even, odd] = detail::as_pairs<W>(in.v[2 * j], in.v[2 * j + 1]);
    out.v[j] = f(even, odd);
  }
  return out;
}

/// 1 -> 2: (out[2j], out[2j+1]) = f(in[j]), twice as wide; f returns a Pair.
template <class F, class S, int N, Width W>
CODA_FN auto expand(const Fragment<S, N, W>& in, const F& f) {
  Fragment<S, N * 2, detail::doubled<W>()> out;
  CODA_UNROLL for (int j = 0; j < N; ++j) {
    const Pair<S> p = f(in.v[j]);
    const auto [a, b] = detail::from_pairs<decltype(out)::width>(p.first, p.second);
    out.v[2 * j] = a;
    out.v[2 * j + 1] = b;
  }
  return out;
}

/// 2 -> 2: f(in[2j], in[2j+1], w[2j], w[2j+1]) returns the Pair that takes their place.
template <class F, class S, int N, Width W>
CODA_FN auto pairwise(const Fragment<S, N, W>& in, const Fragment<S, N, W>& w, const F& f) {
  Fragment<S, N, W> out;
  CODA_UNROLL for (int j = 0; j < N / 2; ++j) {
    const auto [even, odd] = detail::as_pairs<W>(in.v[2 * j], in.v[2 * j + 1]);
    const auto [w_even, w_odd] = detail::as_pairs<W>(w.v[2 * j], w.v[2 * j + 1]);
    const Pair<S> p = f(even, odd, w_even, w_odd);
    const auto [a, b] = detail::from_pairs<W>(p.first, p.second);
    out.v[2 * j] = a;
    out.v[2 * j + 1] = b;
  }
  return out;
}

/// Rotation of a pair by the angle whose (cos, sin) is (c, s); its transpose is RotateBack. Where s is 0 each is scaled
/// alone: an infinity beside a column that passes through would make it NaN.
struct Rotate {
  template <class S>
  CODA_FN Pair<S> operator()(S x, S y, S c, S s) const {
    const auto alone = abs(s) <= S(0);
    return {select(alone, x * c, x * c - y * s), select(alone, y * c, x * s + y * c)};
  }
};
struct RotateBack {
  template <class S>
  CODA_FN Pair<S> operator()(S x, S y, S c, S s) const {
    const auto alone = abs(s) <= S(0);
    return {select(alone, x * c, x * c + y * s), select(alone, y * c, y * c - x * s)};
  }
};

// ---- backward, derived

/// What a function's backward yields from its saved input z and the gradient dy of its output: dz, and y again.
template <class Z, class Y>
struct Backward {
  Z dz;
  Y out;
};

/// dz = f'(z) dy of a function of one argument (z as wide as dy) or of a pair (z twice as wide): (df/dz0, df/dz1) dy.
/// Where f' is 0 because a relu is off or a clamp on, dz is 0 for any dy.
template <class F, class S, int NZ, Width WZ, int NY, Width WY>
CODA_FN auto backward(const F& f, const Fragment<S, NZ, WZ>& z, const Fragment<S, NY, WY>& dy) {
  Backward<Fragment<S, NZ, WZ>, Fragment<S, NY, WY>> r;
  const auto times = [](auto derivative, S x) { return detail::materialise<S>(detail::scale(derivative, x)); };
  if constexpr (NZ == NY) {
    CODA_UNROLL for (int i = 0; i < NY; ++i) {
      const auto d = dual_of(f, z.v[i]);
      r.dz.v[i] = times(d.dx, dy.v[i]);
      r.out.v[i] = d.value;
    }
  } else {
    static_assert(NZ == 2 * NY, "coda: backward() takes z as wide as dy, or twice as wide for a function of a pair");
    CODA_UNROLL for (int j = 0; j < NY; ++j) {
      const auto [even, odd] = detail::as_pairs<WZ>(z.v[2 * j], z.v[2 * j + 1]);
      const auto d = dual_of(f, even, odd);
      const auto [a, b] = detail::from_pairs<WZ>(times(d.dx, dy.v[j]), times(d.dy, dy.v[j]));
      r.dz.v[2 * j] = a;
      r.dz.v[2 * j + 1] = b;
      r.out.v[j] = d.value;
    }
  }
  return r;
}

}  // namespace coda
