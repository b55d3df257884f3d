// What a program is, and how a backend walks through its ports without the author naming them a second time.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "coda/core/error.h"
#include "coda/core/footprint.h"
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

template <class T, std::size_t... Before, std::size_t... After>
constexpr bool is_one_member(std::index_sequence<Before...>, std::index_sequence<After...>) {
  return requires { T{((void)Before, AnyMember{})..., {}, ((void)After, AnyMember{})...}; };
}
template <int N>
using Number = std::integral_constant<int, N>;

/// The members of an aggregate. The elements of an array are counted as members, but one `{}` stands for all of them.
template <class T>
struct Members {
  static constexpr int counted = count_members<T>();
  static constexpr bool arrays = []<std::size_t... I>(std::index_sequence<I...>) {
    return !(is_one_member<T>(std::make_index_sequence<I>(), std::make_index_sequence<counted - 1 - I>()) && ...);
  }(std::make_index_sequence<counted>());
  static_assert(!arrays, "coda: no member of a program, or of a struct in it, is an array: name each element");
  static_assert(arrays || counted <= 12,
                "coda: a program has at most 12 members: put some of them into a struct of their own");
  static constexpr int count = arrays ? 0 : counted;
};

/// f(member, its number as an integral_constant) on each.
template <class T, class F>
CODA_FN constexpr void for_each_member(T& t, F&& f) {
  constexpr int n = Members<std::remove_cv_t<T>>::count;
  if constexpr (n == 1) {
    auto& [a] = t;
    f(a, Number<0>());
  } else if constexpr (n == 2) {
    auto& [a, b] = t;
    f(a, Number<0>()), f(b, Number<1>());
  } else if constexpr (n == 3) {
    auto& [a, b, c] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>());
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>()), f(d, Number<3>());
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>()), f(d, Number<3>()), f(e, Number<4>());
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, g] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>()), f(d, Number<3>()), f(e, Number<4>()), f(g, Number<5>());
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, g, h] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>()), f(d, Number<3>()), f(e, Number<4>()), f(g, Number<5>()),
        f(h, Number<6>());
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, g, h, i] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>()), f(d, Number<3>()), f(e, Number<4>()), f(g, Number<5>()),
        f(h, Number<6>()), f(i, Number<7>());
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, g, h, i, j] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>()), f(d, Number<3>()), f(e, Number<4>()), f(g, Number<5>()),
        f(h, Number<6>()), f(i, Number<7>()), f(j, Number<8>());
  } else if constexpr (n == 10) {
    auto& [a, b, c, d, e, g, h, i, j, k] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>()), f(d, Number<3>()), f(e, Number<4>()), f(g, Number<5>()),
        f(h, Number<6>()), f(i, Number<7>()), f(j, Number<8>()), f(k, Number<9>());
  } else if constexpr (n == 11) {
    auto& [a, b, c, d, e, g, h, i, j, k, l] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>()), f(d, Number<3>()), f(e, Number<4>()), f(g, Number<5>()),
        f(h, Number<6>()), f(i, Number<7>()), f(j, Number<8>()), f(k, Number<9>()), f(l, Number<10>());
  } else if constexpr (n == 12) {
    auto& [a, b, c, d, e, g, h, i, j, k, l, m] = t;
    f(a, Number<0>()), f(b, Number<1>()), f(c, Number<2>()), f(d, Number<3>()), f(e, Number<4>()), f(g, Number<5>()),
        f(h, Number<6>()), f(i, Number<7>()), f(j, Number<8>()), f(k, Number<9>()), f(l, Number<10>()),
        f(m, Number<11>());
  }
}

/// A member that is neither a port nor a struct of such. One class for each type: its message comes once.
template <class T>
struct Option {
  /// Those with a constructor that are values, not structs whose ports nobody would find.
  static constexpr bool kIsValue = std::is_same_v<T, bf16> || std::is_same_v<T, fp16> || std::is_same_v<T, IndexVector>;
  static_assert(!std::is_class_v<T> || std::is_empty_v<T> || kIsValue,
                "coda: a member of a program is a port, a struct of such without a constructor, or a plain option");
  static constexpr bool checked = true;
};

}  // namespace detail

/// Calls f on each port of a program, in the order of declaration; a member that is a struct of ports is entered.
template <class P, class F>
CODA_FN constexpr void for_each_port(P& program, F&& f) {
  using T = std::remove_cv_t<P>;
  if constexpr (Port<T>) {
    f(program);
  } else if constexpr (std::is_aggregate_v<T> && std::is_class_v<T>) {
    detail::for_each_member(program, [&](auto& member, auto) { for_each_port(member, f); });
  } else {
    static_assert(detail::Option<T>::checked);
  }
}

