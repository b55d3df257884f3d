// The four programs of a layer against the plain-loop reference in fp64, by the accuracy criteria of every backend,
// over shapes that a kernel may find hard. Skipped where there is no Hopper GPU.
#include "tests/support/accuracy.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "coda/backend/sm90/config.h"
#include "coda/ops/ops.h"
#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/reference/backward.h"
#include "tests/reference/forward.h"
#include "tests/support/random.h"

namespace coda::test::gpu {
namespace {

using reference::Layout;

constexpr ops::Target kHopper{ops::Backend::sm90, nullptr};

std::int64_t tiles_n(std::int64_t n) { return ops::tiles_n(n, ops::Backend::sm90); }

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

/// Fused wherever a kernel is built for it: of these shapes few would be of the library's own choice.
class Accuracy : public OnHopper {
 protected:
  /// f(case, layout, T()) for every case, layout and type.
  template <class F>
  void for_all(const F& f) {
    std::uint64_t seed = 1;
    for (const Case& c : kCases) {
      for (const coda::Layout layout : {coda::Layout::nt, coda::Layout::nn, coda::Layout::tn}) {
        for (const DType type : {DType::bf16, DType::fp16}) {
          if (type == DType::fp16 && c.scale > 1.0) continue;      // products leave fp16's range
          if (layout == coda::Layout::tn && c.m > 2000) continue;  // tn has no fused kernel; this one takes long
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

 private:
  ChosenWay way_{sm90::Way::fused};
};

/// Operands on the device. An (N, K) or (K, N) matrix's rows need 16 bytes, whatever its width.
template <class T>
struct Product {
  Problem problem;
  OnDevice<T> a, b;
  coda::Layout layout;

  Product(const Case& c, coda::Layout l, Random& random)
      : problem(c.problem(random, reference::layout_of(l), dtype_of<T>)),
        a(problem.a, {padding(problem.a.cols)}),
        b(problem.b, {padding(problem.b.cols)}),
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

TEST_F(Accuracy, GemmHoldsTheBound) {
  for_all([](const Case& c, coda::Layout layout, auto element, Random& random) {
    using T = decltype(element);
    Product<T> p(c, layout, random);
    const Mat residual = c.values(random, c.m, c.n, dtype_of<T>);
    const Vec bias = c.values(random, c.n, 1, dtype_of<T>).v;
    OnDevice<T> device_c(residual, {c.pad}), device_bias(reference::column(bias));

    enum class With { kNothing, kBias, kEverything };
    for (const With with : {With::kNothing, With::kBias, With::kEverything}) {
      OnDevice<T> out(c.m, c.n, {c.pad}), preact(c.m, c.n, {c.pad});
      ops::Gemm args{.a = p.a.matrix(), .b = p.b.matrix(), .layout = layout, .out = out.matrix(), .on = kHopper};
      reference::GemmOptions options;
      if (with != With::kNothing) {
        args.bias = device_bias.vector();
        options.bias = &bias;
      }
      if (with == With::kEverything) {
        args.alpha = 0.5, args.beta = 2;
        args.c = device_c.matrix(), args.preact = preact.matrix();
        options.alpha = 0.5, options.beta = 2.0, options.c = &residual;
      }
      ops::gemm(args);
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

TEST_F(Accuracy, GemmResidualRmsHoldsTheBound) {
  for_all([](const Case& c, coda::Layout layout, auto element, Random& random) {
    using T = decltype(element);
    Product<T> p(c, layout, random);
    const Mat residual = c.values(random, c.m, c.n, dtype_of<T>);
    const Vec weight = c.exact ? power_of_two_vec(random, c.n) : normal_vec(random, c.n, 1.0, dtype_of<T>);
    const auto run = [&](reference::Round r) {
      return reference::gemm_residual_norm(p.problem.operands(), residual, weight, sm90::kTileN, nullptr, r);
    };
    const auto ref = run({}), chain = run(reference::Round::to(dtype_of<T>));
    OnDevice<T> device_weight(reference::column(weight));

    for (const bool in_place : {false, true}) {
      OnDevice<T> device_residual(residual, {c.pad}), x(c.m, c.n, {c.pad}), h(c.m, c.n, {c.pad});
      OnDevice<float> sums(c.m, tiles_n(c.n), {1});
      OnDevice<T>& x_out = in_place ? device_residual : x;
      ops::gemm_residual({.a = p.a.matrix(),
                          .b = p.b.matrix(),
                          .layout = layout,
                          .residual = device_residual.matrix(),
                          .weight = device_weight.vector(),
                          .x = x_out.matrix(),
                          .h = h.matrix(),
                          .sum_sq = sums.matrix(),
                          .on = kHopper});
      check_output("x", x_out, ref.x, chain.x, c.exact);
      check_output("h", h, ref.h, chain.h, c.exact);
      check_output("sum_sq", sums, ref.sum_squares, chain.sum_squares, false);
    }
  });
}

TEST_F(Accuracy, GemmRmsSwiGluHoldsTheBound) {
  for_all([](const Case& c, coda::Layout layout, auto element, Random& random) {
    using T = decltype(element);
    Product<T> p(c, layout, random);
    const Vec rstd = c.exact ? power_of_two_vec(random, c.m) : uniform_vec(random, c.m, 0.5, 2.0, DType::fp32);
    const auto run = [&](reference::Round r) {
      return reference::gemm_norm_gated(p.problem.operands(), reference::NormScale::rms(rstd),
                                        reference::Activation::silu, nullptr, r);
    };
    const auto ref = run({}), chain = run(reference::Round::to(dtype_of<T>));
    OnDevice<float> device_rstd(reference::column(rstd));

    for (const bool keep_preact : {true, false}) {
      OnDevice<T> preact(c.m, c.n, {c.pad}), out(c.m, c.n / 2, {(4 - c.n / 2 % 4) % 4 + c.pad / 8 * 8});
      ops::gemm_norm_glu({.a = p.a.matrix(),
                          .b = p.b.matrix(),
                          .layout = layout,
                          .norm = {.rstd = device_rstd.vector()},
                          .preact = keep_preact ? preact.matrix() : Matrix(),
                          .out = out.matrix(),
                          .on = kHopper});
      if (keep_preact) {
        check_output("preact", preact, ref.z, chain.z, c.exact);
      } else {
        preact.fetch("preact", false);
      }
      check_output("out", out, ref.y, chain.y, false);
    }
  });
}

TEST_F(Accuracy, GemmSwiGluBackwardHoldsTheBound) {
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
      OnDevice<T> preact(z, {2 * c.pad}), dpreact(c.m, 2 * c.n, {2 * c.pad}), out(c.m, c.n, {c.pad});
      OnDevice<float> zdz(c.m, tiles_n(c.n), {1});
      OnDevice<T>& dz_out = in_place ? preact : dpreact;
      ops::gemm_glu_backward({.a = p.a.matrix(),
                              .b = p.b.matrix(),
                              .layout = layout,
                              .preact = preact.matrix(),
                              .dpreact = dz_out.matrix(),
                              .out = out.matrix(),
                              .dot = {.zdz = zdz.matrix()},
                              .on = kHopper});
      check_output("dpreact", dz_out, ref.dz, chain.dz, false);
      check_output("out", out, ref.y, chain.y, false);
      check_output("zdz", zdz, ref.zdz, chain.zdz, false);
    }
  });
}

}  // namespace
}  // namespace coda::test::gpu
