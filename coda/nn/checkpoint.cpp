#include "coda/nn/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

#include "coda/core/error.h"
#include "coda/core/json.h"
#include "coda/nn/names.h"

namespace coda::nn {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "config.json";
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::uint64_t kMaxIndex = 100'000'000;  // as a header
constexpr const char* kTrainingFile = "training.safetensors";
constexpr const char* kUpdates = "updates";  // steps that the optimiser applied, which its bias correction counts
constexpr std::string_view kOptionPrefix = "option.";

std::vector<TensorToWrite> model_tensors(const ModelConfig& config, const Weights& weights) {
  std::vector<TensorToWrite> out;
  // The map binds mutable tensors because it serves both directions; exporting only reads them.
  for (HfTensor& item : hf_tensors(config, const_cast<Weights&>(weights))) {
    const DType dtype = item.tensor->dtype();
    TensorToWrite tensor{item.name, dtype, item.shape, {}};
    tensor.fill = [held = std::move(item)](std::span<std::byte> bytes) { export_tensor(held, bytes); };
    out.push_back(std::move(tensor));
  }
  return out;
}

/// `visit(tensor name, tensor)` for the three state tensors of a slot.
template <class AnySlot, class Visit>
void for_each_state(AnySlot& slot, Visit&& visit) {
  visit("master." + slot.parameter.name, slot.master);
  visit("m." + slot.parameter.name, slot.m);
  visit("v." + slot.parameter.name, slot.v);
}

std::vector<TensorToWrite> training_tensors(const AdamW& optimiser) {
  std::vector<TensorToWrite> out;
  for (const AdamW::Slot& slot : optimiser.slots()) {
    for_each_state(slot, [&](std::string name, const HostTensor& tensor) {
      out.push_back({std::move(name), tensor.dtype(), tensor.shape(), [&tensor](std::span<std::byte> bytes) {
                       std::memcpy(bytes.data(), tensor.data(), bytes.size());
                     }});
    });
  }
  return out;
}

template <class Integer>
Integer parse_number(const SafetensorsFile& file, const char* key) {
  const auto it = file.metadata().find(key);
  const std::string text = it == file.metadata().end() ? "" : it->second;
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    throw Error(Status::invalid_argument, fmt::format("checkpoint: {}: {}: expected a whole number, got {}",
                                                      file.path().string(), key, shown(text)));
  }
  return value;
}

TrainingState parse_state(const SafetensorsFile& file) {
  TrainingState state{parse_number<std::int64_t>(file, "step"), parse_number<std::uint64_t>(file, "seed"), {}};
  if (state.step < 0) {
    throw Error(Status::invalid_argument,
                fmt::format("checkpoint: {}: step: expected at least 0, got {}", file.path().string(), state.step));
  }
  for (const auto& [key, value] : file.metadata()) {
    if (key.starts_with(kOptionPrefix)) state.options.emplace(key.substr(kOptionPrefix.size()), value);
  }
  return state;
}

std::int64_t elements_of(const SafetensorsFile& file) {
  std::int64_t elements = 0;
  for (const auto& [name, entry] : file.tensors()) elements += element_count(entry.shape, entry.dtype);
  return elements;
}

/// A config that lies about sizes must not make us allocate them.
void refuse_larger(const fs::path& folder, const ModelConfig& c, std::int64_t elements) {
  const auto holds = [&](std::initializer_list<std::int64_t> sides) {
    std::int64_t left = elements;
    for (const std::int64_t side : sides) left /= side;
    return left > 0;
  };
  if (holds({c.vocab, c.hidden}) && holds({c.layers, c.hidden, c.ffn}) &&
      holds({c.layers, c.hidden, c.heads, c.head_dim})) {
    return;
  }
  throw Error(
      Status::invalid_argument,
      fmt::format("checkpoint: {}: {}: expected a model of no more than the {} values of its tensors, got {} "
                  "layers of {} with {} heads of {}, a feed-forward of {} and a vocabulary of {}",
                  folder.string(), kConfigFile, elements, c.layers, c.hidden, c.heads, c.head_dim, c.ffn, c.vocab));
}

