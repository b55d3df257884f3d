// Rotary embeddings and the norm of attention heads, forward and backward.
#include "coda/programs/rope.h"

#include <cmath>

#include "coda/backend/sm90/config.h"
#include "coda/ops/common.h"

namespace coda::ops {

static_assert(cpu::kMaxTileN == sm90::kMaxTileN, "heads that both backends take");

void check_head_dim(const Check& check, const char* name, std::int64_t head_dim) {
  if (head_dim >= 2 && head_dim % 2 == 0 && head_dim <= cpu::kMaxTileN) return;
  check.fail(name, "expected an even number from 2 to {}, got {}", cpu::kMaxTileN, head_dim);
}

std::int64_t check_heads(Check& check, const Target& on, const Heads& h, std::int64_t m, std::int64_t n, DType stats) {
  if (h.q < 0 || h.k < 0 || h.v < 0)
    check.fail("heads", "expected head counts of at least 0, got {}, {}, {}", h.q, h.k, h.v);
  check_head_dim(check, "heads.head_dim", h.head_dim);
  if (!are_heads_of(h, n)) {
    check.fail("heads", "expected heads of {} columns in all, as many as N, got ({} + {} + {}) * {}", n, h.q, h.k, h.v,
               h.head_dim);
  }
  check.given("heads.table", h.table);
  check.matrix("heads.table", h.table, h.table.rows, h.head_dim, stats);
  check.operand("heads.table", h.table);
  if (on.backend == Backend::sm90 && reinterpret_cast<std::uintptr_t>(h.table.data) % 8 != 0) {
    check.fail(Status::unsupported, "heads.table", "expected an address that is a multiple of 8 bytes, got {}",
               h.table.data);
  }
  if (h.table.rows > 1 && h.table.pitch != h.head_dim) {
    check.fail("heads.table", "expected a pitch of head_dim, {}, got {}", h.head_dim, h.table.pitch);
  }
  if (h.position) {
    check.indices("heads.position", h.position, m);
    check.operand("heads.position", h.position);
    const IndexVector position = index_vector(h.position);
    // Those on a device cannot be looked at without waiting for it.
    for (std::int64_t i = 0; i < m && on.backend == Backend::cpu; ++i) {
      if (position[i] < 0 || position[i] >= h.table.rows) {
        check.fail("heads.position", "expected values in [0, {}), got {} at row {}", h.table.rows, position[i], i);
      }
    }
  } else if (m > h.table.rows) {
    check.fail("heads.table", "expected at least {} rows, one for each row without positions, got {}", m, h.table.rows);
  }
  return (h.q + h.k) * h.head_dim;
}

namespace {

template <class Acc>
RotaryTable<Acc> rotary(const Heads& h) {
  return {.table = static_cast<const Acc*>(h.table.data),
          .position = index_vector(h.position),
          .columns = (h.q + h.k) * h.head_dim,
          .head_dim = static_cast<int>(h.head_dim),
          .rows = h.table.rows};
}
template <class T>
HeadVector<T> head_weights(const Heads& h, const ConstVector& q, const ConstVector& k) {
  return {.q = pointer<T>(q),
          .k = pointer<T>(k),
          .q_columns = h.q * h.head_dim,
          .columns = (h.q + h.k) * h.head_dim,
          .head_dim = static_cast<int>(h.head_dim)};
}
void check_head_weights(Check& check, const Heads& h, const ConstVector& q, const ConstVector& k, DType t) {
  check.vector("q_weight", q, h.q > 0 || q ? h.head_dim : 0, h.q > 0 || q ? t : q.dtype);
  check.vector("k_weight", k, h.k > 0 || k ? h.head_dim : 0, h.k > 0 || k ? t : k.dtype);
  check.operand("q_weight", q);
  check.operand("k_weight", k);
}

void check_table(const Check& check, const Matrix& table) {
  if (table.dtype != DType::fp32 && table.dtype != DType::fp64) {
    check.fail("table", "expected dtype fp32 or fp64, got {}", coda::name_of(table.dtype));
  }
  check.matrix("table", table, table.rows, table.cols, table.dtype);
  if (table.cols % 2 != 0) check.fail("table", "expected an even number of columns, got {}", table.cols);
}
/// Pair j turns by frequency(j) from one position to the next.
template <class Frequency>
void fill_table(const Matrix& table, Frequency frequency, double scale) {
  const auto fill = [&](auto* data) {
    using Acc = std::remove_reference_t<decltype(*data)>;
    for (std::int64_t j = 0; j < table.cols / 2; ++j) {
      const double step = frequency(j);
      for (std::int64_t p = 0; p < table.rows; ++p) {
        const double angle = static_cast<double>(p) * step;
        data[p * table.pitch + 2 * j] = static_cast<Acc>(scale * std::cos(angle));
        data[p * table.pitch + 2 * j + 1] = static_cast<Acc>(scale * std::sin(angle));
      }
    }
  };
  if (table.dtype == DType::fp32) fill(static_cast<float*>(table.data));
  else fill(static_cast<double*>(table.data));
}

}  // namespace

void rotary_table(Matrix table, double theta) {
  const Check check("rotary_table", {});
  check_table(check, table);
  if (!(theta > 0)) check.fail("theta", "expected a number above 0, got {}", theta);
  const auto cols = static_cast<double>(table.cols);
  fill_table(table, [&](std::int64_t j) { return std::pow(theta, -2.0 * static_cast<double>(j) / cols); }, 1);
}

void rotary_table_from(Matrix table, ConstVector frequency, double scale) {
  Check check("rotary_table_from", {});
  check_table(check, table);
  check.output("table", table);
  check.vector("frequency", frequency, table.cols / 2, DType::fp64);
  check.operand("frequency", frequency);
  check.no_overlap();
  const auto* step = static_cast<const double*>(frequency.data);
  for (std::int64_t j = 0; j < frequency.size; ++j) {
    if (!std::isfinite(step[j])) check.fail("frequency", "expected finite numbers, got {} at pair {}", step[j], j);
  }
  if (!std::isfinite(scale)) check.fail("scale", "expected a finite number, got {}", scale);
  fill_table(table, [&](std::int64_t j) { return step[j]; }, scale);
}

void gemm_norm_rope(const GemmNormRope& args) {
  Check check("gemm_norm_rope", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  const NormKind kind = check_norm(check, args.norm, p);
  check_heads(check, args.on, args.heads, p.m, p.n, p.stats);
  check.matrix("out", args.out, p.m, p.n, p.t);
  check.output("out", args.out);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    with_norm<T>(kind, args.norm, [&](auto norm) {
      run<T>(check, args.on, args.a, args.b, args.layout,
             coda::GemmNormRope<T, decltype(norm)>{
                 .norm = norm, .rope = rotary<acc_t<T>>(args.heads), .out = args.out.as<T>()});
    });
  });
}

