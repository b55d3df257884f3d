// A whole layer, forward (`ops::block`) and backward (`ops::block_backward`), beside the sum of its bare products by
// cuBLASLt, for a batch of two sequences of 8192 tokens.
#pragma once

#include <vector>

#include "coda/cli/sm90/meter.h"
#include "coda/cli/sm90/records.h"

namespace coda::bench {

/// Of LLaMA-3 1B, 8B and 70B.
const std::vector<Layer>& layers();

/// The forward and the backward pass. The products are four forward, and four input and four weight gradients backward,
/// one after the other. Gradients of weights are bf16 and written, as the products' outputs are.
/// What is held until the backward is ops::block_saved_bytes, and unfused ops::block_saved_bytes_unfused: what separate
/// passes hold that keep the inputs of each, with both norms' outputs and the activation's, but nothing that a fused
/// activation would compute again.
std::vector<LayerRecord> measure(const Layer& layer, const Meter& meter, int rounds);

}  // namespace coda::bench
