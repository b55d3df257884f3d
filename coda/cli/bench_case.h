// One program timed by `coda bench`: the fused call, the bare product of the same shape, and the unfused chain, which
// is that product stored in T followed by everything else in one vectorised pass over memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "coda/backend/cpu/gemm.h"
#include "coda/backend/cpu/memory.h"
#include "coda/cli/shape.h"
#include "coda/ops/ops.h"
#include "coda/programs/norm.h"
#include "tests/support/random.h"

namespace coda::cli {

/// A program whose accumulator was stored: what the unfused chain runs after the product.
template <class T, class P>
struct AfterProduct {
  TileLoad<T> product = {};
  P program = {};

  template <class Tile>
  CODA_FN void first(Tile& tile, auto) const
    requires requires(const P& p, Tile& t) { p.first(t, typename Tile::template fragment<Width::Same>{}); }
  {
    program.first(tile, tile.load(product));
  }
  template <class Tile>
  CODA_FN void operator()(Tile& tile, auto) const {
    program(tile, tile.load(product));
  }
};

class BenchCase {
 public:
  const DType type;  // bf16 or fp32
  const Layout layout;
  const std::int64_t m, n, k;

  BenchCase(DType t, Layout l, Shape shape);

  /// f(T{}) with the case's element type.
  template <class F>
  void typed(const F& f) {
    type == DType::bf16 ? f(bf16{}) : f(float{});
  }

  // Memory of this case, filled with random numbers: time depends on the data on machines that clock by power.
  Matrix matrix(std::int64_t rows, std::int64_t cols) { return matrix(rows, cols, type); }
  Matrix matrix(std::int64_t rows, std::int64_t cols, DType t);
  Vector vector(std::int64_t size) { return vector(size, type); }
  Vector vector(std::int64_t size, DType t);
  /// Positive numbers, fp32.
  Vector statistic(std::int64_t size);
  Vector targets();
  Matrix row_partials() { return matrix(m, ops::tiles_n(n), DType::fp32); }
  Matrix column_partials() { return matrix(ops::tiles_m(m), n, DType::fp32); }
  /// Heads that fill N columns; N must be even.
  ops::Heads heads();

  /// Registers what is timed. `program` is that of the fused call.
  template <class T, class P>
  void compare(std::function<void()> fused_call, const P& program) {
    fused = std::move(fused_call);
    const AfterProduct<T, P> after{product.as<T>(), program};
    pass = [this, after] { run_pass<T>(after); };
  }

 private:
  template <class T, class P>
  void run_pass(const P& program) const {
    using Acc = acc_t<T>;
    const std::int64_t tile_n = cpu::detail::tile_n_for<Acc>("bench", program);
    const std::int64_t rows = cpu::tiles_m(m), cols = (n + tile_n - 1) / tile_n;
    static const std::vector<Acc> unused(static_cast<std::size_t>(cpu::kTileM * cpu::kMaxTileN));
#pragma omp parallel
    {
#pragma omp for schedule(dynamic) nowait
      for (std::int64_t t = 0; t < rows * cols; ++t) {
        const std::int64_t tm = t / cols, tn = t % cols;
        const cpu::TileGeometry g{tm * cpu::kTileM,
                                  tn * tile_n,
                                  std::min(cpu::kTileM, m - tm * cpu::kTileM),
                                  std::min(tile_n, n - tn * tile_n),
                                  tm,
                                  tn};
        cpu::run_epilogue<Acc, P>(&program, g, 0, g.rows, unused.data(), cpu::kMaxTileN);
      }
      cpu::end_of_streams();
    }
  }
  void* allocate(std::int64_t count, DType t);

  std::vector<cpu::Memory> memory_;
  test::Random random_{1};

 public:
  const ConstMatrix a, b;  // operands in the case's layout
  const Matrix product;    // (M, N), what the bare product writes
  std::function<void()> fused, pass;
};

/// oneDNN's own product of whole matrices; in fp32 on a machine without instructions for bf16.
class BareProduct {
 public:
  explicit BareProduct(BenchCase& c);
  ~BareProduct();
  void run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Milliseconds of one call. The best is what the code can do where other processes take the machine at times.
struct Time {
  double median = 0, best = 0;
};
struct Times {
  Time bare, fused, unfused;
};
/// Times the three in turn, `rounds` times.
Times measure(BenchCase& c, int rounds);

/// Times the calls in turn, `rounds` times, after one call of each that is not timed.
std::vector<Time> interleaved(const std::vector<std::function<void()>>& calls, int rounds);

/// Times the derived backward of SwiGLU against its closed form written by hand, in the same tile loop.
struct DerivativeTimes {
  DType type;
  const char* what;
  double derived, written;  // best milliseconds
};
std::vector<DerivativeTimes> measure_derivatives(int rounds);

}  // namespace coda::cli