/// A program is an aggregate of ports (and plain options) with `operator()(tile, acc) const`. One that must see a whole
/// tile before it can write any of it, through a HeadMean, also has `first(tile, acc) const`, which runs over the tile
/// before. Options, which can be made without arguments, are the same for all of a call; a store or a reduction that a
/// call does not want is left out by an absent port, not by a branch. What reads or writes a port is given the port
/// itself: of a copy a backend knows nothing.
template <class P>
concept Program = std::is_aggregate_v<P> && std::is_class_v<P> && std::is_trivially_copyable_v<P> &&
                  std::is_default_constructible_v<P>;

/// The program has a first pass over the accumulator.
template <class P, class Tile, class Acc>
concept HasFirstPass = requires(const P& p, Tile& tile, const Acc& acc) { p.first(tile, acc); };

template <class Port>
inline constexpr bool kIsHeadMean = false;
template <class Acc, int Slot>
inline constexpr bool kIsHeadMean<HeadMean<Acc, Slot>> = true;

/// Ports that fold along m.
template <class Port>
inline constexpr bool kFoldsRows = false;
template <class Op, class Acc>
inline constexpr bool kFoldsRows<ReduceM<Op, Acc>> = true;

namespace detail {

// Not a lambda of the variable below: nvcc 13.0 fails where another constant begins with that.
template <class P>
consteval int count_all_ports() {
  int n = 0;
  const P program{};
  for_each_port(program, [&](const auto&) { ++n; });
  return n;
}

}  // namespace detail

/// Ports that a program has, or a member of one.
template <class P>
inline constexpr int kPortCount = detail::count_all_ports<P>();

namespace detail {

/// Ports of a struct's members before the one of that number.
template <class T>
consteval int ports_before(int end) {
  int ports = 0;
  const T t{};
  for_each_member(t, [&](const auto& member, auto number) {
    if (number < end) ports += kPortCount<std::remove_cvref_t<decltype(member)>>;
  });
  return ports;
}
/// Of a part of a program, the first port of which is number First.
template <int First, class P, class F>
CODA_FN constexpr void for_each_numbered_port(P& part, F& f) {
  using T = std::remove_cv_t<P>;
  if constexpr (Port<T>) {
    f(part, Number<First>());
  } else if constexpr (kPortCount<T> > 0) {
    for_each_member(
        part, [&](auto& member, auto number) { for_each_numbered_port<First + ports_before<T>(number)>(member, f); });
  }
}

}  // namespace detail

/// Calls f(port, its number in this order) on each port of a program. The number is an integral_constant, so that what
/// a compiler keeps of each port can be in registers.
template <class P, class F>
CODA_FN constexpr void for_each_numbered_port(P& program, F&& f) {
  detail::for_each_numbered_port<0>(program, f);
}
/// Those of one type.
template <class Port, class P>
consteval int count_ports() {
  int n = 0;
  const P program{};
  for_each_port(program, [&](const auto& port) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(port)>, Port>) ++n;
  });
  return n;
}

/// What every backend asks of a program that runs on its tiles, in S.
template <class S, class P, class Tile, class Acc>
consteval void check_program() {
  static_assert(std::is_invocable_v<const P&, Tile&, const Acc&>,
                "coda: a program has `template <class Tile> void operator()(Tile& tile, auto acc) const`");
  constexpr int first = count_ports<HeadMean<S, 0>, P>(), second = count_ports<HeadMean<S, 1>, P>();
  static_assert(first <= 1 && second <= 1, "coda: the HeadMeans of a program have different slots, 0 and 1");
  static_assert(
      HasFirstPass<P, Tile, Acc> == (first + second > 0),
      "coda: a program with a HeadMean, and no other, has `template <class Tile> void first(Tile& tile, auto acc) "
      "const`, which reduces into it");
}

/// Columns of an attention head, as all ports of a program say that have to do with one; 0: none has.
template <class P>
int checked_head_dim(const char* op, const P& program) {
  int head_dim = 0;
  const auto fail = [&](const std::string& got) {
    throw Error(Status::invalid_argument,
                std::string(op) + ": program: expected one even head_dim in all of its ports, got " + got);
  };
  for_each_port(program, [&](const auto& port) {
    if constexpr (requires { port.head_dim; }) {
      if (port.head_dim < 2 || port.head_dim % 2 != 0) fail(std::to_string(port.head_dim));
      if (head_dim != 0 && port.head_dim != head_dim)
        fail(std::to_string(head_dim) + " and " + std::to_string(port.head_dim));
      head_dim = port.head_dim;
    }
  });
  return head_dim;
}

