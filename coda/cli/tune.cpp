// `coda tune`: measures what each program may run as on this machine's GPU, and writes the table that the library
// reads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "coda/backend/sm90/blas.h"
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
constexpr double kGain = 1.01;
/// From so many milliseconds on candidates are timed alone: their power sets their clock. What that changed for shorter
/// work was within what two runs differ by.
constexpr double kPowerBoundMs = 6;
/// Below so many milliseconds the host may be what bounds.
constexpr double kShortMs = 0.1;
constexpr int kBands[] = {2, 4, 8, 16};
constexpr Choice kUnfused{.way = Way::unfused};

/// What a call may run as: a choice, and an algorithm where that is cuBLASLt's product alone.
struct Candidate {
  Choice choice;
  std::optional<sm90::Algorithm> algorithm;
  std::unique_ptr<sm90::Candidate> timed;
};

struct Row {
  std::string program;
  Shape shape;
  Layout layout;
  Choice choice = kUnfused, rule = kUnfused;  // that of a product: cuBLASLt's own choice
  sm90::Algorithm algorithm = {};
  double ms = 0, rule_ms = 0, unfused_ms = 0;

  bool is_product() const { return sm90::is_product(program); }
  /// Of a product that is cuBLASLt's there is nothing to choose but the algorithm.
  bool has_choice() const { return !is_product() || choice != kUnfused; }
  bool is_rule() const { return choice == rule && algorithm == sm90::Algorithm(); }
  std::string text() const {
    if (!has_choice()) return sm90::text_of(algorithm);
    return is_rule() ? "the rule's" : sm90::text_of(choice);
  }
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
      throw UsageError("programs", fmt::format("expected some of {}, got `{}`", tunable_names(), name));
  }
  bench::Selection selection;
  for (const bench::Program& p : bench::programs())
    if (wanted(p, a)) selection.programs.push_back(&p);
  bench::Groups groups(std::move(selection));
  for (const Shape& s : parse_shapes(a.shapes)) groups.add_all(s), groups.add_products(s);
  if (a.shapes.empty()) groups.add_squares(), groups.add_few_rows(), groups.add_models(), groups.add_products();
  return groups.all();
}

/// Each configuration with each raster, the rule's among them.
std::vector<Choice> fused_choices_of(const sm90::FusedProgram& program, std::int64_t m, const sm90::Chip& chip) {
  std::vector<Choice> all;
  const auto add = [&](const Choice& c) {
    if (std::find(all.begin(), all.end(), c) == all.end()) all.push_back(c);
  };
  for (int config = 0; config < program.configurations; ++config) {
    add({.way = Way::fused, .config = config, .raster = program.rule.raster(config, m, chip)});
    if (config == program.rule.few_rows) continue;  // whose tiles all run at once
    for (const int band : kBands)
      for (const bool along_m : {true, false})
        add({.way = Way::fused, .config = config, .raster = {.band = band, .along_m = along_m}});
  }
  return all;
}

class Tuner {
 public:
  explicit Tuner(const sm90::Chip& chip) : chip_(chip) {}

  /// Ahead of what is measured of another shape, whose work may draw more power or less.
  void begin_shape() { warm_up_ms_ = bench::kWarmUpMs; }
  Row measure(const bench::Group& group, const bench::Program& program, const bench::Arguments& arguments) {
    const Shape& s = group.shape;
    const sm90::FusedProgram* fused = sm90::find_fused(program.tunes);
    Row row{.program = program.tunes, .shape = s, .layout = group.layout};
    std::vector<Candidate> all;
    const auto add = [&](const Choice& choice, const std::optional<sm90::Algorithm>& algorithm) {
      const auto launch = [&, choice, algorithm](void* stream) {
        sm90::set_choice(choice);
        sm90::set_algorithm(algorithm);
        program.run(arguments, group.layout, stream);
        sm90::set_algorithm({});
        sm90::set_way(Way::automatic);
      };
      const std::string text = algorithm ? sm90::text_of(*algorithm) : sm90::text_of(choice);
      all.push_back({choice, algorithm, meter_.candidate(fmt::format("{} {}", program.tunes, text), launch)});
    };
    if (row.is_product()) {
      const DType out = program.needs.fp32 ? DType::fp32 : DType::bf16;
      for (const sm90::Algorithm& x : sm90::algorithms("tune", DType::bf16, out, group.layout, s.m, s.n, s.k))
        add(kUnfused, x);
    } else {
      add(kUnfused, {});
    }
    if (fused && group.layout != Layout::tn && sm90::sides_fit(s.n, s.k)) {
      if (!row.is_product()) row.rule = fused->rule(s.m, s.n, s.k, chip_);
      for (const Choice& choice : fused_choices_of(*fused, s.m, chip_)) add(choice, {});
    }
    return decide(row, std::move(all));
  }

