// The forward programs, the residual stream and QKV projections.
#include "tests/gpu/problem.h"

namespace coda::test::gpu {
namespace {

bool is_linear(ops::Activation f) {
  return f == ops::Activation::identity || f == ops::Activation::relu || f == ops::Activation::relu_squared;
}

/// Variants 0 to 11: each activation, stored in the operands' type or in fp32; 12 and 13: the bare product, which may
/// be added to another matrix; 14: the bare product that never is.
Call draw_gemm(Draw& d, int variant) {
  const auto p = d.product();
  const bool bare = variant >= 12, wide = bare ? variant == 13 : variant >= 6;
  const auto f = static_cast<ops::Activation>(bare ? 0 : variant % 6);
  const Kind kind = wide ? Kind::statistic : Kind::operand;
  const auto matrix = [&](const char* name, bool linear) {
    const Id id = d.out(name, d.n, linear);
    d.slot(id).kind = kind;
    return id;
  };
  const double alpha = 0.5 * static_cast<double>(d.random.integer(1, 4));
  double beta = 0;
  Id c = kNone, bias = kNone, preact = kNone, out = kNone;
  if (variant != 14 && d.given()) {
    beta = d.random.integer(0, 1) == 1 ? 1 : -0.5;
    c = d.matrix("c", d.n, d.scale());
    d.slot(c).kind = kind;
  }
  if (!bare) {
    bias = d.row_vector("bias", d.scale());
    if (d.given()) preact = matrix("preact", true);
  }
  if (c != kNone && d.random.integer(0, 2) == 0) out = d.in_place(c, "out", is_linear(f));
  else out = matrix("out", is_linear(f));
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm({.a = x[p.a],
               .b = x[p.b],
               .layout = p.layout,
               .alpha = alpha,
               .beta = beta,
               .c = x[c],
               .bias = x[bias],
               .activation = f,
               .preact = x[preact],
               .out = x[out],
               .on = on});
  };
}

/// What the residual stream writes besides x, and the reduction that follows it.
struct Stream {
  Id x, h = kNone, weight = kNone, sum_sq = kNone, mean = kNone, m2 = kNone, row_mean = kNone, rstd = kNone;

  Stream(Draw& d, bool layernorm, Id in_place) {
    x = in_place != kNone ? d.in_place(in_place, "x", true) : d.out("x", d.n, true);
    if (d.given()) weight = d.factors("weight", d.n, Kind::operand, 1, false);
    if (d.given()) h = d.out("h", d.n, true);
    if (layernorm) {
      mean = d.partial("mean", d.n, Fold::mean, false);
      m2 = d.partial("m2", d.n, Fold::m2, false);
      d.slot(m2).partner = mean;
      if (d.n > 0) row_mean = d.row_statistic("row mean", false);
      // Deviations from the mean cancel what the values have in common.
      const auto largest = [x = x](const std::vector<Mat>& reference) {
        double most = 0;
        for (const double e : reference[static_cast<std::size_t>(x)].v) most = std::max(most, std::fabs(e));
        return most;
      };
      d.slot(mean).magnitude = largest;
      if (row_mean != kNone) d.slot(row_mean).magnitude = largest;
      d.slot(m2).magnitude = [largest, n = d.n](const std::vector<Mat>& reference) {
        return largest(reference) * largest(reference) * static_cast<double>(n);
      };
    } else {
      sum_sq = d.partial("sum_sq", d.n, Fold::sum, true);
    }
    if (d.n > 0) rstd = d.row_statistic("rstd", false);
  }
  void finalize(const Bound& view, const ops::Target& on, std::int64_t n) const {
    if (rstd == kNone) return;
    // Rows of one value have no variance: with this eps they do not divide by nearly nothing.
    constexpr double kEps = 0.25;
    if (sum_sq != kNone) {
      ops::rms_finalize({.sum_sq = view[sum_sq], .n = n, .eps = kEps, .rstd = view[rstd], .on = on});
    } else {
      ops::layernorm_finalize({.tile_mean = view[mean],
                               .tile_m2 = view[m2],
                               .n = n,
                               .eps = kEps,
                               .mean = view[row_mean],
                               .rstd = view[rstd],
                               .on = on});
    }
  }
};

Call draw_gemm_residual(Draw& d, int variant) {
  const auto p = d.product();
  const Id residual = d.matrix("residual", d.n, d.scale());
  const Stream s(d, variant == 1, d.random.integer(0, 1) == 1 ? residual : kNone);
  return [=, n = d.n](const Bound& x, const ops::Target& on) {
    ops::gemm_residual({.a = x[p.a],
                        .b = x[p.b],
                        .layout = p.layout,
                        .residual = x[residual],
                        .weight = x[s.weight],
                        .x = x[s.x],
                        .h = x[s.h],
                        .sum_sq = x[s.sum_sq],
                        .mean = x[s.mean],
                        .m2 = x[s.m2],
                        .on = on});
    s.finalize(x, on, n);
  };
}

Call draw_embedding(Draw& d, int variant) {
  const std::int64_t rows = std::max<std::int64_t>(d.k, 1);
  const Id table = d.input({.name = "table"}, d.exact() ? integer_mat(d.random, rows, d.n, -128, 128)
                                                        : normal_mat(d.random, rows, d.n, d.scale(), d.options.type));
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(d.m));
  for (auto& t : tokens) t = d.random.integer(0, rows - 1);
  const Id token = d.indices("token", tokens);
  const Stream s(d, variant == 1, kNone);
  return [=, n = d.n](const Bound& x, const ops::Target& on) {
    ops::embedding({.table = x[table],
                    .token = x[token],
                    .weight = x[s.weight],
                    .x = x[s.x],
                    .h = x[s.h],
                    .sum_sq = x[s.sum_sq],
                    .mean = x[s.mean],
                    .m2 = x[s.m2],
                    .on = on});
    s.finalize(x, on, n);
  };
}

