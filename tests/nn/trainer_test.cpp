// Whole training runs: learning, resuming, logging, and what goes wrong.
#include "coda/nn/trainer.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <set>
#include <sstream>

#include "coda/core/json.h"
#include "coda/nn/compare.h"
#include "tests/nn/scratch.h"

namespace coda::nn {
namespace {

using testing::expect_error;
using testing::Scratch;
using testing::slurp;

std::string rhyme(std::size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) {
    text += "The " + std::to_string(i * i % 97) + " sheep of " + std::to_string(i % 13) + " hills went home. ";
  }
  return text;
}

TrainOptions small_run(const std::filesystem::path& data, std::int64_t steps, DType dtype = DType::fp32) {
  TrainOptions o;
  o.data = data;
  o.model.vocab = 256;
  o.model.hidden = 32;
  o.model.ffn = 48;
  o.model.layers = 2;
  o.model.heads = 4;
  o.model.kv_heads = 2;
  o.model.head_dim = 8;
  o.model.max_positions = 32;
  o.model.dtype = dtype;
  o.steps = steps;
  o.batch = 4;
  o.seq = 32;
  o.rate = 1e-2;
  o.rate_floor = 1e-3;
  o.warmup = 5;
  o.validation = 0.1;
  o.validate_every = 10;
  o.seed = 7;
  return o;
}

RunOptions quiet(const std::filesystem::path& out, std::int64_t stop_after = 0) {
  RunOptions run;
  run.out = out;
  run.stop_after = stop_after;
  run.progress.mode = ProgressOptions::Mode::off;
  return run;
}

std::vector<nlohmann::json> log_of(const std::filesystem::path& folder) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(slurp(folder / "log.jsonl"));
  for (std::string line; std::getline(in, line);) lines.push_back(parse_json(line));
  return lines;
}

TEST(Training, LearnsALittleLanguage) {
  const Scratch scratch;
  Trainer trainer(small_run(scratch.write("text.txt", rhyme(20000)), 80));
  const TrainResult result = trainer.run(quiet(scratch / "out"));
  EXPECT_EQ(result.step, 80);
  EXPECT_LT(result.loss, 2.0);
  EXPECT_LT(result.validation_loss, 2.0);
  const auto log = log_of(scratch / "out");
  ASSERT_EQ(log.size(), 80U);
  EXPECT_NEAR(log[0]["loss"].get<double>(), std::log(256.0), 0.1);
  EXPECT_EQ(log[79]["step"], 80);
  for (const std::size_t step : {1, 9, 10, 20, 79, 80}) {
    EXPECT_EQ(log[step - 1].contains("validation_loss"), step % 10 == 0) << step;
  }
  EXPECT_GT(result.seconds, 0);
  EXPECT_GT(log[40]["tokens_per_second"].get<double>(), 0);
  EXPECT_GT(log[40]["gradient_norm"].get<double>(), 0);
}

TEST(Training, LearnsInEveryType) {
  const Scratch scratch;
  const auto text = scratch.write("text.txt", rhyme(20000));
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp64}) {
    Trainer trainer(small_run(text, 25, dtype));
    const TrainResult result = trainer.run(quiet(scratch / name_of(dtype)));
    EXPECT_LT(result.loss, 2.6) << name_of(dtype);
  }
}

class Resume : public ::testing::TestWithParam<DType> {};

TEST_P(Resume, ContinuesBitwiseAsIfNeverStopped) {
  const Scratch scratch;
  TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 12, GetParam());
  options.accumulation = 2;
  options.model.qk_norm = true;
  Trainer(options).run(quiet(scratch / "whole"));
  Trainer(options).run(quiet(scratch / "parts", 5));
  // What the first run wrote to its log after the checkpoint must not stay.
  std::ofstream(scratch / "parts" / "log.jsonl", std::ios::app) << "{\"step\":6,\"loss\":1.0}\n{\"st";
  const auto second = Trainer::resume(scratch / "parts");
  EXPECT_EQ(second->steps_done(), 5);
  EXPECT_EQ(second->run(quiet(scratch / "parts", 4)).step, 9);
  Trainer::resume(scratch / "parts")->run(quiet(scratch / "parts"));
  for (const char* file : {"model.safetensors", "training.safetensors", "config.json"}) {
    EXPECT_TRUE(slurp(scratch / "whole" / file) == slurp(scratch / "parts" / file)) << file;
  }
  auto whole = log_of(scratch / "whole"), parts = log_of(scratch / "parts");
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char* key : {"step", "loss", "gradient_norm", "rate"}) EXPECT_EQ(whole[i][key], parts[i][key]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Resume, ::testing::Values(DType::fp32, DType::bf16, DType::fp16));

