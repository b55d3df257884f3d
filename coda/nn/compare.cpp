#include "coda/nn/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

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
    optimiser_->step(gradient_views_, options_.schedule().at(number), scale);
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
};

double ratio(double a, double b) { return b > 0 ? a / b : 0; }

}  // namespace

double Comparison::Row::largest_difference() const {
  double largest = 0;
  for (std::size_t i = 0; i < fused.losses.size(); ++i) {
    const double difference = std::abs(fused.losses[i] - unfused.losses[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

double Comparison::Row::largest_part() const {
  double largest = 0;
  for (std::size_t i = 0; i < fused.losses.size(); ++i) {
    const double part = std::abs(fused.losses[i] - unfused.losses[i]) / unfused.losses[i];
    if (!(part <= largest)) largest = part;
  }
  return largest;
}

Comparison compare_with_unfused(const CompareOptions& options) {
  TrainOptions train = options.train;
  if (train.steps == 0) train.steps = options.steps;  // else the first steps of a longer run are compared
  train.check();
  const TextData data(train.data, train.data_options());
  constexpr std::array dtypes{DType::fp32, DType::bf16};
  std::vector<std::unique_ptr<Run>> runs;  // fused, unfused of each type
  for (const DType dtype : dtypes) {
    for (const bool fused : {true, false}) runs.push_back(std::make_unique<Run>(train, data, dtype, fused));
  }
  double seconds = 0;
  for (const auto& run : runs) {
    run->rehearse();  // makes oneDNN's kernels and lays the memory out
    seconds += run->rehearse();
  }
  Comparison result;
  result.tokens_per_step = train.tokens_per_step();
  result.steps = options.steps;
  if (options.minutes > 0) {
    const double fits = 60 * options.minutes / (seconds * static_cast<double>(train.accumulation));
    result.steps = std::clamp<std::int64_t>(std::llround(fits), 5, std::max<std::int64_t>(options.steps, 5));
  }
  const auto count = static_cast<std::int64_t>(dtypes.size());
  Progress progress("compare", count * result.steps, 0, options.progress);
  for (std::int64_t t = 0; t < count; ++t) {
    Run &fused = *runs[static_cast<std::size_t>(2 * t)], &unfused = *runs[static_cast<std::size_t>(2 * t + 1)];
    const DType dtype = dtypes[static_cast<std::size_t>(t)];
    for (std::int64_t step = 0; step < result.steps; ++step) {
      // Who goes first changes, so that neither always finds the other's data in the cache.
      (step % 2 == 0 ? fused : unfused).step(step);
      (step % 2 == 0 ? unfused : fused).step(step);
      progress.update(t * result.steps + step + 1, fmt::format("{} loss {:.4f} fused, {:.4f} unfused", name_of(dtype),
                                                               fused.last_loss(), unfused.last_loss()));
    }
    result.rows.push_back({dtype, fused.measured(), unfused.measured()});
  }
  progress.finish();
  return result;
}

std::string format_table(const Comparison& c) {
  std::string out =
      fmt::format("fused against unfused: {} steps of {} tokens from the same weights\n\n", c.steps, c.tokens_per_step);
  out += fmt::format("{:34}{:>10}{:>10}{:>16}\n", "", "fused", "unfused", "fused / unfused");
  const auto line = [&](const char* dtype, const char* what, double fused, double unfused, int digits) {
    out += fmt::format("{:34}{:>10.{}f}{:>10.{}f}{:>16.2f}\n", fmt::format("{}  {}", dtype, what), fused, digits,
                       unfused, digits, ratio(fused, unfused));
  };
  for (const Comparison::Row& row : c.rows) {
    const char* dtype = name_of(row.dtype);
    const auto mega = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
    line(dtype, "time of a step, ms", row.fused.milliseconds, row.unfused.milliseconds, 1);
    line(dtype, "activations moved, MB", mega(row.fused.bytes_moved), mega(row.unfused.bytes_moved), 1);
    line(dtype, "activations held, MB", mega(row.fused.bytes_held), mega(row.unfused.bytes_held), 1);
    line(dtype, "loss of the last step, nats", row.fused.losses.back(), row.unfused.losses.back(), 4);
    out += fmt::format("{:34}{:>10}  ({:.4f} %)\n", fmt::format("{}  largest difference, nats", dtype),
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
    out[name_of(row.dtype)] = {{"fused", measured(row.fused)},
                               {"unfused", measured(row.unfused)},
                               {"largest_difference", row.largest_difference()},
                               {"largest_part", row.largest_part()}};
  }
  return out.dump();
}

}  // namespace coda::nn
