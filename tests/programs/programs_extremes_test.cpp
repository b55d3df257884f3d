// NaN, infinities and masks; sizes whose offsets do not fit 31 bits; operands that need several packing groups.
#include <sys/mman.h>

#include <cmath>
#include <future>
#include <limits>

#include "coda/backend/cpu/gemm.h"
#include "coda/programs/gemm.h"
#include "tests/programs/harness.h"
#include "tests/support/error_of.h"
#include "tests/support/full_memory.h"

namespace coda::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// Pre-logits: a usual row, one of -inf, one finite logit, a masked half, a NaN, then a row of -inf and one of NaN that
/// do not count.
constexpr std::int64_t kVocabulary = 300;
Mat masked_logits() {
  Random random(base_seed());
  Mat z = normal_mat(random, 8, kVocabulary, 1.0, DType::bf16);
  for (std::int64_t n = 0; n < z.cols; ++n) {
    z(1, n) = -kInf;
    if (n != 280) z(2, n) = -kInf;
    if (n % 2 == 0) z(3, n) = -kInf;
    z(5, n) = -kInf;
    z(6, n) = kNan;
  }
  z(4, 17) = kNan;
  z(7, 100) = kInf;
  return z;
}
const std::vector<std::int64_t> kTargets{3, 5, 280, 7, 9, -100, -100, 11};

/// The logits come out of a product with the identity: A holds them, K = V.
TEST(GemmLse, FollowsTorchOnMaskedRowsAndNan) {
  for (const DType t : kTypes) {
    SCOPED_TRACE(coda::name_of(t));
    // 0 times an infinity is NaN in a product, so the masks come through LayerNorm's c, per column, and one row each.
    const Mat z = masked_logits();
    for (std::int64_t row = 0; row < z.rows; ++row) {
      Case c(t, coda::Layout::nt, 1, kVocabulary, 0, 1, false, base_seed());
      c.draw_product();
      Vec shift(z.v.begin() + row * kVocabulary, z.v.begin() + (row + 1) * kVocabulary);
      const ops::Norm norm{.rstd = c.vec({1}, c.stats),
                           .mean = c.vec({0}, c.stats),
                           .u = c.vec(Vec(kVocabulary, 1.0), c.stats),
                           .c = c.vec(shift, c.stats)};
      ops::linear_cross_entropy({.a = c.a,
                                 .weight = c.b,
                                 .norm = norm,
                                 .target = c.indices({kTargets[static_cast<std::size_t>(row)]}, true),
                                 .lse = c.out_vec("lse", 1, c.stats),
                                 .loss = c.out_vec("loss", 1, c.stats)});
      const double lse = c.got("lse")(0, 0), loss = c.got("loss")(0, 0);
      ops::linear_cross_entropy_backward({.a = c.a,
                                          .weight = c.b,
                                          .h = c.a,
                                          .norm = norm,
                                          .target = c.indices({kTargets[static_cast<std::size_t>(row)]}, true),
                                          .lse = c.vec({lse}, c.stats),
                                          .dloss = c.vec({1.0}, c.stats),
                                          .chunk = 200,
                                          .da = c.out("da", 1, 0),
                                          .row_dot = c.out_vec("row_dot", 1, c.stats),
                                          .row_udz = c.out_vec("row_udz", 1, c.stats)});
      if (row != 1 && row != 4 && row != 7) {
        EXPECT_EQ(c.got("row_dot")(0, 0), 0) << "row " << row << ": z - c is 0, also where c is -inf";
      }
      switch (row) {
        case 1:
          EXPECT_EQ(lse, -kInf);
          EXPECT_TRUE(std::isnan(loss)) << loss;
          break;
        case 2:
          EXPECT_NEAR(lse, z(2, 280), 1e-6);
          EXPECT_NEAR(loss, 0, 1e-6);
          break;
        case 4:
          EXPECT_TRUE(std::isnan(lse)) << lse;
          EXPECT_TRUE(std::isnan(loss)) << loss;
          break;
        case 7:
          EXPECT_EQ(lse, kInf);
          EXPECT_FALSE(std::isfinite(loss)) << loss;
          break;
        case 5:
        case 6:
          EXPECT_EQ(loss, 0) << "row " << row << " does not count";
          break;
        default: {
          double total = 0;
          for (std::int64_t n = 0; n < kVocabulary; ++n) total += std::exp(z(row, n));
          EXPECT_NEAR(lse, std::log(total), 1e-5);
          EXPECT_NEAR(loss, std::log(total) - z(row, kTargets[static_cast<std::size_t>(row)]), 1e-5);
        }
      }
    }
  }
}

