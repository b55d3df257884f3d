// Which kernel a call runs as: the rule, the table's file, the look-up, what overrules it. All of it without a GPU.
#include "coda/backend/sm90/choice.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "coda/core/error.h"
#include "coda/core/json.h"

namespace coda::sm90 {

static void PrintTo(const Choice& c, std::ostream* out) { *out << text_of(c); }

namespace {

using nlohmann::json;

constexpr int kSms = 132;
constexpr Chip kH200{kSms, 4917}, kH100{kSms, 3352}, kOther{114, 3352};

json record(std::int64_t m, std::int64_t n, std::int64_t k) {
  return {{"program", "gemm_rms"}, {"layout", "nt"}, {"m", m},       {"n", n},     {"k", k},       {"way", "fused"},
          {"config", 0},           {"band", 4},      {"along", "n"}, {"ms", 0.25}, {"rule_ms", 1}, {"unfused_ms", 1.5}};
}
json product(std::int64_t size, const json& algorithm) {
  return {{"program", "product"}, {"layout", "tn"},        {"m", size}, {"n", size}, {"k", size}, {"ms", 0.5},
          {"rule_ms", 1},         {"algorithm", algorithm}};
}
const json kAlgorithm{{"id", 66},     {"tile", 197}, {"stages", 35},     {"split_k", 2},      {"reduction", 2},
                      {"swizzle", 1}, {"custom", 2}, {"inner_shape", 3}, {"cluster_shape", 5}};
/// That runs in a fused kernel.
json product_of_ours(std::int64_t size) {
  json r = record(size, size, size);
  r["program"] = "product", r["algorithm"] = kAlgorithm;
  return r;
}

std::string file_of(const std::vector<json>& records, const Chip& chip = kH200) {
  return json({{"device", "a GPU"},
               {"multiprocessors", chip.multiprocessors},
               {"memory_gbs", chip.memory_gbs},
               {"cublaslt", "130100"},
               {"records", records}})
      .dump();
}
Table table_of(const std::vector<json>& records) {
  Table t;
  t.add(file_of(records), "test");
  return t;
}
const Entry* look_up(const Table& t, std::int64_t m, std::int64_t n, std::int64_t k, const Chip& chip = kH200) {
  return find(t.part("gemm_rms", Layout::nt), chip, m, n, k);
}
std::int64_t rows_of(const Entry* e) { return e ? e->m : 0; }

/// What the thread asks for does not outlive a test.
class Choose : public testing::Test {
 protected:
  ~Choose() override { set_way(Way::automatic); }
};

constexpr std::int64_t kSomeK = 4096;

TEST(TheRule, FusesFromSixtyFiveRowsWhereTilesFillThreeQuartersOfTheChip) {
  const Rule rule;
  EXPECT_EQ(rule(64, 1 << 20, kSomeK, kH200).way, Way::unfused);
  EXPECT_EQ(rule(65, 1 << 20, kSomeK, kH200).way, Way::fused);
  EXPECT_EQ(rule(1, 1, kSomeK, kH200).way, Way::unfused);
  EXPECT_EQ(rule(128, 128 * 98, kSomeK, kH200).way, Way::unfused);
  EXPECT_EQ(rule(128, 128 * 98 + 8, kSomeK, kH200).way, Way::fused) << "99 tiles are three quarters of 132";
  EXPECT_EQ(rule(128, 128 * 98 + 8, kSomeK, {133, 4917}).way, Way::unfused);
  EXPECT_EQ(rule(std::int64_t{1} << 31, std::int64_t{1} << 31, kSomeK, kH200).way, Way::fused) << "no overflow";
}

TEST(TheRule, TakesTheFirstConfiguration) {
  const Rule rule{.tile_m = 256, .tile_n = 128};
  EXPECT_EQ(rule(8192, 8192, kSomeK, kH200), (Choice{.way = Way::fused, .config = 0}));
  EXPECT_EQ(rule(1024, 128 * 24, kSomeK, kH200).way, Way::unfused) << "4 x 24 tiles";
  EXPECT_EQ(rule(1024, 128 * 25, kSomeK, kH200).way, Way::fused);
}

TEST(TheRule, WalksInBandsOfItsOwnOnSlowerMemoryWhereTeamsTakeTurns) {
  const Rule rule{.few_rows = 1, .lean = 2};
  const auto raster = [&](std::int64_t m) { return rule(m, 8192, kSomeK, kH100).raster; };
  EXPECT_EQ(raster(128 * 63), (Raster{4, true}));
  EXPECT_EQ(raster(128 * 63 + 1), (Raster{22, false})) << "two of 22 and one of 20";
  EXPECT_EQ(raster(128 * 66), (Raster{22, false}));
  EXPECT_EQ(raster(128 * 66 + 1), (Raster{17, false})) << "three of 17 and one of 16";
  EXPECT_EQ(raster(std::int64_t{1} << 31), (Raster{22, false})) << "no overflow";
  EXPECT_EQ(rule.raster(0, 0, kH100), (Raster{4, true})) << "no rows";
  for (const int config : {1, 2}) EXPECT_EQ(rule.raster(config, 8192, kH100), Raster()) << config;
  EXPECT_EQ(raster(8192), rule.raster(0, 8192, kH100));
  EXPECT_EQ(rule.raster(0, 8192, kH200), Raster());
}

TEST(TheRule, SplitsKForFewRowsAndForTilesThatFillTheChipOnce) {
  const Rule rule{.few_rows = 2};
  const auto splits = [&](std::int64_t m, std::int64_t n) {
    return rule(m, n, kSomeK, kH200) == Choice{.way = Way::fused, .config = 2};
  };
  EXPECT_TRUE(splits(1, 1));
  EXPECT_TRUE(splits(64, 1 << 20));
  EXPECT_FALSE(splits(65, 1 << 20));
  EXPECT_TRUE(splits(65, 128 * 66)) << "2 x 66 tiles";
  EXPECT_FALSE(splits(65, 128 * 66 + 8));
  EXPECT_EQ(rule(65, 128 * 49, kSomeK, kH200).way, Way::unfused) << "2 x 49 tiles";
  EXPECT_TRUE(splits(65, 128 * 50));
  EXPECT_TRUE(splits(64 * 132, 8));
  EXPECT_FALSE(splits(64 * 132 + 1, 8));
  const Rule up_to_32{.few_rows = 2, .most = 32};
  EXPECT_EQ(up_to_32(32, 4096, kSomeK, kH200), (Choice{.way = Way::fused, .config = 2}));
  EXPECT_EQ(up_to_32(33, 4096, kSomeK, kH200).way, Way::unfused);
  EXPECT_EQ(up_to_32(33, 128 * 100, kSomeK, kH200), (Choice{.way = Way::fused, .config = 2}))
      << "tiles for most of the chip";
  EXPECT_EQ(rule(8192, 8192, kSomeK, kH200), (Choice{.way = Way::fused, .config = 0}));
  EXPECT_EQ(rule(std::int64_t{1} << 31, std::int64_t{1} << 31, kSomeK, kH200).config, 0) << "no overflow";
}

TEST(TheRule, TakesTheLeanConfigurationForMuchWorkOnALongK) {
  const Rule rule{.few_rows = 1, .lean = 2};
  const auto lean = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return rule(m, n, k, kH200) == Choice{.way = Way::fused, .config = 2};
  };
  EXPECT_TRUE(lean(16384, 16384, 8192));
  EXPECT_FALSE(lean(16383, 16384, 8192)) << "less than 2^41 multiplications";
  EXPECT_TRUE(lean(256 * 11 + 1, 128 * 132, 65536)) << "twelve tiles of twice the rows for each multiprocessor";
  EXPECT_FALSE(lean(256 * 11, 128 * 132, 65536)) << "eleven: the last of them would leave too many idle";
  EXPECT_FALSE(lean(16384, 32768, 8191)) << "a shorter K";
  EXPECT_FALSE(lean(64, std::int64_t{1} << 24, 8192)) << "few rows";
  EXPECT_TRUE(lean(std::int64_t{1} << 31, std::int64_t{1} << 31, std::int64_t{1} << 31)) << "no overflow";
  EXPECT_EQ(Rule{}(16384, 16384, 8192, kH200), (Choice{.way = Way::fused, .config = 0})) << "a program without";
}

TEST(TheRule, TakesTheLeanConfigurationOnSlowerMemoryWhereItNeedsHardlyMoreRounds) {
  const Rule rule{.lean = 1, .lean_from = {LeanFrom::kNever, 4096}};
  const auto lean = [&](std::int64_t m, std::int64_t n, std::int64_t k, const Chip& chip = kH100) {
    return rule(m, n, k, chip) == Choice{.way = Way::fused, .config = 1};
  };
  EXPECT_TRUE(lean(2048, 4096, 4096)) << "256 tiles of 256 rows, 512 of 128: 2 and 4 rounds of 132";
  EXPECT_FALSE(lean(2048, 4096, 4095)) << "a shorter K";
  EXPECT_FALSE(lean(256 * 132, 128, 4096)) << "one round";
  EXPECT_FALSE(lean(256 * 133, 128, 4096)) << "133 tiles, 266: 2 rounds and 3";
  EXPECT_TRUE(lean(256 * 199, 128, 4096)) << "199 tiles, 398: 2 rounds and 4";
  EXPECT_FALSE(lean(256 * 132 * 15 + 256, 128, 4096)) << "16 rounds and 31";
  EXPECT_TRUE(lean(256 * 132 * 16 + 256, 128, 4096)) << "17 rounds and 33: 3 % more";
  EXPECT_TRUE(lean(std::int64_t{1} << 31, std::int64_t{1} << 31, std::int64_t{1} << 31)) << "no overflow";
  EXPECT_FALSE(lean(std::int64_t{1} << 31, std::int64_t{1} << 31, std::int64_t{1} << 31, kH200))
      << "never where memory is fast";
  EXPECT_TRUE(lean(16384, 4096, 4096, {kSms, 4199}));
  EXPECT_FALSE(lean(16384, 4096, 4096, {kSms, 4200}));
  EXPECT_FALSE(Rule{}(16384, 4096, 4096, kH100).config) << "a program without";
}

TEST(TheTable, HasTheExactShapeOfEachEntry) {
  std::mt19937 random(7);
  std::vector<json> records;
  for (int i = 0; i < 300; ++i) {
    json r = record(1 + random() % 20, 8 + 8 * (random() % 6), 8 + 8 * (random() % 6));
    r["config"] = i % 2, r["band"] = 1 + i % 64;
    records.push_back(r);
  }
  const Table t = table_of(records);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const json& r = records[i];
    std::size_t last = i;  // of equal shapes the last one counts
    for (std::size_t j = i + 1; j < records.size(); ++j)
      if (records[j]["m"] == r["m"] && records[j]["n"] == r["n"] && records[j]["k"] == r["k"]) last = j;
    const Entry* e = look_up(t, r["m"], r["n"], r["k"]);
    ASSERT_NE(e, nullptr) << r;
    EXPECT_EQ(e->m, r["m"].get<std::int64_t>()) << r;
    EXPECT_EQ(e->choice.raster.band, records[last]["band"].get<int>()) << r;
    EXPECT_EQ(e->choice.config, records[last]["config"].get<int>()) << r;
  }
}

