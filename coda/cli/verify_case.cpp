#include "coda/cli/verify_case.h"

#include <cmath>

#include "coda/backend/cpu/gemm.h"
#include "coda/backend/sm90/config.h"

namespace coda::cli {

VerifyCase::VerifyCase(ops::Backend backend, DType t, Layout l, Shape shape, std::uint64_t seed)
    : on{backend, nullptr},
      type(t),
      stats(t == DType::fp64 ? DType::fp64 : DType::fp32),
      layout(l),
      m(shape.m),
      n(shape.n),
      k(shape.k),
      block_m(backend == ops::Backend::cpu ? cpu::kTileM : sm90::kTileM),
      block_n(backend == ops::Backend::cpu ? cpu::kTileN : sm90::kTileN),
      random(seed) {}

Buffer& VerifyCase::buffer(DType t, std::int64_t rows, std::int64_t cols, bool padded) {
  // Rows of matrices are padded, to rows of 16 bytes as every backend can read them; the padding is a guard zone too.
  const std::int64_t pitch = padded ? (cols + 7) / 8 * 8 + 8 : cols;
  return buffers_.emplace_back(on.backend, t, rows, cols, pitch);
}

Input VerifyCase::input(Mat values, DType t, bool padded) {
  Buffer& b = buffer(t, values.rows, values.cols, padded);
  b.set(values);
  return {std::move(values), &b};
}

VerifyCase::Operands VerifyCase::operands(std::int64_t rows, std::int64_t cols, std::int64_t inner) {
  const double scale = 1 / std::sqrt(std::sqrt(static_cast<double>(inner)));
  const test::Problem p = test::normal_problem(random, reference::layout_of(layout), rows, cols, inner, scale, type);
  return {input(p.a, type), input(p.b, type), both([&](Round r) { return reference::product(p.operands(), r); })};
}

void VerifyCase::compare(const Output& out, const Mat& exact, const Mat& chain) {
  out.buffer->download();
  Verdict verdict = judge(out.name, out.buffer->values(), exact, chain, out.type, type);
  // A write elsewhere or a hole explains more than the figures do.
  if (std::string fault = out.buffer->fault(out.name); !fault.empty()) verdict.failure = std::move(fault);
  verdicts.push_back({option, std::move(verdict)});
}

VerifyCase::NormInput VerifyCase::rms() {
  const Input rstd = statistic(m, 0.5, 1.5);
  return {{.rstd = rstd.vector()}, reference::NormScale::rms(rstd.vec())};
}

VerifyCase::NormInput VerifyCase::layernorm() {
  const Input rstd = statistic(m, 0.5, 1.5), mean = statistic(m, -1, 1), u = statistic(n, -1, 1),
              c = statistic(n, -1, 1);
  return {{.rstd = rstd.vector(), .mean = mean.vector(), .u = u.vector(), .c = c.vector()},
          reference::NormScale::layer({mean.vec(), rstd.vec()}, {u.vec(), c.vec()})};
}

void VerifyCase::require_pairs() const {
  if (n % 2 != 0) throw NotApplicable("N must be even: columns come in pairs");
}

VerifyCase::HeadInput VerifyCase::heads() {
  require_pairs();
  reference::Heads h{.q = 0, .k = 0, .v = 0, .dim = 2};
  for (std::int64_t dim = 64; dim > 2; dim /= 2) {
    if (n % dim == 0 && n / dim >= 3) {
      h.dim = dim;
      break;
    }
  }
  const std::int64_t total = n / h.dim;
  h.v = total >= 3 ? std::max<std::int64_t>(1, total / 6) : 0;
  h.k = total >= 3 ? h.v : total - 1;
  h.q = total - h.k - h.v;

  constexpr std::int64_t kPositions = 512;
  const reference::RopeTable table = reference::rope_table(kPositions, h.dim, 10000.0, Round::to(stats));
  Mat interleaved(kPositions, h.dim);
  for (std::int64_t p = 0; p < kPositions; ++p)
    for (std::int64_t j = 0; j < h.dim / 2; ++j)
      interleaved(p, 2 * j) = table.cos(p, j), interleaved(p, 2 * j + 1) = table.sin(p, j);
  reference::Positions position(static_cast<std::size_t>(m));
  for (auto& p : position) p = random.integer(0, kPositions - 1);
  return {{.q = h.q,
           .k = h.k,
           .v = h.v,
           .head_dim = h.dim,
           .table = input(std::move(interleaved), stats, false).matrix(),
           .position = indices(position).vector()},
          h,
          table,
          position};
}

}  // namespace coda::cli