TEST(CrossEntropyBackward, GivesMaskedLogitsAndIgnoredRowsNoGradient) {
  for (const DType t : kTypes) {
    for (const double cap : {0.0, 5.0}) {
      SCOPED_TRACE(std::string(coda::name_of(t)) + (cap > 0 ? " with soft-cap" : ""));
      const Mat z = masked_logits();
      Case c(t, coda::Layout::nt, z.rows, kVocabulary, 0, 1, false, base_seed());
      Vec lse(8), dloss(8, 1.0);
      for (std::int64_t m = 0; m < z.rows; ++m) {
        double total = 0;
        for (std::int64_t n = 0; n < kVocabulary; ++n)
          total += std::exp(cap > 0 ? cap * std::tanh(z(m, n) / cap) : z(m, n));
        lse[static_cast<std::size_t>(m)] = std::log(total);
      }
      ops::cross_entropy_backward({.preact = c.in(z),
                                   .transform = {.cap = cap},
                                   .target = c.indices(kTargets, false),
                                   .lse = c.vec(lse, c.stats),
                                   .dloss = c.vec(dloss, c.stats),
                                   .dz = c.out("dz", z.rows, kVocabulary),
                                   .dot = {.zdz = c.out("zdz", z.rows, 2, c.stats)}});
      const Mat dz = c.got("dz"), zdz = c.got("zdz");
      for (const std::int64_t m : {0, 2, 3}) {
        double sum = 0;
        for (std::int64_t n = 0; n < kVocabulary; ++n) {
          ASSERT_TRUE(std::isfinite(dz(m, n))) << "row " << m << ", column " << n;
          if (std::isinf(z(m, n))) {
            EXPECT_EQ(dz(m, n), 0) << "row " << m << ", column " << n;
          }
          sum += dz(m, n);
        }
        if (cap == 0) {
          EXPECT_NEAR(sum, 0, 1e-2) << "row " << m;
        }
        EXPECT_TRUE(std::isfinite(zdz(m, 0)) && std::isfinite(zdz(m, 1))) << "row " << m;
      }
      for (const std::int64_t m : {5, 6}) {
        for (std::int64_t n = 0; n < kVocabulary; ++n)
          ASSERT_EQ(dz(m, n), 0) << "ignored row " << m << ", column " << n;
        EXPECT_EQ(zdz(m, 0), 0);
        EXPECT_EQ(zdz(m, 1), 0);
      }
      EXPECT_TRUE(std::isnan(dz(4, 17)));
    }
  }
}

TEST(LinearCrossEntropyBackward, IsZeroWhereEveryTargetIsIgnored) {
  Case c(DType::bf16, coda::Layout::nt, 20, 300, 16, 1, false, base_seed());
  c.draw_product();
  const Vec lse(20, 1.0), dloss(20, kNan);  // dloss of an ignored row is not needed: not even its value counts
  ops::linear_cross_entropy_backward({.a = c.a,
                                      .weight = c.b,
                                      .h = {},
                                      .target = c.indices(std::vector<std::int64_t>(20, -100), true),
                                      .lse = c.vec(lse, c.stats),
                                      .dloss = c.vec(dloss, c.stats),
                                      .chunk = 128,
                                      .da = c.out("da", 20, 16),
                                      .dweight = c.in_place("dweight", Mat(300, 16, 2), c.stats),
                                      .row_dot = c.out_vec("row_dot", 20, c.stats)});
  c.expect("da", Mat(20, 16), Mat(20, 16));
  c.expect("dweight", Mat(300, 16, 2), Mat(300, 16, 2));
  c.expect("row_dot", Vec(20), Vec(20));
  c.finish();
}