/// What cannot be looked at is there: reading it tells why.
bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::status(file, ignored).type() != fs::file_type::not_found;
}

/// The weights of a folder, in one file or in shards.
class WeightFiles {
 public:
  explicit WeightFiles(const fs::path& folder) : folder_(folder) {
    if (!is_there(folder / kIndexFile) || is_there(folder / kModelFile)) {
      const SafetensorsFile& file = open(kModelFile);
      for (const auto& [name, entry] : file.tensors()) tensors_.emplace(name, &file);
      return;
    }
    const fs::path index = folder / kIndexFile;
    const auto root = parse_json(read_text(index, kMaxIndex));
    const auto map = root.is_object() ? root.value("weight_map", nlohmann::json()) : nlohmann::json();
    if (!map.is_object()) {
      throw Error(Status::invalid_argument,
                  fmt::format("checkpoint: {}: expected an object weight_map, got none", index.string()));
    }
    if (map.empty()) {
      throw Error(Status::invalid_argument,
                  fmt::format("checkpoint: {}: weight_map: expected a file for each tensor, got none", index.string()));
    }
    for (const auto& [name, shard] : map.items()) {
      // A shard is a file of this folder: a path that leads out of it is refused.
      const std::string file = shard.is_string() ? shard.get<std::string>() : "";
      if (file.empty() || fs::path(file).filename() != file || file.find('\0') != std::string::npos) {
        throw Error(Status::invalid_argument,
                    fmt::format("checkpoint: {}: weight_map: {}: expected a file name, got {}", index.string(),
                                shown(name), shown(shard)));
      }
      const SafetensorsFile& opened = open(file);
      if (!opened.contains(name)) {
        throw Error(Status::invalid_argument,
                    fmt::format("checkpoint: {}: weight_map: {}: expected a file that has this tensor, got {}",
                                index.string(), shown(name), shown(file)));
      }
      tensors_.emplace(name, &opened);
    }
  }

  /// From where the index says: another shard may have an older tensor of that name.
  HostTensor load(const std::string& name) const {
    if (const auto it = tensors_.find(name); it != tensors_.end()) return it->second->load(name);
    throw Error(Status::invalid_argument,
                fmt::format("checkpoint: {}: {}: expected this tensor, got none", folder_.string(), name));
  }

  void refuse_larger(const ModelConfig& config) const {
    std::int64_t elements = 0;
    for (const auto& [shard, file] : files_) elements += elements_of(file);
    nn::refuse_larger(folder_, config, elements);
  }

  /// A tensor that the model does not know would silently change what it computes.
  void refuse_others(const std::vector<HfTensor>& known) const {
    for (const auto& [shard, file] : files_) {
      for (const auto& [name, entry] : file.tensors()) {
        const bool expected =
            std::any_of(known.begin(), known.end(), [&n = name](const auto& k) { return k.name == n; });
        // The head of a model that ties it to the embedding, and a table that follows from the config.
        const bool harmless = name.ends_with("rotary_emb.inv_freq") || name == "lm_head.weight";
        if (expected || harmless) continue;
        throw Error(Status::unsupported, fmt::format("checkpoint: {}: {}: expected only tensors of the model of {}",
                                                     file.path().string(), shown(name), kConfigFile));
      }
    }
  }

 private:
  const SafetensorsFile& open(const std::string& file) {
    return files_.try_emplace(file, folder_ / file).first->second;
  }

  fs::path folder_;
  std::map<std::string, SafetensorsFile> files_;
  std::map<std::string, const SafetensorsFile*> tensors_;
};

}  // namespace

