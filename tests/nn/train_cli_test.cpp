// `coda train` and `coda generate` as a user calls them: exit status, messages, files.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "coda/core/json.h"
#include "coda/nn/checkpoint.h"
#include "coda/nn/config.h"
#include "tests/nn/scratch.h"

namespace coda {
namespace {

using testing::Scratch;
using testing::slurp;

std::string text(std::size_t bytes) {
  std::string out;
  for (int i = 0; out.size() < bytes; ++i) out += "Line " + std::to_string(i * 7 % 31) + " of a short poem.\n";
  return out;
}

/// As one word of a shell's.
std::string quoted(std::string word) {
  for (std::size_t i = 0; (i = word.find('\'', i)) != std::string::npos; i += 4) word.replace(i, 1, R"('\'')");
  return '\'' + word + '\'';
}
const std::string kCoda = quoted(CODA_CLI_PATH);

struct Result {
  int status;
  std::string out, error;
};

class TrainCommand : public ::testing::Test {
 protected:
  Result coda(const std::string& arguments, const std::string& before = "") {
    const std::string command = before + kCoda + ' ' + arguments + " >" + word("stdout") + " 2>" + word("stderr");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), slurp(scratch / "stdout"),
            slurp(scratch / "stderr")};
  }
  void expect_failure(int status, const std::string& arguments, std::initializer_list<const char*> words) {
    const Result r = coda(arguments);
    EXPECT_EQ(r.status, status) << arguments << '\n' << r.error;
    for (const char* word : words) {
      EXPECT_NE(r.error.find(word), std::string::npos) << "'" << word << "' is not in: " << r.error;
    }
  }
  std::string model() const {
    return " --layers 2 --hidden 32 --heads 4 --kv-heads 2 --ffn 48 --batch 4 --seq 32 --dtype fp32 --quiet ";
  }
  std::string path(const std::string& name) const { return (scratch / name).string(); }
  std::string word(const std::string& name) const { return quoted(path(name)); }
  std::string data() {
    if (!std::filesystem::exists(scratch / "text.txt")) scratch.write("text.txt", text(9000));
    return " --data " + word("text.txt");
  }

  Scratch scratch;
};

TEST_F(TrainCommand, TrainsStopsResumesAndGenerates) {
  Result r = coda("train" + data() + model() + "--steps 8 --json --out " + word("whole"));
  ASSERT_EQ(r.status, 0) << r.error;
  const auto json = parse_json(r.out);
  EXPECT_EQ(json["step"], 8);
  EXPECT_GT(json["validation_loss"].get<double>(), 0);
  r = coda("train" + data() + model() + "--steps 8 --stop-after 3 --out " + word("parts"));
  ASSERT_EQ(r.status, 0) << r.error;
  EXPECT_NE(r.out.find("step 3 of 8"), std::string::npos) << r.out;
  ASSERT_EQ(coda("train --resume --quiet --threads 1 --out " + word("parts")).status, 0);
  EXPECT_TRUE(slurp(scratch / "whole" / "model.safetensors") == slurp(scratch / "parts" / "model.safetensors"));
  r = coda("train --resume --quiet --out " + word("parts"));
  EXPECT_NE(r.out.find("step 8 of 8: nothing was left to do, validation loss "), std::string::npos) << r.out;

  r = coda("generate " + word("whole") + " --prompt 'Line' --tokens 40 --seed 3");
  ASSERT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(r.out.substr(0, 4), "Line");
  EXPECT_EQ(r.out.size(), 45U);
  EXPECT_EQ(coda("generate " + word("whole") + " --prompt 'Line' --tokens 40 --seed 3").out, r.out);
  EXPECT_NE(coda("generate " + word("whole") + " --prompt 'Line' --tokens 40 --seed 4").out, r.out);
  r = coda("generate --ids 1,2,3 " + word("whole") + " --tokens 5 --temperature 0 --json");
  ASSERT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(parse_json(r.out)["tokens"].size(), 5U);
}

TEST_F(TrainCommand, ThatDivergedSaysSoInTheEnd) {
  const std::string run = "train" + data() + model() + "--steps 6 --warmup 0 --json --out " + word("out");
  const Result r = coda(run + " --lr 1e30");
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.error.find("train: validation loss: expected a finite one, got"), std::string::npos) << r.error;
  EXPECT_EQ(parse_json(r.out)["step"], 6) << "the checkpoint is there to be looked at";
  EXPECT_EQ(coda("train --resume --quiet --out " + word("out")).status, 1) << "nothing was left to do, it is as it was";
  EXPECT_EQ(coda("train" + data() + model() + "--steps 1 --warmup 0 --lr 1e30 --out " + word("last")).status, 1)
      << "the last step's loss is finite, and what it made of the model is not";
  EXPECT_EQ(coda(run + " --validation 0").status, 0) << "there is no loss to validate by";
  EXPECT_EQ(coda("train --resume --quiet --out " + word("out")).status, 0) << "nothing was left to do";
}

