// One layer for the tests of all operations: a case draws inputs, hands out poisoned and guarded outputs, and compares
// them with the fp64 reference; a sweep runs a body over dtypes, layouts, options and shapes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "coda/ops/ops.h"
#include "tests/reference/forward.h"
#include "tests/support/accuracy.h"
#include "tests/support/guarded.h"
#include "tests/support/random.h"

namespace coda::test {

using reference::column;
using reference::Round;

inline constexpr DType kTypes[] = {DType::bf16, DType::fp16, DType::fp32, DType::fp64};
inline constexpr coda::Layout kLayouts[] = {coda::Layout::nt, coda::Layout::nn, coda::Layout::tn};

inline reference::Layout reference_of(coda::Layout l) {
  return l == coda::Layout::nt   ? reference::Layout::abt
         : l == coda::Layout::nn ? reference::Layout::ab
                                 : reference::Layout::atb;
}

/// A Guarded whose element type is a run-time tag, as the operations take them.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual Matrix matrix() = 0;
  virtual Vector vector() = 0;
  virtual Mat mat() const = 0;
  virtual void set(const Mat& values) = 0;
  virtual void poison() = 0;
  virtual std::string guard_damage(const std::string& name) const = 0;
  virtual std::string unwritten(const std::string& name) const = 0;
  DType dtype() { return matrix().dtype; }

  static std::unique_ptr<Buffer> make(DType type, std::int64_t rows, std::int64_t cols, Placement place = {});
};

namespace detail {

template <class T>
class BufferOf final : public Buffer {
 public:
  BufferOf(std::int64_t rows, std::int64_t cols, Placement place) : g_(rows, cols, place) {}
  Matrix matrix() override { return g_.any_matrix(); }
  Vector vector() override { return g_.any_vector(); }
  Mat mat() const override { return g_.mat(); }
  void set(const Mat& values) override { g_.set(values); }
  void poison() override { g_.poison(); }
  std::string guard_damage(const std::string& name) const override { return g_.guard_damage(name); }
  std::string unwritten(const std::string& name) const override { return g_.unwritten(name); }

 private:
  Guarded<T> g_;
};

}  // namespace detail

inline std::unique_ptr<Buffer> Buffer::make(DType type, std::int64_t rows, std::int64_t cols, Placement place) {
  switch (type) {
    case DType::bf16:
      return std::make_unique<detail::BufferOf<bf16>>(rows, cols, place);
    case DType::fp16:
      return std::make_unique<detail::BufferOf<fp16>>(rows, cols, place);
    case DType::fp32:
      return std::make_unique<detail::BufferOf<float>>(rows, cols, place);
    case DType::fp64:
      return std::make_unique<detail::BufferOf<double>>(rows, cols, place);
    case DType::int32:
      return std::make_unique<detail::BufferOf<std::int32_t>>(rows, cols, place);
    case DType::int64:
      break;
  }
  return std::make_unique<detail::BufferOf<std::int64_t>>(rows, cols, place);
}

/// The spec's bound and relative criteria. In fp32 and fp64 there is no unfused 16-bit chain to be held against, and
/// the order of summation differs from the chain's: units in the last place come on top, and where there are few
/// elements, room for one of them whose terms cancel.
inline std::string check_close(const std::string& name, const Mat& out, const Mat& ref, const Mat& chain, DType type) {
  if (size_of(type) == 2) return check_accuracy(name, out, ref, chain, type);
  if (ref.v.empty()) return check_exact(name, out, ref);
  const auto few = [](std::int64_t count) { return 1 + 16 / std::sqrt(static_cast<double>(count)); };
  const std::string failure = check_relative(name, out, ref, type, [&](std::int64_t count) {
    return few(count) * (type == DType::fp32 ? 1e-5 : 1e-12);  // of a last tile, too, which may be a single element
  });
  if (!failure.empty()) return failure;
  const Deviation d = deviation(out, ref, chain, type);
  const double bound = 2 * d.chain_error + few(std::ssize(ref.v)) * (type == DType::fp32 ? 64 : 512) * d.tiny;
  if (d.error <= bound) return {};
  std::ostringstream s;
  s << name << ": got " << out(d.row, d.col) << ", expected " << ref(d.row, d.col) << " at row " << d.row << ", column "
    << d.col << ": error " << d.error << " > bound " << bound;
  return s.str();
}

