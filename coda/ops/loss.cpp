// The head of a language model: log-sum-exp, cross-entropy and its gradient, in one piece or by blocks of the
// vocabulary.
#include "coda/programs/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "coda/backend/cpu/kernels.h"
#include "coda/backend/sm90/kernels.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/ops/common.h"
#include "coda/programs/gemm.h"

namespace coda::ops {

void check_transform(const Check& check, const LogitTransform& t, DType stats) {
  const double scale = scalar_in(stats, t.scale), cap = scalar_in(stats, t.cap);
  check_factor(check, "transform.scale", t.scale, stats);
  if (!(cap >= 0 && std::isfinite(cap)) || (cap == 0 && t.cap != 0)) {
    check.fail("transform.cap", "expected 0 (none) or a positive number in {}, got {}", coda::name_of(stats), t.cap);
  }
  // What the programs multiply with.
  const double ratio = cap == 0 ? 0 : scalar_in(stats, scale / cap);
  if (!std::isfinite(ratio) || (ratio == 0 && cap != 0 && scale != 0)) {
    check.fail("transform", "expected a scale / cap that is a number in {}, got {} / {}", coda::name_of(stats), t.scale,
               t.cap);
  }
}
void check_options(const Check& check, const CrossEntropy& o, DType stats) {
  if (!(o.label_smoothing >= 0 && o.label_smoothing < 1)) {
    check.fail("options.label_smoothing", "expected a number in [0, 1), got {}", o.label_smoothing);
  }
  if (!(o.z_loss >= 0 && std::isfinite(scalar_in(stats, 2 * o.z_loss)))) {
    check.fail("options.z_loss", "expected a number of at least 0 whose double is finite in {}, got {}",
               coda::name_of(stats), o.z_loss);
  }
}
namespace {

/// Memory of a call's own is as large as its views say, which have no elements, and so no bounds, where K is 0.
void check_block(const Check& check, const char* argument, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;
  if (rows > 0 && columns > kMost / rows) {
    check.fail(argument, "expected at most {} elements in the call's own memory, got {} rows of {} columns", kMost,
               rows, columns);
  }
}

}  // namespace

void check_targets(Check& check, const Target& on, const ConstVector& target, std::int64_t m, std::int64_t vocabulary,
                   std::int64_t ignore) {
  check.indices("target", target, m);
  check.operand("target", target);
  if (on.backend != Backend::cpu) return;  // it cannot be looked at without waiting for the device
  const IndexVector index = index_vector(target);
  for (std::int64_t i = 0; i < m; ++i) {
    if (index[i] != ignore && (index[i] < 0 || index[i] >= vocabulary)) {
      check.fail("target", "expected values in [0, {}) or ignore_index {}, got {} at row {}", vocabulary, ignore,
                 index[i], i);
    }
  }
}

namespace {

template <class T>
coda::LogitTransform<T> transform_of(const LogitTransform& t) {
  return {static_cast<acc_t<T>>(t.scale), static_cast<acc_t<T>>(t.cap)};
}

template <class T>
CrossEntropyGradient<T> gradient_of(const LogitTransform& transform, const ConstVector& lse, const acc_t<T>* dloss,
                                    const ConstVector& target, std::int64_t first_column, std::int64_t vocabulary,
                                    const CrossEntropy& o) {
  using Acc = acc_t<T>;
  return {.transform = transform_of<T>(transform),
          .lse = {pointer<Acc>(lse)},
          .dloss = {dloss},
          .target = {index_vector(target), first_column},
          .hit = static_cast<Acc>(1 - o.label_smoothing),
          .smooth = static_cast<Acc>(o.label_smoothing / static_cast<double>(std::max<std::int64_t>(vocabulary, 1))),
          .zeta2 = static_cast<Acc>(2 * o.z_loss)};
}

// dloss with 0 in rows that do not count, so that the program needs no test for them: those ignored and, on a device,
// of a target that is none.
template <class Acc>
Temporary<Acc> masked_dloss(const Check& check, const Target& on, const ConstVector& dloss, const ConstVector& target,
                            std::int64_t ignore, std::int64_t vocabulary) {
  Temporary<Acc> out(check, on, dloss.size);
  if (on.backend == Backend::cpu) {
    const IndexVector index = index_vector(target);
    for (std::int64_t m = 0; m < dloss.size; ++m) {
      out.data()[m] = index[m] == ignore ? Acc(0) : pointer<Acc>(dloss)[m];
    }
  } else {
    sm90::masked_dloss(check.operation(), dloss, target, ignore, vocabulary, VectorOf<Acc>(out.data(), dloss.size),
                       on.stream);
  }
  return out;
}

}  // namespace

void gemm_lse(const GemmLse& args) {
  Check check("gemm_lse", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  const NormKind kind = check_norm(check, args.norm, p);
  check_transform(check, args.transform, p.stats);
  if (args.vocabulary < 0) {
    check.fail("vocabulary", "expected a number of columns, or 0 for those up to b's last, got {}", args.vocabulary);
  }
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t vocabulary =
      args.vocabulary > 0 ? args.vocabulary : std::min(args.first_column, kMost - p.n) + p.n;
  if (args.first_column < 0 || args.first_column > vocabulary - p.n) {
    check.fail("first_column", "expected a block of {} columns inside a vocabulary of {}, got one that begins at {}",
               p.n, vocabulary, args.first_column);
  }
  check.optional_matrix("preact", args.preact, p.m, p.n, p.t);
  check.optional_matrix("logits", args.logits, p.m, p.n, p.t);
  check.matrix("max", args.max, p.m, tiles_n(p.n, args.on.backend), p.stats);
  check.matrix("sum", args.sum, p.m, tiles_n(p.n, args.on.backend), p.stats);
  check.same_pitch("sum", args.sum, "max", args.max);
  check.optional_matrix("logit_sum", args.logit_sum, p.m, tiles_n(p.n, args.on.backend), p.stats);
  if (args.target || args.target_logit) {
    check_targets(check, args.on, args.target, p.m, vocabulary, args.ignore_index);
    check.vector("target_logit", args.target_logit, p.m, p.stats);
  }
  check.output("preact", args.preact);
  check.output("logits", args.logits);
  check.output("max", args.max);
  check.output("sum", args.sum);
  check.output("logit_sum", args.logit_sum);
  check.output("target_logit", args.target_logit);
  check.no_overlap();
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    with_norm<T>(kind, args.norm, [&](auto norm) {
      run<T>(check, args.on, args.a, args.b, args.layout,
             coda::GemmNormLse<T, decltype(norm)>{
                 .norm = norm,
                 .transform = transform_of<T>(args.transform),
                 .logits = args.logits.as<T>(),
                 .preact = args.preact.as<T>(),
                 .lse = OnlineLse<Acc>(args.max.as<Acc>(), args.sum.as<Acc>()),
                 .logit_sum = args.logit_sum.as<Acc>(),
                 .target_logit = {index_vector(args.target), pointer<Acc>(args.target_logit), args.first_column}});
    });
  });
}

