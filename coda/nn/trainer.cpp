#include "coda/nn/trainer.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "coda/core/error.h"
#include "coda/core/json.h"
#include "coda/nn/log.h"

namespace coda::nn {
namespace {

namespace fs = std::filesystem;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// FNV-1a: tells a changed text from the one that a run began with.
std::string fingerprint(std::span<const std::uint8_t> text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : text) hash = (hash ^ byte) * 0x100000001b3u;
  return fmt::format("{:016x}", hash);
}

constexpr const char* kText = "text";    // metadata key of the fingerprint
constexpr const char* kModel = "model";  // and of the model's config.json

std::string text_of(const TextData& data) {
  return fmt::format("{} bytes, {}{}", data.train().size() + data.validation().size(), fingerprint(data.train()),
                     fingerprint(data.validation()));
}

/// A config.json that was edited, or is that of another run, would silently change what the run computes.
void require_same_model(const Metadata& options, const ModelConfig& config) {
  const auto began = options.find(kModel);
  if (began == options.end()) return;  // files of older versions do not tell it
  const auto fields = [](const ModelConfig& c) { return parse_json(format_config(c)); };
  const auto expected = fields(parse_config(began->second, "checkpoint: training options: model"));
  const auto here = fields(config);
  for (const auto& [key, got] : here.items()) {
    const auto known = expected.value(key, nlohmann::json());
    if (known == got) continue;
    throw Error(Status::invalid_argument,
                fmt::format("resume: config.json: {}: expected that of the model that the run began with, {}, got {}",
                            key, shown(known), shown(got)));
  }
}

template <class Number>
void parse(const Metadata& metadata, const char* key, Number& out) {
  const auto it = metadata.find(key);
  const std::string text = it == metadata.end() ? "" : it->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    throw Error(Status::invalid_argument,
                fmt::format("checkpoint: training options: {}: expected a number, got {}", key, shown(text)));
  }
}

/// `visit(name, number)` for each option that is a number.
template <class Options, class Visit>
void for_each_number(Options& o, const Visit& visit) {
  visit("steps", o.steps);
  visit("batch", o.batch);
  visit("seq", o.seq);
  visit("accumulation", o.accumulation);
  visit("rate", o.rate);
  visit("rate_floor", o.rate_floor);
  visit("warmup", o.warmup);
  visit("beta1", o.adamw.beta1);
  visit("beta2", o.adamw.beta2);
  visit("eps", o.adamw.eps);
  visit("weight_decay", o.adamw.weight_decay);
  visit("clip_norm", o.adamw.clip_norm);
  visit("validation", o.validation);
  visit("validate_every", o.validate_every);
  visit("seed", o.seed);
}

}  // namespace

void TrainOptions::check() const {
  const auto require = [](bool ok, const char* option, const char* expected, auto got) {
    if (ok) return;
    throw Error(Status::invalid_argument, fmt::format("train: {}: expected {}, got {}", option, expected, got));
  };
  model.check();
  // The checkpoint tells it. An empty one, which has no absolute form, is not there to be read either.
  std::error_code ignored;
  const std::string path = fs::absolute(data, ignored).string();
  require(is_utf8(path), "data", "a path in UTF-8", path);
  constexpr std::int64_t limit = 1 << 20;
  require(batch >= 1 && batch <= limit, "batch", "a number from 1 to 2^20", batch);
  require(seq >= 1 && seq <= limit, "seq", "a number from 1 to 2^20", seq);
  require(seq <= model.max_positions, "seq", "at most the model's max_positions", seq);
  require(accumulation >= 1 && accumulation <= limit, "accumulation", "a number from 1 to 2^20", accumulation);
  require(steps >= 0 && steps <= most_steps(), "steps", fmt::format("a number from 0 to {}", most_steps()).c_str(),
          steps);
  constexpr double most = std::numeric_limits<float>::max();
  require(rate > 0 && rate <= most, "rate", "a positive number that fp32 has", rate);
  require(adamw.weight_decay >= 0 && adamw.weight_decay <= most, "weight_decay", "a number of at least 0 that fp32 has",
          adamw.weight_decay);
  require(rate_floor >= 0 && rate_floor <= rate, "rate_floor",
          fmt::format("a number from 0 to the rate, {}", rate).c_str(), rate_floor);
  require(warmup >= 0, "warmup", "at least 0", warmup);
  require(validate_every >= 0, "validate_every", "at least 0 (0: only at the end)", validate_every);
  require(model.vocab >= 256, "vocab", "at least 256, one token for each byte", model.vocab);
  data_options().check();
}

Metadata TrainOptions::to_metadata() const {
  Metadata out{{"data", fs::absolute(data).string()}};
  for_each_number(*this, [&](const char* key, auto value) { out.emplace(key, fmt::format("{}", value)); });
  return out;
}

