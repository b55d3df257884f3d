// Dual numbers: a value and its derivatives with respect to K inputs, carried through any function that is written on a
// generic scalar. Used at compile time to derive the backward of an activation from its forward.
//
// Whether a derivative is 0, 1 or a number is part of its type. So d(gate)/d(up) = 0 costs no instruction although
// floating point forbids the compiler to drop `x * 0` and `x + 0`: the derived code is what one would write by hand. So
// is that it may be 0, as relu's: then it is 0 times anything, and lets no infinite gradient through.
#pragma once

#include "coda/epilogue/math.h"

namespace coda {

struct Zero {};
struct One {};
/// Zero in the lanes of `zero`, else `otherwise`.
template <class Mask, class A>
struct ZeroWhere {
  Mask zero;
  [[no_unique_address]] A otherwise;
};

namespace detail {

template <class A>
inline constexpr bool kIsZeroWhere = false;
template <class Mask, class A>
inline constexpr bool kIsZeroWhere<ZeroWhere<Mask, A>> = true;

template <class Mask, class A>
CODA_FN auto zero_where(Mask zero, A otherwise) {
  if constexpr (std::is_same_v<A, Zero>) return Zero{};
  else return ZeroWhere<Mask, A>{zero, otherwise};
}
/// A derivative as a plain scalar.
template <class S, class A>
CODA_FN S materialise(A a) {
  if constexpr (std::is_same_v<A, Zero>) return S(0);
  else if constexpr (std::is_same_v<A, One>) return S(1);
  else if constexpr (kIsZeroWhere<A>) return select(a.zero, S(0), materialise<S>(a.otherwise));
  else return a;
}

// Sum, negation and product of derivatives, each of which may be a Zero, a One or a ZeroWhere.
template <class S, class A, class B>
CODA_FN auto add(A a, B b) {
  if constexpr (std::is_same_v<A, Zero>) return b;
  else if constexpr (std::is_same_v<B, Zero>) return a;
  else if constexpr (kIsZeroWhere<A>) return add<S>(materialise<S>(a), b);
  else if constexpr (kIsZeroWhere<B>) return add<S>(a, materialise<S>(b));
  else if constexpr (std::is_same_v<A, One> && std::is_same_v<B, One>) return S(2);
  else if constexpr (std::is_same_v<A, One>) return S(1) + b;
  else if constexpr (std::is_same_v<B, One>) return a + S(1);
  else return a + b;
}
template <class S, class A>
CODA_FN auto negate(A a) {
  if constexpr (std::is_same_v<A, Zero>) return a;
  else if constexpr (std::is_same_v<A, One>) return S(-1);
  else if constexpr (kIsZeroWhere<A>) return zero_where(a.zero, negate<S>(a.otherwise));
  else return -a;
}
template <class A, class S>
CODA_FN auto scale(A derivative, S factor) {
  if constexpr (std::is_same_v<A, Zero>) return Zero{};
  else if constexpr (std::is_same_v<A, One>) return factor;
  else if constexpr (kIsZeroWhere<A>) return zero_where(derivative.zero, scale(derivative.otherwise, factor));
  else return derivative * factor;
}

}  // namespace detail

/// value, and (dx, dy) = derivatives with respect to the first and the second input.
template <class S, class Dx, class Dy = Zero>
struct Dual {
  S value;
  [[no_unique_address]] Dx dx;
  [[no_unique_address]] Dy dy;

