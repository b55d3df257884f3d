#include "tests/support/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iomanip>
#include <limits>
#include <sstream>

namespace coda::test {
namespace {

struct Format {
  int mantissa;      // stored bits
  int min_exponent;  // of the smallest normal
  int max_exponent;  // values from 2^max_exponent overflow
};

Format format_of(DType type) {
  switch (type) {
    case DType::bf16:
      return {7, -126, 128};
    case DType::fp16:
      return {10, -14, 16};
    case DType::fp32:
      return {23, -126, 128};
    default:
      return {52, -1022, 1024};
  }
}

/// An infinity counts as the first value that the type cannot hold, and so does everything larger: an output that
/// overflows where it must is right, one that overflows early is wrong by a finite amount.
double overflow_of(DType type) {
  return type == DType::fp64 ? std::numeric_limits<double>::max() : std::ldexp(1.0, format_of(type).max_exponent);
}
double clipped(double x, double overflow) { return std::isnan(x) ? x : std::clamp(x, -overflow, overflow); }

template <class... Args>
std::string text(const Args&... args) {
  std::ostringstream s;
  s << std::setprecision(9);
  (s << ... << args);
  return s.str();
}

std::string shape_of(const Mat& x) { return text("(", x.rows, ", ", x.cols, ")"); }

std::string place(const Mat& x, std::int64_t m, std::int64_t n, TileShape tile = {}) {
  return text(" at row ", m, ", column ", n, " of ", shape_of(x), ", tile (", m / tile.rows, ", ", n / tile.cols, ")");
}

std::string shapes_differ(const std::string& name, const char* other, const Mat& out, const Mat& x) {
  if (out.rows == x.rows && out.cols == x.cols) return {};
  return name + ": shape " + shape_of(out) + ", " + other + " has " + shape_of(x);
}

/// The first NaN of the output, or of the reference: a reference that is NaN proves nothing.
std::string find_nan(const std::string& name, const Mat& out, const Mat& ref, TileShape tile = {}) {
  for (std::int64_t m = 0; m < ref.rows; ++m)
    for (std::int64_t n = 0; n < ref.cols; ++n) {
      if (std::isnan(ref(m, n))) return name + ": the reference is nan" + place(ref, m, n, tile);
      if (std::isnan(out(m, n))) return text(name, ": got nan, expected ", ref(m, n), place(ref, m, n, tile));
    }
  return {};
}

}  // namespace

double ulp_at(DType type, double x) {
  const Format f = format_of(type);
  const double magnitude = std::fabs(clipped(x, overflow_of(type)));
  const int exponent = magnitude > 0.0 ? std::max(std::ilogb(magnitude), f.min_exponent) : f.min_exponent;
  return std::ldexp(1.0, std::min(exponent, f.max_exponent - 1) - f.mantissa);
}

Deviation deviation(const Mat& out, const Mat& ref, const Mat& chain, DType type) {
  Deviation d;
  const double overflow = overflow_of(type);
  double largest = 0.0, error_squares = 0.0, squares = 0.0;
  for (std::int64_t m = 0; m < ref.rows; ++m)
    for (std::int64_t n = 0; n < ref.cols; ++n) {
      const double expected = clipped(ref(m, n), overflow);
      const double error = std::fabs(clipped(out(m, n), overflow) - expected);
      if (!(error <= d.error) && !std::isnan(d.error)) d.error = error, d.row = m, d.col = n;  // the first NaN stays
      largest = std::max(largest, std::fabs(expected));
      error_squares += error * error;
      squares += expected * expected;
      const double chain_error = std::fabs(clipped(chain(m, n), overflow) - expected);
      if (std::isfinite(chain(m, n)) || !(std::fabs(expected) < overflow)) {
        d.chain_error = std::max(d.chain_error, std::isnan(chain_error) ? 0.0 : chain_error);
      } else {
        ++d.overflowed;
      }
    }
  d.tiny = ulp_at(type, largest);
  d.bound = 2.0 * d.chain_error + d.tiny;
  d.relative = squares > 0.0 ? std::sqrt(error_squares / squares) : std::sqrt(error_squares);
  return d;
}

std::string check_bound(const std::string& name, const Mat& out, const Mat& ref, const Mat& chain, DType type) {
  std::string failure = shapes_differ(name, "the reference", out, ref);
  if (failure.empty()) failure = shapes_differ(name, "the chain", out, chain);
  if (failure.empty()) failure = find_nan(name, out, ref);
  if (!failure.empty() || ref.v.empty()) return failure;
  const Deviation d = deviation(out, ref, chain, type);
  if (d.overflowed == ref.rows * ref.cols)
    return name + ": the unfused chain overflows everywhere and bounds nothing; give smaller inputs";
  if (!(d.error <= d.bound))
    return text(name, ": got ", out(d.row, d.col), ", expected ", ref(d.row, d.col), place(ref, d.row, d.col),
                ": error ", d.error, " > bound ", d.bound, " (chain ", d.chain_error, ", one ", coda::name_of(type),
                " ulp ", d.tiny, ")");
  return {};
}

std::string check_relative(const std::string& name, const Mat& out, const Mat& ref, DType type, double limit,
                           TileShape tile) {
  if (limit == 0.0) limit = type == DType::fp64 ? 1e-12 : type == DType::fp32 ? 1e-5 : 1e-2;
  return check_relative(name, out, ref, type, [limit](std::int64_t) { return limit; }, tile);
}

std::string check_relative(const std::string& name, const Mat& out, const Mat& ref, DType type,
                           const std::function<double(std::int64_t)>& limit_of, TileShape tile) {
  std::string failure = shapes_differ(name, "the reference", out, ref);
  if (failure.empty()) failure = find_nan(name, out, ref, tile);
  if (!failure.empty() || ref.v.empty()) return failure;
  const double overflow = overflow_of(type);
  const double smallest = ulp_at(type, 0.0);  // what no output of the type can resolve

  const auto check = [&](std::int64_t m0, std::int64_t m1, std::int64_t n0, std::int64_t n1, const std::string& where) {
    double error_squares = 0.0, squares = 0.0, worst = -1.0;
    std::int64_t row = m0, col = n0;
    for (std::int64_t m = m0; m < m1; ++m)
      for (std::int64_t n = n0; n < n1; ++n) {
        const double expected = clipped(ref(m, n), overflow);
        const double error = std::fabs(clipped(out(m, n), overflow) - expected);
        if (error > worst) worst = error, row = m, col = n;
        error_squares += error * error;
        squares += expected * expected;
      }
    const double error = std::sqrt(error_squares), norm = std::sqrt(squares);
    const std::int64_t count = (m1 - m0) * (n1 - n0);
    const double limit = limit_of(count), floor = smallest * std::sqrt(static_cast<double>(count));
    if (error <= limit * norm + floor) return;
    failure = text(name, ": error norm ", error, " > ", limit, " * reference norm ", norm, " (ratio ", error / norm,
                   ") over ", where, " of ", shape_of(ref), "; largest error ", worst, ": got ", out(row, col),
                   ", expected ", ref(row, col), place(ref, row, col, tile));
  };
  for (std::int64_t m = 0; m < ref.rows; m += tile.rows)
    for (std::int64_t n = 0; n < ref.cols && failure.empty(); n += tile.cols)
      check(m, std::min(ref.rows, m + tile.rows), n, std::min(ref.cols, n + tile.cols),
            text("tile (", m / tile.rows, ", ", n / tile.cols, ")"));
  if (failure.empty()) check(0, ref.rows, 0, ref.cols, "the whole");
  return failure;
}

std::string check_exact(const std::string& name, const Mat& out, const Mat& ref, TileShape tile) {
  std::string failure = shapes_differ(name, "the reference", out, ref);
  if (!failure.empty()) return failure;
  std::int64_t wrong = 0;
  for (std::int64_t m = 0; m < ref.rows; ++m)
    for (std::int64_t n = 0; n < ref.cols; ++n)
      if (!(out(m, n) == ref(m, n)) && wrong++ == 0)
        failure = text(name, ": got ", out(m, n), ", expected exactly ", ref(m, n), place(ref, m, n, tile));
  if (wrong > 0) failure += text("; ", wrong, " of ", ref.v.size(), " elements differ");
  return failure;
}

std::string check_accuracy(const std::string& name, const Mat& out, const Mat& ref, const Mat& chain, DType type) {
  std::string failure = check_bound(name, out, ref, chain, type);
  return failure.empty() ? check_relative(name, out, ref, type) : failure;
}

std::string check_bits(const std::string& name, const ConstMatrix& x, const ConstMatrix& y) {
  if (x.dtype != y.dtype || x.rows != y.rows || x.cols != y.cols)
    return text(name, ": ", coda::name_of(x.dtype), " (", x.rows, ", ", x.cols, ") and ", coda::name_of(y.dtype), " (",
                y.rows, ", ", y.cols, ") are not the same kind of matrix");
  const std::int64_t size = size_of(x.dtype);
  const auto* a = static_cast<const unsigned char*>(x.data);
  const auto* b = static_cast<const unsigned char*>(y.data);
  for (std::int64_t m = 0; m < x.rows; ++m)
    for (std::int64_t n = 0; n < x.cols; ++n) {
      const unsigned char* p = a + (m * x.pitch + n) * size;
      const unsigned char* q = b + (m * y.pitch + n) * size;
      if (std::memcmp(p, q, static_cast<std::size_t>(size)) == 0) continue;
      std::ostringstream bits;
      for (const unsigned char* e : {p, q}) {
        bits << (e == p ? ": bits 0x" : " and 0x") << std::hex << std::setfill('0');
        for (std::int64_t i = size; i-- > 0;) bits << std::setw(2) << static_cast<int>(e[i]);
      }
      return text(name, bits.str(), " differ at row ", m, ", column ", n, " of (", x.rows, ", ", x.cols, ") ",
                  coda::name_of(x.dtype), ", tile (", m / 128, ", ", n / 128, ")");
    }
  return {};
}

}  // namespace coda::test
