#include "coda/nn/adamw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "coda/core/error.h"
#include "coda/nn/convert.h"

namespace coda::nn {
namespace {

// Work is cut into blocks of this many elements whatever the number of threads; small enough for the first-level cache.
constexpr std::int64_t kBlock = 2048;

struct Block {
  std::size_t tensor;
  std::int64_t begin, count;
};

template <class SizeOf>
std::vector<Block> cut_into_blocks(std::size_t tensors, SizeOf size_of_tensor) {
  std::vector<Block> blocks;
  for (std::size_t t = 0; t < tensors; ++t) {
    const std::int64_t size = size_of_tensor(t);
    for (std::int64_t begin = 0; begin < size; begin += kBlock) {
      blocks.push_back({t, begin, std::min(kBlock, size - begin)});
    }
  }
  return blocks;
}

/// Sum of squares of one block; the lanes are explicit, so that the order of the additions is the source's.
double sum_of_squares(const double* x, std::int64_t count) {
  constexpr std::int64_t lanes = 8;
  std::array<double, lanes> partial{};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    for (std::int64_t l = 0; l < lanes; ++l) partial[static_cast<std::size_t>(l)] += x[i + l] * x[i + l];
  }
  double sum = 0;
  for (; i < count; ++i) sum += x[i] * x[i];
  for (const double p : partial) sum += p;
  return sum;
}

/// The constants of one step in the type of the masters.
template <class Real>
struct Update {
  Real gradient_scale, beta1, beta2, keep, rate, m_scale, v_scale, eps;

  void operator()(const Real* gradient, Real* w, Real* m, Real* v, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const Real g = gradient[i] * gradient_scale;
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      w[i] = keep * w[i] - rate * (m[i] * m_scale) / (std::sqrt(v[i] * v_scale) + eps);
    }
  }
};

template <class F>
void visit_master(DType dtype, F&& f) {
  if (dtype == DType::fp64) f(std::type_identity<double>{});
  else f(std::type_identity<float>{});
}

void check_options(const AdamWOptions& o) {
  const auto require = [](bool ok, const char* field, const char* expected, double got) {
    if (ok) return;
    throw Error(Status::invalid_argument, fmt::format("adamw: {}: expected {}, got {}", field, expected, got));
  };
  require(o.beta1 >= 0 && o.beta1 < 1, "beta1", "a number from 0 to below 1", o.beta1);
  require(o.beta2 >= 0 && o.beta2 < 1, "beta2", "a number from 0 to below 1", o.beta2);
  require(o.eps > 0 && std::isfinite(o.eps), "eps", "a positive number", o.eps);
  require(o.weight_decay >= 0 && std::isfinite(o.weight_decay), "weight_decay", "at least 0", o.weight_decay);
  require(o.clip_norm >= 0 && std::isfinite(o.clip_norm), "clip_norm", "at least 0", o.clip_norm);
}

}  // namespace

double gradient_norm(std::span<const ConstVector> gradients) {
  const auto blocks = cut_into_blocks(gradients.size(), [&](std::size_t t) { return gradients[t].size; });
  std::vector<double> partial(blocks.size());
  const auto count = static_cast<std::int64_t>(blocks.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t b = 0; b < count; ++b) {
    const Block& block = blocks[static_cast<std::size_t>(b)];
    const ConstVector& gradient = gradients[block.tensor];
    std::array<double, kBlock> values;
    load_as(gradient.data, gradient.dtype, block.begin, block.count, values.data());
    partial[static_cast<std::size_t>(b)] = sum_of_squares(values.data(), block.count);
  }
  double sum = 0;
  for (const double p : partial) sum += p;
  return std::sqrt(sum);
}

AdamW::AdamW(std::vector<Parameter> parameters, const AdamWOptions& options) : options_(options) {
  check_options(options);
  for (Parameter& parameter : parameters) {
    const Vector& value = parameter.value;
    if ((!value.data && value.size != 0) || value.dtype > DType::fp64) {
      throw Error(Status::invalid_argument,
                  fmt::format("adamw: {}: expected data of bf16, fp16, fp32 or fp64, got {} of {}", parameter.name,
                              value.data ? "data" : "a null pointer", name_of(value.dtype)));
    }
    const DType state = value.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
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
  if (!(rate >= 0) || !std::isfinite(rate)) {
    throw Error(Status::invalid_argument, fmt::format("adamw: rate: expected at least 0, got {}", rate));
  }

  StepResult result;
  result.gradient_norm = gradient_norm(gradients) * std::abs(gradient_scale);
  if (!std::isfinite(result.gradient_norm)) return result;
  if (options_.clip_norm > 0 && result.gradient_norm > options_.clip_norm) {
    gradient_scale *= options_.clip_norm / result.gradient_norm;
  }

  ++steps_;
  const auto t = static_cast<double>(steps_);
  const double m_scale = 1.0 / (1.0 - std::pow(options_.beta1, t));
  const double v_scale = 1.0 / (1.0 - std::pow(options_.beta2, t));
  const auto blocks = cut_into_blocks(slots_.size(), [&](std::size_t i) { return slots_[i].parameter.value.size; });
  const auto count = static_cast<std::int64_t>(blocks.size());
#pragma omp parallel for schedule(static)
  for (std::int64_t b = 0; b < count; ++b) {
    const Block& block = blocks[static_cast<std::size_t>(b)];
    Slot& slot = slots_[block.tensor];
    const ConstVector& gradient = gradients[block.tensor];
    const double keep = 1.0 - (slot.parameter.decay ? rate * options_.weight_decay : 0.0);
    visit_master(slot.master.dtype(), [&]<class Real>(std::type_identity<Real>) {
      const auto real = [](double x) { return static_cast<Real>(x); };
      const Update<Real> update{real(gradient_scale), real(options_.beta1), real(options_.beta2), real(keep),
                                real(rate),           real(m_scale),        real(v_scale),        real(options_.eps)};
      std::array<Real, kBlock> g;
      load_as(gradient.data, gradient.dtype, block.begin, block.count, g.data());
      Real* master = slot.master.values<Real>().data() + block.begin;
      update(g.data(), master, slot.m.values<Real>().data() + block.begin, slot.v.values<Real>().data() + block.begin,
             block.count);
      store_as(master, block.count, slot.parameter.value.data, slot.parameter.value.dtype, block.begin);
    });
  }
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