TEST(TheTable, ServesAQuarterMoreOrFewerRowsByTheNearestEntry) {
  const Table t = table_of({record(1000, 64, 64), record(1200, 64, 64)});
  EXPECT_EQ(rows_of(look_up(t, 799, 64, 64)), 0);
  EXPECT_EQ(rows_of(look_up(t, 800, 64, 64)), 1000);
  EXPECT_EQ(rows_of(look_up(t, 1000, 64, 64)), 1000);
  EXPECT_EQ(rows_of(look_up(t, 1095, 64, 64)), 1000) << "below the geometric mean";
  EXPECT_EQ(rows_of(look_up(t, 1096, 64, 64)), 1200);
  EXPECT_EQ(rows_of(look_up(t, 1500, 64, 64)), 1200);
  EXPECT_EQ(rows_of(look_up(t, 1501, 64, 64)), 0);
}

TEST(TheTable, HasNothingForAnotherSideLayoutProgramOrDevice) {
  const Table t = table_of({record(1024, 64, 128)});
  EXPECT_EQ(rows_of(look_up(t, 1024, 64, 128)), 1024);
  EXPECT_EQ(look_up(t, 1024, 128, 64), nullptr);
  EXPECT_EQ(look_up(t, 1024, 64, 136), nullptr);
  EXPECT_EQ(look_up(t, 1024, 72, 128), nullptr);
  EXPECT_EQ(look_up(t, 1024, 64, 128, kOther), nullptr);
  EXPECT_EQ(look_up(t, 1024, 64, 128, kH100), nullptr);
  EXPECT_TRUE(t.part("gemm_rms", Layout::nn).empty());
  EXPECT_TRUE(t.part("gemm", Layout::nt).empty());
  EXPECT_TRUE(t.part("gemm_rms_rope", Layout::nt).empty());
  EXPECT_TRUE(t.part("", Layout::nt).empty());
  EXPECT_EQ(find({}, kH200, 1024, 64, 128), nullptr);
}

