#include "coda/nn/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "coda/core/error.h"
#include "coda/nn/unfused.h"

namespace coda::nn {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// One model in training. The trainer's own loop is the same but for the network, which it owns.
class Run {
 public:
  Run(const TrainOptions& options, const TextData& data, DType dtype, bool fused)
      : options_(options),
        data_(data),
        config_(with_dtype(options.model, dtype)),
        weights_(make_weights(config_, dtype)),
        gradients_(make_weights(config_, gradient_dtype(dtype))),
        gradient_views_(vectors_of(gradients_)) {
    if (fused) network_ = std::make_unique<Model>(config_, weights_);
    else network_ = std::make_unique<UnfusedModel>(config_, weights_);
    initialise(weights_, options.seed);
    optimiser_.emplace(parameters_of(weights_), options.adamw);
  }

  Run(const Run&) = delete;  // the network refers to the weights
  Run& operator=(const Run&) = delete;

  /// The seconds of a step that learns nothing.
  double rehearse() {
    const double begin = now();
    network_->forward_backward(data_.next_batch(0), gradients_);
    return now() - begin;
  }

  void step(std::int64_t number) {
    clear(gradients_);
    double loss = 0, seconds = 0;
    for (std::int64_t i = 0; i < options_.accumulation; ++i) {
      const Batch batch = data_.next_batch(number * options_.accumulation + i);
      const double begin = now();
      loss += network_->forward_backward(batch, gradients_);
      seconds += now() - begin;
    }
    const double scale = 1.0 / static_cast<double>(options_.tokens_per_step());
    const double begin = now();
    optimiser_->step(gradient_views_, options_.schedule().at(number), scale);
    optimiser_seconds_ += now() - begin;
    losses_.push_back(loss * scale);
    seconds_.push_back(seconds);
  }

  Measured measured() const {
    std::vector<double> sorted = seconds_;
    std::sort(sorted.begin(), sorted.end());
    const double median = sorted.empty() ? 0 : sorted[sorted.size() / 2];
    return {1000 * median, network_->bytes_moved(), network_->bytes_held(), losses_};
  }
  double last_loss() const { return losses_.back(); }
  double optimiser_seconds() const { return optimiser_seconds_; }

 private:
  static ModelConfig with_dtype(ModelConfig config, DType dtype) {
    config.dtype = dtype;
    return config;
  }

  const TrainOptions& options_;
  const TextData& data_;
  ModelConfig config_;
  Weights weights_, gradients_;
  std::vector<ConstVector> gradient_views_;
  std::unique_ptr<Network> network_;
  std::optional<AdamW> optimiser_;
  std::vector<double> losses_, seconds_;
  double optimiser_seconds_ = 0;
};

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

/// Over the steps; NaN if any is.
template <class Difference>
double largest(const Comparison::Row& row, const Difference& difference) {
  double most = 0;
  for (std::size_t i = 0; i < row.fused.losses.size(); ++i) {
    const double here = difference(row.fused.losses[i], row.unfused.losses[i]);
    if (std::isnan(here)) return here;
    most = std::max(most, here);
  }
  return most;
}

}  // namespace

double Comparison::Row::largest_difference() const {
  return largest(*this, [](double a, double b) { return std::abs(a - b); });
}

double Comparison::Row::largest_part() const {
  return largest(*this, [](double a, double b) { return std::abs(a - b) / b; });
}

TrainOptions CompareOptions::checked() const {
  TrainOptions run = train;
  if (run.steps == 0) run.steps = steps;
  run.check();
  if (steps < 1 || steps > run.steps) {
    throw Error(Status::invalid_argument,
                fmt::format("compare: steps: expected a number from 1 to the run's {}, got {}", run.steps, steps));
  }
  return run;
}

