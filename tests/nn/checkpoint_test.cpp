#include "coda/nn/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "coda/nn/convert.h"
#include "coda/nn/names.h"
#include "coda/nn/rng.h"
#include "tests/nn/scratch.h"

namespace {

int flushes_until_one_fails = 0;  // counted down by each; 0: none fails
int flushed_folders = 0;

}  // namespace

/// In the place of the C library's: a disk may turn out to be full, or broken, when it is flushed.
extern "C" int fsync(int file) {
  struct stat info {};
  if (::fstat(file, &info) == 0 && S_ISDIR(info.st_mode)) ++flushed_folders;
  if (flushes_until_one_fails == 0 || --flushes_until_one_fails > 0) return 0;
  errno = EIO;
  return -1;
}

namespace {

using namespace coda::nn;
using coda::DType;
using coda::Error;
using coda::Status;
using coda::testing::expect_error;
using coda::testing::Scratch;

ModelConfig small(bool qk_norm, bool tied) {
  ModelConfig config;
  config.vocab = 11;
  config.hidden = 6;
  config.ffn = 5;
  config.layers = 2;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 8;
  config.qk_norm = qk_norm;
  config.tied_embeddings = tied;
  config.dtype = DType::fp32;
  return config;
}

/// A tensor of `file`, which has to outlive it, as it is.
TensorToWrite copy_of(const SafetensorsFile& file, const std::string& name) {
  const auto& entry = file.tensors().at(name);
  return {name, entry.dtype, entry.shape, [&file, name](std::span<std::byte> out) { file.load(name, out); }};
}

/// Every element of every tensor gets a value of its own.
void number(Weights& weights) {
  float next = 1;
  for_each_tensor(weights, [&](const std::string&, HostTensor& tensor) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) store_as(&next, 1, tensor.data(), tensor.dtype(), i), next += 1;
  });
}

void expect_same(const Weights& a, const Weights& b) {
  std::vector<const HostTensor*> left, right;
  for_each_tensor(a, [&](const std::string&, const HostTensor& t) { left.push_back(&t); });
  for_each_tensor(b, [&](const std::string&, const HostTensor& t) { right.push_back(&t); });
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(left[i]->shape(), right[i]->shape());
    ASSERT_EQ(left[i]->dtype(), right[i]->dtype());
    ASSERT_EQ(std::memcmp(left[i]->data(), right[i]->data(), left[i]->bytes().size()), 0) << i;
  }
}

TEST(Names, RotaryPairsBecomeAdjacent) {
  for (std::int64_t j = 0; j < 4; ++j) {
    EXPECT_EQ(paired_row(j, 8), 2 * j);
    EXPECT_EQ(paired_row(j + 4, 8), 2 * j + 1);
  }
}

TEST(Names, EveryElementOfTheModelHasOnePlaceInTheCheckpoint) {
  for (const bool qk_norm : {false, true}) {
    for (const bool tied : {false, true}) {
      const ModelConfig config = small(qk_norm, tied);
      Weights weights = make_weights(config, DType::fp32);
      std::map<const HostTensor*, std::multiset<std::int64_t>> rows;
      std::set<std::string> names;
      for (const HfTensor& item : hf_tensors(config, weights)) {
        EXPECT_TRUE(names.insert(item.name).second) << item.name;
        for (std::int64_t r = 0; r < item.shape[0]; ++r) rows[item.tensor].insert(item.row(r));
      }
      std::int64_t elements = 0;
      for_each_tensor(weights, [&](const std::string& name, HostTensor& tensor) {
        std::multiset<std::int64_t> all;
        for (std::int64_t r = 0; r < tensor.rows(); ++r) all.insert(r);
        EXPECT_EQ(rows[&tensor], all) << name;
        elements += tensor.size();
      });
      EXPECT_EQ(elements, config.parameters());
      EXPECT_EQ(names.count("lm_head.weight"), tied ? 0u : 1u);
      EXPECT_EQ(names.count("model.layers.1.self_attn.k_norm.weight"), qk_norm ? 1u : 0u);
      EXPECT_EQ(names.size(), 2u + (tied ? 0u : 1u) + 2u * (qk_norm ? 11u : 9u));
    }
  }
}

