// Sizes and constants of a LLaMA-style model, read from and written to a Hugging Face `config.json`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "coda/core/types.h"

namespace coda::nn {

/// How rotary angles are stretched for texts longer than those that a model was trained on first, with the meaning that
/// transformers gives to `rope_scaling`. Fields that a kind does not name are not looked at.
struct RopeScaling {
  enum class Kind : std::uint8_t { none, linear, llama3, yarn };
  Kind kind = Kind::none;
  double factor = 1;                       // linear, llama3, yarn: slow pairs turn so many times slower
  std::int64_t original_positions = 8192;  // llama3, yarn: of the first training
  double low_freq_factor = 1,
         high_freq_factor = 4;           // llama3: turns in these, below and above which a pair is slow, fast
  double beta_slow = 1, beta_fast = 32;  // yarn: the same
  bool truncate = true;                  // yarn: the first and the last pair between these are whole numbers
  double attention_factor = 1;           // yarn: of cos and sin

  bool operator==(const RopeScaling&) const = default;
};

struct ModelConfig {
  std::int64_t vocab = 256;
  std::int64_t hidden = 256;
  std::int64_t ffn = 768;  // width after the gated activation; its weight has 2·ffn rows
  std::int64_t layers = 4;
  std::int64_t heads = 4;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 64;
  std::int64_t max_positions = 2048;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling = {};
  double norm_eps = 1e-5;
  bool tied_embeddings = false;  // the head is the embedding matrix
  bool qk_norm = false;          // RMSNorm of each q and k head: Qwen3ForCausalLM, else LlamaForCausalLM
  DType dtype = DType::bf16;     // element type of the weights

  std::int64_t q_rows() const { return heads * head_dim; }
  std::int64_t kv_rows() const { return kv_heads * head_dim; }
  std::int64_t qkv_rows() const { return q_rows() + 2 * kv_rows(); }
  std::int64_t parameters() const;

  /// Throws an Error naming the field when a size is not positive, heads % kv_heads != 0, head_dim is odd or
  /// above 512, ...
  void check() const;

  bool operator==(const ModelConfig&) const = default;
};

/// Parses the text of a config.json; `where` is what errors call it. Optional keys take the defaults of transformers.
/// A feature that the model does not have (biases, angles that depend on a text's length, sliding windows, another
/// activation) is an error.
ModelConfig parse_config(std::string_view json_text, std::string_view where = "config.json");
std::string format_config(const ModelConfig& config);

ModelConfig read_config(const std::filesystem::path& file);

}  // namespace coda::nn
