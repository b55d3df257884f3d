// What several subcommands read from their arguments. A value that makes no sense is a UsageError that says what was
// expected.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coda/cli/catalog.h"
#include "coda/cli/command.h"
#include "coda/cli/shape.h"
#include "coda/core/tensor.h"
#include "coda/ops/ops.h"

namespace coda::cli {

/// Lists of names as they were typed; the functions below give them a meaning.
struct CaseArguments {
  std::vector<std::string> programs, dtypes, layouts, shapes;
  std::string backend = "cpu";
};

/// Registers the positional names and --backend, --dtype, --layout, --shape: lists, by commas or by repeating.
void add_case_arguments(Command& command, CaseArguments& arguments, const char* names, const char* dtypes);

ops::Backend parse_backend(const std::string& text);
std::vector<DType> parse_dtypes(const std::vector<std::string>& texts);
std::vector<Layout> parse_layouts(const std::vector<std::string>& texts);
std::vector<Shape> parse_shapes(const std::vector<std::string>& texts);
/// One of M, N and K.
std::int64_t parse_side(const char* option, const std::string& text);
/// The entries of these exact names, in the catalog's order; all of it for none. `argument` is where they were given.
std::vector<const Entry*> parse_programs(const std::vector<std::string>& names, const char* argument = "programs");

/// Whole numbers from `least` on, such as the entries of a list.
template <class Integer>
std::vector<Integer> parse_whole(const char* option, const std::vector<std::string>& texts, Integer least) {
  std::vector<Integer> out;
  for (const std::string& text : texts) {
    const std::string problem = problem_of(text, out.emplace_back(), least);
    if (!problem.empty()) throw UsageError(option, problem);
  }
  return out;
}

/// Throws Error(unsupported) unless this build and machine have the backend.
void require_backend(ops::Backend backend, const char* command);

}  // namespace coda::cli
