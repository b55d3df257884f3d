// The head of a language model: log-sum-exp, cross-entropy and its gradient, in one piece or by blocks of the
// vocabulary.
#include "coda/programs/loss.h"

#include <vector>

#include "coda/backend/cpu/kernels.h"
#include "coda/ops/common.h"
#include "coda/programs/gemm.h"

namespace coda::ops {
namespace {

void check_transform(const Check& check, const LogitTransform& t) {
  if (!(t.cap >= 0)) check.fail("transform.cap", "expected 0 (none) or a positive number, got {}", t.cap);
}
void check_options(const Check& check, const CrossEntropy& o) {
  if (!(o.label_smoothing >= 0 && o.label_smoothing < 1)) {
    check.fail("options.label_smoothing", "expected a number in [0, 1), got {}", o.label_smoothing);
  }
  if (!(o.z_loss >= 0)) check.fail("options.z_loss", "expected a number of at least 0, got {}", o.z_loss);
}
void check_targets(Check& check, const ConstVector& target, std::int64_t m, std::int64_t vocabulary,
                   std::int64_t ignore) {
  check.indices("target", target, m);
  check.operand("target", target);
  const IndexVector index = index_vector(target);
  for (std::int64_t i = 0; i < m; ++i) {
    if (index[i] != ignore && (index[i] < 0 || index[i] >= vocabulary)) {
      check.fail("target", "expected values in [0, {}) or ignore_index {}, got {} at row {}", vocabulary, ignore,
                 index[i], i);
    }
  }
}

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

// dloss with ignored rows set to 0, so that the program needs no test for them.
template <class Acc>
std::vector<Acc> masked_dloss(const ConstVector& dloss, const ConstVector& target, std::int64_t ignore) {
  const IndexVector index = index_vector(target);
  std::vector<Acc> out(static_cast<std::size_t>(dloss.size));
  for (std::int64_t m = 0; m < dloss.size; ++m) {
    out[static_cast<std::size_t>(m)] = index[m] == ignore ? Acc(0) : pointer<Acc>(dloss)[m];
  }
  return out;
}

}  // namespace

void gemm_lse(const GemmLse& args) {
  Check check("gemm_lse", args.on);
  const Product p = check_product(check, args.a, args.b, args.layout);
  const NormKind kind = check_norm(check, args.norm, p);
  check_transform(check, args.transform);
  const std::int64_t vocabulary = args.vocabulary > 0 ? args.vocabulary : args.first_column + p.n;
  if (args.first_column < 0 || args.first_column + p.n > vocabulary) {
    check.fail("first_column", "expected a block of {} columns inside a vocabulary of {}, got one that begins at {}",
               p.n, vocabulary, args.first_column);
  }
  check.optional_matrix("preact", args.preact, p.m, p.n, p.t);
  check.optional_matrix("logits", args.logits, p.m, p.n, p.t);
  check.matrix("max", args.max, p.m, tiles_n(p.n), p.stats);
  check.matrix("sum", args.sum, p.m, tiles_n(p.n), p.stats);
  if (args.max.pitch != args.sum.pitch) {
    check.fail("sum", "expected the pitch of max, {}, got {}", args.max.pitch, args.sum.pitch);
  }
  check.optional_matrix("logit_sum", args.logit_sum, p.m, tiles_n(p.n), p.stats);
  if (args.target || args.target_logit) {
    check_targets(check, args.target, p.m, vocabulary, args.ignore_index);
    check.vector("target_logit", args.target_logit, p.m, p.stats);
  }
  check.output("preact", args.preact);
  check.output("logits", args.logits);
  check.output("max", args.max);
  check.output("sum", args.sum);
  check.output("logit_sum", args.logit_sum);
  check.output("target_logit", args.target_logit);
  check.no_overlap();
  cpu_only(check, args.on);
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    with_norm<T>(kind, args.norm, [&](auto norm) {
      run_cpu<T>(args.a, args.b, args.layout,
                 coda::GemmNormLse<T, decltype(norm)>{
                     .norm = norm,
                     .transform = transform_of<T>(args.transform),
                     .preact = args.preact.as<T>(),
                     .logits = args.logits.as<T>(),
                     .lse = OnlineLse<Acc>(args.max.as<Acc>(), args.sum.as<Acc>()),
                     .logit_sum = args.logit_sum.as<Acc>(),
                     .target_logit = {index_vector(args.target), pointer<Acc>(args.target_logit), args.first_column}});
    });
  });
}