enum class NormForm { none, rms, layer, layer_with_bias };
inline constexpr NormForm kNormForms[] = {NormForm::none, NormForm::rms, NormForm::layer, NormForm::layer_with_bias};

/// The row scale as the reference takes it and as the operations do.
struct NormInput {
  reference::NormScale ref;
  ops::Norm ops;
};

class Case {
 public:
  DType type = DType::fp32, stats = DType::fp32;
  coda::Layout layout = coda::Layout::nt;
  std::int64_t m = 1, n = 1, k = 1;
  double scale = 1;    // of the operand a
  bool exact = false;  // small integers and powers of two, whose sums every accumulator holds exactly
  std::uint64_t seed = 0;
  Random random;
  ConstMatrix a, b;  // set by draw_product

  Case(DType t, coda::Layout l, std::int64_t m_, std::int64_t n_, std::int64_t k_, double scale_, bool exact_,
       std::uint64_t seed_)
      : type(t),
        stats(t == DType::fp64 ? DType::fp64 : DType::fp32),
        layout(l),
        m(m_),
        n(n_),
        k(k_),
        scale(scale_),
        exact(exact_),
        seed(seed_),
        random(seed_) {}

  Round round() const { return Round::to(type); }
  bool flip() { return random.integer(0, 1) == 1; }

  // ---- what is drawn

