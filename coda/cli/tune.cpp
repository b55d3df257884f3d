// `coda tune`: measures what each program may run as on this machine's GPU, and writes the table that the library
// reads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/gpu/groups.h"
#include "coda/backend/sm90/choice.h"
#include "coda/backend/sm90/timing.h"
#include "coda/cli/arguments.h"
#include "coda/cli/commands.h"
#include "coda/cli/progress.h"
#include "coda/cli/table.h"
#include "coda/core/build_info.h"
#include "coda/core/error.h"

namespace coda::cli {
namespace {

using json = nlohmann::ordered_json;
using sm90::Choice, sm90::Way;

struct Arguments {
  std::vector<std::string> programs, shapes;
  std::string out;
  bool as_json = false;
};

/// A choice is taken instead of the rule's if it is faster by more than the medians of two runs differ.
constexpr double kGain = 1.02;
constexpr int kBands[] = {2, 4, 8, 16};
constexpr Choice kUnfused{.way = Way::unfused};

struct Row {
  std::string program;
  bench::Shape shape;
  Layout layout;
  Choice choice, rule;
  double ms, rule_ms, unfused_ms;
};

struct Measured {
  Choice choice;
  std::unique_ptr<sm90::Candidate> candidate;
};

std::string tunable_names() {
  std::string names;
  for (const bench::Program& p : bench::programs())
    if (*p.tunes) names += fmt::format("{}{}", names.empty() ? "" : ", ", p.tunes);
  return names;
}

bool wanted(const bench::Program& p, const Arguments& a) {
  return *p.tunes &&
         (a.programs.empty() || std::find(a.programs.begin(), a.programs.end(), p.tunes) != a.programs.end());
}

/// The groups of shapes to measure, with the programs that were asked for.
std::vector<bench::Group> groups_of(const Arguments& a) {
  for (const std::string& name : a.programs) {
    const auto& all = bench::programs();
    if (std::none_of(all.begin(), all.end(), [&](const bench::Program& p) { return *p.tunes && p.tunes == name; }))
      throw CLI::ValidationError("programs", fmt::format("expected some of {}, got `{}`", tunable_names(), name));
  }
  bench::Groups groups;
  for (const Shape& s : parse_shapes(a.shapes)) groups.add_all({s.m, s.n, s.k});
  if (a.shapes.empty()) groups = bench::standard_groups(false);
  std::vector<bench::Group> out;
  for (bench::Group g : groups.all()) {
    std::erase_if(g.programs, [&](const bench::Program* p) { return !wanted(*p, a) || g.shape.n % p->columns != 0; });
    if (!g.programs.empty()) out.push_back(std::move(g));
  }
  return out;
}

/// Unfused, and each configuration with each raster, the rule's among them.
std::vector<Choice> choices_of(const sm90::FusedProgram& program, const bench::Shape& s) {
  std::vector<Choice> all{kUnfused};
  if (!sm90::sides_fit(s.n, s.k)) return all;
  const auto add = [&](const Choice& c) {
    if (std::find(all.begin(), all.end(), c) == all.end()) all.push_back(c);
  };
  for (int config = 0; config < program.configurations; ++config) {
    add({.way = Way::fused, .config = config, .raster = program.rule.raster});
    for (const int band : kBands)
      for (const bool along_m : {true, false})
        add({.way = Way::fused, .config = config, .raster = {.band = band, .along_m = along_m}});
  }
  return all;
}

class Tuner {
 public:
  explicit Tuner(int multiprocessors) : multiprocessors_(multiprocessors) {}

