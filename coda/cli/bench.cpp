// `coda bench`: each fused program beside the bare product of the same library and, on the CPU, beside the unfused
// chain.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "coda/cli/arguments.h"
#include "coda/cli/bench_case.h"
#include "coda/cli/bench_sm90.h"
#include "coda/cli/commands.h"
#include "coda/cli/progress.h"
#include "coda/cli/table.h"
#include "coda/core/error.h"

namespace coda::cli {
namespace {

using json = nlohmann::ordered_json;

struct Arguments : CaseArguments {
  std::optional<int> rounds;
  bool as_json = false, derivatives = false;
  std::vector<std::string> suites;
  std::string out, commit;

  int cpu_rounds() const { return rounds.value_or(15); }
};

struct Row {
  const Entry* entry;
  DType type;
  Layout layout;
  Shape shape;
  Times times = {};

  double to_bare() const { return times.bare.median / times.fused.median; }
  double to_unfused() const { return times.unfused.median / times.fused.median; }
  double tflops() const {
    return 2e-9 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) /
           times.fused.median;
  }
};

std::vector<Row> rows_of(const Arguments& a) {
  auto types = parse_dtypes(a.dtypes);
  if (types.empty()) types = {DType::bf16};
  for (const DType t : types)
    if (t != DType::bf16 && t != DType::fp32)
      throw UsageError("--dtype",
                       fmt::format("expected bf16 or fp32, whose bare product oneDNN has, got {}", coda::name_of(t)));
  auto layouts = parse_layouts(a.layouts);
  if (layouts.empty()) layouts = {Layout::nt, Layout::nn};
  auto shapes = parse_shapes(a.shapes);
  if (shapes.empty()) shapes = {{1024, 1024, 1024}, {2048, 2048, 2048}};
  for (const Shape& s : shapes)
    if (s.n % 2 != 0)
      throw UsageError("--shape",
                       fmt::format("expected an even N, for the programs on pairs of columns, got {}", to_string(s)));

  std::vector<Row> rows;
  for (const Shape& shape : shapes)
    for (const Entry* e : parse_programs(a.programs)) {
      if (e->bench == nullptr) {
        if (!a.programs.empty())
          throw UsageError("programs", fmt::format("expected programs with a bare product to compare with, "
                                                   "got {}",
                                                   e->name));
        continue;
      }
      for (const DType type : types)
        for (const Layout layout : e->any_layout ? layouts : std::vector{e->layout})
          rows.push_back({e, type, layout, shape});
    }
  return rows;
}

void print_table(const std::vector<Row>& rows) {
  Table table({"program", "dtype", "layout", "shape", "bare ms", "fused ms", "unfused ms", "bare/fused",
               "unfused/fused", "TFLOP/s"});
  for (const Row& r : rows)
    table.add({r.entry->name, coda::name_of(r.type), coda::name_of(r.layout), to_string(r.shape),
               fmt::format("{:.3f}", r.times.bare.median), fmt::format("{:.3f}", r.times.fused.median),
               fmt::format("{:.3f}", r.times.unfused.median), fmt::format("{:.2f}", r.to_bare()),
               fmt::format("{:.2f}", r.to_unfused()), fmt::format("{:.2f}", r.tflops())});
  table.print(4);
  const auto lowest = [&](const char* what, double (Row::*ratio)() const) {
    const Row& r = *std::min_element(rows.begin(), rows.end(),
                                     [&](const Row& x, const Row& y) { return (x.*ratio)() < (y.*ratio)(); });
    fmt::print("lowest {} {:.2f}: {} {} {} {}\n", what, (r.*ratio)(), r.entry->name, coda::name_of(r.type),
               coda::name_of(r.layout), to_string(r.shape));
  };
  lowest("bare/fused", &Row::to_bare);
  lowest("unfused/fused", &Row::to_unfused);
  fmt::print("{} threads; medians\n", omp_get_max_threads());
}

json header(const Arguments& a) {
  return {{"command", "bench"}, {"backend", a.backend}, {"threads", omp_get_max_threads()}, {"rounds", a.cpu_rounds()}};
}

void bench_derivatives(const Arguments& a) {
  const auto rows = measure_derivatives(a.cpu_rounds());
  if (a.as_json) {
    json j = header(a);
    j["derivatives"] = json::array();
    for (const DerivativeTimes& r : rows)
      j["derivatives"].push_back({{"dtype", coda::name_of(r.type)},
                                  {"what", r.what},
                                  {"derived_ms", r.derived},
                                  {"written_ms", r.written},
                                  {"written_over_derived", r.written / r.derived}});
    fmt::print("{}\n", j.dump(1));
    return;
  }
  Table table({"SwiGLU backward", "dtype", "derived ms", "by hand ms", "by hand/derived"});
  for (const DerivativeTimes& r : rows)
    table.add({r.what, coda::name_of(r.type), fmt::format("{:.4f}", r.derived), fmt::format("{:.4f}", r.written),
               fmt::format("{:.2f}", r.written / r.derived)});
  table.print(2);
}

/// An option that only the other backend has.
void refuse(const char* option, bool given, const char* backend) {
  if (given) throw UsageError(option, fmt::format("expected with --backend {} only", backend));
}

void bench(const Arguments& a) {
  if (parse_backend(a.backend) == ops::Backend::sm90) {
    refuse("--derivatives", a.derivatives, "cpu");
    for (const DType t : parse_dtypes(a.dtypes))
      if (t != DType::bf16)
        throw UsageError("--dtype", fmt::format("expected bf16, which --backend sm90 times, got {}", coda::name_of(t)));
    return bench_sm90({a.programs, a.suites, a.shapes, a.layouts, a.rounds, a.as_json, a.out, a.commit});
  }
  refuse("--suite", !a.suites.empty(), "sm90");
  refuse("--out", !a.out.empty(), "sm90");
  refuse("--commit", !a.commit.empty(), "sm90");
  if (a.derivatives) {
    const auto alone = [](const char* option, const auto& values) {
      if (!values.empty()) throw UsageError(option, "expected none with --derivatives");
    };
    alone("programs", a.programs), alone("--dtype", a.dtypes), alone("--layout", a.layouts), alone("--shape", a.shapes);
    return bench_derivatives(a);
  }
  std::vector<Row> rows = rows_of(a);
  CaseProgress progress("bench", static_cast<std::int64_t>(rows.size()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Row& r = rows[i];
    progress.update(static_cast<std::int64_t>(i), fmt::format("{} {}", r.entry->name, to_string(r.shape)));
    BenchCase c(r.type, r.layout, r.shape);
    r.entry->bench(c);
    r.times = measure(c, a.cpu_rounds());
  }
  progress.finish();
  if (!a.as_json) return print_table(rows);
  json j = header(a);
  j["seconds"] = progress.seconds();
  j["rows"] = json::array();
  for (const Row& r : rows)
    j["rows"].push_back({{"program", r.entry->name},
                         {"dtype", coda::name_of(r.type)},
                         {"layout", coda::name_of(r.layout)},
                         {"shape", {r.shape.m, r.shape.n, r.shape.k}},
                         {"bare_ms", r.times.bare.median},
                         {"fused_ms", r.times.fused.median},
                         {"unfused_ms", r.times.unfused.median},
                         {"bare_best_ms", r.times.bare.best},
                         {"fused_best_ms", r.times.fused.best},
                         {"unfused_best_ms", r.times.unfused.best},
                         {"bare_over_fused", r.to_bare()},
                         {"unfused_over_fused", r.to_unfused()},
                         {"tflops", r.tflops()}});
  fmt::print("{}\n", j.dump(1));
}

}  // namespace

void add_bench(CLI::App& app) {
  Command command(app, "bench", "Time programs beside the bare product and the unfused chain");
  const auto a = std::make_shared<Arguments>();
  add_case_arguments(command, *a, "Programs by name, those of the tables that this prints; none: all of them",
                     "cpu: bf16, fp32; sm90: bf16: a list by commas");
  command.whole("--rounds", a->rounds,
                "Timed calls of each, in turn; medians are shown (cpu: 15; sm90: up to 40, a layer 20)", 1);
  command.flag("--json", a->as_json, "Print one JSON document");
  command.flag("--derivatives", a->derivatives, "cpu: time SwiGLU's derived backward beside one written by hand");
  command.list("--suite", a->suites, "sm90: kernels, few-rows, models, layer, small, host or all: a list by commas");
  command.option("--out", a->out,
                 "sm90: write results to this file, or to {kernels,host,small,layer}.json in this folder");
  command.option("--commit", a->commit, "sm90: what these files say was measured, if not this build's commit");
  command.footer(
      "On the CPU: bf16, nt and nn, 1024x1024x1024 and 2048x2048x2048 unless asked otherwise.\n"
      "bare: oneDNN's product of the same shape and type, alone; in fp32 on a machine without instructions for bf16.\n"
      "unfused: that product, stored, then all the rest in one vectorised pass over memory on the same threads (the\n"
      "fewest passes that a chain can have). The three are timed in turn, on random data; above 1 in bare/fused or\n"
      "unfused/fused the fused program is faster.\n"
      "On a Hopper GPU: bf16, each program in the layout that models run it in unless --layout says otherwise, beside\n"
      "cuBLASLt's bare product, in turn; ratio: that product's time over the program's; alone: the same where each is\n"
      "replayed alone, from 2 ms on, so that none has of the chip's power what another saves. A wrong name lists the\n"
      "programs. Suites:\n"
      "  kernels   M = N = K = 2048, 4096 and 8192 (the default, if --shape gives none)\n"
      "  few-rows  1 to 1024 rows, as one kernel and as cuBLASLt's product and a kernel behind it, too\n"
      "  models    the products of LLaMA-3 1B, 8B, 70B and Qwen3-8B, 16384 tokens\n"
      "  layer     a whole layer, forward and backward, beside the sum of its bare products; with few tokens, too\n"
      "  small     the kernels between the programs beside a copy of as many bytes\n"
      "  host      what the caller of a program waits; measured first, since it tells a process's first calls\n"
      "Examples:\n"
      "  coda bench\n"
      "  coda bench gemm_rms_swiglu gemm_swiglu_backward --dtype bf16,fp32 --shape 2048x2048x2048\n"
      "  coda bench --derivatives\n"
      "  coda bench --backend sm90                                                   less than a minute\n"
      "  coda bench --backend sm90 gemm_rms_swiglu --shape 512x28672x4096,4096x28672x4096\n"
      "  coda bench --backend sm90 gemm_rms --layout nt,nn --suite models,few-rows --json\n"
      "  coda bench --backend sm90 --suite all --out results/mine/                   some minutes");
  command.runs([a] { bench(*a); });
}

}  // namespace coda::cli
