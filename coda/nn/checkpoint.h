// A checkpoint folder: `config.json` and `model.safetensors` as Hugging Face's LLaMA and Qwen3 have them, and
// `training.safetensors`, which holds all that a resumed run needs to continue bitwise as if never stopped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "coda/nn/adamw.h"
#include "coda/nn/config.h"
#include "coda/nn/safetensors.h"
#include "coda/nn/weights.h"

namespace coda::nn {

/// What a run is besides its tensors. It lies in the metadata of `training.safetensors`, beside the optimiser's state,
/// because one file is replaced atomically and two are not.
struct TrainingState {
  std::int64_t step = 0;  // steps done, those included whose gradient was not finite and changed nothing
  std::uint64_t seed = 0;
  Metadata options;  // the run's settings, for the resumed run to compare or take over
};

/// Saves the model and, where given, the state of its training; without it, one that lies there goes. Creates the
/// folder. All files are written and flushed before the first takes its name: when the disk is full, the old checkpoint
/// survives whole. `written` is called in between; if it throws, the old checkpoint survives, too.
void save_checkpoint(const std::filesystem::path& folder, const ModelConfig& config, const Weights& weights,
                     const AdamW* optimiser = nullptr, const TrainingState* state = nullptr,
                     const std::function<void()>& written = {});

struct LoadedModel {
  ModelConfig config;
  Weights weights;
};

/// Loads `config.json` and the weights: `model.safetensors`, or the shards that `model.safetensors.index.json` names.
/// `dtype` is what the weights become; by default what the config says.
LoadedModel load_model(const std::filesystem::path& folder, std::optional<DType> dtype = std::nullopt);

/// Whether the folder has a training state to resume from.
bool has_training(const std::filesystem::path& folder);

/// Only the state, to set a run up from.
TrainingState read_training(const std::filesystem::path& folder);
/// Throws Error(invalid_argument) if a model of this config is larger than what was saved: before memory is asked for.
void check_training(const std::filesystem::path& folder, const ModelConfig& config);

/// Fills the optimiser, and through it the model's weights, from the folder. The optimiser is unchanged on an error.
TrainingState load_training(const std::filesystem::path& folder, AdamW& optimiser);

}  // namespace coda::nn
