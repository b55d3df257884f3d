// `coda verify`: programs on random data against fp64, output by output.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>

#include "coda/cli/arguments.h"
#include "coda/cli/commands.h"
#include "coda/cli/progress.h"
#include "coda/cli/table.h"
#include "coda/cli/verify_case.h"
#include "coda/core/error.h"

namespace coda::cli {
namespace {

using json = nlohmann::ordered_json;

struct Arguments : CaseArguments {
  bool all = false, rows = false, as_json = false;
  std::uint64_t seed = 1;
};

enum class Outcome { passed, failed, skipped };

struct Row {
  const Entry* entry;
  DType type;
  Layout layout;
  Shape shape;
  Outcome outcome = Outcome::passed;
  std::string option = {}, note = {};  // note: why it failed or was skipped
  Verdict verdict = {};

  std::string layout_name() const { return entry->product ? coda::name_of(layout) : "-"; }
  const char* outcome_name() const {
    return outcome == Outcome::passed ? "ok" : outcome == Outcome::failed ? "FAILED" : "skipped";
  }
  /// How near to its limit it is: 1 is at the limit.
  double tightness() const {
    const double bound = verdict.bound > 0 ? verdict.error / verdict.bound : 0;
    return outcome == Outcome::passed ? std::max(bound, verdict.relative / verdict.relative_limit) : HUGE_VAL;
  }
};

struct Case {
  const Entry* entry;
  DType type;
  Layout layout;
  Shape shape;
};

std::vector<Case> cases_of(const Arguments& a, ops::Backend backend) {
  const bool hopper = backend == ops::Backend::sm90;  // which multiplies 16-bit values only
  auto types = parse_dtypes(a.dtypes);
  if (types.empty()) types = parse_dtypes({"bf16"});
  if (a.dtypes.empty() && a.all) types = {DType::bf16, DType::fp16};
  if (a.dtypes.empty() && a.all && !hopper) types.insert(types.end(), {DType::fp32, DType::fp64});
  auto layouts = parse_layouts(a.layouts);
  if (layouts.empty() && a.all) layouts = {Layout::nt, Layout::nn, Layout::tn};
  auto shapes = parse_shapes(a.shapes);
  // More than one tile and ragged in both directions; whole fragments; all sides tiny. Not a single row: one sum that
  // cancels would be all of an output, and no bound in its own precision holds for that.
  if (shapes.empty()) shapes = {{300, 520, 200}};
  if (a.shapes.empty() && a.all) shapes.insert(shapes.end(), {{64, 256, 96}, {7, 34, 5}});
  // Heads of 64 columns, which the fused kernels take.
  if (a.shapes.empty() && a.all && hopper) shapes.push_back({300, 768, 200});

  std::vector<Case> cases;
  for (const Entry* e : parse_programs(a.programs))
    for (const DType type : types)
      for (const Layout layout : e->any_layout && !layouts.empty() ? layouts : std::vector{e->layout})
        for (const Shape& shape : shapes) cases.push_back({e, type, layout, shape});
  return cases;
}

/// Each case draws its own numbers, whatever else runs.
std::uint64_t seed_of(const Case& c, std::uint64_t seed) {
  std::uint64_t h = 0xcbf29ce484222325u ^ seed;  // FNV-1a
  const auto mix = [&](std::uint64_t x) { h = (h ^ x) * 0x100000001b3u; };
  for (const char ch : c.entry->name) mix(static_cast<unsigned char>(ch));
  for (const auto x :
       {static_cast<std::int64_t>(c.type), static_cast<std::int64_t>(c.layout), c.shape.m, c.shape.n, c.shape.k})
    mix(static_cast<std::uint64_t>(x));
  return h;
}

std::vector<Row> run(const Case& c, ops::Backend backend, std::uint64_t seed) {
  const Row blank{c.entry, c.type, c.layout, c.shape};
  std::vector<Row> rows;
  const auto end = [&](Outcome outcome, const std::string& option, const std::string& note) {
    Row row = blank;
    row.outcome = outcome, row.option = option, row.note = note;
    rows.push_back(row);
  };
  VerifyCase v(backend, c.type, c.layout, c.shape, seed);
  std::string note;
  Outcome outcome = Outcome::passed;
  try {
    c.entry->verify(v);
  } catch (const NotApplicable& e) {
    outcome = Outcome::skipped, note = e.what();
  } catch (const Error& e) {
    // Hopper multiplies 16-bit values only; nothing else is missing anywhere.
    const bool refused = e.status() == Status::unsupported && backend == ops::Backend::sm90 && size_of(c.type) > 2;
    outcome = refused ? Outcome::skipped : Outcome::failed, note = e.what();
  }
  for (const VerdictOf& judged : v.verdicts) {
    Row row = blank;
    row.option = judged.option, row.verdict = judged.verdict, row.note = judged.verdict.failure;
    row.outcome = judged.verdict.passed() ? Outcome::passed : Outcome::failed;
    rows.push_back(row);
  }
  if (outcome != Outcome::passed) end(outcome, v.option, note);
  return rows;
}

/// Of each program and type the row nearest to its limit; and all that failed.
std::vector<Row> worst_of(const std::vector<Row>& rows) {
  std::map<std::tuple<const Entry*, DType>, std::size_t> worst;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].outcome != Outcome::passed) continue;
    const auto [at, fresh] = worst.try_emplace({rows[i].entry, rows[i].type}, i);
    if (!fresh && rows[i].tightness() > rows[at->second].tightness()) at->second = i;
  }
  std::vector<Row> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto at = worst.find({rows[i].entry, rows[i].type});
    if (rows[i].outcome == Outcome::failed || (at != worst.end() && at->second == i)) out.push_back(rows[i]);
  }
  return out;
}