TEST_F(TrainCommand, StepsThatChangedNothingAreCountedAndTheLastOfThemIsAFailure) {
  const std::string run = "train" + data() +
                          " --layers 2 --hidden 32 --heads 4 --kv-heads 2 --ffn 48 --batch 4 --seq 32 --dtype fp16 "
                          "--quiet --lr 0.5 --warmup 5 --validation 0 --steps 20 ";
  Result r = coda(run + "--json --stop-after 18 --out " + word("out"));
  const auto first = parse_json(r.out);
  r = coda("train --resume --quiet --json --out " + word("out"));
  std::vector<std::int64_t> skipped;
  std::istringstream log(slurp(scratch / "out" / "log.jsonl"));
  for (std::string line; std::getline(log, line);) {
    const auto step = parse_json(line);
    if (step["gradient_norm"].is_null()) skipped.push_back(step["step"].get<std::int64_t>());
  }
  ASSERT_GT(skipped.size(), 5U) << "a rate for which fp16 has no range";
  ASSERT_EQ(skipped.back(), 20);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.error.find(": expected a finite one, got "), std::string::npos) << r.error;
  EXPECT_EQ(parse_json(r.out)["skipped_steps"], skipped.size()) << "of the whole run";
  EXPECT_EQ(first["skipped_steps"], std::count_if(skipped.begin(), skipped.end(), [](auto s) { return s <= 18; }));
  r = coda("train --resume --quiet --out " + word("out"));
  EXPECT_EQ(r.status, 0) << "nothing was left to do";
  EXPECT_NE(r.out.find(std::to_string(skipped.size()) + " steps changed nothing"), std::string::npos) << r.out;
}

TEST_F(TrainCommand, ChoosesItsStepsByTheTimeThatIsGiven) {
  const Result r = coda("train" + data() + model() + "--minutes 0.02 --json --out " + word("out"));
  ASSERT_EQ(r.status, 0) << r.error;
  const auto json = parse_json(r.out);
  EXPECT_GE(json["steps"].get<int>(), 10);
  EXPECT_EQ(json["step"], json["steps"]);
  EXPECT_EQ(nn::read_training(scratch / "out").options.at("steps"), std::to_string(json["steps"].get<int>()));
}

TEST_F(TrainCommand, OptionsOfTheModelAndOfTheOptimiserAreWhatTheRunHas) {
  const Result r = coda("train" + data() + model() +
                        "--steps 2 --warmup 0 --tied --clip 0.25 --weight-decay 0.5 --out " + word("out"));
  ASSERT_EQ(r.status, 0) << r.error;
  EXPECT_TRUE(nn::read_config(scratch / "out" / "config.json").tied_embeddings);
  const nn::TrainingState state = nn::read_training(scratch / "out");
  EXPECT_EQ(std::stod(state.options.at("clip_norm")), 0.25);
  EXPECT_EQ(std::stod(state.options.at("weight_decay")), 0.5);
  ASSERT_EQ(coda("train" + data() + model() + "--steps 2 --warmup 0 --out " + word("plain")).status, 0);
  EXPECT_FALSE(nn::read_config(scratch / "plain" / "config.json").tied_embeddings);
}

TEST_F(TrainCommand, ComparesWithTheUnfusedModel) {
  const Result r = coda("train" + data() + model() + "--compare-unfused 6 --json");
  ASSERT_EQ(r.status, 0) << r.error;
  const auto json = parse_json(r.out);
  EXPECT_EQ(json["steps"], 6);
  EXPECT_LE(json["fp32"]["largest_difference"].get<double>(), 1e-3);
  EXPECT_LE(json["bf16"]["largest_part"].get<double>(), 1e-2);
  EXPECT_NE(coda("train" + data() + model() + "--compare-unfused 6").out.find("fused / unfused"), std::string::npos);
}

