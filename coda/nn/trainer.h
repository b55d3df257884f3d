// Training a model on a text: everything between the options and the checkpoint.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "coda/core/file.h"
#include "coda/nn/adamw.h"
#include "coda/nn/checkpoint.h"
#include "coda/nn/data.h"
#include "coda/nn/model.h"
#include "coda/nn/progress.h"
#include "coda/nn/schedule.h"

namespace coda::nn {

/// What decides the numbers of a run. All of it lies in the checkpoint, and a resumed run takes it from there.
struct TrainOptions {
  std::filesystem::path data;
  ModelConfig model;
  std::int64_t steps = 0;  // of the whole run: the schedule ends there
  std::int64_t batch = 16, seq = 256, accumulation = 1;
  double rate = 1e-3, rate_floor = 1e-4;
  std::int64_t warmup = 100;  // steps; no more than a quarter of the run
  AdamWOptions adamw;
  double validation = 0.02;  // part of the text
  std::int64_t validate_every = 50;
  std::uint64_t seed = 1;

  /// Throws an Error naming the option.
  void check() const;
  std::int64_t tokens_per_step() const { return batch * seq * accumulation; }
  /// Every token of a run has a number.
  std::int64_t most_steps() const { return std::numeric_limits<std::int64_t>::max() / tokens_per_step(); }
  DataOptions data_options() const { return {batch, seq, validation, seed}; }
  CosineSchedule schedule() const { return {rate, rate_floor, std::min(warmup, steps / 4 + (steps % 4 != 0)), steps}; }
  Metadata to_metadata() const;
  /// The model comes from the checkpoint's config.json.
  static TrainOptions from_metadata(const Metadata& metadata, const ModelConfig& model);
};

/// What does not change the numbers: where a run writes and when it stops.
struct RunOptions {
  std::filesystem::path out;
  std::int64_t stop_after = 0;        // steps of this run; 0: to the end of the schedule
  double save_seconds = 60;           // between checkpoints
  std::function<bool()> interrupted;  // asked after each step and batch to validate on; true: save and end, at once
  ProgressOptions progress;
};

struct TrainResult {
  std::int64_t step = 0;         // done in all
  std::int64_t steps = 0;        // of the whole run
  double loss = 0;               // of the last step
  double validation_loss = 0;    // of the model that was saved; NaN without validation text, or if interrupted before
  double gradient_norm = 0;      // of the last step; one that is not finite changed nothing
  std::int64_t skipped = 0;      // of the steps done in all, those that changed nothing
  double tokens_per_second = 0;  // of this run
  double seconds = 0;
  bool interrupted = false;
};

/// How far a run is.
struct RunState {
  std::int64_t step = 0, steps = 0;  // done, and of the whole run
};
/// The run whose checkpoint lies in `folder`, if it has one.
std::optional<RunState> find_run(const std::filesystem::path& folder);

class Trainer {
 public:
  /// A new run: the weights are a function of (model, seed).
  explicit Trainer(const TrainOptions& options);
  /// Continues the run whose checkpoint lies in `folder`, bitwise as if it had never stopped. `data` replaces the path
  /// that the checkpoint names; the text must be the same, and config.json that of the run. The folder is held as
  /// FolderLock does until the run there ends, or the trainer is gone: no other run can leave a later checkpoint
  /// meanwhile.
  static std::unique_ptr<Trainer> resume(const std::filesystem::path& folder, const std::filesystem::path& data = {});

  /// Seconds that a step and a validation take on this machine now; leaves the trainer as it was made.
  struct Speed {
    double step, validation;
  };
  Speed measure();
  /// Sets the length of a run that has not begun.
  void set_steps(std::int64_t steps);

  /// Trains to the end, or until `stop_after` or an interrupt; leaves a checkpoint and log.jsonl in `out`.
  TrainResult run(const RunOptions& options);

  /// One optimiser step on the next batches; returns the mean loss of their tokens.
  struct Step {
    double loss;
    StepResult update;
  };
  Step step();
  /// Mean loss over the validation text; NaN if there is none, or once `stops`, asked before each batch with its number
  /// and how many there are, is true.
  double validation_loss(const std::function<bool(std::int64_t batch, std::int64_t batches)>& stops = {});
  /// Leaves a checkpoint; `written` as save_checkpoint has it.
  void save(const std::filesystem::path& folder, const std::function<void()>& written = {}) const;

  const TrainOptions& options() const { return options_; }
  const Weights& weights() const { return weights_; }
  std::int64_t steps_done() const { return done_; }

 private:
  void start();

  TrainOptions options_;
  TextData data_;
  std::string text_;  // what tells a changed one; of a long text it takes seconds
  Weights weights_, gradients_;
  std::vector<ConstVector> gradient_views_;
  std::optional<AdamW> optimiser_;
  std::unique_ptr<Network> model_;
  std::int64_t done_ = 0;
  std::filesystem::path resumed_;     // the folder, if this continues a run
  std::unique_ptr<FolderLock> held_;  // it, until the run there
};

/// The optimiser's view of a model: every tensor, decayed unless it is a norm weight.
std::vector<Parameter> parameters_of(Weights& weights);
/// Gradients in the same order.
std::vector<ConstVector> vectors_of(const Weights& gradients);
void clear(Weights& gradients);

}  // namespace coda::nn