void gemm_norm_rotate(const GemmNormRotate& args) {
  Check check("gemm_norm_rotate", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  if (p.n % 2 != 0) check.fail("b", "expected an even N, pairs of columns, got {}", p.n);
  const NormKind kind = check_norm(check, args.norm, p);
  check.matrix("angle", args.angle, p.m, p.n, p.t);
  check.matrix("out", args.out, p.m, p.n, p.t);
  check.optional_matrix("preact", args.preact, p.m, p.n, p.t);
  check.input("angle", args.angle);
  check.output("out", args.out);
  check.output("preact", args.preact);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    with_norm<T>(kind, args.norm, [&](auto norm) {
      run<T>(check, args.on, args.a, args.b, args.layout,
             coda::GemmNormRotate<T, decltype(norm)>{
                 .norm = norm, .angle = args.angle.as<T>(), .preact = args.preact.as<T>(), .out = args.out.as<T>()});
    });
  });
}

void gemm_norm_qknorm_rope(const GemmNormQkNormRope& args) {
  Check check("gemm_norm_qknorm_rope", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  const NormKind kind = check_norm(check, args.norm, p);
  const std::int64_t columns = check_heads(check, args.on, args.heads, p.m, p.n, p.stats);
  check_head_weights(check, args.heads, args.q_weight, args.k_weight, p.t);
  check_eps(check, "eps", args.eps, p.stats);
  check.matrix("out", args.out, p.m, p.n, p.t);
  check.optional_matrix("preact", args.preact, p.m, p.n, p.t);
  check.output("out", args.out);
  check.output("preact", args.preact);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    with_norm<T>(kind, args.norm, [&](auto norm) {
      run<T>(check, args.on, args.a, args.b, args.layout,
             coda::GemmNormQkNormRope<T, decltype(norm)>{
                 .norm = norm,
                 .square = {.columns = columns,
                            .head_dim = static_cast<int>(args.heads.head_dim),
                            .eps = static_cast<Acc>(args.eps)},
                 .weight = head_weights<T>(args.heads, args.q_weight, args.k_weight),
                 .rope = rotary<Acc>(args.heads),
                 .preact = args.preact.as<T>(),
                 .out = args.out.as<T>()});
    });
  });
}

