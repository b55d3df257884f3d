#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "coda/core/json.h"
#include "coda/nn/config.h"
#include "coda/nn/rotary.h"
#include "coda/nn/safetensors.h"
#include "tests/nn/scratch.h"

namespace {

using coda::DType;
using coda::Status;
using coda::nn::ModelConfig;
using coda::nn::parse_config;
using coda::nn::RopeScaling;
using coda::testing::expect_error;
using nlohmann::json;

// The keys of meta-llama/Llama-3.2-1B but for its rope scaling.
json llama() {
  return coda::parse_json(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 500000.0,
    "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256})");
}

// The keys of Qwen/Qwen3-8B.
json qwen3() {
  return coda::parse_json(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
    "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 36, "model_type": "qwen3",
    "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": false,
    "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})");
}

ModelConfig parse(const json& object) { return parse_config(object.dump()); }

TEST(ModelConfig, ReadsLlama) {
  const ModelConfig c = parse(llama());
  EXPECT_EQ(c.vocab, 128256);
  EXPECT_EQ(c.hidden, 2048);
  EXPECT_EQ(c.ffn, 8192);
  EXPECT_EQ(c.layers, 16);
  EXPECT_EQ(c.heads, 32);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.max_positions, 131072);
  EXPECT_EQ(c.rope_theta, 500000.0);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_TRUE(c.tied_embeddings);
  EXPECT_FALSE(c.qk_norm);
  EXPECT_EQ(c.dtype, DType::bf16);
  EXPECT_EQ(c.qkv_rows(), 2048 + 2 * 512);
  EXPECT_EQ(c.parameters(), 1235814400);  // the published count of Llama 3.2 1B
}

TEST(ModelConfig, ReadsQwen3) {
  const ModelConfig c = parse(qwen3());
  EXPECT_TRUE(c.qk_norm);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(c.rope_theta, 1e6);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.parameters(), 8190735360);  // the published count of Qwen3 8B
}

TEST(ModelConfig, OptionalKeysTakeTheDefaultsOfTransformers) {
  json config = llama();
  for (const char* key : {"head_dim", "num_key_value_heads", "rope_theta", "rms_norm_eps", "tie_word_embeddings",
                          "torch_dtype", "max_position_embeddings", "rope_scaling", "model_type"}) {
    config.erase(key);
  }
  const ModelConfig c = parse(config);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.kv_heads, 32);
  EXPECT_EQ(c.rope_theta, 10000.0);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_EQ(c.dtype, DType::fp32);
  EXPECT_EQ(c.max_positions, 2048);
  json qwen = qwen3();
  for (const char* key : {"head_dim", "max_position_embeddings"}) qwen.erase(key);
  qwen["num_attention_heads"] = 16;
  EXPECT_EQ(parse(qwen).head_dim, 128);
  EXPECT_EQ(parse(qwen).max_positions, 32768);
}

TEST(ModelConfig, ReadsTheKeysOfNewerTransformers) {
  json config = llama();
  for (const char* key : {"rope_theta", "rope_scaling", "torch_dtype"}) config.erase(key);
  config["rope_parameters"] = {{"rope_theta", 250000.0}, {"rope_type", "default"}};
  config["dtype"] = "float16";
  EXPECT_EQ(parse(config).rope_theta, 250000.0);
  EXPECT_EQ(parse(config).dtype, DType::fp16);
  config["torch_dtype"] = "bfloat16";
  EXPECT_EQ(parse(config).dtype, DType::fp16) << "the newer key of the two";
}

TEST(ModelConfig, TwoRotaryBasesThatDifferAreRefused) {
  // What transformers 4 saves of a model that transformers 5 has written.
  json config = llama();
  config["rope_parameters"] = {{"rope_theta", 500000}, {"rope_type", "default"}};
  EXPECT_EQ(parse(config).rope_theta, 500000.0);
  config["rope_theta"] = 10000.0;
  expect_error(
      Status::invalid_argument, [&] { parse(config); }, "config.json: rope_parameters: rope_theta",
      "expected the 10000 that this file has elsewhere, got 500000");
}

