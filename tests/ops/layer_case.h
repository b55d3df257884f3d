// A layer's arguments for the tests of the layer calls: drawn as numbers, as the reference takes them, and in the
// guarded memory of a case, as the operations do.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "coda/ops/layer.h"
#include "tests/programs/harness.h"
#include "tests/reference/layer.h"

namespace coda::test {

struct LayerDims {
  std::int64_t m = 1, hidden = 8, ffn = 8;
  reference::Heads heads = {};
  bool qk_norm = false;
  ops::Glu glu = ops::Glu::swiglu;
  std::int64_t vocab = 11;
};

inline std::string name_of(const LayerDims& d) {
  return "M=" + std::to_string(d.m) + " H=" + std::to_string(d.hidden) + " F=" + std::to_string(d.ffn) +
         " heads=" + std::to_string(d.heads.q) + "," + std::to_string(d.heads.k) + "," + std::to_string(d.heads.v) +
         "x" + std::to_string(d.heads.dim) + (d.qk_norm ? " qk_norm " : " ") + name_of(d.glu) +
         " V=" + std::to_string(d.vocab);
}

/// The numbers of one layer, forward and backward, rounded to the types that hold them.
struct LayerNumbers {
  static constexpr std::int64_t kIgnore = -7;

  LayerDims d;
  reference::LayerWeights w;  // next_norm is also the final norm
  reference::LayerOptions o;
  Mat attended, x;                   // (M, Q), (M, H)
  Mat dqkv, dx_next;                 // (M, W), (M, H)
  Mat table, head;                   // (V, H)
  std::vector<std::int64_t> token;   // (M)
  std::vector<std::int64_t> target;  // (M), some ignored
  Vec dloss;                         // (M)

  LayerNumbers(Random& random, const LayerDims& dims, DType type) : d(dims) {
    const DType stats = type == DType::fp64 ? DType::fp64 : DType::fp32;
    const std::int64_t q = d.heads.q * d.heads.dim, width = d.heads.width();
    const auto normal = [&](std::int64_t rows, std::int64_t cols) { return normal_mat(random, rows, cols, 1, type); };
    const auto weight = [&](std::int64_t out, std::int64_t in) {
      return normal_mat(random, out, in, 1 / std::sqrt(static_cast<double>(in)), type);
    };
    const auto norm = [&](std::int64_t size) { return uniform_vec(random, size, 0.5, 1.5, type); };
    w = {.out = weight(d.hidden, q),
         .post_norm = norm(d.hidden),
         .gate_up = weight(2 * d.ffn, d.hidden),
         .down = weight(d.hidden, d.ffn),
         .next_norm = norm(d.hidden),
         .qkv = weight(width, d.hidden)};
    if (d.qk_norm) w.q_norm = norm(d.heads.dim), w.k_norm = norm(d.heads.dim);
    constexpr reference::Activation kGates[] = {reference::Activation::silu, reference::Activation::gelu,
                                                reference::Activation::gelu_tanh, reference::Activation::relu};
    o.gate = kGates[static_cast<int>(d.glu)];
    o.heads = d.heads;
    o.eps = 1e-3, o.head_eps = 1e-2;  // large enough to be seen
    o.table = reference::rope_table(d.m + 3, d.heads.dim, 10000, Round::to(stats));
    for (std::int64_t i = 0; i < d.m; ++i) o.position.push_back(random.integer(0, d.m + 2));
    attended = normal(d.m, q), x = normal(d.m, d.hidden);
    dqkv = normal(d.m, width), dx_next = normal(d.m, d.hidden);
    table = normal(d.vocab, d.hidden), head = weight(d.vocab, d.hidden);
    for (std::int64_t i = 0; i < d.m; ++i) token.push_back(random.integer(0, d.vocab - 1));
    target = random_targets(random, d.m, d.vocab, 5, kIgnore);
    dloss = uniform_vec(random, d.m, 0.5, 2, stats);
  }
};

/// The views of a case that both directions take.
struct LayerViews {
  ops::BlockWeights weights;
  ops::QkvWeights next;
  ops::Heads heads;

