// The fused model against the unfused one: the same training, step by step, in fp32 and in bf16.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/nn/trainer.h"

namespace coda::nn {

struct CompareOptions {
  TrainOptions train;
  std::int64_t steps = 50;
  double minutes = 0;  // take fewer steps if all of them would take longer; 0: no limit
  ProgressOptions progress;
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
    /// Over the steps, of the fused loss from the unfused one: in nats, and as a part of it.
    double largest_difference() const;
    double largest_part() const;
  };
  std::int64_t steps = 0, tokens_per_step = 0;
  std::vector<Row> rows;
};

/// Trains four models from the same weights on the same batches; fused and unfused steps take turns, so that both see
/// the same machine.
Comparison compare_with_unfused(const CompareOptions& options);

std::string format_table(const Comparison& comparison);
std::string format_json(const Comparison& comparison);

}  // namespace coda::nn