void lse_finalize(const LseFinalize& args) {
  Check check("lse_finalize", args.on);
  check.given("max", args.max, args.lse.size);
  const std::int64_t m = args.max.rows;
  const DType stats = args.max.dtype;
  if (stats != DType::fp32 && stats != DType::fp64) {
    check.fail("max", "expected dtype fp32 or fp64, got {}", coda::name_of(stats));
  }
  check.matrix("max", args.max, m, args.max.cols, stats);
  check.matrix("sum", args.sum, m, args.max.cols, stats);
  check.vector("lse", args.lse, m, stats);
  check_options(check, args.options, stats);
  const bool smoothing = args.loss && args.options.label_smoothing != 0;
  if (args.loss) {
    check.vector("loss", args.loss, m, stats);
    if (args.vocabulary > 0) {
      check_targets(check, args.on, args.target, m, args.vocabulary, args.options.ignore_index);
    } else {
      check.indices("target", args.target, m);
      check.operand("target", args.target);
    }
    check.vector("target_logit", args.target_logit, m, stats);
  }
  if (smoothing) {
    check.matrix("logit_sum", args.logit_sum, m, args.max.cols, stats);
    if (args.vocabulary <= 0)
      check.fail("vocabulary", "expected the number of logits of a row, got {}", args.vocabulary);
  }
  check.operand("max", args.max);
  check.operand("sum", args.sum);
  if (smoothing) check.operand("logit_sum", args.logit_sum);
  if (args.loss) check.operand("target_logit", args.target_logit);
  check.output("lse", args.lse);
  check.output("loss", args.loss);
  check.no_overlap();
  if (args.on.backend == Backend::sm90) {
    check_fp32_on_sm90(check, "max", stats);
    return sm90::lse_finalize(check.operation(),
                              {.max = args.max,
                               .sum = args.sum,
                               .logit_sum = args.logit_sum,
                               .target = args.target,
                               .target_logit = args.target_logit,
                               .label_smoothing = args.options.label_smoothing,
                               .z_loss = args.options.z_loss,
                               .ignore_index = args.options.ignore_index,
                               .vocabulary = args.vocabulary,
                               .lse = args.lse,
                               .loss = args.loss},
                              args.on.stream);
  }
  const cpu::LossOptions options{args.options.label_smoothing, args.options.z_loss, args.options.ignore_index,
                                 args.vocabulary};
  const auto run = [&](auto acc) {
    using Acc = decltype(acc);
    cpu::lse_finalize<Acc>(args.max.as<Acc>(), args.sum.as<Acc>(), args.logit_sum.as<Acc>(), index_vector(args.target),
                           pointer<Acc>(args.target_logit), options, pointer<Acc>(args.lse), pointer<Acc>(args.loss));
  };
  stats == DType::fp32 ? run(float{}) : run(double{});
}

