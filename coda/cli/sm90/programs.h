// Every program on a product, as a model calls it, on memory that all of one shape share.
#pragma once

#include <string>
#include <vector>

#include "coda/cli/shape.h"
#include "coda/cli/sm90/noise.h"
#include "coda/ops/ops.h"

namespace coda::bench {

using cli::Shape;

/// What a program reads and writes besides the operands and one output of the product's size.
struct Needs {
  bool addend = false;  // (M, N)
  bool wide = false;    // (M, 2N) in and out
  bool second = false;  // another (M, N) matrix
  bool fp32 = false;    // (M, N) in fp32, which is added to
};
inline Needs operator|(const Needs& a, const Needs& b) {
  return {a.addend || b.addend, a.wide || b.wide, a.second || b.second, a.fp32 || b.fp32};
}
std::int64_t bytes_needed(const Shape& s, const Needs& needs);

/// Memory and views for one shape. Rows of operands are 16-byte multiples apart, whatever the shape is. The layouts'
/// views are of the same numbers in memory, not of the same matrix.
class Arguments {
 public:
  Arguments(const Shape& s, const Needs& needs, const Noise& noise, std::int64_t head_dim);

  const Shape shape;
  ConstMatrix addend, wide;
  Matrix out, second, half, wide_out;  // half: (M, N/2); wide_out: (M, 2N)
  Matrix sum;                          // (M, N) in fp32
  Matrix partial[3], column_partial;   // (M, tiles_n) and (tiles_m, N)
  ConstVector weight, rstd, mean, column_sum, target, lse, dloss, head_weight;
  Vector target_logit;
  ops::Heads heads;

  ConstMatrix a(Layout layout) const;
  ConstMatrix b(Layout layout) const;

 private:
  static ConstMatrix operand(const void* data, std::int64_t rows, std::int64_t cols);
  void* allocate(std::int64_t bytes);
  void* noisy(const Noise& noise, std::int64_t elements);

  const void *a_ = nullptr, *b_ = nullptr;
  std::vector<DeviceBuffer> memory_;
};

struct Program {
  const char* name;
  Layout layout;  // in which models run it
  Needs needs;
  const char* tunes;  // the name in the table of measured shapes that it stands for; empty if another program does
  void (*run)(const Arguments& x, Layout layout, void* stream);
  std::int64_t columns = 1;  // N must be a multiple of it
};
const std::vector<Program>& programs();
/// Null if there is none of this name.
const Program* find_program(const std::string& name);

}  // namespace coda::bench