TEST(Training, BitsDoNotDependOnThreads) {
  const Scratch scratch;
  const TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 6, DType::bf16);
  const int before = omp_get_max_threads();
  for (const int threads : {1, 3}) {
    omp_set_num_threads(threads);
    Trainer(options).run(quiet(scratch / std::to_string(threads)));
  }
  omp_set_num_threads(before);
  for (const char* file : {"model.safetensors", "training.safetensors"}) {
    EXPECT_TRUE(slurp(scratch / "1" / file) == slurp(scratch / "3" / file)) << file;
  }
}

TEST(Training, AccumulationEqualsALargerBatch) {
  const Scratch scratch;
  TrainOptions large = small_run(scratch.write("text.txt", rhyme(9000)), 8, DType::fp64);
  TrainOptions parts = large;
  parts.batch = 2;
  parts.accumulation = 2;
  Trainer a(large), b(parts);
  for (int i = 0; i < 8; ++i) {
    const double expected = a.step().loss;
    EXPECT_NEAR(b.step().loss, expected, 1e-9 * expected) << "step " << i;
  }
}

TEST(Training, TheLogTellsTheMeanLossOfAllPartsOfAStep) {
  const Scratch scratch;
  TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 2, DType::fp64);
  options.batch = 2, options.accumulation = 2;
  const double first = Trainer(options).step().loss;
  Trainer(options).run(quiet(scratch / "out"));
  EXPECT_EQ(log_of(scratch / "out").at(0)["loss"], first);
}

TEST(Training, OptionsComeBackFromACheckpoint) {
  TrainOptions o = small_run("text.txt", 11);
  o.accumulation = 3, o.warmup = 6, o.validate_every = 7;
  o.adamw = {.beta1 = 0.7, .beta2 = 0.8, .eps = 1e-7, .weight_decay = 0.3, .clip_norm = 2.5};
  const Metadata metadata = o.to_metadata();
  const TrainOptions back = TrainOptions::from_metadata(metadata, o.model);
  EXPECT_EQ(back.data, std::filesystem::absolute("text.txt"));
  EXPECT_EQ(back.steps, 11);
  EXPECT_EQ(back.batch, 4);
  EXPECT_EQ(back.seq, 32);
  EXPECT_EQ(back.accumulation, 3);
  EXPECT_EQ(back.rate, 1e-2);
  EXPECT_EQ(back.rate_floor, 1e-3);
  EXPECT_EQ(back.warmup, 6);
  EXPECT_EQ(back.adamw.beta1, 0.7);
  EXPECT_EQ(back.adamw.beta2, 0.8);
  EXPECT_EQ(back.adamw.eps, 1e-7);
  EXPECT_EQ(back.adamw.weight_decay, 0.3);
  EXPECT_EQ(back.adamw.clip_norm, 2.5);
  EXPECT_EQ(back.validation, 0.1);
  EXPECT_EQ(back.validate_every, 7);
  EXPECT_EQ(back.seed, 7U);
  for (const auto& [key, text] : {std::pair{"rate", "1e-2x"}, {"warmup", ""}, {"batch", "0"}}) {
    Metadata damaged = metadata;
    damaged[key] = text;
    expect_error(Status::invalid_argument, [&, m = damaged] { TrainOptions::from_metadata(m, o.model); }, key, text);
  }
}

TEST(Training, OnlyMatricesDecay) {
  const ModelConfig config = small_run("", 1).model;
  Weights weights = make_weights(config, DType::fp32);
  for (const Parameter& p : parameters_of(weights)) {
    EXPECT_EQ(p.decay, p.name.find("norm") == std::string::npos) << p.name;
  }
}

TEST(Training, ValidationIsTheMeanOfAllTokens) {
  const Scratch scratch;
  TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 1, DType::fp64);
  const double loss = Trainer(options).validation_loss();
  options.batch = 3;  // the last batch has fewer rows
  EXPECT_NEAR(Trainer(options).validation_loss(), loss, 1e-12 * loss);
  options.validation = 0;
  Trainer none(options);
  EXPECT_EQ(none.measure().validation, 0);
  EXPECT_TRUE(std::isnan(none.run(quiet(scratch / "out")).validation_loss));
  EXPECT_FALSE(log_of(scratch / "out").at(0).contains("validation_loss"));
}

