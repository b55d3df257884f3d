// Rotary embeddings and the norm of attention heads, forward and backward, through the checked calls.
#include "tests/programs/dots.h"
#include "tests/programs/harness.h"
#include "tests/reference/backward.h"

namespace coda::test {
namespace {

using reference::Positions;
using reference::RopeTable;

/// q, k and v heads: as many of each, grouped queries, one k and v head, no v, a single q head, only v; head widths
/// that divide a tile, do not, and are nearly or quite as wide as the widest tile.
constexpr reference::Heads kHeads[] = {{2, 2, 2, 64},  {4, 1, 1, 16},  {8, 2, 2, 6}, {3, 1, 1, 96},  {1, 1, 0, 2},
                                       {2, 1, 1, 130}, {1, 0, 0, 256}, {0, 0, 3, 8}, {1, 1, 1, 512}, {5, 3, 1, 40}};

/// The table as the operations take it: (cos, sin) of pair j at columns 2j and 2j+1.
Mat interleaved(const RopeTable& t) {
  Mat x(t.cos.rows, 2 * t.cos.cols);
  for (std::int64_t p = 0; p < x.rows; ++p)
    for (std::int64_t j = 0; j < t.cos.cols; ++j) {
      x(p, 2 * j) = t.cos(p, j);
      x(p, 2 * j + 1) = t.sin(p, j);
    }
  return x;
}

struct Rope {
  RopeTable table;
  Positions position;
  ops::Heads heads;
  double scale;  // of cos and sin
};

/// A random table of real angles, or of quarter turns in an exact case, of which one in two scales, too, as YaRN's;
/// positions absent, int32 or int64.
Rope draw_rope(Case& c, const reference::Heads& heads) {
  const int form = static_cast<int>(c.random.integer(0, 2));
  const std::int64_t rows = form == 0 ? c.m + 2 : 50;
  Rope x{reference::rope_table(rows, heads.dim, 10000.0, Round::to(c.stats)), {}, {}, c.flip() ? 2.0 : 1.0};
  if (c.exact) {
    for (std::size_t i = 0; i < x.table.cos.v.size(); ++i) {
      const auto turn = static_cast<int>(c.random.integer(0, 3));
      x.table.cos.v[i] = turn == 0 ? 1 : turn == 2 ? -1 : 0;
      x.table.sin.v[i] = turn == 1 ? 1 : turn == 3 ? -1 : 0;
    }
  }
  for (Mat* part : {&x.table.cos, &x.table.sin})
    for (double& e : part->v) e *= x.scale;
  x.heads = {.q = heads.q, .k = heads.k, .v = heads.v, .head_dim = heads.dim};
  const Mat table = interleaved(x.table);
  // The table has no padding: as a vector's memory.
  const ConstVector memory = c.vec(table.v, c.stats);
  x.heads.table = ConstMatrix(memory.data, c.stats, table.rows, table.cols);
  for (std::int64_t m = 0; m < c.m; ++m) x.position.push_back(form == 0 ? m : c.random.integer(0, rows - 1));
  if (form != 0) x.heads.position = c.indices(x.position, form == 2);
  return x;
}

/// Fewer rows where the heads are wide: the references are slow.
reference::Heads take_heads(Case& c, int option) {
  const reference::Heads heads = kHeads[option];
  c.n = heads.width();
  c.m = std::min(c.m, std::max<std::int64_t>(8, 40000 / c.n));
  c.k = std::min<std::int64_t>(c.k, 24);
  return heads;
}

TEST(GemmNormRope, RotatesQueriesAndKeysAndPassesValues) {
  sweep(std::size(kHeads), [](Case& c, int option) {
    const auto heads = take_heads(c, option);
    c.draw_product();
    const NormInput norm = c.norm(kNormForms[c.random.integer(0, 3)]);
    const Rope rope = draw_rope(c, heads);
    ops::gemm_norm_rope(
        {.a = c.a, .b = c.b, .layout = c.layout, .norm = norm.ops, .heads = rope.heads, .out = c.out("out", c.m, c.n)});
    const auto run = [&](Round r) {
      return reference::gemm_norm_rope(c.operands(), norm.ref, rope.table, rope.position, heads, nullptr, r).y;
    };
    c.expect_linear("out", run({}), run(c.round()));
  });
}

TEST(GemmNormRotate, RotatesEachPairBackByAnAngleOfItsOwn) {
  sweep(1, [](Case& c, int) {
    c.n += c.n % 2;
    c.draw_product();
    const NormInput norm = c.norm(kNormForms[c.random.integer(0, 3)]);
    const Mat angle = rotation_mat(c.random, c.m, c.n, c.exact, c.type);
    ops::GemmNormRotate call{.a = c.a, .b = c.b, .layout = c.layout, .norm = norm.ops};
    const bool keeps = c.flip();
    // Either output may lie where the angles were.
    const auto place = c.random.integer(0, keeps ? 2 : 1);
    if (keeps) call.preact = place == 2 ? c.in_place("preact", angle) : c.out("preact", c.m, c.n);
    call.out = place == 1 ? c.in_place("out", angle) : c.out("out", c.m, c.n);
    call.angle = place == 1 ? ConstMatrix(call.out) : place == 2 ? ConstMatrix(call.preact) : c.in(angle);
    ops::gemm_norm_rotate(call);
    const auto z = [&](Round r) { return reference::gemm_norm(c.operands(), norm.ref, r); };
    const auto y = [&](Round r) { return reference::rotate_back(z(r), angle, r); };
    if (keeps) c.expect_linear("preact", z({}), z(c.round()));
    c.expect_linear("out", y({}), y(c.round()));
  });
}

struct HeadNorm {
  reference::QkNorm ref;
  ConstVector q, k;
};
HeadNorm draw_head_norm(Case& c, const reference::Heads& heads) {
  HeadNorm x{{c.factors(heads.dim, 1, c.type), c.factors(heads.dim, 1, c.type), 1e-6}, {}, {}};
  if (heads.q > 0) x.q = c.vec(x.ref.wq);
  if (heads.k > 0) x.k = c.vec(x.ref.wk);
  return x;
}

TEST(GemmNormQkNormRope, NormalisesEachHeadBeforeTheRotation) {
  sweep(std::size(kHeads), [](Case& c, int option) {
    const auto heads = take_heads(c, option);
    c.draw_product();
    const NormInput norm = c.norm(kNormForms[c.random.integer(0, 3)]);
    const Rope rope = draw_rope(c, heads);
    const HeadNorm head_norm = draw_head_norm(c, heads);
    ops::GemmNormQkNormRope call{.a = c.a,
                                 .b = c.b,
                                 .layout = c.layout,
                                 .norm = norm.ops,
                                 .heads = rope.heads,
                                 .q_weight = head_norm.q,
                                 .k_weight = head_norm.k};
    if (c.flip()) call.preact = c.out("preact", c.m, c.n);
    call.out = c.out("out", c.m, c.n);
    ops::gemm_norm_qknorm_rope(call);
    const auto run = [&](Round r) {
      return reference::gemm_norm_qknorm_rope(c.operands(), norm.ref, head_norm.ref, rope.table, rope.position, heads,
                                              nullptr, r);
    };
    const auto ref = run({}), chain = run(c.round());
    c.expect_linear("preact", ref.z, chain.z);
    c.expect("out", ref.y, chain.y);
  });
}

TEST(RopeBackward, RotatesBackAndReducesTheRowTerms) {
  sweep(
      std::size(kHeads),
      [](Case& c, int option) {
        const auto heads = take_heads(c, option);
        const Rope rope = draw_rope(c, heads);
        const Mat y = c.draw(c.m, c.n), dy = c.draw(c.m, c.n, c.scale);
        const DotInput dot = draw_dot(c, c.random.integer(0, 3), ops::tiles_n(c.n), c.n);
        ops::RopeBackward call{.y = c.in(y), .dy = {}, .heads = rope.heads, .dot = dot.ops};
        if (c.flip()) {
          call.dz = c.in_place("dz", dy);
          call.dy = call.dz;
        } else {
          call.dy = c.in(dy);
          call.dz = c.out("dz", c.m, c.n);
        }
        ops::rope_backward(call);
        const auto run = [&](Round r) {
          const Mat dz = reference::rope_backward(dy, y, rope.table, rope.position, heads, r).dz;
          Mat z = reference::rope_backward(y, y, rope.table, rope.position, heads, r).dz;  // R^T y
          for (std::int64_t m = 0; m < z.rows; ++m)
            for (std::int64_t n = 0; n < heads.rotated(); ++n) z(m, n) /= rope.scale * rope.scale;
          return std::pair(dz, dots(z, dz, dot.u, dot.shift, 256, r));
        };
        const auto [dz, terms] = run({});
        const auto [chain, chain_terms] = run(c.round());
        c.expect_linear("dz", dz, chain);
        c.expect_linear("zdz", terms.zdz, chain_terms.zdz);
        c.expect_linear("udz", terms.udz, chain_terms.udz);
      },
      std::size(kTypes), 1);
}

TEST(QkNormRopeBackward, GoesBackThroughTheRotationAndTheNormOfEachHead) {
  sweep(
      std::size(kHeads),
      [](Case& c, int option) {
        const auto heads = take_heads(c, option);
        const Rope rope = draw_rope(c, heads);
        const HeadNorm head_norm = draw_head_norm(c, heads);
        const Mat z = c.draw(c.m, c.n), dy = c.draw(c.m, c.n, c.scale);
        const std::int64_t tiles = ops::head_tiles_n(c.n, heads.dim),
                           tile = 256 / heads.dim > 1 ? 256 / heads.dim * heads.dim : heads.dim;
        const DotInput dot = draw_dot(c, c.random.integer(2, 3), tiles, c.n);
        ops::QkNormRopeBackward call{.preact = c.in(z),
                                     .dy = {},
                                     .heads = rope.heads,
                                     .q_weight = head_norm.q,
                                     .k_weight = head_norm.k,
                                     .dot = dot.ops};
        if (c.flip()) {
          call.dz = c.in_place("dz", dy);
          call.dy = call.dz;
        } else {
          call.dy = c.in(dy);
          call.dz = c.out("dz", c.m, c.n);
        }
        Vec dq0, dk0;
        ops::HeadWeightGradient sum{.partial = {}, .heads = rope.heads};
        if (c.flip()) {
          call.dweight = c.out("dweight", ops::tiles_m(c.m), c.n, c.stats);
          sum.partial = call.dweight;
          sum.beta = c.flip() ? 1 : 0;
          dq0 = c.draw_vec(heads.dim, 1, c.stats), dk0 = c.draw_vec(heads.dim, 1, c.stats);
          sum.dq_weight = c.in_place_vec("dq_weight", dq0, c.stats);
          sum.dk_weight = c.in_place_vec("dk_weight", dk0, c.stats);
        }
        ops::qknorm_rope_backward(call);
        if (sum.partial) ops::head_weight_gradient(sum);
        const auto run = [&](Round r) {
          auto g =
              reference::qknorm_rope_backward(dy, z, head_norm.ref, rope.table, rope.position, heads, 256, nullptr, r);
          return std::pair(g, dots(z, g.dz, dot.u, dot.shift, tile, r));
        };
        const auto [ref, terms] = run({});
        const auto [chain, chain_terms] = run(c.round());
        c.expect("dz", ref.dz, chain.dz);
        // Under a head norm z dz vanishes up to eps: its terms give its scale. The u term does not vanish.
        if (dot.ops.zdz) {
          const Mat rstd = reference::head_rstd(z, heads, head_norm.ref.eps);
          Mat size(c.m, tiles);
          for (std::int64_t m = 0; m < c.m; ++m)
            for (std::int64_t n = 0; n < c.n; ++n) {
              const double slope = n < heads.rotated() ? 2 * rstd(m, n / heads.dim) : 1;
              size(m, n / tile) += (std::abs(z(m, n)) + 8) * slope * (std::abs(dy(m, n)) + std::abs(dy(m, n ^ 1)));
            }
          const Mat got = c.got("zdz");
          const double limit = c.stats == DType::fp32 ? 1e-6 : 1e-14;
          for (std::size_t i = 0; i < got.v.size(); ++i)
            ASSERT_TRUE(std::abs(got.v[i] - terms.zdz.v[i]) <= limit * size.v[i] + 1e-30)
                << "zdz: got " << got.v[i] << ", expected " << terms.zdz.v[i];
          c.expect_written("zdz");
        }
        c.expect("udz", terms.udz, chain_terms.udz);
        if (!sum.partial) return;
        const auto with_start = [&](const Mat& partial, const Vec& start, Round r) {
          Vec x = reference::column_sums(partial, r);
          for (std::size_t i = 0; i < x.size(); ++i) x[i] += sum.beta * start[i];
          return x;
        };
        c.expect("dq_weight", with_start(ref.dwq, dq0, {}), with_start(chain.dwq, dq0, c.round()));
        c.expect("dk_weight", with_start(ref.dwk, dk0, {}), with_start(chain.dwk, dk0, c.round()));
        c.expect_written("dweight");  // its sum over heads was compared; the v columns are sums of their own
      },
      std::size(kTypes), 1);
}

/// Every other column of the v heads infinite: the one beside it, and it itself, come out as they went in.
TEST(ValueHeads, PassThroughBesideInfinities) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const DType t : kTypes) {
    for (const reference::Heads& heads : kHeads) {
      if (heads.v == 0) continue;
      Case c(t, coda::Layout::nt, 5, heads.width(), 1, 1, false, base_seed());
      SCOPED_TRACE(c.describe() + " heads of " + std::to_string(heads.dim));
      const Rope rope = draw_rope(c, heads);
      const HeadNorm head_norm = draw_head_norm(c, heads);
      Mat z = c.draw(c.m, c.n);
      for (std::int64_t m = 0; m < c.m; ++m)
        for (std::int64_t n = 0; n < c.n; ++n) {
          z(m, n) = z(0, n);  // what the product below gives
          if (n >= heads.rotated() && (n + n / 8) % 2 == 0) z(m, n) = n % 3 == 0 ? -kInf : kInf;
        }
      const ConstMatrix a = c.in(Mat(c.m, 1, 1)), x = c.in(z);
      Mat row(c.n, 1);
      for (std::int64_t n = 0; n < c.n; ++n) row(n, 0) = z(0, n);
      const ConstMatrix b = c.in(row);
      const auto passes = [&](const char* name) {
        const Mat got = c.got(name);
        for (std::int64_t m = 0; m < c.m; ++m)
          for (std::int64_t n = 0; n < c.n; ++n) {
            if (n >= heads.rotated()) ASSERT_EQ(got(m, n), z(m, n)) << name << " at row " << m << ", column " << n;
            else ASSERT_TRUE(std::isfinite(got(m, n))) << name << " at row " << m << ", column " << n;
          }
        c.expect_written(name);
      };
      ops::gemm_norm_rope({.a = a, .b = b, .heads = rope.heads, .out = c.out("rope", c.m, c.n)});
      passes("rope");
      ops::gemm_norm_qknorm_rope({.a = a,
                                  .b = b,
                                  .heads = rope.heads,
                                  .q_weight = head_norm.q,
                                  .k_weight = head_norm.k,
                                  .out = c.out("qknorm_rope", c.m, c.n)});
      passes("qknorm_rope");
      ops::rope_backward({.y = x, .dy = x, .heads = rope.heads, .dz = c.out("rope_dz", c.m, c.n)});
      passes("rope_dz");
      ops::qknorm_rope_backward({.preact = x,
                                 .dy = x,
                                 .heads = rope.heads,
                                 .q_weight = head_norm.q,
                                 .k_weight = head_norm.k,
                                 .dz = c.out("qknorm_rope_dz", c.m, c.n)});
      passes("qknorm_rope_dz");
      c.finish();
    }
  }
}