/// `coda` in a process of its own, to be sent signals.
class Child {
 public:
  Child(std::vector<std::string> words, const std::filesystem::path& error, void (*handler)(int) = SIG_DFL,
        const std::filesystem::path& out = "/dev/null") {
    words.insert(words.begin(), CODA_CLI_PATH);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ != 0) return;
    for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, handler);
    if (std::freopen(out.c_str(), "w", stdout) == nullptr || std::freopen(error.c_str(), "w", stderr) == nullptr) {
      ::_exit(126);
    }
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  /// Half a minute at most.
  static void wait_for(const std::filesystem::path& file, std::size_t bytes) {
    for (int i = 0; i < 3000 && slurp(file).size() < bytes; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void send(int signal) const { ::kill(pid_, signal); }
  /// Sends the signal once the file is that long; what the process ended with.
  int after(const std::filesystem::path& file, std::size_t bytes, int signal) const {
    wait_for(file, bytes);
    send(signal);
    int status = -1;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    return status;
  }

 private:
  pid_t pid_ = -1;
};

class TrainSignals : public TrainCommand {
 protected:
  std::vector<std::string> words(const std::vector<std::string>& more) {
    data();
    std::vector<std::string> all{"train",
                                 "--data",
                                 path("text.txt"),
                                 "--out",
                                 path("out"),
                                 "--layers",
                                 "1",
                                 "--hidden",
                                 "32",
                                 "--heads",
                                 "2",
                                 "--kv-heads",
                                 "1",
                                 "--ffn",
                                 "32",
                                 "--seq",
                                 "32",
                                 "--batch",
                                 "2",
                                 "--validate-every",
                                 "0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(TrainSignals, ControlCLeavesACheckpointAndEndsAsASignalDoes) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Child child(words({"--quiet", "--steps", "1000000"}), path("error"), SIG_DFL, path("printed"));
    const int status = child.after(path("out/log.jsonl"), 200, signal);  // some steps are done
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << status;
    EXPECT_EQ(slurp(path("printed")).find("validation"), std::string::npos) << "it takes long, and would be lost";
    EXPECT_GT(nn::read_training(path("out")).step, 0);
    EXPECT_EQ(coda("train --resume --quiet --stop-after 2 --out " + word("out")).status, 0);
    EXPECT_EQ(coda("generate --tokens 3 " + word("out")).status, 0);
    std::filesystem::remove_all(path("out"));
  }
}

TEST_F(TrainSignals, ARunKeepsItsFolderToItselfUntilItEnds) {
  const Child child(words({"--quiet", "--steps", "1000000"}), path("error"));
  Child::wait_for(path("out/log.jsonl"), 200);
  for (const std::string& run :
       {"train" + data() + model() + "--overwrite --steps 2", std::string("train --resume --quiet")}) {
    expect_failure(1, run + " --out " + word("out"), {"write: ", path("out").c_str(), "another process is writing to"});
  }
  child.after(path("out/log.jsonl"), 200, SIGKILL);
  const Result after = coda("train --resume --quiet --stop-after 1 --out " + word("out"));
  EXPECT_EQ(after.status, 0) << "a killed run holds nothing: " << after.error;
}

TEST_F(TrainSignals, ControlCWhileTheSpeedIsMeasuredLeavesACheckpoint) {
  const Child child(words({"--minutes", "1000", "--accumulation", "30"}), path("error"));
  const int status = child.after(path("error"), 10, SIGINT);  // the model is described, the first step not done
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_GE(nn::read_training(path("out")).step, 1);
}

TEST_F(TrainSignals, ControlCLeavesACheckpointAlsoWhereItEndsTheReaderOfTheProgress) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);  // this process alone reads
  const Child child(words({"--steps", "1000000"}), "/dev/fd/" + std::to_string(ends[1]));
  ::close(ends[1]);
  Child::wait_for(path("out/log.jsonl"), 2000);
  ::close(ends[0]);
  const int status = child.after(path("out/log.jsonl"), 200, SIGINT);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << status;
  EXPECT_GT(nn::read_training(path("out")).step, 1);  // the first step's is written at once
}

TEST_F(TrainCommand, ProgressThatCannotBeWrittenEndsNoRun) {
  const std::string loud = "train" + data() + " --layers 1 --hidden 32 --ffn 32 --batch 2 --seq 32 --steps 20 --out ";
  for (const char* where : {"/dev/full", "&-"}) {
    const std::string out = path("out" + std::to_string(where[0]));
    const std::string command = kCoda + ' ' + loud + quoted(out) + " >/dev/null 2>" + where;
    EXPECT_EQ(std::system(command.c_str()), 0) << where;
    EXPECT_EQ(nn::read_training(out).step, 20) << where;
    std::istringstream log(slurp(out + "/log.jsonl"));  // nor does it go into a file of the run's
    for (std::string line; std::getline(log, line);) EXPECT_FALSE(parse_json(line).is_discarded()) << line;
    const int failed = std::system((kCoda + " generate nowhere 2>" + where).c_str());
    EXPECT_EQ(WEXITSTATUS(failed), 1) << where;
  }
}

