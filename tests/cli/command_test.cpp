// `coda` from the outside: help, exit status, errors, and the JSON of info, programs, verify and bench.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "coda/core/json.h"
#include "tests/cli/run_command.h"

namespace coda::test {
namespace {

using nlohmann::json;

#define EXPECT_HAS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "text: \"" << (text) << "\"\nlacks: " << (part)

json json_of(const std::vector<std::string>& arguments) {
  const CommandResult r = run_coda(arguments);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  json j = parse_json(r.out);
  EXPECT_FALSE(j.is_discarded()) << "not JSON: " << r.out.substr(0, 200);
  return j;
}

void expect_usage_error(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
  const CommandResult r = run_coda(arguments);
  EXPECT_EQ(r.status, 2) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(r.err.rfind("coda: error: ", 0), 0U) << r.err;
  for (const std::string& part : parts) EXPECT_HAS(r.err, part);
}

std::set<std::string> names_of(const json& list, const char* key) {
  std::set<std::string> names;
  for (const json& e : list) names.insert(e.at(key).get<std::string>());
  return names;
}

TEST(CodaHelp, TellsSubcommandsExamplesAndExitStatus) {
  const CommandResult r = run_coda({"--help"});
  EXPECT_EQ(r.status, 0);
  for (const char* part :
       {"info", "programs", "verify", "bench", "tune", "train", "generate", "Examples:", "Exit status:"})
    EXPECT_HAS(r.out, part);
}

TEST(CodaHelp, EachSubcommandHasOptionsAndExamples) {
  for (const char* name : {"info", "programs", "verify", "bench", "tune"}) {
    const CommandResult r = run_coda({name, "--help"});
    EXPECT_EQ(r.status, 0) << name;
    EXPECT_HAS(r.out, "--json");
    EXPECT_HAS(r.out, "Example");
  }
}

TEST(CodaHelp, VersionIsOneLine) {
  const CommandResult r = run_coda({"--version"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out.rfind("coda ", 0), 0U) << r.out;
}

TEST(CodaUsage, WithoutSubcommandOrWithAnUnknownOneExitsWith2) {
  expect_usage_error({}, {"subcommand", "Try: coda --help"});
  expect_usage_error({"frobnicate"}, {"`frobnicate`", "verify"});
}

TEST(CodaUsage, UnknownOptionIsNamed) {
  expect_usage_error({"verify", "--frobnicate"}, {"--frobnicate", "Try: coda verify --help"});
  expect_usage_error({"info", "--frobnicate"}, {"--frobnicate"});
  expect_usage_error({"--frobnicate"}, {"`--frobnicate`", "subcommand"});
}

TEST(CodaUsage, WrongValueTellsWhatWasExpected) {
  expect_usage_error({"verify", "--dtype", "int8"}, {"--dtype", "expected bf16, fp16, fp32 or fp64", "`int8`"});
  expect_usage_error({"programs", ""}, {"expected a value", "``"});
  expect_usage_error({"info", "--explain", "gemm", "8", "8", "8", "--layout", ""}, {"--layout", "``"});
  expect_usage_error({"verify", "--dtype", "bf16,,fp32"}, {"--dtype", "expected bf16, fp16, fp32 or fp64", "``"});
  expect_usage_error({"verify", "--shape", "64x64x64,"}, {"--shape", "``"});
  expect_usage_error({"verify", "--layout", ",nt"}, {"--layout", "``"});
  expect_usage_error({"verify", "--layout", "tt"}, {"--layout", "expected nt, nn or tn", "`tt`"});
  expect_usage_error({"verify", "--backend", "tpu"}, {"--backend", "expected cpu or sm90", "`tpu`"});
  for (const char* shape : {"8", "8x8", "8x8x", "8x8x8x8", "0x8x8", "-1x8x8", "axbxc", "8x8x99999999999999999999"})
    expect_usage_error({"verify", "--shape", shape}, {"--shape", "expected MxNxK", shape});
  for (const char* seed : {"x", "-1"}) expect_usage_error({"verify", "--seed", seed}, {"--seed", seed});
  expect_usage_error({"bench", "--dtype", "fp16"}, {"--dtype", "expected bf16 or fp32"});
  expect_usage_error({"bench", "--shape", "8x7x8"}, {"--shape", "even N"});
  expect_usage_error({"bench", "--rounds", "0x2"}, {"--rounds", "0x2"});
  expect_usage_error({"bench", "--rounds", ""}, {"--rounds"});
  expect_usage_error({"bench", "--rounds", "0"}, {"--rounds"});
  expect_usage_error({"bench", "rms_finalize"}, {"rms_finalize"});
}

TEST(CodaUsage, UnknownProgramIsAnsweredByItsLikes) {
  expect_usage_error({"verify", "swiglu"}, {"`swiglu`", "gemm_rms_swiglu", "gemm_swiglu_backward"});
  expect_usage_error({"verify", "nonsense"}, {"`nonsense`", "coda programs"});
  expect_usage_error({"programs", "nonsense"}, {"`nonsense`"});
}

TEST(CodaOutput, FullDiskIsAnError) {
  for (const char* what : {"programs", "--version"}) {
    const CommandResult r = run_coda({what}, "/dev/full");
    EXPECT_EQ(r.status, 1) << what;
    EXPECT_EQ(r.err.rfind("coda: error: ", 0), 0U) << r.err;
  }
}

TEST(CodaInfo, JsonTellsBuildMachineAndBackends) {
  const json j = json_of({"info", "--json"});
  EXPECT_EQ(j.at("command"), "info");
  EXPECT_TRUE(j.at("commit").is_string());
  EXPECT_FALSE(j.at("build").at("compiler").get<std::string>().empty());
  EXPECT_GE(j.at("cpu").at("threads").get<int>(), 1);
  EXPECT_EQ(j.at("onednn").at("version").get<std::string>().find_first_not_of("0123456789."), std::string::npos);
  EXPECT_TRUE(j.at("backends").at("cpu").at("available").get<bool>());
  const json& sm90 = j.at("backends").at("sm90");
  EXPECT_EQ(sm90.at("available").get<bool>(), !j.at("devices").empty());
  EXPECT_EQ(sm90.at("available").get<bool>(), !sm90.contains("why_not"));
}

TEST(CodaInfo, TextSaysTheSame) {
  const CommandResult r = run_coda({"info"});
  EXPECT_EQ(r.status, 0);
  for (const char* part : {"coda ", "compiler", "oneDNN", "cpu: available", "sm90: "}) EXPECT_HAS(r.out, part);
}

TEST(CodaExplain, SaysWhatRunsAndWhy) {
  const CommandResult large = run_coda({"info", "--explain", "gemm_rms_reglu", "16384", "8200", "4096"});
  EXPECT_EQ(large.status, 0) << large.err;
  for (const char* part : {"gemm_rms_reglu 16384x8200x4096 nt bf16: fused", "why", "rule", "  rounds  "})
    EXPECT_HAS(large.out, part);
  const CommandResult small = run_coda({"info", "--explain", "gemm_rms_reglu", "7", "8200", "4096"});
  EXPECT_HAS(small.out, ": fused, configuration 1");
  EXPECT_HAS(small.out, "splits K");
  const CommandResult backward = run_coda({"info", "--explain", "gemm_rms_backward", "7", "8200", "4096"});
  EXPECT_HAS(backward.out, ": unfused");
  EXPECT_HAS(backward.out, "65 rows");
  if (!json_of({"info", "--json"}).at("backends").at("sm90").at("available").get<bool>()) {
    EXPECT_HAS(small.out, "an H200 assumed");
  }
}

TEST(CodaExplain, JsonTellsTheChoice) {
  const json j = json_of({"info", "--explain", "gemm_swiglu_backward", "16384", "8200", "4096", "--json"});
  EXPECT_EQ(j.at("way"), "fused");
  EXPECT_EQ(j.at("layout"), "nn") << "the program's usual one";
  for (const char* key : {"config", "band", "along", "why", "measured", "multiprocessors", "memory_gbs", "rounds"})
    EXPECT_TRUE(j.contains(key));
  EXPECT_TRUE(j.at("rounds").at("split").is_boolean());
  const json odd = json_of({"info", "--explain", "gemm_rms", "4096", "4097", "4096", "--json"});
  EXPECT_EQ(odd.at("way"), "unfused");
  EXPECT_HAS(odd.at("why").get<std::string>(), "multiples of 8");
  EXPECT_FALSE(odd.contains("config"));
  const json heads =
      json_of({"info", "--explain", "gemm_rms_rope", "4096", "4080", "4096", "--head-dim", "80", "--json"});
  EXPECT_EQ(heads.at("way"), "unfused");
}

TEST(CodaExplain, EachProgramWithAProductCanBeAskedFor) {
  const json catalogue = json_of({"programs", "--json"});
  for (const json& e : catalogue.at("programs")) {
    const std::string name = e.at("name");
    const CommandResult r = run_coda({"info", "--explain", name, "4096", "4096", "4096"});
    if (e.at("product").get<bool>()) EXPECT_EQ(r.status, 0) << name << ": " << r.err;
    else EXPECT_EQ(r.status, 2) << name;
  }
}

TEST(CodaExplain, WrongQuestionsAreRefused) {
  expect_usage_error({"info", "--explain", "gemm", "8", "8"}, {"--explain"});
  expect_usage_error({"info", "--explain", "nonsense", "8", "8", "8"}, {"--explain: expected", "`nonsense`"});
  // By the function of C++ and C, too.
  expect_usage_error({"info", "--explain", "gemm_norm_glu", "8", "8", "8"}, {"did you mean gemm_rms_swiglu"});
  for (const char* name : {"gemm_rms_reglu", "gemm_rms_qknorm_rope"})
    expect_usage_error({"info", "--explain", name, "8", "9", "8"}, {"--explain", "even N", name, "9"});
  expect_usage_error({"info", "--explain", "gemm_rms_rope", "8", "8", "8", "--head-dim", "63"}, {"--head-dim", "63"});
  expect_usage_error({"info", "--explain", "gemm_rms_rope", "8", "96", "8", "--head-dim", "64"},
                     {"--explain: expected an N of whole heads of --head-dim 64 columns, got 96"});
  expect_usage_error({"info", "--explain", "gemm_rms_swiglu", "8", "64", "8", "--head-dim", "64"},
                     {"--head-dim: expected none for gemm_rms_swiglu, which has no heads, got 64"});
  for (const char* side : {"x", "0", "-1", "8x", "99999999999999999999"})
    expect_usage_error({"info", "--explain", "gemm", "8", side, "8"},
                       {"--explain: expected a size from 1 to", "got `" + std::string(side) + "`"});
  for (const char* dtype : {"fp32", "fp64"})
    expect_usage_error({"info", "--explain", "gemm", "8", "8", "8", "--dtype", dtype},
                       {"--dtype: expected bf16 or fp16", dtype});
  expect_usage_error({"info", "--explain", "rms_finalize", "8", "8", "8"}, {"rms_finalize", "product"});
  expect_usage_error({"info", "--explain", "gemm", "8", "8", "8", "--layout", "tt"}, {"`tt`"});
  expect_usage_error({"info", "--layout", "nt"}, {"--explain"});
}

TEST(CodaTune, WrongArgumentsAreRefusedBeforeTheDeviceIsLookedFor) {
  expect_usage_error({"tune", "nonsense"}, {"`nonsense`", "gemm_rms_swiglu"});
  expect_usage_error({"tune", "--shape", "8x8"}, {"--shape", "expected MxNxK"});
}

TEST(CodaTune, WithoutAGpuSaysSo) {
  if (json_of({"info", "--json"}).at("backends").at("sm90").at("available").get<bool>())
    GTEST_SKIP() << "this machine has the sm90 backend";
  const CommandResult r = run_coda({"tune"});
  EXPECT_EQ(r.status, 1);
  EXPECT_HAS(r.err, "expected a Hopper GPU");
}

/// Sets an environment variable that `coda` inherits.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(CodaTune, AFileOfOnesOwnDecides) {
  const std::string path = testing::TempDir() + "coda_tuning_" + std::to_string(::getpid()) + ".json";
  std::ofstream(path) << R"({"device": "mine", "multiprocessors": 132, "memory_gbs": 4814, "cublaslt": "1", "records": [
    {"program": "product", "layout": "nt", "m": 16384, "n": 8200, "k": 4096, "ms": 1.25, "rule_ms": 1.75, "algorithm":
     {"id": 66, "tile": 197, "stages": 35, "split_k": 1, "reduction": 0, "swizzle": 0, "custom": 2, "inner_shape": 0,
      "cluster_shape": 5}},
    {"program": "product", "layout": "nt", "m": 512, "n": 8200, "k": 4096, "ms": 1.25, "rule_ms": 1.75, "algorithm": null,
     "way": "fused", "config": 0, "band": 4, "along": "n", "unfused_ms": 1.5},
    {"program": "gemm_rms_swiglu", "layout": "nt", "m": 16384, "n": 8200, "k": 4096, "way": "unfused", "config": 0,
     "band": 8, "along": "m", "ms": 1.5, "rule_ms": 2.5, "unfused_ms": 1.5},
    {"program": "gemm_rms_swiglu", "layout": "nt", "m": 32, "n": 8200, "k": 4096, "way": "fused", "config": 0,
     "band": 2, "along": "n", "ms": 0.5, "rule_ms": 0.75, "unfused_ms": 0.75}]})";
  const Variable tuning("CODA_TUNING", path);
  const auto explain = [](const char* program, const char* m) {
    return json_of({"info", "--explain", program, m, "8200", "4096", "--json"});
  };
  if (explain("gemm_rms", "16384").at("multiprocessors") != 132) GTEST_SKIP() << "another device than the file is for";
  EXPECT_EQ(explain("gemm_rms_swiglu", "16384").at("way"), "unfused");
  EXPECT_HAS(explain("gemm_rms_swiglu", "16384").at("why").get<std::string>(), "1.5 ms");
  EXPECT_EQ(explain("gemm_rms_swiglu", "32").at("band"), 2);
  EXPECT_EQ(explain("gemm_rms_swiglu", "40").at("along"), "n") << "a quarter more rows";
  EXPECT_EQ(explain("gemm_rms_swiglu", "41").at("config"), 1) << "the rule's";
  EXPECT_EQ(explain("gemm_rms_geglu_tanh", "32").at("band"), 2) << "the same kernel with another function";
  EXPECT_EQ(explain("gemm_rms", "16384").at("way"), "fused") << "another program";
  const json bare = explain("gemm", "16384");
  if (bare.at("device_present").get<bool>())
    EXPECT_EQ(bare.at("product").count("ms"), 0U) << "of another version of cuBLASLt";
  else EXPECT_HAS(bare.at("product").at("what").get<std::string>(), "tile 197");
  const json ours = explain("gemm", "512").at("product");
  EXPECT_EQ(ours.at("way"), "fused");
  EXPECT_EQ(ours.at("what"), "fused, configuration 0, bands of 4 along n");
  EXPECT_EQ(ours.at("unfused_ms"), 1.5);
  std::remove(path.c_str());
}

