#include "coda/cli/bench_sm90.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "coda/cli/arguments.h"
#include "coda/cli/interrupt.h"
#include "coda/cli/progress.h"
#include "coda/cli/result_file.h"
#include "coda/cli/sm90/groups.h"
#include "coda/cli/sm90/host.h"
#include "coda/cli/sm90/kernels.h"
#include "coda/cli/sm90/layer.h"
#include "coda/cli/sm90/small.h"
#include "coda/cli/table.h"
#include "coda/core/build_info.h"
#include "coda/core/error.h"

namespace coda::cli {
namespace {

using bench::json;
using Names = std::vector<std::string>;

constexpr int kRounds = 40, kLayerRounds = 20;

/// In the order in which they are measured: the host's times tell what the first calls of a process take.
const Names kSuites{"host", "small", "kernels", "few-rows", "models", "layer"};
/// Each is a member of the JSON document, and a file of --out.
const Names kParts{"host", "small", "kernels", "layer"};

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// What is to be measured.
struct Plan {
  Names suites;
  std::vector<const bench::Program*> programs;
  std::vector<std::pair<std::string, bench::Groups>> kernels;  // what the progress bar calls them

  bool has(const std::string& part) const { return part == "kernels" ? !kernels.empty() : contains(suites, part); }
};

Names suites_of(const BenchSm90Arguments& a) {
  for (const std::string& name : a.suites)
    if (name != "all" && !contains(kSuites, name))
      throw UsageError("--suite", fmt::format("expected some of {} or all, got `{}`", fmt::join(kSuites, ", "), name));
  if (!a.shapes.empty()) {
    if (!a.suites.empty()) throw UsageError("--shape", "expected without --suite, which has shapes of its own");
    return {};
  }
  if (a.suites.empty()) return {"kernels"};
  Names out;
  for (const std::string& name : kSuites)
    if (contains(a.suites, name) || contains(a.suites, "all")) out.push_back(name);
  return out;
}

std::vector<const bench::Program*> programs_of(const Names& names) {
  for (const std::string& name : names) {
    if (bench::find_program(name) != nullptr) continue;
    Names known;
    for (const bench::Program& p : bench::programs()) known.emplace_back(p.name);
    throw UsageError("programs", fmt::format("expected some of {}, got `{}`", fmt::join(known, ", "), name));
  }
  std::vector<const bench::Program*> out;
  for (const bench::Program& p : bench::programs())
    if (names.empty() || contains(names, p.name)) out.push_back(&p);
  return out;
}

/// `option` selects among what only some suites have.
void refuse_elsewhere(const char* option, const Names& values, const Names& suites, const Names& others) {
  for (const std::string& suite : suites)
    if (!values.empty() && contains(others, suite))
      throw UsageError(option, fmt::format("expected none with the suite {}, got `{}`", suite, values.front()));
}

Plan plan_of(const BenchSm90Arguments& a) {
  Plan plan{.suites = suites_of(a), .programs = programs_of(a.programs), .kernels = {}};
  refuse_elsewhere("programs", a.programs, plan.suites, {"small", "layer"});
  refuse_elsewhere("--layout", a.layouts, plan.suites, {"host", "small", "layer"});
  const bench::Groups none({.programs = plan.programs, .layouts = parse_layouts(a.layouts)});
  const std::vector<Shape> shapes = parse_shapes(a.shapes);
  for (const Shape& s : shapes)
    for (const bench::Program* p : plan.programs)
      if (!a.programs.empty() && s.n % p->columns != 0)
        throw UsageError("--shape", fmt::format("expected N to be a multiple of {} for {}, got {}", p->columns, p->name,
                                                to_string(s)));
  const auto add = [&](const std::string& name) -> bench::Groups& {
    return plan.kernels.emplace_back(name, none).second;
  };
  if (!shapes.empty()) {
    bench::Groups& groups = add("shapes");
    for (const Shape& s : shapes) groups.add_all(s);
  }
  if (contains(plan.suites, "kernels")) add("kernels").add_squares();
  if (contains(plan.suites, "few-rows")) add("few rows").add_few_rows();
  if (contains(plan.suites, "models")) add("models").add_models();
  return plan;
}

/// The file of one part: in the folder `out`, or `out` itself.
std::filesystem::path path_of(const std::filesystem::path& out, const std::string& part) {
  return out.has_filename() && !std::filesystem::is_directory(out) ? out : out / (part + ".json");
}
/// The parts of the plan with their files, if there are any.
std::vector<std::pair<std::string, std::filesystem::path>> files_of(const std::string& out, const Plan& plan) {
  std::vector<std::pair<std::string, std::filesystem::path>> files;
  for (const std::string& part : kParts)
    if (!out.empty() && plan.has(part)) files.emplace_back(part, path_of(out, part));
  if (files.size() > 1 && files[0].second == files[1].second)
    throw UsageError("--out", fmt::format("expected a folder, since there is more than one file, got {}", out));
  return files;
}

void print(const std::vector<bench::HostRecord>& records) {
  Table table({"host time of a call, us", "layout", "first", "new shape", "seen shape", "split round", "unfused"});
  for (const bench::HostRecord& r : records)
    table.add({r.program, coda::name_of(r.layout), fmt::format("{:.1f}", r.first_us), fmt::format("{:.2f}", r.new_us),
               fmt::format("{:.2f}", r.seen_us), r.split_us ? fmt::format("{:.2f}", *r.split_us) : "",
               fmt::format("{:.2f}", r.unfused_us)});
  table.print(2);
}
void print(const std::vector<bench::ProductHostRecord>& records) {
  Table table({"host time of a product, us", "layout", "m=n=k", "first", "seen"});
  for (const bench::ProductHostRecord& r : records)
    table.add({r.call, coda::name_of(r.layout), std::to_string(r.size), fmt::format("{:.2f}", r.first_us),
               fmt::format("{:.2f}", r.seen_us)});
  table.print(2);
}
void print(const std::vector<bench::SmallRecord>& records) {
  Table table({"program", "m", "n", "bytes", "ms", "copy ms", "ratio"});
  for (const bench::SmallRecord& r : records)
    table.add({r.program, std::to_string(r.m), std::to_string(r.n), std::to_string(r.bytes),
               fmt::format("{:.4f}", r.ms), fmt::format("{:.4f}", r.copy_ms), fmt::format("{:.3f}", r.ratio())});
  table.print(1);
}
/// The ratio of what was timed alone.
std::string text_of(const bench::Alone& alone) {
  return alone.ms > 0 ? fmt::format("{:.3f}", alone.bare_ms / alone.ms) : "";
}
void print(const std::vector<bench::KernelRecord>& records) {
  Table table({"program", "layout", "m", "n", "k", "ms", "bare ms", "ratio", "alone"});
  for (const bench::KernelRecord& r : records)
    table.add({r.program, coda::name_of(r.layout), std::to_string(r.shape.m), std::to_string(r.shape.n),
               std::to_string(r.shape.k), fmt::format("{:.4f}", r.ms), fmt::format("{:.4f}", r.bare_ms),
               fmt::format("{:.3f}", r.ratio()), text_of(r.alone)});
  table.print(2);
}
void print(const std::vector<bench::LayerRecord>& records) {
  Table table(
      {"pass", "tokens", "hidden", "ffn", "qkv", "ms", "gemms ms", "ratio", "alone", "MiB saved", "MiB unfused"});
  const auto mib = [](std::int64_t bytes) { return fmt::format("{:.0f}", static_cast<double>(bytes) / 1048576); };
  for (const bench::LayerRecord& r : records)
    table.add({r.pass, std::to_string(r.tokens), std::to_string(r.layer.hidden), std::to_string(r.layer.ffn),
               std::to_string(r.layer.qkv()), fmt::format("{:.3f}", r.ms), fmt::format("{:.3f}", r.products_ms),
               fmt::format("{:.3f}", r.ratio()), text_of(r.alone), mib(r.saved), mib(r.saved_unfused)});
  table.print(1);
}

std::string alone_method() {
  return fmt::format("alone: of {:.0f} ms or more, each replayed for {:.0f} ms behind {:.0f} ms of itself, twice",
                     bench::kLongMs, bench::kAloneMs, bench::kAloneWarmUpMs);
}

template <class T>
void append(std::vector<T>& to, std::vector<T> from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

/// Measures what is planned, and tells and writes each part as soon as it is complete.
class Bench {
 public:
  Bench(const BenchSm90Arguments& a, const Plan& plan) : a_(a), plan_(plan) {
    const sm90::DeviceInfo device = sm90::device_info();
    provenance_ = provenance(device, a.commit.empty() ? build_info().commit : a.commit);
    document_ = {{"command", "bench"}, {"backend", "sm90"}};
    document_.update(provenance_);
  }

  void run() {
    const auto start = std::chrono::steady_clock::now();
    if (plan_.has("host")) host();
    if (plan_.has("small")) small();
    if (plan_.has("kernels")) kernels();
    if (plan_.has("layer")) layer();
    document_["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (a_.as_json) fmt::print("{}\n", document_.dump(1));
  }

 private:
  void host() {
    const bench::HostMeter host(meter_);
    std::vector<bench::HostRecord> records;
    each(
        "host", plan_.programs, [](const bench::Program* p) { return std::string(p->name); },
        [&](const bench::Program* p) { records.push_back(host.measure(*p)); });
    show(records);
    finish(
        "host",
        {{"method",
          "C++ calls that nobody waits for: the first of the process (2048), of a shape, and the median batch of 100 "
          "with a shape that was seen, as the library runs it and unfused; split_us: where it splits the last round of "
          "tiles"},
         {"records", records}});
  }
  void small() {
    const auto host = bench::measure_product_host(meter_, !plan_.has("host"));
    show(host);
    std::vector<bench::SmallRecord> records;
    each(
        "small", bench::small_cases(), [](const bench::SmallCase& c) { return c.name; },
        [&](const bench::SmallCase& c) { records.push_back(bench::measure(c, meter_, a_.rounds.value_or(kRounds))); });
    show(records);
    finish("small",
           {{"method",
             fmt::format("graph replay, L2 flushed before each, interleaved in random order with a device-to-device "
                         "copy of the same bytes, median of {}; ratio = copy_ms / ms",
                         a_.rounds.value_or(kRounds))},
            {"records", records},
            {"host", host}});
  }
  void kernels() {
    std::vector<bench::KernelRecord> all;
    const int rounds = a_.rounds.value_or(kRounds);
    for (const auto& [name, groups] : plan_.kernels) {
      std::vector<bench::KernelRecord> records;
      each(
          name, groups.all(),
          [](const bench::Group& g) { return fmt::format("{} {}", to_string(g.shape), coda::name_of(g.layout)); },
          [&](const bench::Group& g) { append(records, bench::measure(g, meter_, rounds)); });
      show(records);
      append(all, std::move(records));
    }
    if (all.empty())
      throw Error(Status::unsupported, "bench: no program takes these shapes, or they do not fit in memory");
    finish(
        "kernels",
        {{"method", fmt::format("graph replay, L2 flushed before each, interleaved in random order, median of up to {} "
                                "behind {:.0f} ms of the same; ratio = cublaslt_ms / ms; {}",
                                rounds, bench::kWarmUpMs, alone_method())},
         {"records", all}});
  }
  void layer() {
    std::vector<bench::LayerRecord> records;
    const int rounds = a_.rounds.value_or(kLayerRounds);
    each(
        "layer", bench::layer_cases(),
        [](const bench::LayerCase& c) {
          return fmt::format("{} / {}, {} tokens", c.layer.hidden, c.layer.ffn, c.tokens);
        },
        [&](const bench::LayerCase& c) { append(records, bench::measure(c, meter_, rounds)); });
    show(records);
    finish(
        "layer",
        {{"method",
          fmt::format("graph replay, L2 flushed before each, interleaved in random order, median of {} behind {:.0f} "
                      "ms of the same; ratio = gemms_ms / ms; gradients of weights written in bf16, "
                      "each product with an output of its own; {}",
                      rounds, bench::kWarmUpMs, alone_method())},
         {"records", records}});
  }

  /// Each of a list in turn; Ctrl-C stops between two.
  template <class List, class Describe, class Measure>
  static void each(const std::string& what, const List& list, const Describe& describe, const Measure& measure) {
    CaseProgress progress("bench " + what, static_cast<std::int64_t>(list.size()));
    std::int64_t done = 0;
    for (const auto& item : list) {
      if (CatchInterrupt::seen()) throw Interrupted();
      progress.update(done++, describe(item));
      measure(item);
    }
  }
  template <class Record>
  void show(const std::vector<Record>& records) {
    if (a_.as_json || records.empty()) return;
    if (std::exchange(shown_, true)) fmt::print("\n");
    print(records);
    std::fflush(stdout);
  }
  void finish(const std::string& part, json content) {
    if (!a_.out.empty()) {
      json file = provenance_;
      file.update(content);
      write_result_file(path_of(a_.out, part), file, "bench: --out");
    }
    document_[part] = std::move(content);
  }

  const BenchSm90Arguments& a_;
  const Plan& plan_;
  json provenance_, document_;
  bench::Meter meter_;
  bool shown_ = false;
};

}  // namespace

void bench_sm90(const BenchSm90Arguments& a) {
  const Plan plan = plan_of(a);
  const auto files = files_of(a.out, plan);
  require_backend(ops::Backend::sm90, "bench");
  for (const auto& [part, path] : files) require_writable(path, "bench: --out");
  interruptible("bench", [&] { Bench(a, plan).run(); });
}

}  // namespace coda::cli
