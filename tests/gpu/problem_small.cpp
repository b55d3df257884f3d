// The small reductions and conversions around the programs.
#include <algorithm>

#include "tests/gpu/problem.h"

namespace coda::test::gpu {
namespace {

Id statistics(Draw& d, const char* name, std::int64_t rows, std::int64_t cols) {
  return d.input({.name = name, .kind = Kind::statistic}, d.exact() ? integer_mat(d.random, rows, cols, -64, 64)
                                                                    : normal_mat(d.random, rows, cols, 1, DType::fp32));
}
/// An fp32 vector that is added to where beta is 1.
Id accumulated(Draw& d, const char* name, std::int64_t size, double beta) {
  const Id id =
      d.output({.name = name, .kind = Kind::statistic, .rows = size, .cols = 1, .packed = true, .linear = true});
  // Sums of normal values: as large as their number's root, times what one of them is at most.
  d.slot(id).magnitude = Draw::constant(64 * static_cast<double>(std::max<std::int64_t>(d.m, 16)));
  return beta == 0 ? id : d.filled(id, integer_mat(d.random, size, 1, -64, 64));
}

Call draw_sum_rows(Draw& d, int) {
  const Id partial = statistics(d, "partial", d.m, d.n), out = d.row_statistic("out", true);
  d.slot(partial).by_row = true;
  d.slot(out).magnitude = Draw::constant(64 * static_cast<double>(std::max<std::int64_t>(d.n, 16)));
  return [=](const Bound& x, const ops::Target& on) {
    ops::sum_rows({.partial = x[partial], .scale = 0.5, .out = x[out], .on = on});
  };
}

Call draw_sum_columns(Draw& d, int variant) {
  const double beta = variant;
  const Id partial = statistics(d, "partial", d.m, d.n), out = accumulated(d, "out", d.n, beta);
  return [=](const Bound& x, const ops::Target& on) {
    ops::sum_columns({.partial = x[partial], .beta = beta, .out = x[out], .on = on});
  };
}

Call draw_head_weight_gradient(Draw& d, int variant) {
  const double beta = variant;
  if (d.n == 0) d.n = 64;
  const auto heads = d.heads();
  d.slots.clear();  // the angles are not part of this call
  const Id partial = statistics(d, "partial", d.m, d.n);
  const Id dq = accumulated(d, "dq_weight", heads.dim, beta), dk = accumulated(d, "dk_weight", heads.dim, beta);
  return [=](const Bound& x, const ops::Target& on) {
    ops::head_weight_gradient({.partial = x[partial],
                               .heads = {.q = heads.q, .k = heads.k, .v = heads.v, .head_dim = heads.dim},
                               .beta = beta,
                               .dq_weight = x[dq],
                               .dk_weight = x[dk],
                               .on = on});
  };
}

Call draw_embedding_backward(Draw& d, int) {
  const std::int64_t rows = std::max<std::int64_t>(d.k, 1);
  const Id dx = d.matrix("dx", d.n);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(d.m));
  for (auto& t : tokens) t = d.random.integer(0, rows - 1);
  const Id token = d.indices("token", tokens);
  const Id dtable =
      d.filled(d.output({.name = "dtable", .kind = Kind::statistic, .rows = rows, .cols = d.n, .linear = true}),
               integer_mat(d.random, rows, d.n, -8, 8));
  d.slot(dtable).magnitude = Draw::constant(8 * static_cast<double>(std::max<std::int64_t>(d.m, 1)));
  return [=](const Bound& x, const ops::Target& on) {
    ops::embedding_backward({.dx = x[dx], .token = x[token], .dtable = x[dtable], .on = on});
  };
}

/// From and to each of three types.
Call draw_cast(Draw& d, int variant) {
  constexpr DType kTypes[] = {DType::bf16, DType::fp16, DType::fp32};
  const DType from = kTypes[variant / 3], to = kTypes[variant % 3];
  const Id in = d.input({.name = "in", .kind = Kind::fixed, .fixed = from, .by_row = true},
                        normal_mat(d.random, d.m, d.n, 1, from));
  const Id out = d.out("out", d.n, true);
  d.slot(out).kind = Kind::fixed, d.slot(out).fixed = to;
  return [=](const Bound& x, const ops::Target& on) { ops::cast({.in = x[in], .out = x[out], .on = on}); };
}

/// Gradients of either type; variant 1 clips them, by a norm that it reduces first.
Call draw_adamw(Draw& d, int variant) {
  const std::int64_t size = d.m * std::max<std::int64_t>(d.n, 1);
  const auto state = [&](const char* name, Mat values) {
    const Id id = d.output({.name = name, .kind = Kind::statistic, .rows = size, .cols = 1, .packed = true});
    return d.filled(id, std::move(values));
  };
  const Id gradient = d.input({.name = "gradient", .packed = true}, normal_mat(d.random, size, 1, 1, d.options.type));
  const Id master = state("master", normal_mat(d.random, size, 1, 1, DType::fp32));
  const Id m = state("m", normal_mat(d.random, size, 1, 1, DType::fp32));
  const Id v = state("v", uniform_mat(d.random, size, 1, 0.5, 2, DType::fp32));
  const Id weight = d.output({.name = "weight", .rows = size, .cols = 1, .packed = true});
  Id norm = kNone;
  if (variant == 1) {
    norm = d.output(
        {.name = "squared_norm", .kind = Kind::fixed, .fixed = DType::fp64, .rows = 1, .cols = 1, .packed = true});
  }
  return [=](const Bound& x, const ops::Target& on) {
    if (norm != kNone) ops::squared_norm({.x = x[gradient], .out = x[norm], .on = on});
    ops::adamw({.master = x[master],
                .m = x[m],
                .v = x[v],
                .weight = x[weight],
                .gradient = x[gradient],
                .rate = 0.01,
                .weight_decay = 0.1,
                .step = 3,
                .gradient_scale = 0.5,
                .squared_norm = x[norm],
                .clip_norm = norm != kNone ? 1.0 : 0.0,
                .on = on});
  };
}

}  // namespace

std::span<const Program> small_programs() {
  static constexpr Program kPrograms[] = {
      {.name = "sum_rows", .variants = 1, .draw = draw_sum_rows, .product = false, .any_layout = false},
      {.name = "sum_columns",
       .variants = 2,
       .draw = draw_sum_columns,
       .product = false,
       .any_layout = false,
       .rows_are_alone = false},
      {.name = "head_weight_gradient",
       .variants = 2,
       .draw = draw_head_weight_gradient,
       .product = false,
       .any_layout = false,
       .rows_are_alone = false},
      {.name = "embedding_backward",
       .variants = 1,
       .draw = draw_embedding_backward,
       .product = false,
       .any_layout = false,
       .rows_are_alone = false},
      {.name = "cast", .variants = 9, .draw = draw_cast, .product = false, .any_layout = false},
      {.name = "adamw",
       .variants = 2,
       .draw = draw_adamw,
       .product = false,
       .any_layout = false,
       .rows_are_alone = false},
  };
  return kPrograms;
}

}  // namespace coda::test::gpu