  Row measure(const bench::Group& group, const bench::Program& program, const bench::Arguments& arguments) {
    const bench::Shape& s = group.shape;
    const sm90::FusedProgram& fused = *sm90::find_fused(program.tunes);
    const Choice rule = sm90::sides_fit(s.n, s.k) ? fused.rule(s.m, s.n, multiprocessors_) : kUnfused;
    std::vector<Measured> all;
    for (const Choice& choice : choices_of(fused, s)) {
      const auto launch = [&](void* stream) {
        sm90::set_choice(choice);
        program.run(arguments, stream);
        sm90::set_way(Way::automatic);
      };
      const std::string label = fmt::format("{} {}", program.tunes, sm90::text_of(choice));
      all.push_back({choice, std::make_unique<sm90::Candidate>(label, launch, flush_, stream_.get())});
    }
    // A short look at all, then a long one at those that may be the best.
    rounds(all, 3, 1);
    const double best = fastest(all).candidate->median();
    const double unfused_ms = all.front().candidate->median();
    std::erase_if(all, [&](const Measured& m) { return m.choice != rule && m.candidate->median() > 1.04 * best; });
    rounds(all, std::clamp(static_cast<int>(300 / best / static_cast<double>(all.size())), 7, 25), 0);

    const auto of_rule = std::find_if(all.begin(), all.end(), [&](const Measured& m) { return m.choice == rule; });
    const double rule_ms = of_rule->candidate->median();
    const Measured& winner = fastest(all);
    const bool gains = winner.candidate->median() * kGain < rule_ms;
    return {.program = program.tunes,
            .shape = s,
            .layout = group.layout,
            .choice = gains ? winner.choice : rule,
            .rule = rule,
            .ms = gains ? winner.candidate->median() : rule_ms,
            .rule_ms = rule_ms,
            .unfused_ms = unfused_ms};
  }

  const bench::Noise& noise() const { return noise_; }

 private:
  void rounds(const std::vector<Measured>& all, int count, int warm_up) {
    std::vector<sm90::Candidate*> candidates;
    candidates.reserve(all.size());
    for (const Measured& m : all) candidates.push_back(m.candidate.get());
    sm90::interleave(candidates, stream_.get(), count, warm_up);
  }
  static const Measured& fastest(const std::vector<Measured>& all) {
    return *std::min_element(all.begin(), all.end(), [](const Measured& x, const Measured& y) {
      return x.candidate->median() < y.candidate->median();
    });
  }