Comparison compare_with_unfused(const CompareOptions& options) {
  const TrainOptions train = options.checked();
  const TextData data(train.data, train.data_options());
  const DType own = train.model.dtype;
  Comparison result{train.steps, train.tokens_per_step(), {}};
  const double begin = now();
  double optimiser = 0;  // seconds of a step that a rehearsal does not see
  for (const DType dtype : {own, own == DType::fp32 ? DType::bf16 : DType::fp32}) {
    Run fused(train, data, dtype, true), unfused(train, data, dtype, false);
    for (Run* run : {&fused, &unfused}) run->rehearse();  // makes oneDNN's kernels and lays the memory out
    std::int64_t steps = options.steps;
    if (options.minutes > 0 && dtype != own) {
      const double step = static_cast<double>(train.accumulation) * (fused.rehearse() + unfused.rehearse()) + optimiser;
      steps = steps_that_fit(60 * options.minutes - (now() - begin), step, std::min<std::int64_t>(5, steps), steps);
    }
    Progress progress(fmt::format("compare in {}", name_of(dtype)), steps, 0, options.progress);
    for (std::int64_t step = 0; step < steps; ++step) {
      // Who goes first changes, so that neither always finds the other's data in the cache.
      (step % 2 == 0 ? fused : unfused).step(step);
      (step % 2 == 0 ? unfused : fused).step(step);
      progress.update(step + 1,
                      fmt::format("loss {:.4f} fused, {:.4f} unfused", fused.last_loss(), unfused.last_loss()));
    }
    progress.finish();
    optimiser = (fused.optimiser_seconds() + unfused.optimiser_seconds()) / static_cast<double>(steps);
    result.rows.push_back({dtype, fused.measured(), unfused.measured()});
  }
  return result;
}

std::string format_table(const Comparison& c) {
  std::string out =
      fmt::format("fused against unfused, from the same weights on the same batches of {} tokens\n", c.tokens_per_step);
  for (const Comparison::Row& row : c.rows) {
    const std::string steps = row.steps() == c.steps ? fmt::format("all {} steps of the run", c.steps)
                                                     : fmt::format("the first {} of {} steps", row.steps(), c.steps);
    out += fmt::format("\n{:38}{:>10}{:>10}{:>16}\n", fmt::format("{}, {}", name_of(row.dtype), steps), "fused",
                       "unfused", "fused / unfused");
    const auto line = [&](const char* what, double fused, double unfused, int digits) {
      out += fmt::format("  {:36}{:>10.{}f}{:>10.{}f}{:>16.2f}\n", what, fused, digits, unfused, digits,
                         ratio(fused, unfused));
    };
    const auto mega = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
    line("time of a step, ms", row.fused.milliseconds, row.unfused.milliseconds, 1);
    line("activations moved, MB", mega(row.fused.bytes_moved), mega(row.unfused.bytes_moved), 1);
    line("activations held, MB", mega(row.fused.bytes_held), mega(row.unfused.bytes_held), 1);
    line("loss of the last step, nats", row.fused.losses.back(), row.unfused.losses.back(), 4);
    out += fmt::format("  {:36}{:>10}  ({:.4f} %)\n", "largest difference over the steps",
                       fmt::format("{:.2e}", row.largest_difference()), 100 * row.largest_part());
  }
  return out;
}

std::string format_json(const Comparison& c) {
  nlohmann::ordered_json out{{"steps", c.steps}, {"tokens_per_step", c.tokens_per_step}};
  const auto measured = [](const Measured& m) {
    return nlohmann::ordered_json{{"milliseconds", m.milliseconds},
                                  {"bytes_moved", m.bytes_moved},
                                  {"bytes_held", m.bytes_held},
                                  {"losses", m.losses}};
  };
  for (const Comparison::Row& row : c.rows) {
    out[name_of(row.dtype)] = {{"steps", row.steps()},
                               {"fused", measured(row.fused)},
                               {"unfused", measured(row.unfused)},
                               {"largest_difference", row.largest_difference()},
                               {"largest_part", row.largest_part()}};
  }
  return out.dump();
}

}  // namespace coda::nn