TEST(Gemm, PropagatesNanAndInfinitiesOfItsInputs) {
  for (const DType t : kTypes) {
    for (const auto f : {ops::Activation::identity, ops::Activation::silu, ops::Activation::gelu_erf,
                         ops::Activation::gelu_tanh, ops::Activation::relu, ops::Activation::relu_squared}) {
      SCOPED_TRACE(std::string(coda::name_of(t)) + " " + ops::name_of(f));
      Mat a(3, 1), b(40, 1, 1.0);
      a(0, 0) = kNan, a(1, 0) = kInf, a(2, 0) = 1;
      Case c(t, coda::Layout::nt, 3, 40, 1, 1, false, base_seed());
      ops::gemm({.a = c.in(a), .b = c.in(b), .activation = f, .out = c.out("out", 3, 40)});
      const Mat out = c.got("out");
      for (std::int64_t n = 0; n < 40; ++n) {
        EXPECT_TRUE(std::isnan(out(0, n))) << out(0, n);
        EXPECT_EQ(out(1, n), kInf);
        EXPECT_TRUE(std::isfinite(out(2, n))) << out(2, n);
      }
    }
  }
}

/// A product may take steps of k by pairs or more, and what it puts in place of those behind the last is no number's
/// partner.
TEST(Gemm, HasNoNanWhereALastStepIsInfinite) {
  for (const DType t : kTypes) {
    for (const coda::Layout layout : {coda::Layout::nt, coda::Layout::nn, coda::Layout::tn}) {
      for (const std::int64_t k : {1, 2, 3, 31, 33, 129, 255}) {
        for (const std::int64_t m : {3, 70, 600}) {
          SCOPED_TRACE(std::string(coda::name_of(t)) + " " + coda::name_of(layout) + " M=" + std::to_string(m) +
                       " K=" + std::to_string(k));
          constexpr std::int64_t kN = 300;
          const bool a_is_km = layout == coda::Layout::tn, b_is_kn = layout != coda::Layout::nt;
          Mat a(a_is_km ? k : m, a_is_km ? m : k, 1.0), b(b_is_kn ? k : kN, b_is_kn ? kN : k, 1.0);
          (a_is_km ? a(k - 1, 1) : a(1, k - 1)) = kInf;
          (b_is_kn ? b(k - 1, 260) : b(260, k - 1)) = kInf;
          Case c(t, layout, m, kN, k, 1, false, base_seed());
          ops::gemm({.a = c.in(a), .b = c.in(b), .layout = layout, .out = c.out("out", m, kN)});
          const Mat out = c.got("out");
          for (std::int64_t i = 0; i < m; ++i) {
            for (std::int64_t n = 0; n < kN; ++n) {
              ASSERT_EQ(out(i, n), i == 1 || n == 260 ? kInf : static_cast<double>(k))
                  << "row " << i << ", column " << n;
            }
          }
        }
      }
    }
  }
}

TEST(GemmResidual, KeepsNanInItsRow) {
  Case c(DType::bf16, coda::Layout::nt, 6, 300, 8, 1, true, base_seed());
  c.draw_product();
  Mat residual(6, 300);
  residual(2, 270) = kNan;
  ops::gemm_residual({.a = c.a,
                      .b = c.b,
                      .residual = c.in(residual),
                      .x = c.out("x", 6, 300),
                      .sum_sq = c.out("sum_sq", 6, 2, c.stats)});
  const Mat sum = c.got("sum_sq");
  for (std::int64_t m = 0; m < 6; ++m)
    for (std::int64_t t = 0; t < 2; ++t) EXPECT_EQ(std::isnan(sum(m, t)), m == 2 && t == 1) << m << ", " << t;
}

