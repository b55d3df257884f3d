// The fused model against the unfused one: the same training, step by step, in the run's type and in one more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/nn/trainer.h"

namespace coda::nn {

struct CompareOptions {
  TrainOptions train;       // its steps are what the schedule spans; 0: as many as are compared
  std::int64_t steps = 50;  // in the run's type
  /// What all of it may take: the second type (fp32, or bf16 where the run is in fp32) gets as many of the steps as the
  /// first one leaves time for, 5 at least; 0: all.
  double minutes = 0;
  ProgressOptions progress;

  /// The run, its steps filled in. Throws an Error that names what is wrong.
  TrainOptions checked() const;
};

struct Measured {
  double milliseconds = 0;  // of a step without its optimiser: median
  std::int64_t bytes_moved = 0, bytes_held = 0;
  std::vector<double> losses;  // of each step
};

struct Comparison {
  struct Row {
    DType dtype;
    Measured fused, unfused;
    std::int64_t steps() const { return static_cast<std::int64_t>(fused.losses.size()); }
    /// Over the steps, of the fused loss from the unfused one: in nats, and as a part of it.
    double largest_difference() const;
    double largest_part() const;
  };
  std::int64_t steps = 0;  // of the whole run
  std::int64_t tokens_per_step = 0;
  std::vector<Row> rows;  // the run's type, then the other
};

/// Trains four models from the same weights on the same batches; fused and unfused steps take turns, so that both see
/// the same machine. The losses of the first are bit for bit those of a Trainer with the same options.
Comparison compare_with_unfused(const CompareOptions& options);

std::string format_table(const Comparison& comparison);
std::string format_json(const Comparison& comparison);

}  // namespace coda::nn