  const bench::Noise& noise() const { return meter_.noise(); }

 private:
  /// Completes the row: the fastest of all, or the rule's if none is faster by enough. Of long work alone, since in
  /// turn all have one clock, whatever power each draws.
  Row decide(Row row, std::vector<Candidate> all) {
    const auto is_rule = [&](const Candidate& c) {
      return c.choice == row.rule && c.algorithm.value_or(sm90::Algorithm()) == sm90::Algorithm();
    };
    // A short look at all, then a long one at those that may be the best.
    const sm90::Candidate* const unfused = all.front().timed.get();
    rounds(all, 3, std::exchange(warm_up_ms_, 0));
    const double best = fastest_of(all).timed->median();
    row.unfused_ms = unfused->median();
    if (best >= kPowerBoundMs) {
      keep_fastest_of_each_configuration(
          all, [&](const Candidate& c) { return is_rule(c) || c.timed.get() == unfused; }, 1.2 * best);
      meter_.each_alone(timed(all));
      row.unfused_ms = unfused->median();
    } else {
      std::erase_if(all, [&](const Candidate& c) { return !is_rule(c) && c.timed->median() > 1.03 * best; });
      rounds(all, std::clamp(static_cast<int>(400 / best / static_cast<double>(all.size())), 9, 40));
    }

    const Candidate& rule = *std::find_if(all.begin(), all.end(), is_rule);
    row.rule_ms = rule.timed->median();
    const auto or_rule = [&](const Candidate& c) -> const Candidate& {
      return c.timed->median() * kGain < row.rule_ms ? c : rule;
    };
    const Candidate* winner = &or_rule(fastest_of(all));
    if (row.is_product()) {
      const Candidate& theirs = or_rule(*fastest_where(all, Way::unfused));
      row.algorithm = *theirs.algorithm, row.unfused_ms = theirs.timed->median();
      // Of short work, if both are as fast, ours: it takes less of the host's time.
      const Candidate* ours = fastest_where(all, Way::fused);
      const double most = row.unfused_ms < kShortMs ? kGain * row.unfused_ms : row.unfused_ms;
      winner = ours && ours->timed->median() <= most ? ours : &theirs;
    }
    row.choice = winner->choice, row.ms = winner->timed->median();
    return row;
  }
  /// And what is to be kept, others only if they take at most `most_ms`.
  template <class Keep>
  static void keep_fastest_of_each_configuration(std::vector<Candidate>& all, const Keep& keep, double most_ms) {
    std::map<std::pair<Way, int>, const sm90::Candidate*> fastest;
    const auto of = [&](const Candidate& c) -> auto& { return fastest[{c.choice.way, c.choice.config}]; };
    for (const Candidate& c : all)
      if (!of(c) || c.timed->median() < of(c)->median()) of(c) = c.timed.get();
    std::erase_if(all, [&](const Candidate& c) {
      const bool may_win = of(c) == c.timed.get() && c.timed->median() <= most_ms;
      return !may_win && !keep(c);
    });
  }
  static std::vector<sm90::Candidate*> timed(const std::vector<Candidate>& all) {
    std::vector<sm90::Candidate*> pointers;
    pointers.reserve(all.size());
    for (const Candidate& c : all) pointers.push_back(c.timed.get());
    return pointers;
  }
  void rounds(const std::vector<Candidate>& all, int count, double warm_up_ms = 0) {
    meter_.interleave(timed(all), count, warm_up_ms);
  }
  static bool is_faster(const Candidate& x, const Candidate& y) { return x.timed->median() < y.timed->median(); }
  static const Candidate& fastest_of(const std::vector<Candidate>& all) {
    return *std::min_element(all.begin(), all.end(), is_faster);
  }
  /// Null if none runs that way.
  static const Candidate* fastest_where(const std::vector<Candidate>& all, Way way) {
    const Candidate* fastest = nullptr;
    for (const Candidate& c : all)
      if (c.choice.way == way && (!fastest || is_faster(c, *fastest))) fastest = &c;
    return fastest;
  }

