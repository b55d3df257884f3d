// What `coda bench` times: the forward programs and the loss.
#include "coda/cli/bench_cases.h"
#include "coda/programs/activation.h"
#include "coda/programs/gemm.h"
#include "coda/programs/loss.h"
#include "coda/programs/residual.h"
#include "coda/programs/rope.h"

namespace coda::cli {
namespace {

const float* floats(const ConstVector& v) { return static_cast<const float*>(v.data); }

template <class T>
RmsScale<T> rms_scale(const ops::Norm& norm) {
  return {.rstd = {floats(norm.rstd)}};
}
template <class T>
coda::LayerNormScale<T> layernorm_scale(const ops::Norm& norm) {
  return {
      .rstd = {floats(norm.rstd)}, .mean = {floats(norm.mean), 0}, .u = {floats(norm.u), 0}, .c = {floats(norm.c), 0}};
}
ops::Norm rms(BenchCase& c) { return {.rstd = c.statistic(c.m)}; }
ops::Norm layernorm(BenchCase& c) {
  return {.rstd = c.statistic(c.m), .mean = c.statistic(c.m), .u = c.statistic(c.n), .c = c.statistic(c.n)};
}

template <class Act>
void glu(BenchCase& c, ops::Glu f) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmNormGlu args{.a = c.a,
                                .b = c.b,
                                .layout = c.layout,
                                .norm = rms(c),
                                .function = f,
                                .preact = c.matrix(c.m, c.n),
                                .out = c.matrix(c.m, c.n / 2)};
    c.compare<T>([args] { ops::gemm_norm_glu(args); },
                 coda::GemmNormGlu<T, RmsScale<T>, Act>{
                     .norm = rms_scale<T>(args.norm), .preact = args.preact.as<T>(), .out = args.out.as<T>()});
  });
}

RotaryTable<float> rotary(const ops::Heads& h) {
  return {.table = static_cast<const float*>(h.table.data),
          .position = {},
          .columns = (h.q + h.k) * h.head_dim,
          .head_dim = static_cast<int>(h.head_dim)};
}

void lse(BenchCase& c, bool store_logits) {
  c.typed([&](auto t) {
    using T = decltype(t);
    ops::GemmLse args{.a = c.a,
                      .b = c.b,
                      .layout = c.layout,
                      .norm = rms(c),
                      .target = c.targets(),
                      .max = c.row_partials(),
                      .sum = c.row_partials(),
                      .target_logit = c.statistic(c.m)};
    if (store_logits) args.logits = c.matrix(c.m, c.n);
    c.compare<T>([args] { ops::gemm_lse(args); },
                 coda::GemmNormLse<T>{.norm = rms_scale<T>(args.norm),
                                      .logits = args.logits.template as<T>(),
                                      .lse = {args.max.template as<float>(), args.sum.template as<float>()},
                                      .target_logit = {static_cast<const std::int32_t*>(args.target.data),
                                                       static_cast<float*>(args.target_logit.data), 0}});
  });
}

}  // namespace

void bench_gemm(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::Gemm args{.a = c.a,
                         .b = c.b,
                         .layout = c.layout,
                         .bias = c.vector(c.n),
                         .activation = ops::Activation::gelu_tanh,
                         .out = c.matrix(c.m, c.n)};
    c.compare<T>([args] { ops::gemm(args); },
                 coda::Gemm<T, GeluTanh>{.bias = {static_cast<const T*>(args.bias.data), 0}, .out = args.out.as<T>()});
  });
}

void bench_gemm_residual_rms(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmResidual args{.a = c.a,
                                 .b = c.b,
                                 .layout = c.layout,
                                 .residual = c.matrix(c.m, c.n),
                                 .weight = c.vector(c.n),
                                 .x = c.matrix(c.m, c.n),
                                 .h = c.matrix(c.m, c.n),
                                 .sum_sq = c.row_partials()};
    c.compare<T>([args] { ops::gemm_residual(args); },
                 coda::GemmResidual<T>{.residual = args.residual.as<T>(),
                                       .weight = {static_cast<const T*>(args.weight.data)},
                                       .x = args.x.as<T>(),
                                       .h = args.h.as<T>(),
                                       .stat = {args.sum_sq.as<float>()}});
  });
}