TEST(TheTable, ALaterFileIsInFrontOfAnEarlierOne) {
  Table t = table_of({record(1024, 64, 64), record(2048, 64, 64)});
  json r = record(1024, 64, 64);
  r["way"] = "unfused";
  t.add(file_of({r}), "mine");
  EXPECT_EQ(t.all().size(), 2U);
  EXPECT_EQ(look_up(t, 1024, 64, 64)->choice.way, Way::unfused);
  EXPECT_NE(look_up(t, 1024, 64, 64)->origin.find("mine"), std::string::npos);
  EXPECT_EQ(look_up(t, 2048, 64, 64)->choice.way, Way::fused);
  t.add(file_of({r}, kOther), "another device");
  EXPECT_EQ(t.all().size(), 3U);
}

TEST(TheTable, OfTheChipWithTheNearestMemoryServesADevice) {
  Table t = table_of({record(1024, 64, 64)});
  EXPECT_EQ(t.nearest(kH100), kH200) << "the only one with as many multiprocessors";
  t.add(file_of({record(2048, 64, 64)}, kH100), "H100");
  EXPECT_EQ(t.nearest(kH200), kH200);
  EXPECT_EQ(t.nearest(kH100), kH100);
  EXPECT_EQ(t.nearest({kSms, 3900}), kH100) << "3900 is 1.16 times 3352, and 4917 is 1.26 times 3900";
  EXPECT_EQ(t.nearest({kSms, 4100}), kH200);
  EXPECT_EQ(t.nearest({kSms, 8000}), kH200);
  EXPECT_EQ(t.nearest({kSms, 0}).multiprocessors, kSms) << "CUDA does not tell its bandwidth";
  EXPECT_EQ(t.nearest(kOther), kOther) << "nothing was measured";
  EXPECT_EQ(rows_of(look_up(t, 1024, 64, 64)), 1024);
  EXPECT_EQ(rows_of(look_up(t, 2048, 64, 64)), 0) << "what is measured on another chip changes nothing";
  EXPECT_EQ(rows_of(look_up(t, 2048, 64, 64, kH100)), 2048);
}

