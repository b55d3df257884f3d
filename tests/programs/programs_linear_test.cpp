// Plain, activated and gated products and the residual stream, through the checked calls.
#include <limits>
#include <vector>

#include "tests/programs/harness.h"

namespace coda::test {
namespace {

constexpr std::pair<ops::Activation, reference::Activation> kActivations[] = {
    {ops::Activation::identity, reference::Activation::identity},
    {ops::Activation::silu, reference::Activation::silu},
    {ops::Activation::gelu_erf, reference::Activation::gelu},
    {ops::Activation::gelu_tanh, reference::Activation::gelu_tanh},
    {ops::Activation::relu, reference::Activation::relu},
    {ops::Activation::relu_squared, reference::Activation::relu2}};
constexpr std::pair<ops::Glu, reference::Activation> kGlus[] = {
    {ops::Glu::swiglu, reference::Activation::silu},
    {ops::Glu::geglu_erf, reference::Activation::gelu},
    {ops::Glu::geglu_tanh, reference::Activation::gelu_tanh},
    {ops::Glu::reglu, reference::Activation::relu}};

bool stays_exact(reference::Activation f) {
  return f == reference::Activation::identity || f == reference::Activation::relu;
}
/// Exact where the function keeps integers, close elsewhere.
void expect_of(Case& c, reference::Activation f, const std::string& name, const Mat& ref, const Mat& chain) {
  stays_exact(f) ? c.expect_linear(name, ref, chain) : c.expect(name, ref, chain);
}

constexpr int kLinearOptions = 2 * std::size(kActivations);

void expect_linear_product(Case& c, int option) {
  c.draw_product();
  const auto [f, ref_f] = kActivations[option % std::size(kActivations)];
  reference::GemmOptions o{.alpha = option % 3 == 0 ? 1 : -0.5, .activation = ref_f};
  const bool wide = size_of(c.type) == 2 && option % 4 == 1;  // fp32 out of 16-bit operands
  const DType out = wide ? DType::fp32 : c.type;
  ops::Gemm call{.a = c.a, .b = c.b, .layout = c.layout, .alpha = o.alpha, .activation = f};
  const Mat values = c.draw(c.m, c.n, c.scale);
  if (option % 2 == 1) {
    o.beta = option % 3 == 1 ? 1 : 0.25;
    o.c = &values;
  }
  const Vec bias = c.draw_vec(c.n, c.scale, c.type);
  if (c.flip()) {
    o.bias = &bias;
    call.bias = c.vec(bias);
  }
  if (c.flip()) call.preact = c.out("preact", c.m, c.n, out);
  if (o.c != nullptr && c.flip()) {  // in place
    call.out = c.in_place("out", values, out);
    call.c = call.out;
  } else {
    call.out = c.out("out", c.m, c.n, out);
    if (o.c != nullptr) call.c = c.in(values, out);
  }
  call.beta = o.beta;
  ops::gemm(call);
  const auto r = Round::to(out);
  const auto ref = reference::gemm(c.operands(), o), chain = reference::gemm(c.operands(), o, r);
  c.expect_linear("preact", add_row_vector(ref.z, o.bias, {}), add_row_vector(chain.z, o.bias, r));
  expect_of(c, ref_f, "out", ref.y, chain.y);
}

TEST(Gemm, IsAnActivationOfAlphaTimesTheProductPlusBetaTimesCPlusBias) { sweep(kLinearOptions, expect_linear_product); }

TEST(Gemm, DoesNotReadCWhereBetaIsZero) {
  Case c(DType::bf16, coda::Layout::nt, 9, 20, 8, 1, true, base_seed());
  c.draw_product();
  Mat nan(9, 20, std::nan(""));
  const ConstMatrix unread = c.in(nan);
  ops::gemm({.a = c.a, .b = c.b, .c = unread, .out = c.out("out", 9, 20)});
  const Mat ref = reference::product(c.operands());
  c.expect_linear("out", ref, ref);
}

TEST(Gemm, DoesNotRoundAlphaAndBetaToTheOperands) {
  for (const DType type : {DType::bf16, DType::fp16}) {
    Case c(type, coda::Layout::nt, 9, 20, 8, 1, true, base_seed());
    SCOPED_TRACE(c.describe());
    c.draw_product();
    const Mat values = c.draw(c.m, c.n);
    const reference::GemmOptions o{.alpha = 0.3, .beta = 0.7, .c = &values};
    ops::gemm({.a = c.a,
               .b = c.b,
               .alpha = o.alpha,
               .beta = o.beta,
               .c = c.in(values, DType::fp32),
               .out = c.out("out", c.m, c.n, DType::fp32)});
    c.expect("out", reference::gemm(c.operands(), o).y, reference::gemm(c.operands(), o, Round::to(DType::fp32)).y);
    c.finish();
  }
}

enum class Stats { none, sum_sq, moments };

/// The optional outputs of the residual stream and their comparison, for the product and the embedding.
template <class Call>
void want_stats(Case& c, Call& call, Stats stats) {
  const std::int64_t tiles = ops::tiles_n(c.n);
  if (stats == Stats::sum_sq) call.sum_sq = c.out("sum_sq", c.m, tiles, c.stats);
  if (stats == Stats::moments) std::tie(call.mean, call.m2) = c.out_pair("mean", "m2", c.m, tiles, c.stats);
}
void expect_stats(Case& c, const reference::Residual& ref, const reference::Residual& chain) {
  const auto mean = [&](Mat sum) {
    for (std::int64_t m = 0; m < sum.rows; ++m)
      for (std::int64_t t = 0; t < sum.cols; ++t)
        sum(m, t) /= static_cast<double>(std::min<std::int64_t>(256, c.n - 256 * t));
    return sum;
  };
  c.expect_linear("sum_sq", ref.sum_squares, chain.sum_squares);
  c.expect("mean", mean(ref.sum), mean(chain.sum));
  c.expect("m2", ref.centered_squares, chain.centered_squares);
}

constexpr int kResidualOptions = 6;

void expect_residual(Case& c, int option) {
  c.draw_product();
  const Mat residual = c.draw(c.m, c.n, c.scale);
  const bool weighed = option < 3;
  const Vec w = weighed ? c.factors(c.n, 1, c.type) : Vec(static_cast<std::size_t>(c.n), 1.0);
  ops::GemmResidual call{.a = c.a, .b = c.b, .layout = c.layout};
  if (weighed) call.weight = c.vec(w);
  if (c.flip()) {
    call.x = c.in_place("x", residual);
    call.residual = call.x;
  } else {
    call.residual = c.in(residual);
    call.x = c.out("x", c.m, c.n);
  }
  if (weighed || c.flip()) call.h = c.out("h", c.m, c.n);
  want_stats(c, call, Stats(option % 3));
  ops::gemm_residual(call);
  const auto run = [&](Round r) { return reference::gemm_residual_norm(c.operands(), residual, w, 256, nullptr, r); };
  const auto ref = run({}), chain = run(c.round());
  c.expect_linear("x", ref.x, chain.x);
  c.expect_linear("h", ref.h, chain.h);
  expect_stats(c, ref, chain);
}

TEST(GemmResidual, AddsTheResidualWeighsItAndReducesItsStatistics) { sweep(kResidualOptions, expect_residual); }

/// Where A^T B has many more rows than columns, the CPU multiplies B^T A and turns its tiles, if no tile is folded.
/// Every option with the first shape, and with one of the larger ones.
TEST(Gemm, OfTransposedAWithManyRowsIsTheSame) {
  std::uint64_t seed = base_seed();
  const Shape shapes[] = {{262, 131, 257}, {600, 300, 128}, {1031, 258, 200}, {1300, 513, 130}};
  for (int number = 0; number < 4; ++number) {
    const Shape& s = shapes[number];
    for (const DType type : {DType::bf16, DType::fp16, DType::fp32}) {
      for (int option = 0; option < kLinearOptions + kResidualOptions; ++option) {
        if (number > 0 && option % 3 != number - 1) continue;
        Case c(type, coda::Layout::tn, s.m, s.n, s.k, 1, seed % 2 == 0, seed);
        SCOPED_TRACE(c.describe());
        option < kLinearOptions ? expect_linear_product(c, option) : expect_residual(c, option - kLinearOptions);
        c.finish();
        ++seed;
      }
    }
  }
}

TEST(Embedding, GathersRowsOfTheTableAndStartsTheResidualStream) {
  sweep(
      6,
      [](Case& c, int option) {
        const std::int64_t vocabulary = 37;
        const Mat table = c.draw(vocabulary, c.n, c.scale);
        const auto tokens = random_targets(c.random, c.m, vocabulary);
        const bool weighed = option < 3;
        const Vec w = weighed ? c.factors(c.n, 1, c.type) : Vec(static_cast<std::size_t>(c.n), 1.0);
        ops::Embedding call{.table = c.in(table), .token = c.indices(tokens, c.flip()), .x = c.out("x", c.m, c.n)};
        if (weighed) call.weight = c.vec(w);
        if (c.flip()) call.h = c.out("h", c.m, c.n);
        want_stats(c, call, Stats(option % 3));
        ops::embedding(call);
        Mat one_hot(c.m, vocabulary);
        for (std::int64_t m = 0; m < c.m; ++m) one_hot(m, tokens[static_cast<std::size_t>(m)]) = 1;
        const auto run = [&](Round r) {
          return reference::gemm_residual_norm({one_hot, table, reference::Layout::ab}, Mat(c.m, c.n), w, 256, nullptr,
                                               r);
        };
        const auto ref = run({}), chain = run(c.round());
        c.expect_linear("x", ref.x, chain.x);
        c.expect_linear("h", ref.h, chain.h);
        expect_stats(c, ref, chain);
      },
      std::size(kTypes), 1);
}

TEST(GemmNorm, IsAnActivationOfTheNormalisedProduct) {
  sweep(std::size(kNormForms) * std::size(kActivations), [](Case& c, int option) {
    c.draw_product();
    const auto [f, ref_f] = kActivations[option / 4];
    const auto activation = ref_f;
    const NormInput norm = c.norm(kNormForms[option % 4]);
    ops::GemmNorm call{.a = c.a, .b = c.b, .layout = c.layout, .norm = norm.ops, .activation = f};
    if (c.flip()) call.preact = c.out("preact", c.m, c.n);
    call.out = c.out("out", c.m, c.n);
    ops::gemm_norm(call);
    const auto run = [&](Round r) {
      return reference::gemm_norm_activation(c.operands(), norm.ref, activation, nullptr, r);
    };
    const auto ref = run({}), chain = run(c.round());
    c.expect_linear("preact", ref.z, chain.z);
    expect_of(c, ref_f, "out", ref.y, chain.y);
  });
}

TEST(GemmNormGlu, IsAGatedActivationOfThePairsOfTheNormalisedProduct) {
  sweep(std::size(kNormForms) * std::size(kGlus), [](Case& c, int option) {
    c.n += c.n % 2;
    c.draw_product();
    const auto [f, ref_f] = kGlus[option / 4];
    const auto activation = ref_f;
    const NormInput norm = c.norm(kNormForms[option % 4]);
    ops::GemmNormGlu call{.a = c.a, .b = c.b, .layout = c.layout, .norm = norm.ops, .function = f};
    if (c.flip()) call.preact = c.out("preact", c.m, c.n);
    call.out = c.out("out", c.m, c.n / 2);
    ops::gemm_norm_glu(call);
    const auto run = [&](Round r) {
      return reference::gemm_norm_gated(c.operands(), norm.ref, activation, nullptr, r);
    };
    const auto ref = run({}), chain = run(c.round());
    c.expect_linear("preact", ref.z, chain.z);
    expect_of(c, ref_f, "out", ref.y, chain.y);
  });
}

TEST(GemmNorm, TakesNullPointersWhereThereIsNothing) {
  for (const DType t : kTypes) {
    const ConstMatrix none(nullptr, t, 0, 8), weight(nullptr, t, 5, 0);
    std::vector<double> values(40, 7);
    EXPECT_NO_THROW(ops::gemm_norm({.a = none, .b = {values.data(), t, 5, 8}, .out = {nullptr, t, 0, 5}}));
    const auto out = Buffer::make(t, 3, 5);
    ops::gemm_norm({.a = {nullptr, t, 3, 0}, .b = weight, .out = out->matrix()});  // K = 0 is a product of zeros
    EXPECT_EQ(check_exact("out", out->mat(), Mat(3, 5)), "");
  }
}

/// Leaves NaN in whatever memory the CPU keeps for operands of this type: what was there before must not matter.
template <class T>
void multiply_nans() {
  const std::vector<T> nan(520 * 320, T(std::numeric_limits<float>::quiet_NaN()));
  std::vector<T> out(520 * 320);
  ops::gemm({.a = MatrixOf<const T>(nan.data(), 520, 320),
             .b = MatrixOf<const T>(nan.data(), 320, 320),
             .out = MatrixOf<T>(out.data(), 520, 320)});
}

/// The CPU packs the second operand of a product of many rows into blocks of 64 columns by 64 bytes of inner steps:
/// whole ones, and ones that end early either way.
TEST(Gemm, TakesOperandsOfManyRowsInBlocks) {
  std::uint64_t seed = base_seed();
  for (const Shape s :
       {Shape{513, 64, 160}, Shape{600, 300, 128}, Shape{770, 70, 129}, Shape{515, 258, 200}, Shape{520, 1, 191},
        Shape{576, 193, 257}, Shape{1030, 1000, 3}, Shape{235, 202, 63}, Shape{607, 95, 63}}) {
    for (const DType type : {DType::bf16, DType::fp16, DType::fp32}) {
      for (const coda::Layout layout : kLayouts) {
        Case c(type, layout, s.m, s.n, s.k, 1, seed % 2 == 0, seed);
        SCOPED_TRACE(c.describe());
        c.draw_product();
        type == DType::bf16 ? multiply_nans<bf16>() : multiply_nans<float>();
        ops::gemm({.a = c.a, .b = c.b, .layout = c.layout, .out = c.out("out", c.m, c.n)});
        c.expect_linear("out", reference::gemm(c.operands(), {}).y, reference::gemm(c.operands(), {}, c.round()).y);
        c.finish();
        ++seed;
      }
    }
  }
}

}  // namespace
}  // namespace coda::test
