// Argument checks shared by all operations: each throws Error(invalid_argument) "op: argument: expected ..., got ...".
#pragma once

#include <fmt/format.h>

#include <array>
#include <optional>

#include "coda/backend/sm90/device.h"
#include "coda/core/footprint.h"
#include "coda/ops/ops.h"

namespace coda::ops {

/// A default-made view, which may mean that an argument was forgotten. An empty one need have no memory either.
inline bool absent(const ConstMatrix& m) { return !m && m.rows == 0 && m.cols == 0; }
inline bool absent(const ConstVector& v) { return !v && v.size == 0; }

class Check {
 public:
  explicit Check(const char* operation, const Target& on);

  template <class... Args>
  [[noreturn]] void fail(const char* argument, fmt::format_string<Args...> format, Args&&... args) const {
    fail(Status::invalid_argument, argument, format, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[noreturn]] void fail(Status status, const char* argument, fmt::format_string<Args...> format,
                         Args&&... args) const {
    throw Error(status,
                fmt::format("{}: {}: {}", operation_, argument, fmt::format(format, std::forward<Args>(args)...)));
  }
  void require(bool ok, const char* argument, const char* message) const {
    if (!ok) fail(argument, "{}", message);
  }

  const char* operation() const { return operation_; }

  /// The element type of a matrix that decides which program runs: bf16, fp16, fp32 or fp64.
  DType real(const char* name, DType t) const;
  /// An argument that tells the sizes of others, which would seem to be wrong if it was forgotten. `elements`: of one
  /// of these, where there may be none.
  void given(const char* name, const ConstMatrix& m, std::int64_t elements = 1) const {
    if (elements > 0 && absent(m)) fail(name, "expected a matrix, got none");
  }
  void given(const char* name, const ConstVector& v, std::int64_t elements = 1) const {
    if (elements > 0 && absent(v)) fail(name, "expected a vector, got none");
  }
  /// A required matrix of this shape and dtype: pointer, alignment and pitch are sane.
  void matrix(const char* name, const ConstMatrix& m, std::int64_t rows, std::int64_t cols, DType t) const;
  void vector(const char* name, const ConstVector& v, std::int64_t size, DType t) const;
  /// An index vector: int32 or int64.
  void indices(const char* name, const ConstVector& v, std::int64_t size) const;
  /// The same where the argument may be absent.
  void optional_matrix(const char* name, const ConstMatrix& m, std::int64_t rows, std::int64_t cols, DType t) const {
    if (m) matrix(name, m, rows, cols, t);
  }
  void optional_vector(const char* name, const ConstVector& v, std::int64_t size, DType t) const {
    if (v) vector(name, v, size, t);
  }

  /// The pitch of another matrix of the same shape, for a program that goes through both with one.
  void same_pitch(const char* name, const ConstMatrix& m, const char* other_name, const ConstMatrix& other) const;

  /// Registers what is read and written; `no_overlap` then refuses outputs that share memory with each other or with an
  /// operand of the product, or that overlap an elementwise input without being exactly it.
  void operand(const char* name, const ConstMatrix& m) { inputs_.add({name, Footprint(m), false}); }
  void operand(const char* name, const ConstVector& v) { inputs_.add({name, Footprint(v), false}); }
  void input(const char* name, const ConstMatrix& m) { inputs_.add({name, Footprint(m), true}); }
  void output(const char* name, const ConstMatrix& m) { outputs_.add({name, Footprint(m), false}); }
  void output(const char* name, const ConstVector& v) { outputs_.add({name, Footprint(v), false}); }
  void no_overlap() const;

 private:
  struct Named {
    const char* name;
    Footprint memory;
    bool in_place;
  };
  /// A call allocates nothing; no operation has more arguments than this, those of a whole layer included.
  class List {
   public:
    void add(const Named& n) { items_.at(static_cast<std::size_t>(size_++)) = n; }
    int size() const { return size_; }
    const Named& operator[](int i) const { return items_[static_cast<std::size_t>(i)]; }
    const Named* begin() const { return items_.data(); }
    const Named* end() const { return items_.data() + size_; }

   private:
    std::array<Named, 32> items_;  // without values at first: to set all would take a quarter of a call's checks
    int size_ = 0;
  };
  /// Device memory, for a call on a device; told before anything is launched, since a kernel would only crash.
  void reachable(const char* name, const void* data) const;

  const char* operation_;
  std::optional<sm90::Reach> reach_;  // for a call on a device
  List inputs_, outputs_;
};

/// The shape of a product, after its operands were checked: both of one real dtype, inner dimensions equal.
struct Product {
  std::int64_t m, n, k;
  DType t;      // of the operands
  DType stats;  // of statistics: fp32, or fp64 for fp64
};
Product check_product(Check& check, const ConstMatrix& a, const ConstMatrix& b, Layout layout,
                      const char* b_name = "b");

inline DType stats_of(DType t) { return t == DType::fp64 ? DType::fp64 : DType::fp32; }

/// A scalar as a program has it that computes in this type, fp32 or fp64.
inline double scalar_in(DType t, double x) { return t == DType::fp64 ? x : static_cast<double>(static_cast<float>(x)); }

/// What an output is multiplied with before it is added to.
void check_beta(const Check& check, double beta);
/// A factor of what is computed in this type.
void check_factor(const Check& check, const char* name, double x, DType t);
/// What is added under the root of a norm.
void check_eps(const Check& check, const char* name, double eps, DType stats);

void check_backend(const Check& check, const char* name, Backend backend);
/// Columns of a head that there are programs for.
void check_head_dim(const Check& check, const char* name, std::int64_t head_dim);

/// Statistics and the optimiser's state are fp32 on the Hopper backend.
void check_fp32_on_sm90(const Check& check, const char* argument, DType t);

// ---- groups of arguments that several operations have

/// Whether the heads, of at least one column each, have n columns in all. No sum of huge counts overflows.
inline bool are_heads_of(const Heads& h, std::int64_t n) {
  const std::int64_t heads = n / h.head_dim;
  return n % h.head_dim == 0 && h.q <= heads && h.k <= heads - h.q && h.v == heads - h.q - h.k;
}
/// Heads of n columns in all, and the angles of m rows; returns the number of columns of q and k heads.
std::int64_t check_heads(Check& check, const Target& on, const Heads& h, std::int64_t m, std::int64_t n, DType stats);
void check_tokens(Check& check, const Target& on, const ConstVector& token, std::int64_t m, std::int64_t vocabulary);
void check_targets(Check& check, const Target& on, const ConstVector& target, std::int64_t m, std::int64_t vocabulary,
                   std::int64_t ignore);
void check_transform(const Check& check, const LogitTransform& t, DType stats);
void check_options(const Check& check, const CrossEntropy& o, DType stats);

}  // namespace coda::ops
