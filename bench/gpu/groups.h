// The shapes that programs are measured at: squares, few rows, and the products of models.
#pragma once

#include <vector>

#include "bench/gpu/programs.h"

namespace coda::bench {

/// Programs that share a bare product.
struct Group {
  Shape shape;
  Layout layout;
  std::int64_t head_dim = 128;
  bool both_ways = false;  // beside each program the fused way and the other one
  std::vector<const Program*> programs;

  /// What all of them together need beside the operands.
  Needs needs() const;
  /// Whether their matrices fit into 20 GiB; tells on stderr if not.
  bool fits_in_memory() const;
};

class Groups {
 public:
  void add(const Program& p, const Shape& s, std::int64_t head_dim = 128, bool both_ways = false);
  void add_all(const Shape& s, bool both_ways = false);
  const std::vector<Group>& all() const { return all_; }

 private:
  std::vector<Group> all_;
};

/// M = N = K = 2048, 4096 and 8192; unless `quick` also few rows and the products of LLaMA-3 1B, 8B, 70B and Qwen3-8B.
Groups standard_groups(bool quick);

}  // namespace coda::bench