void save_checkpoint(const fs::path& folder, const ModelConfig& config, const Weights& weights, const AdamW* optimiser,
                     const TrainingState* state, const std::function<void()>& written) {
  check_weights("checkpoint: weights", config, weights, weights.embed.dtype());
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(Status::io_error, fmt::format("checkpoint: {}: {}", folder.string(), error.message()));

  ModelConfig saved = config;
  saved.dtype = weights.embed.dtype();
  AtomicFile config_file(folder / kConfigFile);
  config_file.write(format_config(saved));
  config_file.finish();
  AtomicFile model_file(folder / kModelFile);
  write_safetensors(model_file, model_tensors(saved, weights), {{"format", "pt"}});
  model_file.finish();
  std::optional<AtomicFile> training_file;
  if (optimiser && state) {
    Metadata metadata{{"step", std::to_string(state->step)},
                      {kUpdates, std::to_string(optimiser->steps())},
                      {"seed", std::to_string(state->seed)}};
    for (const auto& [key, value] : state->options) metadata.emplace(std::string(kOptionPrefix) + key, value);
    training_file.emplace(folder / kTrainingFile);
    write_safetensors(*training_file, training_tensors(*optimiser), metadata);
    training_file->finish();
  }
  if (written) written();
  // The state of an earlier training is none of this model's.
  if (!training_file) fs::remove(folder / kTrainingFile, error);
  if (error) {
    throw Error(Status::io_error,
                fmt::format("checkpoint: {}: {}", (folder / kTrainingFile).string(), error.message()));
  }
  config_file.commit();
  model_file.commit();
  if (training_file) training_file->commit();
}

LoadedModel load_model(const fs::path& folder, std::optional<DType> dtype) {
  LoadedModel model{read_config(folder / kConfigFile), {}};
  const WeightFiles files(folder);
  files.refuse_larger(model.config);
  const DType target = dtype.value_or(model.config.dtype);
  model.weights = make_weights(model.config, target);
  model.config.dtype = target;
  const auto items = hf_tensors(model.config, model.weights);
  files.refuse_others(items);
  for (const HfTensor& item : items) import_tensor(item, files.load(item.name));
  return model;
}

bool has_training(const fs::path& folder) {
  std::error_code ignored;  // where nothing can be looked at, nothing is there
  return fs::exists(folder / kTrainingFile, ignored);
}

TrainingState read_training(const fs::path& folder) { return parse_state(SafetensorsFile(folder / kTrainingFile)); }

void check_training(const fs::path& folder, const ModelConfig& config) {
  refuse_larger(folder, config, elements_of(SafetensorsFile(folder / kTrainingFile)) / 3);  // of each parameter three
}

TrainingState load_training(const fs::path& folder, AdamW& optimiser) {
  const SafetensorsFile file(folder / kTrainingFile);
  TrainingState state = parse_state(file);
  // Files of older versions do not tell it.
  const std::int64_t updates =
      file.metadata().contains(kUpdates) ? parse_number<std::int64_t>(file, kUpdates) : state.step;
  if (updates < 0 || updates > state.step) {
    throw Error(Status::invalid_argument, fmt::format("checkpoint: {}: {}: expected 0 to the {} steps, got {}",
                                                      file.path().string(), kUpdates, state.step, updates));
  }
  std::vector<HostTensor> loaded;
  for (AdamW::Slot& slot : optimiser.slots()) {
    for_each_state(slot, [&](const std::string& name, const HostTensor& tensor) {
      const TensorEntry& entry = file.entry(name);
      if (entry.dtype != tensor.dtype() || entry.shape != tensor.shape()) {
        throw Error(Status::invalid_argument,
                    fmt::format("checkpoint: {}: {}: expected {} of {}, got {} of {}", file.path().string(), name,
                                to_string(tensor.shape()), name_of(tensor.dtype()), to_string(entry.shape),
                                name_of(entry.dtype)));
      }
      loaded.push_back(file.load(name));
    });
  }
  if (loaded.size() != file.tensors().size()) {
    throw Error(Status::invalid_argument, fmt::format("checkpoint: {}: expected {} tensors, got {}",
                                                      file.path().string(), loaded.size(), file.tensors().size()));
  }
  std::size_t next = 0;
  for (AdamW::Slot& slot : optimiser.slots()) {
    for_each_state(slot, [&](const std::string&, HostTensor& tensor) { tensor = std::move(loaded[next++]); });
  }
  optimiser.restore(updates);
  return state;
}

}  // namespace coda::nn
