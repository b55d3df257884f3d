// Plain, activated and gated linear layers, and the residual stream.
#include "coda/programs/gemm.h"

#include <iterator>

#include "coda/backend/sm90/blas.h"
#include "coda/ops/common.h"
#include "coda/programs/activation.h"
#include "coda/programs/residual.h"

namespace coda::ops {

const char* name_of(Activation f) {
  constexpr const char* names[] = {"identity", "silu", "gelu_erf", "gelu_tanh", "relu", "relu_squared"};
  const auto i = static_cast<std::size_t>(f);
  return i < std::size(names) ? names[i] : "no activation";
}
const char* name_of(Glu f) {
  constexpr const char* names[] = {"swiglu", "geglu_erf", "geglu_tanh", "reglu"};
  const auto i = static_cast<std::size_t>(f);
  return i < std::size(names) ? names[i] : "no gated function";
}

// They return a number in C, too, and so have no way to fail.
std::int64_t tiles_n(std::int64_t n, Backend backend) {
  return backend == Backend::cpu ? cpu::tiles_n(n) : backend == Backend::sm90 ? sm90::tiles_n(n) : 0;
}
std::int64_t tiles_m(std::int64_t m, Backend backend) {
  return backend == Backend::cpu ? cpu::tiles_m(m) : backend == Backend::sm90 ? sm90::tiles_m(m) : 0;
}
std::int64_t head_tiles_n(std::int64_t n, std::int64_t head_dim, Backend backend) {
  const Check check("head_tiles_n", {});
  if (head_dim < 1) check.fail("head_dim", "expected at least 1 column, got {}", head_dim);
  check_backend(check, "backend", backend);
  const std::int64_t tile =
      backend == Backend::sm90 ? sm90::tile_n_for_heads(head_dim) : cpu::tile_n_for_heads(head_dim);
  return ceil_div(n, tile);
}

namespace {

// A product on Hopper that nothing follows: cuBLASLt's, but where a kernel of ours may be the faster one.
void run_bare(const Check& check, const Gemm& args, DType type) {
  const auto alpha = static_cast<float>(args.alpha), beta = static_cast<float>(args.beta);
  with_real(type, [&]<class T>(T) {
    if constexpr (kOnSm90<T>) {
      if (beta == 0 && args.out.dtype == type) {
        const BareGemm<T> program{.alpha = alpha, .out = args.out.as<T>()};
        return sm90::Product<T, BareGemm<T>>::run(args.a, args.b, args.layout, program, args.on.stream,
                                                  check.operation());
      }
    }
    ConstMatrix c = args.c;
    if (c.data == args.out.data) c.pitch = args.out.pitch;  // that of one row may be another
    sm90::matmul(check.operation(), args.a, args.b, args.layout, alpha, beta, c, args.out, args.on.stream);
  });
}

}  // namespace

void gemm(const Gemm& args) {
  Check check("gemm", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  const bool is_16_bit = size_of(p.t) == 2;
  const bool forgotten = absent(args.out) && p.m > 0 && p.n > 0;
  const DType out = forgotten ? p.t : args.out.dtype;
  if (out != p.t && !(out == DType::fp32 && is_16_bit)) {
    check.fail("out", "expected dtype {}{}, got {}", coda::name_of(p.t), is_16_bit ? " or fp32" : "",
               coda::name_of(out));
  }
  check.matrix("out", args.out, p.m, p.n, out);
  check.optional_matrix("preact", args.preact, p.m, p.n, out);
  check.optional_matrix("c", args.c, p.m, p.n, out);
  check.optional_vector("bias", args.bias, p.n, p.t);
  check_factor(check, "alpha", args.alpha, p.stats);
  check_factor(check, "beta", args.beta, p.stats);
  check.require(args.beta == 0 || args.c || p.m * p.n == 0, "c", "expected a matrix, since beta is not 0, got none");
  check.input("c", args.c);
  check.operand("bias", args.bias);
  check.output("out", args.out);
  check.output("preact", args.preact);
  check.no_overlap();
  const bool bare = args.activation == Activation::identity && !args.preact && !args.bias;
  if (args.on.backend == Backend::sm90 && bare && size_of(p.t) == 2) return run_bare(check, args, p.t);
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    with_activation(check, args.activation, [&](auto f) {
      const auto store_as = [&](auto o) {
        using Out = decltype(o);
        run<T>(check, args.on, args.a, args.b, args.layout,
               coda::Gemm<T, decltype(f), Out>{.alpha = static_cast<acc_t<T>>(args.alpha),
                                               .beta = static_cast<acc_t<T>>(args.beta),
                                               .c = args.c.as<Out>(),
                                               .bias = {pointer<T>(args.bias), 0},
                                               .preact = args.preact.as<Out>(),
                                               .out = args.out.as<Out>()});
      };
      out == p.t ? store_as(T{}) : store_as(acc_t<T>{});
    });
  });
}

void gemm_residual(const GemmResidual& args) {
  Check check("gemm_residual", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  check.matrix("residual", args.residual, p.m, p.n, p.t);
  check.optional_vector("weight", args.weight, p.n, p.t);
  check.matrix("x", args.x, p.m, p.n, p.t);
  check.optional_matrix("h", args.h, p.m, p.n, p.t);
  const NormKind kind =
      check_stats(check, args.sum_sq, args.mean, args.m2, p.m, tiles_n(p.n, args.on.backend), p.stats);
  check.input("residual", args.residual);
  check.operand("weight", args.weight);
  check.output("x", args.x);
  check.output("h", args.h);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    with_stats<T>(kind, args.sum_sq, args.mean, args.m2, [&](auto stat) {
      run<T>(check, args.on, args.a, args.b, args.layout,
             coda::GemmResidual<T, decltype(stat)>{.residual = args.residual.as<T>(),
                                                   .weight = {pointer<T>(args.weight)},
                                                   .x = args.x.as<T>(),
                                                   .h = args.h.as<T>(),
                                                   .stat = stat});
    });
  });
}

void gemm_norm(const GemmNorm& args) {
  Check check("gemm_norm", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  const NormKind kind = check_norm(check, args.norm, p);
  check.matrix("out", args.out, p.m, p.n, p.t);
  check.optional_matrix("preact", args.preact, p.m, p.n, p.t);
  check.output("out", args.out);
  check.output("preact", args.preact);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    with_norm<T>(kind, args.norm, [&](auto norm) {
      with_activation(check, args.activation, [&](auto f) {
        run<T>(check, args.on, args.a, args.b, args.layout,
               coda::GemmNorm<T, decltype(norm), decltype(f)>{
                   .norm = norm, .preact = args.preact.as<T>(), .out = args.out.as<T>()});
      });
    });
  });
}

void gemm_norm_glu(const GemmNormGlu& args) {
  Check check("gemm_norm_glu", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  if (p.n % 2 != 0) check.fail("b", "expected an even N, gate and up rows interleaved, got {}", p.n);
  const NormKind kind = check_norm(check, args.norm, p);
  check.matrix("out", args.out, p.m, p.n / 2, p.t);
  check.optional_matrix("preact", args.preact, p.m, p.n, p.t);
  check.output("out", args.out);
  check.output("preact", args.preact);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    with_norm<T>(kind, args.norm, [&](auto norm) {
      with_glu(check, args.function, [&](auto f) {
        run<T>(check, args.on, args.a, args.b, args.layout,
               coda::GemmNormGlu<T, decltype(norm), decltype(f)>{
                   .norm = norm, .preact = args.preact.as<T>(), .out = args.out.as<T>()});
      });
    });
  });
}

}  // namespace coda::ops