TEST(Training, ProgressIsToldWhileItValidates) {
  const Scratch scratch;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> told(std::tmpfile(), std::fclose);
  ASSERT_NE(told, nullptr);
  TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 2);
  options.batch = 2;
  RunOptions run = quiet(scratch / "out");
  run.progress = {.out = told.get(), .mode = ProgressOptions::Mode::lines, .line_seconds = 0, .clock = {}};
  Trainer(options).run(run);
  std::rewind(told.get());
  std::string text(1 << 16, ' ');
  text.resize(std::fread(text.data(), 1, text.size(), told.get()));
  EXPECT_NE(text.find("100%  2/2  validating 1/"), std::string::npos) << text;
  const std::size_t last = text.rfind('\n', text.size() - 2);
  EXPECT_NE(text.find("loss", last), std::string::npos) << "the last line is the run's: " << text;
}

TEST(Training, ACheckpointIsSavedWhenItsTimeHasCome) {
  const Scratch scratch;
  RunOptions run = quiet(scratch / "out");
  run.save_seconds = 0;
  std::set<std::int64_t> saved;
  run.interrupted = [&] {
    if (has_training(scratch / "out")) saved.insert(read_training(scratch / "out").step);
    return false;
  };
  Trainer(small_run(scratch.write("text.txt", rhyme(9000)), 4)).run(run);
  EXPECT_EQ(saved, (std::set<std::int64_t>{1, 2, 3}));
}

TEST(Training, MeasuringItsSpeedLeavesNoTrace) {
  const Scratch scratch;
  const TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 3);
  Trainer plain(options), measured(options);
  const Trainer::Speed speed = measured.measure();
  EXPECT_GT(speed.step, 0);
  EXPECT_GT(speed.validation, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plain.step().loss, measured.step().loss);
  expect_error(Status::invalid_argument, [&] { measured.measure(); }, "measure", "got step 3");
  expect_error(Status::invalid_argument, [&] { measured.set_steps(9); }, "steps", "not begun");
  Trainer fresh(options);
  expect_error(Status::invalid_argument, [&] { fresh.set_steps(-1); }, "steps", "got -1");
}

TEST(Training, TheLargestNumbersOfStepsAreNumbers) {
  const Scratch scratch;
  TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 0);
  options.steps = options.most_steps();
  EXPECT_EQ(options.schedule().warmup, options.warmup);
  Trainer long_run(options);
  EXPECT_EQ(long_run.run(quiet(scratch / "out", 1)).step, 1);
  options.steps = 2;
  Trainer run(options);
  run.step();
  EXPECT_EQ(run.run(quiet(scratch / "out", std::numeric_limits<std::int64_t>::max())).step, 2);
}

TEST(Training, AnInterruptLeavesACheckpointThatCanBeResumed) {
  const Scratch scratch;
  const TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 10);
  RunOptions run = quiet(scratch / "out");
  int asked = 0;
  run.interrupted = [&] { return ++asked == 4; };
  const TrainResult result = Trainer(options).run(run);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.step, 4);
  EXPECT_EQ(read_training(scratch / "out").step, 4);
  Trainer::resume(scratch / "out")->run(quiet(scratch / "out"));
  Trainer(options).run(quiet(scratch / "whole"));
  EXPECT_TRUE(slurp(scratch / "out" / "model.safetensors") == slurp(scratch / "whole" / "model.safetensors"));
}

TEST(Training, AnInterruptIsSavedAtOnceWithoutValidatingToTheEnd) {
  const Scratch scratch;
  TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 6);
  options.validate_every = 2;
  Trainer(options).run(quiet(scratch / "whole"));
  // Asked after either step, before each of the seven batches to validate on, behind them, and after the third step.
  for (const int time : {2, 3, 5, 10, 11}) {
    const auto out = scratch / std::to_string(time);
    RunOptions run = quiet(out);
    int asked = 0;
    run.interrupted = [&] { return ++asked == time; };
    const TrainResult result = Trainer(options).run(run);
    EXPECT_TRUE(result.interrupted) << time;
    EXPECT_EQ(asked, time) << "one answer is enough";
    ASSERT_EQ(read_training(out).step, time < 11 ? 2 : 3) << time;
    EXPECT_EQ(std::isnan(result.validation_loss), time != 10) << time;
    EXPECT_EQ(log_of(out).at(1).contains("validation_loss"), time >= 10) << time;
    Trainer::resume(out)->run(quiet(out));
    EXPECT_TRUE(slurp(out / "training.safetensors") == slurp(scratch / "whole" / "training.safetensors")) << time;
  }
  // A run with nothing left to do only validates.
  RunOptions run = quiet(scratch / "whole");
  run.interrupted = [] { return true; };
  const TrainResult result = Trainer::resume(scratch / "whole")->run(run);
  EXPECT_TRUE(result.interrupted && std::isnan(result.validation_loss)) << result.validation_loss;
}