void rope_backward(const RopeBackward& args) {
  Check check("rope_backward", args.on);
  check.given("dy", args.dy, args.dz.rows);
  const std::int64_t m = args.dy.rows, n = args.dy.cols;
  const DType t0 = check.real("dy", args.dy.dtype), stats = stats_of(t0);
  check.matrix("dy", args.dy, m, n, t0);
  check.matrix("y", args.y, m, n, t0);
  check.matrix("dz", args.dz, m, n, t0);
  check_heads(check, args.on, args.heads, m, n, stats);
  const NormKind kind = check_dot(check, args.dot, m, tiles_n(n, args.on.backend), n, stats);
  check.input("dy", args.dy);
  check.operand("y", args.y);  // read after dz is stored
  check.output("dz", args.dz);
  check.no_overlap();
  with_real(t0, [&](auto t) {
    using T = decltype(t);
    with_dot<T, Width::Same>(kind, args.dot, [&](auto dot) {
      apply<T>(check, args.on, m, n,
               coda::RopeBackward<T, decltype(dot)>{.y = args.y.as<T>(),
                                                    .dy = args.dy.as<T>(),
                                                    .rope = rotary<acc_t<T>>(args.heads),
                                                    .dz = args.dz.as<T>(),
                                                    .dot = dot});
    });
  });
}

void qknorm_rope_backward(const QkNormRopeBackward& args) {
  Check check("qknorm_rope_backward", args.on);
  check.given("dy", args.dy, args.dz.rows);
  const std::int64_t m = args.dy.rows, n = args.dy.cols;
  const DType t0 = check.real("dy", args.dy.dtype), stats = stats_of(t0);
  check.matrix("dy", args.dy, m, n, t0);
  check.matrix("preact", args.preact, m, n, t0);
  check.matrix("dz", args.dz, m, n, t0);
  const std::int64_t columns = check_heads(check, args.on, args.heads, m, n, stats);
  check_head_weights(check, args.heads, args.q_weight, args.k_weight, t0);
  check_eps(check, "eps", args.eps, stats);
  check.optional_matrix("dweight", args.dweight, tiles_m(m, args.on.backend), n, stats);
  check.output("dweight", args.dweight);
  const NormKind kind = check_dot(check, args.dot, m, head_tiles_n(n, args.heads.head_dim, args.on.backend), n, stats);
  check.input("dy", args.dy);
  check.input("preact", args.preact);
  check.output("dz", args.dz);
  check.no_overlap();
  with_real(t0, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    const int head_dim = static_cast<int>(args.heads.head_dim);
    with_dot<T, Width::Same>(kind, args.dot, [&](auto dot) {
      apply<T>(check, args.on, m, n,
               coda::QkNormRopeBackward<T, decltype(dot)>{
                   .preact = args.preact.as<T>(),
                   .dy = args.dy.as<T>(),
                   .square = {.columns = columns, .head_dim = head_dim, .eps = static_cast<Acc>(args.eps)},
                   .gz = {.columns = columns, .head_dim = head_dim, .eps = 0, .otherwise = 0},
                   .weight = head_weights<T>(args.heads, args.q_weight, args.k_weight),
                   .rope = rotary<Acc>(args.heads),
                   .dz = args.dz.as<T>(),
                   .dweight = args.dweight.as<Acc>(),
                   .dot = dot});
    });
  });
}

}  // namespace coda::ops
