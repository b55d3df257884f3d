// The Hopper programs against the plain-loop reference in fp64, by the accuracy criteria of every backend. Skipped
// where there is no such GPU.
#include "coda/backend/sm90/sm90.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/reference/backward.h"
#include "tests/reference/forward.h"
#include "tests/support/accuracy.h"
#include "tests/support/guarded.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

using sm90::DeviceBuffer;

/// A guarded host buffer and its copy on the device, guard zones and row padding included.
template <class T>
class OnDevice {
 public:
  OnDevice(std::int64_t rows, std::int64_t cols, std::int64_t pad)
      : host_(rows, cols, {.pitch = cols + pad, .misalign = 0}), device_(bytes()) {
    upload();
  }
  OnDevice(const Mat& values, std::int64_t pad) : OnDevice(values.rows, values.cols, pad) {
    host_.set(values);
    upload();
  }

  Matrix matrix() const { return MatrixOf<T>(data(), host_.rows(), host_.cols(), host_.pitch()); }
  Vector vector() const { return VectorOf<T>(data(), host_.rows() * host_.cols()); }
  void poison() {
    host_.poison();
    upload();
  }
  /// The device's bytes on the host, after which nothing outside of the elements may have changed.
  Guarded<T>& fetch(const std::string& name, bool expect_written = true) {
    host_.forbid_guards(false);
    device_.download(begin(), bytes());
    host_.forbid_guards(true);
    host_.expect_guards_intact(name);
    if (expect_written) host_.expect_all_written(name);
    return host_;
  }
  std::vector<unsigned char> bits() const {
    std::vector<unsigned char> x(bytes());
    device_.download(x.data(), x.size());
    return x;
  }

 private:
  static constexpr std::int64_t kGuard = Guarded<T>::kGuardBytes;
  std::size_t bytes() const {
    return static_cast<std::size_t>(host_.rows() * host_.pitch() * static_cast<std::int64_t>(sizeof(T)) + 2 * kGuard);
  }
  unsigned char* begin() { return reinterpret_cast<unsigned char*>(host_.data()) - kGuard; }
  T* data() const { return reinterpret_cast<T*>(static_cast<unsigned char*>(device_.data()) + kGuard); }
  void upload() {
    host_.forbid_guards(false);
    device_.upload(begin(), bytes());
    host_.forbid_guards(true);
  }

  Guarded<T> host_;
  DeviceBuffer device_;
};

struct Case {
  std::int64_t m, n, k;
  std::int64_t pad = 0;  // columns by which every row is longer than the matrix is wide
  double scale = 1.0;
  bool exact = false;  // small integers, whose linear outputs have no rounding error

  Problem problem(Random& random, Layout layout, DType type) const {
    if (exact) return exact_problem(random, layout, m, n, k);
    // Products of about `scale`, whatever K is.
    const Mat a = normal_mat(random, m, k, scale, type);
    return laid_out(a, normal_mat(random, n, k, 1.0 / std::sqrt(static_cast<double>(k)), type), layout);
  }
  Mat values(Random& random, std::int64_t rows, std::int64_t cols, DType type) const {
    return exact ? integer_mat(random, rows, cols, -4, 4) : normal_mat(random, rows, cols, scale, type);
  }
};

const Case kCases[] = {
    {128, 128, 64},      // one tile
    {1, 8, 8},           // less than anything
    {129, 136, 72},      // one more row and one more chunk of columns than a tile
    {200, 520, 136, 8},  // padded rows
    {65, 104, 40, 24},   // padded rows, less than a tile
    {384, 256, 520},     // several tiles, K past the pipeline's depth
    {2300, 2184, 64},    // more tiles than multiprocessors
    {257, 392, 264, 0, 1e-3},
    {257, 392, 264, 0, 1e3},
    {300, 264, 96, 0, 1.0, true},
    {77, 136, 200, 8, 1.0, true},
};

void expect_empty(const std::string& failure) { EXPECT_EQ(failure, ""); }

