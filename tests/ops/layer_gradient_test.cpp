// Gradients of the layer calls against central finite differences, in fp64 on the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "tests/ops/layer_case.h"

namespace coda::test {
namespace {

const LayerDims kDims[] = {
    {.m = 3, .hidden = 6, .ffn = 5, .heads = {2, 1, 1, 4}, .vocab = 7},
    {.m = 4, .hidden = 8, .ffn = 3, .heads = {2, 2, 2, 2}, .qk_norm = true, .glu = ops::Glu::geglu_tanh, .vocab = 5},
    {.m = 2, .hidden = 5, .ffn = 4, .heads = {3, 1, 2, 6}, .qk_norm = true, .vocab = 6},
    {.m = 5, .hidden = 4, .ffn = 4, .heads = {1, 1, 1, 2}, .glu = ops::Glu::geglu_erf, .vocab = 4},
};

double* row_of(const ConstMatrix& x, std::int64_t row) {
  return const_cast<double*>(static_cast<const double*>(x.data)) + row * x.pitch;
}
ConstMatrix as_row(const ConstVector& x) { return {x.data, x.dtype, 1, x.size}; }

/// Sum of x y.
double dot(const ConstMatrix& x, const Mat& y) {
  double sum = 0;
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.cols; ++j) sum += row_of(x, i)[j] * y(i, j);
  return sum;
}

/// Every element of the argument `x` in turn.
void expect_gradient(const char* name, const ConstMatrix& x, const ConstMatrix& gradient,
                     const std::function<double()>& value) {
  constexpr double kStep = 1e-5;
  double largest = 0;
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.cols; ++j) largest = std::max(largest, std::fabs(row_of(gradient, i)[j]));
  EXPECT_GT(largest, 1e-3) << name;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j) {
      double& element = row_of(x, i)[j];
      const double before = element;
      element = before + kStep;
      const double above = value();
      element = before - kStep;
      const double below = value();
      element = before;
      const double numeric = (above - below) / (2 * kStep), got = row_of(gradient, i)[j];
      EXPECT_TRUE(std::fabs(numeric - got) <= 1e-7 * (largest + 1))
          << name << " (" << i << ", " << j << "): expected " << numeric << ", got " << got;
    }
  }
}

/// Gradients of every weight of a call, zero at first.
class Gradients {
 public:
  explicit Gradients(Case& c) : c_(c) {}
  Matrix matrix(const ConstMatrix& weight) {
    return c_.in_place("gradient", Mat(weight.rows, weight.cols), DType::fp64);
  }
  Vector vector(const ConstVector& weight) {
    return c_.in_place_vec("gradient", Vec(static_cast<std::size_t>(weight.size)), DType::fp64);
  }
  ops::BlockGradients of(const ops::BlockWeights& w) {
    return {
        .out = matrix(w.out), .post_norm = vector(w.post_norm), .gate_up = matrix(w.gate_up), .down = matrix(w.down)};
  }
  ops::QkvGradients of(const ops::QkvWeights& w) {
    ops::QkvGradients g{.input_norm = vector(w.input_norm), .qkv = matrix(w.qkv)};
    if (w.q_norm) g.q_norm = vector(w.q_norm), g.k_norm = vector(w.k_norm);
    return g;
  }

 private:
  Case& c_;
};
template <class Value>
void expect_gradients(const ops::BlockWeights& w, const ops::BlockGradients& g, const Value& value) {
  expect_gradient("out", w.out, g.out, value);
  expect_gradient("post_norm", as_row(w.post_norm), as_row(g.post_norm), value);
  expect_gradient("gate_up", w.gate_up, g.gate_up, value);
  expect_gradient("down", w.down, g.down, value);
}
template <class Value>
void expect_gradients(const ops::QkvWeights& w, const ops::QkvGradients& g, const Value& value) {
  expect_gradient("input_norm", as_row(w.input_norm), as_row(g.input_norm), value);
  expect_gradient("qkv", w.qkv, g.qkv, value);
  if (!w.q_norm) return;
  expect_gradient("q_norm", as_row(w.q_norm), as_row(g.q_norm), value);
  expect_gradient("k_norm", as_row(w.k_norm), as_row(g.k_norm), value);
}

class LayerGradient : public testing::TestWithParam<LayerDims> {
 protected:
  LayerDims d = GetParam();
  Case c = layer_case(DType::fp64, d, base_seed());
  LayerNumbers x{c.random, d, DType::fp64};
  Gradients gradients{c};

  Matrix stream(const char* name) { return c.out(name, d.m, d.hidden); }
};

