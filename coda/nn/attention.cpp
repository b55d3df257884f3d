#include "coda/nn/attention.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <new>

#include "coda/backend/cpu/threads.h"
#include "coda/core/error.h"
#include "coda/nn/convert.h"
#include "coda/nn/vectors.h"
#include "coda/ops/ops.h"

namespace coda::nn {
namespace {

// Queries that are multiplied at a time: the upper triangle is skipped in whole blocks of them.
constexpr std::int64_t kRows = 128;

/// Sizes of a call, and where the block of one sequence and head lies in a matrix.
struct Shape {
  std::int64_t batch, heads, kv_heads, head_dim, queries, keys;

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t visible(std::int64_t query) const { return keys - queries + query + 1; }

  template <class M>
  M part(M m, std::int64_t first_row, std::int64_t rows, std::int64_t head) const {
    using Byte = std::conditional_t<std::is_same_v<M, Matrix>, std::byte, const std::byte>;
    m.data = static_cast<Byte*>(m.data) + (first_row * m.pitch + head * head_dim) * size_of(m.dtype);
    m.rows = rows;
    m.cols = head_dim;
    return m;
  }
};

void require(bool ok, const char* operation, const char* argument, const std::string& expected,
             const std::string& got) {
  if (!ok) {
    throw Error(Status::invalid_argument,
                fmt::format("{}: {}: expected {}, got {}", operation, argument, expected, got));
  }
}

void check_matrix(const char* operation, const char* name, const ConstMatrix& m, std::int64_t rows, std::int64_t cols,
                  DType dtype) {
  require(m.dtype == dtype, operation, name, name_of(dtype), name_of(m.dtype));
  require(m.rows == rows && m.cols == cols && (m.rows <= 1 || m.pitch >= m.cols), operation, name,
          fmt::format("({}, {})", rows, cols), fmt::format("({}, {}) of pitch {}", m.rows, m.cols, m.pitch));
  require(m.data != nullptr || rows * cols == 0, operation, name, "data", "a null pointer");
}

template <class Args>
Shape check_shape(const char* operation, const Args& a) {
  for (const auto& [name, value] : {std::pair{"batch", a.batch}, std::pair{"heads", a.heads},
                                    std::pair{"kv_heads", a.kv_heads}, std::pair{"head_dim", a.head_dim}}) {
    require(value >= 1, operation, name, "a number above 0", std::to_string(value));
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  require(a.heads <= kMost / a.head_dim, operation, "heads", fmt::format("at most {}", kMost / a.head_dim),
          std::to_string(a.heads));
  require(a.heads % a.kv_heads == 0, operation, "kv_heads", fmt::format("a divisor of heads ({})", a.heads),
          std::to_string(a.kv_heads));
  require(a.q.rows % a.batch == 0 && a.k.rows % a.batch == 0, operation, "batch", "a divisor of the rows of q and k",
          std::to_string(a.batch));
  const Shape s{a.batch, a.heads, a.kv_heads, a.head_dim, a.q.rows / a.batch, a.k.rows / a.batch};
  require(s.queries <= s.keys, operation, "k", "at least as many keys as queries",
          fmt::format("{} and {}", s.keys, s.queries));
  const DType t = a.q.dtype;
  require(t <= DType::fp64, operation, "q", "bf16, fp16, fp32 or fp64", name_of(t));
  check_matrix(operation, "q", a.q, a.q.rows, a.heads * a.head_dim, t);
  check_matrix(operation, "k", a.k, a.k.rows, a.kv_heads * a.head_dim, t);
  check_matrix(operation, "v", a.v, a.k.rows, a.kv_heads * a.head_dim, t);
  check_matrix(operation, "out", a.out, a.q.rows, a.heads * a.head_dim, t);
  return s;
}

DType stats_of(DType t) { return t == DType::fp64 ? DType::fp64 : DType::fp32; }

/// Grow-only memory of one thread: the scores of a block of queries and what is made of them.
class Scratch {
 public:
  void* get(std::size_t bytes) {
    if (bytes > size_) {
      size_ = (bytes + 4095) / 4096 * 4096;
      data_.reset(static_cast<std::byte*>(std::aligned_alloc(64, size_)));
      if (!data_) {
        size_ = 0;
        throw std::bad_alloc();
      }
    }
    return data_.get();
  }
  template <class T>
  MatrixOf<T> matrix(std::int64_t rows, std::int64_t cols, std::int64_t pitch) {
    return {static_cast<T*>(get(static_cast<std::size_t>(rows * pitch) * sizeof(T))), rows, cols, pitch};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};
struct ThreadScratch {
  Scratch scores, dscores, weights, dweights, dk, dv;
};
ThreadScratch& scratch() {
  thread_local ThreadScratch s;
  return s;
}

/// `unit(i)` for 0 <= i < count on all threads; the first exception is thrown after the last unit.
template <class F>
void parallel_units(std::int64_t count, const F& unit) {
  std::exception_ptr error;
#pragma omp parallel if (cpu::may_share())
  {
    const cpu::DefaultRounding rounding;
#pragma omp for schedule(dynamic) nowait
    for (std::int64_t i = 0; i < count; ++i) {
      try {
        unit(i);
      } catch (...) {
#pragma omp critical(coda_attention_error)
        if (!error) error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

/// Turns a row of scores into its softmax over the first `visible` of `n` columns; the rest becomes 0. Returns lse.
template <class T, class Acc = acc_t<T>>
Acc softmax_row(Acc* scores, std::int64_t visible, std::int64_t n, T* out) {
  constexpr Acc low = -std::numeric_limits<Acc>::infinity();
  using V = Lane<T>;
  V top(low);
  for_columns<Acc>(visible, [&](Columns at) {
    const V x = load(scores, at, low);
    top = select(x > top, x, top);
  });
  const Acc max = fold_lanes(top, [](V a, V b) { return select(b > a, b, a); });
  V sum(Acc(0));
  for_columns<Acc>(visible, [&](Columns at) {
    const V e = exp(load(scores, at, low) - V(max));
    store(scores, at, e);
    sum = sum + e;
  });
  const Acc total = sum_lanes(sum);
  const V scale(1 / total);
  for_columns<Acc>(visible, [&](Columns at) { store(out, at, load(scores, at) * scale); });
  std::fill(out + visible, out + n, T(Acc(0)));
  return max + std::log(total);
}

template <class T>
void forward(const Attention& a, const Shape& s) {
  using Acc = acc_t<T>;
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  const std::int64_t pitch = (s.keys + 15) / 16 * 16, blocks = (s.queries + kRows - 1) / kRows;
  parallel_units(s.batch * s.heads * blocks, [&](std::int64_t unit) {
    // The longest blocks come first, so that no thread is left with one at the end.
    const std::int64_t block = blocks - 1 - unit / (s.batch * s.heads), rest = unit % (s.batch * s.heads);
    const std::int64_t b = rest / s.heads, head = rest % s.heads, first = block * kRows;
    const std::int64_t rows = std::min(kRows, s.queries - first), n = s.visible(first + rows - 1);
    const std::int64_t row = b * s.queries + first;
    const auto scores = scratch().scores.matrix<Acc>(rows, n, pitch);
    const auto weights = scratch().weights.matrix<T>(rows, n, pitch);
    ops::gemm({.a = s.part(a.q, row, rows, head),
               .b = s.part(a.k, b * s.keys, n, head / s.group()),
               .alpha = scale,
               .out = scores});
    const auto lse = a.lse.as<Acc>();
    for (std::int64_t r = 0; r < rows; ++r) {
      const Acc value = softmax_row<T>(scores.row(r), s.visible(first + r), n, weights.row(r));
      if (lse.data) lse.row(row + r)[head] = value;
    }
    ops::gemm({.a = ConstMatrix(weights),
               .b = s.part(a.v, b * s.keys, n, head / s.group()),
               .layout = Layout::nn,
               .out = s.part(a.out, row, rows, head)});
  });
}

/// weights = softmax again, dscores = weights · (dweights − row) · scale, both 0 past `visible`.
template <class T, class Acc = acc_t<T>>
void backward_row(const Acc* scores, const Acc* dweights, Acc lse, Acc row, Acc scale, std::int64_t visible,
                  std::int64_t n, T* weights, T* dscores) {
  using V = Lane<T>;
  for_columns<Acc>(visible, [&](Columns at) {
    const V p = exp(load(scores, at) - V(lse));
    store(weights, at, p);
    store(dscores, at, p * (load(dweights, at) - V(row)) * V(scale));
  });
  std::fill(weights + visible, weights + n, T(Acc(0)));
  std::fill(dscores + visible, dscores + n, T(Acc(0)));
}

template <class T>
void round_into(MatrixOf<const acc_t<T>> in, const Matrix& out) {
  const auto to = out.as<T>();
  for (std::int64_t r = 0; r < in.rows; ++r) {
    for_columns<T>(in.cols, [&](Columns at) { store(to.row(r), at, load(in.row(r), at)); });
  }
}

// One sequence and key head at a time, so that no two threads add to the same gradient.
template <class T>
void backward(const AttentionBackward& a, const Shape& s) {
  using Acc = acc_t<T>;
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  const std::int64_t pitch = (s.keys + 15) / 16 * 16;
  parallel_units(s.batch * s.kv_heads, [&](std::int64_t unit) {
    const std::int64_t b = unit / s.kv_heads, kv_head = unit % s.kv_heads;
    const auto dk = scratch().dk.matrix<Acc>(s.keys, s.head_dim, s.head_dim);
    const auto dv = scratch().dv.matrix<Acc>(s.keys, s.head_dim, s.head_dim);
    std::fill_n(dk.data, s.keys * s.head_dim, Acc(0));
    std::fill_n(dv.data, s.keys * s.head_dim, Acc(0));
    for (std::int64_t head = kv_head * s.group(); head < (kv_head + 1) * s.group(); ++head) {
      for (std::int64_t first = 0; first < s.queries; first += kRows) {
        const std::int64_t rows = std::min(kRows, s.queries - first), n = s.visible(first + rows - 1);
        const std::int64_t row = b * s.queries + first;
        const auto q = s.part(a.q, row, rows, head), k = s.part(a.k, b * s.keys, n, kv_head);
        const auto v = s.part(a.v, b * s.keys, n, kv_head), dout = s.part(a.dout, row, rows, head);
        const auto scores = scratch().scores.matrix<Acc>(rows, n, pitch);
        const auto dweights = scratch().dweights.matrix<Acc>(rows, n, pitch);
        const auto weights = scratch().weights.matrix<T>(rows, n, pitch);
        const auto dscores = scratch().dscores.matrix<T>(rows, n, pitch);
        ops::gemm({.a = q, .b = k, .alpha = scale, .out = scores});
        ops::gemm({.a = dout, .b = v, .out = dweights});
        const auto out = s.part(a.out, row, rows, head).template as<T>();
        for (std::int64_t r = 0; r < rows; ++r) {
          const T* d = dout.template as<T>().row(r);
          const Acc row_term =
              sum_columns<T>(s.head_dim, [&](Columns at) { return load(d, at) * load(out.row(r), at); });
          backward_row<T>(scores.row(r), dweights.row(r), a.lse.as<Acc>().row(row + r)[head], row_term,
                          static_cast<Acc>(scale), s.visible(first + r), n, weights.row(r), dscores.row(r));
        }
        ops::gemm({.a = ConstMatrix(dscores), .b = k, .layout = Layout::nn, .out = s.part(a.dq, row, rows, head)});
        const MatrixOf<Acc> dk_part(dk.data, n, s.head_dim), dv_part(dv.data, n, s.head_dim);
        ops::gemm({.a = ConstMatrix(dscores), .b = q, .layout = Layout::tn, .beta = 1, .c = dk_part, .out = dk_part});
        ops::gemm(
            {.a = ConstMatrix(weights), .b = dout, .layout = Layout::tn, .beta = 1, .c = dv_part, .out = dv_part});
      }
    }
    round_into<T>(dk, s.part(a.dk, b * s.keys, s.keys, kv_head));
    round_into<T>(dv, s.part(a.dv, b * s.keys, s.keys, kv_head));
  });
}

}  // namespace

void attention(const Attention& args) {
  const Shape s = check_shape("attention", args);
  if (args.lse) check_matrix("attention", "lse", args.lse, args.q.rows, args.heads, stats_of(args.q.dtype));
  visit_real(args.q.dtype, [&]<class T>(std::type_identity<T>) { forward<T>(args, s); });
}

void attention_backward(const AttentionBackward& args) {
  constexpr const char* name = "attention_backward";
  const Shape s = check_shape(name, args);
  const DType t = args.q.dtype;
  check_matrix(name, "lse", args.lse, args.q.rows, args.heads, stats_of(t));
  check_matrix(name, "dout", args.dout, args.q.rows, args.heads * args.head_dim, t);
  check_matrix(name, "dq", args.dq, args.q.rows, args.heads * args.head_dim, t);
  check_matrix(name, "dk", args.dk, args.k.rows, args.kv_heads * args.head_dim, t);
  check_matrix(name, "dv", args.dv, args.k.rows, args.kv_heads * args.head_dim, t);
  if (s.keys == 0) return;  // without queries the keys' gradients are written all the same
  visit_real(t, [&]<class T>(std::type_identity<T>) { backward<T>(args, s); });
}

}  // namespace coda::nn
