// What random programs are made of: functions that take integers of at most 30 to such ones.
#pragma once

#include "coda/epilogue/fragment.h"

namespace coda::test::random_programs {

struct Clamp {
  template <class S>
  CODA_FN auto operator()(S x) const {
    using C = base_t<S>;
    return at_most(at_least(x, C(-30)), C(30));
  }
};
struct Magnitude {
  template <class S>
  CODA_FN auto operator()(S x) const {
    return abs(x);
  }
};
struct Difference {
  template <class S>
  CODA_FN auto operator()(S even, S odd) const {
    return Clamp{}(even - odd);
  }
};
struct Product {
  template <class S>
  CODA_FN auto operator()(S even, S odd) const {
    return Clamp{}(even * odd);
  }
};
/// Of a pair, with a derivative that is an integer as well.
struct Gate {
  template <class G, class U>
  CODA_FN auto operator()(G gate, U up) const {
    return Clamp{}(relu(gate) * up);
  }
};
struct Mirror {
  template <class S>
  CODA_FN Pair<S> operator()(S x) const {
    return {x, -x};
  }
};
struct Turn {
  template <class S>
  CODA_FN Pair<S> operator()(S x, S y, S c, S s) const {
    return {Clamp{}(x * c - y * s), Clamp{}(y + c)};
  }
};

}  // namespace coda::test::random_programs