/// Targets, or the index to ignore, so far from a block of the vocabulary that 32 bits do not tell.
TEST(GemmLse, LeavesRowsWhoseTargetIsFarFromTheBlock) {
  constexpr std::int64_t kFar = std::int64_t{1} << 32, kLeast = std::numeric_limits<std::int64_t>::min();
  std::vector<float> a(4, 1), b(8, 1), max(2), sum(2);
  const auto run = [&](std::int64_t first, std::int64_t ignore, std::vector<std::int64_t> target) {
    std::vector<float> hit(2, -7);
    ops::gemm_lse({.a = MatrixOf<const float>(a.data(), 2, 2),
                   .b = MatrixOf<const float>(b.data(), 4, 2),
                   .target = VectorOf<const std::int64_t>(target.data(), 2),
                   .ignore_index = ignore,
                   .first_column = first,
                   .max = MatrixOf<float>(max.data(), 2, 1),
                   .sum = MatrixOf<float>(sum.data(), 2, 1),
                   .target_logit = VectorOf<float>(hit.data(), 2)});
    return hit;
  };
  EXPECT_EQ(run(0, kFar + 3, {kFar + 3, 3}), (std::vector<float>{-7, 2}));
  EXPECT_EQ(run(kFar, -100, {3, kFar + 3}), (std::vector<float>{-7, 2}));
  EXPECT_EQ(run(kFar, kLeast, {kLeast, 0}), (std::vector<float>{-7, -7}));
}

// ---- nothing to compute with

TEST(LayerNorm, TakesNullPointersOfEmptyTensors) {
  std::vector<float> values(64, 1), lse(4), shift(8);
  const auto mat = [&](std::int64_t rows, std::int64_t cols) {
    return MatrixOf<float>(rows * cols == 0 ? nullptr : values.data(), rows, cols);
  };
  const auto vec = [&](std::int64_t size) { return VectorOf<float>(size == 0 ? nullptr : shift.data(), size); };
  const VectorOf<const std::int32_t> no_target(nullptr, 0);
  for (const std::int64_t n : {8, 0}) {
    for (const std::int64_t m : {0, 4}) {
      if (m * n > 0) continue;
      SCOPED_TRACE("M=" + std::to_string(m) + " N=" + std::to_string(n));
      const ops::Norm norm{.rstd = vec(m), .mean = vec(m), .u = vec(n), .c = vec(n)};
      EXPECT_NO_THROW(ops::gemm_norm({.a = mat(m, 2), .b = mat(n, 2), .norm = norm, .out = mat(m, n)}));
      const std::int64_t tiles = ops::tiles_n(n);
      EXPECT_NO_THROW(
          ops::gemm_activation_backward({.a = mat(m, 2),
                                         .b = mat(2, n),
                                         .preact = mat(m, n),
                                         .dpreact = mat(m, n),
                                         .dot = {.zdz = mat(m, tiles), .udz = mat(m, tiles), .u = vec(n)}}));
      if (m > 0) continue;
      EXPECT_NO_THROW(ops::linear_cross_entropy(
          {.a = mat(m, 2), .weight = mat(n, 2), .norm = norm, .target = no_target, .lse = vec(m), .loss = vec(m)}));
      EXPECT_NO_THROW(ops::linear_cross_entropy_backward({.a = mat(m, 2),
                                                          .weight = mat(n, 2),
                                                          .norm = norm,
                                                          .target = no_target,
                                                          .lse = vec(m),
                                                          .dloss = vec(m),
                                                          .da = mat(m, 2),
                                                          .row_udz = vec(m)}));
    }
  }
  const ops::Norm mix{.rstd = vec(0), .mean = vec(0), .c = vec(8)};
  EXPECT_THROW(ops::gemm_norm({.a = mat(0, 2), .b = mat(8, 2), .norm = mix, .out = mat(0, 8)}), Error);
}

