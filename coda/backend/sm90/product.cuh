// A program on a product: in one fused kernel where that fits and pays, else after cuBLASLt's product. Nothing here
// needs CUTLASS; a file that instantiates a program that has a fused kernel includes gemm.cuh.
#pragma once

#include <algorithm>
#include <string_view>

#include "coda/backend/sm90/apply.cuh"
#include "coda/backend/sm90/blas.h"
#include "coda/backend/sm90/choice.h"
#include "coda/backend/sm90/run.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/programs/gemm.h"

namespace coda::sm90 {

/// Whether a program has fused kernels. A rare one does without: specialise this where it is instantiated.
template <class Program>
inline constexpr bool kFused = true;

/// The name under which kFusedPrograms and the table of measured shapes have a program; without one, the rule decides.
/// Specialise it where the program is instantiated.
template <class Program>
inline constexpr std::string_view kName{};

namespace detail {

/// In gemm.cuh: starts the fused kernel, unless the arguments are none for it or the other way is faster.
template <class T, class Program>
bool launch_fused(const Call& call, const Device& device, MatrixOf<const T> a, MatrixOf<const T> b,
                  const Program& program, cudaStream_t stream);

/// Rows of the accumulator that are in memory at a time: some 256 MiB, so that a huge product needs no huge workspace.
inline std::int64_t rows_at_a_time(std::int64_t n) {
  constexpr std::int64_t kBytes = std::int64_t{256} << 20;
  return std::max<std::int64_t>(kBytes / (n * 4) / kTileM, 1) * kTileM;
}

template <class T, class Program>
void run_unfused(const Call& call, const Device& device, MatrixOf<const T> a, MatrixOf<const T> b,
                 const Program& program, cudaStream_t stream) {
  const std::int64_t step = std::min(call.m, rows_at_a_time(call.n));
  const Workspace acc(static_cast<std::size_t>(step * call.n) * sizeof(float), stream, call.op);
  const bool a_is_km = call.layout == Layout::tn;
  for (std::int64_t first = 0; first < call.m; first += step) {
    const std::int64_t last = std::min(call.m, first + step), rows = last - first;
    const T* start = a.data ? a.data + (a_is_km ? first : first * a.pitch) : nullptr;
    const MatrixOf<const T> part(start, a_is_km ? call.k : rows, a_is_km ? rows : call.k, a.pitch);
    const MatrixOf<float> product(static_cast<float*>(acc.data()), rows, call.n);
    matmul(call.op, part, b, call.layout, 1, 0, {}, product, stream);
    launch_apply<true>(call, device, program, first, last, product.data, stream);
  }
}

/// A bare product has no need of a kernel behind it.
template <class T>
void run_unfused(const Call& call, const Device&, MatrixOf<const T> a, MatrixOf<const T> b, const BareGemm<T>& program,
                 cudaStream_t stream) {
  const MatrixOf<T> out(program.out.data, call.m, call.n, program.out.pitch);
  matmul(call.op, a, b, call.layout, program.alpha, 0, {}, out, stream);
}

}  // namespace detail

/// Runs `program` on the product of a and b, which the layout reads as in `Layout`. T is bf16 or fp16. Any shape, pitch
/// and alignment; the fused kernels take layouts nt and nn, N and K that are multiples of 8, and 16-byte aligned
/// addresses and rows. M = 0 or N = 0 does nothing. Enqueues on `stream` and does not wait; memory for the other way,
/// and for a fused kernel whose last round of tiles is split, comes from a stream-ordered pool (see workspace.h).
/// Partial results of the program have shape (M, tiles_n(N)) or (tiles_m(M), N). Throws as cpu::gemm does.
template <class T, Program P>
void gemm(std::type_identity_t<MatrixOf<const T>> a, std::type_identity_t<MatrixOf<const T>> b, const P& program,
          Layout layout = Layout::nt, cudaStream_t stream = nullptr, const char* op = "gemm") {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, fp16>, "coda: the Hopper backend multiplies bf16 or fp16");
  const detail::Call call = detail::describe(op, a, b, layout);
  if (call.m == 0 || call.n == 0) return;
  detail::check_call(call, program, a, b);
  if (call.k > 0) check_operand(op, "a", a), check_operand(op, "b", b);
  const detail::Device device = detail::current_device(call);
  if constexpr (kFused<P>) {
    if (detail::launch_fused<T>(call, device, a, b, program, stream)) return;
  }
  detail::run_unfused<T>(call, device, a, b, program, stream);
}

template <class T, class P>
void Product<T, P>::run(const ConstMatrix& a, const ConstMatrix& b, Layout layout, const P& program, void* stream,
                        const char* op) {
  gemm<T>(a.as<T>(), b.as<T>(), program, layout, static_cast<cudaStream_t>(stream), op);
}

template <class P>
void Elementwise<P>::run(std::int64_t m, std::int64_t n, const P& program, void* stream, const char* op) {
  apply(m, n, program, static_cast<cudaStream_t>(stream), op);
}

/// X(T) for each element type that the library multiplies.
#if defined(CODA_SM90_REDUCED)
#define CODA_FOR_ELEMENTS(X) X(bf16)
#else
#define CODA_FOR_ELEMENTS(X) X(bf16) X(fp16)
#endif

}  // namespace coda::sm90