TEST(Training, AnOlderCheckpointStaysUntilAStepIsDone) {
  const Scratch scratch;
  TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 6);
  Trainer(options).run(quiet(scratch / "out"));
  const std::string older = slurp(scratch / "out" / "training.safetensors");
  options.seed = 8;
  RunOptions run = quiet(scratch / "out");
  std::string seen;
  run.interrupted = [&] {
    if (seen.empty()) seen = slurp(scratch / "out" / "training.safetensors");
    return false;
  };
  Trainer(options).run(run);
  EXPECT_TRUE(seen == older);
  EXPECT_EQ(log_of(scratch / "out").size(), 6U);
}

TEST(Training, WithoutStepsTheFirstWeightsAreSaved) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "out");
  scratch.write("out/log.jsonl", "{\"step\":1}\n");
  const TrainResult result = Trainer(small_run(scratch.write("text.txt", rhyme(9000)), 0)).run(quiet(scratch / "out"));
  EXPECT_NEAR(result.validation_loss, std::log(256.0), 0.1);
  EXPECT_EQ(result.step, 0);
  EXPECT_EQ(read_training(scratch / "out").step, 0);
  EXPECT_TRUE(log_of(scratch / "out").empty());
}

TEST(Training, AFullDiskKeepsTheOldCheckpoint) {
  const Scratch scratch;
  const TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 6);
  Trainer(options).run(quiet(scratch / "out", 3));
  const std::string model = slurp(scratch / "out" / "model.safetensors");
  const std::string training = slurp(scratch / "out" / "training.safetensors");
  auto resumed = Trainer::resume(scratch / "out");
  resumed->step();
  {
    const testing::FullDisk full(20000);
    expect_error(Status::io_error, [&] { resumed->save(scratch / "out"); }, "model.safetensors");
  }
  EXPECT_TRUE(slurp(scratch / "out" / "model.safetensors") == model);
  EXPECT_TRUE(slurp(scratch / "out" / "training.safetensors") == training);
  resumed.reset();
  EXPECT_EQ(Trainer::resume(scratch / "out")->steps_done(), 3);
}

TEST(Training, AResumedRunKeepsItsFolderToItselfUntilItEnds) {
  const Scratch scratch;
  Trainer(small_run(scratch.write("text.txt", rhyme(9000)), 6)).run(quiet(scratch / "out", 2));
  const auto first = Trainer::resume(scratch / "out");
  expect_error(Status::io_error, [&] { Trainer::resume(scratch / "out"); }, "another process is writing to");
  EXPECT_EQ(first->run(quiet(scratch / "elsewhere", 1)).step, 3);
  expect_error(Status::io_error, [&] { Trainer::resume(scratch / "out"); }, "another process is writing to");
  EXPECT_EQ(first->run(quiet(scratch / "out", 1)).step, 4);
  EXPECT_EQ(Trainer::resume(scratch / "out")->steps_done(), 4);
}

TEST(Training, ARunThatCannotBeSavedLeavesTheLogOfTheOlderOne) {
  const Scratch scratch;
  TrainOptions options = small_run(scratch.write("text.txt", rhyme(9000)), 6);
  Trainer(options).run(quiet(scratch / "out", 3));
  const std::string log = slurp(scratch / "out" / "log.jsonl");
  options.seed = 8;
  Trainer other(options);
  {
    const testing::FullDisk full(20000);
    expect_error(Status::io_error, [&] { other.run(quiet(scratch / "out")); }, "model.safetensors");
  }
  EXPECT_EQ(slurp(scratch / "out" / "log.jsonl"), log);
  Trainer::resume(scratch / "out")->run(quiet(scratch / "out"));
  EXPECT_EQ(log_of(scratch / "out").size(), 6U);
}