TEST_F(TrainSignals, TheFirstProcessOfAContainerFailsToo) {
  const std::string contained = "unshare --user --fork --pid ";
  if (std::system((contained + "true 2>/dev/null").c_str()) != 0) GTEST_SKIP() << "no namespaces here";
  // SIGTERM for the whole group after two seconds; `unshare` itself ignores it.
  const Result r = coda("train" + data() + model() + "--steps 100000000 --validate-every 0 --out " + word("out"),
                        "timeout --preserve-status -k 60 2 " + contained);
  EXPECT_EQ(r.status, 128 + SIGTERM) << r.error;
  EXPECT_GT(nn::read_training(path("out")).step, 1);
}

TEST_F(TrainSignals, AnIgnoredControlCStaysIgnored) {
  for (const int signal : {SIGINT, SIGHUP}) {
    const Child child(words({"--quiet", "--steps", "100"}), path("error"), SIG_IGN);
    EXPECT_EQ(child.after(path("out/log.jsonl"), 200, signal), 0) << slurp(path("error"));
    EXPECT_EQ(nn::read_training(path("out")).step, 100);
    std::filesystem::remove_all(path("out"));
  }
}

TEST_F(TrainSignals, AClosedTerminalThatHangsUpTwiceLeavesACheckpoint) {
  const Child child(words({"--quiet", "--steps", "1000000", "--accumulation", "300"}), path("error"));
  Child::wait_for(path("out/log.jsonl"), 200);
  child.send(SIGHUP);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the step is not done, and two at once would be one
  const int status = child.after(path("out/log.jsonl"), 200, SIGHUP);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGHUP) << status;
  EXPECT_GT(nn::read_training(path("out")).step, 1);  // the first step's is written at once
}

TEST_F(TrainCommand, AComparisonThatCannotBeWrittenIsNotMade) {
  const std::string compare = "train" + data() + model() + "--json --compare-unfused ";
  expect_failure(1, compare + "2 --out " + word("text.txt"), {"--out: expected a file to write", "text.txt"});
  expect_failure(1, compare + "2 --out " + word(std::string(300, 'x')), {"--out: expected a file to write"});
  const Result r = coda(compare + "2 --out " + word("out"));
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(slurp(scratch / "out" / "comparison.json"), r.out);
}

TEST_F(TrainCommand, BadTextsAreErrors) {
  const std::string rest = model() + "--steps 2 --out " + word("out");
  expect_failure(1, "train --data " + word("none.txt") + rest, {"none.txt", "No such file"});
  scratch.write("empty.txt", "");
  expect_failure(1, "train --data " + word("empty.txt") + rest, {"empty.txt", "an empty file"});
  scratch.write("short.txt", "a few words");
  expect_failure(1, "train --data " + word("short.txt") + rest,
                 {"short.txt", "at least 33 bytes", "to train on, got 10 of 11: 0.02 of the text is held out"});
  scratch.write("short.txt", text(100));
  expect_failure(1, "train --data " + word("short.txt") + rest, {"short.txt", "to validate on, or none, got 3 of"});
  expect_failure(1, "train --data " + quoted(scratch.path().string()) + rest, {"expected a regular file"});
}

TEST_F(TrainCommand, PathsThatAreNotUtf8AreRefusedOrShown) {
  scratch.write("b\xffook.txt", text(9000));
  expect_failure(2, "train --data " + word("b\xffook.txt") + model() + "--steps 2 --out " + word("out"),
                 {"--data: expected a path in UTF-8", "ook.txt"});
  EXPECT_FALSE(std::filesystem::exists(scratch / "out"));
  const Result r = coda("train" + data() + model() + "--steps 2 --json --out " + word("o\xffut"));
  EXPECT_EQ(r.status, 0) << r.error;
  EXPECT_EQ(parse_json(r.out)["step"], 2);
}

