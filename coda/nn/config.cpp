#include "coda/nn/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "coda/core/error.h"
#include "coda/core/file.h"
#include "coda/core/json.h"

namespace coda::nn {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxHeadDim = 512;  // of ops::Heads
constexpr std::uint64_t kMaxFile = std::uint64_t{16} << 20;

constexpr std::array<std::pair<const char*, DType>, 4> kDTypes{
    {{"bfloat16", DType::bf16}, {"float16", DType::fp16}, {"float32", DType::fp32}, {"float64", DType::fp64}}};
using Kind = RopeScaling::Kind;
constexpr std::array<std::pair<const char*, Kind>, 4> kRopeTypes{
    {{"default", Kind::none}, {"linear", Kind::linear}, {"llama3", Kind::llama3}, {"yarn", Kind::yarn}}};

/// Typed access to the keys of one JSON object; errors read "file: key: expected ..., got ...".
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  /// Absent and null are the same, as in transformers.
  const json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  const json& require(const char* key) const {
    if (const json* value = find(key)) return *value;
    throw Error(Status::invalid_argument, fmt::format("{}: {}: expected a value, got none", where_, key));
  }
  std::int64_t size(const char* key) const { return as_size(key, require(key)); }
  std::int64_t size(const char* key, std::int64_t fallback) const {
    const json* value = find(key);
    return value ? as_size(key, *value) : fallback;
  }
  double positive(const char* key, double fallback) const {
    const json* value = find(key);
    if (!value) return fallback;
    return as_positive(key, *value);
  }
  double positive(const char* key) const { return as_positive(key, require(key)); }
  bool flag(const char* key, bool fallback) const {
    const json* value = find(key);
    if (!value) return fallback;
    if (!value->is_boolean()) wrong(key, "true or false", *value);
    return value->get<bool>();
  }
  std::string text(const char* key, const std::string& fallback) const {
    const json* value = find(key);
    if (!value) return fallback;
    if (!value->is_string()) wrong(key, "a string", *value);
    return value->get<std::string>();
  }
  /// The model has no such feature: only absent, null and `allowed` pass.
  void only(const char* key, const json& allowed) const {
    const json* value = find(key);
    if (value && *value != allowed) unsupported(key, allowed.dump(), *value);
  }
  [[noreturn]] void unsupported(const char* key, const std::string& expected, const json& got) const {
    throw Error(Status::unsupported, fmt::format("{}: {}: expected {}, got {}", where_, key, expected, shown(got)));
  }
  [[noreturn]] void wrong(const char* key, const char* expected, const json& got) const {
    throw Error(Status::invalid_argument,
                fmt::format("{}: {}: expected {}, got {}", where_, key, expected, shown(got)));
  }
  const std::string& where() const { return where_; }

 private:
  std::int64_t as_size(const char* key, const json& value) const {
    if (!value.is_number_integer() || value <= 0 || value > std::numeric_limits<std::int32_t>::max()) {
      wrong(key, "an integer from 1 to 2^31 - 1", value);
    }
    return value.get<std::int64_t>();
  }
  double as_positive(const char* key, const json& value) const {
    if (!value.is_number() || !(value.get<double>() > 0)) wrong(key, "a positive number", value);
    return value.get<double>();
  }

  const json& object_;
  std::string where_;
};

/// True for Qwen3ForCausalLM, false for LlamaForCausalLM; anything else is unsupported.
bool is_qwen3(const Fields& fields) {
  const json& list = fields.require("architectures");
  if (!list.is_array() || list.size() != 1 || !list[0].is_string()) {
    fields.wrong("architectures", "a list with one name", list);
  }
  const auto name = list[0].get<std::string>();
  const bool qwen3 = name == "Qwen3ForCausalLM";
  if (!qwen3 && name != "LlamaForCausalLM") {
    throw Error(Status::unsupported,
                fmt::format("{}: architectures: expected LlamaForCausalLM or Qwen3ForCausalLM, got {}", fields.where(),
                            shown(name)));
  }
  fields.only("model_type", qwen3 ? "qwen3" : "llama");
  return qwen3;
}

