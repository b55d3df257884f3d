// A whole layer, forward (`ops::block`) and backward (`ops::block_backward`), beside the sum of its bare products by
// cuBLASLt.
#pragma once

#include <vector>

#include "coda/cli/sm90/meter.h"
#include "coda/cli/sm90/records.h"

namespace coda::bench {

struct LayerCase {
  Layer layer;
  std::int64_t tokens;
};
/// Layers of LLaMA-3 1B, 8B and 70B for a batch of two sequences of 8192 tokens, and that of 8B for few tokens.
const std::vector<LayerCase>& layer_cases();

/// The forward and the backward pass. The products are four forward, and four input and four weight gradients backward,
/// one after the other. Gradients of weights are bf16 and written, as the products' outputs are.
/// What is held until the backward is ops::block_saved_bytes, and unfused ops::block_saved_bytes_unfused: what separate
/// passes hold that keep the inputs of each, with both norms' outputs and the activation's, but nothing that a fused
/// activation would compute again.
/// Long work (see kLongMs) is timed alone, too.
std::vector<LayerRecord> measure(const LayerCase& c, const Meter& meter, int rounds);

}  // namespace coda::bench