TEST(Names, RowsGoWhereTheProgramsReadThem) {
  const ModelConfig config = small(true, false);
  Weights weights = make_weights(config, DType::fp32);
  number(weights);
  std::map<std::string, std::vector<float>> hf;
  for (const HfTensor& item : hf_tensors(config, weights)) {
    auto& values = hf[item.name];
    values.resize(static_cast<std::size_t>(element_count(item.shape, DType::fp32)));
    export_tensor(item, std::as_writable_bytes(std::span(values)));
  }
  const LayerWeights& layer = weights.layers[1];
  const auto ours = [](const HostTensor& t, std::int64_t row, std::int64_t col) {
    return t.values<float>()[static_cast<std::size_t>(row * t.cols() + col)];
  };
  const std::string prefix = "model.layers.1.";
  const auto theirs = [&](const std::string& name, std::int64_t row, std::int64_t col, std::int64_t cols) {
    return hf.at(prefix + name)[static_cast<std::size_t>(row * cols + col)];
  };
  for (std::int64_t col = 0; col < 6; ++col) {
    for (std::int64_t f = 0; f < 5; ++f) {
      EXPECT_EQ(ours(layer.gate_up, 2 * f, col), theirs("mlp.gate_proj.weight", f, col, 6));
      EXPECT_EQ(ours(layer.gate_up, 2 * f + 1, col), theirs("mlp.up_proj.weight", f, col, 6));
    }
    for (std::int64_t j = 0; j < 4; ++j) {
      for (std::int64_t head = 0; head < 4; ++head) {
        EXPECT_EQ(ours(layer.qkv, 8 * head + 2 * j, col), theirs("self_attn.q_proj.weight", 8 * head + j, col, 6));
        EXPECT_EQ(ours(layer.qkv, 8 * head + 2 * j + 1, col),
                  theirs("self_attn.q_proj.weight", 8 * head + j + 4, col, 6));
      }
      for (std::int64_t head = 0; head < 2; ++head) {
        const std::int64_t row = 32 + 8 * head + 2 * j;
        EXPECT_EQ(ours(layer.qkv, row, col), theirs("self_attn.k_proj.weight", 8 * head + j, col, 6));
        EXPECT_EQ(ours(layer.qkv, row + 1, col), theirs("self_attn.k_proj.weight", 8 * head + j + 4, col, 6));
      }
    }
    for (std::int64_t r = 0; r < 16; ++r)
      EXPECT_EQ(ours(layer.qkv, 48 + r, col), theirs("self_attn.v_proj.weight", r, col, 6));
  }
  for (std::int64_t j = 0; j < 4; ++j) {
    EXPECT_EQ(ours(layer.q_norm, 2 * j, 0), theirs("self_attn.q_norm.weight", j, 0, 1));
    EXPECT_EQ(ours(layer.k_norm, 2 * j + 1, 0), theirs("self_attn.k_norm.weight", j + 4, 0, 1));
  }
}

TEST(Checkpoint, TheModelComesBackBitwise) {
  for (const bool qk_norm : {false, true}) {
    for (const bool tied : {false, true}) {
      for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32, DType::fp64}) {
        Scratch scratch;
        ModelConfig config = small(qk_norm, tied);
        config.dtype = dtype;
        Weights weights = make_weights(config, dtype);
        initialise(weights, 5);
        save_checkpoint(scratch / "model", config, weights);
        const LoadedModel loaded = load_model(scratch / "model");
        EXPECT_EQ(loaded.config, config);
        expect_same(loaded.weights, weights);
        EXPECT_FALSE(has_training(scratch / "model"));
        EXPECT_EQ(SafetensorsFile(scratch / "model/model.safetensors").metadata().at("format"), "pt");
      }
    }
  }
}