  int multiprocessors_;
  sm90::Stream stream_;
  bench::Noise noise_;
  sm90::DeviceBuffer flush_{std::size_t{256} << 20};
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}
/// The display driver's version, which CUDA does not tell.
std::string driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  return "unknown";
}
std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

json as_json(const sm90::DeviceInfo& device, const std::vector<Row>& rows, double seconds) {
  json j{{"command", "tune"},
         {"device", device.name},
         {"multiprocessors", device.multiprocessors},
         {"driver", driver()},
         {"cuda_driver", version(device.driver)},
         {"cuda", version(device.runtime)},
         {"cutlass", device.cutlass},
         {"cublaslt", device.cublaslt},
         {"commit", build_info().commit},
         {"date", today()},
         {"seconds", std::round(seconds)},
         {"method",
          "graph replay, L2 flushed before each, interleaved, medians; another choice than the rule's where it "
          "is more than 2 % faster"},
         {"records", json::array()}};
  const auto rounded = [](double ms) { return std::round(ms * 1e5) / 1e5; };
  for (const Row& r : rows)
    j["records"].push_back({{"program", r.program},
                            {"dtype", "bf16"},
                            {"layout", coda::name_of(r.layout)},
                            {"m", r.shape.m},
                            {"n", r.shape.n},
                            {"k", r.shape.k},
                            {"way", sm90::name_of(r.choice.way)},
                            {"config", r.choice.config},
                            {"band", r.choice.raster.band},
                            {"along", r.choice.raster.along_m ? "m" : "n"},
                            {"ms", rounded(r.ms)},
                            {"rule_ms", rounded(r.rule_ms)},
                            {"unfused_ms", rounded(r.unfused_ms)}});
  return j;
}

/// One record a line: a table that is compared and kept in a repository.
std::string lines_of(json j) {
  const json records = j["records"];
  j.erase("records");
  std::string text = j.dump(2);
  text.resize(text.size() - 2);  // without "\n}"
  text += ",\n  \"records\": [\n";
  for (std::size_t i = 0; i < records.size(); ++i)
    text += "    " + records[i].dump() + (i + 1 < records.size() ? ",\n" : "\n");
  return text + "  ]\n}\n";
}

void print(const std::vector<Row>& rows) {
  Table table({"program", "layout", "shape", "choice", "ms", "rule ms", "unfused ms", "rule/choice"});
  for (const Row& r : rows)
    table.add({r.program, coda::name_of(r.layout), to_string({r.shape.m, r.shape.n, r.shape.k}),
               r.choice == r.rule ? "the rule's" : sm90::text_of(r.choice), fmt::format("{:.4f}", r.ms),
               fmt::format("{:.4f}", r.rule_ms), fmt::format("{:.4f}", r.unfused_ms),
               fmt::format("{:.2f}", r.rule_ms / r.ms)});
  table.print(4);
}

void tune(const Arguments& a) {
  const std::vector<bench::Group> groups = groups_of(a);
  if (std::string why; !sm90::available(&why))
    throw Error(Status::unsupported, fmt::format("tune: expected a Hopper GPU, but {}", why));
  std::ofstream out;
  if (!a.out.empty()) {  // before the minutes that measuring takes
    out.open(a.out, std::ios::app);
    if (!out) throw Error(Status::io_error, fmt::format("tune: --out: expected a file to write, got {}", a.out));
    out.close();
  }
  const sm90::DeviceInfo device = sm90::device_info();
  std::int64_t total = 0, done = 0;
  for (const bench::Group& g : groups) total += static_cast<std::int64_t>(g.programs.size());
  CaseProgress progress("tune", total);
  Tuner tuner(device.multiprocessors);
  std::vector<Row> rows;
  for (const bench::Group& g : groups) {
    if (!g.fits_in_memory()) continue;
    const bench::Arguments arguments(g.shape, g.needs(), tuner.noise(), g.head_dim);
    for (const bench::Program* p : g.programs) {
      progress.update(done++, fmt::format("{} {}", p->tunes, to_string({g.shape.m, g.shape.n, g.shape.k})));
      rows.push_back(tuner.measure(g, *p, arguments));
    }
  }
  progress.finish();
  const json j = as_json(device, rows, progress.seconds());
  if (!a.out.empty()) {
    out.open(a.out, std::ios::trunc);
    out << lines_of(j);
    out.close();
    if (!out) throw Error(Status::io_error, fmt::format("tune: --out: could not write {}", a.out));
  }
  if (a.as_json) fmt::print("{}\n", j.dump(1));
  else print(rows);
}

}  // namespace

void add_tune(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("tune", "Measure which kernel is fastest for each shape on this machine's GPU");
  const auto a = std::make_shared<Arguments>();
  command->add_option("programs", a->programs, fmt::format("Of {}; none: all of them", tunable_names()));
  command->add_option("--shape", a->shapes, "MxNxK of the product: a list by commas; none: those of the benchmarks")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--out", a->out, "Write the table to this file");
  command->add_flag("--json", a->as_json, "Print one JSON document");
  command->footer(
      "Each program is timed in its usual layout, bf16 (fp16 runs the same instructions and follows the same table):\n"
      "every configuration that the library has, with several orders of the tiles, and the unfused way. The library\n"
      "reads the file that the environment variable CODA_TUNING names, in front of the table that it ships with. An\n"
      "entry serves other M that differ by at most a quarter, and devices with as many multiprocessors. Results of "
      "two\n"
      "ways of running a program may differ in the last bit: use one table wherever bits must be the same.\n"
      "Examples:\n"
      "  coda tune --out my.json                                      two minutes or so\n"
      "  coda tune gemm_rms_swiglu --shape 512x28672x4096 --out my.json\n"
      "  CODA_TUNING=my.json coda info --explain gemm_rms_swiglu 512 28672 4096");
  command->callback([a] { tune(*a); });
}

}  // namespace coda::cli