/// How much a call covers: M, N and the number of tiles that partial results are of.
struct Extents {
  std::int64_t m, n, tiles_m, tiles_n;

  std::int64_t columns(Width w) const { return n * static_cast<int>(w) / static_cast<int>(Width::Same); }
};

namespace detail {

/// What a port does with its memory. `reads_tile`: at the place of each element of the accumulator, which may be
/// written there as well.
enum class Access : std::uint8_t { reads, reads_tile, writes };

/// A matrix of a port, of a shape that follows from the call's; rows that nobody knows: the largest number.
struct PortMatrix {
  ConstMatrix matrix;
  Access access;
  ViewShape view = {};
};
/// Calls f(name, PortMatrix) for each matrix of a port.
template <class P, class F>
void each_matrix(const P&, const Extents&, const F&) {}
template <class T, Width W, class F>
void each_matrix(const TileLoad<T, W>& p, const Extents& e, const F& f) {
  f("TileLoad", PortMatrix{{p.data, dtype_of<T>, e.m, e.columns(W), p.pitch}, Access::reads_tile, p.view});
}
template <class T, Width W, class F>
void each_matrix(const TileStore<T, W>& p, const Extents& e, const F& f) {
  f("TileStore", PortMatrix{{p.data, dtype_of<T>, e.m, e.columns(W), p.pitch}, Access::writes, p.view});
}
template <class T, class F>
void each_matrix(const GatherLoad<T>& p, const Extents& e, const F& f) {
  f("GatherLoad", PortMatrix{{p.data, dtype_of<T>, p.rows, e.n, p.pitch}, Access::reads});
}
template <class Op, class Acc, class F>
void each_matrix(const ReduceN<Op, Acc>& p, const Extents& e, const F& f) {
  f("ReduceN", PortMatrix{{p.data, dtype_of<Acc>, e.m, e.tiles_n, p.pitch}, Access::writes, p.view});
}
template <class Op, class Acc, class F>
void each_matrix(const ReduceM<Op, Acc>& p, const Extents& e, const F& f) {
  f("ReduceM", PortMatrix{{p.data, dtype_of<Acc>, e.tiles_m, e.n, p.pitch}, Access::writes, p.view});
}
template <class Acc, class F>
void each_matrix(const MomentsN<Acc>& p, const Extents& e, const F& f) {
  f("MomentsN", PortMatrix{{p.mean, dtype_of<Acc>, e.m, e.tiles_n, p.pitch}, Access::writes, p.view});
  f("MomentsN's m2", PortMatrix{{p.m2, dtype_of<Acc>, e.m, e.tiles_n, p.pitch}, Access::writes, p.view});
}
template <class Acc, class F>
void each_matrix(const OnlineLse<Acc>& p, const Extents& e, const F& f) {
  f("OnlineLse", PortMatrix{{p.max, dtype_of<Acc>, e.m, e.tiles_n, p.pitch}, Access::writes, p.view});
  f("OnlineLse's sum", PortMatrix{{p.sum, dtype_of<Acc>, e.m, e.tiles_n, p.pitch}, Access::writes, p.view});
}
template <class Acc, class F>
void each_matrix(const RotaryTable<Acc>& p, const Extents&, const F& f) {
  f("RotaryTable", PortMatrix{{p.table, dtype_of<Acc>, p.rows, p.head_dim}, Access::reads});
}

/// Calls f(name, its elements, the number it has to have) for each vector of a port.
template <class P, class F>
void each_vector(const P&, const Extents&, const F&) {}
template <class T, class F>
void each_vector(const ColVector<T>& p, const Extents& e, const F& f) {
  f("ColVector", p.data, e.m);
}
template <class T, Width W, class F>
void each_vector(const RowVector<T, W>& p, const Extents& e, const F& f) {
  f("RowVector", p.data, e.columns(W));
}
template <class Acc, class F>
void each_vector(const TargetSelect<Acc>& p, const Extents& e, const F& f) {
  f("TargetSelect", p.data, e.m), f("TargetSelect's index", p.index, e.m);
}
template <class F>
void each_vector(const OneHot& p, const Extents& e, const F& f) {
  f("OneHot's index", p.index, e.m);
}
template <class T, class F>
void each_vector(const GatherLoad<T>& p, const Extents& e, const F& f) {
  f("GatherLoad's index", p.index, e.m);
}
template <class Acc, class F>
void each_vector(const RotaryTable<Acc>& p, const Extents& e, const F& f) {
  f("RotaryTable's position", p.position, e.m);
}
template <class T, class F>
void each_vector(const HeadVector<T>& p, const Extents&, const F& f) {
  f("HeadVector's q", p.q, p.head_dim), f("HeadVector's k", p.k, p.head_dim);
}

/// What a port cannot do without, if that is missing.
template <class P>
const char* missing_part(const P&, const Extents&) {
  return nullptr;
}
template <class T>
const char* missing_part(const GatherLoad<T>& p, const Extents&) {
  return p.data ? nullptr : "GatherLoad with a matrix";
}
template <class Acc>
const char* missing_part(const MomentsN<Acc>& p, const Extents&) {
  return !p.mean == !p.m2 ? nullptr : "second output of MomentsN";
}
template <class Acc>
const char* missing_part(const OnlineLse<Acc>& p, const Extents&) {
  return !p.max == !p.sum ? nullptr : "second output of OnlineLse";
}
template <class Acc>
const char* missing_part(const RotaryTable<Acc>& p, const Extents&) {
  return p.table || p.columns <= 0 ? nullptr : "RotaryTable with a table";
}
template <class T>
const char* missing_part(const HeadVector<T>& p, const Extents& e) {
  const std::int64_t columns = std::min(p.columns, e.n);
  if (!p.q && p.q_columns > 0 && columns > 0) return "HeadVector with weights of the q heads";
  return p.k || columns <= p.q_columns ? nullptr : "HeadVector with weights of the k heads";
}

}  // namespace detail