TEST(Checkpoint, WeightsConvertWhenLoadedAsAnotherType) {
  Scratch scratch;
  const ModelConfig config = small(false, false);
  Weights weights = make_weights(config, DType::fp32);
  number(weights);
  save_checkpoint(scratch.path(), config, weights);
  const LoadedModel loaded = load_model(scratch.path(), DType::bf16);
  EXPECT_EQ(loaded.config.dtype, DType::bf16);
  EXPECT_EQ(loaded.weights.head.dtype(), DType::bf16);
  EXPECT_EQ(static_cast<float>(loaded.weights.head.values<coda::bf16>().back()),
            static_cast<float>(coda::bf16(weights.head.values<float>().back())));
}

TEST(Checkpoint, LoadsShards) {
  Scratch scratch;
  const ModelConfig config = small(false, true);
  Weights weights = make_weights(config, DType::fp32);
  number(weights);
  save_checkpoint(scratch.path(), config, weights);
  const auto whole = scratch / "model.safetensors";
  {
    const SafetensorsFile file(whole);
    std::vector<TensorToWrite> shards[2];
    nlohmann::json map;
    for (const auto& [name, entry] : file.tensors()) {
      const std::size_t which = map.size() % 2;
      map[name] = which ? "b.safetensors" : "a.safetensors";
      shards[which].push_back(copy_of(file, name));
    }
    write_safetensors(scratch / "a.safetensors", shards[0], {});
    write_safetensors(scratch / "b.safetensors", shards[1], {});
    scratch.write("model.safetensors.index.json", nlohmann::json{{"metadata", {}}, {"weight_map", map}}.dump());
  }
  const std::string all = coda::testing::slurp(whole);
  std::filesystem::remove(whole);
  expect_same(load_model(scratch.path()).weights, weights);
  std::filesystem::remove(scratch / "b.safetensors");
  expect_error(Status::io_error, [&] { load_model(scratch.path()); }, "b.safetensors", "No such file");
  scratch.write("model.safetensors.index.json", R"({"weight_map":{"x":"../a.safetensors"}})");
  expect_error(Status::invalid_argument, [&] { load_model(scratch.path()); }, "weight_map", "expected a file name");
  scratch.write("model.safetensors.index.json", R"({"weight_map":{"x":3}})");
  expect_error(Status::invalid_argument, [&] { load_model(scratch.path()); }, "expected a file name, got 3");
  scratch.write("model.safetensors.index.json", R"({"weight_map":["a.safetensors"]})");
  expect_error(Status::invalid_argument, [&] { load_model(scratch.path()); }, "expected an object weight_map");
  scratch.write("model.safetensors.index.json", R"({"weight_map":{"x":"a.safetensors\u0000"}})");
  expect_error(Status::invalid_argument, [&] { load_model(scratch.path()); }, "weight_map", "expected a file name");
  scratch.write("model.safetensors.index.json", "{\"weight_map\":" + std::string(1'000'000, '['));
  expect_error(Status::invalid_argument, [&] { load_model(scratch.path()); }, "weight_map");
  // What cannot be looked at is an error of ours as well.
  std::filesystem::remove(scratch / "model.safetensors.index.json");
  std::filesystem::create_symlink("model.safetensors.index.json", scratch / "model.safetensors.index.json");
  expect_error(Status::io_error, [&] { load_model(scratch.path()); }, "index.json", "Too many levels");
  std::filesystem::create_symlink("model.safetensors", whole);
  expect_error(Status::io_error, [&] { load_model(scratch.path()); }, "model.safetensors:", "Too many levels");
  for (const auto& link : {scratch / "model.safetensors.index.json", whole}) std::filesystem::remove(link);
  expect_error(Status::io_error, [&] { load_model(scratch.path()); }, "/model.safetensors: No such file");
  scratch.write("model.safetensors.index.json", "{}");
  scratch.write("model.safetensors", all);  // what is in one file goes before the shards of an older one
  expect_same(load_model(scratch.path()).weights, weights);
}