/// YaRN's factor of cos and sin where none is given (arXiv 2309.00071, section 3.4; `mscale` is DeepSeek's).
double attention_factor(const Fields& rope, double factor) {
  const auto scale = [&](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1; };
  const bool both = rope.find("mscale") && rope.find("mscale_all_dim");
  return both ? scale(rope.positive("mscale")) / scale(rope.positive("mscale_all_dim")) : scale(1);
}

RopeScaling read_rope_scaling(const Fields& rope, std::int64_t max_positions) {
  const char* key = rope.find("rope_type") ? "rope_type" : "type";
  const std::string name = rope.text(key, "default");
  const auto* const known =
      std::ranges::find(kRopeTypes, name, [](const auto& type) { return std::string(type.first); });
  if (known == kRopeTypes.end()) rope.unsupported(key, "default, linear, llama3 or yarn", name);

  RopeScaling scaling{.kind = known->second};
  if (scaling.kind != Kind::none) scaling.factor = rope.positive("factor");
  if (scaling.kind == Kind::llama3) {
    scaling.low_freq_factor = rope.positive("low_freq_factor");
    scaling.high_freq_factor = rope.positive("high_freq_factor");
    scaling.original_positions = rope.size("original_max_position_embeddings");
  }
  if (scaling.kind == Kind::yarn) {
    scaling.original_positions = rope.size("original_max_position_embeddings", max_positions);
    scaling.beta_fast = rope.positive("beta_fast", scaling.beta_fast);
    scaling.beta_slow = rope.positive("beta_slow", scaling.beta_slow);
    scaling.truncate = rope.flag("truncate", true);
    scaling.attention_factor =
        rope.find("attention_factor") ? rope.positive("attention_factor") : attention_factor(rope, scaling.factor);
  }
  return scaling;
}

/// The rotary angles: `rope_theta` and `rope_scaling`, or both inside `rope_parameters` as newer transformers write
/// them. An older one that saves such a model writes both, and may mean neither: two that differ are refused.
void read_rope(const Fields& fields, ModelConfig& config) {
  std::optional<double> theta;
  const auto take_theta = [&](const Fields& from) {
    const json* value = from.find("rope_theta");
    if (!value) return;
    const double here = from.positive("rope_theta");
    if (theta.value_or(here) != here) {
      from.wrong("rope_theta", fmt::format("the {} that this file has elsewhere", *theta).c_str(), *value);
    }
    theta = here;
  };
  take_theta(fields);
  std::optional<RopeScaling> scaling;
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* value = fields.find(key);
    if (!value) continue;
    if (!value->is_object()) fields.wrong(key, "null or an object", *value);
    const Fields rope(*value, fmt::format("{}: {}", fields.where(), key));
    for (const auto& [name, parameter] : value->items()) {
      if (parameter.is_object()) rope.unsupported(name.c_str(), "one set of parameters for all layers", parameter);
    }
    rope.only("partial_rotary_factor", 1.0);
    take_theta(rope);
    const RopeScaling here = read_rope_scaling(rope, config.max_positions);
    if (scaling.value_or(here) != here) fields.wrong(key, "the scaling that this file has elsewhere", *value);
    scaling = here;
  }
  config.rope_theta = theta.value_or(10000.0);
  config.rope_scaling = scaling.value_or(RopeScaling{});
}