/// More temporaries than there are addresses.
TEST(LinearCrossEntropyBackward, NamesMemoryThatIsNotThere) {
#if !defined(__SANITIZE_ADDRESS__)  // which stops the program
  constexpr std::int64_t kM = std::int64_t{1} << 20;
  const std::vector<std::int32_t> target(kM);
  const std::vector<float> lse(kM), dloss(kM);
  const auto error = [&](std::int64_t vocabulary) {
    return error_of([&] {
      ops::linear_cross_entropy_backward({.a = {nullptr, DType::bf16, kM, 0},
                                          .weight = {nullptr, DType::bf16, vocabulary, 0},
                                          .target = VectorOf<const std::int32_t>(target.data(), kM),
                                          .lse = VectorOf<const float>(lse.data(), kM),
                                          .dloss = VectorOf<const float>(dloss.data(), kM),
                                          .chunk = vocabulary,
                                          .da = {nullptr, DType::bf16, kM, 0}});
    });
  };
  EXPECT_EQ(error(std::int64_t{1} << 36),
            "linear_cross_entropy_backward: workspace: expected 144115188075855872 bytes of memory, got none");
  EXPECT_EQ(
      error(std::int64_t{1} << 44),
      "linear_cross_entropy_backward: chunk: expected at most 72057594037927936 elements in the call's own memory, "
      "got 1048576 rows of 17592186044416 columns")
      << "their number wraps to 0";
#endif
}

TEST(Product, NamesTheOperationThatHasNoMemory) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr std::int64_t kM = 256, kN = 512, kK = 100000;  // more than is packed at a time else
  std::vector<fp16> a(kM * kK), b(kN * kK), out(kM * kN, fp16(7.F));
  const std::vector<float> rstd(kM, 1.F);
  try {
    const FullMemory full(rlim_t{16} << 20);
    ops::gemm_norm({.a = MatrixOf<const fp16>(a.data(), kM, kK),
                    .b = MatrixOf<const fp16>(b.data(), kN, kK),
                    .norm = {.rstd = VectorOf<const float>(rstd.data(), kM)},
                    .out = MatrixOf<fp16>(out.data(), kM, kN)});
    ADD_FAILURE() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::device_error);
    EXPECT_EQ(e.what(), std::string("gemm_norm: workspace: out of memory"));
  }
  for (const fp16 x : out) ASSERT_EQ(static_cast<float>(x), 7.F);
#endif
}

TEST(Product, NamesTheOperationInWhichAnotherLibraryThrew) {
  float in[1] = {}, out[1];
  const BareGemm<float> program{.out = {MatrixOf<float>(out, 1, 1)}};
  const ConstMatrix x(in, DType::fp32, 1, 1);
  auto call = cpu::detail::describe<float>("some_gemm", coda::Layout::nt, 1, 1, 1, x, x, program);
  call.epilogue = [](const void*, const cpu::TileGeometry&, std::int64_t, std::int64_t, const void*, std::int64_t,
                     std::int64_t) { throw std::future_error(std::future_errc::broken_promise); };
  try {
    cpu::detail::run(call);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::device_error);
    EXPECT_EQ(std::string(e.what()).find("some_gemm: oneDNN: "), 0) << e.what();
  }
}

// ---- large

/// Address space of which only what is touched takes memory.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes) : bytes_(bytes) {
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) data_ = p;
  }
  ~Sparse() {
    if (data_) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  explicit operator bool() const { return data_ != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

TEST(SquaredNorm, NamesTheMemoryThatItLacks) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  constexpr std::int64_t kSize = std::int64_t{1} << 35;
  const Sparse x(static_cast<std::size_t>(kSize) * sizeof(bf16));
  if (!x) GTEST_SKIP() << "no address space for the vector";
  double out = 7;
  try {
    const FullMemory full(rlim_t{16} << 20);
    ops::squared_norm({.x = VectorOf<const bf16>(x.as<bf16>(), kSize), .out = VectorOf<double>(&out, 1)});
    ADD_FAILURE() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::device_error);
    EXPECT_EQ(e.what(), std::string("squared_norm: workspace: expected 134217728 bytes of memory, got none"));
  }
  EXPECT_EQ(out, 7);
#endif
}