TEST(TheTable, OfNearlyTheSameMemoryIsThatOfTheSameChip) {
  constexpr Chip kOtherH200{kSms, 4814};
  json mine = record(1024, 64, 64);
  Table t = table_of({mine});
  t.add(file_of({record(1024, 64, 64)}, kH100), "H100");
  mine["way"] = "unfused";
  t.add(file_of({mine}, kOtherH200), "mine");
  EXPECT_EQ(t.nearest(kH200), kH200);
  EXPECT_EQ(t.nearest(kOtherH200), kH200);
  EXPECT_EQ(look_up(t, 1024, 64, 64)->choice.way, Way::unfused) << "one file serves all H200s";
  EXPECT_EQ(look_up(t, 1024, 64, 64, kH100)->choice.way, Way::fused);
}

TEST(TheTable, OfANewChipStartsWithThoseOfTheNearest) {
  constexpr Chip kOtherH200{kSms, 4300};
  json mine = record(2048, 64, 64), shipped = record(1024, 64, 64);
  Table t = table_of({shipped, record(4096, 64, 64)});
  mine["way"] = shipped["way"] = "unfused";
  t.add(file_of({mine, shipped}, kOtherH200), "mine");
  EXPECT_EQ(t.nearest(kOtherH200), kOtherH200);
  EXPECT_EQ(look_up(t, 1024, 64, 64, kOtherH200)->choice.way, Way::unfused) << "of the file";
  EXPECT_EQ(look_up(t, 2048, 64, 64, kOtherH200)->choice.way, Way::unfused) << "of the file";
  EXPECT_EQ(look_up(t, 4096, 64, 64, kOtherH200)->choice.way, Way::fused) << "of the chip that served it before";
  EXPECT_EQ(look_up(t, 1024, 64, 64)->choice.way, Way::fused) << "which is as it was";
  t.add(file_of({mine}, kOther), "of a chip with other multiprocessors");
  EXPECT_EQ(look_up(t, 1024, 64, 64, kOther), nullptr);
}

