// `coda train`: a byte-level language model on a text file, through the programs.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "coda/cli/arguments.h"
#include "coda/cli/commands.h"
#include "coda/cli/interrupt.h"
#include "coda/cli/result_file.h"
#include "coda/cli/threads.h"
#include "coda/core/error.h"
#include "coda/core/file.h"
#include "coda/nn/compare.h"
#include "coda/nn/progress.h"
#include "coda/nn/trainer.h"

namespace coda::cli {
namespace {

struct Arguments {
  nn::TrainOptions train;
  nn::RunOptions run;
  std::string dtype = "bf16";
  double minutes = 0;
  std::int64_t compare = 0;
  int threads = 0;
  bool resume = false, overwrite = false, json = false, quiet = false;
};

/// As a shell takes it for one word.
std::string quoted(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || std::string_view("/._-+=:@%,").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

nlohmann::ordered_json number(double x) { return std::isfinite(x) ? nlohmann::ordered_json(x) : nullptr; }

/// Fits the run into the minutes that are given, by the speed that the first steps show. `most`: of steps; 0: no limit.
void choose_steps(nn::Trainer& trainer, double minutes, std::int64_t most, bool quiet) {
  const nn::Trainer::Speed speed = trainer.measure();
  const auto every = static_cast<double>(trainer.options().validate_every);
  const double a_step = speed.step + (every > 0 ? speed.validation / every : 0);
  // One part in fifty is kept for checkpoints.
  const double left = 0.98 * 60 * minutes - speed.validation;
  const std::int64_t limit = most > 0 ? most : trainer.options().most_steps();
  const std::int64_t steps = nn::steps_that_fit(left, a_step, std::min<std::int64_t>(10, limit), limit);
  trainer.set_steps(steps);
  if (!quiet) {
    const double seconds = static_cast<double>(steps) * a_step + speed.validation;
    nn::tell(stderr, fmt::format("{:.0f} ms a step: {} steps of {} tokens in {}\n", 1000 * speed.step, steps,
                                 trainer.options().tokens_per_step(), nn::format_duration(seconds)));
  }
}

void describe(const nn::TrainOptions& o) {
  nn::tell(
      stderr,
      fmt::format("{:.2f} M parameters in {}: {} layers of {} ({} query and {} key heads of {}), feed-forward {}\n",
                  static_cast<double>(o.model.parameters()) / 1e6, name_of(o.model.dtype), o.model.layers,
                  o.model.hidden, o.model.heads, o.model.kv_heads, o.model.head_dim, o.model.ffn));
}

void print_json(const nn::TrainResult& result, const std::string& out) {
  const nlohmann::ordered_json json{{"checkpoint", out},
                                    {"step", result.step},
                                    {"steps", result.steps},
                                    {"loss", number(result.loss)},
                                    {"validation_loss", number(result.validation_loss)},
                                    {"skipped_steps", result.skipped},
                                    {"tokens_per_second", std::round(result.tokens_per_second)},
                                    {"seconds", result.seconds},
                                    {"interrupted", result.interrupted}};
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));  // paths are bytes
}

/// A model that has diverged has no finite loss: on the text to validate on, which the saved model saw, or else on the
/// last batch, which it saw before the last update. Or it no longer learns, since its gradient is not finite.
void require_finite(const nn::TrainResult& result, bool trained, bool validates) {
  const auto require = [&](const char* what, double got) {
    if (std::isfinite(got)) return;
    throw Error(Status::invalid_argument,
                fmt::format("train: {}: expected a finite one, got {} at step {}; a lower --lr may help", what, got,
                            result.step));
  };
  if (validates) require("validation loss", result.validation_loss);
  else if (trained) require("loss", result.loss);
  if (trained) require("gradient", result.gradient_norm);
}

/// A forgotten --resume must not cost the run that it was meant for.
void require_no_unfinished_run(const std::filesystem::path& out) {
  const auto run = nn::find_run(out);
  if (!run || run->step >= run->steps) return;
  throw Error(
      Status::invalid_argument,
      fmt::format("train: --out: expected a folder without an unfinished run (step {} of {}), got {}: go on with "
                  "--resume, or give --overwrite",
                  run->step, run->steps, out.string()));
}

void train(Arguments& args) {
  std::unique_ptr<nn::Trainer> trainer =
      args.resume ? nn::Trainer::resume(args.run.out, args.train.data) : std::make_unique<nn::Trainer>(args.train);
  const CatchInterrupt signals;   // from here on, measuring included, Ctrl-C leaves a checkpoint
  std::signal(SIGPIPE, SIG_IGN);  // also when it has ended the `tee` that we tell our progress
  if (!args.quiet) describe(trainer->options());
  if (!args.resume && args.minutes > 0) choose_steps(*trainer, args.minutes, args.train.steps, args.quiet);
  args.run.interrupted = CatchInterrupt::seen;
  const std::int64_t before = trainer->steps_done();
  const bool validates = trainer->options().validation > 0;
  const nn::TrainResult result = trainer->run(args.run);
  if (args.json) {
    print_json(result, args.run.out.string());
  } else {
    const std::string trained =
        result.step == before ? "nothing was left to do" : fmt::format("loss {:.4f}", result.loss);
    const std::string validated = std::isnan(result.validation_loss)
                                      ? ""
                                      : fmt::format("validation loss {:.4f} nats per byte, ", result.validation_loss);
    const std::string skipped =
        result.skipped > 0 ? fmt::format("{} steps changed nothing (gradient not finite), ", result.skipped) : "";
    fmt::print("step {} of {}: {}, {}{}{:.0f} tokens/s, {}; checkpoint in {}\n", result.step, result.steps, trained,
               validated, skipped, result.tokens_per_second, nn::format_duration(result.seconds),
               args.run.out.string());
  }
  std::fflush(stdout);
  if (result.interrupted) {
    nn::tell(stderr,
             fmt::format("interrupted; go on with: coda train --resume --out {}\n", quoted(args.run.out.string())));
    CatchInterrupt::end_process();
  }
  require_finite(result, result.step > before, validates);
}

/// What is wrong with a field of the options, by the option that it is from.
UsageError by_option(const Error& error, bool derived_head_dim) {
  const std::string what = error.what();  // who: field: expected ..., got ...
  const std::size_t end = what.find(": ", what.find(": ") + 2);
  const std::string field = what.substr(0, end);
  const auto is = [&](const char* name) { return field == name; };
  std::string option = "--" + field.substr(field.find(": ") + 2);
  std::replace(option.begin(), option.end(), '_', '-');
  if (is("train: rate")) option = "--lr";
  if (is("train: rate_floor")) option = "--lr-floor";
  if (is("compare: steps")) option = "--compare-unfused";
  if (is("model config: max_positions")) option = "--seq";
  if (is("model config: head_dim") && derived_head_dim) option = "--hidden / --heads";
  return UsageError(option, what.substr(end + 2));
}

void run(Arguments args) {
  set_threads(args.threads);
  if (args.quiet) args.run.progress.mode = nn::ProgressOptions::Mode::off;
  args.train.model.dtype = parse_dtype(args.dtype);
  const bool derived_head_dim = args.train.model.head_dim == 0 && args.train.model.heads > 0;
  if (derived_head_dim) {
    args.train.model.head_dim = args.train.model.hidden / args.train.model.heads;
  }
  args.train.model.max_positions = args.train.seq;
  if (args.train.rate_floor == -1) args.train.rate_floor = args.train.rate / 10;
  const nn::CompareOptions comparison{
      .train = args.train, .steps = args.compare, .minutes = args.minutes, .progress = args.run.progress};
  if (!args.resume) {
    try {
      if (args.compare > 0) comparison.checked();
      else args.train.check();
    } catch (const Error& error) {
      throw by_option(error, derived_head_dim);
    }
  }
  if (args.compare > 0) {
    if (args.train.data.empty()) throw UsageError::missing("--data");
    const std::filesystem::path out = args.run.out / "comparison.json";
    if (!args.run.out.empty()) require_writable(out, "--out");
    const nn::Comparison result = nn::compare_with_unfused(comparison);
    if (!args.run.out.empty()) {
      AtomicFile file(out);
      file.write(nn::format_json(result) + "\n");
      file.commit();
    }
    fmt::print("{}", args.json ? nn::format_json(result) + "\n" : nn::format_table(result));
    return;
  }
  if (args.run.out.empty()) throw UsageError::missing("--out");
  if (!args.resume) {
    if (args.train.data.empty()) throw UsageError::missing("--data");
    if (args.train.steps == 0 && args.minutes == 0) {
      throw UsageError("--steps", "expected --steps or --minutes, or both");
    }
    if (!args.overwrite) require_no_unfinished_run(args.run.out);
  }
  train(args);
}

}  // namespace