/// M, N and K of a product.
struct ProductSize {
  std::int64_t m, n, k;
};

/// What the operands say of them. Throws Error(invalid_argument) if there is no such layout, if a size is below 0, or
/// if the inner dimensions differ.
inline ProductSize product_size(const char* op, const ConstMatrix& a, const ConstMatrix& b, Layout layout) {
  const auto fail = [&](const std::string& text) {
    throw Error(Status::invalid_argument, std::string(op) + ": " + text);
  };
  if (layout != Layout::nt && layout != Layout::nn && layout != Layout::tn) {
    fail("layout: expected nt, nn or tn, got " + std::to_string(static_cast<int>(layout)));
  }
  const auto check_sizes = [&](const std::string& name, const ConstMatrix& m) {
    if (m.rows >= 0 && m.cols >= 0) return;
    fail(name + ": expected sizes of at least 0, got (" + std::to_string(m.rows) + ", " + std::to_string(m.cols) + ")");
  };
  check_sizes("a", a), check_sizes("b", b);
  const bool a_is_km = layout == Layout::tn, b_is_kn = layout != Layout::nt;
  const ProductSize p{a_is_km ? a.cols : a.rows, b_is_kn ? b.cols : b.rows, a_is_km ? a.rows : a.cols};
  const std::int64_t kb = b_is_kn ? b.rows : b.cols;
  if (kb != p.k) {
    fail("b: expected an inner dimension of " + std::to_string(p.k) + ", as a has in layout " + name_of(layout) +
         ", got " + std::to_string(kb));
  }
  return p;
}

/// Throws Error(invalid_argument) if an operand of a product, which has elements, is null or its rows overlap.
template <class T>
void check_operand(const char* op, const char* name, const MatrixOf<T>& m) {
  const auto fail = [&](const std::string& text) {
    throw Error(Status::invalid_argument, std::string(op) + ": " + name + ": expected " + text);
  };
  if (!m.data) fail("a matrix, got a null pointer");
  if (m.rows > 1 && m.pitch < m.cols) {
    fail("a pitch of at least " + std::to_string(m.cols) + ", got " + std::to_string(m.pitch));
  }
}