void cross_entropy_backward(const CrossEntropyBackward& args) {
  Check check("cross_entropy_backward", args.on);
  check.given("preact", args.preact, args.dz.rows);
  const std::int64_t m = args.preact.rows, n = args.preact.cols;
  const DType t0 = check.real("preact", args.preact.dtype), stats = stats_of(t0);
  check.matrix("preact", args.preact, m, n, t0);
  check_transform(check, args.transform, stats);
  check_options(check, args.options, stats);
  check_targets(check, args.on, args.target, m, n, args.options.ignore_index);
  check.vector("lse", args.lse, m, stats);
  check.vector("dloss", args.dloss, m, stats);
  check.matrix("dz", args.dz, m, n, t0);
  const NormKind kind = check_dot(check, args.dot, m, tiles_n(n, args.on.backend), n, stats);
  check.input("preact", args.preact);
  check.operand("lse", args.lse);
  check.operand("dloss", args.dloss);
  check.output("dz", args.dz);
  check.no_overlap();
  check_kernels(check, args.on.backend, t0);
  with_real(t0, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    const auto dloss = masked_dloss<Acc>(check, args.on, args.dloss, args.target, args.options.ignore_index, n);
    with_dot<T, Width::Same>(kind, args.dot, [&](auto dot) {
      apply<T>(check, args.on, m, n,
               coda::CrossEntropyBackward<T, decltype(dot)>{
                   .preact = args.preact.as<T>(),
                   .gradient = gradient_of<T>(args.transform, args.lse, dloss.data(), args.target, 0, n, args.options),
                   .dz = args.dz.as<T>(),
                   .dot = dot});
    });
  });
}

void linear_cross_entropy(const LinearCrossEntropy& args) {
  Check check("linear_cross_entropy", args.on);
  const Product p = check_product(check, args.a, args.weight, Layout::nt, "weight");
  check_norm(check, args.norm, p);
  check_transform(check, args.transform, p.stats);
  check_options(check, args.options, p.stats);
  check_targets(check, args.on, args.target, p.m, p.n, args.options.ignore_index);
  check.vector("lse", args.lse, p.m, p.stats);
  check.optional_vector("loss", args.loss, p.m, p.stats);
  check.output("lse", args.lse);
  check.output("loss", args.loss);
  check.no_overlap();
  check_kernels(check, args.on.backend, p.t);
  const std::int64_t tiles = tiles_n(p.n, args.on.backend);
  check_block(check, "weight", p.m, 3 * tiles);
  const auto run = [&](auto acc) {
    using Acc = decltype(acc);
    const std::int64_t part = p.m * tiles;
    const bool smoothing = args.options.label_smoothing != 0;
    const Temporary<Acc> store(check, args.on, part * (smoothing ? 3 : 2) + p.m);
    const MatrixOf<Acc> max(store.data() + p.m, p.m, tiles), sum(max.data + part, p.m, tiles);
    const MatrixOf<Acc> logit_sum = smoothing ? MatrixOf<Acc>(sum.data + part, p.m, tiles) : MatrixOf<Acc>();
    const VectorOf<Acc> target_logit(store.data(), p.m);
    gemm_lse({.a = args.a,
              .b = args.weight,
              .norm = args.norm,
              .transform = args.transform,
              .target = args.target,
              .ignore_index = args.options.ignore_index,
              .max = max,
              .sum = sum,
              .logit_sum = logit_sum,
              .target_logit = target_logit,
              .on = args.on});
    lse_finalize({.max = max,
                  .sum = sum,
                  .logit_sum = logit_sum,
                  .target = args.target,
                  .target_logit = target_logit,
                  .vocabulary = std::max<std::int64_t>(p.n, 1),  // without one all rows are ignored
                  .options = args.options,
                  .lse = args.lse,
                  .loss = args.loss,
                  .on = args.on});
  };
  p.stats == DType::fp32 ? run(float{}) : run(double{});
}