class Sm90 : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!sm90::available(&why)) GTEST_SKIP() << why;
  }

  /// f(case, layout, T()) for every case, both layouts, both types.
  template <class F>
  void for_all(const F& f) {
    std::uint64_t seed = 1;
    for (const Case& c : kCases) {
      for (const coda::Layout layout : {coda::Layout::nt, coda::Layout::nn}) {
        for (const DType type : {DType::bf16, DType::fp16}) {
          if (type == DType::fp16 && c.scale > 1.0) continue;  // products leave fp16's range
          SCOPED_TRACE(std::string(name_of(type)) + " " + coda::name_of(layout) + " M=" + std::to_string(c.m) +
                       " N=" + std::to_string(c.n) + " K=" + std::to_string(c.k) + " pad=" + std::to_string(c.pad) +
                       " scale=" + std::to_string(c.scale) + (c.exact ? " exact" : "") +
                       " seed=" + std::to_string(seed));
          Random random(seed++);
          if (type == DType::bf16) {
            f(c, layout, bf16(), random);
          } else {
            f(c, layout, fp16(), random);
          }
        }
      }
    }
  }
};

reference::Layout reference_layout(coda::Layout layout) {
  return layout == coda::Layout::nt ? reference::Layout::abt : reference::Layout::ab;
}

/// Operands on the device. An (N, K) or (K, N) matrix's rows need 16 bytes, whatever its width.
template <class T>
struct Product {
  Problem problem;
  OnDevice<T> a, b;
  coda::Layout layout;

  Product(const Case& c, coda::Layout l, Random& random)
      : problem(c.problem(random, reference_layout(l), dtype_of<T>)),
        a(problem.a, padding(problem.a.cols)),
        b(problem.b, padding(problem.b.cols)),
        layout(l) {}
  static std::int64_t padding(std::int64_t cols) { return (8 - cols % 8) % 8; }
};

template <class T>
void check_output(const std::string& name, OnDevice<T>& out, const Mat& ref, const Mat& chain, bool exact) {
  const Mat got = out.fetch(name).mat();
  if (exact) return expect_empty(check_exact(name, got, ref));
  expect_empty(check_bound(name, got, ref, chain, dtype_of<T>));
  expect_empty(check_relative(name, got, ref, dtype_of<T>, 1e-2));
}

TEST_F(Sm90, gemm_is_accurate) {
  for_all([](const Case& c, coda::Layout layout, auto element, Random& random) {
    using T = decltype(element);
    Product<T> p(c, layout, random);
    const Mat residual = c.values(random, c.m, c.n, dtype_of<T>);
    const Vec bias = c.values(random, c.n, 1, dtype_of<T>).v;
    OnDevice<T> device_c(residual, c.pad), device_bias(reference::column(bias), 0);

    enum class With { kNothing, kBias, kEverything };
    for (const With with : {With::kNothing, With::kBias, With::kEverything}) {
      OnDevice<T> out(c.m, c.n, c.pad), preact(c.m, c.n, c.pad);
      sm90::GemmArgs args{.a = p.a.matrix(), .b = p.b.matrix(), .layout = layout, .out = out.matrix()};
      reference::GemmOptions options;
      if (with != With::kNothing) {
        args.bias = device_bias.vector();
        options.bias = &bias;
      }
      if (with == With::kEverything) {
        args.alpha = 0.5f, args.beta = 2.0f;
        args.c = device_c.matrix(), args.preact = preact.matrix();
        options.alpha = 0.5, options.beta = 2.0, options.c = &residual;
      }
      sm90::gemm(args, nullptr);
      const auto ref = reference::gemm(p.problem.operands(), options);
      const auto chain = reference::gemm(p.problem.operands(), options, reference::Round::to(dtype_of<T>));
      check_output("out", out, ref.y, chain.y, c.exact && with != With::kEverything);
      if (with == With::kEverything) {
        check_output("preact", preact, ref.y, chain.y, false);
      } else {
        preact.fetch("preact", false);
      }
    }
  });
}