/// A run of three steps done whose log is longer than its other files: a file's largest size can stop it alone.
std::uintmax_t with_a_long_log(const Scratch& scratch, const TrainOptions& options) {
  Trainer(options).run(quiet(scratch / "out", 3));
  const auto log = scratch.write("out/log.jsonl", R"({"step":3,"text":")" + std::string(1 << 20, ' ') + "\"}\n");
  return std::filesystem::file_size(log);
}

TEST(Training, TheFirstLineOfARunIsInTheLogBeforeItsCheckpointIsThere) {
  const Scratch scratch;
  const auto size = with_a_long_log(scratch, small_run(scratch.write("text.txt", rhyme(9000)), 6));
  const auto resumed = Trainer::resume(scratch / "out");
  {
    const testing::FullDisk full(size);
    expect_error(Status::io_error, [&] { resumed->run(quiet(scratch / "out")); }, "log.jsonl", "the line");
  }
  EXPECT_EQ(read_training(scratch / "out").step, 3) << "a run that goes on from there has that line";
}

TEST(Training, ALineThatCannotBeWrittenEndsTheRunWithACheckpoint) {
  const Scratch scratch;
  const auto size = with_a_long_log(scratch, small_run(scratch.write("text.txt", rhyme(9000)), 6));
  const auto resumed = Trainer::resume(scratch / "out");
  {
    const testing::FullDisk full(size + 200);  // one line, not two
    expect_error(Status::io_error, [&] { resumed->run(quiet(scratch / "out")); }, "log.jsonl", "the line");
  }
  EXPECT_EQ(read_training(scratch / "out").step, 5);
  Trainer::resume(scratch / "out")->run(quiet(scratch / "out"));
  EXPECT_EQ(log_of(scratch / "out").back()["step"], 6);
}

TEST(Training, LinesThatNoRunWroteGoFromTheLogOfAResumedOne) {
  const Scratch scratch;
  Trainer(small_run(scratch.write("text.txt", rhyme(9000)), 4)).run(quiet(scratch / "out", 2));
  const std::string log = slurp(scratch / "out" / "log.jsonl");
  scratch.write("out/log.jsonl", "\n[1]\n\"step\"\n{}\n{\"step\":\"1\"}\n{\"step\":null}\n{\"step\":0.5}\n" + log);
  Trainer::resume(scratch / "out")->run(quiet(scratch / "out", 1));
  EXPECT_EQ(slurp(scratch / "out" / "log.jsonl").substr(0, log.size()), log);
  EXPECT_EQ(log_of(scratch / "out").size(), 3U);
}

TEST(TrainingErrors, AFolderThatCannotBeLookedAtIsNamed) {
  const Scratch scratch;
  std::filesystem::create_symlink("loop", scratch / "loop");
  expect_error(Status::io_error, [&] { Trainer::resume(scratch / "loop"); }, "loop", "Too many levels");
  EXPECT_FALSE(find_run(scratch / "loop"));
  const std::string name(300, 'x');
  expect_error(Status::io_error, [&] { Trainer::resume(scratch / name); }, name, "File name too long");
}

TEST(TrainingErrors, ALogThatCannotBeReadIsNotReplaced) {
  const Scratch scratch;
  Trainer(small_run(scratch.write("text.txt", rhyme(9000)), 6)).run(quiet(scratch / "out", 3));
  std::filesystem::remove(scratch / "out" / "log.jsonl");
  std::filesystem::create_directory(scratch / "out" / "log.jsonl");
  const auto resumed = Trainer::resume(scratch / "out");
  expect_error(Status::io_error, [&] { resumed->run(quiet(scratch / "out")); }, "log.jsonl", "regular file");
  EXPECT_EQ(read_training(scratch / "out").step, 3);
}

TEST(TrainingErrors, AStepBehindTheEndOfTheRunIsRefused) {
  const Scratch scratch;
  Trainer(small_run(scratch.write("text.txt", rhyme(9000)), 4)).run(quiet(scratch / "out", 2));
  const auto file = scratch / "out" / "training.safetensors";
  std::string state = slurp(file);
  const std::string two = "\"step\":\"2\"", five = "\"step\":\"5\"";
  ASSERT_NE(state.find(two), std::string::npos);
  state.replace(state.find(two), two.size(), five);
  scratch.write("out/training.safetensors", state);
  expect_error(Status::invalid_argument, [&] { Trainer::resume(scratch / "out"); }, "resume: step", "got 5");
}