  CODA_FN Dual(S v, Dx x, Dy y) : value(v), dx(x), dy(y) {}
};

/// The plain scalar behind a generic one; constants in a function are written `base_t<S>(0.5)`.
namespace detail {
template <class S>
struct Base {
  using type = S;
};
template <class S, class Dx, class Dy>
struct Base<Dual<S, Dx, Dy>> {
  using type = S;
};
}  // namespace detail
template <class S>
using base_t = typename detail::Base<S>::type;

namespace detail {

template <class S, class Dx, class Dy>
CODA_FN auto dual(S value, Dx dx, Dy dy) {
  return Dual<S, Dx, Dy>(value, dx, dy);
}
// f(x) with f'(x): the chain rule.
template <class S, class Dx, class Dy>
CODA_FN auto chain(Dual<S, Dx, Dy> x, S value, S slope) {
  return dual(value, scale(x.dx, slope), scale(x.dy, slope));
}

}  // namespace detail

#define CODA_DUAL_ARGS class S, class Ax, class Ay, class Bx, class By
template <CODA_DUAL_ARGS>
CODA_FN auto operator+(Dual<S, Ax, Ay> a, Dual<S, Bx, By> b) {
  return detail::dual(a.value + b.value, detail::add<S>(a.dx, b.dx), detail::add<S>(a.dy, b.dy));
}
template <CODA_DUAL_ARGS>
CODA_FN auto operator-(Dual<S, Ax, Ay> a, Dual<S, Bx, By> b) {
  return detail::dual(a.value - b.value, detail::add<S>(a.dx, detail::negate<S>(b.dx)),
                      detail::add<S>(a.dy, detail::negate<S>(b.dy)));
}
template <CODA_DUAL_ARGS>
CODA_FN auto operator*(Dual<S, Ax, Ay> a, Dual<S, Bx, By> b) {
  return detail::dual(a.value * b.value, detail::add<S>(detail::scale(a.dx, b.value), detail::scale(b.dx, a.value)),
                      detail::add<S>(detail::scale(a.dy, b.value), detail::scale(b.dy, a.value)));
}
template <CODA_DUAL_ARGS>
CODA_FN auto operator/(Dual<S, Ax, Ay> a, Dual<S, Bx, By> b) {
  const S q = a.value / b.value, r = S(1) / b.value;
  return detail::dual(q, detail::scale(detail::add<S>(a.dx, detail::negate<S>(detail::scale(b.dx, q))), r),
                      detail::scale(detail::add<S>(a.dy, detail::negate<S>(detail::scale(b.dy, q))), r));
}
#undef CODA_DUAL_ARGS

template <class S, class Dx, class Dy>
CODA_FN auto operator-(Dual<S, Dx, Dy> a) {
  return detail::dual(-a.value, detail::negate<S>(a.dx), detail::negate<S>(a.dy));
}
template <class S, class Dx, class Dy>
CODA_FN auto operator+(Dual<S, Dx, Dy> a, std::type_identity_t<S> c) {
  return detail::dual(a.value + c, a.dx, a.dy);
}
template <class S, class Dx, class Dy>
CODA_FN auto operator+(std::type_identity_t<S> c, Dual<S, Dx, Dy> a) {
  return a + c;
}
template <class S, class Dx, class Dy>
CODA_FN auto operator-(Dual<S, Dx, Dy> a, std::type_identity_t<S> c) {
  return detail::dual(a.value - c, a.dx, a.dy);
}
template <class S, class Dx, class Dy>
CODA_FN auto operator-(std::type_identity_t<S> c, Dual<S, Dx, Dy> a) {
  return -a + c;
}
template <class S, class Dx, class Dy>
CODA_FN auto operator*(Dual<S, Dx, Dy> a, std::type_identity_t<S> c) {
  return detail::chain(a, a.value * c, c);
}
template <class S, class Dx, class Dy>
CODA_FN auto operator*(std::type_identity_t<S> c, Dual<S, Dx, Dy> a) {
  return a * c;
}
template <class S, class Dx, class Dy>
CODA_FN auto operator/(Dual<S, Dx, Dy> a, std::type_identity_t<S> c) {
  return detail::chain(a, a.value / c, S(1) / c);
}
template <class S, class Dx, class Dy>
CODA_FN auto operator/(std::type_identity_t<S> c, Dual<S, Dx, Dy> a) {
  const S q = c / a.value;
  return detail::chain(a, q, -q / a.value);
}

template <class S, class Dx, class Dy>
CODA_FN auto sigmoid(Dual<S, Dx, Dy> x) {
  const S s = sigmoid(x.value);
  return detail::chain(x, s, s * (S(1) - s));
}
template <class S, class Dx, class Dy>
CODA_FN auto tanh(Dual<S, Dx, Dy> x) {
  const S t = tanh(x.value);
  return detail::chain(x, t, S(1) - t * t);
}
template <class S, class Dx, class Dy>
CODA_FN auto erf(Dual<S, Dx, Dy> x) {
  return detail::chain(x, erf(x.value), S(1.1283791670955126) * exp(-(x.value * x.value)));
}
template <class S, class Dx, class Dy>
CODA_FN auto normal_cdf(Dual<S, Dx, Dy> x) {
  const Normal<S> n = normal(x.value);
  return detail::chain(x, n.cdf, n.pdf);
}
template <class S, class Dx, class Dy>
CODA_FN auto exp(Dual<S, Dx, Dy> x) {
  const S e = exp(x.value);
  return detail::chain(x, e, e);
}
template <class S, class Dx, class Dy>
CODA_FN auto log(Dual<S, Dx, Dy> x) {
  return detail::chain(x, log(x.value), reciprocal(x.value));
}
template <class S, class Dx, class Dy>
CODA_FN auto softplus(Dual<S, Dx, Dy> x) {
  const Softplus<S> s = softplus_and_slope(x.value);
  return detail::chain(x, s.value, s.slope);
}
template <class S, class Dx, class Dy>
CODA_FN auto reciprocal(Dual<S, Dx, Dy> x) {
  const S r = reciprocal(x.value);
  return detail::chain(x, r, -(r * r));
}
template <class S, class Dx, class Dy>
CODA_FN auto rsqrt(Dual<S, Dx, Dy> x) {
  const S r = rsqrt(x.value);
  return detail::chain(x, r, S(-0.5) * (r * r * r));
}
/// At 0 the slope is infinite.
template <class S, class Dx, class Dy>
CODA_FN auto sqrt(Dual<S, Dx, Dy> x) {
  const S s = sqrt(x.value);
  return detail::chain(x, s, S(0.5) * reciprocal(s));
}
/// At 0 the slope is 0.
template <class S, class Dx, class Dy>
CODA_FN auto abs(Dual<S, Dx, Dy> x) {
  const S slope = select(x.value < S(0), S(-1), select(S(0) < x.value, S(1), S(0)));
  return detail::chain(x, abs(x.value), slope);
}
template <class S, class Dx, class Dy>
CODA_FN auto square(Dual<S, Dx, Dy> x) {
  return detail::chain(x, square(x.value), x.value + x.value);
}
/// At 0 the slope is 0.
template <class S, class Dx, class Dy>
CODA_FN auto relu(Dual<S, Dx, Dy> x) {
  const auto off = x.value <= S(0);
  return detail::dual(relu(x.value), detail::zero_where(off, x.dx), detail::zero_where(off, x.dy));
}
/// At c the slope is 1, as PyTorch has it of a clamp.
template <class S, class Dx, class Dy>
CODA_FN auto at_most(Dual<S, Dx, Dy> x, std::type_identity_t<S> c) {
  const auto off = c < x.value;
  return detail::dual(at_most(x.value, c), detail::zero_where(off, x.dx), detail::zero_where(off, x.dy));
}
template <class S, class Dx, class Dy>
CODA_FN auto at_least(Dual<S, Dx, Dy> x, std::type_identity_t<S> c) {
  const auto off = x.value < c;
  return detail::dual(at_least(x.value, c), detail::zero_where(off, x.dx), detail::zero_where(off, x.dy));
}

/// f of one argument or of two, as a Dual of these.
template <class F, class S>
CODA_FN auto dual_of(const F& f, S x) {
  return f(Dual<S, One, Zero>(x, One{}, Zero{}));
}
template <class F, class S>
CODA_FN auto dual_of(const F& f, S x, S y) {
  return f(Dual<S, One, Zero>(x, One{}, Zero{}), Dual<S, Zero, One>(y, Zero{}, One{}));
}

/// f and its derivatives; dy is 0 for a function of one argument.
template <class S>
struct Derivative {
  S value, dx, dy;
};
template <class F, class S, class... Y>
CODA_FN Derivative<S> differentiate(const F& f, S x, Y... y) {
  const auto r = dual_of(f, x, y...);
  return {r.value, detail::materialise<S>(r.dx), detail::materialise<S>(r.dy)};
}

}  // namespace coda