TEST(Gemm, ReachesRowsMoreThan2To31ElementsApart) {
  constexpr std::int64_t kPitch = (std::int64_t{1} << 31) + 24, kRows = 3;
  for (const DType t : {DType::bf16, DType::fp16, DType::fp32}) {
    for (const coda::Layout l : kLayouts) {
      SCOPED_TRACE(std::string(coda::name_of(t)) + " " + coda::name_of(l));
      const auto bytes = static_cast<std::size_t>(kRows * kPitch * size_of(t));
      Sparse a(bytes), b(bytes), residual(bytes), out(bytes), preact(bytes);
      if (!a || !b || !residual || !out || !preact) GTEST_SKIP() << "no address space of " << bytes << " bytes";
      // Each matrix has kRows rows (K of them where K runs down) and five columns.
      const auto fill = [&](Sparse& s, std::int64_t rows, std::int64_t cols, int seed) {
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t j = 0; j < cols; ++j) {
            const auto x = static_cast<float>((r * 5 + j + seed) % 7 - 3);
            if (t == DType::bf16) s.as<bf16>()[r * kPitch + j] = bf16(x);
            else if (t == DType::fp16) s.as<fp16>()[r * kPitch + j] = fp16(x);
            else s.as<float>()[r * kPitch + j] = x;
          }
      };
      const auto value = [](std::int64_t r, std::int64_t j, int seed) {
        return static_cast<double>((r * 5 + j + seed) % 7 - 3);
      };
      const bool a_km = l == coda::Layout::tn, b_kn = l != coda::Layout::nt;
      const std::int64_t m = 3, n = 3, k = 3;
      fill(a, 3, 3, 1), fill(b, 3, 3, 2), fill(residual, m, n, 3);
      const auto view = [&](Sparse& s) { return Matrix(s.as<void>(), t, 3, 3, kPitch); };
      ops::gemm({.a = view(a),
                 .b = view(b),
                 .layout = l,
                 .beta = 1,
                 .c = view(residual),
                 .preact = view(preact),
                 .out = view(out)});
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double expected = value(i, j, 3);
          for (std::int64_t q = 0; q < k; ++q)
            expected += (a_km ? value(q, i, 1) : value(i, q, 1)) * (b_kn ? value(q, j, 2) : value(j, q, 2));
          for (Sparse* s : {&out, &preact}) {
            const std::int64_t at = i * kPitch + j;
            const double got = t == DType::bf16   ? static_cast<double>(s->as<bf16>()[at])
                               : t == DType::fp16 ? static_cast<double>(s->as<fp16>()[at])
                                                  : static_cast<double>(s->as<float>()[at]);
            EXPECT_EQ(got, expected) << i << ", " << j;
          }
        }
    }
  }
}

TEST(Embedding, ReadsTokensMoreThan2To31ElementsIntoTheTable) {
  constexpr std::int64_t kWidth = 64, kVocabulary_ = (std::int64_t{1} << 31) / kWidth + 10;
  Sparse table(static_cast<std::size_t>(kVocabulary_ * kWidth) * sizeof(bf16));
  if (!table) GTEST_SKIP() << "no address space for the table";
  const std::vector<std::int64_t> tokens{kVocabulary_ - 1, 0, kVocabulary_ - 2};
  Case c(DType::bf16, coda::Layout::nt, 3, kWidth, 0, 1, true, base_seed());
  Mat expected(3, kWidth);
  for (std::int64_t m = 0; m < 3; ++m)
    for (std::int64_t n = 0; n < kWidth; ++n) {
      expected(m, n) = static_cast<double>(m * 64 + n);
      table.as<bf16>()[tokens[static_cast<std::size_t>(m)] * kWidth + n] = bf16(static_cast<float>(m * 64 + n));
    }
  ops::embedding({.table = ConstMatrix(table.as<void>(), DType::bf16, kVocabulary_, kWidth),
                  .token = c.indices(tokens, false),
                  .x = c.out("x", 3, kWidth)});
  c.expect_linear("x", expected, expected);
  c.finish();
}