void add_train(CLI::App& app) {
  Command command(app, "train", "Train a LLaMA-style byte model on a text file");
  auto args = std::make_shared<Arguments>();
  nn::TrainOptions& t = args->train;
  t.model.head_dim = 0;
  t.rate_floor = -1;
  std::vector<Option> fixed;  // what a resumed run takes from its checkpoint
  const auto fix = [&](const Option& option) { return fixed.emplace_back(option.group("Model and training")); };
  const auto option = [&](const char* name, auto& value, const std::string& help) {
    using Value = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_integral_v<Value>) return fix(command.whole(name, value, help).shows_default());
    else return fix(command.option(name, value, help).shows_default());
  };
  command.option("--data", t.data, "Text file; its bytes are the tokens");
  command.option("--out", args->run.out, "Folder for the checkpoint and log.jsonl");
  const Option resume =
      command.flag("--resume", args->resume,
                   "Continue the run in --out, bitwise as if it had never stopped; model and training "
                   "options come from there");
  const Option overwrite =
      command.flag("--overwrite", args->overwrite, "Let a new run replace an unfinished one in --out").excludes(resume);
  option("--steps", t.steps, "Optimiser steps of the whole run, which the schedule spans");
  option("--minutes", args->minutes,
         "Choose --steps, at most those given, so that the run takes about this long here; the number is then fixed "
         "and stored")
      .at_least(0);
  option("--layers", t.model.layers, "Layers");
  option("--hidden", t.model.hidden, "Width of the residual stream");
  option("--heads", t.model.heads, "Query heads");
  option("--kv-heads", t.model.kv_heads, "Key and value heads, a divisor of --heads");
  option("--head-dim", t.model.head_dim, "Width of a head; 0: hidden / heads");
  option("--ffn", t.model.ffn, "Width of the feed-forward");
  option("--dtype", args->dtype, "bf16, fp16, fp32 or fp64; the master weights are fp32 (fp64) always");
  fix(command.flag("--qk-norm", t.model.qk_norm, "Norm each query and key head, as Qwen3 does"));
  fix(command.flag("--tied", t.model.tied_embeddings, "Use the embedding matrix as the head too"));
  option("--batch", t.batch, "Sequences of a batch");
  option("--seq", t.seq, "Tokens of a sequence");
  option("--accumulation", t.accumulation, "Batches whose gradients make one step");
  option("--lr", t.rate, "Peak learning rate");
  option("--lr-floor", t.rate_floor, "Learning rate at the end of the cosine; -1: a tenth of --lr");
  option("--warmup", t.warmup, "Steps of linear warm-up, at most a quarter of the run");
  option("--weight-decay", t.adamw.weight_decay, "AdamW's, on matrices only");
  option("--clip", t.adamw.clip_norm, "Largest norm of the gradient; 0: no limit").at_least(0);
  option("--validation", t.validation, "Part of the text, from its end, to validate on");
  option("--validate-every", t.validate_every, "Steps between validations; 0: only at the end");
  option("--seed", t.seed, "Of the weights and the order of the data");
  for (const Option& o : fixed) o.excludes(resume);
  const Option stop = command.whole("--stop-after", args->run.stop_after,
                                    "Stop after this many steps, to be resumed; 0: go to the end");
  const Option save =
      command.option("--save-seconds", args->run.save_seconds, "Time between checkpoints").at_least(0).shows_default();
  command
      .whole<std::int64_t>(
          "--compare-unfused", args->compare,
          "Keep no model; run this many steps with the programs and with the same maths as separate passes, in --dtype "
          "and in fp32 (or bf16; fewer steps of this second type if --minutes is given and is less), print how they "
          "compare, and leave comparison.json in --out if that is given",
          1)
      .excludes(resume)
      .excludes(overwrite)
      .excludes(stop)
      .excludes(save);
  add_threads(command, args->threads);
  command.flag("--quiet", args->quiet, "No progress");
  command.flag("--json", args->json, "The result as one JSON object");
  command.footer(
      "Examples:\n"
      "  coda train --data book.txt --out run --minutes 3\n"
      "  coda train --data book.txt --out run --steps 500 --layers 6 --hidden 384 --heads 6 --kv-heads 2 --ffn 1024\n"
      "  coda train --resume --out run\n"
      "Ctrl-C, SIGTERM or a closed terminal leaves a checkpoint that --resume goes on from.\n"
      "Beside other work on the same cores, GOMP_SPINCOUNT=10000 in the environment makes it several times as fast.");
  command.runs([args] { run(*args); });
}

}  // namespace coda::cli
