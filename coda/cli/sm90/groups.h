// The shapes that programs are measured at: squares, few rows, the products of models, or one's own.
#pragma once

#include <utility>
#include <vector>

#include "coda/cli/sm90/programs.h"

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

/// What of a set of shapes is measured.
struct Selection {
  std::vector<const Program*> programs;
  std::vector<Layout> layouts = {};  // none: each program's usual one
};

class Groups {
 public:
  explicit Groups(Selection selection) : selection_(std::move(selection)) {}

  /// These leave out what is not selected, and programs that N does not fit.
  void add_all(const Shape& s, bool both_ways = false);
  /// M = N = K = 2048, 4096 and 8192.
  void add_squares();
  /// 1 to 1024 rows, N = K = 4096, both ways.
  void add_few_rows();
  /// The product that each program really has in LLaMA-3 1B, 8B, 70B and Qwen3-8B, for a batch of two sequences of 8192
  /// tokens.
  void add_models();

  /// Products that no program follows, of a shape or of all of these shapes, in each layout.
  void add_products(const Shape& s);
  void add_products();

  const std::vector<Group>& all() const { return all_; }

 private:
  void add(const Program& p, const Shape& s, std::int64_t head_dim, bool both_ways = false);
  void add(const Program& p, const Shape& s, Layout layout, std::int64_t head_dim, bool both_ways = false);

  Selection selection_;
  std::vector<Group> all_;
};

}  // namespace coda::bench