  void draw_product() {
    const auto l = reference_of(layout);
    problem_ =
        exact
            ? exact_problem(random, l, m, n, k)
            : laid_out(normal_mat(random, m, k, scale, type),
                       normal_mat(random, n, k, 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(k, 1))), type),
                       l);
    a = in(problem_.a);
    b = in(problem_.b);
  }
  reference::Operands operands() const { return problem_.operands(); }
  /// Values of a matrix: normal times `size`, or integers.
  Mat draw(std::int64_t rows, std::int64_t cols, double size = 1) {
    return exact ? integer_mat(random, rows, cols, -8, 8) : normal_mat(random, rows, cols, size, type);
  }
  Vec draw_vec(std::int64_t count, double size, DType t) {
    return exact ? integer_mat(random, count, 1, -8, 8).v : normal_vec(random, count, size, t);
  }
  /// Positive factors around `size`.
  Vec factors(std::int64_t count, double size, DType t) {
    return exact ? power_of_two_vec(random, count) : uniform_vec(random, count, 0.5 * size, 2 * size, t);
  }
  NormInput norm(NormForm form) {
    NormInput x;
    if (form == NormForm::none) return x;
    x.ref.norm = form == NormForm::rms ? reference::Norm::rms : reference::Norm::layer;
    x.ref.rstd = factors(m, 1 / scale, stats);
    x.ops.rstd = vec(x.ref.rstd, stats);
    if (form == NormForm::rms) return x;
    x.ref.mean = draw_vec(m, scale, stats);
    x.ref.u = draw_vec(n, 1, stats);
    x.ops.mean = vec(x.ref.mean, stats);
    x.ops.u = vec(x.ref.u, stats);
    if (form == NormForm::layer) return x;
    x.ref.c = draw_vec(n, 1, stats);
    x.ops.c = vec(x.ref.c, stats);
    return x;
  }

  // ---- memory

  ConstMatrix in(const Mat& values, DType t) { return input(t, values)->matrix(); }
  ConstMatrix in(const Mat& values) { return in(values, type); }
  ConstVector vec(const Vec& values, DType t) {
    Buffer* x = keep("input", Buffer::make(t, reference::size(values), 1));
    x->set(column(values));
    return x->vector();
  }
  ConstVector vec(const Vec& values) { return vec(values, type); }
  ConstVector indices(const std::vector<std::int64_t>& values, bool wide) {
    return vec(Vec(values.begin(), values.end()), wide ? DType::int64 : DType::int32);
  }
  Matrix out(const std::string& name, std::int64_t rows, std::int64_t cols, DType t) {
    return add_output(name, t, rows, cols, rows > 1 || cols > 1)->matrix();
  }
  Matrix out(const std::string& name, std::int64_t rows, std::int64_t cols) { return out(name, rows, cols, type); }
  /// Two outputs that share a pitch.
  std::pair<Matrix, Matrix> out_pair(const std::string& x, const std::string& y, std::int64_t rows, std::int64_t cols,
                                     DType t) {
    const Placement place = next_place(cols);
    return {add_output(x, t, rows, cols, place)->matrix(), add_output(y, t, rows, cols, place)->matrix()};
  }
  Vector out_vec(const std::string& name, std::int64_t count, DType t) {
    return add_output(name, t, count, 1, false)->vector();
  }
  /// An output that holds an input at first.
  Matrix in_place(const std::string& name, const Mat& values, DType t) {
    Buffer* x = add_output(name, t, values.rows, values.cols, true);
    x->set(values);
    return x->matrix();
  }
  Matrix in_place(const std::string& name, const Mat& values) { return in_place(name, values, type); }
  Vector in_place_vec(const std::string& name, const Vec& values, DType t) {
    Buffer* x = add_output(name, t, reference::size(values), 1, false);
    x->set(column(values));
    return x->vector();
  }

  // ---- comparison; an output that was not asked for is passed over

  Mat got(const std::string& name) {
    Buffer* x = output(name);
    return x ? x->mat() : Mat();
  }
  void expect(const std::string& name, const Mat& ref, const Mat& chain) {
    compare(name, [&](Buffer& x) { return check_close(name, x.mat(), ref, chain, x.dtype()); });
  }
  void expect(const std::string& name, const Vec& ref, const Vec& chain) { expect(name, column(ref), column(chain)); }
  /// An output of the statistics' dtype that was made of matrices stored in the operands' dtype: their rounding shows.
  void expect_operand_precision(const std::string& name, const Mat& ref, const Mat& chain) {
    compare(name, [&](Buffer& x) { return check_close(name, x.mat(), ref, chain, type); });
  }
  /// A linear output: on exact inputs its fp32 value is exact, so what is stored is that value, rounded.
  void expect_linear(const std::string& name, const Mat& ref, const Mat& chain) {
    if (!exact) return expect(name, ref, chain);
    compare(name, [&](Buffer& x) {
      Mat rounded = ref;
      for (double& e : rounded.v) e = Round::to(x.dtype())(e);
      return check_exact(name, x.mat(), rounded);
    });
  }
  void expect_linear(const std::string& name, const Vec& ref, const Vec& chain) {
    expect_linear(name, column(ref), column(chain));
  }
  /// For what is compared in another way.
  void expect_written(const std::string& name) {
    compare(name, [](Buffer&) { return std::string(); });
  }
  /// After the call: nothing was written outside of any buffer, and no output was forgotten by the test.
  void finish() {
    for (const auto& x : buffers_) EXPECT_EQ(x.buffer->guard_damage(x.name), "");
    for (const auto& x : buffers_) EXPECT_TRUE(!x.output || x.compared) << x.name << ": never compared";
    for (const auto& x : inputs_) {
      EXPECT_EQ(check_exact("input", x.buffer->mat(), x.values), "") << "an input was written to";
    }
  }

  /// Empty, or the output that a call has written to although it must not have.
  std::string touched() {
    for (const auto& x : buffers_) {
      if (!x.output) continue;
      const Matrix have = x.buffer->matrix();
      const auto fresh = Buffer::make(have.dtype, have.rows, have.cols, {have.pitch, 0});
      const std::string difference = check_bits(x.name, have, fresh->matrix());
      if (!difference.empty()) return difference;
    }
    return {};
  }

  /// Empty, or the first output of which another run of the same case has other bits.
  std::string difference(Case& other) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (!buffers_[i].output) continue;
      const std::string text = check_bits(buffers_[i].name, ConstMatrix(buffers_[i].buffer->matrix()),
                                          ConstMatrix(other.buffers_[i].buffer->matrix()));
      if (!text.empty()) return text;
    }
    return {};
  }

  std::string describe() const {
    std::ostringstream s;
    s << coda::name_of(type) << " " << coda::name_of(layout) << " M=" << m << " N=" << n << " K=" << k
      << " scale=" << scale << (exact ? " exact" : "") << " seed=" << seed;
    return s.str();
  }

 private:
  struct Named {
    std::string name;
    std::unique_ptr<Buffer> buffer;
    bool output = false, compared = false;
  };
  struct Input {
    Buffer* buffer;
    Mat values;
  };

  Placement next_place(std::int64_t cols) {
    constexpr std::int64_t kPads[] = {0, 1, 16, 3};
    const std::uint64_t at = seed + ++places_;
    return {cols + kPads[at % 4], at % 3 == 0 ? 8 : 0};  // aligned to its elements, not to a vector register
  }
  Buffer* keep(const std::string& name, std::unique_ptr<Buffer> buffer, bool is_output = false) {
    buffers_.push_back({name, std::move(buffer), is_output});
    return buffers_.back().buffer.get();
  }
  Buffer* input(DType t, const Mat& values) {
    Buffer* x = keep("input", Buffer::make(t, values.rows, values.cols, next_place(values.cols)));
    x->set(values);
    inputs_.push_back({x, values});
    return x;
  }
  Buffer* add_output(const std::string& name, DType t, std::int64_t rows, std::int64_t cols, Placement place) {
    return keep(name, Buffer::make(t, rows, cols, place), true);
  }
  Buffer* add_output(const std::string& name, DType t, std::int64_t rows, std::int64_t cols, bool padded) {
    return add_output(name, t, rows, cols, padded ? next_place(cols) : Placement{});
  }
  Named* find(const std::string& name) {
    for (auto& x : buffers_) {
      if (x.output && x.name == name) return &x;
    }
    return nullptr;
  }
  Buffer* output(const std::string& name) {
    Named* x = find(name);
    return x ? x->buffer.get() : nullptr;
  }
  template <class Check>
  void compare(const std::string& name, const Check& check) {
    Named* x = find(name);
    if (!x) return;
    x->compared = true;
    EXPECT_EQ(x->buffer->unwritten(name), "");
    EXPECT_EQ(check(*x->buffer), "");
  }

  Problem problem_;
  std::deque<Named> buffers_;
  std::vector<Input> inputs_;
  std::uint64_t places_ = 0;
};