TEST(Checkpoint, AShardedTensorIsReadFromWhereTheIndexSays) {
  Scratch scratch;
  const ModelConfig config = small(false, true);
  Weights weights = make_weights(config, DType::fp32);
  number(weights);
  save_checkpoint(scratch.path(), config, weights);
  const std::string norm = "model.norm.weight";
  nlohmann::json map;
  {
    const SafetensorsFile file(scratch / "model.safetensors");
    std::vector<TensorToWrite> others;
    for (const auto& [name, entry] : file.tensors()) {
      map[name] = name == norm ? "b.safetensors" : "a.safetensors";
      if (name != norm) others.push_back(copy_of(file, name));
    }
    write_safetensors(scratch / "b.safetensors", {copy_of(file, norm)}, {});
    // An older tensor of that name, in a shard that comes first.
    others.push_back(copy_of(file, norm));
    others.back().fill = [](std::span<std::byte> out) { std::memset(out.data(), 0, out.size()); };
    write_safetensors(scratch / "a.safetensors", others, {});
  }
  std::filesystem::remove(scratch / "model.safetensors");
  const auto load = [&] {
    scratch.write("model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
    return load_model(scratch.path()).weights;
  };
  expect_same(load(), weights);
  map["model.embed_tokens.weight"] = "b.safetensors";
  expect_error(Status::invalid_argument, load, "index.json: weight_map: \"model.embed_tokens.weight\": expected a file",
               "that has this tensor, got \"b.safetensors\"");
  map["model.embed_tokens.weight"] = "a.safetensors";
  map["no.such.weight"] = "a.safetensors";
  expect_error(Status::invalid_argument, load, "weight_map: \"no.such.weight\"");
  map = nlohmann::json::object();
  expect_error(Status::invalid_argument, load, "index.json: weight_map: expected a file for each tensor, got none");
}

TEST(Checkpoint, TensorsThatFollowFromTheOthersAreLeftOut) {
  Scratch scratch;
  const ModelConfig config = small(false, true);
  Weights weights = make_weights(config, DType::bf16);
  number(weights);
  save_checkpoint(scratch.path(), config, weights);
  EXPECT_EQ(load_model(scratch.path()).config.dtype, DType::bf16) << "that of the weights";
  const auto whole = scratch / "model.safetensors";
  const SafetensorsFile file(whole);
  const auto with = [&](const char* other) {
    std::vector<TensorToWrite> tensors{{other, DType::fp32, {2}, [](std::span<std::byte>) {}}};
    for (const auto& [name, entry] : file.tensors()) tensors.push_back(copy_of(file, name));
    write_safetensors(whole, tensors, {});
  };
  for (const char* other : {"lm_head.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"}) {
    with(other);
    expect_same(load_model(scratch.path()).weights, weights);
  }
  for (const char* other : {"model.layers.0.self_attn.q_proj.bias", "model.lm_head.weight"}) {
    with(other);
    expect_error(Status::unsupported, [&] { load_model(scratch.path()); }, other);
  }
}

TEST(Checkpoint, TensorsThatDoNotFitTheConfigAreNamed) {
  Scratch scratch;
  ModelConfig config = small(false, false);
  const Weights weights = make_weights(config, DType::fp32);
  save_checkpoint(scratch.path(), config, weights);
  const auto with = [&](auto change) {
    ModelConfig other = config;
    change(other);
    scratch.write("config.json", format_config(other));
  };
  const auto load = [&] { load_model(scratch.path()); };
  with([](ModelConfig& c) { c.ffn = 7; });
  expect_error(Status::invalid_argument, load, "mlp.gate_proj.weight", "[7, 6]", "[5, 6]");
  with([](ModelConfig& c) { c.layers = 3; });
  expect_error(Status::invalid_argument, load, "model.layers.2.input_layernorm.weight", "got none");
  with([](ModelConfig& c) { c.layers = 1; });
  expect_error(Status::unsupported, load, "model.layers.1.");
  with([](ModelConfig& c) { c.qk_norm = true; });
  expect_error(Status::invalid_argument, load, "q_norm.weight", "got none");
  // Refused by their sizes, before memory is asked for.
  for (auto side : {&ModelConfig::layers, &ModelConfig::hidden, &ModelConfig::ffn, &ModelConfig::vocab}) {
    with([&](ModelConfig& c) { c.*side = std::numeric_limits<std::int32_t>::max(); });
    expect_error(Status::invalid_argument, load, "config.json: expected a model of no more than", "2147483647");
  }
  with([](ModelConfig& c) { c.heads = std::numeric_limits<std::int32_t>::max() - 1; });
  expect_error(Status::invalid_argument, load, "config.json: expected a model of no more than", "2147483646");
  with([](ModelConfig&) {});
  load();
  // As many values in another shape.
  const SafetensorsFile file(scratch / "model.safetensors");
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, entry] : file.tensors()) {
    tensors.push_back(copy_of(file, name));
    if (name == "model.layers.1.mlp.gate_proj.weight") tensors.back().shape = {6, 5};
  }
  write_safetensors(scratch / "model.safetensors", tensors, {});
  expect_error(Status::invalid_argument, load, "layers.1.mlp.gate_proj.weight", "[5, 6]", "[6, 5]");
}

