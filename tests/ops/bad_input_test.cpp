// Bad calls of the forward operations, the small reductions and the optimiser.
#include <limits>

#include "tests/ops/bad_calls.h"
#include "tests/support/error_of.h"

namespace coda::test {
namespace {

/// The arguments that all products share.
template <class Call>
Call product_call(Case& c) {
  c.draw_product();
  Call call;
  call.a = c.a, call.b = c.b;
  return call;
}
template <class Call>
void add_product(BadCalls<Call>& bad) {
  bad.matrix("a", AT(a), true, false).matrix("b", AT(b), true, false);
  bad.add("b", "inner dimension", [](Call& x) { --x.b.cols; });
  bad.add("b", "got fp16", [](Call& x) { x.b.dtype = DType::fp16; });
}
template <class Call>
void add_layout(BadCalls<Call>& bad) {
  bad.add("layout", "got 7", [](Call& x) { x.layout = static_cast<coda::Layout>(7); });
}
ops::Norm layer_norm(Case& c) {
  return {.rstd = c.vec(Vec(4, 1.0), DType::fp32),
          .mean = c.vec(Vec(4), DType::fp32),
          .u = c.vec(Vec(8), DType::fp32),
          .c = c.vec(Vec(8), DType::fp32)};
}
template <class Call>
void add_norm(BadCalls<Call>& bad) {
  bad.vector("norm.rstd", AT(norm.rstd), false).vector("norm.mean", AT(norm.mean), false);
  bad.vector("norm.u", AT(norm.u), false).vector("norm.c", AT(norm.c), false);
  bad.add("norm", "another mix", [](Call& x) { x.norm.mean = {}; });
  bad.add("norm", "another mix", [](Call& x) { x.norm.rstd = {}; });
}

TEST(BadInput, OfGemmIsNamed) {
  BadCalls<ops::Gemm> bad("gemm", ops::gemm, [](Case& c) {
    auto call = product_call<ops::Gemm>(c);
    call.beta = 1, call.c = c.in(Mat(4, 8)), call.bias = c.vec(Vec(8));
    call.preact = c.out("preact", 4, 8), call.out = c.out("out", 4, 8);
    return call;
  });
  add_product(bad), add_layout(bad);
  bad.add("c", "got none", [](auto& x) { x.c.data = nullptr; });
  bad.add("c", "got none", [](auto& x) { x.c.data = nullptr, x.beta = 0.25; });
  bad.matrix("c", AT(c), false)
      .matrix("out", AT(out), true)
      .matrix("preact", AT(preact), false)
      .vector("bias", AT(bias), false);
  bad.add("out", "got fp64", [](auto& x) { x.out.dtype = DType::fp64; });
  bad.add("out", "expected dtype fp64, got fp32",
          [](auto& x) { x.a.dtype = x.b.dtype = DType::fp64, x.out.dtype = DType::fp32; });
  bad.add("out", "expected a matrix (4, 8) of dtype bf16, got none", [](auto& x) { x.out = {}; });
  bad.add("c", "got fp32", [](auto& x) { x.c.dtype = DType::fp32; });
  bad.add("alpha", "expected a finite number in fp32, got 1e+300", [](auto& x) { x.alpha = 1e300; });
  bad.add("alpha", "got nan", [](auto& x) { x.alpha = std::nan(""); });
  bad.add("beta", "expected a finite number in fp32, got 1e+39", [](auto& x) { x.beta = 1e39; });
  bad.add("beta", "got -inf", [](auto& x) { x.beta = -HUGE_VAL; });
  EXPECT_STREQ(name_of(static_cast<ops::Activation>(44)), "no activation");
  EXPECT_STREQ(name_of(static_cast<ops::Glu>(44)), "no gated function");
  bad.add("activation", "got 44", [](auto& x) { x.activation = static_cast<ops::Activation>(44); });
  bad.overlap("out", AT(out), AT(a)).overlap("out", AT(out), AT(b)).overlap("out", AT(out), AT(bias));
  bad.overlap("out", AT(out), AT(c)).overlap("preact", AT(preact), AT(out)).overlap("preact", AT(preact), AT(a));
}

TEST(BadInput, OfGemmResidualAndEmbeddingIsNamed) {
  const auto statistics = [](auto& bad) {
    bad.matrix("sum_sq", AT(sum_sq), false);
    bad.add("sum_sq, mean, m2", "another mix", [](auto& x) { x.mean = x.sum_sq; });
    bad.add("sum_sq, mean, m2", "another mix", [](auto& x) { x.m2 = x.sum_sq; });
    bad.add("m2", "pitch of mean", [](auto& x) {
      x.mean = x.m2 = x.sum_sq, x.sum_sq = {};
      ++x.m2.pitch;
    });
  };
  BadCalls<ops::GemmResidual> bad("gemm_residual", ops::gemm_residual, [](Case& c) {
    auto call = product_call<ops::GemmResidual>(c);
    call.residual = c.in(Mat(4, 8)), call.weight = c.vec(Vec(8));
    call.x = c.out("x", 4, 8), call.h = c.out("h", 4, 8), call.sum_sq = c.out("sum_sq", 4, 1, DType::fp32);
    return call;
  });
  add_product(bad), add_layout(bad), statistics(bad);
  bad.matrix("residual", AT(residual), true).matrix("x", AT(x), true).matrix("h", AT(h), false);
  bad.vector("weight", AT(weight), false);
  bad.overlap("x", AT(x), AT(a)).overlap("x", AT(x), AT(residual)).overlap("x", AT(x), AT(weight));
  bad.overlap("h", AT(h), AT(x)).overlap("sum_sq", AT(sum_sq), AT(b));

  BadCalls<ops::Embedding> embedding("embedding", ops::embedding, [](Case& c) {
    ops::Embedding call{.table = c.in(Mat(9, 8)), .token = c.indices({0, 8, 3, 1}, false), .weight = c.vec(Vec(8))};
    call.x = c.out("x", 4, 8), call.h = c.out("h", 4, 8), call.sum_sq = c.out("sum_sq", 4, 1, DType::fp32);
    return call;
  });
  statistics(embedding);
  embedding.matrix("table", AT(table), true, false).matrix("x", AT(x), true).matrix("h", AT(h), false);
  embedding.vector("weight", AT(weight), false);
  embedding.add("token", "got bf16", [](auto& x) { x.token.dtype = DType::bf16; });
  embedding.add("token", "got none", [](auto& x) { x.token = {}; });
  embedding.add("token", "null pointer", [](auto& x) { x.token.data = nullptr; });
  embedding.add("token", "got 8 at row 1", [](auto& x) { x.table.rows = 8; });
  static const std::int64_t kNegative[] = {0, 1, -1, 2}, kFirst[] = {-2, 1, 1, 2};
  embedding.add("token", "got -2 at row 0",
                [](ops::Embedding& x) { x.token = VectorOf<const std::int64_t>(kFirst, 4); });
  embedding.add("token", "got -1 at row 2",
                [](ops::Embedding& x) { x.token = VectorOf<const std::int64_t>(kNegative, 4); });
  embedding.overlap("x", AT(x), AT(table)).overlap("x", AT(x), AT(token)).overlap("h", AT(h), AT(x));
  embedding.overlap("h", AT(h), AT(weight));
}

TEST(Input, OfNoRowsNeedsNoIndices) {
  const float table[6] = {};
  const MatrixOf<const float> rows(table, 3, 2);
  EXPECT_NO_THROW(ops::embedding({.table = rows, .token = {}, .x = MatrixOf<float>(nullptr, 0, 2)}));
}

TEST(Input, OfEmptyViewsWithoutMemoryIsNotOneThatWasForgotten) {
  double norm = 7;
  EXPECT_NO_THROW(ops::gemm({}));
  EXPECT_NO_THROW(ops::cast({}));
  EXPECT_NO_THROW(ops::sum_rows({}));
  EXPECT_NO_THROW(ops::squared_norm({.x = {}, .out = VectorOf<double>(&norm, 1)}));
  EXPECT_EQ(norm, 0);
}

TEST(Input, OfAnEpsOfZeroIsTaken) {
  const float sum_sq[] = {4, 16};
  float rstd[2] = {};
  ops::rms_finalize(
      {.sum_sq = MatrixOf<const float>(sum_sq, 2, 1), .n = 1, .eps = 0, .rstd = VectorOf<float>(rstd, 2)});
  EXPECT_EQ(rstd[0], 0.5F);
  EXPECT_EQ(rstd[1], 0.25F);
}

TEST(BadInput, OfGemmNormIsNamed) {
  BadCalls<ops::GemmNorm> bad("gemm_norm", ops::gemm_norm, [](Case& c) {
    auto call = product_call<ops::GemmNorm>(c);
    call.norm = layer_norm(c), call.preact = c.out("preact", 4, 8), call.out = c.out("out", 4, 8);
    return call;
  });
  add_product(bad), add_layout(bad), add_norm(bad);
  bad.matrix("out", AT(out), true).matrix("preact", AT(preact), false);
  bad.add("activation", "got 6", [](auto& x) { x.activation = static_cast<ops::Activation>(6); });
  bad.overlap("out", AT(out), AT(a)).overlap("out", AT(out), AT(norm.rstd)).overlap("out", AT(out), AT(norm.u));
  bad.overlap("preact", AT(preact), AT(norm.mean))
      .overlap("preact", AT(preact), AT(norm.c))
      .overlap("preact", AT(preact), AT(out));
}

TEST(BadInput, OfGemmNormGluIsNamed) {
  BadCalls<ops::GemmNormGlu> bad("gemm_norm_glu", ops::gemm_norm_glu, [](Case& c) {
    auto call = product_call<ops::GemmNormGlu>(c);
    call.norm = layer_norm(c), call.preact = c.out("preact", 4, 8), call.out = c.out("out", 4, 4);
    return call;
  });
  add_product(bad), add_layout(bad), add_norm(bad);
  bad.matrix("out", AT(out), true).matrix("preact", AT(preact), false);
  bad.add("b", "even N", [](auto& x) { x.b.rows = 7; });
  bad.add("function", "got 4", [](auto& x) { x.function = static_cast<ops::Glu>(4); });
  bad.overlap("out", AT(out), AT(b)).overlap("preact", AT(preact), AT(out)).overlap("out", AT(out), AT(norm.rstd));
}

/// 2 q, 1 k, 1 v heads of 2 columns.
ops::Heads heads(Case& c) {
  const ConstVector table = c.vec(Vec(20), DType::fp32);
  return {.q = 2,
          .k = 1,
          .v = 1,
          .head_dim = 2,
          .table = ConstMatrix(table.data, DType::fp32, 10, 2),
          .position = c.indices({0, 9, 4, 4}, false)};
}
template <class Call>
void add_heads(BadCalls<Call>& bad) {
  bad.matrix("heads.table", AT(heads.table), true, false).vector("heads.position", AT(heads.position), false);
  bad.add("heads", "at least 0", [](Call& x) { x.heads.k = -1, x.heads.q = 4; });
  bad.add("heads", "at least 0", [](Call& x) { x.heads.v = -1, x.heads.q = 4; });
  bad.add("heads", "as many as N", [](Call& x) { x.heads.v = 2; });
  bad.add("heads.head_dim", "even number", [](Call& x) { x.heads.head_dim = 3; });
  bad.add("heads.head_dim", "got 0", [](Call& x) { x.heads.head_dim = 0; });
  bad.add("heads.head_dim", "got 514", [](Call& x) { x.heads.head_dim = 514; });
  bad.add("heads.table", "pitch of head_dim", [](Call& x) { x.heads.table.rows = 5, x.heads.table.pitch = 4; });
  bad.add("heads.table", "got fp64", [](Call& x) { x.heads.table.dtype = DType::fp64; });
  bad.add("heads.position", "got 9 at row 1", [](Call& x) { x.heads.table.rows = 9; });
  static const std::int32_t kNegative[] = {0, 1, -1, 2};
  bad.add("heads.position", "got -1 at row 2",
          [](Call& x) { x.heads.position = VectorOf<const std::int32_t>(kNegative, 4); });
  bad.add("heads.table", "at least 4 rows", [](Call& x) { x.heads.position = {}, x.heads.table.rows = 3; });
  bad.add("heads", "as many as N", [](Call& x) { x.heads.q = std::int64_t{1} << 62; });
  bad.add("heads", "as many as N", [](Call& x) { x.heads.q = std::int64_t{1} << 62, x.heads.head_dim = 4; });
}

TEST(BadInput, OfGemmNormRotateIsNamed) {
  BadCalls<ops::GemmNormRotate> bad("gemm_norm_rotate", ops::gemm_norm_rotate, [](Case& c) {
    auto call = product_call<ops::GemmNormRotate>(c);
    call.norm = layer_norm(c), call.angle = c.in(Mat(4, 8));
    call.preact = c.out("preact", 4, 8), call.out = c.out("out", 4, 8);
    return call;
  });
  add_product(bad), add_layout(bad), add_norm(bad);
  bad.matrix("angle", AT(angle), true).matrix("out", AT(out), true).matrix("preact", AT(preact), false);
  bad.add("b", "even N", [](auto& x) { x.b.rows = 7; });
  bad.overlap("out", AT(out), AT(a)).overlap("preact", AT(preact), AT(out)).overlap("out", AT(out), AT(norm.u));
}

TEST(BadInput, OfTheRotaryProjectionsIsNamed) {
  BadCalls<ops::GemmNormRope> rope("gemm_norm_rope", ops::gemm_norm_rope, [](Case& c) {
    auto call = product_call<ops::GemmNormRope>(c);
    call.norm = layer_norm(c), call.heads = heads(c), call.out = c.out("out", 4, 8);
    return call;
  });
  add_product(rope), add_layout(rope), add_norm(rope), add_heads(rope);
  rope.matrix("out", AT(out), true).overlap("out", AT(out), AT(a)).overlap("out", AT(out), AT(heads.table));
  rope.overlap("out", AT(out), AT(heads.position)).overlap("out", AT(out), AT(norm.u));

  BadCalls<ops::GemmNormQkNormRope> norm("gemm_norm_qknorm_rope", ops::gemm_norm_qknorm_rope, [](Case& c) {
    auto call = product_call<ops::GemmNormQkNormRope>(c);
    call.norm = layer_norm(c), call.heads = heads(c), call.q_weight = c.vec(Vec(2)), call.k_weight = c.vec(Vec(2));
    call.preact = c.out("preact", 4, 8), call.out = c.out("out", 4, 8);
    return call;
  });
  add_product(norm), add_layout(norm), add_norm(norm), add_heads(norm);
  norm.matrix("out", AT(out), true).matrix("preact", AT(preact), false);
  norm.vector("q_weight", AT(q_weight), true).vector("k_weight", AT(k_weight), true);
  norm.add("eps", "got -1", [](auto& x) { x.eps = -1; });
  norm.overlap("out", AT(out), AT(heads.table))
      .overlap("out", AT(out), AT(q_weight))
      .overlap("preact", AT(preact), AT(k_weight));

  std::vector<float> table(20);
  for (const auto& [m, theta, text] : {std::tuple{Matrix(table.data(), DType::bf16, 2, 4), 1e4, "got bf16"},
                                       {Matrix(table.data(), DType::fp32, 2, 5), 1e4, "even"},
                                       {Matrix(nullptr, DType::fp32, 2, 4), 1e4, "null"},
                                       {Matrix(table.data(), DType::fp32, 2, 4), 0.0, "above 0"},
                                       {Matrix(table.data(), DType::fp32, 2, 4), std::nan(""), "above 0"},
                                       {Matrix(table.data(), DType::fp32, -2, 4), 1e4, "at least 0"}}) {
    try {
      ops::rotary_table(m, theta);
      ADD_FAILURE() << "rotary_table: expected an error with " << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  }
  std::vector<double> wide(8), finite{1, 0.5}, infinite{1, HUGE_VAL};
  const Matrix right(wide.data(), DType::fp64, 2, 4);
  const ConstVector two(finite.data(), DType::fp64, 2);
  for (const auto& [m, frequency, scale, text] :
       {std::tuple{Matrix(wide.data(), DType::int64, 2, 4), two, 1.0, "table: expected dtype fp32 or fp64, got int64"},
        {right, ConstVector(finite.data(), DType::fp32, 2), 1.0, "frequency: expected dtype fp64, got fp32"},
        {right, ConstVector(finite.data(), DType::fp64, 1), 1.0, "frequency: expected 2 values, got 1"},
        {right, ConstVector(), 1.0, "frequency"},
        {right, ConstVector(infinite.data(), DType::fp64, 2), 1.0, "expected finite numbers, got inf at pair 1"},
        {right, ConstVector(wide.data() + 6, DType::fp64, 2), 1.0, "frequency"},
        {right, two, std::nan(""), "scale: expected a finite number, got nan"}}) {
    try {
      ops::rotary_table_from(m, frequency, scale);
      ADD_FAILURE() << "rotary_table_from: expected an error with " << text;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  }
}

TEST(Input, OfAWeightForHeadsThatAreNotThereMustFitAllTheSame) {
  Case c(DType::fp32, coda::Layout::nt, 4, 8, 3, 1, false, 1);
  const ConstVector right = c.vec(Vec(2)), wrong = c.vec(Vec(3));
  auto call = product_call<ops::GemmNormQkNormRope>(c);
  call.heads = heads(c), call.heads.q = 0, call.heads.k = 3;
  call.out = c.out("out", 4, 8), call.k_weight = right;
  const auto message = [&](const ConstVector& q_weight) {
    call.q_weight = q_weight;
    return error_of([&] { ops::gemm_norm_qknorm_rope(call); });
  };
  EXPECT_EQ(message({}), "");
  EXPECT_EQ(message(right), "");
  EXPECT_NE(message(wrong).find("q_weight"), std::string::npos);
}

TEST(BadInput, OfTheSmallReductionsIsNamed) {
  BadCalls<ops::RmsFinalize> rms("rms_finalize", ops::rms_finalize, [](Case& c) {
    return ops::RmsFinalize{
        .sum_sq = c.in(Mat(4, 2), DType::fp32), .n = 300, .rstd = c.out_vec("rstd", 4, DType::fp32)};
  });
  rms.matrix("sum_sq", AT(sum_sq), true, false).vector("rstd", AT(rstd), true).overlap("rstd", AT(rstd), AT(sum_sq));
  rms.add("sum_sq", "got bf16", [](auto& x) { x.sum_sq.dtype = DType::bf16; });
  rms.add("n", "above 0, got 0", [](auto& x) { x.n = 0; }).add("n", "2 tiles", [](auto& x) { x.n = 256; });
  rms.add("n", "got -5", [](auto& x) { x.n = -5; });
  rms.add("eps", "got -5", [](auto& x) { x.eps = -5; }).add("eps", "got nan", [](auto& x) { x.eps = std::nan(""); });

  BadCalls<ops::LayerNormFinalize> layer("layernorm_finalize", ops::layernorm_finalize, [](Case& c) {
    return ops::LayerNormFinalize{.tile_mean = c.in(Mat(4, 2), DType::fp32),
                                  .tile_m2 = c.in(Mat(4, 2), DType::fp32),
                                  .n = 300,
                                  .mean = c.out_vec("mean", 4, DType::fp32),
                                  .rstd = c.out_vec("rstd", 4, DType::fp32)};
  });
  layer.matrix("tile_mean", AT(tile_mean), true, false).matrix("tile_m2", AT(tile_m2), true);
  layer.vector("mean", AT(mean), true).vector("rstd", AT(rstd), true).add("n", "2 tiles", [](auto& x) { x.n = 513; });
  layer.add("eps", "got -5", [](auto& x) { x.eps = -5; }).add("eps", "got inf", [](auto& x) { x.eps = HUGE_VAL; });
  layer.overlap("rstd", AT(rstd), AT(mean)).overlap("mean", AT(mean), AT(tile_m2));
  layer.overlap("mean", AT(mean), AT(tile_mean));

  BadCalls<ops::SumRows> rows("sum_rows", ops::sum_rows, [](Case& c) {
    return ops::SumRows{.partial = c.in(Mat(4, 3), DType::fp32), .out = c.out_vec("out", 4, DType::fp32)};
  });
  rows.matrix("partial", AT(partial), true, false).vector("out", AT(out), true).overlap("out", AT(out), AT(partial));
  rows.add("scale", "expected a finite number in fp32, got 1e+300", [](auto& x) { x.scale = 1e300; });
  rows.add("scale", "got nan", [](auto& x) { x.scale = std::nan(""); });
  BadCalls<ops::SumColumns> columns("sum_columns", ops::sum_columns, [](Case& c) {
    return ops::SumColumns{.partial = c.in(Mat(4, 3), DType::fp32), .out = c.out_vec("out", 3, DType::fp32)};
  });
  // No partial result says how many rows there should be.
  columns.add("partial", "2^62 bytes", [](auto& x) { x.partial.rows = std::numeric_limits<std::int64_t>::max(); });
  columns.add("beta", "got 0.5", [](auto& x) { x.beta = 0.5; });
  columns.add("beta", "got nan", [](auto& x) { x.beta = std::nan(""); });
  columns.matrix("partial", AT(partial), true, false).vector("out", AT(out), true).overlap("out", AT(out), AT(partial));

  BadCalls<ops::HeadWeightGradient> weights("head_weight_gradient", ops::head_weight_gradient, [](Case& c) {
    return ops::HeadWeightGradient{.partial = c.in(Mat(3, 8), DType::fp32),
                                   .heads = {.q = 2, .k = 1, .v = 1, .head_dim = 2},
                                   .dq_weight = c.out_vec("dq", 2, DType::fp32),
                                   .dk_weight = c.out_vec("dk", 2, DType::fp32)};
  });
  weights.add("beta", "got 0.5", [](auto& x) { x.beta = 0.5; });
  weights.add("beta", "got nan", [](auto& x) { x.beta = std::nan(""); });
  weights.matrix("partial", AT(partial), true, false)
      .vector("dq_weight", AT(dq_weight), true)
      .vector("dk_weight", AT(dk_weight), true);
  weights.add("heads", "8 columns", [](auto& x) { x.heads.q = 1; });
  weights.add("heads", "got (2 + -1 + 3) * 2", [](auto& x) { x.heads.k = -1, x.heads.v = 3; });
  weights.add("heads", "got (2 + 3 + -1) * 2", [](auto& x) { x.heads.k = 3, x.heads.v = -1; });
  // The number of columns, but for 2^64.
  weights.add("heads", "got (4611686018427387904", [](auto& x) { x.heads = {std::int64_t{1} << 62, 1, 1, 4}; });
  weights.add("heads", "* 4611686018427387906", [](auto& x) { x.heads.head_dim += std::int64_t{1} << 62; });
  weights.overlap("dk_weight", AT(dk_weight), AT(dq_weight)).overlap("dq_weight", AT(dq_weight), AT(partial));

  BadCalls<ops::EmbeddingBackward> embedding("embedding_backward", ops::embedding_backward, [](Case& c) {
    return ops::EmbeddingBackward{
        .dx = c.in(Mat(4, 8)), .token = c.indices({0, 5, 2, 5}, true), .dtable = c.out("dtable", 6, 8, DType::fp32)};
  });
  embedding.matrix("dx", AT(dx), true, false)
      .matrix("dtable", AT(dtable), true, false)
      .vector("token", AT(token), true);
  embedding.add("dtable", "got bf16", [](auto& x) { x.dtable.dtype = DType::bf16; });
  embedding.add("token", "got 5 at row 1", [](auto& x) { x.dtable.rows = 5; });
  embedding.overlap("dtable", AT(dtable), AT(dx)).overlap("dtable", AT(dtable), AT(token));
}

TEST(BadInput, OfTheOptimiserIsNamed) {
  BadCalls<ops::Cast> cast("cast", ops::cast, [](Case& c) {
    return ops::Cast{.in = c.in(Mat(4, 8)), .out = c.out("out", 4, 8, DType::fp32)};
  });
  cast.matrix("in", AT(in), true, false).matrix("out", AT(out), true).overlap("out", AT(out), AT(in), 0);

  BadCalls<ops::SquaredNorm> norm("squared_norm", ops::squared_norm, [](Case& c) {
    return ops::SquaredNorm{.x = c.vec(Vec(9)), .out = c.out_vec("out", 1, DType::fp64)};
  });
  norm.vector("out", AT(out), true).overlap("out", AT(out), AT(x), 0);
  norm.add("x", "got int64", [](auto& x) { x.x.dtype = DType::int64; });
  norm.add("x", "null pointer", [](auto& x) { x.x.data = nullptr; }).add("x", "got -1", [](auto& x) { x.x.size = -1; });
  norm.add("x", "2^62 bytes", [](auto& x) { x.x.size = std::int64_t{1} << 62; });
  norm.add("beta", "got 0.5", [](auto& x) { x.beta = 0.5; });

  BadCalls<ops::AdamW> adamw("adamw", ops::adamw, [](Case& c) {
    return ops::AdamW{.master = c.out_vec("master", 6, DType::fp32),
                      .m = c.out_vec("m", 6, DType::fp32),
                      .v = c.out_vec("v", 6, DType::fp32),
                      .weight = c.out_vec("weight", 6, DType::bf16),
                      .gradient = c.vec(Vec(6, 1.0)),
                      .squared_norm = c.vec(Vec(1, 6.0), DType::fp64),
                      .clip_norm = 1};
  });
  adamw.vector("m", AT(m), true).vector("v", AT(v), true).vector("weight", AT(weight), false);
  adamw.vector("gradient", AT(gradient), true).vector("squared_norm", AT(squared_norm), false);
  adamw.add("master", "got none", [](auto& x) { x.master = {}; });
  adamw.add("master", "got bf16", [](auto& x) { x.master.dtype = DType::bf16; });
  adamw.add("master", "null pointer", [](auto& x) { x.master.data = nullptr; });
  adamw.add("weight_decay", "got -0.5", [](auto& x) { x.weight_decay = -0.5; });
  adamw.add("clip_norm", "got -1", [](auto& x) { x.clip_norm = -1; });
  adamw.add("clip_norm", "got inf", [](auto& x) { x.clip_norm = HUGE_VAL; });
  adamw.overlap("master", AT(master), AT(gradient), 0).overlap("m", AT(m), AT(master), 0);
  adamw.overlap("weight", AT(weight), AT(gradient), 0).overlap("weight", AT(weight), AT(v), 0);
  adamw.overlap("v", AT(v), AT(squared_norm), 0);
}

}  // namespace
}  // namespace coda::test
