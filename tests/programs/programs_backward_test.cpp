// Backward of linear layers behind a norm and of activations, and the small reductions, through the checked calls.
#include "tests/programs/dots.h"
#include "tests/programs/harness.h"
#include "tests/reference/backward.h"

namespace coda::test {
namespace {

constexpr std::pair<ops::Activation, reference::Activation> kActivations[] = {
    {ops::Activation::silu, reference::Activation::silu},
    {ops::Activation::gelu_erf, reference::Activation::gelu},
    {ops::Activation::gelu_tanh, reference::Activation::gelu_tanh},
    {ops::Activation::relu, reference::Activation::relu},
    {ops::Activation::relu_squared, reference::Activation::relu2},
    {ops::Activation::identity, reference::Activation::identity}};
constexpr std::pair<ops::Glu, reference::Activation> kGlus[] = {
    {ops::Glu::swiglu, reference::Activation::silu},
    {ops::Glu::geglu_erf, reference::Activation::gelu},
    {ops::Glu::geglu_tanh, reference::Activation::gelu_tanh},
    {ops::Glu::reglu, reference::Activation::relu}};

bool stays_exact(reference::Activation f) {
  return f == reference::Activation::identity || f == reference::Activation::relu || f == reference::Activation::relu2;
}

/// The gradient that comes in beside the product, and the saved stream: given apart, or one of them overwritten by dx.
struct Stream {
  Mat x, dx_in;
  bool has_dx_in;
  ConstMatrix x_in, dx_in_in;
  Matrix dx;
};
Stream draw_stream(Case& c) {
  Stream s{c.draw(c.m, c.n), c.draw(c.m, c.n, c.scale), c.flip(), {}, {}, {}};
  const bool over_dx_in = s.has_dx_in && c.flip();
  if (over_dx_in) {
    s.dx = c.in_place("dx", s.dx_in);
    s.dx_in_in = s.dx;
  } else if (s.has_dx_in) {
    s.dx_in_in = c.in(s.dx_in);
  }
  if (!over_dx_in && c.flip()) {
    s.dx = c.in_place("dx", s.x);
    s.x_in = s.dx;
  } else {
    s.x_in = c.in(s.x);
    if (!over_dx_in) s.dx = c.out("dx", c.m, c.n);
  }
  return s;
}

TEST(GemmRmsBackward, IsTheGradientOfALinearLayerBehindAnRmsNorm) {
  sweep(4, [](Case& c, int option) {
    c.draw_product();
    const Stream s = draw_stream(c);
    const Vec rstd = c.factors(c.m, 1, c.stats), term = c.draw_vec(c.m, c.scale, c.stats);
    const bool weighed = option != 3;
    const Vec w = weighed ? c.factors(c.n, 1, c.type) : Vec(static_cast<std::size_t>(c.n), 1.0);
    ops::GemmRmsBackward call{.a = c.a,
                              .b = c.b,
                              .layout = c.layout,
                              .x = s.x_in,
                              .dx_in = s.dx_in_in,
                              .rstd = c.vec(rstd, c.stats),
                              .row_term = c.vec(term, c.stats),
                              .dx = s.dx};
    if (weighed) call.weight = c.vec(w);
    if (option % 2 == 0) call.h = c.out("h", c.m, c.n);
    if (option != 1) call.dweight = c.out("dweight", ops::tiles_m(c.m), c.n, c.stats);
    ops::gemm_rms_backward(call);
    const auto run = [&](Round r) {
      return reference::gemm_rms_backward(c.operands(), s.x, rstd, w, s.has_dx_in ? &s.dx_in : nullptr, term, 256, r);
    };
    const auto ref = run({}), chain = run(c.round());
    c.expect_linear("dx", ref.dx, chain.dx);
    c.expect_linear("h", ref.h, chain.h);
    c.expect_linear("dweight", ref.dw, chain.dw);
  });
}

TEST(GemmLayerNormBackward, IsTheGradientOfALinearLayerBehindALayerNorm) {
  sweep(4, [](Case& c, int option) {
    c.draw_product();
    const Stream s = draw_stream(c);
    const reference::Moments moments{c.draw_vec(c.m, 1, c.stats), c.factors(c.m, 1, c.stats)};
    const reference::LayerNormRowTerms terms{c.draw_vec(c.m, c.scale, c.stats), c.draw_vec(c.m, c.scale, c.stats)};
    const bool weighed = option != 3;
    const Vec w = weighed ? c.factors(c.n, 1, c.type) : Vec(static_cast<std::size_t>(c.n), 1.0);
    const Vec bias = c.flip() ? c.draw_vec(c.n, 1, c.type) : Vec();
    ops::GemmLayerNormBackward call{.a = c.a,
                                    .b = c.b,
                                    .layout = c.layout,
                                    .x = s.x_in,
                                    .dx_in = s.dx_in_in,
                                    .rstd = c.vec(moments.rstd, c.stats),
                                    .mean = c.vec(moments.mean, c.stats),
                                    .zdz = c.vec(terms.c2, c.stats),
                                    .udz = c.vec(terms.c1, c.stats),
                                    .dx = s.dx};
    if (weighed) call.weight = c.vec(w);
    if (!bias.empty()) call.bias = c.vec(bias);
    if (option % 2 == 0) call.h = c.out("h", c.m, c.n);
    if (option != 1) call.dweight = c.out("dweight", ops::tiles_m(c.m), c.n, c.stats);
    if (option != 2) call.dbias = c.out("dbias", ops::tiles_m(c.m), c.n, c.stats);
    ops::gemm_layernorm_backward(call);
    const auto run = [&](Round r) {
      return reference::gemm_layernorm_backward(c.operands(), s.x, moments, w, bias, s.has_dx_in ? &s.dx_in : nullptr,
                                                terms, 256, r);
    };
    const auto ref = run({}), chain = run(c.round());
    c.expect_linear("dx", ref.dx, chain.dx);
    c.expect_linear("h", ref.h, chain.h);
    c.expect_linear("dweight", ref.dw, chain.dw);
    c.expect_linear("dbias", ref.db, chain.db);
  });
}

/// Gated and plain activations are the same test: only the width of z differs.
template <class Call, class Function, class Reference>
void check_activation_backward(Case& c, Call call, Function f, reference::Activation ref_f, std::int64_t width,
                               const Reference& reference_of_call) {
  c.draw_product();
  const Mat z = c.draw(c.m, width);
  if constexpr (requires { call.function; }) call.function = f;
  else call.activation = f;
  call.a = c.a, call.b = c.b, call.layout = c.layout;
  if (c.flip()) {
    call.dpreact = c.in_place("dpreact", z);
    call.preact = call.dpreact;
  } else {
    call.preact = c.in(z);
    call.dpreact = c.out("dpreact", c.m, width);
  }
  if (c.flip()) call.out = c.out("out", c.m, c.n);
  const DotInput dot = draw_dot(c, c.random.integer(0, 3), ops::tiles_n(c.n), width);
  call.dot = dot.ops;
  if constexpr (requires { call.function; }) ops::gemm_glu_backward(call);
  else ops::gemm_activation_backward(call);
  const std::int64_t block = c.n > 0 ? 256 * (width / c.n) : 256;
  const auto run = [&](Round r) {
    auto g = reference_of_call(z, r);
    auto d = dots(z, g.dz, dot.u, dot.shift, block, r);
    return std::pair(std::move(g), std::move(d));
  };
  const auto [ref, terms] = run({});
  const auto [chain, chain_terms] = run(c.round());
  const auto expect = [&](const char* name, const Mat& x, const Mat& y) {
    stays_exact(ref_f) ? c.expect_linear(name, x, y) : c.expect(name, x, y);
  };
  expect("dpreact", ref.dz, chain.dz);
  expect("out", ref.y, chain.y);
  expect("zdz", terms.zdz, chain_terms.zdz);
  expect("udz", terms.udz, chain_terms.udz);
}

TEST(GemmGluBackward, IsTheDerivedGradientOfEachGatedActivation) {
  sweep(2 * std::size(kGlus), [](Case& c, int option) {
    const auto [f, ref_f] = kGlus[option / 2];
    const auto g = ref_f;
    check_activation_backward(c, ops::GemmGluBackward{}, f, ref_f, 2 * c.n, [&](const Mat& z, Round r) {
      return reference::gemm_gated_backward(c.operands(), z, g, 256, nullptr, r);
    });
  });
}

TEST(GemmActivationBackward, IsTheDerivedGradientOfEachActivation) {
  sweep(2 * std::size(kActivations), [](Case& c, int option) {
    const auto [f, ref_f] = kActivations[option / 2];
    const auto g = ref_f;
    check_activation_backward(c, ops::GemmActivationBackward{}, f, ref_f, c.n, [&](const Mat& z, Round r) {
      return reference::gemm_activation_backward(c.operands(), z, g, 256, nullptr, r);
    });
  });
}

// ---- small reductions

constexpr DType kStats[] = {DType::fp32, DType::fp64};

template <class Body>
void for_stats(const Body& body) {
  std::uint64_t seed = base_seed();
  for (const DType t : kStats)
    for (const Shape s : {Shape{1, 1, 0}, Shape{0, 300, 0}, Shape{7, 255, 0}, Shape{33, 256, 0}, Shape{5, 257, 0},
                          Shape{2100, 700, 0}, Shape{300, 1025, 0}}) {
      ++seed;
      Case c(t, coda::Layout::nt, s.m, s.n, 0, 1, seed % 2 == 0, seed);
      SCOPED_TRACE(c.describe());
      body(c);
      c.finish();
    }
}

TEST(RmsFinalize, IsTheReciprocalRootMeanSquare) {
  for_stats([](Case& c) {
    const Mat sums = uniform_mat(c.random, c.m, ops::tiles_n(c.n), 0.0, 256.0, c.type);
    ops::rms_finalize({.sum_sq = c.in(sums), .n = c.n, .eps = 1e-5, .rstd = c.out_vec("rstd", c.m, c.type)});
    c.expect("rstd", reference::rms_finalize(sums, c.n, 1e-5), reference::rms_finalize(sums, c.n, 1e-5, c.round()));
  });
}

TEST(LayerNormFinalize, MergesTheMomentsOfTilesAlsoWhereTheMeanIsLarge) {
  for_stats([](Case& c) {
    // Far more than the variance; in fp64 the reference itself loses as much as it would be asked to prove.
    const double offset = !c.exact ? 0 : c.type == DType::fp32 ? 1000 : 10;
    const Mat x = uniform_mat(c.random, c.m, c.n, offset - 0.1, offset + 0.1, c.type);
    Mat mean(c.m, ops::tiles_n(c.n)), m2 = mean;
    const auto round = Round::to(c.type);
    for (std::int64_t m = 0; m < c.m; ++m)
      for (std::int64_t t = 0; t < mean.cols; ++t) {
        const std::int64_t first = 256 * t, last = std::min(c.n, first + 256);
        for (std::int64_t n = first; n < last; ++n) mean(m, t) += x(m, n) / static_cast<double>(last - first);
        mean(m, t) = round(mean(m, t));
        for (std::int64_t n = first; n < last; ++n) m2(m, t) += (x(m, n) - mean(m, t)) * (x(m, n) - mean(m, t));
        m2(m, t) = round(m2(m, t));
      }
    ops::layernorm_finalize({.tile_mean = c.in(mean),
                             .tile_m2 = c.in(m2),
                             .n = c.n,
                             .eps = 1e-5,
                             .mean = c.out_vec("mean", c.m, c.type),
                             .rstd = c.out_vec("rstd", c.m, c.type)});
    // From the rounded partial results, which is all that the operation sees.
    Mat sums = mean;
    for (std::int64_t m = 0; m < c.m; ++m)
      for (std::int64_t t = 0; t < mean.cols; ++t)
        sums(m, t) *= static_cast<double>(std::min<std::int64_t>(256, c.n - 256 * t));
    const auto ref = reference::layernorm_finalize_centered(sums, m2, c.n, 256, 1e-5);
    c.expect("mean", ref.mean, ref.mean);
    c.expect("rstd", ref.rstd, ref.rstd);
  });
}

TEST(SumRows, ScalesTheSumOfEachRow) {
  for_stats([](Case& c) {
    const Mat partial = c.draw(c.m, c.n);
    ops::sum_rows({.partial = c.in(partial), .scale = 0.125, .out = c.out_vec("out", c.m, c.type)});
    const auto run = [&](Round r) {
      Vec x = reference::row_sums(partial, r);
      for (double& e : x) e *= 0.125;
      return x;
    };
    c.expect_linear("out", run({}), run(c.round()));
  });
}

TEST(SumColumns, AddsTheSumOfEachColumnOrReplacesByIt) {
  for_stats([](Case& c) {
    const Mat partial = c.draw(c.m, c.n);
    const Vec start = c.draw_vec(c.n, 1, c.type);
    const bool add = c.flip();
    const Vector out = add ? c.in_place_vec("out", start, c.type) : c.out_vec("out", c.n, c.type);
    ops::sum_columns({.partial = c.in(partial), .beta = add ? 1.0 : 0.0, .out = out});
    const auto run = [&](Round r) {
      Vec x = reference::column_sums(partial, r);
      for (std::size_t i = 0; i < x.size() && add; ++i) x[i] = r(x[i] + start[i]);
      return x;
    };
    c.expect_linear("out", run({}), run(c.round()));
  });
}

TEST(EmbeddingBackward, AddsTheRowsOfEachTokenInRowOrder) {
  sweep(
      2,
      [](Case& c, int option) {
        const std::int64_t vocabulary = 11;
        const Mat dx = c.draw(c.m, c.n, c.scale), start = c.draw(vocabulary, c.n, c.scale);
        const auto tokens = random_targets(c.random, c.m, vocabulary);
        ops::embedding_backward(
            {.dx = c.in(dx), .token = c.indices(tokens, option == 1), .dtable = c.in_place("dtable", start, c.stats)});
        const auto run = [&](Round r) {
          Mat x = start;
          for (std::int64_t m = 0; m < c.m; ++m)
            for (std::int64_t n = 0; n < c.n; ++n) {
              double& e = x(tokens[static_cast<std::size_t>(m)], n);
              e = r.stat(e + dx(m, n));
            }
          return x;
        };
        c.expect_linear("dtable", run({}), run(c.round()));
      },
      std::size(kTypes), 1);
}

}  // namespace
}  // namespace coda::test