TEST(RotaryTable, IsExactToItsTypeAtAnyPosition) {
  constexpr std::int64_t kPositions = 131'072, kDim = 8;
  for (const double theta : {10000.0, 500000.0}) {
    std::vector<float> narrow(kPositions * kDim);
    std::vector<double> wide(kPositions * kDim);
    ops::rotary_table(MatrixOf<float>(narrow.data(), kPositions, kDim), theta);
    ops::rotary_table(MatrixOf<double>(wide.data(), kPositions, kDim), theta);
    for (const std::int64_t p : {std::int64_t{0}, std::int64_t{1}, std::int64_t{4097}, kPositions - 1})
      for (std::int64_t j = 0; j < kDim / 2; ++j) {
        const long double step = std::pow(static_cast<long double>(theta), -2.0L * static_cast<long double>(j) / kDim);
        const long double angle = static_cast<long double>(p) * step;
        for (const int s : {0, 1}) {
          const auto at = static_cast<std::size_t>(p * kDim + 2 * j + s);
          const auto expected = static_cast<double>(s == 0 ? std::cos(angle) : std::sin(angle));
          EXPECT_NEAR(wide[at], expected, 1e-10) << "position " << p << ", pair " << j;
          EXPECT_NEAR(static_cast<double>(narrow[at]), expected, 6e-8) << "position " << p << ", pair " << j;
        }
      }
  }
}

