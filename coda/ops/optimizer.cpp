// Casts, the norm of gradients and the optimiser's step.
#include <algorithm>
#include <cmath>

#include "coda/backend/cpu/kernels.h"
#include "coda/backend/sm90/kernels.h"
#include "coda/ops/common.h"

namespace coda::ops {

void cast(const Cast& args) {
  Check check("cast", args.on);
  check.given("in", args.in, args.out.rows);
  const DType from = check.real("in", args.in.dtype), to = check.real("out", args.out.dtype);
  check.matrix("in", args.in, args.in.rows, args.in.cols, from);
  check.matrix("out", args.out, args.in.rows, args.in.cols, to);
  check.operand("in", args.in);
  check.output("out", args.out);
  check.no_overlap();
  if (args.on.backend == Backend::sm90) {
    for (const auto& [name, t] : {std::pair{"in", from}, std::pair{"out", to}}) {
      if (t != DType::fp64) continue;
      check.fail(Status::unsupported, name, "expected bf16, fp16 or fp32 on the sm90 backend, got fp64");
    }
    return sm90::cast(check.operation(), args.in, args.out, 1.f, args.on.stream);
  }
  if (args.in.cols == 0) return;  // of however many rows
  with_real(from, [&](auto in) {
    with_real(to, [&](auto out) { cpu::cast(args.in.as<const decltype(in)>(), args.out.as<decltype(out)>()); });
  });
}

void squared_norm(const SquaredNorm& args) {
  Check check("squared_norm", args.on);
  const DType t = check.real("x", args.x.dtype);
  check.vector("x", args.x, args.x.size, t);
  check.vector("out", args.out, 1, DType::fp64);
  check_beta(check, args.beta);
  check.operand("x", args.x);
  check.output("out", args.out);
  check.no_overlap();
  if (args.on.backend == Backend::sm90) {
    if (t == DType::fp64) {
      check.fail(Status::unsupported, "x", "expected bf16, fp16 or fp32 on the sm90 backend, got fp64");
    }
    return sm90::squared_norm(check.operation(), args.x, args.beta, args.out, args.on.stream);
  }
  auto* out = static_cast<double*>(args.out.data);
  const Temporary<double> partial(check, args.on, ceil_div(args.x.size, cpu::kVectorBlock));
  *out = (args.beta == 0 ? 0 : *out) + cpu::squared_norm(args.x, partial.data());
}

namespace {

void check_adamw(Check& check, const AdamW& args) {
  check.given("master", args.master, args.gradient.size);
  const DType state = args.master.dtype;
  const std::int64_t size = args.master.size;
  if (state != DType::fp32 && state != DType::fp64) {
    check.fail("master", "expected dtype fp32 or fp64, got {}", coda::name_of(state));
  }
  check.vector("master", args.master, size, state);
  check.vector("m", args.m, size, state);
  check.vector("v", args.v, size, state);
  if (args.weight) check.vector("weight", args.weight, size, check.real("weight", args.weight.dtype));
  check.vector("gradient", args.gradient, size, check.real("gradient", args.gradient.dtype));
  check.optional_vector("squared_norm", args.squared_norm, 1, DType::fp64);
  // The step computes with them in the state's type: 1e-50 is 0 there, 0.99999999 is 1.
  const auto require = [&](const char* name, const char* expected, double got, auto ok) {
    const double x = scalar_in(state, got);
    if (std::isfinite(x) && ok(x)) return;
    check.fail(name, "expected {} in {}, got {}", expected, coda::name_of(state), got);
  };
  const auto any = [](double) { return true; };
  const auto not_negative = [](double x) { return x >= 0; };
  const auto below_one = [](double x) { return x >= 0 && x < 1; };
  require("rate", "a number of at least 0", args.rate, not_negative);
  require("beta1", "a number from 0 to below 1", args.beta1, below_one);
  require("beta2", "a number from 0 to below 1", args.beta2, below_one);
  require("eps", "a positive number", args.eps, [](double x) { return x > 0; });
  require("weight_decay", "a number of at least 0", args.weight_decay, not_negative);
  require("gradient_scale", "a finite number", args.gradient_scale, any);
  if (!(args.clip_norm >= 0 && std::isfinite(args.clip_norm))) {
    check.fail("clip_norm", "expected a number of at least 0, got {}", args.clip_norm);
  }
  if (args.step < 1) check.fail("step", "expected a number from 1 on, got {}", args.step);
  check.require(args.clip_norm == 0 || args.squared_norm, "squared_norm",
                "expected the squared norm of all gradients, since clip_norm is not 0, got none");
  check.operand("gradient", args.gradient);
  check.operand("squared_norm", args.squared_norm);
  check.output("master", args.master);
  check.output("m", args.m);
  check.output("v", args.v);
  check.output("weight", args.weight);
  check.no_overlap();
}

}  // namespace

void adamw(const AdamW& args) {
  Check check("adamw", args.on);
  check_adamw(check, args);
  if (args.on.backend == Backend::sm90) {
    check_fp32_on_sm90(check, "master", args.master.dtype);
    for (const auto& [name, t] : {std::pair{"gradient", args.gradient.dtype}, std::pair{"weight", args.weight.dtype}}) {
      if (t != DType::fp64) continue;
      check.fail(Status::unsupported, name, "expected bf16, fp16 or fp32 on the sm90 backend, got fp64");
    }
    return sm90::adamw(check.operation(),
                       {.master = args.master,
                        .m = args.m,
                        .v = args.v,
                        .weight = args.weight,
                        .gradient = args.gradient,
                        .rate = args.rate,
                        .beta1 = args.beta1,
                        .beta2 = args.beta2,
                        .eps = args.eps,
                        .weight_decay = args.weight_decay,
                        .step = args.step,
                        .gradient_scale = args.gradient_scale,
                        .squared_norm = args.squared_norm,
                        .clip_norm = args.clip_norm},
                       args.on.stream);
  }
  double scale = args.gradient_scale;
  if (args.squared_norm) {
    scale = clipped_gradient_scale(scale, *static_cast<const double*>(args.squared_norm.data), args.clip_norm);
    if (std::isnan(scale)) return;
  }
  const auto run = [&](auto state) {
    using Real = decltype(state);
    const AdamwUpdate<Real> update(args.rate, args.beta1, args.beta2, args.eps, args.weight_decay, args.step, scale);
    cpu::adamw<Real>(update, args.gradient, args.master.as<Real>(), static_cast<Real*>(args.m.data),
                     static_cast<Real*>(args.v.data), args.weight);
  };
  args.master.dtype == DType::fp32 ? run(float{}) : run(double{});
}

}  // namespace coda::ops
