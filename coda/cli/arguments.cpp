#include "coda/cli/arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "coda/backend/sm90/device.h"
#include "coda/core/error.h"

namespace coda::cli {
namespace {

[[noreturn]] void refuse(const char* option, const std::string& message) { throw UsageError(option, message); }

constexpr std::int64_t kLargest = std::int64_t{1} << 20;  // of one side of a shape

/// Reads a number; where it ends, or null if it is none that a shape has.
const char* read_side(const char* p, const char* end, std::int64_t& side) {
  const auto [next, status] = std::from_chars(p, end, side);
  return status == std::errc() && side >= 1 && side <= kLargest ? next : nullptr;
}

std::string closest_names(const std::string& name) {
  std::vector<std::string> close, called;
  for (const Entry& e : catalog()) {
    if (e.call == name) called.push_back(e.name);
    if (e.name.find(name) != std::string::npos || name.find(e.name) != std::string::npos) close.push_back(e.name);
  }
  if (!called.empty()) close = called;  // it is the function that runs them
  return close.empty() ? "`coda programs` lists them" : fmt::format("did you mean {}?", fmt::join(close, ", "));
}

}  // namespace

void add_case_arguments(Command& command, CaseArguments& a, const char* names, const char* dtypes) {
  command.words("programs", a.programs, names);
  command.option("--backend", a.backend, "cpu or sm90").shows_default();
  command.list("--dtype", a.dtypes, dtypes);
  command.list("--layout", a.layouts, "nt (A B^T), nn (A B), tn (A^T B): a list by commas");
  command.list("--shape", a.shapes, "MxNxK of the product, such as 300x520x200: a list by commas");
}

ops::Backend parse_backend(const std::string& text) {
  if (text == "cpu") return ops::Backend::cpu;
  if (text == "sm90") return ops::Backend::sm90;
  refuse("--backend", fmt::format("expected cpu or sm90, got `{}`", text));
}

std::vector<DType> parse_dtypes(const std::vector<std::string>& texts) {
  std::vector<DType> out;
  for (const std::string& text : texts) {
    const auto known = {DType::bf16, DType::fp16, DType::fp32, DType::fp64};
    const auto* at = std::find_if(known.begin(), known.end(), [&](DType t) { return text == coda::name_of(t); });
    if (at == known.end()) refuse("--dtype", fmt::format("expected bf16, fp16, fp32 or fp64, got `{}`", text));
    out.push_back(*at);
  }
  return out;
}

std::vector<Layout> parse_layouts(const std::vector<std::string>& texts) {
  std::vector<Layout> out;
  for (const std::string& text : texts) {
    const auto known = {Layout::nt, Layout::nn, Layout::tn};
    const auto* at = std::find_if(known.begin(), known.end(), [&](Layout l) { return text == coda::name_of(l); });
    if (at == known.end()) refuse("--layout", fmt::format("expected nt, nn or tn, got `{}`", text));
    out.push_back(*at);
  }
  return out;
}

std::vector<Shape> parse_shapes(const std::vector<std::string>& texts) {
  std::vector<Shape> out;
  for (const std::string& text : texts) {
    Shape s;
    const char* p = text.data();
    const char* const end = p + text.size();
    for (std::int64_t* side : {&s.m, &s.n, &s.k}) {
      const char* next = read_side(p, end, *side);
      if (next == nullptr || (side == &s.k ? next != end : next == end || *next != 'x'))
        refuse("--shape",
               fmt::format("expected MxNxK of numbers from 1 to {}, such as 300x520x200, got `{}`", kLargest, text));
      p = next + 1;
    }
    out.push_back(s);
  }
  return out;
}

std::int64_t parse_side(const char* option, const std::string& text) {
  std::int64_t side = 0;
  const char* const end = text.data() + text.size();
  if (read_side(text.data(), end, side) != end)
    refuse(option, fmt::format("expected a size from 1 to {}, got `{}`", kLargest, text));
  return side;
}

std::vector<const Entry*> parse_programs(const std::vector<std::string>& names, const char* argument) {
  for (const std::string& name : names)
    if (find_entry(name) == nullptr)
      refuse(argument, fmt::format("expected the name of a program, got `{}`: {}", name, closest_names(name)));
  std::vector<const Entry*> out;
  for (const Entry& e : catalog())
    if (names.empty() || std::find(names.begin(), names.end(), e.name) != names.end()) out.push_back(&e);
  return out;
}

void require_backend(ops::Backend backend, const char* command) {
  std::string why;
  if (backend == ops::Backend::sm90 && !sm90::available(&why))
    throw Error(Status::unsupported, fmt::format("{}: --backend: expected one that this build and machine have, got "
                                                 "sm90, but {}",
                                                 command, why));
}

}  // namespace coda::cli