class Training : public ::testing::Test {
 protected:
  static std::vector<Parameter> parameters(Weights& weights) {
    std::vector<Parameter> out;
    for_each_tensor(weights, [&](const std::string& name, HostTensor& t) {
      out.push_back({name, t.vector(), t.shape().size() > 1});
    });
    return out;
  }
  static void run(Weights& weights, AdamW& adam, std::int64_t from, std::int64_t to) {
    for (std::int64_t step = from; step < to; ++step) {
      Weights gradients = make_weights(small(true, false), DType::fp32);
      initialise(gradients, static_cast<std::uint64_t>(1000 + step));
      std::vector<coda::ConstVector> views;
      for_each_tensor(gradients, [&](const std::string&, const HostTensor& t) { views.push_back(t.vector()); });
      adam.step(views, 0.01);
    }
    (void)weights;
  }
};

TEST_F(Training, ResumesBitwise) {
  Scratch scratch;
  ModelConfig config = small(true, false);
  config.dtype = DType::bf16;
  Weights straight = make_weights(config, DType::bf16);
  initialise(straight, 1);
  AdamW adam(parameters(straight), {});
  run(straight, adam, 0, 3);
  const TrainingState state{3, 0xffffffffffffffffu, {{"lr", "0.001"}, {"data", "x\"y"}}};
  save_checkpoint(scratch.path(), config, straight, &adam, &state);
  run(straight, adam, 3, 6);

  LoadedModel resumed = load_model(scratch.path());
  AdamW again(parameters(resumed.weights), {});
  const TrainingState read = load_training(scratch.path(), again);
  EXPECT_EQ(read.step, 3);
  EXPECT_EQ(read.seed, 0xffffffffffffffffu);
  EXPECT_EQ(read.options, state.options);
  EXPECT_EQ(read_training(scratch.path()).options, state.options);
  EXPECT_EQ(again.steps(), 3);
  run(resumed.weights, again, 3, 6);
  expect_same(resumed.weights, straight);
}

