// The small reductions between programs, and the embedding.
#include "coda/backend/cpu/kernels.h"
#include "coda/backend/sm90/kernels.h"
#include "coda/ops/common.h"
#include "coda/programs/residual.h"

namespace coda::ops {
namespace {

DType check_stats_dtype(const Check& check, const char* name, const ConstMatrix& m, std::int64_t results = 1) {
  check.given(name, m, results);
  if (m.dtype != DType::fp32 && m.dtype != DType::fp64) {
    check.fail(name, "expected dtype fp32 or fp64, got {}", coda::name_of(m.dtype));
  }
  check.matrix(name, m, m.rows, m.cols, m.dtype);
  return m.dtype;
}
template <class F>
void with_stats_dtype(DType t, const F& f) {
  t == DType::fp32 ? f(float{}) : f(double{});
}
void check_width(const Check& check, const Target& on, std::int64_t n, std::int64_t tiles) {
  if (n <= 0) check.fail("n", "expected the width of the normalised rows, above 0, got {}", n);
  if (tiles != tiles_n(n, on.backend))
    check.fail("n", "expected a width of {} tiles, as the partial results have, got {}", tiles, n);
}

}  // namespace

void rms_finalize(const RmsFinalize& args) {
  Check check("rms_finalize", args.on);
  const DType stats = check_stats_dtype(check, "sum_sq", args.sum_sq);
  check_width(check, args.on, args.n, args.sum_sq.cols);
  check_eps(check, "eps", args.eps, stats);
  check.vector("rstd", args.rstd, args.sum_sq.rows, stats);
  check.operand("sum_sq", args.sum_sq);
  check.output("rstd", args.rstd);
  check.no_overlap();
  if (args.on.backend == Backend::sm90) {
    check_fp32_on_sm90(check, "sum_sq", stats);
    return sm90::rms_finalize(check.operation(), args.sum_sq, args.n, args.eps, args.rstd, args.on.stream);
  }
  with_stats_dtype(stats, [&](auto acc) {
    using Acc = decltype(acc);
    cpu::rms_finalize<Acc>(args.sum_sq.as<Acc>(), args.n, args.eps, pointer<Acc>(args.rstd));
  });
}

void layernorm_finalize(const LayerNormFinalize& args) {
  Check check("layernorm_finalize", args.on);
  const DType stats = check_stats_dtype(check, "tile_mean", args.tile_mean);
  check_width(check, args.on, args.n, args.tile_mean.cols);
  check_eps(check, "eps", args.eps, stats);
  check.matrix("tile_m2", args.tile_m2, args.tile_mean.rows, args.tile_mean.cols, stats);
  check.vector("mean", args.mean, args.tile_mean.rows, stats);
  check.vector("rstd", args.rstd, args.tile_mean.rows, stats);
  check.operand("tile_mean", args.tile_mean);
  check.operand("tile_m2", args.tile_m2);
  check.output("mean", args.mean);
  check.output("rstd", args.rstd);
  check.no_overlap();
  if (args.on.backend == Backend::sm90) {
    check_fp32_on_sm90(check, "tile_mean", stats);
    return sm90::layernorm_finalize(check.operation(), args.tile_mean, args.tile_m2, args.n, args.eps, args.mean,
                                    args.rstd, args.on.stream);
  }
  with_stats_dtype(stats, [&](auto acc) {
    using Acc = decltype(acc);
    cpu::layernorm_finalize<Acc>(args.tile_mean.as<Acc>(), args.tile_m2.as<Acc>(), args.n, cpu::kTileN, args.eps,
                                 pointer<Acc>(args.mean), pointer<Acc>(args.rstd));
  });
}

void sum_rows(const SumRows& args) {
  Check check("sum_rows", args.on);
  const DType stats = check_stats_dtype(check, "partial", args.partial, args.out.size);
  check.vector("out", args.out, args.partial.rows, stats);
  check_factor(check, "scale", args.scale, stats);
  check.operand("partial", args.partial);
  check.output("out", args.out);
  check.no_overlap();
  if (args.on.backend == Backend::sm90) {
    check_fp32_on_sm90(check, "partial", stats);
    return sm90::sum_rows(check.operation(), args.partial, args.scale, args.out, args.on.stream);
  }
  with_stats_dtype(stats, [&](auto acc) {
    using Acc = decltype(acc);
    cpu::sum_rows<Acc>(args.partial.as<Acc>(), args.scale, pointer<Acc>(args.out));
  });
}

void sum_columns(const SumColumns& args) {
  Check check("sum_columns", args.on);
  const DType stats = check_stats_dtype(check, "partial", args.partial, args.out.size);
  check.vector("out", args.out, args.partial.cols, stats);
  check_beta(check, args.beta);
  check.operand("partial", args.partial);
  check.output("out", args.out);
  check.no_overlap();
  if (args.on.backend == Backend::sm90) {
    check_fp32_on_sm90(check, "partial", stats);
    return sm90::sum_columns(check.operation(), args.partial, args.beta, args.out, args.on.stream);
  }
  with_stats_dtype(stats, [&](auto acc) {
    using Acc = decltype(acc);
    cpu::sum_columns<Acc>(args.partial.as<Acc>(), args.beta, pointer<Acc>(args.out));
  });
}

void head_weight_gradient(const HeadWeightGradient& args) {
  Check check("head_weight_gradient", args.on);
  const DType stats = check_stats_dtype(check, "partial", args.partial);
  const Heads& h = args.heads;
  if (h.head_dim <= 0 || std::min({h.q, h.k, h.v}) < 0 || !are_heads_of(h, args.partial.cols)) {
    check.fail("heads", "expected heads of {} columns in all, as partial has, got ({} + {} + {}) * {}",
               args.partial.cols, h.q, h.k, h.v, h.head_dim);
  }
  check.vector("dq_weight", args.dq_weight, h.head_dim, stats);
  check.vector("dk_weight", args.dk_weight, h.head_dim, stats);
  check_beta(check, args.beta);
  check.operand("partial", args.partial);
  check.output("dq_weight", args.dq_weight);
  check.output("dk_weight", args.dk_weight);
  check.no_overlap();
  if (args.on.backend == Backend::sm90) {
    check_fp32_on_sm90(check, "partial", stats);
    sm90::sum_heads(check.operation(), args.partial, 0, h.q, h.head_dim, args.beta, args.dq_weight, args.on.stream);
    return sm90::sum_heads(check.operation(), args.partial, h.q * h.head_dim, h.k, h.head_dim, args.beta,
                           args.dk_weight, args.on.stream);
  }
  with_stats_dtype(stats, [&](auto acc) {
    using Acc = decltype(acc);
    const auto partial = args.partial.as<Acc>();
    cpu::sum_heads<Acc>(partial, 0, h.q, h.head_dim, args.beta, pointer<Acc>(args.dq_weight));
    cpu::sum_heads<Acc>(partial, h.q * h.head_dim, h.k, h.head_dim, args.beta, pointer<Acc>(args.dk_weight));
  });
}

void check_tokens(Check& check, const Target& on, const ConstVector& token, std::int64_t m, std::int64_t vocabulary) {
  check.indices("token", token, m);
  check.operand("token", token);
  if (on.backend != Backend::cpu) return;  // it cannot be looked at without waiting for the device
  const IndexVector index = index_vector(token);
  for (std::int64_t i = 0; i < m; ++i) {
    if (index[i] < 0 || index[i] >= vocabulary) {
      check.fail("token", "expected values in [0, {}), got {} at row {}", vocabulary, index[i], i);
    }
  }
}

void embedding(const Embedding& args) {
  Check check("embedding", args.on);
  const bool forgotten = absent(args.token);  // if x has rows
  const std::int64_t m = forgotten ? args.x.rows : args.token.size, n = args.table.cols;
  check.given("table", args.table, args.x.cols);
  const DType t0 = check.real("table", args.table.dtype);
  check.matrix("table", args.table, args.table.rows, n, t0);
  check_tokens(check, args.on, args.token, m, args.table.rows);
  check.optional_vector("weight", args.weight, n, t0);
  check.matrix("x", args.x, m, n, t0);
  check.optional_matrix("h", args.h, m, n, t0);
  const NormKind kind =
      check_stats(check, args.sum_sq, args.mean, args.m2, m, tiles_n(n, args.on.backend), stats_of(t0));
  check.operand("table", args.table);
  check.operand("weight", args.weight);
  check.output("x", args.x);
  check.output("h", args.h);
  check.no_overlap();
  with_real(t0, [&](auto t) {
    using T = decltype(t);
    with_stats<T>(kind, args.sum_sq, args.mean, args.m2, [&](auto stat) {
      apply<T>(check, args.on, m, n,
               coda::Embedding<T, decltype(stat)>{.table = {static_cast<const T*>(args.table.data), args.table.pitch,
                                                            index_vector(args.token), args.table.rows},
                                                  .weight = {pointer<T>(args.weight)},
                                                  .x = args.x.as<T>(),
                                                  .h = args.h.as<T>(),
                                                  .stat = stat});
    });
  });
}

void embedding_backward(const EmbeddingBackward& args) {
  Check check("embedding_backward", args.on);
  check.given("dx", args.dx, args.token.size);
  check.given("dtable", args.dtable, args.dx.cols);
  const DType t0 = check.real("dx", args.dx.dtype);
  check.matrix("dx", args.dx, args.dx.rows, args.dx.cols, t0);
  check.matrix("dtable", args.dtable, args.dtable.rows, args.dx.cols, stats_of(t0));
  check_tokens(check, args.on, args.token, args.dx.rows, args.dtable.rows);
  check.operand("dx", args.dx);
  check.output("dtable", args.dtable);
  check.no_overlap();
  if (args.on.backend == Backend::sm90) {
    check_fp32_on_sm90(check, "dtable", args.dtable.dtype);
    return sm90::embedding_backward(check.operation(), args.dx, args.token, args.dtable, args.on.stream);
  }
  with_real(t0, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    cpu::embedding_backward<T, Acc>(args.dx.as<T>(), index_vector(args.token), args.dtable.as<Acc>());
  });
}

}  // namespace coda::ops
