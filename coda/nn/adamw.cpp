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

/// As the state of the parameters, fp32 or fp64, holds them.
void check_options(const AdamWOptions& o, DType state) {
  const auto held = [state](double x) { return state == DType::fp64 ? x : static_cast<double>(static_cast<float>(x)); };
  const auto require = [](bool ok, const char* field, const char* expected, double got) {
    if (ok) return;
    throw Error(Status::invalid_argument, fmt::format("adamw: {}: expected {}, got {}", field, expected, got));
  };
  require(o.beta1 >= 0 && held(o.beta1) < 1, "beta1", "a number from 0 to below 1 in the state's type", o.beta1);
  require(o.beta2 >= 0 && held(o.beta2) < 1, "beta2", "a number from 0 to below 1 in the state's type", o.beta2);
  require(held(o.eps) > 0 && std::isfinite(held(o.eps)), "eps", "a positive number in the state's type", o.eps);
  require(o.weight_decay >= 0 && std::isfinite(o.weight_decay), "weight_decay", "at least 0", o.weight_decay);
  require(o.clip_norm >= 0 && std::isfinite(o.clip_norm), "clip_norm", "at least 0", o.clip_norm);
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
  check_options(options, DType::fp64);
  for (Parameter& parameter : parameters) {
    const Vector& value = parameter.value;
    if ((!value.data && value.size != 0) || value.dtype > DType::fp64) {
      throw Error(Status::invalid_argument,
                  fmt::format("adamw: {}: expected data of bf16, fp16, fp32 or fp64, got {} of {}", parameter.name,
                              value.data ? "data" : "a null pointer", name_of(value.dtype)));
    }
    const DType state = value.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
    check_options(options, state);
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
  if (!(rate >= 0 && rate <= static_cast<double>(std::numeric_limits<float>::max()))) {
    throw Error(Status::invalid_argument,
                fmt::format("adamw: rate: expected a number of fp32, at least 0, got {}", rate));
  }

  StepResult result;
  result.gradient_norm = gradient_norm(gradients) * std::abs(gradient_scale);
  if (!std::isfinite(result.gradient_norm)) return result;
  if (options_.clip_norm > 0 && result.gradient_norm > options_.clip_norm) {
    gradient_scale *= options_.clip_norm / result.gradient_norm;
  }

  const std::int64_t step = steps_ + 1;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    ops::adamw({.master = slot.master.vector(),
                .m = slot.m.vector(),
                .v = slot.v.vector(),
                .weight = slot.parameter.value,
                .gradient = gradients[i],
                .rate = rate,
                .beta1 = options_.beta1,
                .beta2 = options_.beta2,
                .eps = options_.eps,
                .weight_decay = slot.parameter.decay ? options_.weight_decay : 0.0,
                .step = step,
                .gradient_scale = gradient_scale});
  }
  steps_ = step;
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
