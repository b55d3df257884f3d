// Loops over a row of any length in whole vector registers: what attention and the separate passes of the unfused chain
// are written with. Every sum has a fixed order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "coda/epilogue/math.h"
#include "coda/epilogue/simd.h"

namespace coda::nn {

template <class T>
using Lane = Simd<acc_t<T>, kLanes<acc_t<T>>>;

/// A run of `count` columns from `first` on; fewer than a register holds only at the end of a row.
struct Columns {
  std::int64_t first;
  int count;
};

/// f(columns) for each register's worth of 0 .. n-1.
template <class T, class F>
CODA_FN void for_columns(std::int64_t n, const F& f) {
  constexpr int lanes = kLanes<acc_t<T>>;
  std::int64_t c = 0;
  for (; c + lanes <= n; c += lanes) f(Columns{c, lanes});
  if (c < n) f(Columns{c, static_cast<int>(n - c)});
}

/// Lanes past the end of the row are `outside`.
template <class T>
CODA_FN Lane<T> load(const T* row, Columns at, acc_t<T> outside = 0) {
  constexpr int lanes = kLanes<acc_t<T>>;
  if (at.count == lanes) [[likely]]
    return coda::load_as<lanes>(row + at.first);
  acc_t<T> values[lanes];
  for (int i = 0; i < lanes; ++i) values[i] = i < at.count ? static_cast<acc_t<T>>(row[at.first + i]) : outside;
  return Lane<T>::load(values);
}

template <class T>
CODA_FN void store(T* row, Columns at, Lane<T> x) {
  constexpr int lanes = kLanes<acc_t<T>>;
  if (at.count == lanes) [[likely]]
    return coda::store_as<lanes>(row + at.first, x);
  for (int i = 0; i < at.count; ++i) row[at.first + i] = static_cast<T>(x[i]);
}

template <class V>
CODA_FN auto sum_lanes(V x) {
  return fold_lanes(x, [](V a, V b) { return a + b; });
}

/// The sum over a row of term(columns), whose lanes past the end must be 0.
template <class T, class F>
CODA_FN acc_t<T> sum_columns(std::int64_t n, const F& term) {
  Lane<T> sum(acc_t<T>(0));
  for_columns<T>(n, [&](Columns at) { sum = sum + term(at); });
  return sum_lanes(sum);
}

}  // namespace coda::nn
