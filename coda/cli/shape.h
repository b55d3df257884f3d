// M, N, K of a product.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace coda::cli {

/// (M, K) times (K, N).
struct Shape {
  std::int64_t m = 0, n = 0, k = 0;
  bool operator==(const Shape&) const = default;
};
inline std::string to_string(const Shape& s) { return fmt::format("{}x{}x{}", s.m, s.n, s.k); }

}  // namespace coda::cli