std::string figure(double x) { return std::isfinite(x) ? fmt::format("{:.2e}", x) : std::string("-"); }

void print_table(const std::vector<Row>& rows) {
  Table table({"program", "dtype", "layout", "shape", "output", "option", "error", "bound", "relative", "limit", ""});
  for (const Row& r : rows) {
    const bool judged = !r.verdict.output.empty();
    table.add({r.entry->name, coda::name_of(r.type), r.layout_name(), to_string(r.shape), r.verdict.output, r.option,
               judged ? figure(r.verdict.error) : "", judged ? figure(r.verdict.bound) : "",
               judged ? figure(r.verdict.relative) : "", judged ? figure(r.verdict.relative_limit) : "",
               r.outcome_name()});
  }
  table.print(6);
}

json as_json(const Row& r) {
  const auto number = [](double x) { return std::isfinite(x) ? json(x) : json(); };
  json j{{"program", r.entry->name},  {"dtype", coda::name_of(r.type)},
         {"layout", r.layout_name()}, {"shape", {r.shape.m, r.shape.n, r.shape.k}},
         {"option", r.option},        {"verdict", r.outcome_name()}};
  if (!r.verdict.output.empty()) {
    j["output"] = r.verdict.output;
    j["error"] = number(r.verdict.error);
    j["bound"] = number(r.verdict.bound);
    j["relative"] = number(r.verdict.relative);
    j["relative_limit"] = number(r.verdict.relative_limit);
  }
  if (!r.note.empty()) j["note"] = r.note;
  return j;
}