TEST(TheTable, RefusesABrokenFileNamingTheMemberAndStaysAsItWas) {
  Table t = table_of({record(1024, 64, 64)});
  const auto refuses = [&](const std::string& text, const std::vector<std::string>& parts) {
    try {
      t.add(text, "my.json");
      ADD_FAILURE() << "taken: " << text.substr(0, 200);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::invalid_argument);
      const std::string what = e.what();
      EXPECT_EQ(what.rfind("my.json", 0), 0U) << what;
      for (const std::string& part : parts) EXPECT_NE(what.find(part), std::string::npos) << what << "\nlacks " << part;
    }
    EXPECT_EQ(t.all().size(), 1U);
  };
  refuses("", {"JSON"});
  refuses("not JSON", {"JSON"});
  refuses(file_of({record(8, 8, 8)}).substr(0, 60), {"JSON"});
  refuses("[]", {"expected an object", "array"});
  refuses("{}", {"device", "got none"});
  refuses(R"({"device": "x", "multiprocessors": 132, "memory_gbs": 1, "cublaslt": "1"})",
          {"records", "a list", "none"});
  refuses(file_of({}, {0, 1}), {"multiprocessors", "1 to 1024", "got 0"});
  refuses(file_of({}, {132, 0}), {"memory_gbs", "1 to 1048576", "got 0"});
  refuses(file_of({1}), {"records[0]", "an object"});
  const auto with = [](const char* member, const json& value) {
    json r = record(8, 8, 8);
    r[member] = value;
    return file_of({record(2048, 8, 8), r});
  };
  refuses(with("program", 1), {"records[1].program", "a string", "got 1"});
  refuses(with("layout", "tt"), {"records[1].layout", "nt nn tn", "\"tt\""});
  refuses(with("way", "automatic"), {"records[1].way", "fused unfused"});
  refuses(with("m", 0), {"records[1].m", "from 1", "got 0"});
  refuses(with("n", 1.5), {"records[1].n", "an integer"});
  refuses(with("k", 18446744073709551615U), {"records[1].k", "18446744073709551615"});
  refuses(with("k", "8"), {"records[1].k", "\"8\""});
  refuses(with("config", -1), {"records[1].config", "got -1"});
  refuses(with("config", 16), {"records[1].config"});
  refuses(with("band", 0), {"records[1].band"});
  refuses(with("band", nullptr), {"records[1].band", "got null"});
  refuses(with("along", "k"), {"records[1].along", "one of m n"});
  const std::string open(200'000, '['), close(200'000, ']');
  refuses("{\"device\": " + open + close + "}", {"JSON"});
  refuses(with("layout", std::string(4000, 't')), {"nt nn tn", "ttt..."});
  refuses(with("ms", 0), {"records[1].ms", "above 0"});
  refuses(with("rule_ms", "fast"), {"records[1].rule_ms"});
  json without = record(8, 8, 8);
  without.erase("unfused_ms");
  refuses(file_of({without}), {"records[0].unfused_ms", "got none"});
  json versionless = parse_json(file_of({record(8, 8, 8)}));
  versionless.erase("cublaslt");
  refuses(versionless.dump(), {"cublaslt", "a string", "got none"});
  const auto with_algorithm = [](const json& algorithm) { return file_of({product(8, algorithm)}); };
  refuses(with_algorithm(7), {"records[0].algorithm", "an object"});
  json part = kAlgorithm;
  part["reduction"] = 1;
  refuses(with_algorithm(part), {"records[0].algorithm.reduction", "0 or 2", "got 1"});
  part = kAlgorithm;
  part["tile"] = -1;
  refuses(with_algorithm(part), {"records[0].algorithm.tile", "from 0", "got -1"});
  part.erase("tile");
  refuses(with_algorithm(part), {"records[0].algorithm.tile", "got none"});
  json missing = product(8, nullptr);
  missing.erase("algorithm");
  refuses(file_of({missing}), {"records[0].algorithm", "an object"});
  json ours = product_of_ours(8);
  ours.erase("band");
  refuses(file_of({ours}), {"records[0].band", "got none"});
  json wide = product_of_ours(8);
  wide["program"] = "product_fp32";
  refuses(file_of({wide}), {"records[0].way", "none for product_fp32", "fused"});
}

TEST(TheTable, HasAlgorithmsOfProductsByTheTypeOfTheOutput) {
  json wide = product(64, kAlgorithm);
  wide["program"] = "product_fp32";
  wide["algorithm"]["tile"] = 20;
  const Table t = table_of({product(64, kAlgorithm), wide, product(128, nullptr)});
  const auto of = [&](DType out, std::int64_t size) {
    return find(t.part(product_name(out), Layout::tn), kH200, size, size, size);
  };
  const Algorithm measured{.id = 66,
                           .tile = 197,
                           .stages = 35,
                           .split_k = 2,
                           .reduction = 2,
                           .swizzle = 1,
                           .custom = 2,
                           .inner_shape = 3,
                           .cluster_shape = 5};
  ASSERT_NE(of(DType::bf16, 64), nullptr);
  EXPECT_EQ(of(DType::bf16, 64)->algorithm, measured);
  EXPECT_EQ(of(DType::fp16, 64)->algorithm, measured);
  EXPECT_EQ(of(DType::fp32, 64)->algorithm.tile, 20);
  ASSERT_NE(of(DType::bf16, 128), nullptr);
  EXPECT_EQ(of(DType::bf16, 128)->algorithm, Algorithm()) << "cuBLASLt's own choice was the fastest";
  EXPECT_EQ(of(DType::fp32, 128), nullptr);
  EXPECT_EQ(of(DType::bf16, 64)->cublaslt, "130100");
  EXPECT_EQ(text_of(Algorithm()), "cuBLASLt's own choice");
  EXPECT_NE(text_of(measured).find("tile 197"), std::string::npos) << text_of(measured);
}

TEST_F(Choose, AKernelOfOursForAProductThatIsAsFast) {
  const FusedProgram& ours = *find_fused("product");
  json of_cublaslt = product(2048, kAlgorithm);
  of_cublaslt["layout"] = "nt";
  const Table t = table_of({product_of_ours(4096), of_cublaslt});
  const auto part = t.part("product", Layout::nt);
  const auto chosen = [&](std::int64_t size) {
    return choose(part, ours.rule, ours.configurations, size, size, size, kH200);
  };
  EXPECT_EQ(chosen(4096), (Choice{.way = Way::fused, .config = 0, .raster = {4, false}}));
  EXPECT_EQ(find(part, kH200, 4096, 4096, 4096)->algorithm.tile, 197) << "for matrices that no kernel of ours takes";
  EXPECT_EQ(chosen(2048).way, Way::unfused);
  EXPECT_EQ(chosen(8192), (Choice{.way = Way::fused, .config = 0, .raster = {}})) << "not measured";
  EXPECT_EQ(chosen(16384).way, Way::unfused) << "for long";
  EXPECT_EQ(ours.rule(64, 1 << 17, 4096, kH200).way, Way::unfused) << "few rows";
  EXPECT_EQ(ours.rule(8192, 8192, 8192, kH100).way, Way::unfused) << "slower memory";
}