TEST_P(LayerGradient, OfBlock) {
  const ops::Block f = block_call(c, x);
  const auto value = [&] {
    ops::block(f);
    return dot(f.x_next, x.dx_next) + dot(f.qkv, x.dqkv);
  };
  value();
  const ops::BlockBackward b{.attended = f.attended,
                             .x_mid = f.x_mid,
                             .rstd_mid = f.rstd_mid,
                             .preact = f.preact,
                             .x_next = f.x_next,
                             .rstd_next = f.rstd_next,
                             .qkv = f.qkv,
                             .qkv_preact = f.qkv_preact,
                             .dqkv = c.in(x.dqkv),
                             .dx_next = c.in(x.dx_next),
                             .weights = f.weights,
                             .next = f.next,
                             .heads = f.heads,
                             .function = f.function,
                             .head_eps = f.head_eps,
                             .gradients = gradients.of(f.weights),
                             .next_gradients = gradients.of(f.next),
                             .dz = c.out("dz", d.m, d.heads.width()),
                             .dpreact = c.out("dpreact", d.m, 2 * d.ffn),
                             .dx = stream("dx"),
                             .dattended = c.out("dattended", d.m, x.attended.cols)};
  ops::block_backward(b);
  expect_gradient("attended", f.attended, b.dattended, value);
  expect_gradient("x", f.x, b.dx, value);
  expect_gradients(f.weights, b.gradients, value);
  expect_gradients(f.next, b.next_gradients, value);
}

TEST_P(LayerGradient, OfBlockPre) {
  const LayerViews v(c, x);
  const ops::BlockPre f{.table = c.in(x.table),
                        .token = c.indices(x.token, true),
                        .next = v.next,
                        .heads = v.heads,
                        .eps = x.o.eps,
                        .head_eps = x.o.head_eps,
                        .x = stream("x"),
                        .rstd = c.out_vec("rstd", d.m, DType::fp64),
                        .qkv_preact = d.qk_norm ? c.out("qkv_preact", d.m, d.heads.width()) : Matrix(),
                        .qkv = c.out("qkv", d.m, d.heads.width())};
  const auto value = [&] {
    ops::block_pre(f);
    return dot(f.x, x.dx_next) + dot(f.qkv, x.dqkv);
  };
  value();
  const ops::BlockPreBackward b{.token = f.token,
                                .x = f.x,
                                .rstd = f.rstd,
                                .qkv = f.qkv,
                                .qkv_preact = f.qkv_preact,
                                .dqkv = c.in(x.dqkv),
                                .dx_next = c.in(x.dx_next),
                                .next = f.next,
                                .heads = f.heads,
                                .head_eps = f.head_eps,
                                .gradients = gradients.of(f.next),
                                .dtable = gradients.matrix(f.table),
                                .dz = c.out("dz", d.m, d.heads.width()),
                                .dx = stream("dx")};
  ops::block_pre_backward(b);
  expect_gradient("table", f.table, b.dtable, value);
  expect_gradients(f.next, b.gradients, value);
}

TEST_P(LayerGradient, OfBlockPost) {
  ops::BlockPost f = block_post_call(c, x, true);
  f.transform = {.scale = 0.75, .cap = 3};
  f.options = {.label_smoothing = 0.125, .z_loss = 0.25, .ignore_index = LayerNumbers::kIgnore};
  const auto value = [&] {
    ops::block_post(f);
    return dot(as_row(f.loss), Mat(1, d.m, x.dloss));
  };
  value();
  const ops::BlockPostBackward b{
      .attended = f.attended,
      .x_mid = f.x_mid,
      .rstd_mid = f.rstd_mid,
      .preact = f.preact,
      .x_last = f.x_last,
      .rstd_last = f.rstd_last,
      .h = f.h,
      .dloss = c.vec(x.dloss, DType::fp64),
      .weights = f.weights,
      .head = f.head,
      .function = f.function,
      .transform = f.transform,
      .target = f.target,
      .options = f.options,
      .logit_rows = 2,
      .gradients = gradients.of(f.weights),
      .head_gradients = {.final_norm = gradients.vector(f.head.final_norm), .head = gradients.matrix(f.head.head)},
      .lse = c.out_vec("lse", d.m, DType::fp64),
      .loss = c.out_vec("loss", d.m, DType::fp64),
      .dpreact = c.out("dpreact", d.m, 2 * d.ffn),
      .dx = stream("dx"),
      .dattended = c.out("dattended", d.m, x.attended.cols)};
  ops::block_post_backward(b);
  expect_gradient("attended", f.attended, b.dattended, value);
  expect_gradient("x", f.x, b.dx, value);
  expect_gradients(f.weights, b.gradients, value);
  expect_gradient("final_norm", as_row(f.head.final_norm), as_row(b.head_gradients.final_norm), value);
  expect_gradient("head", f.head.head, b.head_gradients.head, value);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LayerGradient, testing::ValuesIn(kDims));

}  // namespace
}  // namespace coda::test
