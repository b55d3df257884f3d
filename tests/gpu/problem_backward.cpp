// The backward programs.
#include <cmath>

#include "tests/gpu/problem.h"

namespace coda::test::gpu {
namespace {

Call draw_gemm_rms_backward(Draw& d, int) {
  const auto p = d.product();
  const Id x_in = d.matrix("x", d.n, d.scale());
  Id dx_in = kNone, dx = kNone;
  if (d.given()) dx_in = d.matrix("dx_in", d.n, d.scale());
  const Id rstd = d.factors("rstd", d.m, Kind::statistic, 1 / d.scale(), true);
  const Id row_term = d.rows("row_term", d.scale());
  const Id weight = d.given() ? d.factors("weight", d.n, Kind::operand, 1, false) : kNone;
  if (dx_in != kNone && d.random.integer(0, 1) == 1) dx = d.in_place(dx_in, "dx", true);
  else dx = d.out("dx", d.n, true);
  const Id h = d.given() ? d.out("h", d.n, true) : kNone;
  const Id dweight = d.given() ? d.column_partial("dweight", true) : kNone;
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm_rms_backward({.a = x[p.a],
                            .b = x[p.b],
                            .layout = p.layout,
                            .x = x[x_in],
                            .dx_in = x[dx_in],
                            .rstd = x[rstd],
                            .row_term = x[row_term],
                            .weight = x[weight],
                            .dx = x[dx],
                            .h = x[h],
                            .dweight = x[dweight],
                            .on = on});
  };
}

Call draw_gemm_layernorm_backward(Draw& d, int) {
  const auto p = d.product();
  const Id x_in = d.matrix("x", d.n, d.scale());
  const Id dx_in = d.given() ? d.matrix("dx_in", d.n, d.scale()) : kNone;
  const Id rstd = d.factors("rstd", d.m, Kind::statistic, 1 / d.scale(), true);
  const Id mean = d.rows("mean", d.scale()), zdz = d.rows("zdz", d.scale()), udz = d.rows("udz", d.scale());
  const Id weight = d.given() ? d.factors("weight", d.n, Kind::operand, 1, false) : kNone;
  const Id bias = d.given() ? d.row_vector("bias") : kNone;
  const Id dx = d.out("dx", d.n, true);
  const Id h = d.given() ? d.out("h", d.n, true) : kNone;
  const Id dweight = d.given() ? d.column_partial("dweight", true) : kNone;
  const Id dbias = d.given() ? d.column_partial("dbias", true) : kNone;
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm_layernorm_backward({.a = x[p.a],
                                  .b = x[p.b],
                                  .layout = p.layout,
                                  .x = x[x_in],
                                  .dx_in = x[dx_in],
                                  .rstd = x[rstd],
                                  .mean = x[mean],
                                  .zdz = x[zdz],
                                  .udz = x[udz],
                                  .weight = x[weight],
                                  .bias = x[bias],
                                  .dx = x[dx],
                                  .h = x[h],
                                  .dweight = x[dweight],
                                  .dbias = x[dbias],
                                  .on = on});
  };
}

/// Each gated activation with the row term of an RMSNorm, then with those of a LayerNorm.
Call draw_gemm_glu_backward(Draw& d, int variant) {
  const auto p = d.product();
  const auto f = static_cast<ops::Glu>(variant % 4);
  const bool linear = f == ops::Glu::reglu;
  const Id preact = d.matrix("preact", 2 * d.n, d.scale());
  const Mat z = d.values(preact);
  const Id dpreact =
      d.random.integer(0, 1) == 1 ? d.in_place(preact, "dpreact", linear) : d.out("dpreact", 2 * d.n, linear);
  const Id out = d.given() ? d.out("out", d.n, linear) : kNone;
  const auto dot = d.row_terms(variant >= 4, dpreact, z, d.n, linear);
  if (!linear) d.allow_for_derivative(dot, p, z);
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm_glu_backward({.a = x[p.a],
                            .b = x[p.b],
                            .layout = p.layout,
                            .function = f,
                            .preact = x[preact],
                            .dpreact = x[dpreact],
                            .out = x[out],
                            .dot = dot.bind(x),
                            .on = on});
  };
}

