// One run of one program by `coda verify`: its inputs and outputs in guarded buffers, and a verdict on each output.
#pragma once

#include <deque>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "coda/cli/buffer.h"
#include "coda/cli/shape.h"
#include "coda/cli/verdict.h"
#include "coda/ops/ops.h"
#include "tests/reference/forward.h"
#include "tests/support/random.h"

namespace coda::cli {

using reference::Round;

/// Thrown by a case that the shape does not fit.
struct NotApplicable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An input: what the reference reads, and the same in a buffer.
struct Input {
  Mat values;
  Buffer* buffer;
  ConstMatrix matrix() const { return buffer->matrix(); }
  ConstVector vector() const { return buffer->vector(); }
  const Vec& vec() const { return values.v; }
};

/// An output: a buffer that is all NaN at first.
struct Output {
  std::string name;
  Buffer* buffer;
  DType type;
  Matrix matrix() const { return buffer->matrix(); }
  Vector vector() const { return buffer->vector(); }
};

/// The exact value and that of the unfused chain, which stores every intermediate in the short type.
template <class X>
struct Both {
  X exact, chain;
};

struct VerdictOf {
  std::string option;
  Verdict verdict;
};

class VerifyCase {
 public:
  const ops::Target on;
  const DType type, stats;  // of the matrices, and of statistics
  const Layout layout;
  const std::int64_t m, n, k;
  const std::int64_t block_m, block_n;  // of partial results
  test::Random random;
  std::string option;  // which variant of the program runs now
  std::vector<VerdictOf> verdicts;

  VerifyCase(ops::Backend backend, DType t, Layout l, Shape shape, std::uint64_t seed);

  // ---- inputs

  /// Normal random values, rounded to the type that holds them.
  Input matrix(std::int64_t rows, std::int64_t cols, double scale = 1) {
    return input(test::normal_mat(random, rows, cols, scale, type), type);
  }
  Input vector(std::int64_t size) { return column(test::normal_vec(random, size, 1, type), type); }
  Input statistic(std::int64_t size, double low, double high) {
    return column(test::uniform_vec(random, size, low, high, stats), stats);
  }
  Input indices(const std::vector<std::int64_t>& values) {
    return column(Vec(values.begin(), values.end()), DType::int64);
  }
  Input column(const Vec& values, DType t) { return input(reference::column(values), t, false); }
  Input input(Mat values, DType t, bool padded = true);

  /// a and b of the product, in the case's layout, scaled so that the product is about 1.
  struct Operands {
    Input a, b;
    Both<Mat> acc;
  };
  Operands operands() { return operands(m, n, k); }
  Operands operands(std::int64_t rows, std::int64_t cols, std::int64_t inner);

  // ---- outputs

  Output output(const char* name, std::int64_t rows, std::int64_t cols, DType t) {
    return {name, &buffer(t, rows, cols, true), t};
  }
  Output matrix_output(const char* name, std::int64_t rows, std::int64_t cols) {
    return output(name, rows, cols, type);
  }
  /// One value for each row and block of columns (of `width` columns, n by default).
  Output row_partials(const char* name) { return output(name, m, reference::blocks_of(n, block_n), stats); }
  Output column_partials(const char* name) { return output(name, reference::blocks_of(m, block_m), n, stats); }
  Output vector_output(const char* name, std::int64_t size) { return vector_output(name, size, stats); }
  Output vector_output(const char* name, std::int64_t size, DType t) { return {name, &buffer(t, size, 1, false), t}; }
  /// An output that holds values before the call.
  Output updated(Output out, const Mat& values) {
    out.buffer->set(values);
    return out;
  }

  // ---- run and judge

  /// f(round) once exactly and once as the unfused chain.
  template <class F>
  auto both(const F& f) const {
    auto exact = f(Round::exact());
    auto chain = type == DType::fp64 ? exact : f(Round::to(type));
    return Both<decltype(exact)>{std::move(exact), std::move(chain)};
  }
  /// The same from steps on the product: f(acc, round).
  template <class F>
  auto both(const Both<Mat>& acc, const F& f) const {
    auto exact = f(acc.exact, Round::exact());
    auto chain = type == DType::fp64 ? exact : f(acc.chain, Round::to(type));
    return Both<decltype(exact)>{std::move(exact), std::move(chain)};
  }

  void compare(const Output& out, const Mat& exact, const Mat& chain);
  void compare(const Output& out, const Vec& exact, const Vec& chain) {
    compare(out, reference::column(exact), reference::column(chain));
  }

  /// A norm in front of the product: the call's argument, and what the reference takes.
  struct NormInput {
    ops::Norm argument;
    reference::NormScale scale;
  };
  NormInput rms();
  NormInput layernorm();

  /// Heads that fill the product's N columns, and the rotation of each row. Throws NotApplicable if N is odd.
  struct HeadInput {
    ops::Heads argument;
    reference::Heads heads;
    reference::RopeTable table;
    reference::Positions position;
  };
  HeadInput heads();
  /// Throws NotApplicable if N is odd.
  void require_pairs() const;

 private:
  Buffer& buffer(DType t, std::int64_t rows, std::int64_t cols, bool padded);

  std::deque<Buffer> buffers_;
};

}  // namespace coda::cli
