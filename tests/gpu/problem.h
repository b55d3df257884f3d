// One call of an operation, apart from where it runs: its inputs as numbers, its outputs, and how they may be judged.
// The same problem runs on the CPU in fp64 and in 16 bits, and on Hopper with any placement of its matrices.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "coda/ops/ops.h"
#include "tests/gpu/image.h"
#include "tests/support/random.h"

namespace coda::test::gpu {

/// A matrix or vector of a problem; kNone: an optional argument that is not given.
using Id = int;
inline constexpr Id kNone = -1;

/// Operands and statistics take the type that the problem runs in, others have one of their own.
enum class Kind { operand, statistic, fixed };

/// What a tile's partial result is, and so how those of two tiles become one. Backends differ in the size of tiles.
enum class Fold { none, sum, max, sum_exp, mean, m2 };
enum class Tiles { none, columns, rows };

/// The largest absolute value among the terms of an output, from the reference's outputs: cancellation may leave less.
using Magnitude = std::function<double(const std::vector<Mat>& reference)>;

struct Slot {
  std::string name;
  Kind kind = Kind::operand;
  DType fixed = DType::fp32;
  std::int64_t rows = 0, cols = 0;  // of partial results: what they cover
  Mat values = {};                  // of inputs, and of outputs that are updated
  bool output = false, filled = false;
  bool packed = false;  // a vector or a table: its rows lie side by side
  bool by_row = false;  // row m of it belongs to row m of the product
  Tiles tiles = Tiles::none;
  std::int64_t head_dim = 0;  // tiles are whole heads of this width; 0: plain tiles
  Fold fold = Fold::none;
  Id partner = kNone;     // of sum_exp the maxima, of m2 the means: also shares its pitch
  bool linear = false;    // on exact inputs nothing is rounded before it is stored
  bool of_short = false;  // made of matrices that were stored in the operands' type
  Magnitude magnitude = {};
};

/// What a test of bad calls does to one argument.
struct Spoil {
  Id id = kNone;
  std::function<void(Matrix&)> matrix = {};
  std::function<void(Vector&)> vector = {};
};

/// The views of a problem's slots in an image, by Id.
class Bound {
 public:
  struct View {
    const Image* image;
    int block;
    const Spoil* spoil;
    operator Matrix() const {
      if (block < 0) return {};
      Matrix x = image->matrix(block);
      if (spoil && spoil->id == block) spoil->matrix(x);
      return x;
    }
    operator Vector() const {
      if (block < 0) return {};
      Vector x = image->vector(block);
      if (spoil && spoil->id == block) spoil->vector(x);
      return x;
    }
    operator ConstMatrix() const { return Matrix(*this); }
    operator ConstVector() const { return Vector(*this); }
  };
  explicit Bound(const Image& image, const Spoil* spoil = nullptr) : image_(&image), spoil_(spoil) {}
  View operator[](Id id) const { return {image_, id, spoil_}; }

 private:
  const Image* image_;
  const Spoil* spoil_;
};

using Call = std::function<void(const Bound&, const ops::Target&)>;

struct Shape {
  std::int64_t m = 1, n = 1, k = 1;
};

struct Problem {
  std::string name;  // for messages: all that it was drawn from
  DType type = DType::bf16;
  Shape shape;
  bool exact = false;
  std::vector<Slot> slots;
  Call call;

  const Slot& slot(Id id) const { return slots[static_cast<std::size_t>(id)]; }
  /// The same with `count` of its rows only, from `first` on.
  Problem rows(std::int64_t first, std::int64_t count) const;
};

struct Options {
  DType type = DType::bf16;
  Layout layout = Layout::nt;
  bool exact = true;          // small integers and powers of two
  double scale = 1;           // else: of the operands
  bool whole_chunks = false;  // N and K of 8, heads of 32, 64 or 128: what fused kernels take
  bool everything = false;    // every optional output and input is given
  std::int64_t head_dim = 0;  // of programs that have heads; 0: drawn
  std::uint64_t seed = 0;
};

/// Draws the arguments of one call. Functions that make an argument return its Id.
class Draw {
 public:
  Random random;
  const Options options;
  std::int64_t m, n, k;
  std::vector<Slot> slots;

  Draw(const Options& o, const Shape& s);

  bool exact() const { return options.exact; }
  double scale() const { return options.scale; }
  /// An option of the call that may be given or not.
  bool given() { return options.everything || random.integer(0, 1) == 1; }
  void make_n_even();
  Slot& slot(Id id) { return slots[static_cast<std::size_t>(id)]; }
  const Mat& values(Id id) { return slot(id).values; }

