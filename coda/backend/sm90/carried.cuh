// Which TileStore of a program and which of its TileLoads the bulk copy engine moves, behind and ahead of the threads.
// All other matrices are moved by the threads.
#pragma once

#include <cstdint>

#include "coda/epilogue/program.h"

namespace coda::sm90 {

/// What the choice needs to know of a port's type.
struct MatrixPort {
  bool load = false, store = false;
  Width width = Width::Same;
  DType dtype = DType::fp32;
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

/// The widest store, since it has most to gain; of equals the last, as optional ones are declared first.
template <class Program>
constexpr Carried choose_store() {
  Carried best;
  int number = 0;
  const Program program{};
  for_each_port(program, [&](const auto& port) {
    constexpr MatrixPort m = kMatrixPort<std::remove_cvref_t<decltype(port)>>;
    if (m.store && carriable(m)) {
      if (best.port < 0 || static_cast<int>(m.width) >= static_cast<int>(best.width)) best = {number, m.width, m.dtype};
    }
    ++number;
  });
  return best;
}

}  // namespace detail

template <class Program>
inline constexpr Carried kCarriedStore = detail::choose_store<Program>();

/// Ports that a kernel knows to be absent, a bit for each number: what they would do is not compiled into it.
using PortMask = std::uint32_t;

/// The carried loads of a kernel.
struct CarriedLoads {
  static constexpr int kMost = 4;
  Carried port[kMost];
  int count = 0;
};
template <class Program, PortMask Absent>
inline constexpr CarriedLoads kCarriedLoads = [] {
  CarriedLoads loads;
  int number = 0;
  const Program program{};
  for_each_port(program, [&](const auto& port) {
    constexpr MatrixPort m = kMatrixPort<std::remove_cvref_t<decltype(port)>>;
    if (m.load && detail::carriable(m) && !(Absent >> number & 1) && loads.count < CarriedLoads::kMost)
      loads.port[loads.count++] = {number, m.width, m.dtype};
    ++number;
  });
  return loads;
}();

/// f(port) with the program's port of that number, if there is one.
template <int Number, class Program, class F>
CODA_FN void visit_port(Program& program, const F& f) {
  int number = 0;
  for_each_port(program, [&](auto& port) {
    if (number++ == Number) f(port);
  });
}

/// Whether `port`, a member of the program, is the one of that number. Both addresses are of one local struct, so the
/// compiler knows the answer.
template <int Number, class Program>
CODA_FN bool is_port(const Program& program, const void* port) {
  bool same = false;
  visit_port<Number>(program, [&](const auto& p) { same = static_cast<const void*>(&p) == port; });
  return same;
}

template <PortMask Mask, class Program>
CODA_FN bool is_masked(const Program& program, const void* port) {
  bool masked = false;
  int number = 0;
  for_each_port(program, [&](const auto& p) {
    if (Mask >> number++ & 1) masked = masked || static_cast<const void*>(&p) == port;
  });
  return masked;
}

/// The ports without an address in this call.
template <class Program>
PortMask absent_ports(const Program& program) {
  PortMask mask = 0;
  int number = 0;
  for_each_port(program, [&](const auto& p) {
    if constexpr (requires { p.data; }) mask |= PortMask(p.data == nullptr) << number;
    ++number;
  });
  return mask;
}

}  // namespace coda::sm90
