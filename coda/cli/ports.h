// What a program's ports are, read off their C++ types, so that the catalog cannot say otherwise.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "coda/cli/catalog.h"
#include "coda/epilogue/program.h"

namespace coda::cli {

/// What the type of a port does not say. Shapes are in terms of M, N, K of the product.
struct PortLabel {
  const char* name;
  const char* shape;
  bool optional = false;
};

namespace detail {

using T = bf16;  // every program is looked at with 16-bit operands

template <class E>
constexpr const char* dtype_name() {
  return std::is_same_v<std::remove_cv_t<E>, T> ? "T" : "S";
}
constexpr const char* width_suffix(Width w) {
  return w == Width::Half ? ", half width" : w == Width::Double ? ", double width" : "";
}
template <class Op>
constexpr const char* op_name() {
  return std::is_same_v<Op, Sum> ? "sum" : std::is_same_v<Op, Max> ? "max" : "abs-max";
}

using Described = std::pair<std::string, const char*>;  // kind, dtype

template <class E>
Described describe(const ColVector<E>&) {
  return {std::is_const_v<E> ? "column vector" : "column vector store", dtype_name<E>()};
}
template <class E, Width W>
Described describe(const RowVector<E, W>&) {
  return {std::string(std::is_const_v<E> ? "row vector" : "row vector store") + width_suffix(W), dtype_name<E>()};
}
template <class E, Width W>
Described describe(const TileLoad<E, W>&) {
  return {std::string("tile load") + width_suffix(W), dtype_name<E>()};
}
template <class E, Width W>
Described describe(const TileStore<E, W>&) {
  return {std::string("tile store") + width_suffix(W), dtype_name<E>()};
}
template <class Op, class E>
Described describe(const ReduceN<Op, E>&) {
  return {std::string("reduction along n, ") + op_name<Op>(), dtype_name<E>()};
}
template <class Op, class E>
Described describe(const ReduceM<Op, E>&) {
  return {std::string("reduction along m, ") + op_name<Op>(), dtype_name<E>()};
}
template <class E>
Described describe(const MomentsN<E>&) {
  return {"running mean and squared deviation along n", dtype_name<E>()};
}
template <class E>
Described describe(const OnlineLse<E>&) {
  return {"online max and sum of exp along n", dtype_name<E>()};
}
template <class E>
Described describe(const TargetSelect<E>&) {
  return {"target select", dtype_name<E>()};
}
inline Described describe(const OneHot&) { return {"one-hot of a row's index", "int32 or int64"}; }
template <class E>
Described describe(const RotaryTable<E>&) {
  return {"rotary table and positions", dtype_name<E>()};
}
template <class E>
Described describe(const GatherLoad<E>&) {
  return {"gathered row load", dtype_name<E>()};
}
template <class E>
Described describe(const HeadVector<E>&) {
  return {"vector of each head", dtype_name<E>()};
}
template <class E, int Slot>
Described describe(const HeadMean<E, Slot>&) {
  return {"mean over each head, first pass", dtype_name<E>()};
}

}  // namespace detail

/// The ports of a program P, in the order of declaration, with their labels. Throws std::logic_error if there are more
/// or fewer labels than ports.
template <class P>
std::vector<PortInfo> ports_of(const std::vector<PortLabel>& labels) {
  std::vector<PortInfo> out;
  const P program{};
  for_each_port(program, [&](const auto& port) {
    const auto [kind, dtype] = detail::describe(port);
    if (out.size() >= labels.size()) throw std::logic_error("catalog: a program has more ports than labels");
    const PortLabel& label = labels[out.size()];
    out.push_back({label.name, kind, dtype, label.shape, label.optional});
  });
  if (out.size() != labels.size())
    throw std::logic_error(std::string("catalog: a program has fewer ports than labels: no ") + labels.back().name);
  return out;
}

}  // namespace coda::cli