void bench_gemm_residual_layernorm(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmResidual args{.a = c.a,
                                 .b = c.b,
                                 .layout = c.layout,
                                 .residual = c.matrix(c.m, c.n),
                                 .weight = c.vector(c.n),
                                 .x = c.matrix(c.m, c.n),
                                 .h = c.matrix(c.m, c.n),
                                 .mean = c.row_partials(),
                                 .m2 = c.row_partials()};
    c.compare<T>([args] { ops::gemm_residual(args); },
                 coda::GemmResidual<T, coda::Moments<T>>{.residual = args.residual.as<T>(),
                                                         .weight = {static_cast<const T*>(args.weight.data)},
                                                         .x = args.x.as<T>(),
                                                         .h = args.h.as<T>(),
                                                         .stat = {{args.mean.as<float>(), args.m2.as<float>()}}});
  });
}

void bench_gemm_rms(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmNorm args{.a = c.a, .b = c.b, .layout = c.layout, .norm = rms(c), .out = c.matrix(c.m, c.n)};
    c.compare<T>([args] { ops::gemm_norm(args); },
                 coda::GemmNorm<T>{.norm = rms_scale<T>(args.norm), .out = args.out.as<T>()});
  });
}

void bench_gemm_layernorm(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmNorm args{.a = c.a, .b = c.b, .layout = c.layout, .norm = layernorm(c), .out = c.matrix(c.m, c.n)};
    c.compare<T>([args] { ops::gemm_norm(args); }, coda::GemmNorm<T, coda::LayerNormScale<T>>{
                                                       .norm = layernorm_scale<T>(args.norm), .out = args.out.as<T>()});
  });
}

void bench_gemm_rms_swiglu(BenchCase& c) { glu<SwiGlu>(c, ops::Glu::swiglu); }
void bench_gemm_rms_geglu_erf(BenchCase& c) { glu<GeGluErf>(c, ops::Glu::geglu_erf); }
void bench_gemm_rms_geglu_tanh(BenchCase& c) { glu<GeGluTanh>(c, ops::Glu::geglu_tanh); }
void bench_gemm_rms_reglu(BenchCase& c) { glu<ReGlu>(c, ops::Glu::reglu); }

void bench_gemm_rms_rope(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmNormRope args{
        .a = c.a, .b = c.b, .layout = c.layout, .norm = rms(c), .heads = c.heads(), .out = c.matrix(c.m, c.n)};
    c.compare<T>(
        [args] { ops::gemm_norm_rope(args); },
        coda::GemmNormRope<T>{.norm = rms_scale<T>(args.norm), .rope = rotary(args.heads), .out = args.out.as<T>()});
  });
}

void bench_gemm_rms_rotate(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::GemmNormRotate args{.a = c.a,
                                   .b = c.b,
                                   .layout = c.layout,
                                   .norm = rms(c),
                                   .angle = c.matrix(c.m, c.n),
                                   .preact = c.matrix(c.m, c.n),
                                   .out = c.matrix(c.m, c.n)};
    c.compare<T>([args] { ops::gemm_norm_rotate(args); }, coda::GemmNormRotate<T>{.norm = rms_scale<T>(args.norm),
                                                                                  .angle = args.angle.as<T>(),
                                                                                  .preact = args.preact.as<T>(),
                                                                                  .out = args.out.as<T>()});
  });
}

void bench_gemm_rms_qknorm_rope(BenchCase& c) {
  c.typed([&](auto t) {
    using T = decltype(t);
    const ops::Heads heads = c.heads();
    const ops::GemmNormQkNormRope args{.a = c.a,
                                       .b = c.b,
                                       .layout = c.layout,
                                       .norm = rms(c),
                                       .heads = heads,
                                       .q_weight = c.vector(heads.head_dim),
                                       .k_weight = c.vector(heads.head_dim),
                                       .preact = c.matrix(c.m, c.n),
                                       .out = c.matrix(c.m, c.n)};
    const RotaryTable<float> rope = rotary(heads);
    c.compare<T>(
        [args] { ops::gemm_norm_qknorm_rope(args); },
        coda::GemmNormQkNormRope<T>{.norm = rms_scale<T>(args.norm),
                                    .square = {.columns = rope.columns, .head_dim = rope.head_dim, .eps = 1e-6F},
                                    .weight = {.q = static_cast<const T*>(args.q_weight.data),
                                               .k = static_cast<const T*>(args.k_weight.data),
                                               .q_columns = heads.q * heads.head_dim,
                                               .columns = rope.columns,
                                               .head_dim = rope.head_dim},
                                    .rope = rope,
                                    .preact = args.preact.as<T>(),
                                    .out = args.out.as<T>()});
  });
}

void bench_gemm_lse(BenchCase& c) { lse(c, true); }
void bench_linear_cross_entropy(BenchCase& c) { lse(c, false); }

}  // namespace coda::cli