TEST(TrainingErrors, AnotherTextThanTheRunBeganWith) {
  const Scratch scratch;
  const auto text = scratch.write("text.txt", rhyme(9000));
  Trainer(small_run(text, 4)).run(quiet(scratch / "out", 2));
  const auto other = scratch.write("other.txt", rhyme(9000) + ".");
  expect_error(
      Status::invalid_argument, [&] { Trainer::resume(scratch / "out", other); }, "other.txt",
      "the text that the run began with");
  std::string end = rhyme(9000);
  end.back() = '!';  // of the part that is held out
  const auto changed = scratch.write("changed.txt", end);
  expect_error(Status::invalid_argument, [&] { Trainer::resume(scratch / "out", changed); }, "changed.txt");
  std::filesystem::rename(text, scratch / "moved.txt");
  expect_error(Status::io_error, [&] { Trainer::resume(scratch / "out"); }, "text.txt");
  EXPECT_EQ(Trainer::resume(scratch / "out", scratch / "moved.txt")->steps_done(), 2);
}

TEST(TrainingErrors, AnotherModelThanTheRunBeganWith) {
  const Scratch scratch;
  Trainer(small_run(scratch.write("text.txt", rhyme(9000)), 4)).run(quiet(scratch / "out", 2));
  const std::string good = slurp(scratch / "out" / "config.json");
  const auto refused = [&](const char* key, const nlohmann::json& value, const std::string& expected) {
    nlohmann::json changed = parse_json(good);
    changed[key] = value;
    scratch.write("out/config.json", changed.dump());
    expect_error(
        Status::invalid_argument, [&] { Trainer::resume(scratch / "out"); },
        std::string("resume: config.json: ") + key + ": expected that of the model that the run began with, ",
        expected + ", got " + value.dump());
  };
  refused("rope_theta", 5e5, "10000.0");
  refused("rms_norm_eps", 1e-3, "");
  refused("torch_dtype", "bfloat16", "\"float32\"");
  refused("max_position_embeddings", 64, "32");
  // A state of an older version does not have the model; no other text is as long as the header says.
  std::string state = slurp(scratch / "out" / "training.safetensors");
  const std::string model = "\"option.model\"";
  ASSERT_NE(state.find(model), std::string::npos);
  scratch.write("out/training.safetensors", state.replace(state.find(model), model.size(), "\"option.other\""));
  EXPECT_EQ(Trainer::resume(scratch / "out")->steps_done(), 2);
}

TEST(TrainingErrors, NameTheOption) {
  const Scratch scratch;
  const auto text = scratch.write("text.txt", rhyme(9000));
  const auto refused = [&](auto change, const char* option, const char* got) {
    TrainOptions options = small_run(text, 4);
    change(options);
    expect_error(Status::invalid_argument, [&] { Trainer trainer(options); }, option, got);
  };
  refused([](TrainOptions& o) { o.steps = -1; }, "steps", "-1");
  refused([](TrainOptions& o) { o.steps = o.most_steps() + 1; }, "steps", "a number from 0 to");
  refused([](TrainOptions& o) { o.batch = 0; }, "batch", "got 0");
  constexpr std::int64_t large = (1 << 20) + 1;
  refused([](TrainOptions& o) { o.batch = large; }, "batch", "got 1048577");
  refused([](TrainOptions& o) { o.seq = 0; }, "train: seq", "got 0");
  refused([](TrainOptions& o) { o.seq = o.model.max_positions = large; }, "train: seq", "2^20");
  refused([](TrainOptions& o) { o.seq = 33; }, "seq", "got 33");
  refused([](TrainOptions& o) { o.accumulation = large; }, "accumulation", "got 1048577");
  refused([](TrainOptions& o) { o.rate = o.rate_floor = 0; }, "rate", "got 0");
  refused([](TrainOptions& o) { o.rate_floor = -1; }, "rate_floor", "got -1");
  refused([](TrainOptions& o) { o.validate_every = -1; }, "validate_every", "got -1");
  refused([](TrainOptions& o) { o.data = "te\xffxt"; }, "data", "UTF-8");
  refused([](TrainOptions& o) { o.accumulation = 0; }, "accumulation", "got 0");
  refused([](TrainOptions& o) { o.rate = NAN; }, "rate", "nan");
  refused([](TrainOptions& o) { o.rate_floor = 1; }, "rate_floor", "got 1");
  refused([](TrainOptions& o) { o.warmup = -2; }, "warmup", "-2");
  refused([](TrainOptions& o) { o.model.vocab = 255; }, "vocab", "255");
  refused([](TrainOptions& o) { o.model.kv_heads = 3; }, "kv_heads", "got 3");
  refused([](TrainOptions& o) { o.model.head_dim = 7; }, "head_dim", "got 7");
  refused([](TrainOptions& o) { o.adamw.clip_norm = -1; }, "clip_norm", "-1");
}