TrainOptions TrainOptions::from_metadata(const Metadata& metadata, const ModelConfig& model) {
  TrainOptions options;
  options.model = model;
  if (const auto it = metadata.find("data"); it != metadata.end()) options.data = it->second;
  for_each_number(options, [&](const char* key, auto& value) { parse(metadata, key, value); });
  options.check();
  return options;
}

std::vector<Parameter> parameters_of(Weights& weights) {
  std::vector<Parameter> out;
  for_each_tensor(weights, [&](const std::string& name, HostTensor& tensor) {
    out.push_back({name, tensor.vector(), tensor.shape().size() > 1});
  });
  return out;
}

std::vector<ConstVector> vectors_of(const Weights& gradients) {
  std::vector<ConstVector> out;
  for_each_tensor(gradients, [&](const std::string&, const HostTensor& tensor) { out.push_back(tensor.vector()); });
  return out;
}

void clear(Weights& gradients) {
  for_each_tensor(gradients,
                  [](const std::string&, HostTensor& tensor) { std::memset(tensor.data(), 0, tensor.bytes().size()); });
}

std::optional<RunState> find_run(const fs::path& folder) {
  if (!has_training(folder)) return std::nullopt;
  const TrainingState state = read_training(folder);
  RunState run{state.step};
  parse(state.options, "steps", run.steps);
  return run;
}

Trainer::Trainer(const TrainOptions& options)
    : options_((options.check(), options)),
      data_(options_.data, options_.data_options()),
      text_(text_of(data_)),
      weights_(make_weights(options_.model, options_.model.dtype)),
      gradients_(make_weights(options_.model, gradient_dtype(options_.model.dtype))),
      gradient_views_(vectors_of(gradients_)),
      model_(std::make_unique<Model>(options_.model, weights_)) {
  start();
}

void Trainer::start() {
  initialise(weights_, options_.seed);
  optimiser_.emplace(parameters_of(weights_), options_.adamw);
  done_ = 0;
}

std::unique_ptr<Trainer> Trainer::resume(const fs::path& folder, const fs::path& data) {
  // What is no folder is not made one: it has no checkpoint.
  std::error_code ignored;
  auto held = fs::is_directory(folder, ignored) ? std::make_unique<FolderLock>(folder) : nullptr;
  const TrainingState state = read_training(folder);
  const ModelConfig config = read_config(folder / "config.json");
  check_training(folder, config);
  require_same_model(state.options, config);
  TrainOptions options = TrainOptions::from_metadata(state.options, config);
  if (state.seed != options.seed) {
    throw Error(Status::invalid_argument,
                fmt::format("resume: seed: expected that of the options, {}, got {}", options.seed, state.seed));
  }
  if (!data.empty()) options.data = data;
  auto trainer = std::make_unique<Trainer>(options);
  const auto text = state.options.find(kText);
  const std::string expected = text == state.options.end() ? "none" : text->second;
  if (const std::string& got = trainer->text_; got != expected) {
    throw Error(Status::invalid_argument,
                fmt::format("resume: {}: expected the text that the run began with ({}), got {}", options.data.string(),
                            shown(expected), shown(got)));
  }
  trainer->done_ = load_training(folder, *trainer->optimiser_).step;
  if (trainer->done_ > options.steps) {
    throw Error(Status::invalid_argument, fmt::format("resume: step: expected at most the run's {} steps, got {}",
                                                      options.steps, trainer->done_));
  }
  trainer->resumed_ = folder;
  trainer->held_ = std::move(held);
  return trainer;
}

void Trainer::set_steps(std::int64_t steps) {
  if (done_ != 0) {
    throw Error(Status::invalid_argument,
                fmt::format("train: steps: expected a run that has not begun, got step {}", done_));
  }
  options_.steps = steps;
  options_.check();
}

Trainer::Speed Trainer::measure() {
  if (done_ != 0) {
    throw Error(Status::invalid_argument,
                fmt::format("train: measure: expected a run that has not begun, got step {}", done_));
  }
  const auto seconds_of = [](const auto& work) {
    work();                                                 // makes oneDNN's kernels and lays the memory out
    double best = std::numeric_limits<double>::infinity();  // of a few: another process may hold the machine up
    for (int i = 0; i < 5; ++i) {
      const double begin = now();
      work();
      best = std::min(best, now() - begin);
    }
    return best;
  };
  Speed speed{seconds_of([&] { step(); }), 0};
  if (const std::int64_t batches = data_.validation_batches(); batches > 0) {
    const Batch batch = data_.validation_batch(0);
    speed.validation = static_cast<double>(batches) * seconds_of([&] { model_->loss(batch); });
  }
  start();
  return speed;
}

Trainer::Step Trainer::step() {
  clear(gradients_);
  double loss = 0;
  for (std::int64_t i = 0; i < options_.accumulation; ++i) {
    loss += model_->forward_backward(data_.next_batch(done_ * options_.accumulation + i), gradients_);
  }
  const double scale = 1.0 / static_cast<double>(options_.tokens_per_step());
  const StepResult update = optimiser_->step(gradient_views_, options_.schedule().at(done_), scale);
  ++done_;
  return {loss * scale, update};
}