json format_rope_scaling(const RopeScaling& s) {
  if (s.kind == Kind::none) return nullptr;
  const auto* const type = std::ranges::find(kRopeTypes, s.kind, [](const auto& known) { return known.second; });
  json out = {{"rope_type", type->first}, {"factor", s.factor}};
  if (s.kind == Kind::linear) return out;
  out["original_max_position_embeddings"] = s.original_positions;
  if (s.kind == Kind::llama3) {
    out["low_freq_factor"] = s.low_freq_factor;
    out["high_freq_factor"] = s.high_freq_factor;
  } else {
    out["beta_fast"] = s.beta_fast;
    out["beta_slow"] = s.beta_slow;
    out["truncate"] = s.truncate;
    out["attention_factor"] = s.attention_factor;
  }
  return out;
}

DType read_dtype(const Fields& fields) {
  const char* key = fields.find("dtype") ? "dtype" : "torch_dtype";
  const std::string name = fields.text(key, "float32");
  for (const auto& [text, dtype] : kDTypes) {
    if (name == text) return dtype;
  }
  throw Error(Status::unsupported, fmt::format("{}: {}: expected bfloat16, float16, float32 or float64, got {}",
                                               fields.where(), key, shown(name)));
}

}  // namespace

std::int64_t ModelConfig::parameters() const {
  const std::int64_t layer = hidden * (qkv_rows() + q_rows() + 3 * ffn + 2) + (qk_norm ? 2 * head_dim : 0);
  return vocab * hidden * (tied_embeddings ? 1 : 2) + layers * layer + hidden;
}

void ModelConfig::check() const {
  const auto require = [](bool ok, const char* field, const std::string& expected, auto got) {
    if (ok) return;
    throw Error(Status::invalid_argument, fmt::format("model config: {}: expected {}, got {}", field, expected, got));
  };
  for (const auto& [field, value] :
       std::initializer_list<std::pair<const char*, std::int64_t>>{{"vocab", vocab},
                                                                   {"hidden", hidden},
                                                                   {"ffn", ffn},
                                                                   {"layers", layers},
                                                                   {"heads", heads},
                                                                   {"kv_heads", kv_heads},
                                                                   {"head_dim", head_dim},
                                                                   {"max_positions", max_positions}}) {
    require(value >= 1 && value <= std::numeric_limits<std::int32_t>::max(), field, "an integer from 1 to 2^31 - 1",
            value);
  }
  require(heads % kv_heads == 0, "kv_heads", fmt::format("a divisor of heads ({})", heads), kv_heads);
  require(head_dim % 2 == 0 && head_dim <= kMaxHeadDim, "head_dim",
          fmt::format("an even number (rotary pairs) up to {}", kMaxHeadDim), head_dim);
  require(std::isfinite(rope_theta) && rope_theta > 0, "rope_theta", "a positive number", rope_theta);
  const RopeScaling& s = rope_scaling;
  const bool llama3 = s.kind == Kind::llama3, yarn = s.kind == Kind::yarn;
  const auto positive = [&](bool used, const char* field, double value) {
    require(!used || (std::isfinite(value) && value > 0), field, "a positive number", value);
  };
  positive(s.kind != Kind::none, "rope_scaling.factor", s.factor);
  positive(llama3 || yarn, "rope_scaling.original_positions", static_cast<double>(s.original_positions));
  positive(llama3, "rope_scaling.low_freq_factor", s.low_freq_factor);
  require(!llama3 || (std::isfinite(s.high_freq_factor) && s.high_freq_factor > s.low_freq_factor),
          "rope_scaling.high_freq_factor", fmt::format("a number above low_freq_factor ({})", s.low_freq_factor),
          s.high_freq_factor);
  positive(yarn, "rope_scaling.beta_slow", s.beta_slow);
  require(!yarn || (std::isfinite(s.beta_fast) && s.beta_fast > s.beta_slow), "rope_scaling.beta_fast",
          fmt::format("a number above beta_slow ({})", s.beta_slow), s.beta_fast);
  positive(yarn, "rope_scaling.attention_factor", s.attention_factor);
  require(!yarn || rope_theta > 1, "rope_theta", "a number above 1 with YaRN", rope_theta);
  require(std::isfinite(norm_eps) && norm_eps > 0, "norm_eps", "a positive number", norm_eps);
  require(dtype <= DType::fp64, "dtype", "bf16, fp16, fp32 or fp64", name_of(dtype));
}

