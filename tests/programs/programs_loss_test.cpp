// The head of a language model: log-sum-exp, cross-entropy and its gradient, whole and by blocks of the vocabulary.
#include "tests/programs/dots.h"
#include "tests/programs/harness.h"
#include "tests/reference/backward.h"
#include "tests/reference/loss.h"

namespace coda::test {
namespace {

using reference::LossOptions;
using reference::Targets;

/// Every option off, each one alone, all together.
constexpr LossOptions kOptions[] = {{},
                                    {.scale = 0.5},
                                    {.scale = 1.5, .cap = 3.0},
                                    {.smoothing = 0.125},
                                    {.z_loss = 0.01},
                                    {.ignore_index = -1},
                                    {.scale = 0.25, .cap = 5.0, .smoothing = 0.1, .z_loss = 0.001, .ignore_index = 7}};

ops::LogitTransform transform_of(const LossOptions& o) { return {.scale = o.scale, .cap = o.cap}; }
ops::CrossEntropy options_of(const LossOptions& o) {
  return {.label_smoothing = o.smoothing, .z_loss = o.z_loss, .ignore_index = o.ignore_index};
}
/// At least one logit, and targets of which some rows have none.
Targets draw_targets(Case& c, const LossOptions& o) { return random_targets(c.random, c.m, c.n, 4, o.ignore_index); }
/// Logits of a few units, whatever the scale of the operands.
NormInput draw_norm(Case& c, int option) {
  NormForm form = kNormForms[(option + c.random.integer(0, 3)) % 4];
  if (c.scale > 1 && form == NormForm::none) form = NormForm::rms;
  return c.norm(form);
}
void at_least_one_logit(Case& c) { c.n = std::max<std::int64_t>(c.n, 1); }

/// The target's logit of rows that have a target; what is in the others is not looked at.
void expect_target_logit(Case& c, const Targets& targets, const LossOptions& o, const Vec& ref, const Vec& chain) {
  Mat got = c.got("target_logit");
  for (std::int64_t m = 0; m < c.m; ++m)
    if (targets[static_cast<std::size_t>(m)] == o.ignore_index) got(m, 0) = ref[static_cast<std::size_t>(m)];
  EXPECT_EQ(check_close("target_logit", got, column(ref), column(chain), c.stats), "");
}

TEST(GemmLse, ReducesTheLogitsOfEachTileAndFinalizesThemToTheLoss) {
  sweep(std::size(kOptions), [](Case& c, int option) {
    at_least_one_logit(c);
    const LossOptions o = kOptions[option];
    c.draw_product();
    const NormInput norm = draw_norm(c, option);
    const Targets targets = draw_targets(c, o);
    const std::int64_t tiles = ops::tiles_n(c.n);
    ops::GemmLse call{.a = c.a,
                      .b = c.b,
                      .layout = c.layout,
                      .norm = norm.ops,
                      .transform = transform_of(o),
                      .target = c.indices(targets, c.flip()),
                      .ignore_index = o.ignore_index};
    if (c.flip()) call.preact = c.out("preact", c.m, c.n);
    if (c.flip()) call.logits = c.out("logits", c.m, c.n);
    std::tie(call.max, call.sum) = c.out_pair("max", "sum", c.m, tiles, c.stats);
    if (o.smoothing != 0 || c.flip()) call.logit_sum = c.out("logit_sum", c.m, tiles, c.stats);
    call.target_logit = c.in_place_vec("target_logit", Vec(static_cast<std::size_t>(c.m)), c.stats);
    ops::gemm_lse(call);
    ops::lse_finalize({.max = call.max,
                       .sum = call.sum,
                       .logit_sum = call.logit_sum,
                       .target = call.target,
                       .target_logit = call.target_logit,
                       .vocabulary = c.n,
                       .options = options_of(o),
                       .lse = c.out_vec("lse", c.m, c.stats),
                       .loss = c.out_vec("loss", c.m, c.stats)});
    const auto run = [&](Round r) { return reference::gemm_lse(c.operands(), norm.ref, targets, 256, o, r); };
    auto ref = run({}), chain = run(c.round());
    c.expect_linear("preact", ref.z, chain.z);
    c.expect("logits", ref.l, chain.l);
    if (call.preact) {  // what is reduced is what is stored
      const Mat stored = c.got("preact");
      for (const auto& [f, r] : {std::pair{&ref, Round()}, std::pair{&chain, c.round()}}) {
        f->partials = reference::lse_partials(reference::logits(stored, o, r), targets, 256, o, r);
        f->result = reference::lse_finalize(f->partials, targets, c.n, o, r);
      }
    }
    c.expect("max", ref.partials.max, chain.partials.max);
    c.expect("sum", ref.partials.sum_exp, chain.partials.sum_exp);
    c.expect("logit_sum", ref.partials.sum, chain.partials.sum);
    c.expect_written("target_logit");
    expect_target_logit(c, targets, o, ref.partials.target, chain.partials.target);
    c.expect("lse", ref.result.lse, chain.result.lse);
    c.expect("loss", ref.result.loss, chain.result.loss);
  });
}

TEST(GemmLse, WorksOnBlocksOfTheVocabulary) {
  for (const DType t : kTypes) {
    Case c(t, coda::Layout::nt, 21, 700, 24, 1, false, base_seed());
    SCOPED_TRACE(c.describe());
    c.draw_product();
    const LossOptions o{.smoothing = 0.1};
    const Targets targets = draw_targets(c, o);
    const ConstVector target = c.indices(targets, true);
    const Vector target_logit = c.in_place_vec("target_logit", Vec(static_cast<std::size_t>(c.m)), c.stats);
    // Blocks of 300, 300 and 100 columns, each with its own tiles: partial results lie side by side.
    const std::int64_t tiles = 2 + 2 + 1;
    const auto [max, sum] = c.out_pair("max", "sum", c.m, tiles, c.stats);
    const Matrix logit_sum = c.out("logit_sum", c.m, tiles, c.stats);
    const auto part = [&](Matrix x, std::int64_t first, std::int64_t count) {
      x.data = static_cast<std::byte*>(x.data) + first * size_of(x.dtype);
      x.cols = count;
      return x;
    };
    std::int64_t tile = 0;
    for (std::int64_t first = 0; first < c.n; first += 300) {
      ConstMatrix block = c.b;
      block.rows = std::min<std::int64_t>(300, c.n - first);
      block.data = static_cast<const std::byte*>(block.data) + first * block.pitch * size_of(t);
      const std::int64_t count = ops::tiles_n(block.rows);
      ops::gemm_lse({.a = c.a,
                     .b = block,
                     .target = target,
                     .first_column = first,
                     .vocabulary = c.n,
                     .max = part(max, tile, count),
                     .sum = part(sum, tile, count),
                     .logit_sum = part(logit_sum, tile, count),
                     .target_logit = target_logit});
      tile += count;
    }
    ops::lse_finalize({.max = max,
                       .sum = sum,
                       .logit_sum = logit_sum,
                       .target = target,
                       .target_logit = target_logit,
                       .vocabulary = c.n,
                       .options = options_of(o),
                       .lse = c.out_vec("lse", c.m, c.stats),
                       .loss = c.out_vec("loss", c.m, c.stats)});
    const auto run = [&](Round r) { return reference::gemm_lse(c.operands(), {}, targets, 256, o, r); };
    const auto ref = run({}), chain = run(c.round());
    for (const char* name : {"max", "sum", "logit_sum", "target_logit"}) c.expect_written(name);
    expect_target_logit(c, targets, o, ref.partials.target, chain.partials.target);
    c.expect("lse", ref.result.lse, chain.result.lse);
    c.expect("loss", ref.result.loss, chain.result.loss);
    c.finish();
  }
}

TEST(LinearCrossEntropy, IsTheLossWithoutEverHoldingTheLogits) {
  sweep(
      std::size(kOptions),
      [](Case& c, int option) {
        at_least_one_logit(c);
        const LossOptions o = kOptions[option];
        c.draw_product();
        const NormInput norm = draw_norm(c, option);
        const Targets targets = draw_targets(c, o);
        ops::LinearCrossEntropy call{.a = c.a,
                                     .weight = c.b,
                                     .norm = norm.ops,
                                     .transform = transform_of(o),
                                     .target = c.indices(targets, c.flip()),
                                     .options = options_of(o),
                                     .lse = c.out_vec("lse", c.m, c.stats)};
        if (c.flip()) call.loss = c.out_vec("loss", c.m, c.stats);
        ops::linear_cross_entropy(call);
        const auto run = [&](Round r) {
          return reference::gemm_lse(c.operands(), norm.ref, targets, 256, o, r).result;
        };
        const auto ref = run({}), chain = run(c.round());
        c.expect("lse", ref.lse, chain.lse);
        c.expect("loss", ref.loss, chain.loss);
      },
      std::size(kTypes), 1);
}

/// The gradient from the value z that is stored (exactly, or rounded in the chain).
struct Gradient {
  Mat dz;
  Dot dot;
};
Gradient gradient(const Mat& z, const Vec& lse, const Targets& targets, const Vec& dloss, const LossOptions& o,
                  const DotInput& dot, Round r) {
  const auto g = reference::cross_entropy_backward(reference::logits(z, o, r), lse, targets, dloss, o, r);
  return {g.dz, dots(z, g.dz, dot.u, dot.shift, 256, r)};
}
Vec lse_of(const Mat& z, const Targets& targets, const LossOptions& o, DType stats) {
  Vec lse =
      reference::lse_finalize(reference::lse_partials(reference::logits(z, o), targets, 256, o), targets, z.cols, o)
          .lse;
  for (double& x : lse) x = Round::to(stats)(x);
  return lse;
}

TEST(CrossEntropyBackward, IsTheGradientOfTheLossAlsoInPlace) {
  sweep(
      std::size(kOptions),
      [](Case& c, int option) {
        c.n = std::max<std::int64_t>(c.n, 2);  // of one logit the gradient is 0, and what is left is rounding
        const LossOptions o = kOptions[option];
        const Mat z = c.draw(c.m, c.n, 2);
        const Targets targets = draw_targets(c, o);
        const Vec lse = lse_of(z, targets, o, c.stats), dloss = c.factors(c.m, c.scale, c.stats);
        const DotInput dot = draw_dot(c, c.random.integer(0, 3), ops::tiles_n(c.n), c.n);
        ops::CrossEntropyBackward call{.preact = {},
                                       .transform = transform_of(o),
                                       .target = c.indices(targets, c.flip()),
                                       .lse = c.vec(lse, c.stats),
                                       .dloss = c.vec(dloss, c.stats),
                                       .options = options_of(o),
                                       .dot = dot.ops};
        if (c.flip()) {
          call.dz = c.in_place("dz", z);
          call.preact = call.dz;
        } else {
          call.preact = c.in(z);
          call.dz = c.out("dz", c.m, c.n);
        }
        ops::cross_entropy_backward(call);
        const auto ref = gradient(z, lse, targets, dloss, o, dot, {});
        const auto chain = gradient(z, lse, targets, dloss, o, dot, c.round());
        c.expect("dz", ref.dz, chain.dz);
        c.expect("zdz", ref.dot.zdz, chain.dot.zdz);
        c.expect("udz", ref.dot.udz, chain.dot.udz);
      },
      std::size(kTypes), 1);
}

/// Of large logits the rounding to 16 bits is so much that an lse of others than those stored would make exp(z - lse)
/// of a token that is all but certain anything but 1, and its gradient as large as one that is not.
TEST(CrossEntropyBackward, OfLogitsThatGemmLseStoredIsThatOfTheirLoss) {
  for (const DType t : kTypes) {
    Case c(t, coda::Layout::nt, 40, 520, 64, 1, false, base_seed());
    SCOPED_TRACE(c.describe());
    c.draw_product();
    const LossOptions o{};
    const Mat z = reference::gemm_norm(c.operands(), {});
    Targets targets(static_cast<std::size_t>(c.m));
    Vec dloss(static_cast<std::size_t>(c.m), 1.0);
    for (std::int64_t m = 0; m < c.m; ++m) {  // every other target is the likeliest
      std::int64_t& target = targets[static_cast<std::size_t>(m)];
      for (std::int64_t n = 0; n < c.n; ++n) target = m % 2 == 0 && z(m, n) > z(m, target) ? n : target;
    }
    const Matrix stored = c.out("stored", c.m, c.n);
    const auto [max, sum] = c.out_pair("max", "sum", c.m, ops::tiles_n(c.n), c.stats);
    const Vector lse = c.out_vec("lse", c.m, c.stats);
    ops::gemm_lse({.a = c.a, .b = c.b, .preact = stored, .max = max, .sum = sum});
    ops::lse_finalize({.max = max, .sum = sum, .lse = lse});
    ops::cross_entropy_backward({.preact = stored,
                                 .target = c.indices(targets, false),
                                 .lse = lse,
                                 .dloss = c.vec(dloss, c.stats),
                                 .dz = c.out("dz", c.m, c.n)});
    const auto run = [&](Round r) {
      const auto f = reference::gemm_lse(c.operands(), {}, targets, 256, o, r);
      return reference::cross_entropy_backward(f.l, f.result.lse, targets, dloss, o, r).dz;
    };
    const Mat dz = c.got("dz"), ref = run({}), chain = run(c.round());
    // Rows of certain tokens have gradients of nothing but what rounding leaves: they are compared by themselves.
    for (const std::int64_t first : {0, 1}) {
      double error = 0, bound = 0;
      for (std::int64_t m = first; m < c.m; m += 2) {
        for (std::int64_t n = 0; n < c.n; ++n) {
          error = std::max(error, std::abs(dz(m, n) - ref(m, n)));
          bound = std::max(bound, std::abs(chain(m, n) - ref(m, n)));
        }
      }
      EXPECT_TRUE(error <= 2 * bound + 1e-5)
          << (first == 0 ? "certain" : "other") << " rows: " << error << ", " << bound;
    }
  }
}

TEST(LinearCrossEntropyBackward, GivesAllGradientsABlockOfTheVocabularyAtATime) {
  constexpr std::int64_t kChunks[] = {1, 64, 256, 300, 512, 4096};  // the last one of 512 may have fewer tiles
  sweep(
      std::size(kNormForms) * std::size(kOptions),
      [&](Case& c, int option) {
        const LossOptions o = kOptions[option / std::size(kNormForms)];
        c.m = std::min<std::int64_t>(c.m, 140), c.n = std::clamp<std::int64_t>(c.n, 2, 600);
        c.draw_product();
        NormForm form = kNormForms[option % std::size(kNormForms)];
        if (form == NormForm::none && c.scale > 1) form = NormForm::rms;
        const bool layernorm = form == NormForm::layer || form == NormForm::layer_with_bias;
        const NormInput norm = c.norm(form);
        const Targets targets = draw_targets(c, o);
        const Mat z = reference::gemm_norm(c.operands(), norm.ref);
        const Vec lse = lse_of(z, targets, o, c.stats), dloss = c.factors(c.m, 1, c.stats);
        std::int64_t chunk = kChunks[c.random.integer(0, 5)];
        if (chunk == 1 && c.n > 40) chunk = 37;
        ops::LinearCrossEntropyBackward call{.a = c.a,
                                             .weight = c.b,
                                             .norm = norm.ops,
                                             .transform = transform_of(o),
                                             .target = c.indices(targets, c.flip()),
                                             .lse = c.vec(lse, c.stats),
                                             .dloss = c.vec(dloss, c.stats),
                                             .options = options_of(o),
                                             .chunk = chunk,
                                             .da = c.out("da", c.m, c.k)};
        const Mat h = norm.ops.rstd ? c.draw(c.m, c.k) : c.operands().a, start = c.draw(c.n, c.k, 0.1);
        const bool weight_gradient = c.flip();
        // In the statistics' dtype, or (one block only, so that it is rounded once) in that of the operands.
        const DType dw_type = chunk >= c.n && c.flip() ? c.type : c.stats;
        if (weight_gradient) {
          if (norm.ops.rstd) call.h = c.in(h);
          call.dweight = c.in_place("dweight", start, dw_type);
        }
        if (c.flip()) call.row_dot = c.out_vec("row_dot", c.m, c.stats);
        if (layernorm && c.flip()) call.row_udz = c.out_vec("row_udz", c.m, c.stats);
        ops::linear_cross_entropy_backward(call);
        const auto run = [&](Round r) {
          const Mat zr = reference::gemm_norm(c.operands(), norm.ref, r);
          const auto g = reference::cross_entropy_backward(reference::logits(zr, o, r), lse, targets, dloss, o, r);
          struct {
            Mat da, dw;
            Dot dot;
          } y{reference::product({g.dz, c.operands().b, reference::Layout::ab}, r),
              reference::product({g.dz, h, reference::Layout::atb}, r), dots(zr, g.dz, norm.ref.u, norm.ref.c, c.n, r)};
          for (std::size_t i = 0; i < y.dw.v.size(); ++i) y.dw.v[i] = Round::to(dw_type)(y.dw.v[i] + start.v[i]);
          return y;
        };
        const auto ref = run({}), chain = run(c.round());
        c.expect("da", ref.da, chain.da);
        c.expect_operand_precision("dweight", ref.dw, chain.dw);
        c.expect("row_dot", ref.dot.zdz.v, chain.dot.zdz.v);
        c.expect("row_udz", ref.dot.udz.v, chain.dot.udz.v);
      },
      std::size(kTypes), 1);
}

}  // namespace
}  // namespace coda::test