  sm90::Chip chip_;
  double warm_up_ms_ = 0;
  bench::Meter meter_;
};

json as_json(const sm90::Algorithm& a) {
  if (a == sm90::Algorithm()) return nullptr;
  return {{"id", a.id},
          {"tile", a.tile},
          {"stages", a.stages},
          {"split_k", a.split_k},
          {"reduction", a.reduction},
          {"swizzle", a.swizzle},
          {"custom", a.custom},
          {"inner_shape", a.inner_shape},
          {"cluster_shape", a.cluster_shape}};
}
json as_json(const sm90::DeviceInfo& device, const std::vector<Row>& rows, double seconds) {
  json j{{"command", "tune"}, {"multiprocessors", device.multiprocessors}, {"memory_gbs", device.memory_gbs}};
  j.update(provenance(device, build_info().commit));
  j.update({{"seconds", std::round(seconds)},
            {"method",
             "graph replay, L2 flushed before each, interleaved, medians; what takes 6 ms or more alone; another "
             "choice than the rule's where it is more than 1 % faster"},
            {"records", json::array()}});
  for (const Row& r : rows) {
    json record{{"program", r.program}, {"dtype", "bf16"}, {"layout", coda::name_of(r.layout)},
                {"m", r.shape.m},       {"n", r.shape.n},  {"k", r.shape.k}};
    if (r.is_product()) record["algorithm"] = as_json(r.algorithm);
    if (r.has_choice()) {
      record.update({{"way", sm90::name_of(r.choice.way)},
                     {"config", r.choice.config},
                     {"band", r.choice.raster.band},
                     {"along", r.choice.raster.along_m ? "m" : "n"}});
    }
    record.update({{"ms", bench::rounded(r.ms, 5)}, {"rule_ms", bench::rounded(r.rule_ms, 5)}});
    if (r.has_choice()) record["unfused_ms"] = bench::rounded(r.unfused_ms, 5);
    j["records"].push_back(std::move(record));
  }
  return j;
}

void print(const std::vector<Row>& rows) {
  Table table({"program", "layout", "shape", "choice", "ms", "rule ms", "unfused ms", "rule/choice"});
  for (const Row& r : rows)
    table.add({r.program, coda::name_of(r.layout), to_string(r.shape), r.text(), fmt::format("{:.4f}", r.ms),
               fmt::format("{:.4f}", r.rule_ms), r.has_choice() ? fmt::format("{:.4f}", r.unfused_ms) : "",
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
  Tuner tuner({device.multiprocessors, device.memory_gbs});
  std::vector<Row> rows;
  for (const bench::Group& g : groups) {
    if (!g.fits_in_memory()) continue;
    const bench::Arguments arguments(g.shape, g.needs(), tuner.noise(), g.head_dim);
    tuner.begin_shape();
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
  Command command(app, "tune", "Measure which kernel is fastest for each shape on this machine's GPU");
  const auto a = std::make_shared<Arguments>();
  command.words("programs", a->programs, fmt::format("Of {}; none: all of them", tunable_names()));
  command.list("--shape", a->shapes, "MxNxK of the product: a list by commas; none: those of the benchmarks");
  command.option("--out", a->out, "Write the table to this file");
  command.flag("--json", a->as_json, "Print one JSON document");
  command.footer(
      "Each program is timed in its usual layout, bf16 (fp16 runs the same instructions and follows the same table):\n"
      "every configuration that the library has, with several orders of the tiles, and the unfused way; and products\n"
      "that no program follows, with a 16-bit output and with one in fp32, by what cuBLASLt offers, the former by\n"
      "kernels of this library, too. What takes 6 ms or more runs at the chip's power limit and is timed alone, all\n"
      "else in turn.\n"
      "The library reads the file that the environment variable CODA_TUNING names, in front of the table that it "
      "ships\n"
      "with. An entry also serves M up to a quarter larger or smaller, and other devices with the same number of\n"
      "multiprocessors; of several tables, the one whose memory speed is nearest is used. Different kernels may\n"
      "differ in the last bit, so use one table wherever bits must match.\n"
      "Examples:\n"
      "  coda tune --out my.json                                      three minutes or so\n"
      "  coda tune gemm_rms_swiglu --shape 512x28672x4096 --out my.json\n"
      "  CODA_TUNING=my.json coda info --explain gemm_rms_swiglu 512 28672 4096");
  command.runs([a] { interruptible("tune", [&] { tune(*a); }); });
}

}  // namespace coda::cli
