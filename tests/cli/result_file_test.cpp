// What `coda bench` and `coda tune` write is what lies under results/, and what scripts/ and the library read.
#include "coda/cli/result_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "coda/cli/sm90/records.h"
#include "tests/nn/scratch.h"

namespace coda::cli {
namespace {

using bench::json;

json committed(const std::string& name) {
  std::ifstream in(std::string(CODA_SOURCE_DIR) + "/results/h200/" + name);
  return json::parse(in);
}
std::vector<std::string> members(const json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

TEST(ResultFile, RecordsHaveTheMembersOfTheCommittedFiles) {
  const auto expect = [](const json& record, const char* file, const char* list) {
    EXPECT_EQ(members(record), members(committed(file).at(list).at(0))) << file;
  };
  expect(bench::KernelRecord{"gemm", {8, 16, 32}, Layout::nn, 2, 1}, "kernels.json", "records");
  expect(bench::HostRecord{"gemm", Layout::nt, 5, 4, 3, 2, 1}, "host.json", "records");
  expect(bench::LayerRecord{{2048, 8192, 32, 8, 64}, 16384, "forward", 2, 1, 3, 4, {2, 1}}, "layer.json", "records");
  expect(bench::SmallRecord{"fill", 1, 1, 4, 2, 1}, "small.json", "records");
  expect(bench::ProductHostRecord{"matmul", Layout::nt, 128, 2, 1}, "small.json", "host");
}

TEST(ResultFile, RecordsAreRoundedAndTellTheRatio) {
  const json r = bench::KernelRecord{"gemm", {8, 16, 32}, Layout::nn, 0.0312345678, 0.03};
  EXPECT_EQ(r.dump(),
            R"({"program":"gemm","m":8,"n":16,"k":32,"dtype":"bf16","layout":"nn","ms":0.03123,"cublaslt_ms":0.03,)"
            R"("ratio":0.9605})");
}

TEST(ResultFile, ProvenanceHasTheMembersOfTheCommittedFiles) {
  sm90::DeviceInfo device;
  device.driver = 13000, device.runtime = 12090;
  const json p = provenance(device, "abc");
  auto expected = members(committed("kernels.json"));
  expected.resize(expected.size() - 2);  // method and records
  EXPECT_EQ(members(p), expected);
  EXPECT_EQ(p.at("cuda_driver"), "13.0");
  EXPECT_EQ(p.at("cuda"), "12.9");
  EXPECT_EQ(p.at("commit"), "abc");
}

TEST(ResultFile, EachRecordIsALine) {
  const json file{{"device", "a \"GPU\""},
                  {"records", {{{"m", 1}, {"ms", 0.25}}, {{"m", 2}, {"ms", 0.5}}}},
                  {"host", json::array()}};
  EXPECT_EQ(lines_of(file), R"({
  "device": "a \"GPU\"",
  "records": [
    {"m": 1, "ms": 0.25},
    {"m": 2, "ms": 0.5}
  ],
  "host": [
  ]
}
)");
  for (const char* name : {"kernels.json", "host.json", "layer.json", "small.json"})
    EXPECT_EQ(json::parse(lines_of(committed(name))), committed(name)) << name;
}

TEST(ResultFile, PlaceThatCannotBeWrittenIsToldAndOneThatCanIsLeftAsItWas) {
  const std::string folder = ::testing::TempDir() + "coda_result_file/", path = folder + "kernels.json";
  require_writable(path, "--out");
  EXPECT_FALSE(std::filesystem::exists(path));
  write_result_file(path, {{"records", json::array()}}, "--out");
  require_writable(path, "--out");
  EXPECT_GT(std::filesystem::file_size(path), 0U);
  EXPECT_THROW(require_writable(path + "/below.json", "--out"), std::exception);
  const std::string before = testing::slurp(path);
  {
    const testing::FullDisk full(0);
    EXPECT_THROW(write_result_file(path, {{"records", json::array()}}, "--out"), std::exception);
  }
  EXPECT_EQ(testing::slurp(path), before) << "of a full disk";
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace coda::cli