void linear_cross_entropy_backward(const LinearCrossEntropyBackward& args) {
  Check check("linear_cross_entropy_backward", args.on);
  const Product p = check_product(check, args.a, args.weight, Layout::nt, "weight");
  const NormKind kind = check_norm(check, args.norm, p);
  check_transform(check, args.transform, p.stats);
  check_options(check, args.options, p.stats);
  check_targets(check, args.on, args.target, p.m, p.n, args.options.ignore_index);
  check.vector("lse", args.lse, p.m, p.stats);
  check.vector("dloss", args.dloss, p.m, p.stats);
  check.optional_matrix("h", args.h, p.m, p.k, p.t);
  check.require(args.h || !args.dweight || !args.norm.rstd, "h",
                "expected the normalised operand, since norm is given and dweight wanted, got none");
  check.matrix("da", args.da, p.m, p.k, p.t);
  if (args.dweight) check.matrix("dweight", args.dweight, p.n, p.k, args.dweight.dtype == p.stats ? p.stats : p.t);
  check.optional_vector("row_dot", args.row_dot, p.m, p.stats);
  check.optional_vector("row_udz", args.row_udz, p.m, p.stats);
  check.require(!args.row_udz || kind == NormKind::layernorm, "row_udz",
                "expected none, since norm is no LayerNorm, got a vector");
  if (args.chunk <= 0) check.fail("chunk", "expected a number of columns above 0, got {}", args.chunk);
  check.operand("h", args.h);
  check.operand("lse", args.lse);
  check.operand("dloss", args.dloss);
  check.output("da", args.da);
  check.output("dweight", args.dweight);
  check.output("row_dot", args.row_dot);
  check.output("row_udz", args.row_udz);
  check.no_overlap();
  check_kernels(check, args.on.backend, p.t);
  if (p.m == 0) return;
  const std::int64_t chunk = std::min(args.chunk, std::max<std::int64_t>(p.n, 1));
  // Row terms of all blocks side by side, so that they are added up once and in one order.
  const std::int64_t blocks = (p.n + chunk - 1) / chunk, tiles = blocks * tiles_n(chunk, args.on.backend);
  check_block(check, "chunk", p.m, chunk);
  check_block(check, "weight", p.m, tiles);
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    const auto dloss = masked_dloss<Acc>(check, args.on, args.dloss, args.target, args.options.ignore_index, p.n);
    const bool layernorm = kind == NormKind::layernorm;
    const Temporary<T> block(check, args.on, p.m * chunk);
    const Temporary<Acc> da(check, args.on, p.m * p.k), zdz(check, args.on, p.m * tiles),
        udz(check, args.on, layernorm ? p.m * tiles : 0);
    const MatrixOf<Acc> da_sum(da.data(), p.m, p.k);
    const ConstMatrix h = args.h ? args.h : args.a;
    std::int64_t tile = 0;
    // Once at least: without a vocabulary da is 0.
    for (std::int64_t first = 0; first == 0 || first < p.n; first += chunk) {
      const std::int64_t width = std::min(chunk, p.n - first), more = tiles_n(width, args.on.backend);
      const auto weight = args.weight.as<T>();
      const MatrixOf<const T> w(weight.row(first), width, p.k, weight.pitch);
      const MatrixOf<T> dz(block.data(), p.m, width);
      const auto block_of = [&](const ConstVector& v) {
        return v ? ConstVector(pointer<Acc>(v) + first, v.dtype, width) : v;
      };
      const Norm norm{args.norm.rstd, args.norm.mean, block_of(args.norm.u), block_of(args.norm.c)};
      NormDot sums{.zdz = MatrixOf<Acc>(zdz.data() + tile, p.m, more, tiles), .u = norm.u, .c = norm.c};
      if (layernorm) sums.udz = MatrixOf<Acc>(udz.data() + tile, p.m, more, tiles);
      tile += more;
      with_norm_and_dot<T, Width::Same>(kind, norm, sums, [&](auto scale, auto dot) {
        run<T>(check, args.on, args.a, w, Layout::nt,
               coda::GemmCrossEntropyBackward<T, decltype(scale), decltype(dot)>{
                   .norm = scale,
                   .gradient =
                       gradient_of<T>(args.transform, args.lse, dloss.data(), args.target, first, p.n, args.options),
                   .dz = dz,
                   .dot = dot});
      });
      gemm({.a = dz,
            .b = w,
            .layout = Layout::nn,
            .beta = first > 0 ? 1.0 : 0.0,
            .c = da_sum,
            .out = da_sum,
            .on = args.on});
      if (args.dweight) {
        Matrix out = args.dweight;
        out.data = static_cast<std::byte*>(out.data) + first * out.pitch * size_of(out.dtype);
        out.rows = width;
        gemm({.a = dz, .b = h, .layout = Layout::tn, .beta = 1, .c = out, .out = out, .on = args.on});
      }
    }
    cast({.in = da_sum, .out = args.da, .on = args.on});
    const auto sum_of = [&](const Temporary<Acc>& partial, const Vector& out) {
      if (out) sum_rows({.partial = MatrixOf<Acc>(partial.data(), p.m, tile, tiles), .out = out, .on = args.on});
    };
    sum_of(zdz, args.row_dot);
    sum_of(udz, args.row_udz);
  });
}

}  // namespace coda::ops