TEST_F(Training, ResumesBitwiseBehindAStepThatWasSkipped) {
  Scratch scratch;
  const ModelConfig config = small(true, false);
  Weights straight = make_weights(config, DType::fp32);
  initialise(straight, 1);
  AdamW adam(parameters(straight), {});
  run(straight, adam, 0, 1);
  Weights endless = make_weights(config, DType::fp32);
  endless.embed.values<float>()[0] = std::numeric_limits<float>::infinity();
  std::vector<coda::ConstVector> views;
  for_each_tensor(endless, [&](const std::string&, const HostTensor& t) { views.push_back(t.vector()); });
  EXPECT_FALSE(adam.step(views, 0.01).applied);
  const TrainingState state{2, 1, {}};
  save_checkpoint(scratch.path(), config, straight, &adam, &state);
  run(straight, adam, 2, 4);

  LoadedModel resumed = load_model(scratch.path());
  AdamW again(parameters(resumed.weights), {});
  EXPECT_EQ(load_training(scratch.path(), again).step, 2);
  EXPECT_EQ(again.steps(), 1);
  run(resumed.weights, again, 2, 4);
  expect_same(resumed.weights, straight);
}

/// Which did not count the steps that changed something.
TEST_F(Training, AStateOfAnOlderVersionHasAppliedEachOfItsSteps) {
  Scratch scratch;
  const ModelConfig config = small(true, false);
  Weights weights = make_weights(config, DType::fp32);
  AdamW adam(parameters(weights), {});
  const TrainingState state{7, 2, {}};
  save_checkpoint(scratch.path(), config, weights, &adam, &state);
  {
    const SafetensorsFile file(scratch / "training.safetensors");
    for (const char* name : {"master.embed", "m.embed", "v.embed"}) EXPECT_TRUE(file.contains(name)) << name;
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, entry] : file.tensors()) tensors.push_back(copy_of(file, name));
    write_safetensors(scratch / "training.safetensors", tensors, {{"step", "7"}, {"seed", "2"}});
  }
  EXPECT_EQ(load_training(scratch.path(), adam).step, 7);
  EXPECT_EQ(adam.steps(), 7);
}

TEST_F(Training, AModelSavedWithoutItsTrainingLeavesNoneOfAnother) {
  Scratch scratch;
  const ModelConfig config = small(true, false);
  Weights weights = make_weights(config, DType::fp32);
  AdamW adam(parameters(weights), {});
  const TrainingState state{5, 2, {}};
  save_checkpoint(scratch.path(), config, weights, &adam, &state);
  EXPECT_TRUE(has_training(scratch.path()));
  {
    const coda::testing::FullDisk full(100);
    expect_error(Status::io_error, [&] { save_checkpoint(scratch.path(), config, weights); }, "unchanged");
  }
  EXPECT_TRUE(has_training(scratch.path()));
  save_checkpoint(scratch.path(), config, weights);
  EXPECT_FALSE(has_training(scratch.path()));
  save_checkpoint(scratch.path(), config, weights, &adam, &state);
  save_checkpoint(scratch.path(), config, weights, &adam);  // of an unknown step
  EXPECT_FALSE(has_training(scratch.path()));
  std::filesystem::create_directories(scratch / "training.safetensors/in it");
  expect_error(
      Status::io_error, [&] { save_checkpoint(scratch.path(), config, weights); },
      (scratch / "training.safetensors").string());
}

TEST_F(Training, WeightsOfAnotherModelAreNotSaved) {
  Scratch scratch;
  Weights weights = make_weights(small(true, false), DType::fp32);
  ModelConfig other = small(true, false);
  other.ffn = 7;
  expect_error(
      Status::invalid_argument, [&] { save_checkpoint(scratch / "model", other, weights); }, "checkpoint: weights");
  EXPECT_FALSE(std::filesystem::exists(scratch / "model"));
}