struct Shape {
  std::int64_t m, n, k;
};
/// One element, tile edges (a tile is 256 x 256) and their neighbours, ragged sizes, nothing to do, K of 0 and 1.
inline constexpr Shape kShapes[] = {{1, 1, 1},     {64, 64, 32}, {255, 258, 5}, {3, 5, 7},     {17, 33, 0},
                                    {256, 256, 9}, {2, 600, 3},  {0, 7, 5},     {257, 255, 4}, {130, 70, 129},
                                    {1, 300, 40},  {300, 31, 1}, {40, 513, 21}, {5, 64, 1},    {9, 0, 3},
                                    {6, 8, 300},   {513, 24, 16}};

/// A fixed seed, which CODA_TEST_SEED replaces.
inline std::uint64_t base_seed() {
  const char* text = std::getenv("CODA_TEST_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 260519269;
}

/// body(case, option) for each dtype, layout and option, once on a shape of the list with normal inputs and once on a
/// random shape with exact ones. Shapes and scales rotate, so that neighbouring options see different ones.
template <class Body>
void sweep(int options, const Body& body, std::size_t types = std::size(kTypes),
           std::size_t layouts = std::size(kLayouts)) {
  constexpr double kScales[] = {1, 1e-3, 1e3};
  std::uint64_t number = 0;
  const auto run = [&](Case&& c, int option) {
    SCOPED_TRACE("option " + std::to_string(option) + ", " + c.describe());
    body(c, option);
    c.finish();
  };
  for (std::size_t t = 0; t < types; ++t) {
    for (std::size_t l = 0; l < layouts; ++l) {
      for (int option = 0; option < options; ++option) {
        const std::uint64_t seed = base_seed() + 2 * number++;
        const Shape s = kShapes[number * 5 % std::size(kShapes)];
        // Shifted by one with each layout: of a multiple of three options each would always have the same one.
        const double scale = kScales[(number + t * layouts + l) % 3];
        run(Case(kTypes[t], kLayouts[l], s.m, s.n, s.k, scale, false, seed), option);
        Random r(seed);
        run(Case(kTypes[t], kLayouts[l], r.integer(1, 280), r.integer(1, 280), r.integer(0, 48), 1, true, seed + 1),
            option);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

}  // namespace coda::test