json llama3_scaling() {  // of Llama 3.2 1B
  return {{"rope_type", "llama3"},
          {"factor", 32.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

json yarn_scaling() {  // as Qwen3's model card tells to set it
  return {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}};
}

json scaled(const json& config, const json& scaling) {
  json out = config;
  out["rope_scaling"] = scaling;
  return out;
}

TEST(ModelConfig, ReadsHowAnglesAreScaled) {
  const auto read = [](const json& scaling) { return parse(scaled(llama(), scaling)).rope_scaling; };
  using Kind = RopeScaling::Kind;
  EXPECT_EQ(read({{"rope_type", "default"}}), RopeScaling{});
  EXPECT_EQ(read({{"type", "linear"}, {"factor", 2.5}}), (RopeScaling{.kind = Kind::linear, .factor = 2.5}));
  const RopeScaling llama3{.kind = Kind::llama3, .factor = 32, .original_positions = 8192};
  EXPECT_EQ(read(llama3_scaling()), llama3);
  json yarn = yarn_scaling();
  const double attention = 0.1 * std::log(4.0) + 1;
  EXPECT_EQ(read(yarn),
            (RopeScaling{.kind = Kind::yarn, .factor = 4, .original_positions = 32768, .attention_factor = attention}));
  yarn["mscale"] = 0.7;
  EXPECT_EQ(read(yarn).attention_factor, attention) << "mscale counts together with mscale_all_dim";
  yarn["mscale_all_dim"] = 1.3;
  EXPECT_DOUBLE_EQ(read(yarn).attention_factor, (0.07 * std::log(4.0) + 1) / (0.13 * std::log(4.0) + 1));
  yarn["attention_factor"] = 1.5;
  yarn["beta_fast"] = 16;
  yarn["beta_slow"] = 2;
  yarn["truncate"] = false;
  yarn.erase("original_max_position_embeddings");
  EXPECT_EQ(read(yarn), (RopeScaling{.kind = Kind::yarn,
                                     .factor = 4,
                                     .original_positions = parse(llama()).max_positions,
                                     .beta_slow = 2,
                                     .beta_fast = 16,
                                     .truncate = false,
                                     .attention_factor = 1.5}));
  yarn["factor"] = 0.5;
  yarn.erase("attention_factor");
  EXPECT_EQ(read(yarn).attention_factor, 1) << "nothing is stretched";

  json newer = scaled(llama(), nullptr);
  newer["rope_parameters"] = llama3_scaling();
  EXPECT_EQ(parse(newer).rope_scaling, llama3);
  newer["rope_scaling"] = yarn_scaling();
  expect_error(
      Status::invalid_argument, [&] { parse(newer); }, "config.json: rope_parameters",
      "expected the scaling that this file has elsewhere");
}

TEST(ModelConfig, WrongScalingOfAnglesIsNamed) {
  const auto wrong = [](json scaling, const char* key, const json& value, const char* expected) {
    if (value.is_null()) scaling.erase(key);
    else scaling[key] = value;
    expect_error(Status::invalid_argument, [&] { parse(scaled(llama(), scaling)); }, "config.json", key, expected);
  };
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    wrong(llama3_scaling(), key, nullptr, "expected a value, got none");
    wrong(llama3_scaling(), key, -1, "got -1");
  }
  wrong(llama3_scaling(), "high_freq_factor", 1.0, "a number above low_freq_factor (1), got 1");
  wrong({{"type", "linear"}}, "factor", nullptr, "got none");
  for (const char* key : {"factor", "beta_fast", "beta_slow", "attention_factor"}) {
    wrong(yarn_scaling(), key, 0, "a positive number, got 0");
  }
  wrong(yarn_scaling(), "beta_fast", 1, "a number above beta_slow (1), got 1");
  wrong(yarn_scaling(), "truncate", 1, "true or false");
  wrong(yarn_scaling(), "rope_type", 7, "a string");
  json flat = scaled(llama(), yarn_scaling());
  flat["rope_theta"] = 1;
  expect_error(Status::invalid_argument, [&] { parse(flat); }, "rope_theta", "a number above 1 with YaRN");
}

/// As transformers' modeling_rope_utils.py has them, case by case.
double scaled_as_in_transformers(const ModelConfig& c, std::int64_t j) {
  const RopeScaling& s = c.rope_scaling;
  const auto dim = static_cast<double>(c.head_dim), old = static_cast<double>(s.original_positions);
  const double plain = 1 / std::pow(c.rope_theta, 2 * static_cast<double>(j) / dim);
  const double turn = 2 * std::acos(-1.0), wavelength = turn / plain;
  if (s.kind == RopeScaling::Kind::linear) return plain / s.factor;
  if (s.kind == RopeScaling::Kind::llama3) {
    if (wavelength < old / s.high_freq_factor) return plain;
    if (wavelength > old / s.low_freq_factor) return plain / s.factor;
    const double smooth = (old / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    return (1 - smooth) * plain / s.factor + smooth * plain;
  }
  if (s.kind == RopeScaling::Kind::yarn) {
    const auto correction = [&](double turns) {
      return dim * std::log(old / (turns * turn)) / 2 / std::log(c.rope_theta);
    };
    double low = correction(s.beta_fast), high = correction(s.beta_slow);
    if (s.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, dim - 1);
    const double ramp = std::min(1.0, std::max(0.0, (static_cast<double>(j) - low) / (high - low)));
    return plain / s.factor * ramp + plain * (1 - ramp);
  }
  return plain;
}

TEST(Rotary, AnglesAreScaledAsInTransformers) {
  json fractions = yarn_scaling();
  fractions["truncate"] = false;
  json first = yarn_scaling();  // already the first pair makes fewer turns than 32
  first["original_max_position_embeddings"] = 100;
  json last = fractions;  // even the last one makes more than 1
  last["original_max_position_embeddings"] = 2147483647;
  last["rope_theta"] = 500;
  for (const json& scaling : {json(nullptr), json{{"rope_type", "linear"}, {"factor", 3.0}}, llama3_scaling(),
                              yarn_scaling(), fractions, first, last}) {
    json config = scaled(llama(), scaling);
    if (scaling.is_object() && scaling.contains("rope_theta")) config.erase("rope_theta");
    const ModelConfig c = parse(config);
    const std::vector<double> got = coda::nn::rotary_frequencies(c);
    ASSERT_EQ(std::ssize(got), c.head_dim / 2);
    for (std::int64_t j = 0; j < c.head_dim / 2; ++j) {
      const double expected = scaled_as_in_transformers(c, j);
      EXPECT_NEAR(got[static_cast<std::size_t>(j)], expected, 1e-12 * expected) << scaling << ", pair " << j;
    }
    constexpr std::int64_t kPositions = 3;
    std::vector<double> table(static_cast<std::size_t>(kPositions * c.head_dim));
    coda::nn::fill_rotary_table(coda::MatrixOf<double>(table.data(), kPositions, c.head_dim), c);
    const double scale = scaling.is_object() && scaling["rope_type"] == "yarn" ? 0.1 * std::log(4.0) + 1 : 1;
    for (std::int64_t j = 0; j < c.head_dim / 2; ++j) {
      const double angle = 2 * scaled_as_in_transformers(c, j);
      const auto at = static_cast<std::size_t>(2 * c.head_dim + 2 * j);
      EXPECT_NEAR(table[at], scale * std::cos(angle), 1e-12) << scaling << ", pair " << j;
      EXPECT_NEAR(table[at + 1], scale * std::sin(angle), 1e-12) << scaling << ", pair " << j;
    }
  }
}

TEST(Rotary, ARampBetweenAPairAndItselfIsAStep) {
  ModelConfig c = parse(scaled(llama(), yarn_scaling()));
  c.rope_scaling.original_positions = 6;  // even the first pair makes less than a turn: the ramp is from 0 to 0
  const std::vector<double> got = coda::nn::rotary_frequencies(c);
  EXPECT_EQ(got[0], 1);
  EXPECT_EQ(got[1], std::pow(c.rope_theta, -2.0 / static_cast<double>(c.head_dim)) / 4);
}

TEST(ModelConfig, WritesWhatItReads) {
  const json linear = {{"type", "linear"}, {"factor", 2.5}};
  json yarn = yarn_scaling();
  yarn["attention_factor"] = 1.75;
  for (const json& object :
       {llama(), qwen3(), scaled(llama(), llama3_scaling()), scaled(qwen3(), yarn), scaled(qwen3(), linear)}) {
    const ModelConfig c = parse(object);
    EXPECT_EQ(parse_config(format_config(c)), c);
  }
  ModelConfig c;
  c.dtype = DType::fp64;
  c.norm_eps = 1.0 / 3;
  c.rope_theta = 10000.5;
  EXPECT_EQ(parse_config(format_config(c)), c);
  const json stretched = coda::parse_json(format_config(parse(scaled(llama(), linear))));
  EXPECT_EQ(stretched["rope_scaling"], json({{"rope_type", "linear"}, {"factor", 2.5}}));
  const json written = coda::parse_json(format_config(c));
  EXPECT_EQ(written["architectures"], json({"LlamaForCausalLM"}));
  EXPECT_TRUE(written["rope_scaling"].is_null());
  EXPECT_TRUE(written["eos_token_id"].is_null());
}

TEST(ModelConfig, MissingFieldsAreNamed) {
  for (const char* key : {"architectures", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads", "vocab_size"}) {
    json config = llama();
    config.erase(key);
    expect_error(Status::invalid_argument, [&] { parse(config); }, "config.json", key, "got none");
  }
}

TEST(ModelConfig, WrongValuesAreNamed) {
  const std::pair<const char*, json> cases[] = {{"hidden_size", -1},
                                                {"hidden_size", 0},
                                                {"hidden_size", "wide"},
                                                {"hidden_size", 1.5},
                                                {"vocab_size", 4294967296},
                                                {"rope_theta", 0},
                                                {"rope_theta", "big"},
                                                {"rms_norm_eps", -1e-6},
                                                {"tie_word_embeddings", 1},
                                                {"architectures", "x"},
                                                {"architectures", json::array()},
                                                {"architectures", {"LlamaForCausalLM", "LlamaForCausalLM"}},
                                                {"num_hidden_layers", json::array({1})},
                                                {"torch_dtype", 16}};
  for (const auto& [key, value] : cases) {
    json config = llama();
    config[key] = value;
    expect_error(Status::invalid_argument, [&] { parse(config); }, "config.json", key, "expected");
  }
  json config = llama();
  config["hidden_act"] = std::string(1000, 'x');
  expect_error(Status::unsupported, [&] { parse(config); }, "hidden_act", "xxx...");
  config = llama();
  config["num_key_value_heads"] = 5;
  expect_error(Status::invalid_argument, [&] { parse(config); }, "kv_heads", "5", "32");
  config = llama();
  config["head_dim"] = 63;
  expect_error(Status::invalid_argument, [&] { parse(config); }, "head_dim", "63");
  config["head_dim"] = 514;
  expect_error(Status::invalid_argument, [&] { parse(config); }, "head_dim", "up to 512", "514");
  config["head_dim"] = 512;
  EXPECT_EQ(parse(config).head_dim, 512);
  config = llama();
  config.erase("head_dim");
  config["num_attention_heads"] = 24;
  config["num_key_value_heads"] = 8;
  expect_error(Status::invalid_argument, [&] { parse(config); }, "num_attention_heads", "24");
}

TEST(ModelConfig, UnsupportedFeaturesAreNamed) {
  const std::pair<const char*, json> cases[] = {{"architectures", {"MistralForCausalLM"}},
                                                {"model_type", "mistral"},
                                                {"hidden_act", "gelu"},
                                                {"attention_bias", true},
                                                {"mlp_bias", true},
                                                {"use_sliding_window", true},
                                                {"torch_dtype", "float8_e4m3fn"},
                                                {"rope_scaling", {{"rope_type", "longrope"}, {"factor", 32.0}}},
                                                {"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}},
                                                {"rope_parameters", {{"partial_rotary_factor", 0.5}}},
                                                {"rope_parameters", {{"full_attention", {{"rope_theta", 5}}}}},
                                                {"quantization_config", {{"bits", 4}}},
                                                {"partial_rotary_factor", 0.5}};
  for (const auto& [key, value] : cases) {
    json config = llama();
    config[key] = value;
    expect_error(Status::unsupported, [&] { parse(config); }, "config.json", key, "expected");
  }
}

TEST(ModelConfig, ItsOwnFieldsAreChecked) {
  const auto refused = [](auto change, const char* field, const char* got) {
    ModelConfig c;
    change(c);
    expect_error(Status::invalid_argument, [&] { c.check(); }, "model config", field, got);
  };
  refused([](ModelConfig& c) { c.vocab = std::int64_t{1} << 31; }, "vocab", "got 2147483648");
  refused([](ModelConfig& c) { c.rope_theta = 0; }, "rope_theta", "got 0");
  refused([](ModelConfig& c) { c.rope_theta = HUGE_VAL; }, "rope_theta", "got inf");
  refused([](ModelConfig& c) { c.norm_eps = HUGE_VAL; }, "norm_eps", "got inf");
  refused([](ModelConfig& c) { c.norm_eps = 0; }, "norm_eps", "got 0");
  refused([](ModelConfig& c) { c.dtype = DType::int32; }, "dtype", "got int32");
  refused([](ModelConfig& c) { c.layers = 0; }, "layers", "got 0");
  using Kind = RopeScaling::Kind;
  for (const Kind kind : {Kind::linear, Kind::llama3, Kind::yarn}) {
    refused([&](ModelConfig& c) { c.rope_scaling = {.kind = kind, .factor = 0}; }, "rope_scaling.factor", "got 0");
  }
  for (const Kind kind : {Kind::llama3, Kind::yarn}) {
    refused([&](ModelConfig& c) { c.rope_scaling = {.kind = kind, .original_positions = 0}; },
            "rope_scaling.original_positions", "got 0");
  }
  refused([](ModelConfig& c) { c.rope_scaling = {.kind = Kind::llama3, .low_freq_factor = HUGE_VAL}; },
          "rope_scaling.low_freq_factor", "got inf");
  refused([](ModelConfig& c) { c.rope_scaling = {.kind = Kind::llama3, .high_freq_factor = HUGE_VAL}; },
          "rope_scaling.high_freq_factor", "got inf");
  refused([](ModelConfig& c) { c.rope_scaling = {.kind = Kind::yarn, .beta_slow = 0}; }, "rope_scaling.beta_slow",
          "got 0");
  refused([](ModelConfig& c) { c.rope_scaling = {.kind = Kind::yarn, .beta_fast = HUGE_VAL}; },
          "rope_scaling.beta_fast", "got inf");
  refused([](ModelConfig& c) { c.rope_scaling = {.kind = Kind::yarn, .attention_factor = 0}; },
          "rope_scaling.attention_factor", "got 0");
  refused([](ModelConfig& c) { c.rope_scaling.kind = Kind::yarn, c.rope_theta = 1; }, "rope_theta", "got 1");

  ModelConfig least;
  least.layers = least.heads = least.kv_heads = 1;
  least.vocab = (std::int64_t{1} << 31) - 1;
  least.rope_theta = 1.5;
  least.rope_scaling = {.kind = Kind::yarn, .factor = 2, .original_positions = 1};
  EXPECT_NO_THROW(least.check());
  EXPECT_EQ(parse_config(format_config(least)), least);
  least.rope_scaling = {.factor = 0, .original_positions = 0, .beta_slow = 0};  // nobody looks at these
  EXPECT_NO_THROW(least.check());
}

TEST(ModelConfig, TextThatIsNoObjectIsRefused) {
  for (const char* text : {"", "{", "[]", "3", "{\"a\":1}}", "\xff\xfe"}) {
    expect_error(
        Status::invalid_argument, [&] { parse_config(text, "some.json"); }, "some.json", "expected a JSON object");
  }
  const std::string open(1'000'000, '['), close(1'000'000, ']');
  expect_error(
      Status::invalid_argument, [&] { parse_config("{\"architectures\":" + open + close + "}"); }, "nested too deep");
  expect_error(Status::invalid_argument, [] { parse_config("{\"architectures\": [\"\xff\"]}"); }, "config.json");
  coda::testing::Scratch scratch;
  expect_error(Status::io_error, [&] { coda::nn::read_config(scratch / "none.json"); }, "none.json", "No such file");
  const std::string behind(1, '\0');
  expect_error(Status::invalid_argument, [&] { parse_config("{}" + behind + "{}", "some.json"); }, "a JSON object");
  const auto large = scratch.write("large.json", "{}");
  std::filesystem::resize_file(large, std::uintmax_t{1} << 30);
  expect_error(
      Status::io_error, [&] { coda::nn::read_config(large); }, "large.json", "expected at most 16777216 bytes");
}

TEST(Json, IsReadAsDeepAsAnyOfOursAndNotMuchDeeper) {
  const auto nested = [](std::size_t depth) {
    return coda::parse_json(std::string(depth, '[') + std::string(depth, ']'));
  };
  EXPECT_TRUE(nested(60).is_array());
  EXPECT_TRUE(nested(70).is_discarded());
}

TEST(Json, IsShownInALine) {
  EXPECT_EQ(coda::shown(std::string(118, 'x')), '"' + std::string(118, 'x') + '"');
  EXPECT_EQ(coda::shown(std::string(119, 'x')), '"' + std::string(116, 'x') + "...");
  EXPECT_EQ(coda::shown(std::string(115, 'x') + "\u00e9\u00e9\u00e9"), '"' + std::string(115, 'x') + "...");
}

TEST(ModelConfig, ErrorsAreOneLineInUtf8) {
  const auto message = [](const nlohmann::json& config) {
    try {
      parse_config(config.dump());
    } catch (const coda::Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  std::string long_text(1, 'a');
  for (int i = 0; i < 1000; ++i) long_text += "\u20ac";
  for (const std::string& text : {std::string("a\nb\x1b[31m"), long_text, "a" + long_text, "ab" + long_text}) {
    for (json config : {json{{"architectures", {text}}}, json{{"architectures", text}}, llama()}) {
      if (config.contains("torch_dtype")) config["torch_dtype"] = text;
      const std::string got = message(config);
      EXPECT_EQ(got.find_first_of("\n\x1b"), std::string::npos) << got;
      EXPECT_LT(got.size(), 300U);
      EXPECT_NE(got, "none");
      EXPECT_TRUE(coda::nn::is_utf8(got)) << got;
    }
  }
}

}  // namespace