TEST_F(Training, AFullDiskOrWhatElseGoesWrongLeavesTheWholeOldCheckpoint) {
  Scratch scratch;
  const ModelConfig config = small(true, false);
  Weights weights = make_weights(config, DType::fp32);
  initialise(weights, 1);
  AdamW adam(parameters(weights), {});
  const TrainingState old{1, 2, {}}, next{9, 2, {}};
  save_checkpoint(scratch.path(), config, weights, &adam, &old);
  std::map<std::string, std::string> before;
  for (const char* name : {"config.json", "model.safetensors", "training.safetensors"}) {
    before[name] = coda::testing::slurp(scratch / name);
  }
  run(weights, adam, 0, 1);
  // Room for the config, then for the model too, but never for the optimiser's state.
  for (const std::size_t room :
       {std::size_t{100}, before["config.json"].size() + 10, before["model.safetensors"].size() + 10}) {
    const coda::testing::FullDisk full(room);
    expect_error(
        Status::io_error, [&] { save_checkpoint(scratch.path(), config, weights, &adam, &next); },
        scratch.path().string(), "unchanged");
  }
  expect_error(
      Status::io_error,
      [&] {
        save_checkpoint(scratch.path(), config, weights, &adam, &next, [] { throw Error(Status::io_error, "no"); });
      },
      "no");
  // Each file is flushed before the first takes its name, at which it is once more.
  for (const int flush : {1, 2, 3, 4}) {
    flushes_until_one_fails = flush;
    expect_error(
        Status::io_error, [&] { save_checkpoint(scratch.path(), config, weights, &adam, &next); }, "flushing",
        "unchanged");
  }
  for (const auto& [name, content] : before) EXPECT_EQ(coda::testing::slurp(scratch / name), content) << name;
  EXPECT_EQ(coda::testing::count_files(scratch.path()), 3u);
  flushed_folders = 0;
  save_checkpoint(scratch.path(), config, weights, &adam, &next);
  EXPECT_GT(flushed_folders, 0) << "a new name outlasts a power cut once its folder is flushed";
  EXPECT_EQ(read_training(scratch.path()).step, 9);
}

/// What is checked before memory is asked for refuses no model that was saved.
TEST_F(Training, AModelThatIsAllOnePartComesBack) {
  for (auto side : {&ModelConfig::vocab, &ModelConfig::hidden, &ModelConfig::ffn, &ModelConfig::heads}) {
    Scratch scratch;
    ModelConfig config = small(false, true);
    config.*side = 600;
    Weights weights = make_weights(config, DType::fp32);
    initialise(weights, 1);
    AdamW adam(parameters(weights), {});
    const TrainingState state{0, 1, {}};
    save_checkpoint(scratch.path(), config, weights, &adam, &state);
    expect_same(load_model(scratch.path()).weights, weights);
    EXPECT_NO_THROW(check_training(scratch.path(), config));
  }
}