TEST_F(TrainCommand, BadArgumentsAreErrors) {
  expect_failure(2, "train" + data() + model() + "--steps 2 --no-such-option --out " + word("out"),
                 {"--no-such-option"});
  expect_failure(2, "train" + data() + model() + "--steps two --out " + word("out"), {"two"});
  expect_failure(2, "train" + data() + model() + "--steps 99999999999999999999 --out " + word("out"),
                 {"--steps: expected a whole number from 0 to", "`99999999999999999999`"});
  expect_failure(2, "train" + data() + model() + "--steps 2", {"--out"});
  expect_failure(2, "train" + model() + "--steps 2 --out " + word("out"), {"--data"});
  expect_failure(2, "train" + data() + model() + "--out " + word("out"), {"--steps", "--minutes"});
  expect_failure(2, "train --resume --seed 3 --out " + word("out"), {"--seed", "--resume"});
  expect_failure(2, "train" + data() + " --dtype fp8 --steps 2 --out " + word("out"), {"--dtype", "fp8"});
  expect_failure(2, "train" + data() + " --kv-heads 3 --steps 2 --out " + word("out"),
                 {"--kv-heads: expected a divisor of heads", "got 3"});
  expect_failure(2, "train" + data() + " --kv-heads 3 --compare-unfused 2",
                 {"--kv-heads: expected a divisor of heads", "got 3"});
  for (const char* minutes : {"-1", "nan", "inf"}) {
    expect_failure(2, "train" + data() + model() + "--out " + word("out") + " --minutes " + minutes,
                   {"--minutes", "expected a number of at least 0", minutes});
  }
  expect_failure(2, "train" + data() + model() + "--steps 2 --save-seconds nan --out " + word("out"),
                 {"--save-seconds", "`nan`"});
  expect_failure(2, "train" + data() + model() + "--steps 2 --seed -1 --out " + word("out"), {"--seed", "`-1`"});
  for (const char* other : {"--stop-after", "--save-seconds"}) {
    expect_failure(2, "train" + data() + " --compare-unfused 2 " + other + " 2", {"--compare-unfused", other});
  }
  expect_failure(2, "generate " + data() + " --top-p 0", {"--top-p", "above 0", "got `0`"});
  expect_failure(2, "train" + data() + " --steps 1 --compare-unfused 2",
                 {"--compare-unfused: expected a number from 1 to the run's 1, got 2"});
  expect_failure(2, "train" + data() + " --validation 1", {"--validation", "below 1", "got 1"});
  expect_failure(2, "train" + data() + " --lr 1e300", {"--lr: expected a positive number that fp32 has, got 1e+300"});
  for (const char* rate : {"0", "-1", "nan"}) {
    expect_failure(2, "train" + data() + " --lr " + rate,
                   {"--lr: expected a positive number that fp32 has, got ", rate});
  }
  expect_failure(2, "train" + data() + " --weight-decay 1e300", {"--weight-decay: expected", "fp32", "1e+300"});
  expect_failure(2, "train" + data() + " --compare-unfused 0", {"--compare-unfused", "from 1 to", "`0`"});
  expect_failure(2, "train" + data() + model() + "--steps 2 --lr-floor -0.5 --out " + word("out"),
                 {"--lr-floor: expected a number from 0 to the rate, 0.001, got -0.5"});
  expect_failure(2, "train" + data() + " --heads 0", {"--heads: expected an integer from 1 to 2^31 - 1, got 0"});
  expect_failure(2, "train" + data() + " --hidden 384 --heads 128",
                 {"--hidden / --heads: expected an even number (rotary pairs) up to 512, got 3"});
  expect_failure(2, "train" + data() + " --seq 0", {"--seq: expected an integer from 1", "got 0"});
  expect_failure(1, "train --resume --out " + word("nowhere"), {"nowhere", "training.safetensors"});
  expect_failure(2, "generate", {"checkpoint"});
  expect_failure(2, "generate -n -1 " + word("nowhere"), {"--tokens: expected a whole number from 0 to", "`-1`"});
  expect_failure(2, "generate -n 99999999999999999999 " + word("nowhere"), {"--tokens", "`99999999999999999999`"});
  expect_failure(2, "generate --seed 18446744073709551616 " + word("nowhere"), {"--seed", "18446744073709551615, got"});
  expect_failure(2, "generate --ids '' " + word("nowhere"), {"--ids", "``"});
  expect_failure(2, "generate --logits '' " + word("nowhere"), {"--logits", "``"});
  expect_failure(2, "generate ''", {"checkpoint", "``"});
  expect_failure(2, "generate --ids 1,,2 " + word("nowhere"), {"--ids", "``"});
  expect_failure(2, "generate --ids 1,2, " + word("nowhere"), {"--ids", "``"});
  expect_failure(2, "generate --ids 1 --seed -1 " + word("nowhere"), {"--seed", "`-1`"});
  expect_failure(1, "generate " + word("nowhere"), {"nowhere", "config.json"});
  EXPECT_FALSE(std::filesystem::exists(scratch / "out"));
}