TEST_F(Choose, AnAlgorithmOfAnotherVersionOfCublasLtIsNotUsed) {
  const Chip nearest = table().nearest(kH200);
  const Entry* measured = nullptr;
  for (const Entry& e : table().all())
    if (e.program == product_name(DType::bf16) && e.chip == nearest) measured = &e;
  ASSERT_NE(measured, nullptr) << "the table has no products";
  const Entry& e = *measured;
  const auto of = [&](const std::string& version) {
    return find_product(DType::bf16, e.layout, e.m, e.n, e.k, kH200, version);
  };
  EXPECT_EQ(of(e.cublaslt), &e);
  EXPECT_EQ(of(""), &e) << "any version";
  EXPECT_EQ(of(e.cublaslt + "1"), nullptr);
  EXPECT_EQ(find_product(DType::bf16, e.layout, 3 * e.m, e.n, e.k + 1, kH200, ""), nullptr);
}

TEST_F(Choose, TakesTheTablesChoiceElseTheRules) {
  json unfused = record(4096, 4096, 4096);
  unfused["way"] = "unfused";
  const Table t = table_of({record(1024, 1024, 1024), unfused});
  const auto part = t.part("gemm_rms", Layout::nt);
  const Rule rule;
  const auto chosen = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return choose(part, rule, 1, m, n, k, kH200);
  };
  EXPECT_EQ(chosen(1024, 1024, 1024), (Choice{.way = Way::fused, .config = 0, .raster = {4, false}}))
      << "where the rule would have it unfused";
  EXPECT_EQ(chosen(4096, 4096, 4096).way, Way::unfused) << "where the rule would have it fused";
  EXPECT_EQ(chosen(2048, 2048, 2048), rule(2048, 2048, 2048, kH200));
  EXPECT_EQ(choose({}, rule, 1, 1024, 1024, 1024, kH200), rule(1024, 1024, 1024, kH200));
}

TEST_F(Choose, LeavesAnEntryOfAConfigurationThatIsNotBuilt) {
  json second = record(1024, 1024, 1024);
  second["config"] = 1;
  const Table t = table_of({second});
  const auto part = t.part("gemm_rms", Layout::nt);
  EXPECT_EQ(choose(part, {}, 2, 1024, 1024, 1024, kH200).config, 1);
  EXPECT_EQ(choose(part, {}, 1, 1024, 1024, 1024, kH200), Rule()(1024, 1024, 1024, kH200));
}

TEST_F(Choose, DoesWhatTheThreadAsksFor) {
  const Table t = table_of({record(1024, 1024, 1024)});
  const auto part = t.part("gemm_rms", Layout::nt);
  const auto chosen = [&](std::int64_t size) { return choose(part, {}, 2, size, size, size, kH200); };
  set_way(Way::unfused);
  EXPECT_EQ(chosen(1024).way, Way::unfused);
  EXPECT_EQ(chosen(8192).way, Way::unfused);
  set_way(Way::fused);
  EXPECT_EQ(chosen(16), (Choice{.way = Way::fused, .config = 0, .raster = {}}));
  EXPECT_EQ(chosen(1024).raster.band, 4) << "as measured, otherwise";
  const Choice mine{.way = Way::fused, .config = 1, .raster = {2, true}, .tiles = 5};
  set_choice(mine);
  EXPECT_EQ(chosen_tiles(), 5);
  EXPECT_EQ(way(), Way::fused);
  EXPECT_EQ(chosen(16), mine);
  EXPECT_EQ(choose(part, {}, 1, 1024, 1024, 1024, kH200).way, Way::unfused) << "a configuration that is not built";
  std::thread([&] { EXPECT_EQ(chosen(16).way, Way::unfused) << "another thread asks for nothing"; }).join();
  set_way(Way::automatic);
  EXPECT_EQ(chosen_tiles(), 0);
  EXPECT_EQ(chosen(16).way, Way::unfused);
}