double Trainer::validation_loss(const std::function<bool(std::int64_t, std::int64_t)>& stops) {
  double sum = 0;
  std::int64_t tokens = 0;
  const std::int64_t batches = data_.validation_batches();
  for (std::int64_t i = 0; i < batches; ++i) {
    if (stops && stops(i, batches)) return std::numeric_limits<double>::quiet_NaN();
    const Batch batch = data_.validation_batch(i);
    sum += model_->loss(batch);
    tokens += batch.rows * batch.seq;
  }
  return tokens == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(tokens);
}

void Trainer::save(const fs::path& folder, const std::function<void()>& written) const {
  TrainingState state{done_, options_.seed, options_.to_metadata()};
  state.options[kText] = text_;
  state.options[kModel] = format_config(options_.model);
  save_checkpoint(folder, options_.model, weights_, &*optimiser_, &state, written);
}

TrainResult Trainer::run(const RunOptions& run) {
  const std::int64_t first = done_;
  const std::int64_t end =
      run.stop_after > 0 ? done_ + std::min(options_.steps - done_, run.stop_after) : options_.steps;
  // Held once a step is done, and begun once that is written: a run that can do neither leaves an older checkpoint and
  // its log as they were. A line is there before its step's checkpoint, which a killed run goes on behind.
  std::optional<TrainLog> log;
  const auto open_log = [&] {
    std::error_code ignored;
    const bool same = held_ && fs::equivalent(run.out, resumed_, ignored);
    log.emplace(run.out / "log.jsonl", first, same ? std::move(held_) : nullptr);
  };
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  TrainResult result{done_, options_.steps, none, none};
  // Who asks to stop may soon kill: nothing long comes between the question and the checkpoint.
  const auto interrupted = [&] {
    return result.interrupted = result.interrupted || (run.interrupted && run.interrupted());
  };
  Progress progress("train", options_.steps, first, run.progress);
  const auto validate = [&] {
    return validation_loss([&](std::int64_t batch, std::int64_t batches) {
      progress.update(done_, fmt::format("validating {}/{}", batch, batches));
      return interrupted();
    });
  };
  const double begin = now();
  double saved = begin, paused = 0;
  bool applied = true;
  const auto training_seconds = [&] { return std::max(now() - begin - paused, 1e-9); };
  while (done_ < end && !result.interrupted) {
    const double step_begin = now(), rate = options_.schedule().at(done_);
    const Step s = step();
    if (!log) open_log();
    const double tokens_per_second = static_cast<double>(options_.tokens_per_step()) / (now() - step_begin);
    result.loss = s.loss;
    result.gradient_norm = s.update.gradient_norm;
    nlohmann::ordered_json line{{"step", done_},
                                {"loss", s.loss},
                                {"gradient_norm", s.update.gradient_norm},
                                {"rate", rate},
                                {"tokens_per_second", std::round(tokens_per_second)}};
    if (!s.update.applied && applied)  // the first of several
      progress.note(fmt::format("step {}: the gradient is not finite, nothing was changed", done_));
    applied = s.update.applied;
    const double pause = now();
    const bool validates = done_ == end || (options_.validate_every > 0 && done_ % options_.validate_every == 0);
    result.validation_loss = none;
    if (validates && !interrupted()) {
      result.validation_loss = validate();
      if (std::isfinite(result.validation_loss)) {
        line["validation_loss"] = result.validation_loss;
        progress.note(
            fmt::format("step {:5}  loss {:.4f}  validation loss {:.4f}", done_, s.loss, result.validation_loss));
      }
    }
    // After the first step, too: a folder that cannot be written is known before an hour is spent.
    const bool last = interrupted() || done_ == end, begins = done_ == first + 1;
    const bool saves = last || begins || now() - saved >= run.save_seconds;
    const auto write_line = [&] { log->write(line.dump()); };
    if (begins) {
      save(run.out, [&] { log->begin(), write_line(); });
    } else {
      try {
        write_line();
      } catch (const Error&) {  // ends the run, but loses no step of it
        save(run.out);
        throw;
      }
      if (saves) save(run.out);
    }
    if (saves) saved = now();
    paused += now() - pause;
    progress.update_training(done_, s.loss, (done_ - first) * options_.tokens_per_step());
  }
  if (done_ == first) {  // nothing was left to do
    result.validation_loss = validate();
    open_log();
    save(run.out, [&] { log->begin(); });
  }
  progress.finish();
  result.step = done_;
  result.skipped = done_ - optimiser_->steps();
  result.seconds = now() - begin;
  result.tokens_per_second = static_cast<double>((done_ - first) * options_.tokens_per_step()) / training_seconds();
  return result;
}

}  // namespace coda::nn