TEST_F(Sm90, gemm_residual_rms_is_accurate) {
  for_all([](const Case& c, coda::Layout layout, auto element, Random& random) {
    using T = decltype(element);
    Product<T> p(c, layout, random);
    const Mat residual = c.values(random, c.m, c.n, dtype_of<T>);
    const Vec weight = c.exact ? power_of_two_vec(random, c.n) : normal_vec(random, c.n, 1.0, dtype_of<T>);
    const auto run = [&](reference::Round r) {
      return reference::gemm_residual_norm(p.problem.operands(), residual, weight, sm90::kTileN, nullptr, r);
    };
    const auto ref = run({}), chain = run(reference::Round::to(dtype_of<T>));
    OnDevice<T> device_weight(reference::column(weight), 0);

    for (const bool in_place : {false, true}) {
      OnDevice<T> device_residual(residual, c.pad), x(c.m, c.n, c.pad), h(c.m, c.n, c.pad);
      OnDevice<float> sums(c.m, sm90::tiles_n(c.n), 1);
      OnDevice<T>& x_out = in_place ? device_residual : x;
      sm90::gemm_residual_rms({.a = p.a.matrix(),
                               .b = p.b.matrix(),
                               .layout = layout,
                               .residual = device_residual.matrix(),
                               .weight = device_weight.vector(),
                               .x = x_out.matrix(),
                               .h = h.matrix(),
                               .sum_of_squares = sums.matrix()},
                              nullptr);
      check_output("x", x_out, ref.x, chain.x, c.exact);
      check_output("h", h, ref.h, chain.h, c.exact);
      check_output("sum_of_squares", sums, ref.sum_squares, chain.sum_squares, false);
    }
  });
}

TEST_F(Sm90, gemm_rms_swiglu_is_accurate) {
  for_all([](const Case& c, coda::Layout layout, auto element, Random& random) {
    using T = decltype(element);
    Product<T> p(c, layout, random);
    const Vec rstd = c.exact ? power_of_two_vec(random, c.m) : uniform_vec(random, c.m, 0.5, 2.0, DType::fp32);
    const auto run = [&](reference::Round r) {
      return reference::gemm_norm_gated(p.problem.operands(), reference::NormScale::rms(rstd),
                                        reference::Activation::silu, nullptr, r);
    };
    const auto ref = run({}), chain = run(reference::Round::to(dtype_of<T>));
    OnDevice<float> device_rstd(reference::column(rstd), 0);

    for (const bool keep_preact : {true, false}) {
      OnDevice<T> preact(c.m, c.n, c.pad), out(c.m, c.n / 2, (4 - c.n / 2 % 4) % 4 + c.pad / 8 * 8);
      sm90::gemm_rms_swiglu({.a = p.a.matrix(),
                             .b = p.b.matrix(),
                             .layout = layout,
                             .rstd = device_rstd.vector(),
                             .preact = keep_preact ? preact.matrix() : Matrix(),
                             .out = out.matrix()},
                            nullptr);
      if (keep_preact) {
        check_output("preact", preact, ref.z, chain.z, c.exact);
      } else {
        preact.fetch("preact", false);
      }
      check_output("out", out, ref.y, chain.y, false);
    }
  });
}

TEST_F(Sm90, gemm_swiglu_backward_is_accurate) {
  for_all([](const Case& c, coda::Layout layout, auto element, Random& random) {
    using T = decltype(element);
    Product<T> p(c, layout, random);
    const Mat z = c.values(random, c.m, 2 * c.n, dtype_of<T>);
    const auto run = [&](reference::Round r) {
      return reference::gemm_gated_backward(p.problem.operands(), z, reference::Activation::silu, sm90::kTileN, nullptr,
                                            r);
    };
    const auto ref = run({}), chain = run(reference::Round::to(dtype_of<T>));

    for (const bool in_place : {false, true}) {
      OnDevice<T> preact(z, 2 * c.pad), dpreact(c.m, 2 * c.n, 2 * c.pad), out(c.m, c.n, c.pad);
      OnDevice<float> zdz(c.m, sm90::tiles_n(c.n), 1);
      OnDevice<T>& dz_out = in_place ? preact : dpreact;
      sm90::gemm_swiglu_backward({.a = p.a.matrix(),
                                  .b = p.b.matrix(),
                                  .layout = layout,
                                  .preact = preact.matrix(),
                                  .dpreact = dz_out.matrix(),
                                  .out = out.matrix(),
                                  .zdz = zdz.matrix()},
                                 nullptr);
      check_output("dpreact", dz_out, ref.dz, chain.dz, false);
      check_output("out", out, ref.y, chain.y, false);
      check_output("zdz", zdz, ref.zdz, chain.zdz, false);
    }
  });
}

