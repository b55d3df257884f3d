// GEMM plus epilogue on the CPU: each tile's product comes from oneDNN, then the program runs on it while it is in
// cache.
#pragma once

#include "coda/backend/cpu/tile.h"
#include "coda/core/error.h"

namespace coda::cpu {

/// Tile of the output that a program sees. Partial results of a program have shape (M, tiles_n(N)) or (tiles_m(M), N).
/// Fixed, whatever the number of threads: results are bitwise the same for any of them.
inline constexpr std::int64_t kTileM = 256, kTileN = 256;
constexpr std::int64_t tiles_m(std::int64_t m) { return ceil_div(m, kTileM); }
constexpr std::int64_t tiles_n(std::int64_t n) { return ceil_div(n, kTileN); }
/// A program that folds over heads gets tiles of whole heads: as many as fit into kTileN, one at least.
constexpr std::int64_t tile_n_for_heads(std::int64_t head_dim) {
  return kTileN / head_dim > 1 ? kTileN / head_dim * head_dim : head_dim;
}

namespace detail {

// As run_epilogue.
using Epilogue = void (*)(const void* program, const TileGeometry&, std::int64_t first, std::int64_t count,
                          const void* accumulator, std::int64_t ld, std::int64_t strip);

/// What a program folds of a tile: rows (ReduceM), columns.
struct Folds {
  bool rows = false, columns = false;
};

struct GemmCall {
  const char* op;  // what errors call it
  Layout layout;
  std::int64_t m, n, k;
  ConstMatrix a, b;
  std::int64_t tile_n;
  Epilogue epilogue;
  const void* program;
  Folds folds;
  // What products take at a time: steps of k, a multiple of 32, and columns of a whole tile, of 64. 0: by a rule.
  std::int64_t chunk = 0, strip = 0;
};
/// Throws Error(device_error) when memory runs out or oneDNN fails. Arguments are taken as checked.
void run(const GemmCall& call);

template <class Port>
inline constexpr bool kFoldsColumns = false;
template <class Op, class Acc>
inline constexpr bool kFoldsColumns<ReduceN<Op, Acc>> = true;

template <class Acc, class P>
std::int64_t tile_n_for(const char* op, const P& program) {
  const std::int64_t head_dim = checked_head_dim(op, program);
  if constexpr (count_ports<HeadMean<Acc, 0>, P>() + count_ports<HeadMean<Acc, 1>, P>() == 0) return kTileN;
  if (head_dim > kMaxTileN) {
    throw Error(Status::unsupported, std::string(op) + ": program: expected a head_dim of at most " +
                                         std::to_string(kMaxTileN) + ", got " + std::to_string(head_dim));
  }
  return tile_n_for_heads(head_dim);
}

/// Along which directions this program folds: what is folded runs in order, on one thread.
template <class Acc, class P>
Folds folds_of(const P& program) {
  Folds folds;
  for_each_port(program, [&](const auto& port) {
    using Q = std::remove_cvref_t<decltype(port)>;
    if constexpr (kFoldsRows<Q>) folds.rows = folds.rows || port.data;
    else if constexpr (std::is_same_v<Q, MomentsN<Acc>>) folds.columns = folds.columns || port.mean;
    else if constexpr (std::is_same_v<Q, OnlineLse<Acc>>) folds.columns = folds.columns || port.max;
    else if constexpr (kFoldsColumns<Q>) folds.columns = folds.columns || port.data;
    else if constexpr (kIsHeadMean<Q>) folds.columns = true;
  });
  return folds;
}

/// Describes the call of a program, after a look at its ports.
template <class Acc, class P>
GemmCall describe(const char* op, Layout layout, std::int64_t m, std::int64_t n, std::int64_t k, const ConstMatrix& a,
                  const ConstMatrix& b, const P& program) {
  const std::int64_t tile_n = tile_n_for<Acc>(op, program);
  check_ports(op, program, {m, n, tiles_m(m), ceil_div(n, tile_n)}, a, b);
  return {op, layout, m, n, k, a, b, tile_n, &run_epilogue<Acc, P>, &program, folds_of<Acc>(program)};
}

}  // namespace detail

/// Runs `program` on the product of a and b, which the layout reads as in `Layout`. T is bf16, fp16, float or double,
/// accumulated in float (double for double). K = 0 gives a product of zeros; M = 0 or N = 0 does nothing.
/// Results are bitwise the same for any number of threads. The last, smaller tile, up to 512 rows, fewer than 32 tiles,
/// or (layout tn) an M on the other side of 2 N may take another of oneDNN's kernels, so a row's last bits may depend
/// on M, never on what the other rows hold. Throws Error(invalid_argument) if a size is below 0 or they do not fit each
/// other, if a view (or array or container) of a port has another shape, if rows of an operand, or of a matrix that
/// a port reads or writes, do not fit its pitch, and if an operand is null; Error(device_error) if memory runs out.
/// They name `op`. The size behind a port's bare pointer is taken on trust (the checked calls of coda/ops take none).
/// An output has memory of its own (else: Error(invalid_argument)), but that what a TileLoad reads may be overwritten
/// in place, after it was loaded.
template <class T, class U, Program P>
void gemm(MatrixOf<T> a, MatrixOf<U> b, const P& program, Layout layout = Layout::nt, const char* op = "gemm") {
  static_assert(is_real<T> && std::is_same_v<std::remove_const_t<T>, std::remove_const_t<U>>,
                "coda: gemm takes two matrices of bf16, of fp16, of float or of double");
  using Acc = acc_t<T>;
  const auto [m, n, k] = product_size(op, a, b, layout);
  if (m > 0 && n > 0 && k > 0) check_operand(op, "a", a), check_operand(op, "b", b);
  detail::run(detail::describe<Acc>(op, layout, m, n, k, a, b, program));
}

/// Runs a program with no product: its accumulator is 0, what it works on comes through its ports. Acc is float, or
/// double where its matrices are. This is how the elementwise kernels of the backward are run.
template <Scalar Acc, Program P>
void apply(std::int64_t m, std::int64_t n, const P& program, const char* op = "apply") {
  const DType t = dtype_of<Acc>;
  detail::run(detail::describe<Acc>(op, Layout::nt, m, n, 0, ConstMatrix(nullptr, t, m, 0),
                                    ConstMatrix(nullptr, t, n, 0), program));
}

}  // namespace coda::cpu

namespace coda {
using cpu::gemm;
}