TEST(GemmNormRope, ReadsAnglesMoreThan2To31ElementsIntoTheTable) {
  for (const std::int64_t head_dim : {2, 64}) {  // beyond 2^31 rows, and elements
    const std::int64_t rows = (std::int64_t{1} << 31) / (head_dim > 2 ? head_dim : 1) + 10;
    Sparse table(static_cast<std::size_t>(rows * head_dim) * sizeof(float));
    if (!table) GTEST_SKIP() << "no address space for the table";
    for (std::int64_t j = 0; j < head_dim; ++j) table.as<float>()[(rows - 1) * head_dim + j] = j % 2 == 0 ? 0 : 1;
    std::vector<float> a(4, 1), b(static_cast<std::size_t>(4 * head_dim), 1), out(static_cast<std::size_t>(head_dim));
    const std::int64_t position = rows - 1;
    ops::gemm_norm_rope({.a = MatrixOf<const float>(a.data(), 1, 4),
                         .b = MatrixOf<const float>(b.data(), head_dim, 4),
                         .heads = {.q = 1,
                                   .head_dim = head_dim,
                                   .table = MatrixOf<const float>(table.as<float>(), rows, head_dim),
                                   .position = VectorOf<const std::int64_t>(&position, 1)},
                         .out = MatrixOf<float>(out.data(), 1, head_dim)});
    for (std::size_t j = 0; j < out.size(); ++j) EXPECT_EQ(out[j], j % 2 == 0 ? -4 : 4) << j;
  }
}

/// Operands whose packed form is more than the group that is held at a time. A has one nonzero in each row, so the
/// reference is a look-up.
void pack_in_groups(std::int64_t rows, std::int64_t cols, std::int64_t steps) {
  for (const coda::Layout l : kLayouts) {
    SCOPED_TRACE(coda::name_of(l));
    const bool a_km = l == coda::Layout::tn, b_kn = l != coda::Layout::nt;
    std::vector<fp16> a(rows * steps, fp16(0.f)), b(cols * steps), out(rows * cols);
    const auto column = [&](std::int64_t m) { return m * 7919 % steps; };
    const auto value = [](std::int64_t n, std::int64_t k) { return static_cast<float>((n * 31 + k * 17) % 101 - 50); };
    for (std::int64_t m = 0; m < rows; ++m)
      a[static_cast<std::size_t>(a_km ? column(m) * rows + m : m * steps + column(m))] = fp16(2.f);
    for (std::int64_t n = 0; n < cols; ++n)
      for (std::int64_t k = 0; k < steps; ++k)
        b[static_cast<std::size_t>(b_kn ? k * cols + n : n * steps + k)] = fp16(value(n, k));
    ops::gemm({.a = {a.data(), DType::fp16, a_km ? steps : rows, a_km ? rows : steps},
               .b = {b.data(), DType::fp16, b_kn ? steps : cols, b_kn ? cols : steps},
               .layout = l,
               .out = {out.data(), DType::fp16, rows, cols}});
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t n = 0; n < cols; ++n)
        ASSERT_EQ(static_cast<float>(out[static_cast<std::size_t>(m * cols + n)]), 2 * value(n, column(m)))
            << m << ", " << n;
  }
}
TEST(Gemm, PacksLongRowsOfAInGroups) { pack_in_groups(260, 270, 66'000); }
// Too short for blocks.
TEST(Gemm, PacksShortColumnsOfBInGroups) { pack_in_groups(2, 168'000, 100); }

}  // namespace
}  // namespace coda::test