TEST_F(Sm90, reruns_are_bitwise_equal) {
  Random random(99);
  const Case c{1100, 1288, 328};
  Product<bf16> p(c, coda::Layout::nt, random);
  OnDevice<bf16> residual(c.values(random, c.m, 2 * c.n, DType::bf16), 0),
      weight(c.values(random, c.n, 1, DType::bf16), 0);
  OnDevice<bf16> x(c.m, c.n, 0), h(c.m, c.n, 0), wide(c.m, 2 * c.n, 0);
  OnDevice<float> sums(c.m, sm90::tiles_n(c.n), 0), zdz(c.m, sm90::tiles_n(c.n), 0);
  Matrix same_width = residual.matrix();
  same_width.cols = c.n;
  std::vector<std::vector<unsigned char>> first;
  for (int run = 0; run < 20; ++run) {
    x.poison(), h.poison(), wide.poison(), sums.poison(), zdz.poison();
    std::vector<std::vector<unsigned char>> bits;
    sm90::gemm_residual_rms({.a = p.a.matrix(),
                             .b = p.b.matrix(),
                             .residual = same_width,
                             .weight = weight.vector(),
                             .x = x.matrix(),
                             .h = h.matrix(),
                             .sum_of_squares = sums.matrix()},
                            nullptr);
    for (const auto& b : {x.bits(), h.bits(), sums.bits()}) bits.push_back(b);
    sm90::gemm_swiglu_backward({.a = p.a.matrix(),
                                .b = p.b.matrix(),
                                .preact = residual.matrix(),
                                .dpreact = wide.matrix(),
                                .out = h.matrix(),
                                .zdz = zdz.matrix()},
                               nullptr);
    for (const auto& b : {wide.bits(), h.bits(), zdz.bits()}) bits.push_back(b);
    Matrix half = h.matrix();
    half.cols = c.n / 2;
    sm90::gemm_rms_swiglu({.a = p.a.matrix(), .b = p.b.matrix(), .preact = x.matrix(), .out = half}, nullptr);
    for (const auto& b : {x.bits(), h.bits()}) bits.push_back(b);
    sm90::gemm({.a = p.a.matrix(), .b = p.b.matrix(), .out = x.matrix()}, nullptr);
    bits.push_back(x.bits());
    if (run == 0) first = bits;
    ASSERT_EQ(bits, first) << "run " << run;
  }
}

TEST_F(Sm90, bad_arguments_are_named_and_nothing_is_launched) {
  OnDevice<bf16> a(64, 64, 0), b(128, 64, 0), out(64, 128, 0), odd(64, 128, 4);
  const auto message = [](const sm90::GemmArgs& args) -> std::string {
    try {
      sm90::gemm(args, nullptr);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  sm90::GemmArgs good{.a = a.matrix(), .b = b.matrix(), .out = out.matrix()};
  const auto expect = [&](const sm90::GemmArgs& args, const std::string& part) {
    EXPECT_NE(message(args).find(part), std::string::npos) << message(args) << "\nexpected: " << part;
  };
  auto bad = good;
  bad.layout = coda::Layout::tn;
  expect(bad, "layout: expected nt or nn, got tn");
  bad = good, bad.b.cols = 32;
  expect(bad, "b: expected an inner dimension of 64, got 32");
  bad = good, bad.out = Matrix();
  expect(bad, "out: expected a matrix (64, 128), got a null pointer");
  bad = good, bad.out.dtype = DType::fp32;
  expect(bad, "out: expected bf16, got fp32");
  bad = good, bad.out.rows = 63;
  expect(bad, "out: expected shape (64, 128), got (63, 128)");
  bad = good, bad.out = odd.matrix();
  expect(bad, "row pitch: expected a multiple of 16 bytes, got 264");
  bad = good, bad.a.data = static_cast<const bf16*>(good.a.data) + 1, bad.a.cols = bad.b.cols = 56;
  expect(bad, "a: address: expected a multiple of 16 bytes");
  bad = good, bad.b.rows = bad.out.cols = 124;
  expect(bad, "N: expected a multiple of 8, got 124");
  bad = good, bad.a.cols = bad.b.cols = 60;
  expect(bad, "K: expected a multiple of 8, got 60");
  bad = good, bad.a.cols = bad.b.cols = 0;
  expect(bad, "K: expected at least 1, got 0");
  out.fetch("out", false);
  EXPECT_EQ(message(good), "no error");
  sm90::GemmArgs none = good;
  none.a.rows = none.out.rows = 0;
  EXPECT_EQ(message(none), "no error");
  sm90::synchronize();
}

}  // namespace
}  // namespace coda::test