TEST(TrainingErrors, ADamagedTrainingStateIsRefused) {
  const Scratch scratch;
  const auto text = scratch.write("text.txt", rhyme(9000));
  Trainer(small_run(text, 4)).run(quiet(scratch / "out", 2));
  const auto file = scratch / "out" / "training.safetensors";
  const std::string good = slurp(file);
  scratch.write("out/training.safetensors", std::string_view(good).substr(0, good.size() - 1));
  expect_error(Status::invalid_argument, [&] { Trainer::resume(scratch / "out"); }, "training.safetensors");
  std::filesystem::remove(file);
  expect_error(Status::io_error, [&] { Trainer::resume(scratch / "out"); }, "training.safetensors");
  // The same number of bytes, so that the header's length holds.
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = good;
    changed.replace(changed.find(from), from.size(), to);
    scratch.write("out/training.safetensors", changed);
  };
  with("\"seed\":\"7\"", "\"seed\":\"8\"");
  expect_error(Status::invalid_argument, [&] { Trainer::resume(scratch / "out"); }, "seed", "got 8");
  scratch.write("out/training.safetensors", good);
  const auto config = scratch / "out" / "config.json";
  nlohmann::json lies = parse_json(slurp(config));
  lies["vocab_size"] = 2'000'000'000;  // more memory than there is
  scratch.write("out/config.json", lies.dump());
  expect_error(Status::invalid_argument, [&] { Trainer::resume(scratch / "out"); }, "config.json", "a vocabulary of");
}

TEST(Comparison, LossesOfFusedAndUnfusedStayTogether) {
  const Scratch scratch;
  CompareOptions compare{small_run(scratch.write("text.txt", rhyme(20000)), 100), 20, 0, {}};
  compare.train.rate = 2e-3;
  compare.progress.mode = ProgressOptions::Mode::off;
  const auto begin = std::chrono::steady_clock::now();
  const Comparison result = compare_with_unfused(compare);
  double measured = 0;
  ASSERT_EQ(result.rows.size(), 2U);
  EXPECT_EQ(result.steps, 100);
  EXPECT_TRUE(result.rows[0].largest_difference() <= 1e-4) << result.rows[0].largest_difference();
  EXPECT_TRUE(result.rows[1].largest_part() <= 1e-2) << result.rows[1].largest_part();
  for (const auto& row : result.rows) {
    EXPECT_EQ(row.steps(), 20);
    EXPECT_EQ(row.unfused.losses.size(), 20U);
    EXPECT_LT(row.fused.bytes_moved, row.unfused.bytes_moved);
    EXPECT_LT(row.fused.bytes_held, row.unfused.bytes_held);
    EXPECT_GT(row.fused.bytes_held, 0);
    EXPECT_GT(row.fused.bytes_moved, row.fused.bytes_held) << "what is held is written, and read at least once";
    measured += 20 * (row.fused.milliseconds + row.unfused.milliseconds) / 1000;
  }
  // At least half of the steps took the median or longer; what comes besides is no hundred times the steps.
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_LT(measured, 2 * seconds);
  EXPECT_GT(measured, seconds / 100);
  EXPECT_NE(format_table(result).find("largest difference"), std::string::npos);
  EXPECT_NE(format_table(result).find("fp32, the first 20 of 100 steps"), std::string::npos) << format_table(result);
  const auto json = parse_json(format_json(result));
  EXPECT_EQ(json["fp32"]["fused"]["losses"].size(), 20U);
  EXPECT_EQ(json["bf16"]["steps"], 20);
}

TEST(Comparison, TakesNoMoreStepsThanTheRunHas) {
  const Scratch scratch;
  const TrainOptions run = small_run(scratch.write("text.txt", rhyme(9000)), 10);
  for (const std::int64_t steps : {0, 11}) {
    expect_error(
        Status::invalid_argument, [&] { compare_with_unfused({.train = run, .steps = steps, .progress = {}}); },
        "compare: steps: expected a number from 1 to the run's 10", "got " + std::to_string(steps));
  }
}

