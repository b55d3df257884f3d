// Tile: what a program sees of the tile that it works on. A backend derives from it and provides, for each port,
// `load_port`, `store_port` or `reduce_port`; what the rule of locality forbids is refused here, in one line.
#pragma once

#include "coda/epilogue/program.h"

namespace coda {

namespace detail {

template <class P>
struct Storable : std::false_type {
  static constexpr Width width = Width::Same;
};
template <class T, Width W>
struct Storable<TileStore<T, W>> : std::true_type {
  static constexpr Width width = W;
};
template <class T>
struct Storable<ColVector<T>> : std::bool_constant<!std::is_const_v<T>> {
  static constexpr Width width = Width::Same;
};
template <class T, Width W>
struct Storable<RowVector<T, W>> : std::bool_constant<!std::is_const_v<T>> {
  static constexpr Width width = W;
};

/// Whether a port folds in another type than the program computes in.
template <class P, class S>
inline constexpr bool kInAnotherPrecision = false;
template <class P, class S>
  requires requires { typename P::accumulator; }
inline constexpr bool kInAnotherPrecision<P, S> = !std::is_same_v<typename P::accumulator, S>;

}  // namespace detail

/// `Same` is the fragment type of the accumulator: Fragment<S, Count>; the backend names its element type
/// `accumulator`.
template <class Backend, class Same>
class Tile {
 public:
  using scalar = typename Same::scalar;
  template <Width W>
  using fragment = Fragment<scalar, Same::count* static_cast<int>(W) / static_cast<int>(Width::Same), W>;

  /// The port's values under this fragment.
  template <class P>
  CODA_FN auto load(const P& port) const {
    static_assert(
        requires(const Backend& b) { b.load_port(port); },
        "coda: tile.load takes a port that can be read: ColVector, RowVector, TileLoad, GatherLoad, OneHot, "
        "RotaryTable, HeadVector or HeadMean");
    if constexpr (requires(const Backend& b) { b.load_port(port); }) {
      return self().load_port(port);
    } else {
      return fragment<Width::Same>{};
    }
  }

  template <class P>
  CODA_FN auto load(const P&&) const {
    static_assert(detail::kNever<P>, "coda: tile.load takes a member of the program: a backend finds it by its place");
    return fragment<Width::Same>{};
  }

  /// Stores a fragment; it has the port's width.
  template <class P, class V>
  CODA_FN void store(const P& port, const V& value) const {
    static_assert(AnyFragment<V>, "coda: tile.store takes a fragment: load the port first, with tile.load(port)");
    if constexpr (AnyFragment<V>) {
      static_assert(detail::Storable<P>::value,
                    "coda: tile.store takes a TileStore, or a ColVector or RowVector whose element type is not const");
      if constexpr (detail::Storable<P>::value) {
        static_assert(V::width == detail::Storable<P>::width,
                      "coda: tile.store: the fragment's width is not the port's: contract() or expand() it, or declare "
                      "the port Width::Half or Width::Double");
        if constexpr (V::width == detail::Storable<P>::width) self().store_port(port, value);
      }
    }
  }

  template <class P, class V>
  CODA_FN void store(const P&&, const V&) const {
    static_assert(detail::kNever<P>, "coda: tile.store takes a member of the program: only that one's view is checked");
  }

  /// The fragment as whoever reads the port's matrix will see it: rounded to its type. As it is if the call has none.
  template <class T, Width W, class V>
  CODA_FN V as_stored(const TileStore<T, W>& port, const V& value) const {
    static_assert(AnyFragment<V>, "coda: tile.as_stored takes a fragment: load the port first, with tile.load(port)");
    if constexpr (AnyFragment<V>) {
      static_assert(
          V::width == W,
          "coda: tile.as_stored: the fragment's width is not the port's: contract() or expand() it, or declare "
          "the port Width::Half or Width::Double");
      if constexpr (V::width == W && sizeof(T) < sizeof(typename Backend::accumulator)) {
        return port.data ? self().template rounded<T>(value) : value;
      }
    }
    return value;
  }

  /// Folds a fragment, of any width, into a reduction or a stateful transform.
  template <class P, class V>
  CODA_FN void reduce(const P& port, const V& value) const {
    static_assert(AnyFragment<V>, "coda: tile.reduce takes a fragment: load the port first, with tile.load(port)");
    constexpr bool other = detail::kInAnotherPrecision<P, typename Backend::accumulator>;
    static_assert(!other,
                  "coda: tile.reduce: the port folds in another type than the program computes in: on matrices "
                  "of double declare it with double, as ReduceN<Sum, double>, on others with float");
    if constexpr (AnyFragment<V> && !other) {
      static_assert(
          requires(const Backend& b) { b.reduce_port(port, value); },
          "coda: tile.reduce takes a ReduceN, ReduceM, MomentsN, OnlineLse, TargetSelect or HeadMean, and a "
          "fragment of the accumulator's width wherever the port keeps columns apart");
      if constexpr (requires(const Backend& b) { b.reduce_port(port, value); }) self().reduce_port(port, value);
    }
  }

  template <class P, class V>
  CODA_FN void reduce(const P&&, const V&) const {
    static_assert(detail::kNever<P>, "coda: tile.reduce takes a member of the program: what a copy folds is lost");
  }

 private:
  CODA_FN const Backend& self() const { return static_cast<const Backend&>(*this); }
};

}  // namespace coda
