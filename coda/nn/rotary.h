// Rotary angles of a model.
#pragma once

#include <vector>

#include "coda/core/tensor.h"
#include "coda/nn/config.h"

namespace coda::nn {

/// What each pair (head_dim / 2) of a head turns by from one position to the next, in radians: theta^(-2j / head_dim),
/// scaled as transformers does for the same config.json.
std::vector<double> rotary_frequencies(const ModelConfig& config);

/// Fills a table (positions, head_dim), fp32 or fp64, for ops::Heads.
void fill_rotary_table(const Matrix& table, const ModelConfig& config);

}  // namespace coda::nn
