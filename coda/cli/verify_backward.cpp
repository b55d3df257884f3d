// How `coda verify` runs the backward programs and what it expects of them.
#include "coda/cli/verify_cases.h"
#include "tests/reference/backward.h"

namespace coda::cli {
namespace {

namespace ref = reference;

/// The row terms of the norm before a layer: rms: zdz = sum of z dz; layernorm: sums of dz (z - c) and of dz u.
struct Dot {
  ops::NormDot argument;
  std::vector<Output> outputs;
  Vec u, c;

  void compare(VerifyCase& v, const Both<Mat>& z, const Both<Mat>& dz, std::int64_t block) const {
    const auto sums = [&](bool second) {
      const auto of = [&](const Mat& zz, const Mat& d, Round r) {
        return ref::block_sums(d.rows, d.cols, block, r, [&](std::int64_t i, std::int64_t j) {
          const auto column = static_cast<std::size_t>(j);
          if (second) return u[column] * d(i, j);
          return (c.empty() ? zz(i, j) : zz(i, j) - c[column]) * d(i, j);
        });
      };
      v.compare(outputs[second ? 1 : 0], of(z.exact, dz.exact, Round::exact()),
                of(z.chain, dz.chain, Round::to(v.type)));
    };
    sums(false);
    if (outputs.size() > 1) sums(true);
  }
};

Dot make_dot(VerifyCase& c, bool layernorm, std::int64_t width, std::int64_t tiles) {
  Dot d;
  d.outputs.push_back(c.output("dot.zdz", c.m, tiles, c.stats));
  d.argument.zdz = d.outputs[0].matrix();
  if (!layernorm) return d;
  const Input u = c.statistic(width, -1, 1), shift = c.statistic(width, -1, 1);
  d.outputs.push_back(c.output("dot.udz", c.m, tiles, c.stats));
  d.argument.udz = d.outputs[1].matrix();
  d.argument.u = u.vector(), d.argument.c = shift.vector();
  d.u = u.vec(), d.c = shift.vec();
  return d;
}
Both<Mat> given(const Input& x) { return {x.values, x.values}; }

void verify_glu_backward(VerifyCase& c, ops::Glu f, ref::Activation f_ref) {
  const auto [a, b, acc] = c.operands();
  const Input preact = c.matrix(c.m, 2 * c.n);
  const std::int64_t tiles = ref::blocks_of(c.n, c.block_n);
  const auto g = c.both(acc, [&](const Mat& dy, Round r) {
    return ref::gated_backward(dy, preact.values, f_ref, c.block_n, nullptr, r);
  });
  for (const bool layernorm : {false, true}) {
    c.option = layernorm ? "layernorm" : "";
    const Dot dot = make_dot(c, layernorm, 2 * c.n, tiles);
    const Output dpreact = c.matrix_output("dpreact", c.m, 2 * c.n), out = c.matrix_output("out", c.m, c.n);
    ops::gemm_glu_backward({.a = a.matrix(),
                            .b = b.matrix(),
                            .layout = c.layout,
                            .function = f,
                            .preact = preact.matrix(),
                            .dpreact = dpreact.matrix(),
                            .out = out.matrix(),
                            .dot = dot.argument,
                            .on = c.on});
    c.compare(dpreact, g.exact.dz, g.chain.dz);
    c.compare(out, g.exact.y, g.chain.y);
    dot.compare(c, given(preact), {g.exact.dz, g.chain.dz}, 2 * c.block_n);
  }
}

}  // namespace

void verify_gemm_rms_backward(VerifyCase& c) {
  const auto [a, b, acc] = c.operands();
  const Input x = c.matrix(c.m, c.n), dx_in = c.matrix(c.m, c.n), weight = c.vector(c.n),
              rstd = c.statistic(c.m, 0.5, 1.5), row_term = c.statistic(c.m, -1, 1);
  const Output dx = c.matrix_output("dx", c.m, c.n), h = c.matrix_output("h", c.m, c.n),
               dweight = c.column_partials("dweight");
  ops::gemm_rms_backward({.a = a.matrix(),
                          .b = b.matrix(),
                          .layout = c.layout,
                          .x = x.matrix(),
                          .dx_in = dx_in.matrix(),
                          .rstd = rstd.vector(),
                          .row_term = row_term.vector(),
                          .weight = weight.vector(),
                          .dx = dx.matrix(),
                          .h = h.matrix(),
                          .dweight = dweight.matrix(),
                          .on = c.on});
  const auto g = c.both(acc, [&](const Mat& dh, Round r) {
    return ref::rms_backward(dh, x.values, rstd.vec(), weight.vec(), &dx_in.values, row_term.vec(), c.block_m, r);
  });
  c.compare(dx, g.exact.dx, g.chain.dx);
  c.compare(h, g.exact.h, g.chain.h);
  c.compare(dweight, g.exact.dw, g.chain.dw);
}

void verify_gemm_layernorm_backward(VerifyCase& c) {
  const auto [a, b, acc] = c.operands();
  const Input x = c.matrix(c.m, c.n), dx_in = c.matrix(c.m, c.n), weight = c.vector(c.n), bias = c.vector(c.n),
              rstd = c.statistic(c.m, 0.5, 1.5), mean = c.statistic(c.m, -1, 1), zdz = c.statistic(c.m, -1, 1),
              udz = c.statistic(c.m, -1, 1);
  const Output dx = c.matrix_output("dx", c.m, c.n), h = c.matrix_output("h", c.m, c.n),
               dweight = c.column_partials("dweight"), dbias = c.column_partials("dbias");
  ops::gemm_layernorm_backward({.a = a.matrix(),
                                .b = b.matrix(),
                                .layout = c.layout,
                                .x = x.matrix(),
                                .dx_in = dx_in.matrix(),
                                .rstd = rstd.vector(),
                                .mean = mean.vector(),
                                .zdz = zdz.vector(),
                                .udz = udz.vector(),
                                .weight = weight.vector(),
                                .bias = bias.vector(),
                                .dx = dx.matrix(),
                                .h = h.matrix(),
                                .dweight = dweight.matrix(),
                                .dbias = dbias.matrix(),
                                .on = c.on});
  const auto g = c.both(acc, [&](const Mat& dh, Round r) {
    return ref::layernorm_backward(dh, x.values, {mean.vec(), rstd.vec()}, weight.vec(), bias.vec(), &dx_in.values,
                                   {udz.vec(), zdz.vec()}, c.block_m, r);
  });
  c.compare(dx, g.exact.dx, g.chain.dx);
  c.compare(h, g.exact.h, g.chain.h);
  c.compare(dweight, g.exact.dw, g.chain.dw);
  c.compare(dbias, g.exact.db, g.chain.db);
}

void verify_gemm_swiglu_backward(VerifyCase& c) { verify_glu_backward(c, ops::Glu::swiglu, ref::Activation::silu); }
void verify_gemm_geglu_erf_backward(VerifyCase& c) {
  verify_glu_backward(c, ops::Glu::geglu_erf, ref::Activation::gelu);
}
void verify_gemm_geglu_tanh_backward(VerifyCase& c) {
  verify_glu_backward(c, ops::Glu::geglu_tanh, ref::Activation::gelu_tanh);
}
void verify_gemm_reglu_backward(VerifyCase& c) { verify_glu_backward(c, ops::Glu::reglu, ref::Activation::relu); }

void verify_gemm_activation_backward(VerifyCase& c) {
  const auto [a, b, acc] = c.operands();
  const Input preact = c.matrix(c.m, c.n);
  for (const auto& [f, f_ref] : kActivationPairs) {
    c.option = ops::name_of(f);
    const Dot dot = make_dot(c, f == ops::Activation::identity, c.n, ref::blocks_of(c.n, c.block_n));
    const Output dpreact = c.matrix_output("dpreact", c.m, c.n), out = c.matrix_output("out", c.m, c.n);
    ops::gemm_activation_backward({.a = a.matrix(),
                                   .b = b.matrix(),
                                   .layout = c.layout,
                                   .activation = f,
                                   .preact = preact.matrix(),
                                   .dpreact = dpreact.matrix(),
                                   .out = out.matrix(),
                                   .dot = dot.argument,
                                   .on = c.on});
    const auto g = c.both(acc, [&, f_ref = f_ref](const Mat& dy, Round r) {
      return ref::activation_backward(dy, preact.values, f_ref, c.block_n, nullptr, r);
    });
    c.compare(dpreact, g.exact.dz, g.chain.dz);
    c.compare(out, g.exact.y, g.chain.y);
    dot.compare(c, given(preact), {g.exact.dz, g.chain.dz}, c.block_n);
  }
}

void verify_rope_backward(VerifyCase& c) {
  const auto heads = c.heads();
  const Input y = c.matrix(c.m, c.n), dy = c.matrix(c.m, c.n);
  const Dot dot = make_dot(c, false, c.n, ref::blocks_of(c.n, c.block_n));
  const Output dz = c.matrix_output("dz", c.m, c.n);
  ops::rope_backward({.y = y.matrix(),
                      .dy = dy.matrix(),
                      .heads = heads.argument,
                      .dz = dz.matrix(),
                      .dot = dot.argument,
                      .on = c.on});
  const auto g = c.both(
      [&](Round r) { return ref::rope_backward(dy.values, y.values, heads.table, heads.position, heads.heads, r).dz; });
  c.compare(dz, g.exact, g.chain);
  // A rotation keeps inner products: the sum of z dz is that of y dy.
  dot.compare(c, given(y), given(dy), c.block_n);
}

void verify_qknorm_rope_backward(VerifyCase& c) {
  const auto heads = c.heads();
  const std::int64_t dim = heads.heads.dim, tiles = ops::head_tiles_n(c.n, dim, c.on.backend);
  const Input preact = c.matrix(c.m, c.n), dy = c.matrix(c.m, c.n), wq = c.vector(dim), wk = c.vector(dim);
  // A norm leaves no dz along z but for eps: where all heads have one, a small eps would let their sums cancel.
  const ref::QkNorm qk{wq.vec(), wk.vec(), heads.heads.v > 0 ? 1e-6 : 1};
  const Dot dot = make_dot(c, false, c.n, tiles);
  const Output dz = c.matrix_output("dz", c.m, c.n), dweight = c.column_partials("dweight"),
               dwq = c.vector_output("dq_weight", dim), dwk = c.vector_output("dk_weight", dim);
  ops::qknorm_rope_backward({.preact = preact.matrix(),
                             .dy = dy.matrix(),
                             .heads = heads.argument,
                             .q_weight = wq.vector(),
                             .k_weight = wk.vector(),
                             .eps = qk.eps,
                             .dz = dz.matrix(),
                             .dweight = dweight.matrix(),
                             .dot = dot.argument,
                             .on = c.on});
  ops::head_weight_gradient({.partial = dweight.matrix(),
                             .heads = heads.argument,
                             .dq_weight = dwq.vector(),
                             .dk_weight = dwk.vector(),
                             .on = c.on});
  const auto g = c.both([&](Round r) {
    return ref::qknorm_rope_backward(dy.values, preact.values, qk, heads.table, heads.position, heads.heads, c.m,
                                     nullptr, r);
  });
  c.compare(dz, g.exact.dz, g.chain.dz);
  c.compare(dwq, g.exact.dwq.v, g.chain.dwq.v);
  c.compare(dwk, g.exact.dwk.v, g.chain.dwk.v);
  // Blocks of its partial results are whole heads.
  dot.compare(c, given(preact), {g.exact.dz, g.chain.dz}, std::max<std::int64_t>(c.block_n / dim, 1) * dim);
}

}  // namespace coda::cli
