// The row terms that a backward program reduces for the norm before its layer.
#pragma once

#include "tests/programs/harness.h"

namespace coda::test {

/// Row terms of the norm before a projection: sums over blocks of z dz, or of dz (z - c) and dz u.
struct Dot {
  Mat zdz, udz;
};
inline Dot dots(const Mat& z, const Mat& dz, const Vec& u, const Vec& shift, std::int64_t block, Round r) {
  const auto sums = [&](auto term) { return reference::block_sums(z.rows, z.cols, block, r, term); };
  return {sums([&](std::int64_t m, std::int64_t n) { return (z(m, n) - (shift.empty() ? 0 : shift[n])) * dz(m, n); }),
          reference::size(u) != z.cols ? Mat() : sums([&](std::int64_t m, std::int64_t n) { return u[n] * dz(m, n); })};
}

/// Asks for none, zdz, or LayerNorm's pair with or without c.
struct DotInput {
  Vec u, shift;
  ops::NormDot ops;
};
inline DotInput draw_dot(Case& c, std::int64_t form, std::int64_t tiles, std::int64_t width) {
  DotInput x;
  if (form == 0) return x;
  x.ops.zdz = c.out("zdz", c.m, tiles, c.stats);
  if (form == 1) return x;
  x.ops.udz = c.out("udz", c.m, tiles, c.stats);
  x.u = c.draw_vec(width, 1, c.stats);
  x.ops.u = c.vec(x.u, c.stats);
  if (form == 2) return x;
  x.shift = c.draw_vec(width, 1, c.stats);
  x.ops.c = c.vec(x.shift, c.stats);
  return x;
}

}  // namespace coda::test