Call draw_gemm_activation_backward(Draw& d, int variant) {
  const auto p = d.product();
  const auto f = static_cast<ops::Activation>(variant % 6);
  const bool linear =
      f == ops::Activation::identity || f == ops::Activation::relu || f == ops::Activation::relu_squared;
  const Id preact = d.matrix("preact", d.n, d.scale());
  const Mat z = d.values(preact);
  const Id dpreact =
      d.random.integer(0, 1) == 1 ? d.in_place(preact, "dpreact", linear) : d.out("dpreact", d.n, linear);
  const Id out = d.given() ? d.out("out", d.n, linear) : kNone;
  const auto dot = d.row_terms(variant >= 6, dpreact, z, d.n, linear);
  if (!linear) d.allow_for_derivative(dot, p, z);
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm_activation_backward({.a = x[p.a],
                                   .b = x[p.b],
                                   .layout = p.layout,
                                   .activation = f,
                                   .preact = x[preact],
                                   .dpreact = x[dpreact],
                                   .out = x[out],
                                   .dot = dot.bind(x),
                                   .on = on});
  };
}

Call draw_rope_backward(Draw& d, int variant) {
  const auto heads = d.heads();
  const Id y = d.matrix("y", d.n, d.scale()), dy = d.matrix("dy", d.n, d.scale());
  const Mat value = d.values(y);
  const Id dz = d.random.integer(0, 1) == 1 ? d.in_place(dy, "dz", true) : d.out("dz", d.n, true);
  // The row term is of z, a rotation of y: no element of it is larger than a pair of y's together.
  Mat pairs = value;
  for (std::int64_t i = 0; i < d.m; ++i)
    for (std::int64_t j = 0; j < d.n; ++j) pairs(i, j) = std::fabs(value(i, j)) + std::fabs(value(i, j ^ 1));
  const auto dot = d.row_terms(variant == 1, dz, pairs, d.n, true);
  return [=](const Bound& x, const ops::Target& on) {
    ops::rope_backward({.y = x[y], .dy = x[dy], .heads = heads.bind(x), .dz = x[dz], .dot = dot.bind(x), .on = on});
  };
}

Call draw_qknorm_rope_backward(Draw& d, int variant) {
  const auto heads = d.heads();
  const Id preact = d.matrix("preact", d.n, d.scale()), dy = d.matrix("dy", d.n, d.scale());
  const Mat z = d.values(preact);
  const Id q = d.vector("q_weight", heads.dim, Kind::operand, 1), k = d.vector("k_weight", heads.dim, Kind::operand, 1);
  const Id dz = d.random.integer(0, 1) == 1 ? d.in_place(dy, "dz", false) : d.out("dz", d.n, false);
  // The scale of a head is at most 1 / sqrt(eps); what the norm's own gradient takes off may cancel the rest.
  const double eps = 0.25 * d.scale() * d.scale(), gradient = d.exact() ? 16 * 8 : 16 * d.scale();
  d.slot(dz).magnitude = Draw::constant(2 * gradient / std::sqrt(eps));
  const Id dweight = d.column_partial("dweight", false);
  d.slot(dweight).magnitude = Draw::constant(gradient * std::sqrt(static_cast<double>(d.m)));
  const auto dot = d.row_terms(variant == 1, dz, z, d.n, false, heads.dim);
  const double row = 2 * gradient / std::sqrt(eps) * static_cast<double>(d.n);
  if (dot.zdz != kNone) d.slot(dot.zdz).magnitude = Draw::constant(row * (d.exact() ? 16 : 5 * d.scale()));
  if (dot.udz != kNone) d.slot(dot.udz).magnitude = Draw::constant(row * (d.exact() ? 8 : 5));
  return [=](const Bound& x, const ops::Target& on) {
    ops::qknorm_rope_backward({.preact = x[preact],
                               .dy = x[dy],
                               .heads = heads.bind(x),
                               .q_weight = x[q],
                               .k_weight = x[k],
                               .eps = eps,
                               .dz = x[dz],
                               .dweight = x[dweight],
                               .dot = dot.bind(x),
                               .on = on});
  };
}

}  // namespace

std::span<const Program> backward_programs() {
  static constexpr Program kPrograms[] = {
      {.name = "gemm_rms_backward", .variants = 1, .draw = draw_gemm_rms_backward, .natural = Layout::nn},
      {.name = "gemm_layernorm_backward", .variants = 1, .draw = draw_gemm_layernorm_backward, .natural = Layout::nn},
      {.name = "gemm_glu_backward", .variants = 8, .draw = draw_gemm_glu_backward, .natural = Layout::nn},
      {.name = "gemm_activation_backward",
       .variants = 12,
       .draw = draw_gemm_activation_backward,
       .natural = Layout::nn},
      {.name = "rope_backward", .variants = 2, .draw = draw_rope_backward, .product = false, .any_layout = false},
      {.name = "qknorm_rope_backward",
       .variants = 2,
       .draw = draw_qknorm_rope_backward,
       .product = false,
       .any_layout = false},
  };
  return kPrograms;
}

}  // namespace coda::test::gpu
