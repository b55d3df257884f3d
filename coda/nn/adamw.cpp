#include "coda/nn/adamw.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "coda/core/error.h"
#include "coda/nn/convert.h"
#include "coda/ops/ops.h"

namespace coda::nn {
namespace {

template <class F>
void visit_master(DType dtype, F&& f) {
  if (dtype == DType::fp64) f(std::type_identity<double>{});
  else f(std::type_identity<float>{});
}

/// A step's numbers; of which matrices is for the caller to say.
ops::AdamW numbers(const AdamWOptions& o, double rate, std::int64_t step, double gradient_scale) {
  return {.master = {},
          .m = {},
          .v = {},
          .rate = rate,
          .beta1 = o.beta1,
          .beta2 = o.beta2,
          .eps = o.eps,
          .weight_decay = o.weight_decay,
          .step = step,
          .gradient_scale = gradient_scale};
}
/// Throws for what a state of this type, fp32 or fp64, cannot hold, by a step of nothing.
void check_numbers(ops::AdamW call, DType state) {
  const Vector nothing(nullptr, state, 0);
  call.master = call.m = call.v = nothing;
  call.gradient = nothing;
  ops::adamw(call);
}
/// Throws for what the call would, by one whose norm is not finite, which changes nothing.
void check(ops::AdamW call) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  call.squared_norm = ConstVector(&none, DType::fp64, 1);
  ops::adamw(call);
}

}  // namespace

double gradient_norm(std::span<const ConstVector> gradients) {
  double sum = 0;
  for (const ConstVector& g : gradients) {
    ops::squared_norm({.x = g, .beta = 1, .out = Vector(&sum, DType::fp64, 1)});
  }
  return std::sqrt(sum);
}

AdamW::AdamW(std::vector<Parameter> parameters, const AdamWOptions& options) : options_(options) {
  if (!(options.clip_norm >= 0 && std::isfinite(options.clip_norm))) {
    throw Error(Status::invalid_argument,
                fmt::format("adamw: clip_norm: expected a number of at least 0, got {}", options.clip_norm));
  }
  check_numbers(numbers(options, 0, 1, 1), DType::fp64);
  for (Parameter& parameter : parameters) {
    const Vector& value = parameter.value;
    if ((!value.data && value.size != 0) || value.dtype > DType::fp64) {
      throw Error(Status::invalid_argument,
                  fmt::format("adamw: {}: expected data of bf16, fp16, fp32 or fp64, got {} of {}", parameter.name,
                              value.data ? "data" : "a null pointer", name_of(value.dtype)));
    }
    const DType state = value.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
    check_numbers(numbers(options, 0, 1, 1), state);
    Slot slot{std::move(parameter), HostTensor(state, {value.size}), HostTensor(state, {value.size}),
              HostTensor(state, {value.size})};
    visit_master(state, [&]<class Real>(std::type_identity<Real>) {
      load_as(slot.parameter.value.data, slot.parameter.value.dtype, 0, slot.parameter.value.size,
              slot.master.values<Real>().data());
    });
    slots_.push_back(std::move(slot));
  }
}

StepResult AdamW::step(std::span<const ConstVector> gradients, double rate, double gradient_scale) {
  if (gradients.size() != slots_.size()) {
    throw Error(Status::invalid_argument,
                fmt::format("adamw: gradients: expected {}, got {}", slots_.size(), gradients.size()));
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const ConstVector& g = gradients[i];
    if (g.size != slots_[i].parameter.value.size || (!g.data && g.size != 0) || g.dtype > DType::fp64) {
      throw Error(Status::invalid_argument,
                  fmt::format("adamw: gradient of {}: expected {} values of a floating-point type, got {}{} of {}",
                              slots_[i].parameter.name, slots_[i].parameter.value.size,
                              g.data ? "" : "a null pointer to ", g.size, name_of(g.dtype)));
    }
  }
  const auto call_of = [&](std::size_t i) {
    Slot& slot = slots_[i];
    ops::AdamW call = numbers(options_, rate, steps_ + 1, gradient_scale);
    call.master = slot.master.vector(), call.m = slot.m.vector(), call.v = slot.v.vector();
    call.weight = slot.parameter.value, call.gradient = gradients[i];
    if (!slot.parameter.decay) call.weight_decay = 0;
    return call;
  };
  // Before anything changes; clipping makes the scale no larger.
  for (std::size_t i = 0; i < slots_.size(); ++i) check(call_of(i));

  StepResult result;
  result.gradient_norm = gradient_norm(gradients) * std::abs(gradient_scale);
  if (!std::isfinite(result.gradient_norm)) return result;
  if (options_.clip_norm > 0 && result.gradient_norm > options_.clip_norm) {
    gradient_scale *= options_.clip_norm / result.gradient_norm;
  }

  for (std::size_t i = 0; i < slots_.size(); ++i) ops::adamw(call_of(i));
  ++steps_;
  result.applied = true;
  return result;
}

void AdamW::restore(std::int64_t steps) {
  if (steps < 0) throw Error(Status::invalid_argument, fmt::format("adamw: steps: expected at least 0, got {}", steps));
  for (Slot& slot : slots_) {
    visit_master(slot.master.dtype(), [&]<class Real>(std::type_identity<Real>) {
      store_as(slot.master.values<Real>().data(), slot.master.size(), slot.parameter.value.data,
               slot.parameter.value.dtype, 0);
    });
  }
  steps_ = steps;
}

}  // namespace coda::nn