TEST(CodaTune, AFileThatCannotBeUsedIsTold) {
  const Variable tuning("CODA_TUNING", "/nonexistent/tuning.json");
  const CommandResult r = run_coda({"info", "--explain", "gemm_rms", "16384", "8200", "4096"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(r.err, "coda: warning: CODA_TUNING: read: /nonexistent/tuning.json");
  EXPECT_HAS(r.out, "which is not used");
}

TEST(CodaTune, WhatIsNoFileIsNotRead) {
  const std::string pipe = std::filesystem::temp_directory_path() / ("coda_pipe_" + std::to_string(::getpid()));
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero")}) {
    const Variable tuning("CODA_TUNING", path);
    const CommandResult r = run_coda({"info", "--explain", "gemm_rms", "16384", "8200", "4096"});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_HAS(r.err, "read: " + path + ": expected a regular file");
  }
  std::remove(pipe.c_str());
}

TEST(CodaTune, APathThatIsNotUtf8IsShown) {
  const Variable tuning("CODA_TUNING", "/nonexistent/\xff.json");
  const CommandResult r = run_coda({"info", "--explain", "gemm_rms", "16384", "8200", "4096", "--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_HAS(parse_json(r.out).at("user_table").at("path").get<std::string>(), "/nonexistent/");
}

TEST(CodaPrograms, JsonHasPortsFormulaAndUniqueNames) {
  const json list = json_of({"programs", "--json"}).at("programs");
  const auto names = names_of(list, "name");
  EXPECT_EQ(names.size(), list.size());
  for (const char* name : {"gemm",
                           "gemm_residual_rms",
                           "gemm_residual_layernorm",
                           "gemm_rms",
                           "gemm_layernorm",
                           "gemm_rms_swiglu",
                           "gemm_rms_rope",
                           "gemm_rms_rotate",
                           "gemm_rms_qknorm_rope",
                           "gemm_lse",
                           "linear_cross_entropy",
                           "gemm_rms_backward",
                           "gemm_layernorm_backward",
                           "gemm_swiglu_backward",
                           "gemm_activation_backward",
                           "rope_backward",
                           "qknorm_rope_backward",
                           "cross_entropy_backward",
                           "linear_cross_entropy_backward",
                           "rms_finalize"})
    EXPECT_TRUE(names.count(name)) << name;
  for (const json& e : list) {
    EXPECT_FALSE(e.at("formula").get<std::string>().empty()) << e.at("name");
    EXPECT_FALSE(e.at("ports").empty()) << e.at("name");
    for (const json& p : e.at("ports"))
      for (const char* key : {"name", "kind", "dtype", "shape"})
        EXPECT_FALSE(p.at(key).get<std::string>().empty()) << e.at("name") << " " << key;
  }
}

TEST(CodaPrograms, PortKindsComeFromTheProgram) {
  const json list = json_of({"programs", "gemm_rms_swiglu", "--json"}).at("programs");
  ASSERT_EQ(list.size(), 1U);
  std::vector<std::string> kinds;
  for (const json& p : list[0].at("ports")) kinds.push_back(p.at("kind").get<std::string>());
  EXPECT_EQ(kinds, (std::vector<std::string>{"column vector", "tile store", "tile store, half width"}));
}

TEST(CodaPrograms, FilterKeepsWhatMatches) {
  const CommandResult r = run_coda({"programs", "rope", "--names"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out, "gemm_rms_rope\ngemm_rms_qknorm_rope\nrope_backward\nqknorm_rope_backward\n");
}

TEST(CodaVerify, EveryProgramPassesInEveryType) {
  const json j = json_of({"verify", "--json", "--dtype", "bf16,fp16,fp32,fp64", "--shape", "70x96x40"});
  EXPECT_EQ(j.at("failed"), 0);
  EXPECT_EQ(j.at("skipped"), 0);
  EXPECT_EQ(j.at("passed").get<std::size_t>(), j.at("rows").size());
  EXPECT_EQ(names_of(j.at("rows"), "program"), names_of(json_of({"programs", "--json"}).at("programs"), "name"));
  for (const json& row : j.at("rows")) {
    EXPECT_EQ(row.at("verdict"), "ok") << row;
    EXPECT_LE(row.at("relative").get<double>(), row.at("relative_limit").get<double>()) << row;
    EXPECT_LE(row.at("error").get<double>(), row.at("bound").get<double>()) << row;
  }
}

TEST(CodaVerify, TinyShapesWhoseExactGradientsWouldBeZeroPass) {
  for (const char* seed : {"1", "2", "3"}) {
    const json j = json_of({"verify", "--all", "--json", "--shape", "1x1x1,2x2x2,1x8x8", "--seed", seed});
    for (const json& row : j.at("rows")) EXPECT_NE(row.at("verdict"), "FAILED") << row;
  }
}

TEST(CodaVerify, TableNamesProgramAndTotal) {
  const CommandResult r = run_coda({"verify", "gemm_rms_swiglu", "--shape", "40x32x24", "--layout", "nt,nn,tn"});
  EXPECT_EQ(r.status, 0) << r.err;
  for (const char* part : {"gemm_rms_swiglu", "bf16", "tn", "40x32x24", "preact", "bound", "0 failed"})
    EXPECT_HAS(r.out, part);
}

TEST(CodaVerify, SeedDecidesTheData) {
  const auto rows = [](const char* seed) {
    return json_of({"verify", "gemm", "--shape", "20x16x24", "--seed", seed, "--json"}).at("rows");
  };
  EXPECT_EQ(rows("5"), rows("5"));
  EXPECT_NE(rows("5"), rows("6"));
  EXPECT_EQ(rows("010"), rows("10")) << "not octal";
}

TEST(CodaVerify, ShapeThatFitsNoProgramIsAnError) {
  const CommandResult r = run_coda({"verify", "gemm_rms_swiglu", "--shape", "4x3x5"});
  EXPECT_EQ(r.status, 1);
  EXPECT_HAS(r.out, "N must be even");
  EXPECT_HAS(r.err, "nothing was checked");
}

TEST(CodaVerify, BackendThatIsNotThereIsNamed) {
  if (json_of({"info", "--json"}).at("backends").at("sm90").at("available").get<bool>())
    GTEST_SKIP() << "this machine has the sm90 backend";
  const CommandResult r = run_coda({"verify", "gemm", "--backend", "sm90"});
  EXPECT_EQ(r.status, 1);
  EXPECT_HAS(r.err, "coda: error: verify: --backend");
  EXPECT_HAS(r.err, "sm90");
}

TEST(CodaBench, JsonHasTimesAndRatios) {
  const json j = json_of({"bench", "gemm_rms_swiglu", "gemm_swiglu_backward", "gemm_rms_qknorm_rope", "--dtype",
                          "bf16,fp32", "--shape", "64x192x32", "--rounds", "1", "--json"});
  EXPECT_EQ(j.at("rows").size(), 3U * 2 * 2);
  for (const json& row : j.at("rows"))
    for (const char* key : {"bare_ms", "fused_ms", "unfused_ms", "bare_over_fused", "unfused_over_fused", "tflops"})
      EXPECT_GT(row.at(key).get<double>(), 0) << row << key;
}

TEST(CodaBench, EveryProgramRuns) {
  const json j = json_of({"bench", "--shape", "40x96x24", "--rounds", "1", "--json"});
  EXPECT_GE(names_of(j.at("rows"), "program").size(), 20U);
}

TEST(CodaBench, BackendThatIsNotThereIsNamed) {
  if (json_of({"info", "--json"}).at("backends").at("sm90").at("available").get<bool>())
    GTEST_SKIP() << "this machine has the sm90 backend";
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--suite", "all"}}) {
    std::vector<std::string> arguments{"bench", "--backend", "sm90", "--out", testing::TempDir() + "coda_not_made/"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult r = run_coda(arguments);
    EXPECT_EQ(r.status, 1);
    EXPECT_EQ(r.out, "");
    EXPECT_HAS(r.err, "coda: error: bench: --backend");
    EXPECT_FALSE(std::filesystem::exists(testing::TempDir() + "coda_not_made"));
  }
}

TEST(CodaBench, OptionsOfTheOtherBackendAreRefused) {
  for (const char* option : {"--suite", "--out", "--commit"})
    expect_usage_error({"bench", option, "kernels"}, {option, "--backend sm90"});
  expect_usage_error({"bench", "--backend", "sm90", "--derivatives"}, {"--derivatives", "--backend cpu"});
  expect_usage_error({"bench", "--derivatives", "gemm"}, {"programs", "none with --derivatives"});
  expect_usage_error({"bench", "--derivatives", "--dtype", "fp32"}, {"--dtype", "none with --derivatives"});
  expect_usage_error({"bench", "--derivatives", "--layout", "nt"}, {"--layout", "none with --derivatives"});
  expect_usage_error({"bench", "--derivatives", "--shape", "8x8x8"}, {"--shape", "none with --derivatives"});
  expect_usage_error({"bench", "--backend", "sm90", "--dtype", "fp32"}, {"--dtype", "expected bf16", "fp32"});
}

TEST(CodaBench, WrongArgumentsForAGpuAreRefusedBeforeItIsLookedFor) {
  const auto refused = [](std::vector<std::string> arguments, const std::vector<std::string>& parts) {
    arguments.insert(arguments.begin(), {"bench", "--backend", "sm90"});
    expect_usage_error(arguments, parts);
  };
  refused({"nonsense"}, {"`nonsense`", "gemm_rms_swiglu"});
  refused({"--suite", "nonsense"}, {"--suite", "`nonsense`", "few-rows", "or all"});
  refused({"--suite", "kernels", "--shape", "8x8x8"}, {"--shape", "--suite"});
  refused({"--shape", "8x8"}, {"--shape", "expected MxNxK"});
  refused({"gemm_rms_rope", "--shape", "64x192x64"}, {"--shape", "multiple of 128", "gemm_rms_rope", "64x192x64"});
  refused({"--layout", "tt"}, {"--layout", "`tt`"});
  refused({"--layout", "nn", "--suite", "layer"}, {"--layout", "layer", "`nn`"});
  refused({"gemm", "--suite", "kernels,small"}, {"programs", "small", "`gemm`"});
  refused({"--rounds", "0"}, {"--rounds", "a whole number from 1"});
  refused({"--suite", "all", "--out", testing::TempDir() + "one.json"}, {"--out", "folder", "one.json"});
}

TEST(CodaBench, DerivedAndWrittenBackwardAreTimed) {
  const json j = json_of({"bench", "--derivatives", "--rounds", "1", "--json"});
  EXPECT_EQ(j.at("derivatives").size(), 4U);
  for (const json& row : j.at("derivatives")) EXPECT_GT(row.at("written_over_derived").get<double>(), 0) << row;
}

}  // namespace
}  // namespace coda::test