  LayerViews(Case& c, const LayerNumbers& x) {
    weights = {
        .out = c.in(x.w.out), .post_norm = c.vec(x.w.post_norm), .gate_up = c.in(x.w.gate_up), .down = c.in(x.w.down)};
    next = {.input_norm = c.vec(x.w.next_norm), .qkv = c.in(x.w.qkv)};
    if (x.d.qk_norm) next.q_norm = c.vec(x.w.q_norm), next.k_norm = c.vec(x.w.k_norm);
    Vec angles;
    for (std::int64_t p = 0; p < x.o.table.cos.rows; ++p) {
      for (std::int64_t j = 0; j < x.o.table.cos.cols; ++j) {
        angles.push_back(x.o.table.cos(p, j)), angles.push_back(x.o.table.sin(p, j));
      }
    }
    const reference::Heads& h = x.d.heads;
    heads = {.q = h.q,
             .k = h.k,
             .v = h.v,
             .head_dim = h.dim,
             .table = {c.vec(angles, c.stats).data, c.stats, x.o.table.cos.rows, h.dim},
             .position = c.indices(x.o.position, x.d.m % 2 == 0)};
  }
};

inline Case layer_case(DType type, const LayerDims& d, std::uint64_t seed) {
  return Case(type, coda::Layout::nt, d.m, d.hidden, d.ffn, 1, false, seed);
}

/// The forward of a layer with all that its backward needs, in the memory of a case.
inline ops::Block block_call(Case& c, const LayerNumbers& x) {
  const LayerViews v(c, x);
  const std::int64_t m = x.d.m, hidden = x.d.hidden, width = x.d.heads.width();
  ops::Block call{.attended = c.in(x.attended),
                  .x = c.in(x.x),
                  .weights = v.weights,
                  .next = v.next,
                  .heads = v.heads,
                  .function = x.d.glu,
                  .eps = x.o.eps,
                  .head_eps = x.o.head_eps,
                  .x_mid = c.out("x_mid", m, hidden),
                  .rstd_mid = c.out_vec("rstd_mid", m, c.stats),
                  .preact = c.out("preact", m, 2 * x.d.ffn),
                  .x_next = c.out("x_next", m, hidden),
                  .rstd_next = c.out_vec("rstd_next", m, c.stats),
                  .qkv = c.out("qkv", m, width)};
  if (x.d.qk_norm) call.qkv_preact = c.out("qkv_preact", m, width);
  return call;
}

inline ops::BlockPost block_post_call(Case& c, const LayerNumbers& x, bool loss) {
  const LayerViews v(c, x);
  const std::int64_t m = x.d.m, hidden = x.d.hidden;
  ops::BlockPost call{.attended = c.in(x.attended),
                      .x = c.in(x.x),
                      .weights = v.weights,
                      .head = {.final_norm = v.next.input_norm},
                      .function = x.d.glu,
                      .eps = x.o.eps,
                      .x_mid = c.out("x_mid", m, hidden),
                      .rstd_mid = c.out_vec("rstd_mid", m, c.stats),
                      .preact = c.out("preact", m, 2 * x.d.ffn),
                      .x_last = c.out("x_last", m, hidden),
                      .rstd_last = c.out_vec("rstd_last", m, c.stats),
                      .h = c.out("h", m, hidden)};
  if (!loss) return call;
  call.head.head = c.in(x.head);
  call.target = c.indices(x.target, true);
  call.options.ignore_index = LayerNumbers::kIgnore;
  call.lse = c.out_vec("lse", m, c.stats), call.loss = c.out_vec("loss", m, c.stats);
  return call;
}

/// Outputs of several programs in a row: what is stored between them has the operands' precision, statistics included.
inline void expect(Case& c, const char* name, const Mat& ref, const Mat& chain) {
  c.expect_operand_precision(name, ref, chain);
}
inline void expect(Case& c, const char* name, const Vec& ref, const Vec& chain) {
  c.expect_operand_precision(name, reference::column(ref), reference::column(chain));
}

struct LossCase {
  reference::LossOptions ref;
  ops::LogitTransform transform;
  ops::CrossEntropy options;
};
inline LossCase loss_case(const LayerDims& d) {
  LossCase c;
  if (d.m % 3 == 0) {
    c = {.ref = {.scale = 0.75, .cap = 4, .smoothing = 0.125, .z_loss = 0.25},
         .transform = {.scale = 0.75, .cap = 4},
         .options = {.label_smoothing = 0.125, .z_loss = 0.25}};
  }
  c.ref.ignore_index = c.options.ignore_index = LayerNumbers::kIgnore;
  return c;
}

/// Gradients, and what they hold before the call, rounded to their dtypes: values, zeros or NaN.
struct LayerGradients {
  Case& c;
  DType type;
  enum { values, zeros, poison } before = values;
  std::vector<std::pair<std::string, Mat>> start = {};

