// `coda programs`: what there is, with ports and formulas.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "coda/cli/catalog.h"
#include "coda/cli/commands.h"
#include "coda/cli/table.h"

namespace coda::cli {
namespace {

using json = nlohmann::ordered_json;

struct Arguments {
  std::vector<std::string> filters;
  bool as_json = false, names = false;
};

std::vector<const Entry*> matching(const std::vector<std::string>& filters) {
  std::vector<const Entry*> out;
  for (const Entry& e : catalog()) {
    bool match = filters.empty();
    for (const std::string& f : filters) match = match || e.name.find(f) != std::string::npos;
    if (match) out.push_back(&e);
  }
  if (out.empty())
    throw UsageError("filter", fmt::format("expected a part of a program's name, got `{}`: `coda programs` "
                                           "lists them",
                                           filters.front()));
  return out;
}

std::string operands_of(const Entry& e) {
  if (!e.product) return "none: no product";
  if (!e.any_layout) return fmt::format("a, b ({})", coda::name_of(e.layout));
  return fmt::format("a, b (nt, nn or tn; usually {})", coda::name_of(e.layout));
}

void print(const Entry& e) {
  fmt::print("{}\n", e.name);
  fmt::print("  call      coda::ops::{}\n", e.call);
  fmt::print("  operands  {}\n", operands_of(e));
  std::string formula = e.formula;
  for (std::size_t at = 0; (at = formula.find('\n', at)) != std::string::npos; at += 13)
    formula.replace(at, 1, "\n            ");
  fmt::print("  formula   {}\n", formula);
  fmt::print("  ports\n");
  for (const PortInfo& p : e.ports)
    fmt::print("    {:<18} {:<44} {:<5} {}{}\n", p.name, p.kind, p.dtype, p.shape, p.optional ? ", optional" : "");
  fmt::print("\n");
}

json as_json(const Entry& e) {
  json j{{"name", e.name},           {"call", "coda::ops::" + e.call}, {"formula", e.formula},  {"product", e.product},
         {"layouts", json::array()}, {"backends", {"cpu", "sm90"}},    {"ports", json::array()}};
  if (e.product && e.any_layout) j["layouts"] = {"nt", "nn", "tn"};
  else if (e.product) j["layouts"] = {coda::name_of(e.layout)};
  for (const PortInfo& p : e.ports)
    j["ports"].push_back(
        {{"name", p.name}, {"kind", p.kind}, {"dtype", p.dtype}, {"shape", p.shape}, {"optional", p.optional}});
  return j;
}

void programs(const Arguments& a) {
  const auto entries = matching(a.filters);
  if (a.as_json) {
    json j{{"command", "programs"}, {"programs", json::array()}};
    for (const Entry* e : entries) j["programs"].push_back(as_json(*e));
    fmt::print("{}\n", j.dump(1));
  } else if (a.names) {
    for (const Entry* e : entries) fmt::print("{}\n", e->name);
  } else {
    for (const Entry* e : entries) print(*e);
    fmt::print("{} programs. T: bf16, fp16, fp32 or fp64, the type of the operands. S: fp32, or fp64 where T is.\n",
               entries.size());
  }
}

}  // namespace

void add_programs(CLI::App& app) {
  Command command(app, "programs", "List the programs with their ports and formulas");
  const auto a = std::make_shared<Arguments>();
  command.words("filter", a->filters, "Only programs whose name contains one of these");
  command.flag("--names", a->names, "Print the names only");
  command.flag("--json", a->as_json, "Print one JSON document");
  command.footer(
      "acc is the product of the operands, (M, N) for sides M, N, K.\n"
      "Examples:\n"
      "  coda programs --names\n"
      "  coda programs swiglu rope\n"
      "  coda programs --json | python3 -m json.tool");
  command.runs([a] { programs(*a); });
}

}  // namespace coda::cli