/// Each activation after an RMSNorm (or none), then after a LayerNorm.
Call draw_gemm_norm(Draw& d, int variant) {
  const auto p = d.product();
  const auto f = static_cast<ops::Activation>(variant % 6);
  const auto norm = variant < 6 ? d.rms() : d.layernorm();
  const Id preact = d.given() ? d.out("preact", d.n, true) : kNone;
  const Id out = d.out("out", d.n, is_linear(f));
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm_norm({.a = x[p.a],
                    .b = x[p.b],
                    .layout = p.layout,
                    .norm = norm.bind(x),
                    .activation = f,
                    .preact = x[preact],
                    .out = x[out],
                    .on = on});
  };
}

Call draw_gemm_norm_glu(Draw& d, int variant) {
  d.make_n_even();
  const auto p = d.product();
  const auto f = static_cast<ops::Glu>(variant % 4);
  const auto norm = variant < 4 ? d.rms() : d.layernorm();
  const Id preact = d.given() ? d.out("preact", d.n, true) : kNone;
  const Id out = d.out("out", d.n / 2, f == ops::Glu::reglu);
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm_norm_glu({.a = x[p.a],
                        .b = x[p.b],
                        .layout = p.layout,
                        .norm = norm.bind(x),
                        .function = f,
                        .preact = x[preact],
                        .out = x[out],
                        .on = on});
  };
}

Call draw_gemm_norm_rope(Draw& d, int variant) {
  const auto heads = d.heads();
  const auto p = d.product();
  const auto norm = variant == 0 ? d.rms() : d.layernorm();
  const Id out = d.out("out", d.n, true);
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm_norm_rope({.a = x[p.a],
                         .b = x[p.b],
                         .layout = p.layout,
                         .norm = norm.bind(x),
                         .heads = heads.bind(x),
                         .out = x[out],
                         .on = on});
  };
}

Call draw_gemm_norm_rotate(Draw& d, int variant) {
  d.make_n_even();
  const auto p = d.product();
  const auto norm = variant == 0 ? d.rms() : d.layernorm();
  const Id angle =
      d.input({.name = "angle", .by_row = true}, rotation_mat(d.random, d.m, d.n, d.exact(), d.options.type));
  const Id preact = d.given() ? d.out("preact", d.n, true) : kNone;
  const Id out = d.out("out", d.n, true);
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm_norm_rotate({.a = x[p.a],
                           .b = x[p.b],
                           .layout = p.layout,
                           .norm = norm.bind(x),
                           .angle = x[angle],
                           .preact = x[preact],
                           .out = x[out],
                           .on = on});
  };
}

Call draw_gemm_norm_qknorm_rope(Draw& d, int variant) {
  const auto heads = d.heads();
  const auto p = d.product();
  const auto norm = variant == 0 ? d.rms() : d.layernorm();
  const Id q = d.vector("q_weight", heads.dim, Kind::operand, 1), k = d.vector("k_weight", heads.dim, Kind::operand, 1);
  const Id preact = d.given() ? d.out("preact", d.n, true) : kNone;
  const Id out = d.out("out", d.n, false);
  return [=](const Bound& x, const ops::Target& on) {
    ops::gemm_norm_qknorm_rope({.a = x[p.a],
                                .b = x[p.b],
                                .layout = p.layout,
                                .norm = norm.bind(x),
                                .heads = heads.bind(x),
                                .q_weight = x[q],
                                .k_weight = x[k],
                                .eps = 0.25,
                                .preact = x[preact],
                                .out = x[out],
                                .on = on});
  };
}

}  // namespace

std::span<const Program> forward_programs() {
  static constexpr Program kPrograms[] = {
      {.name = "gemm", .variants = 15, .draw = draw_gemm},
      {.name = "gemm_residual", .variants = 2, .draw = draw_gemm_residual},
      {.name = "embedding", .variants = 2, .draw = draw_embedding, .product = false, .any_layout = false},
      {.name = "gemm_norm", .variants = 12, .draw = draw_gemm_norm},
      {.name = "gemm_norm_glu", .variants = 8, .draw = draw_gemm_norm_glu},
      {.name = "gemm_norm_rope", .variants = 2, .draw = draw_gemm_norm_rope},
      {.name = "gemm_norm_rotate", .variants = 2, .draw = draw_gemm_norm_rotate},
      {.name = "gemm_norm_qknorm_rope", .variants = 2, .draw = draw_gemm_norm_qknorm_rope},
  };
  return kPrograms;
}

}  // namespace coda::test::gpu
