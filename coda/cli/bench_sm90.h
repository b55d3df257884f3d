// `coda bench --backend sm90`: programs, small kernels and a layer on a Hopper GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace coda::cli {

/// As they were typed.
struct BenchSm90Arguments {
  std::vector<std::string> programs, suites, shapes, layouts;
  std::optional<int> rounds;
  bool as_json = false;
  std::string out, commit;
};
void bench_sm90(const BenchSm90Arguments& arguments);

}  // namespace coda::cli
