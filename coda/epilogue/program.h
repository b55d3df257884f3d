// What a program is, and how a backend walks through its ports without the author naming them a second time.
#pragma once

#include "coda/epilogue/ports.h"

namespace coda {

namespace detail {

// Stands for a member of any type while the members of an aggregate are counted.
struct AnyMember {
  template <class T>
  operator T() const;
};

template <class T, class... Members>
constexpr int count_members() {
  if constexpr (requires { T{Members{}..., AnyMember{}}; }) {
    return count_members<T, Members..., AnyMember>();
  } else {
    return static_cast<int>(sizeof...(Members));
  }
}

template <class T, class F>
CODA_FN constexpr void for_each_member(T& t, F&& f) {
  constexpr int n = count_members<std::remove_cv_t<T>>();
  static_assert(n <= 12, "coda: a program has at most 12 members: put some of them into a struct of their own");
  if constexpr (n == 1) {
    auto& [a] = t;
    f(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = t;
    f(a), f(b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = t;
    f(a), f(b), f(c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = t;
    f(a), f(b), f(c), f(d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = t;
    f(a), f(b), f(c), f(d), f(e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, g] = t;
    f(a), f(b), f(c), f(d), f(e), f(g);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, g, h] = t;
    f(a), f(b), f(c), f(d), f(e), f(g), f(h);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, g, h, i] = t;
    f(a), f(b), f(c), f(d), f(e), f(g), f(h), f(i);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, g, h, i, j] = t;
    f(a), f(b), f(c), f(d), f(e), f(g), f(h), f(i), f(j);
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, g, h, i, j, k] = t;
    f(a), f(b), f(c), f(d), f(e), f(g), f(h), f(i), f(j), f(k);
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, g, h, i, j, k, l] = t;
    f(a), f(b), f(c), f(d), f(e), f(g), f(h), f(i), f(j), f(k), f(l);
  } else if constexpr (n == 12) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m] = t;
    f(a), f(b), f(c), f(d), f(e), f(g), f(h), f(i), f(j), f(k), f(l), f(m);
  }
}

}  // namespace detail

/// Calls f on each port of a program, in the order of declaration; a member that is a struct of ports is entered.
template <class P, class F>
CODA_FN constexpr void for_each_port(P& program, F&& f) {
  using T = std::remove_cv_t<P>;
  if constexpr (Port<T>) {
    f(program);
  } else if constexpr (std::is_aggregate_v<T> && std::is_class_v<T>) {
    detail::for_each_member(program, [&](auto& member) { for_each_port(member, f); });
  }
}

/// A program is an aggregate of ports (and plain options) with `operator()(tile, acc) const`. One that must see a whole
/// tile before it can write any of it also has `first(tile, acc) const`, which runs over the tile before.
template <class P>
concept Program = std::is_aggregate_v<P> && std::is_class_v<P> && std::is_trivially_copyable_v<P>;

/// The program has a first pass over the accumulator.
template <class P, class Tile, class Acc>
concept HasFirstPass = requires(const P& p, Tile& tile, const Acc& acc) { p.first(tile, acc); };

}  // namespace coda
