// The accuracy criteria. Each check returns an empty string, or one line that names the output, the place and the
// figures. A NaN in the output always fails: comparisons are written !(error <= bound).
#pragma once

#include <functional>
#include <string>

#include "coda/core/tensor.h"
#include "coda/core/types.h"
#include "tests/reference/mat.h"
#include "tests/support/guarded.h"

namespace coda::test {

/// Rows and columns of the tiles that the checks look at one by one.
struct TileShape {
  std::int64_t rows = 128, cols = 128;
};

/// Figures of one output against its fp64 reference and against the unfused chain of the same type.
struct Deviation {
  double error = 0.0;        // max |out - ref|
  double chain_error = 0.0;  // max |chain - ref|, where the chain did not overflow
  double tiny = 0.0;         // one unit in the last place at the largest |ref|
  double bound = 0.0;        // 2 * chain_error + tiny
  double relative = 0.0;     // norm of (out - ref) over the norm of ref
  std::int64_t row = 0, col = 0;
  std::int64_t overflowed = 0;  // elements where the chain is infinite or NaN and the reference fits the type
};

/// One unit in the last place of `type` at x; at least its smallest subnormal.
double ulp_at(DType type, double x);

Deviation deviation(const Mat& out, const Mat& ref, const Mat& chain, DType type);

/// max|out - ref| <= 2*max|chain - ref| + tiny.
std::string check_bound(const std::string& name, const Mat& out, const Mat& ref, const Mat& chain, DType type);

/// The norm of (out - ref) over the norm of ref, over the whole and over each tile. `limit` 0: 1e-2 for bf16 and fp16,
/// 1e-5 for fp32, 1e-12 for fp64.
std::string check_relative(const std::string& name, const Mat& out, const Mat& ref, DType type, double limit = 0.0,
                           TileShape tile = {});

/// The same with a limit that depends on how many elements the whole, or a tile, has.
std::string check_relative(const std::string& name, const Mat& out, const Mat& ref, DType type,
                           const std::function<double(std::int64_t count)>& limit_of, TileShape tile = {});

/// out == ref, element by element.
std::string check_exact(const std::string& name, const Mat& out, const Mat& ref, TileShape tile = {});

/// Bound and relative, the pair that the contract asks for.
std::string check_accuracy(const std::string& name, const Mat& out, const Mat& ref, const Mat& chain, DType type);

/// The same bits in both; rows may have different pitches.
std::string check_bits(const std::string& name, const ConstMatrix& x, const ConstMatrix& y);

template <class T>
std::string check_bits(const std::string& name, Guarded<T>& x, Guarded<T>& y) {
  return check_bits(name, ConstMatrix(x.const_matrix()), ConstMatrix(y.const_matrix()));
}

}  // namespace coda::test
