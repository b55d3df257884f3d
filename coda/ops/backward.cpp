// Backward of linear layers behind a norm, and of activations.
#include <algorithm>
#include <limits>

#include "coda/ops/common.h"
#include "coda/programs/activation.h"
#include "coda/programs/residual.h"

namespace coda::ops {

void gemm_rms_backward(const GemmRmsBackward& args) {
  Check check("gemm_rms_backward", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  check.matrix("x", args.x, p.m, p.n, p.t);
  check.optional_matrix("dx_in", args.dx_in, p.m, p.n, p.t);
  check.vector("rstd", args.rstd, p.m, p.stats);
  check.vector("row_term", args.row_term, p.m, p.stats);
  check.optional_vector("weight", args.weight, p.n, p.t);
  check.matrix("dx", args.dx, p.m, p.n, p.t);
  check.optional_matrix("h", args.h, p.m, p.n, p.t);
  check.optional_matrix("dweight", args.dweight, tiles_m(p.m, args.on.backend), p.n, p.stats);
  check.input("x", args.x);
  check.input("dx_in", args.dx_in);
  check.operand("rstd", args.rstd);
  check.operand("row_term", args.row_term);
  check.operand("weight", args.weight);
  check.output("dx", args.dx);
  check.output("h", args.h);
  check.output("dweight", args.dweight);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    run<T>(check, args.on, args.a, args.b, args.layout,
           coda::GemmRmsBackward<T>{.x = args.x.as<T>(),
                                    .dx_in = args.dx_in.as<T>(),
                                    .rstd = {pointer<Acc>(args.rstd)},
                                    .row_term = {pointer<Acc>(args.row_term), 0},
                                    .weight = {pointer<T>(args.weight)},
                                    .dx = args.dx.as<T>(),
                                    .h = args.h.as<T>(),
                                    .dweight = args.dweight.as<Acc>()});
  });
}

void gemm_layernorm_backward(const GemmLayerNormBackward& args) {
  Check check("gemm_layernorm_backward", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  check.matrix("x", args.x, p.m, p.n, p.t);
  check.optional_matrix("dx_in", args.dx_in, p.m, p.n, p.t);
  check.vector("rstd", args.rstd, p.m, p.stats);
  check.vector("mean", args.mean, p.m, p.stats);
  check.vector("zdz", args.zdz, p.m, p.stats);
  check.vector("udz", args.udz, p.m, p.stats);
  check.optional_vector("weight", args.weight, p.n, p.t);
  check.optional_vector("bias", args.bias, p.n, p.t);
  check.matrix("dx", args.dx, p.m, p.n, p.t);
  check.optional_matrix("h", args.h, p.m, p.n, p.t);
  check.optional_matrix("dweight", args.dweight, tiles_m(p.m, args.on.backend), p.n, p.stats);
  check.optional_matrix("dbias", args.dbias, tiles_m(p.m, args.on.backend), p.n, p.stats);
  check.input("x", args.x);
  check.input("dx_in", args.dx_in);
  for (const auto& [name, v] :
       {std::pair{"rstd", &args.rstd}, std::pair{"mean", &args.mean}, std::pair{"zdz", &args.zdz},
        std::pair{"udz", &args.udz}, std::pair{"weight", &args.weight}, std::pair{"bias", &args.bias}}) {
    check.operand(name, *v);
  }
  check.output("dx", args.dx);
  check.output("h", args.h);
  check.output("dweight", args.dweight);
  check.output("dbias", args.dbias);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    run<T>(check, args.on, args.a, args.b, args.layout,
           coda::GemmLayerNormBackward<T>{.x = args.x.as<T>(),
                                          .dx_in = args.dx_in.as<T>(),
                                          .rstd = {pointer<Acc>(args.rstd)},
                                          .mean = {pointer<Acc>(args.mean), 0},
                                          .zdz = {pointer<Acc>(args.zdz), 0},
                                          .udz = {pointer<Acc>(args.udz), 0},
                                          .weight = {pointer<T>(args.weight)},
                                          .bias = {pointer<T>(args.bias), 0},
                                          .dx = args.dx.as<T>(),
                                          .h = args.h.as<T>(),
                                          .dweight = args.dweight.as<Acc>(),
                                          .dbias = args.dbias.as<Acc>()});
  });
}

namespace {

// Gated (zw = Double) and plain activations differ only in how wide z is.
template <Width ZW, class Args, class WithFunction>
void function_backward(Check& check, const Args& args, const WithFunction& with_function) {
  const Product p = check_product(check, args.a, args.b, args.layout);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
  const std::int64_t width = ZW == Width::Double ? 2 * std::min(p.n, kMost) : p.n;
  check.matrix("preact", args.preact, p.m, width, p.t);
  check.matrix("dpreact", args.dpreact, p.m, width, p.t);
  check.optional_matrix("out", args.out, p.m, p.n, p.t);
  const NormKind kind = check_dot(check, args.dot, p.m, tiles_n(p.n, args.on.backend), width, p.stats);
  check.input("preact", args.preact);
  check.output("dpreact", args.dpreact);
  check.output("out", args.out);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    with_dot<T, ZW>(kind, args.dot, [&](auto dot) {
      with_function([&](auto f) {
        run<T>(check, args.on, args.a, args.b, args.layout,
               coda::GemmFunctionBackward<T, decltype(f), ZW, decltype(dot)>{.preact = args.preact.template as<T>(),
                                                                             .dpreact = args.dpreact.template as<T>(),
                                                                             .out = args.out.template as<T>(),
                                                                             .dot = dot});
      });
    });
  });
}

}  // namespace

void gemm_glu_backward(const GemmGluBackward& args) {
  Check check("gemm_glu_backward", args.on);
  function_backward<Width::Double>(check, args, [&](auto f) { with_glu(check, args.function, f); });
}

void gemm_activation_backward(const GemmActivationBackward& args) {
  Check check("gemm_activation_backward", args.on);
  function_backward<Width::Same>(check, args, [&](auto f) { with_activation(check, args.activation, f); });
}

}  // namespace coda::ops