ModelConfig parse_config(std::string_view json_text, std::string_view where) {
  const json root = parse_json(json_text);
  if (!root.is_object()) {
    throw Error(Status::invalid_argument,
                fmt::format("{}: content: expected a JSON object, got {}", where,
                            root.is_discarded() ? "text that is not JSON, or nested too deep" : root.type_name()));
  }
  const Fields fields(root, std::string(where));
  const bool qwen3 = is_qwen3(fields);

  fields.only("hidden_act", "silu");
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window"}) fields.only(key, false);
  fields.only("partial_rotary_factor", 1.0);
  if (const json* value = fields.find("quantization_config")) {
    throw Error(Status::unsupported,
                fmt::format("{}: quantization_config: expected none, got {}", where, value->type_name()));
  }

  ModelConfig config;
  config.vocab = fields.size("vocab_size");
  config.hidden = fields.size("hidden_size");
  config.ffn = fields.size("intermediate_size");
  config.layers = fields.size("num_hidden_layers");
  config.heads = fields.size("num_attention_heads");
  config.kv_heads = fields.size("num_key_value_heads", config.heads);
  if (!fields.find("head_dim") && !qwen3 && config.hidden % config.heads != 0) {
    fields.wrong("num_attention_heads", "a divisor of hidden_size, or head_dim given",
                 fields.require("num_attention_heads"));
  }
  config.head_dim = fields.size("head_dim", qwen3 ? 128 : config.hidden / config.heads);
  config.max_positions = fields.size("max_position_embeddings", qwen3 ? 32768 : 2048);
  read_rope(fields, config);
  config.norm_eps = fields.positive("rms_norm_eps", 1e-6);
  config.tied_embeddings = fields.flag("tie_word_embeddings", false);
  config.qk_norm = qwen3;
  config.dtype = read_dtype(fields);
  try {
    config.check();
  } catch (const Error& error) {
    throw Error(error.status(), fmt::format("{}: {}", where, error.what()));
  }
  return config;
}

std::string format_config(const ModelConfig& config) {
  config.check();
  nlohmann::ordered_json out;
  out["architectures"] = {config.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"};
  out["model_type"] = config.qk_norm ? "qwen3" : "llama";
  out["vocab_size"] = config.vocab;
  out["hidden_size"] = config.hidden;
  out["intermediate_size"] = config.ffn;
  out["num_hidden_layers"] = config.layers;
  out["num_attention_heads"] = config.heads;
  out["num_key_value_heads"] = config.kv_heads;
  out["head_dim"] = config.head_dim;
  out["max_position_embeddings"] = config.max_positions;
  out["rope_theta"] = config.rope_theta;
  out["rope_scaling"] = format_rope_scaling(config.rope_scaling);
  out["rms_norm_eps"] = config.norm_eps;
  out["hidden_act"] = "silu";
  out["tie_word_embeddings"] = config.tied_embeddings;
  out["attention_bias"] = false;
  out["attention_dropout"] = 0.0;
  out["initializer_range"] = 0.02;
  out["use_cache"] = true;
  if (config.qk_norm) {
    out["use_sliding_window"] = false;
    out["sliding_window"] = nullptr;
  } else {
    out["mlp_bias"] = false;
  }
  // Tokens are bytes: none of them begins or ends a text, and transformers' defaults (1 and 2) must not.
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) out[key] = nullptr;
  for (const auto& [text, dtype] : kDTypes) {
    if (dtype == config.dtype) out["torch_dtype"] = text;
  }
  return out.dump(2) + "\n";
}

ModelConfig read_config(const std::filesystem::path& file) {
  return parse_config(read_text(file, kMaxFile), file.string());
}

}  // namespace coda::nn
