// The judgement of one output by the accuracy criteria, with the figures that it rests on.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "tests/support/accuracy.h"

namespace coda::cli {

struct Verdict {
  std::string output;
  double error = 0;           // max |out - ref|
  double bound = 0;           // 2 max |chain - ref| + `slack` units in the last place
  double relative = 0;        // norm of (out - ref) over the norm of ref
  double relative_limit = 0;  // a tile has its own, by its size
  std::string failure;        // empty: passed
  bool passed() const { return failure.empty(); }
};

/// How far an output may be off. `stored` is its type, `type` that of the program's matrices: a 16-bit program also has
/// fp32 outputs. The contract is for 16-bit ones: one unit in the last place, and a relative error of 1e-2. In fp32 and
/// fp64 the chain has the program's own precision and sums in another order, so that units in the last place come on
/// top; more of them where there are few values, one of which may be a sum that cancels. Of a handful in fp32 the
/// unfused 16-bit chain may have been lucky with all: they get the 16-bit type's unit, too.
struct Limits {
  double slack, relative;
};
inline Limits limits(DType stored, DType type, std::int64_t size) {
  const double few = 1 + 16 / std::sqrt(static_cast<double>(size));
  double slack = size_of(stored) == 2 ? 1 : (stored == DType::fp64 ? 512 : 64) * few;
  if (size_of(type) == 2 && size_of(stored) > 2 && size <= 4) slack += test::ulp_at(type, 1) / test::ulp_at(stored, 1);
  const double relative = size_of(type) == 2 ? 1e-2 : (type == DType::fp64 ? 1e-12 : 1e-5) * few;
  return {slack, relative};
}

inline Verdict judge(const std::string& output, const test::Mat& out, const test::Mat& ref, const test::Mat& chain,
                     DType stored, DType type) {
  Verdict v;
  v.output = output;
  const Limits l = limits(stored, type, static_cast<std::int64_t>(ref.v.size()));
  v.relative_limit = l.relative;
  v.failure = test::check_relative(output, out, ref, stored, [&](std::int64_t size) {  // of the shape, too
    return limits(stored, type, size).relative;
  });
  if (out.rows != ref.rows || out.cols != ref.cols) return v;
  const test::Deviation d = test::deviation(out, ref, chain, stored);
  v.error = d.error, v.relative = d.relative;
  v.bound = 2 * d.chain_error + l.slack * d.tiny;
  if (!v.failure.empty()) return v;
  if (size_of(stored) == 2) {
    v.failure = test::check_bound(output, out, ref, chain, stored);
  } else if (!(v.error <= v.bound)) {
    v.failure = fmt::format("{}: got {}, expected {} at row {}, column {} of ({}, {}): error {} > bound {}", output,
                            out(d.row, d.col), ref(d.row, d.col), d.row, d.col, ref.rows, ref.cols, v.error, v.bound);
  }
  return v;
}

}  // namespace coda::cli
