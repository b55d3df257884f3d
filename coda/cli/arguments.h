// What several subcommands read from their arguments. A value that makes no sense is a CLI::ValidationError that says
// what was expected.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "coda/cli/catalog.h"
#include "coda/cli/shape.h"
#include "coda/core/tensor.h"
#include "coda/ops/ops.h"

namespace coda::cli {

/// Lists of names as they were typed; the functions below give them a meaning.
struct CaseArguments {
  std::vector<std::string> programs, dtypes, layouts, shapes;
  std::string backend = "cpu";
};

/// An option that is a list, by commas or by repeating. CLI11's own would drop empty entries; here each stays, for the
/// check of the entries to refuse.
CLI::Option* add_list(CLI::App& command, const char* flag, std::vector<std::string>& values, const std::string& help);

/// Registers the positional names and --backend, --dtype, --layout, --shape: lists, by commas or by repeating.
void add_case_arguments(CLI::App& command, CaseArguments& arguments, const char* names, const char* dtypes);

ops::Backend parse_backend(const std::string& text);
std::vector<DType> parse_dtypes(const std::vector<std::string>& texts);
std::vector<Layout> parse_layouts(const std::vector<std::string>& texts);
std::vector<Shape> parse_shapes(const std::vector<std::string>& texts);
/// One of M, N and K.
std::int64_t parse_side(const char* option, const std::string& text);
/// The entries of these exact names, in the catalog's order; all of it for none.
std::vector<const Entry*> parse_programs(const std::vector<std::string>& names);

/// A number from `least` on. CLI11's own check lets NaN pass, and an infinity is none that a job can use.
CLI::Validator at_least(int least);
/// A whole number from `least` on that fits the option's type, in decimal. CLI11 would take the largest one for a
/// larger one, and one that begins with a 0 for an octal one: it is given the number without.
template <class Integer>
CLI::Validator whole(Integer least, Integer most = std::numeric_limits<Integer>::max()) {
  const auto check = [least, most](std::string& text) -> std::string {
    Integer x{};
    const char* end = text.data() + text.size();
    const auto [next, status] = std::from_chars(text.data(), end, x);
    if (status != std::errc() || next != end || x < least || x > most) {
      return fmt::format("expected a whole number from {} to {}, got `{}`", least, most, text);
    }
    text = fmt::to_string(x);
    return {};
  };
  return {check, {}};
}

/// Whole numbers from `least` on, such as the entries of a list.
template <class Integer>
std::vector<Integer> parse_whole(const char* option, const std::vector<std::string>& texts, Integer least) {
  std::vector<Integer> out;
  for (std::string text : texts) {
    const std::string problem = whole(least)(text);
    if (!problem.empty()) throw CLI::ValidationError(option, problem);
    Integer x{};
    std::from_chars(text.data(), text.data() + text.size(), x);
    out.push_back(x);
  }
  return out;
}

/// Throws Error(unsupported) unless this build and machine have the backend.
void require_backend(ops::Backend backend, const char* command);

}  // namespace coda::cli