TEST(KeepsPace, WhereClustersDriftApartAndThatCostsMemoryOrPower) {
  EXPECT_TRUE(keeps_pace(8192, 8192, 8192, 31, kH100));
  EXPECT_FALSE(keeps_pace(8192, 8192, 8192, 31, kH200));
  EXPECT_TRUE(keeps_pace(16384, 24576, 4096, 186, kH200));
  EXPECT_FALSE(keeps_pace(16384, 24576, 4095, 186, kH200));
  EXPECT_TRUE(keeps_pace(128, 128, 64, 8, kH100));
  EXPECT_FALSE(keeps_pace(128, 128, 64, 7, kH100));
  EXPECT_FALSE(keeps_pace(1 << 20, 896, std::int64_t{1} << 30, 7, kH200));
}

TEST(TheShippedTables, AreReadAndNameOnlyWhatIsBuilt) {
  Table from_file;
  std::set<std::filesystem::path> in_order;  // a chip may begin with the entries of the one before
  for (const auto& entry : std::filesystem::directory_iterator(CODA_SOURCE_DIR "/coda/backend/sm90/tuning"))
    in_order.insert(entry.path());
  for (const std::filesystem::path& path : in_order) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    ASSERT_NO_THROW(from_file.add(text.str(), path.filename().string()));
  }
  EXPECT_EQ(from_file.nearest(kH100), kH100);
  EXPECT_NEAR(from_file.nearest(kH200).memory_gbs, kH200.memory_gbs, 0.05 * kH200.memory_gbs);
  for (const Entry& e : from_file.all()) {
    EXPECT_FALSE(e.cublaslt.empty());
    if (is_product(e.program) && e.choice.way == Way::unfused) continue;
    const FusedProgram* p = find_fused(e.program);
    ASSERT_NE(p, nullptr) << e.program;
    EXPECT_TRUE(e.layout == Layout::nt ? p->nt : e.layout == Layout::nn && p->nn) << e.program;
    EXPECT_LT(e.choice.config, p->configurations) << e.program << " " << e.m << " " << e.n << " " << e.k;
    EXPECT_TRUE(p->measured_as.empty()) << e.program << " is served by the entries of " << p->measured_as;
    const double most = is_product(e.program) ? 1.01 * e.rule_ms : e.rule_ms;  // ours also where it is as fast
    EXPECT_LE(e.ms, most) << e.program << " " << e.m << " " << e.n << " " << e.k;
  }
  if (user_table().path.empty()) {
    EXPECT_EQ(table().all().size(), from_file.all().size()) << "the library has others: build it again";
  }
}

TEST(FusedPrograms, AreNamedOnceAndServedByOneThatIs) {
  for (const FusedProgram& p : kFusedPrograms) {
    EXPECT_EQ(find_fused(p.name), &p) << p.name;
    EXPECT_TRUE(p.nt || p.nn) << p.name;
    EXPECT_GE(p.configurations, 1) << p.name;
    if (p.measured_as.empty()) continue;
    const FusedProgram* other = find_fused(p.measured_as);
    ASSERT_NE(other, nullptr) << p.name;
    EXPECT_TRUE(other->measured_as.empty() && other->nt >= p.nt && other->nn >= p.nn) << p.name;
    EXPECT_EQ(other->configurations, p.configurations) << p.name;
  }
}

class Explain : public testing::Test {
 protected:
  static Explanation of(std::string_view program, std::int64_t m, std::int64_t n, std::int64_t k,
                        Layout layout = Layout::nt, DType dtype = DType::bf16, std::int64_t head_dim = 0) {
    return explain(program, dtype, layout, m, n, k, head_dim, kH200);
  }
  static void expect_unfused(const Explanation& x, const char* part) {
    EXPECT_EQ(x.choice.way, Way::unfused);
    EXPECT_NE(x.why.find(part), std::string::npos) << x.why << "\nlacks " << part;
  }
};

TEST_F(Explain, SaysWhyNoFusedKernelTakesACall) {
  expect_unfused(of("gemm_layernorm_backward", 8192, 8192, 8192), "no fused kernel is built for it");
  expect_unfused(of("gemm_rms", 8192, 8192, 8192, Layout::nn), "layout nn");
  expect_unfused(of("gemm_rms_backward", 8192, 8192, 8192, Layout::nt), "layout nt");
  expect_unfused(of("gemm", 8192, 8192, 8192, Layout::tn), "layout tn");
  expect_unfused(of("gemm", 8192, 8192, 8192, Layout::nt, DType::fp32), "not fp32");
  expect_unfused(of("gemm_rms", 8192, 8190, 8192), "multiples of 8");
  expect_unfused(of("gemm_rms", 8192, 8192, 8190), "multiples of 8");
  expect_unfused(of("gemm_rms_rope", 8192, 8192, 8192, Layout::nt, DType::bf16, 80), "not 80");
  expect_unfused(of("gemm_rms_qknorm_rope", 8192, 8192, 8192, Layout::nt, DType::bf16, 96), "not 96");
}