namespace detail {

// Apart from the templates that call them, of which there is one for each program.
[[noreturn]] inline void fail(const char* op, const std::string& expected, const std::string& got) {
  throw Error(Status::invalid_argument, std::string(op) + ": " + expected + ", got " + got);
}
[[noreturn]] inline void fail_port(const char* op, const std::string& expected, const std::string& got) {
  fail(op, "program: expected a " + expected, got);
}
inline std::string shape_text(std::int64_t rows, std::int64_t cols) {
  std::string text = "(";
  text += std::to_string(rows);
  text += ", ";
  text += std::to_string(cols);
  text += ")";
  return text;
}
inline void check_matrix(const char* op, const char* port, const ConstMatrix& x, const ViewShape& view) {
  if (!x.data) return;
  if (view.rows != kUnknownSize && (view.rows != x.rows || view.cols != x.cols)) {
    fail_port(op, std::string(port) + " of shape " + shape_text(x.rows, x.cols), shape_text(view.rows, view.cols));
  }
  if (x.rows > 1 && x.pitch < x.cols) {
    fail_port(op, std::string(port) + " of " + std::to_string(x.cols) + " columns",
              "a pitch of " + std::to_string(x.pitch));
  }
}
inline void check_vector(const char* op, const char* port, std::int64_t size, std::int64_t expected) {
  if (size != kUnknownSize && size != expected) {
    fail_port(op, std::string(port) + " of " + std::to_string(expected) + " elements", std::to_string(size));
  }
}

/// What a call reads and writes, as an operand of the product or through a port.
struct Memory {
  const char* name;
  Footprint footprint;
  Access access;
};
inline Memory memory_of(const char* name, const PortMatrix& x) {
  ConstMatrix known = x.matrix;
  if (known.rows == std::numeric_limits<std::int64_t>::max()) known.rows = 1;
  return {name, Footprint(known), x.access};
}
template <class T>
Memory memory_of(const char* name, const Elements<T>& x, std::int64_t size) {
  using E = std::remove_const_t<T>;
  return {name, Footprint(ConstVector(x.data, dtype_of<E>, size)), std::is_const_v<T> ? Access::reads : Access::writes};
}
inline Memory memory_of(const char* name, const IndexVector& x, std::int64_t size) {
  return {name, Footprint(ConstVector(x.data, x.wide ? DType::int64 : DType::int32, size)), Access::reads};
}
/// Each output has memory of its own, but that a tile may be overwritten in place.
inline void check_overlaps(const char* op, std::span<const Memory> all) {
  for (const Memory& out : all) {
    if (out.access != Access::writes) continue;
    for (const Memory& other : all) {
      if (&other == &out || !out.footprint.overlaps(other.footprint)) continue;
      const bool tile = other.access == Access::reads_tile;
      if (tile && out.footprint == other.footprint) continue;
      fail_port(op, std::string(out.name) + " with memory of its own",
                std::string("memory that overlaps ") + other.name + (tile ? " without being exactly it" : ""));
    }
  }
}

}  // namespace detail

/// Throws Error(invalid_argument) if M or N is below 0, if N is odd and a port half as wide, if a view that a port was
/// made of has another shape than the call reads or writes, if a row of a matrix does not fit its pitch, if a port that
/// cannot be absent is, or if what a port writes overlaps an operand of the product or what another port has (a
/// TileLoad may be overwritten in place). A call of no rows or columns reads and writes nothing.
template <class P>
void check_ports(const char* op, const P& program, const Extents& extents, const ConstMatrix& a = {},
                 const ConstMatrix& b = {}) {
  if (extents.m < 0 || extents.n < 0) {
    detail::fail(op, "M, N: expected sizes of at least 0",
                 std::to_string(extents.m) + ", " + std::to_string(extents.n));
  }
  if (extents.m == 0 || extents.n == 0) return;
  constexpr std::size_t kMost = 2 + 2 * kPortCount<P>;  // no port has more than two
  std::array<detail::Memory, kMost> memory;
  std::size_t count = 0;
  memory[count++] = {"operand a", Footprint(a), detail::Access::reads};
  memory[count++] = {"operand b", Footprint(b), detail::Access::reads};
  for_each_port(program, [&](const auto& port) {
    if constexpr (requires { port.width; }) {
      if (port.width == Width::Half && port.data && extents.n % 2 != 0) {
        detail::fail(op, "N: expected an even number, since a port is half as wide", std::to_string(extents.n));
      }
    }
    if (const char* missing = detail::missing_part(port, extents)) detail::fail_port(op, missing, "a null pointer");
    detail::each_matrix(port, extents, [&](const char* name, const detail::PortMatrix& x) {
      detail::check_matrix(op, name, x.matrix, x.view);
      memory[count++] = detail::memory_of(name, x);
    });
    detail::each_vector(port, extents, [&](const char* name, const auto& x, std::int64_t expected) {
      detail::check_vector(op, name, x.size, expected);
      memory[count++] = detail::memory_of(name, x, expected);
    });
    if constexpr (kIsHeadMean<std::remove_cvref_t<decltype(port)>>) {
      const std::int64_t columns = std::min(port.columns, extents.n);
      if (columns > 0 && columns % port.head_dim != 0) {
        detail::fail_port(op, "HeadMean of whole heads of " + std::to_string(port.head_dim) + " columns",
                          std::to_string(columns));
      }
    }
  });
  detail::check_overlaps(op, std::span(memory).first(count));
}

}  // namespace coda