  // ---- inputs

  Id input(Slot slot, Mat values);
  struct Operands {
    Id a, b;
    Layout layout;
  };
  /// M x K and N x K, laid out; products of about `scale`.
  Operands product();
  // Integers, or normal values of `size`.
  Id matrix(const char* name, std::int64_t cols, double size = 1);  // (M, cols)
  Id row_vector(const char* name, double size = 1) { return vector(name, n, Kind::operand, size); }
  Id vector(const char* name, std::int64_t count, Kind kind, double size);
  Id rows(const char* name, double size);  // (M) statistic
  /// Positive: powers of two, or around `size`.
  Id factors(const char* name, std::int64_t count, Kind kind, double size, bool by_row);
  Id indices(const char* name, const std::vector<std::int64_t>& values);
  Id targets(std::int64_t classes, std::int64_t ignore_index = -100);

  // ---- outputs

  Id output(Slot slot);
  Id out(const char* name, std::int64_t cols, bool linear);                                            // (M, cols)
  Id row_statistic(const char* name, bool linear);                                                     // (M)
  Id partial(const char* name, std::int64_t cols, Fold fold, bool linear, std::int64_t head_dim = 0);  // (M, tiles)
  Id column_partial(const char* name, bool linear);                                                    // (tiles, N)
  /// The same slot, which then holds `values` before the call.
  Id filled(Id id, Mat values);
  /// An output in the place of an input of its shape.
  Id in_place(Id input, const char* name, bool linear);

  /// Largest row sum of |z dz| over the reference's dz.
  static Magnitude dot(Id dz, const Mat& z);
  static Magnitude constant(double x) {
    return [x](const std::vector<Mat>&) { return x; };
  }

  // ---- groups of arguments

  struct Norm {
    Id rstd = kNone, mean = kNone, u = kNone, c = kNone;
    ops::Norm bind(const Bound& x) const { return {.rstd = x[rstd], .mean = x[mean], .u = x[u], .c = x[c]}; }
  };
  Norm rms() { return {.rstd = given() ? factors("norm.rstd", m, Kind::statistic, 1 / scale(), true) : kNone}; }
  Norm layernorm();

  struct Dot {
    Id zdz = kNone, udz = kNone, u = kNone, c = kNone;
    ops::NormDot bind(const Bound& x) const { return {.zdz = x[zdz], .udz = x[udz], .u = x[u], .c = x[c]}; }
  };
  /// Row terms of a gradient `dz` whose value is z, in tiles of `tiled` columns of the product.
  Dot row_terms(bool layernorm, Id dz, const Mat& z, std::int64_t tiled, bool linear, std::int64_t head_dim = 0);
  /// The derivative of a function may cancel, as GELU's does far below 0: its error is then one of the product that it
  /// is multiplied by, not of the dz that is left.
  void allow_for_derivative(const Dot& terms, const Operands& product, const Mat& z);

  struct Heads {
    std::int64_t q = 0, k = 0, v = 0, dim = 2;
    Id table = kNone, position = kNone;
    ops::Heads bind(const Bound& x) const {
      return {.q = q, .k = k, .v = v, .head_dim = dim, .table = x[table], .position = x[position]};
    }
  };
  /// Fills the product's columns with heads, changing N. Exact: quarter turns, which round nothing.
  Heads heads();

 private:
  Id add(Slot slot) {
    slots.push_back(std::move(slot));
    return static_cast<Id>(slots.size()) - 1;
  }
};

/// An operation and how to draw a call of it; each variant runs other device code.
struct Program {
  const char* name;
  int variants;
  Call (*draw)(Draw& d, int variant);
  bool product = true;  // it multiplies, in any of `layouts` (else in nt, whatever is asked for)
  bool any_layout = true;
  bool rows_are_alone =
      true;  // row m of its outputs depends on row m of its inputs alone, in a case without folds along m
  Layout natural = Layout::nt;
};
std::span<const Program> forward_programs();
std::span<const Program> loss_programs();
std::span<const Program> backward_programs();
std::span<const Program> small_programs();
/// All of them, or those that CODA_TEST_PROGRAMS names, with commas between them, or behind a `-` all but those.
std::vector<Program> programs();

Problem draw(const Program& program, int variant, const Options& options, const Shape& shape);
/// A problem of each variant of all programs, alternately of each type.
std::vector<Problem> one_of_each(const Shape& shape, std::uint64_t seed);

}  // namespace coda::test::gpu
