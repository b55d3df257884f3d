// What `coda bench` times: the backward programs.
#include "coda/cli/bench_cases.h"
#include "coda/programs/activation.h"
#include "coda/programs/residual.h"

namespace coda::cli {
namespace {

const float* floats(const ConstVector& v) { return static_cast<const float*>(v.data); }

template <class Act>
void glu_backward(BenchCase& c, ops::Glu f) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmGluBackward args{.a = c.a,
                                    .b = c.b,
                                    .layout = c.layout,
                                    .function = f,
                                    .preact = c.matrix(c.m, 2 * c.n),
                                    .dpreact = c.matrix(c.m, 2 * c.n),
                                    .out = c.matrix(c.m, c.n),
                                    .dot = {.zdz = c.row_partials()}};
    c.compare<T>([args] { ops::gemm_glu_backward(args); },
                 coda::GemmGluBackward<T, Act>{.preact = args.preact.as<T>(),
                                               .dpreact = args.dpreact.as<T>(),
                                               .out = args.out.as<T>(),
                                               .dot = {args.dot.zdz.as<float>()}});
  });
}

}  // namespace

void bench_gemm_rms_backward(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmRmsBackward args{.a = c.a,
                                    .b = c.b,
                                    .layout = c.layout,
                                    .x = c.matrix(c.m, c.n),
                                    .dx_in = c.matrix(c.m, c.n),
                                    .rstd = c.statistic(c.m),
                                    .row_term = c.statistic(c.m),
                                    .weight = c.vector(c.n),
                                    .dx = c.matrix(c.m, c.n),
                                    .h = c.matrix(c.m, c.n),
                                    .dweight = c.column_partials()};
    c.compare<T>([args] { ops::gemm_rms_backward(args); },
                 coda::GemmRmsBackward<T>{.x = args.x.as<T>(),
                                          .dx_in = args.dx_in.as<T>(),
                                          .rstd = {floats(args.rstd)},
                                          .row_term = {floats(args.row_term), 0},
                                          .weight = {static_cast<const T*>(args.weight.data)},
                                          .dx = args.dx.as<T>(),
                                          .h = args.h.as<T>(),
                                          .dweight = args.dweight.as<float>()});
  });
}

void bench_gemm_layernorm_backward(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmLayerNormBackward args{.a = c.a,
                                          .b = c.b,
                                          .layout = c.layout,
                                          .x = c.matrix(c.m, c.n),
                                          .dx_in = c.matrix(c.m, c.n),
                                          .rstd = c.statistic(c.m),
                                          .mean = c.statistic(c.m),
                                          .zdz = c.statistic(c.m),
                                          .udz = c.statistic(c.m),
                                          .weight = c.vector(c.n),
                                          .bias = c.vector(c.n),
                                          .dx = c.matrix(c.m, c.n),
                                          .h = c.matrix(c.m, c.n),
                                          .dweight = c.column_partials(),
                                          .dbias = c.column_partials()};
    c.compare<T>([args] { ops::gemm_layernorm_backward(args); },
                 coda::GemmLayerNormBackward<T>{.x = args.x.as<T>(),
                                                .dx_in = args.dx_in.as<T>(),
                                                .rstd = {floats(args.rstd)},
                                                .mean = {floats(args.mean), 0},
                                                .zdz = {floats(args.zdz), 0},
                                                .udz = {floats(args.udz), 0},
                                                .weight = {static_cast<const T*>(args.weight.data)},
                                                .bias = {static_cast<const T*>(args.bias.data), 0},
                                                .dx = args.dx.as<T>(),
                                                .h = args.h.as<T>(),
                                                .dweight = args.dweight.as<float>(),
                                                .dbias = args.dbias.as<float>()});
  });
}

void bench_gemm_swiglu_backward(BenchCase& c) { glu_backward<SwiGlu>(c, ops::Glu::swiglu); }
void bench_gemm_geglu_erf_backward(BenchCase& c) { glu_backward<GeGluErf>(c, ops::Glu::geglu_erf); }
void bench_gemm_geglu_tanh_backward(BenchCase& c) { glu_backward<GeGluTanh>(c, ops::Glu::geglu_tanh); }
void bench_gemm_reglu_backward(BenchCase& c) { glu_backward<ReGlu>(c, ops::Glu::reglu); }

void bench_gemm_activation_backward(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmActivationBackward args{.a = c.a,
                                           .b = c.b,
                                           .layout = c.layout,
                                           .activation = ops::Activation::silu,
                                           .preact = c.matrix(c.m, c.n),
                                           .dpreact = c.matrix(c.m, c.n),
                                           .out = c.matrix(c.m, c.n),
                                           .dot = {.zdz = c.row_partials()}};
    c.compare<T>([args] { ops::gemm_activation_backward(args); },
                 coda::GemmActivationBackward<T>{.preact = args.preact.as<T>(),
                                                 .dpreact = args.dpreact.as<T>(),
                                                 .out = args.out.as<T>(),
                                                 .dot = {args.dot.zdz.as<float>()}});
  });
}

}  // namespace coda::cli