TEST_F(Explain, AsksTheRuleForTheChipByWhoseTableACallGoes) {
  // Of no table; slower memory than a rule for the nearest one's takes, which calls are chosen by.
  const Chip between{kSms, 4022}, nearest = table().nearest(between);
  ASSERT_NE(between.has_fast_memory(), nearest.has_fast_memory());
  int fused = 0;
  for (const FusedProgram& p : kFusedPrograms) {
    const Layout layout = p.nt ? Layout::nt : Layout::nn;
    for (const std::int64_t m : {256, 1048, 30000}) {
      const Choice choice =
          choose(table().part(measured_as(p.name), layout), p.rule, p.configurations, m, 10248, 9000, between);
      const Choice called =
          choose(table().part(measured_as(p.name), layout), p.rule, p.configurations, m, 10248, 9000, nearest);
      const Choice told = explain(p.name, DType::bf16, layout, m, 10248, 9000, 64, between).choice;
      EXPECT_EQ(told, called) << p.name << ", M = " << m;
      fused += choice != called;
    }
  }
  EXPECT_GT(fused, 0) << "nothing tells the two chips apart";
}

TEST_F(Explain, TellsTheRuleForAShapeThatWasNotMeasured) {
  const Explanation x = of("gemm_rms_reglu", 8191, 8184, 8000);
  EXPECT_EQ(x.choice, (Rule{.few_rows = 1, .lean = 2}(8191, 8184, 8000, kH200)));
  EXPECT_EQ(x.entry, nullptr);
  EXPECT_NE(x.why.find("not measured"), std::string::npos) << x.why;
  expect_unfused(of("gemm_rms_backward", 3, 8184, 8000, Layout::nn), "65 rows");
  const Explanation few = of("gemm_rms", 3, 8184, 8000);
  EXPECT_EQ(few.choice, (Choice{.way = Way::fused, .config = 1}));
  EXPECT_NE(few.why.find("splits K"), std::string::npos) << few.why;
  EXPECT_EQ(text_of(few.choice, few.splits_k), "fused, configuration 1, which splits K");
  const Explanation lean = of("gemm_rms", 16384, 16384, 9000);
  EXPECT_EQ(lean.choice, (Choice{.way = Way::fused, .config = 2}));
  EXPECT_NE(lean.why.find("from K = 8192 on configuration 2, which draws less power, for M N K = 2^41 or more and at "
                          "least 12 tiles of 256 x 128 for each multiprocessor"),
            std::string::npos)
      << lean.why;
  const Explanation slow = explain("gemm_rms", DType::bf16, Layout::nt, 16383, 16384, 9000, 0, table().nearest(kH100));
  EXPECT_EQ(slow.choice, (Choice{.way = Way::fused, .config = 2}));
  EXPECT_NE(slow.why.find("from K = 4096 on configuration 2, which draws less power, where tiles of 256 x 128 take"),
            std::string::npos)
      << slow.why;
  EXPECT_FALSE(x.splits_k);
}

TEST_F(Explain, TellsHowTilesGoRound) {
  EXPECT_EQ(text_of(Rounds{66, 8, 0, {}}, 128, 64), "8 of 66 tiles of 128 x 256");
  EXPECT_EQ(text_of(rounds_of(512, 64, kSms), 128, 64), "7 of 66 tiles of 128 x 256, and one of 50");
  EXPECT_EQ(text_of(rounds_of(2048, 128, kSms), 128, 128),
            "31 of 66 tiles of 128 x 256, and one of 2, of whose 128 steps along K their clusters do 16 and others the "
            "rest");
  const Explanation lean = explain("gemm_rms", DType::bf16, Layout::nt, 16384, 16384, 9000, 0, kH200);
  EXPECT_EQ(lean.tile_m, 256);
  ASSERT_TRUE(lean.rounds);
  EXPECT_EQ(lean.rounds->full, 62);
  EXPECT_EQ(lean.rounds->left, 4);
  EXPECT_FALSE(explain("gemm_rms", DType::bf16, Layout::nt, 3, 8184, 8000, 0, kH200).rounds);
}

TEST_F(Explain, SaysWhatChooseDoes) {
  const Chip chip = table().nearest(kH200);
  for (const FusedProgram& p : kFusedPrograms) {
    const std::string_view measured_as = p.measured_as.empty() ? p.name : p.measured_as;
    for (const Layout layout : {Layout::nt, Layout::nn}) {
      if (!(layout == Layout::nt ? p.nt : p.nn)) continue;
      for (const std::int64_t m : {1, 64, 65, 256, 1000, 2048, 4096, 8192, 16384}) {
        const Explanation x = of(p.name, m, 4096, 4096, layout);
        const auto part = table().part(measured_as, layout);
        EXPECT_EQ(x.choice, choose(part, p.rule, p.configurations, m, 4096, 4096, chip)) << p.name << " M = " << m;
      }
    }
  }
}

}  // namespace
}  // namespace coda::sm90
