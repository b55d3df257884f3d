// `coda tune`: measures what each program may run as on this machine's GPU, and writes the table that the library
// reads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "coda/backend/sm90/choice.h"
#include "coda/cli/arguments.h"
#include "coda/cli/commands.h"
#include "coda/cli/interrupt.h"
#include "coda/cli/progress.h"
#include "coda/cli/result_file.h"
#include "coda/cli/sm90/groups.h"
#include "coda/cli/sm90/meter.h"
#include "coda/cli/sm90/records.h"
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
  Shape shape;
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
  bench::Selection selection;
  for (const bench::Program& p : bench::programs())
    if (wanted(p, a)) selection.programs.push_back(&p);
  bench::Groups groups(std::move(selection));
  for (const Shape& s : parse_shapes(a.shapes)) groups.add_all(s);
  if (a.shapes.empty()) groups.add_squares(), groups.add_few_rows(), groups.add_models();
  return groups.all();
}

/// Unfused, and each configuration with each raster, the rule's among them.
std::vector<Choice> choices_of(const sm90::FusedProgram& program, const Shape& s) {
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
    const Shape& s = group.shape;
    const sm90::FusedProgram& fused = *sm90::find_fused(program.tunes);
    const Choice rule = sm90::sides_fit(s.n, s.k) ? fused.rule(s.m, s.n, multiprocessors_) : kUnfused;
    std::vector<Measured> all;
    for (const Choice& choice : choices_of(fused, s)) {
      const auto launch = [&](void* stream) {
        sm90::set_choice(choice);
        program.run(arguments, group.layout, stream);
        sm90::set_way(Way::automatic);
      };
      const std::string label = fmt::format("{} {}", program.tunes, sm90::text_of(choice));
      all.push_back({choice, meter_.candidate(label, launch)});
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

  const bench::Noise& noise() const { return meter_.noise(); }

 private:
  void rounds(const std::vector<Measured>& all, int count, int warm_up) {
    std::vector<sm90::Candidate*> candidates;
    candidates.reserve(all.size());
    for (const Measured& m : all) candidates.push_back(m.candidate.get());
    meter_.interleave(candidates, count, warm_up);
  }
  static const Measured& fastest(const std::vector<Measured>& all) {
    return *std::min_element(all.begin(), all.end(), [](const Measured& x, const Measured& y) {
      return x.candidate->median() < y.candidate->median();
    });
  }

  int multiprocessors_;
  bench::Meter meter_;
};

json as_json(const sm90::DeviceInfo& device, const std::vector<Row>& rows, double seconds) {
  json j{{"command", "tune"}, {"multiprocessors", device.multiprocessors}, {"memory_gbs", device.memory_gbs}};
  j.update(provenance(device, build_info().commit));
  j.update({{"seconds", std::round(seconds)},
            {"method",
             "graph replay, L2 flushed before each, interleaved, medians; another choice than the rule's where it "
             "is more than 2 % faster"},
            {"records", json::array()}});
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
                            {"ms", bench::rounded(r.ms, 5)},
                            {"rule_ms", bench::rounded(r.rule_ms, 5)},
                            {"unfused_ms", bench::rounded(r.unfused_ms, 5)}});
  return j;
}

void print(const std::vector<Row>& rows) {
  Table table({"program", "layout", "shape", "choice", "ms", "rule ms", "unfused ms", "rule/choice"});
  for (const Row& r : rows)
    table.add({r.program, coda::name_of(r.layout), to_string(r.shape),
               r.choice == r.rule ? "the rule's" : sm90::text_of(r.choice), fmt::format("{:.4f}", r.ms),
               fmt::format("{:.4f}", r.rule_ms), fmt::format("{:.4f}", r.unfused_ms),
               fmt::format("{:.2f}", r.rule_ms / r.ms)});
  table.print(4);
}

void tune(const Arguments& a) {
  const std::vector<bench::Group> groups = groups_of(a);
  if (std::string why; !sm90::available(&why))
    throw Error(Status::unsupported, fmt::format("tune: expected a Hopper GPU, but {}", why));
  if (!a.out.empty()) require_writable(a.out, "tune: --out");
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
      progress.update(done++, fmt::format("{} {}", p->tunes, to_string(g.shape)));
      rows.push_back(tuner.measure(g, *p, arguments));
    }
  }
  progress.finish();
  const json j = as_json(device, rows, progress.seconds());
  if (!a.out.empty()) write_result_file(a.out, j, "tune: --out");
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
      "entry serves other M that differ by at most a quarter, and devices with as many multiprocessors whose memory "
      "is\n"
      "about as fast. Results of two ways of running a program may differ in the last bit: use one table wherever "
      "bits\n"
      "must be the same.\n"
      "Examples:\n"
      "  coda tune --out my.json                                      two minutes or so\n"
      "  coda tune gemm_rms_swiglu --shape 512x28672x4096 --out my.json\n"
      "  CODA_TUNING=my.json coda info --explain gemm_rms_swiglu 512 28672 4096");
  command->callback([a] { interruptible("tune", [&] { tune(*a); }); });
}

}  // namespace coda::cli
