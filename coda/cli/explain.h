// `coda info --explain`: what a program runs as on a Hopper GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace coda::cli {

struct ExplainArguments {
  std::vector<std::string> call;  // program, M, N, K
  std::string layout, dtype = "bf16";
  std::int64_t head_dim = 0;
  bool as_json = false;
};
void explain(const ExplainArguments& arguments);

}  // namespace coda::cli
