#include "coda/nn/names.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "coda/core/error.h"
#include "coda/nn/convert.h"

namespace coda::nn {
namespace {

std::int64_t row_count(const HfTensor& item) { return item.shape[0]; }
std::int64_t row_width(const HfTensor& item) { return item.shape.size() == 1 ? 1 : item.shape[1]; }

}  // namespace

std::vector<HfTensor> hf_tensors(const ModelConfig& config, Weights& weights) {
  using Rows = std::int64_t;
  const Rows dim = config.head_dim, q = config.q_rows(), kv = config.kv_rows();
  const auto same = [](Rows r) { return r; };
  const auto paired_heads = [dim](Rows first) {
    return [dim, first](Rows r) { return first + r / dim * dim + paired_row(r % dim, dim); };
  };
  std::vector<HfTensor> items;
  const auto add = [&](std::string name, Shape shape, HostTensor& tensor, std::function<Rows(Rows)> row) {
    items.push_back({std::move(name), std::move(shape), &tensor, std::move(row)});
  };
  add("model.embed_tokens.weight", {config.vocab, config.hidden}, weights.embed, same);
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    LayerWeights& layer = weights.layers[i];
    const std::string prefix = fmt::format("model.layers.{}.", i);
    const std::string attention = prefix + "self_attn.", mlp = prefix + "mlp.";
    add(prefix + "input_layernorm.weight", {config.hidden}, layer.input_norm, same);
    add(attention + "q_proj.weight", {q, config.hidden}, layer.qkv, paired_heads(0));
    add(attention + "k_proj.weight", {kv, config.hidden}, layer.qkv, paired_heads(q));
    add(attention + "v_proj.weight", {kv, config.hidden}, layer.qkv, [=](Rows r) { return q + kv + r; });
    if (config.qk_norm) {
      add(attention + "q_norm.weight", {dim}, layer.q_norm, paired_heads(0));
      add(attention + "k_norm.weight", {dim}, layer.k_norm, paired_heads(0));
    }
    add(attention + "o_proj.weight", {config.hidden, q}, layer.out, same);
    add(prefix + "post_attention_layernorm.weight", {config.hidden}, layer.post_norm, same);
    add(mlp + "gate_proj.weight", {config.ffn, config.hidden}, layer.gate_up, [](Rows r) { return 2 * r; });
    add(mlp + "up_proj.weight", {config.ffn, config.hidden}, layer.gate_up, [](Rows r) { return 2 * r + 1; });
    add(mlp + "down_proj.weight", {config.hidden, config.ffn}, layer.down, same);
  }
  add("model.norm.weight", {config.hidden}, weights.final_norm, same);
  if (!config.tied_embeddings) add("lm_head.weight", {config.vocab, config.hidden}, weights.head, same);
  return items;
}

void export_tensor(const HfTensor& item, std::span<std::byte> out) {
  const auto pitch = static_cast<std::size_t>(row_width(item) * size_of(item.tensor->dtype()));
  const std::byte* from = item.tensor->bytes().data();
  for (std::int64_t r = 0; r < row_count(item); ++r) {
    std::memcpy(out.data() + static_cast<std::size_t>(r) * pitch, from + static_cast<std::size_t>(item.row(r)) * pitch,
                pitch);
  }
}

void import_tensor(const HfTensor& item, const HostTensor& in) {
  if (in.shape() != item.shape) {
    throw Error(Status::invalid_argument, fmt::format("checkpoint: {}: expected the shape {}, got {}", item.name,
                                                      to_string(item.shape), to_string(in.shape())));
  }
  if (in.dtype() > DType::fp64) {
    throw Error(Status::unsupported,
                fmt::format("checkpoint: {}: expected a floating-point type, got {}", item.name, name_of(in.dtype())));
  }
  const std::int64_t width = row_width(item);
  visit_real(item.tensor->dtype(), [&]<class T>(std::type_identity<T>) {
    T* to = item.tensor->values<T>().data();
    for (std::int64_t r = 0; r < row_count(item); ++r) {
      load_as(in.data(), in.dtype(), r * width, width, to + item.row(r) * width);
    }
  });
}

}  // namespace coda::nn
