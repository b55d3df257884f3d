// AdamW (Loshchilov and Hutter) with master weights: the optimiser works on fp32 copies (fp64 for fp64 parameters) and
// rounds them into the model's own element type after each step. Bitwise the same for any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coda/core/tensor.h"
#include "coda/nn/host_tensor.h"

namespace coda::nn {

/// sqrt(sum of squares) over all gradients, summed in double in an order that depends on their sizes alone.
double gradient_norm(std::span<const ConstVector> gradients);

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_norm = 1.0;  // gradients are scaled down to this global norm; 0 turns clipping off
};

/// A parameter of the model: the optimiser writes `value`, which must outlive it.
struct Parameter {
  std::string name;
  Vector value;
  bool decay = true;  // whether weight decay applies (not to norm weights)
};

struct StepResult {
  double gradient_norm = 0;  // after `gradient_scale`, before clipping
  bool applied = false;      // false when the norm was not finite: nothing was changed
};

class AdamW {
 public:
  /// The master weights start as the parameters' values.
  AdamW(std::vector<Parameter> parameters, const AdamWOptions& options);

  /// One step: g = gradient · gradient_scale, clipped to the global norm, then
  ///   m = β1·m + (1−β1)·g,  v = β2·v + (1−β2)·g²,
  ///   w = w·(1 − rate·decay) − rate · (m / (1−β1ᵗ)) / (sqrt(v / (1−β2ᵗ)) + eps).
  /// Gradients are bf16, fp16, fp32 or fp64, in the order of the parameters.
  StepResult step(std::span<const ConstVector> gradients, double rate, double gradient_scale = 1.0);

  struct Slot {
    Parameter parameter;
    HostTensor master, m, v;
  };
  std::span<const Slot> slots() const { return slots_; }
  std::int64_t steps() const { return steps_; }
  const AdamWOptions& options() const { return options_; }

  /// For a resumed run: fill `slots()` first, then this sets the step count and rounds the masters into the model.
  std::span<Slot> slots() { return slots_; }
  void restore(std::int64_t steps);

 private:
  std::vector<Slot> slots_;
  AdamWOptions options_;
  std::int64_t steps_ = 0;
};

}  // namespace coda::nn