void verify(const Arguments& a) {
  const ops::Backend backend = parse_backend(a.backend);
  const std::vector<Case> cases = cases_of(a, backend);
  require_backend(backend, "verify");

  CaseProgress progress("verify", static_cast<std::int64_t>(cases.size()));
  std::vector<Row> rows;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    progress.update(static_cast<std::int64_t>(i),
                    fmt::format("{} {} {}", c.entry->name, coda::name_of(c.type), to_string(c.shape)));
    const auto more = run(c, backend, seed_of(c, a.seed));
    rows.insert(rows.end(), more.begin(), more.end());
  }
  progress.finish();

  const auto count = [&](Outcome outcome) {
    return std::count_if(rows.begin(), rows.end(), [&](const Row& r) { return r.outcome == outcome; });
  };
  const auto passed = count(Outcome::passed), failed = count(Outcome::failed), skipped = count(Outcome::skipped);
  if (a.as_json) {
    json j{{"command", "verify"},  {"backend", a.backend}, {"seed", a.seed},     {"cases", cases.size()},
           {"passed", passed},     {"failed", failed},     {"skipped", skipped}, {"seconds", progress.seconds()},
           {"rows", json::array()}};
    for (const Row& r : rows) j["rows"].push_back(as_json(r));
    fmt::print("{}\n", j.dump(1));
  } else {
    print_table(a.rows || !a.all ? rows : worst_of(rows));
    for (const Row& r : rows)
      if (r.outcome == Outcome::failed)
        fmt::print("FAILED {} {} {} {} {}: {}\n", r.entry->name, coda::name_of(r.type), r.layout_name(),
                   to_string(r.shape), r.option, r.note);
    std::map<std::string, int> why;
    for (const Row& r : rows)
      if (r.outcome == Outcome::skipped) ++why[r.note];
    for (const auto& [note, times] : why) fmt::print("skipped {}x: {}\n", times, note);
    if (a.all && !a.rows) fmt::print("(of each program and type the output nearest to its limit; --rows prints all)\n");
    fmt::print("{} outputs of {} cases: {} ok, {} failed, {} skipped, in {:.1f} s (seed {})\n", rows.size(),
               cases.size(), passed, failed, skipped, progress.seconds(), a.seed);
  }
  if (failed > 0) {
    // The reader of a pipe gets the whole table before the error.
    std::fflush(stdout);
    throw std::runtime_error(fmt::format("verify: {} of {} outputs are wrong", failed, rows.size()));
  }
  if (passed == 0) throw Error(Status::unsupported, "verify: nothing was checked: every case was skipped");
}

}  // namespace

void add_verify(CLI::App& app) {
  Command command(app, "verify", "Run programs on random data and compare each output with fp64");
  const auto a = std::make_shared<Arguments>();
  add_case_arguments(command, *a, "Programs by name, as `coda programs` lists them; none: all of them",
                     "bf16, fp16, fp32, fp64: a list by commas");
  command.flag("--all", a->all,
               "All dtypes that the backend multiplies, all layouts and several shapes, for what is not named");
  command.flag("--rows", a->rows, "With --all: print every output, not only the one nearest to its limit");
  command.whole("--seed", a->seed, "Seed of the random data").shows_default();
  command.flag("--json", a->as_json, "Print one JSON document");
  command.footer(
      "Each output begins as NaN between guard zones. It passes if\n"
      "  max |out - fp64| is at most twice that of the unfused chain, which rounds to the dtype after each step, plus\n"
      "  one unit in the last place (64 in fp32 and 512 in fp64, where the chain is as exact as the program);\n"
      "  its relative error, over the whole and each tile, is at most 1e-2 (16-bit), 1e-5 (fp32), 1e-12 (fp64);\n"
      "  every element of it, and nothing else, was written.\n"
      "In fp32 and fp64 outputs of few values get more room, as one of them may be a sum that cancels. With one or\n"
      "two rows or columns, a few seeds of a hundred have such a sum that is off by more than any of these bounds.\n"
      "Examples:\n"
      "  coda verify gemm_rms_swiglu\n"
      "  coda verify gemm gemm_lse --dtype bf16,fp32 --layout nt,nn,tn --shape 7x34x5,300x520x200\n"
      "  coda verify --all --json > verify.json\n"
      "  coda verify gemm --backend sm90");
  command.runs([a] { verify(*a); });
}

}  // namespace coda::cli