TEST_F(TrainCommand, DamagedCheckpointsAreErrors) {
  ASSERT_EQ(coda("train" + data() + model() + "--steps 2 --out " + word("out")).status, 0);
  const std::string good = slurp(scratch / "out" / "model.safetensors");
  scratch.write("out/model.safetensors", good.substr(0, good.size() / 2));
  expect_failure(1, "generate " + word("out"), {"model.safetensors", "expected"});
  scratch.write("out/model.safetensors", "not a checkpoint");
  expect_failure(1, "generate " + word("out"), {"model.safetensors"});
  scratch.write("out/model.safetensors", good);
  scratch.write("out/config.json", "{");
  expect_failure(1, "generate " + word("out"), {"config.json", "not JSON"});
}

TEST_F(TrainCommand, AFullDiskIsAnErrorAndTheOldCheckpointSurvives) {
  ASSERT_EQ(coda("train" + data() + model() + "--steps 6 --stop-after 2 --out " + word("out")).status, 0);
  const std::string before = slurp(scratch / "out" / "training.safetensors");
  // 64 blocks of 512 bytes: neither file of the new checkpoint fits.
  const Result r = coda("train --resume --quiet --out " + word("out"), "trap '' XFSZ; ulimit -f 64; ");
  EXPECT_EQ(r.status, 1) << r.error;
  EXPECT_NE(r.error.find("model.safetensors"), std::string::npos) << r.error;
  EXPECT_TRUE(slurp(scratch / "out" / "training.safetensors") == before);
  EXPECT_EQ(coda("train --resume --quiet --out " + word("out")).status, 0);
}

TEST_F(TrainCommand, AModelThatCannotRunLeavesTheOldCheckpoint) {
  ASSERT_EQ(coda("train" + data() + model() + "--steps 2 --out " + word("out")).status, 0);
  const std::string before = slurp(scratch / "out" / "model.safetensors");
  expect_failure(2, "train" + data() + model() + "--steps 2 --head-dim 600 --out " + word("out"),
                 {"--head-dim", "up to 512", "got 600"});
  EXPECT_TRUE(slurp(scratch / "out" / "model.safetensors") == before);
}

TEST_F(TrainCommand, ANewRunDoesNotReplaceAnUnfinishedOneUnlessTold) {
  const std::string run = "train" + data() + model() + "--out " + word("out") + " --steps ";
  ASSERT_EQ(coda(run + "6 --stop-after 2").status, 0);
  const std::string before = slurp(scratch / "out" / "training.safetensors");
  expect_failure(1, run + "3",
                 {"train: --out: expected a folder without an unfinished run (step 2 of 6), got ", path("out").c_str(),
                  "--resume", "--overwrite"});
  EXPECT_TRUE(slurp(scratch / "out" / "training.safetensors") == before);
  expect_failure(2, "train --resume --overwrite --out " + word("out"), {"--overwrite", "--resume"});
  EXPECT_EQ(coda(run + "3 --overwrite").status, 0);
  EXPECT_EQ(nn::read_training(scratch / "out").step, 3);
  EXPECT_EQ(coda(run + "2").status, 0) << "what is finished is replaced as it always was";
  EXPECT_EQ(nn::read_training(scratch / "out").step, 2);
  expect_failure(1, "train" + data() + model() + "--steps 2 --out " + word(std::string(300, 'x')),
                 {"write: ", "File name too long"});
}

TEST_F(TrainCommand, HelpNamesEveryOption) {
  const Result r = coda("train --help");
  EXPECT_EQ(r.status, 0);
  for (const char* option :
       {"--data", "--out", "--resume", "--overwrite", "--minutes", "--kv-heads", "--qk-norm", "--accumulation",
        "--compare-unfused", "--threads", "--warmup", "Ctrl-C", "GOMP_SPINCOUNT"}) {
    EXPECT_NE(r.out.find(option), std::string::npos) << option;
  }
  EXPECT_NE(coda("generate --help").out.find("--top-p"), std::string::npos);
}

}  // namespace
}  // namespace coda
