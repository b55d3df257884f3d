// How a fused kernel moves the matrices of a program: one TileStore and the first TileLoads by the bulk copy engine,
// behind and ahead of the threads; all others by the threads, of which some are asked for ahead of their use.
#pragma once

#include <cstdint>

#include "coda/backend/sm90/fragment.cuh"
#include "coda/epilogue/program.h"

namespace coda::sm90 {

/// What the choice needs to know of a port's type.
struct MatrixPort {
  bool load = false, store = false;
  Width width = Width::Same;
  DType dtype = DType::fp32;

  /// Words of a thread's row of a patch.
  constexpr int words() const {
    const int columns = width == Width::Half     ? Accumulator::count / 2
                        : width == Width::Double ? Accumulator::count * 2
                                                 : Accumulator::count;
    return load || store ? columns * static_cast<int>(size_of(dtype)) / 4 : 0;
  }
};
template <class P>
inline constexpr MatrixPort kMatrixPort{};  // no designators below: nvcc 12.4 fails at them
template <class T, Width W>
inline constexpr MatrixPort kMatrixPort<TileLoad<T, W>>{true, false, W, dtype_of<T>};
template <class T, Width W>
inline constexpr MatrixPort kMatrixPort<TileStore<T, W>>{false, true, W, dtype_of<T>};

/// A port by its number in the program's order; -1: none.
struct Carried {
  int port = -1;
  Width width = Width::Same;
  DType dtype = DType::bf16;

  /// A matrix twice as wide is one of pairs, as wide as the accumulator.
  constexpr bool pairs() const { return width == Width::Double; }
  /// Bytes of one column of the accumulator.
  constexpr int bytes() const { return static_cast<int>(size_of(dtype)) * (pairs() ? 2 : 1); }
};

namespace detail {

constexpr bool carriable(const MatrixPort& p) {
  return p.width == Width::Same ? size_of(p.dtype) <= 4 : p.width == Width::Double && size_of(p.dtype) == 2;
}

template <class P>
constexpr int words_of_vector(const P&) {
  return 0;
}
template <class T, Width W>
constexpr int words_of_vector(const RowVector<T, W>&) {
  return MatrixPort{true, false, W, dtype_of<std::remove_const_t<T>>}.words();
}

/// The widest store, since it has most to gain; of equals the last, as optional ones are declared first.
template <class Program>
constexpr Carried choose_store() {
  Carried best;
  const Program program{};
  for_each_numbered_port(program, [&](const auto& port, auto number) {
    constexpr MatrixPort m = kMatrixPort<std::remove_cvref_t<decltype(port)>>;
    if (m.store && carriable(m)) {
      if (best.port < 0 || static_cast<int>(m.width) >= static_cast<int>(best.width)) best = {number, m.width, m.dtype};
    }
  });
  return best;
}

}  // namespace detail

template <class Program>
inline constexpr Carried kCarriedStore = detail::choose_store<Program>();

/// Ports that a kernel knows to be absent, a bit for each number: what they would do is not compiled into it.
using PortMask = std::uint32_t;
constexpr bool is_in(PortMask mask, int port_number) { return port_number < 32 && (mask >> port_number & 1); }

/// The carried loads of a kernel. What they and the store have under way takes shared memory from stages of operands:
/// so many bytes of a column leave four of those.
struct CarriedLoads {
  static constexpr int kMost = 4, kMostBytes = 6;
  Carried port[kMost];
  int count = 0;

  /// Which of them a program's port is; -1: none.
  constexpr int number_of(int port_number) const {
    for (int i = 0; i < count; ++i) {
      if (port[i].port == port_number) return i;
    }
    return -1;
  }
};

namespace detail {

template <class Program, PortMask Absent>
consteval CarriedLoads choose_loads() {
  CarriedLoads loads;
  const int of_store = kCarriedStore<Program>.bytes();
  int bytes = of_store;
  const Program program{};
  for_each_numbered_port(program, [&](const auto& port, auto number) {
    constexpr MatrixPort m = kMatrixPort<std::remove_cvref_t<decltype(port)>>;
    if (!m.load || !carriable(m) || is_in(Absent, number) || loads.count == CarriedLoads::kMost) return;
    const Carried load{number, m.width, m.dtype};
    // The store takes the place of the first one, if that is as large.
    const int more = loads.count == 0 && load.bytes() == of_store ? 0 : load.bytes();
    if (bytes + more > CarriedLoads::kMostBytes) return;
    bytes += more;
    loads.port[loads.count++] = load;
  });
  return loads;
}

}  // namespace detail

template <class Program, PortMask Absent>
inline constexpr CarriedLoads kCarriedLoads = detail::choose_loads<Program, Absent>();

/// Whether a fused kernel asks for the next row of that port while it works on this one: registers hold what is on its
/// way, as many words as the accumulator has. Angles have them to themselves.
template <class Program, PortMask Absent>
consteval bool asks_ahead(int port_number) {
  int words = 0;
  bool asks = false;
  const Program program{};
  for_each_port(program, [&](const auto& port) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(port)>, RotaryTable<float>>) words = Accumulator::count;
  });
  for_each_numbered_port(program, [&](const auto& port, auto number) {
    constexpr MatrixPort m = kMatrixPort<std::remove_cvref_t<decltype(port)>>;
    if (!m.load || kCarriedLoads<Program, Absent>.number_of(number) >= 0) return;
    if (words + m.words() > Accumulator::count) return;
    words += m.words();
    asks = asks || number == port_number;
  });
  return asks;
}

namespace detail {

/// Words of a thread's row of all matrices, and of the vectors along n.
template <class Program>
consteval int words_of_row() {
  int words = 0;
  const Program program{};
  for_each_port(program, [&](const auto& port) {
    words += words_of_vector(port) + kMatrixPort<std::remove_cvref_t<decltype(port)>>.words();
  });
  return words;
}
inline constexpr int kMostWordsOfTwoRows = 24;  // of each; above, ptxas spills

}  // namespace detail

/// Whether a thread should have one row of a program in registers at a time, not two; where nobody has tuned it.
template <class Program>
inline constexpr bool kHasLongRows = detail::words_of_row<Program>() > detail::kMostWordsOfTwoRows;
template <>
inline constexpr bool kHasLongRows<void> = false;

/// Subtiles of the carried loads under way, where nobody has tuned a program: fewer of wide ones, to whose place the
/// store does not come.
template <class Program>
consteval int load_stages() {
  const Carried first = kCarriedLoads<Program, 0>.port[0];
  return first.port >= 0 && first.bytes() > 2 && first.bytes() != kCarriedStore<Program>.bytes() ? 2 : 4;
}
template <>
consteval int load_stages<void>() {
  return 4;
}

/// f(port) with the program's port of that number, if there is one.
template <int Number, class Program, class F>
CODA_FN void visit_port(Program& program, const F& f) {
  for_each_numbered_port(program, [&](auto& port, auto number) {
    if constexpr (number == Number) f(port);
  });
}

template <PortMask Mask, class Program>
CODA_FN bool is_masked(const Program& program, const void* port) {
  bool masked = false;
  for_each_numbered_port(program, [&](const auto& p, auto number) {
    if constexpr (is_in(Mask, number)) masked = masked || static_cast<const void*>(&p) == port;
  });
  return masked;
}

/// The ports without an address in this call.
template <class Program>
PortMask absent_ports(const Program& program) {
  PortMask mask = 0;
  for_each_numbered_port(program, [&](const auto& p, auto number) {
    if constexpr (requires { p.data; } && number < 32) mask |= PortMask(p.data == nullptr) << number;
  });
  return mask;
}

}  // namespace coda::sm90