TEST(RotaryTable, WithAPitchLeavesWhatIsBetweenItsRows) {
  constexpr std::int64_t kPositions = 5, kDim = 8, kPitch = 11;
  std::vector<float> plain(kPositions * kDim), pitched(kPositions * kPitch, -7);
  ops::rotary_table(MatrixOf<float>(plain.data(), kPositions, kDim), 10000.0);
  ops::rotary_table(MatrixOf<float>(pitched.data(), kPositions, kDim, kPitch), 10000.0);
  for (std::int64_t p = 0; p < kPositions; ++p)
    for (std::int64_t j = 0; j < kPitch; ++j) {
      const float expected = j < kDim ? plain[static_cast<std::size_t>(p * kDim + j)] : -7;
      EXPECT_EQ(pitched[static_cast<std::size_t>(p * kPitch + j)], expected) << "position " << p << ", column " << j;
    }
}

TEST(GemmNormRope, RotatesByTheLastOf131072Positions) {
  constexpr std::int64_t kPositions = 131'072, kDim = 8;
  const reference::Heads heads{1, 1, 1, kDim};
  const RopeTable table = reference::rope_table(kPositions, kDim, 10000.0);
  std::vector<float> memory(kPositions * kDim);
  ops::rotary_table(MatrixOf<float>(memory.data(), kPositions, kDim), 10000.0);
  for (const bool wide : {false, true}) {
    Case c(DType::bf16, coda::Layout::nt, 5, heads.width(), 16, 1, false, base_seed());
    c.draw_product();
    const Positions position{131'071, 0, 131'070, 65'537, 99'999};
    const ops::Heads given{.q = 1,
                           .k = 1,
                           .v = 1,
                           .head_dim = kDim,
                           .table = ConstMatrix(memory.data(), DType::fp32, kPositions, kDim),
                           .position = c.indices(position, wide)};
    ops::gemm_norm_rope({.a = c.a, .b = c.b, .heads = given, .out = c.out("out", c.m, c.n)});
    const auto run = [&](Round r) {
      return reference::gemm_norm_rope(c.operands(), {}, table, position, heads, nullptr, r).y;
    };
    c.expect("out", run({}), run(c.round()));
    c.finish();
  }
}

}  // namespace
}  // namespace coda::test