void lse_finalize(const LseFinalize& args) {
  Check check("lse_finalize", args.on);
  const std::int64_t m = args.max.rows;
  const DType stats = args.max.dtype;
  if (stats != DType::fp32 && stats != DType::fp64) {
    check.fail("max", "expected dtype fp32 or fp64, got {}", coda::name_of(stats));
  }
  check.matrix("max", args.max, m, args.max.cols, stats);
  check.matrix("sum", args.sum, m, args.max.cols, stats);
  check.vector("lse", args.lse, m, stats);
  check_options(check, args.options);
  const bool smoothing = args.loss && args.options.label_smoothing != 0;
  if (args.loss) {
    check.vector("loss", args.loss, m, stats);
    check.indices("target", args.target, m);
    check.operand("target", args.target);
    check.vector("target_logit", args.target_logit, m, stats);
  }
  if (smoothing) {
    check.matrix("logit_sum", args.logit_sum, m, args.max.cols, stats);
    if (args.vocabulary <= 0)
      check.fail("vocabulary", "expected the number of logits of a row, got {}", args.vocabulary);
  }
  for (const auto& [name, in] :
       {std::pair{"max", &args.max}, std::pair{"sum", &args.sum}, std::pair{"logit_sum", &args.logit_sum}}) {
    check.operand(name, *in);
  }
  check.operand("target_logit", args.target_logit);
  check.output("lse", args.lse);
  check.output("loss", args.loss);
  check.no_overlap();
  cpu_only(check, args.on);
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
  const std::int64_t m = args.preact.rows, n = args.preact.cols;
  const DType t0 = check.real("preact", args.preact.dtype), stats = stats_of(t0);
  check.matrix("preact", args.preact, m, n, t0);
  check_transform(check, args.transform);
  check_options(check, args.options);
  check_targets(check, args.target, m, n, args.options.ignore_index);
  check.vector("lse", args.lse, m, stats);
  check.vector("dloss", args.dloss, m, stats);
  check.matrix("dz", args.dz, m, n, t0);
  const NormKind kind = check_dot(check, args.dot, m, tiles_n(n), n, stats);
  check.input("preact", args.preact);
  check.operand("lse", args.lse);
  check.operand("dloss", args.dloss);
  check.output("dz", args.dz);
  check.no_overlap();
  cpu_only(check, args.on);
  with_real(t0, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    const auto dloss = masked_dloss<Acc>(args.dloss, args.target, args.options.ignore_index);
    with_dot<T, Width::Same>(kind, args.dot, [&](auto dot) {
      cpu::apply<Acc>(
          m, n,
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
  const Product p = check_product(check, args.a, args.weight, Layout::nt);
  check_norm(check, args.norm, p);
  check_transform(check, args.transform);
  check_options(check, args.options);
  check_targets(check, args.target, p.m, p.n, args.options.ignore_index);
  check.vector("lse", args.lse, p.m, p.stats);
  check.optional_vector("loss", args.loss, p.m, p.stats);
  check.output("lse", args.lse);
  check.output("loss", args.loss);
  check.no_overlap();
  cpu_only(check, args.on);
  const auto run = [&](auto acc) {
    using Acc = decltype(acc);
    const std::int64_t tiles = tiles_n(p.n);
    const bool smoothing = args.options.label_smoothing != 0;
    std::vector<Acc> store(static_cast<std::size_t>(p.m * (tiles * (smoothing ? 3 : 2) + 1)));
    const MatrixOf<Acc> max(store.data(), p.m, tiles), sum(max.data + p.m * tiles, p.m, tiles);
    const MatrixOf<Acc> logit_sum = smoothing ? MatrixOf<Acc>(sum.data + p.m * tiles, p.m, tiles) : MatrixOf<Acc>();
    const VectorOf<Acc> target_logit(store.data() + store.size() - static_cast<std::size_t>(p.m), p.m);
    gemm_lse({.a = args.a,
              .b = args.weight,
              .norm = args.norm,
              .transform = args.transform,
              .target = args.target,
              .ignore_index = args.options.ignore_index,
              .max = max,
              .sum = sum,
              .logit_sum = logit_sum,
              .target_logit = target_logit});
    lse_finalize({.max = max,
                  .sum = sum,
                  .logit_sum = logit_sum,
                  .target = args.target,
                  .target_logit = target_logit,
                  .vocabulary = p.n,
                  .options = args.options,
                  .lse = args.lse,
                  .loss = args.loss});
  };
  p.stats == DType::fp32 ? run(float{}) : run(double{});
}

void linear_cross_entropy_backward(const LinearCrossEntropyBackward& args) {
  Check check("linear_cross_entropy_backward", args.on);
  const Product p = check_product(check, args.a, args.weight, Layout::nt);
  check.require(check_norm(check, args.norm, p) == NormKind::rms, "norm",
                "expected an RMSNorm or none, got a LayerNorm");
  check_transform(check, args.transform);
  check_options(check, args.options);
  check_targets(check, args.target, p.m, p.n, args.options.ignore_index);
  check.vector("lse", args.lse, p.m, p.stats);
  check.vector("dloss", args.dloss, p.m, p.stats);
  check.optional_matrix("h", args.h, p.m, p.k, p.t);
  check.require(args.h || !args.dweight || !args.norm.rstd, "h",
                "expected the normalised operand, since norm is given and dweight wanted, got none");
  check.matrix("da", args.da, p.m, p.k, p.t);
  if (args.dweight) check.matrix("dweight", args.dweight, p.n, p.k, args.dweight.dtype == p.stats ? p.stats : p.t);
  check.optional_vector("row_dot", args.row_dot, p.m, p.stats);
  if (args.chunk <= 0) check.fail("chunk", "expected a number of columns above 0, got {}", args.chunk);
  check.operand("h", args.h);
  check.operand("lse", args.lse);
  check.operand("dloss", args.dloss);
  check.output("da", args.da);
  check.output("dweight", args.dweight);
  check.output("row_dot", args.row_dot);
  check.no_overlap();
  cpu_only(check, args.on);
  if (p.m == 0) return;
  with_real(p.t, [&](auto t) {
    using T = decltype(t);
    using Acc = acc_t<T>;
    const auto dloss = masked_dloss<Acc>(args.dloss, args.target, args.options.ignore_index);
    const std::int64_t chunk = std::min(args.chunk, std::max<std::int64_t>(p.n, 1)), tiles = tiles_n(chunk);
    std::vector<T> block(static_cast<std::size_t>(p.m * chunk));
    std::vector<Acc> da(static_cast<std::size_t>(p.m * p.k), Acc(0)), zdz(static_cast<std::size_t>(p.m * tiles)),
        term(static_cast<std::size_t>(p.m)), total(static_cast<std::size_t>(p.m), Acc(0));
    const MatrixOf<Acc> da_sum(da.data(), p.m, p.k);
    const ConstMatrix h = args.h ? args.h : args.a;
    for (std::int64_t first = 0; first < p.n; first += chunk) {
      const std::int64_t width = std::min(chunk, p.n - first);
      const auto weight = args.weight.as<T>();
      const MatrixOf<const T> w(weight.row(first), width, p.k, weight.pitch);
      const MatrixOf<T> dz(block.data(), p.m, width);
      const MatrixOf<Acc> dots(zdz.data(), p.m, tiles_n(width));
      cpu::gemm(args.a.as<T>(), w,
                coda::GemmCrossEntropyBackward<T>{.norm = {.rstd = {pointer<Acc>(args.norm.rstd)}},
                                                  .gradient = gradient_of<T>(args.transform, args.lse, dloss.data(),
                                                                             args.target, first, p.n, args.options),
                                                  .dz = dz,
                                                  .dot = {.zdz = dots}});
      cpu::sum_rows<Acc>(dots, 1, term.data());
      for (std::size_t m = 0; m < total.size(); ++m) total[m] += term[m];
      gemm({.a = dz, .b = w, .layout = Layout::nn, .beta = first > 0 ? 1.0 : 0.0, .c = da_sum, .out = da_sum});
      if (args.dweight) {
        Matrix out = args.dweight;
        out.data = static_cast<std::byte*>(out.data) + first * out.pitch * size_of(out.dtype);
        out.rows = width;
        gemm({.a = dz, .b = h, .layout = Layout::tn, .beta = 1, .c = out, .out = out});
      }
    }
    cpu::cast<Acc, T>(da_sum, args.da.as<T>());
    if (args.row_dot) std::copy(total.begin(), total.end(), pointer<Acc>(args.row_dot));
  });
}

}  // namespace coda::ops