  Mat begin(const std::string& name, std::int64_t rows, std::int64_t cols, DType t) {
    start.emplace_back(name, before == values ? normal_mat(c.random, rows, cols, 1, t)
                                              : Mat(rows, cols, before == zeros ? 0 : std::nan("")));
    return start.back().second;
  }
  Matrix matrix(const std::string& name, const Mat& weight) {
    return c.in_place(name, begin(name, weight.rows, weight.cols, type), type);
  }
  Vector vector(const std::string& name, const Vec& weight) {
    return c.in_place_vec(name, begin(name, reference::size(weight), 1, c.stats).v, c.stats);
  }
  void expect_added(const std::string& name, Mat ref, Mat chain) {
    for (const auto& [which, held] : start) {
      if (which != name) continue;
      for (std::size_t i = 0; i < ref.v.size(); ++i) {
        ref.v[i] += held.v[i];
        chain.v[i] = c.round()(chain.v[i] + held.v[i]);
      }
    }
    expect(c, name.c_str(), ref, chain);
  }
  void expect_added(const std::string& name, const Vec& ref, const Vec& chain) {
    expect_added(name, reference::column(ref), reference::column(chain));
  }
};

inline ops::BlockGradients block_gradients(LayerGradients& g, const LayerNumbers& x) {
  return {.out = g.matrix("out", x.w.out),
          .post_norm = g.vector("post_norm", x.w.post_norm),
          .gate_up = g.matrix("gate_up", x.w.gate_up),
          .down = g.matrix("down", x.w.down)};
}
inline ops::QkvGradients projection_gradients(LayerGradients& g, const LayerNumbers& x) {
  ops::QkvGradients y{.input_norm = g.vector("input_norm", x.w.next_norm), .qkv = g.matrix("qkv", x.w.qkv)};
  if (x.d.qk_norm) y.q_norm = g.vector("q_norm", x.w.q_norm), y.k_norm = g.vector("k_norm", x.w.k_norm);
  return y;
}

inline ops::BlockBackward block_backward_call(Case& c, const LayerNumbers& x, const ops::Block& f, LayerGradients& g) {
  const std::int64_t m = x.d.m, hidden = x.d.hidden;
  return {.attended = f.attended,
          .x_mid = f.x_mid,
          .rstd_mid = f.rstd_mid,
          .preact = f.preact,
          .x_next = f.x_next,
          .rstd_next = f.rstd_next,
          .qkv = x.d.qk_norm ? Matrix() : f.qkv,
          .qkv_preact = f.qkv_preact,
          .dqkv = c.in(x.dqkv),
          .dx_next = c.in(x.dx_next),
          .weights = f.weights,
          .next = f.next,
          .heads = f.heads,
          .function = f.function,
          .head_eps = f.head_eps,
          .gradients = block_gradients(g, x),
          .next_gradients = projection_gradients(g, x),
          .dz = c.out("dz", m, x.d.heads.width()),
          .dpreact = c.out("dpreact", m, 2 * x.d.ffn),
          .dx = c.out("dx", m, hidden),
          .dattended = c.out("dattended", m, x.attended.cols)};
}

inline ops::BlockPostBackward block_post_backward_call(Case& c, const LayerNumbers& x, const ops::BlockPost& f,
                                                       LayerGradients& g) {
  const LossCase loss = loss_case(x.d);
  return {.attended = f.attended,
          .x_mid = f.x_mid,
          .rstd_mid = f.rstd_mid,
          .preact = f.preact,
          .x_last = f.x_last,
          .rstd_last = f.rstd_last,
          .h = f.h,
          .dloss = c.vec(x.dloss, c.stats),
          .weights = f.weights,
          .head = {.final_norm = f.head.final_norm, .head = c.in(x.head)},
          .function = f.function,
          .transform = loss.transform,
          .target = c.indices(x.target, false),
          .options = loss.options,
          .logit_rows = x.d.m % 2 == 0 ? 0 : 16,
          .gradients = block_gradients(g, x),
          .head_gradients = {.final_norm = g.vector("final_norm", x.w.next_norm), .head = g.matrix("head", x.head)},
          .lse = c.out_vec("lse", x.d.m, c.stats),
          .loss = c.out_vec("loss", x.d.m, c.stats),
          .dpreact = c.out("dpreact", x.d.m, 2 * x.d.ffn),
          .dx = c.out("dx", x.d.m, x.d.hidden),
          .dattended = c.out("dattended", x.d.m, x.attended.cols)};
}

}  // namespace coda::test
