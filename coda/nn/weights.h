// The tensors of a LLaMA-style model in the layout that the programs read. Gradients have the same structure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/nn/config.h"
#include "coda/nn/host_tensor.h"

namespace coda::nn {

struct LayerWeights {
  HostTensor input_norm;  // (H)
  HostTensor qkv;         // ((heads + 2·kv_heads)·head_dim, H): q, k, v; rotary pairs of q and k are adjacent rows
  HostTensor q_norm, k_norm;  // (head_dim), paired as the rows of q and k; absent without qk_norm
  HostTensor out;             // (H, heads·head_dim)
  HostTensor post_norm;       // (H)
  HostTensor gate_up;         // (2·ffn, H): gate 0, up 0, gate 1, up 1, ...
  HostTensor down;            // (H, ffn)
};

struct Weights {
  HostTensor embed;  // (V, H)
  std::vector<LayerWeights> layers;
  HostTensor final_norm;  // (H)
  HostTensor head;        // (V, H); absent with tied embeddings, where the head is `embed`

  HostTensor& head_matrix() { return head.present() ? head : embed; }
  const HostTensor& head_matrix() const { return head.present() ? head : embed; }
};

/// All tensors of the model, zero, with elements of `dtype` (the weights themselves or their gradients).
Weights make_weights(const ModelConfig& config, DType dtype);

/// Throws an Error of operation `op` that names the tensor unless these are all tensors of the model, and no others.
void check_weights(const char* op, const ModelConfig& config, const Weights& weights, DType dtype);

/// Norm weights 1; matrices normal with deviation 0.02, those that write into the residual stream (`out`, `down`)
/// 0.02 / sqrt(2·layers). A pure function of (config, seed).
void initialise(Weights& weights, std::uint64_t seed);

/// Calls `visit(name, tensor, shape_in)` for each tensor that a model may have, always in the same order, with names
/// such as "layers.3.qkv"; `shape_in(config)` is the tensor's shape in a model, empty where it has none.
template <class AnyWeights, class Visit>
void for_each_slot(AnyWeights& weights, Visit&& visit) {
  using C = const ModelConfig&;
  const auto norm = [](C c) { return Shape{c.hidden}; };
  const auto head_norm = [](C c) { return c.qk_norm ? Shape{c.head_dim} : Shape{}; };
  visit("embed", weights.embed, [](C c) { return Shape{c.vocab, c.hidden}; });
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    auto& layer = weights.layers[i];
    const std::string prefix = "layers." + std::to_string(i) + '.';
    visit(prefix + "input_norm", layer.input_norm, norm);
    visit(prefix + "qkv", layer.qkv, [](C c) { return Shape{c.qkv_rows(), c.hidden}; });
    visit(prefix + "q_norm", layer.q_norm, head_norm);
    visit(prefix + "k_norm", layer.k_norm, head_norm);
    visit(prefix + "out", layer.out, [](C c) { return Shape{c.hidden, c.q_rows()}; });
    visit(prefix + "post_norm", layer.post_norm, norm);
    visit(prefix + "gate_up", layer.gate_up, [](C c) { return Shape{2 * c.ffn, c.hidden}; });
    visit(prefix + "down", layer.down, [](C c) { return Shape{c.hidden, c.ffn}; });
  }
  visit("final_norm", weights.final_norm, norm);
  visit("head", weights.head, [](C c) { return c.tied_embeddings ? Shape{} : Shape{c.vocab, c.hidden}; });
}

/// Calls `visit(name, tensor)` for each present tensor, in that order.
template <class AnyWeights, class Visit>
void for_each_tensor(AnyWeights& weights, Visit&& visit) {
  for_each_slot(weights, [&](const std::string& name, auto& tensor, auto) {
    if (tensor.present()) visit(name, tensor);
  });
}

}  // namespace coda::nn