TEST_F(Training, AStateOfAnotherModelIsNamedAndChangesNothing) {
  Scratch scratch;
  const ModelConfig config = small(true, false);
  Weights weights = make_weights(config, DType::fp32);
  AdamW adam(parameters(weights), {});
  const TrainingState state{1, 2, {}};
  save_checkpoint(scratch.path(), config, weights, &adam, &state);

  ModelConfig wider = config;
  wider.vocab = 12;
  Weights others = make_weights(wider, DType::fp32);
  initialise(others, 3);
  AdamW other(parameters(others), {});
  const HostTensor before = other.slots()[0].master.clone();
  expect_error(Status::invalid_argument, [&] { load_training(scratch.path(), other); }, "master.embed", "[72]", "[66]");
  EXPECT_EQ(std::memcmp(before.data(), other.slots()[0].master.data(), before.bytes().size()), 0);

  Weights doubles = make_weights(config, DType::fp64);
  AdamW precise(parameters(doubles), {});
  expect_error(
      Status::invalid_argument, [&] { load_training(scratch.path(), precise); }, "master.embed", "fp64", "fp32");

  Weights fewer = make_weights(small(false, false), DType::fp32);
  AdamW less(parameters(fewer), {});
  expect_error(Status::invalid_argument, [&] { load_training(scratch.path(), less); }, "tensors");
  write_safetensors(scratch / "training.safetensors", {}, {{"step", "12x"}, {"seed", "1"}});
  expect_error(Status::invalid_argument, [&] { read_training(scratch.path()); }, "step", "12x");
  write_safetensors(scratch / "training.safetensors", {}, {{"step", "1099511627776"}, {"seed", "1"}});
  EXPECT_EQ(read_training(scratch.path()).step, std::int64_t{1} << 40);
  write_safetensors(scratch / "training.safetensors", {}, {{"step", "12"}});
  expect_error(Status::invalid_argument, [&] { read_training(scratch.path()); }, "seed", "\"\"");
  write_safetensors(scratch / "training.safetensors", {}, {{"step", "-1"}, {"seed", "1"}});
  expect_error(Status::invalid_argument, [&] { read_training(scratch.path()); }, "step", "got -1");
  write_safetensors(scratch / "training.safetensors", {}, {{"step", "1"}, {"seed", "1"}, {"updates", "-1"}});
  expect_error(Status::invalid_argument, [&] { load_training(scratch.path(), adam); }, "updates", "got -1");
  write_safetensors(scratch / "training.safetensors", {}, {{"step", "1"}, {"seed", "1"}, {"updates", "2"}});
  expect_error(
      Status::invalid_argument, [&] { load_training(scratch.path(), adam); }, "updates", "0 to the 1", "got 2");
}

TEST(Weights, InitialisationIsAFunctionOfTheSeed) {
  const ModelConfig config = small(true, false);
  Weights a = make_weights(config, DType::fp32), b = make_weights(config, DType::fp32),
          c = make_weights(config, DType::fp32);
  initialise(a, 1);
  initialise(b, 1);
  initialise(c, 2);
  expect_same(a, b);
  EXPECT_NE(a.embed.values<float>()[0], c.embed.values<float>()[0]);
  EXPECT_NE(a.embed.values<float>()[0], a.head.values<float>()[0]);
  EXPECT_EQ(a.layers[0].q_norm.values<float>()[7], 1.0f);
  const auto deviation = [](const HostTensor& t) {
    double sum = 0;
    for (const float x : t.values<float>()) sum += static_cast<double>(x) * x;
    return std::sqrt(sum / static_cast<double>(t.size()));
  };
  // What adds to the stream is smaller by the root of how often that is done.
  EXPECT_NEAR(deviation(a.layers[1].qkv), 0.02, 0.004);
  EXPECT_NEAR(deviation(a.layers[1].out), 0.01, 0.002);
  EXPECT_NEAR(deviation(a.layers[1].down), 0.01, 0.004);
  EXPECT_EQ(a.final_norm.values<float>()[0], 1.0f);
}

TEST(HostTensor, ChecksShapesAndTypes) {
  expect_error(Status::invalid_argument, [] { HostTensor t(DType::fp32, {2, -1}); }, "no negative extent, got [2, -1]");
  const std::int64_t huge = std::int64_t{1} << 40;
  expect_error(Status::invalid_argument, [=] { HostTensor t(DType::fp32, {huge, huge}); }, "2^62");
  // The largest, and one that is an element larger.
  constexpr std::int64_t most = std::int64_t{1} << 59;
  EXPECT_EQ(element_count({2, most / 2}, DType::fp64), most);
  expect_error(Status::invalid_argument, [=] { element_count({most + 1}, DType::fp64); }, "2^62 bytes");
  HostTensor t(DType::bf16, {3, 5});
  expect_error(Status::invalid_argument, [&] { t.values<float>(); }, "the element type bf16, got fp32");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data()) % 64, 0u);
  EXPECT_EQ(t.matrix().cols, 5);
  EXPECT_TRUE(HostTensor(DType::fp32, {0, 4}).present());
  EXPECT_FALSE(HostTensor().present());
  EXPECT_FALSE(HostTensor().clone().present());
}

}  // namespace