TEST(Comparison, IsOfTheStepsAndTypesThatItIsAskedFor) {
  const Scratch scratch;
  CompareOptions compare{small_run(scratch.write("text.txt", rhyme(9000)), 0, DType::fp16), 2, 1e-6, {}};
  compare.progress.mode = ProgressOptions::Mode::off;
  EXPECT_EQ(compare.checked().steps, 2) << "as many as are compared";
  const Comparison result = compare_with_unfused(compare);
  ASSERT_EQ(result.rows.size(), 2U);
  EXPECT_EQ(result.steps, 2);
  EXPECT_EQ(result.rows[1].dtype, DType::fp32);
  EXPECT_EQ(result.rows[1].steps(), 2) << "no more than of the first, however little time is left";
  compare.train.batch = 0;
  expect_error(Status::invalid_argument, [&] { compare.checked(); }, "train: batch", "got 0");
}

/// Two of three steps, of which the first was the worst.
Comparison comparison() {
  const Measured fused{12.5, 3'000'000, 1'300'000, {6, 5}}, unfused{25, 6'000'000, 2'600'000, {8, 4.5}};
  return {.steps = 3, .tokens_per_step = 128, .rows = {{DType::bf16, fused, unfused}}};
}

TEST(Comparison, ItsTableHasEachNumberInItsPlace) {
  EXPECT_EQ(format_table(comparison()),
            R"(fused against unfused, from the same weights on the same batches of 128 tokens

bf16, the first 2 of 3 steps               fused   unfused fused / unfused
  time of a step, ms                        12.5      25.0            0.50
  activations moved, MB                      3.0       6.0            0.50
  activations held, MB                       1.3       2.6            0.50
  loss of the last step, nats             5.0000    4.5000            1.11
  largest difference over the steps     2.00e+00  (25.0000 %)
)");
}

TEST(Comparison, ItsJsonHasEachNumberInItsPlace) {
  const auto json = parse_json(format_json(comparison()));
  const nlohmann::json expected = {
      {"steps", 3},
      {"tokens_per_step", 128},
      {"bf16",
       {{"steps", 2},
        {"fused",
         {{"milliseconds", 12.5}, {"bytes_moved", 3'000'000}, {"bytes_held", 1'300'000}, {"losses", {6., 5.}}}},
        {"unfused",
         {{"milliseconds", 25.}, {"bytes_moved", 6'000'000}, {"bytes_held", 2'600'000}, {"losses", {8., 4.5}}}},
        {"largest_difference", 2.},
        {"largest_part", 0.25}}}};
  EXPECT_EQ(json, expected);
}

TEST(Comparison, ALossThatIsNotFiniteIsNotForgotten) {
  Comparison::Row row{DType::fp16, {}, {}};
  row.fused.losses = {5, NAN, 3};
  row.unfused.losses = {5.5, 4, 3};
  EXPECT_TRUE(std::isnan(row.largest_difference()));
  EXPECT_TRUE(std::isnan(row.largest_part()));
  row.fused.losses[1] = 2;
  EXPECT_EQ(row.largest_difference(), 2);
  EXPECT_EQ(row.largest_part(), 0.5);
}

TEST(Comparison, IsOfTheRunThatTheTrainerMakes) {
  const Scratch scratch;
  CompareOptions compare{small_run(scratch.write("text.txt", rhyme(20000)), 12, DType::bf16), 12, 1e-6, {}};
  compare.train.accumulation = 2;
  compare.progress.mode = ProgressOptions::Mode::off;
  const Comparison result = compare_with_unfused(compare);
  ASSERT_EQ(result.rows.size(), 2U);
  EXPECT_EQ(result.rows[0].dtype, DType::bf16);
  Trainer trainer(compare.train);
  for (const double loss : result.rows[0].fused.losses) {
    ASSERT_EQ(trainer.step().loss, loss) << "step " << trainer.steps_done();
  }
  EXPECT_EQ(trainer.steps_done(), 12);
  EXPECT_NE(format_table(result).find("bf16, all 12 steps of the run"), std::string::npos) << format_table(result);
  // No time is left for the second type: it gets the least that says anything.
  EXPECT_EQ(result.rows[1].dtype, DType::fp32);
  EXPECT_EQ(result.rows[1].steps(), 5);
}

}  // namespace
}  // namespace coda::nn
