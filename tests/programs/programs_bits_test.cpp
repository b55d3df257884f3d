// The same bits from run to run, for any number of threads, and from two threads that call at once.
#include <omp.h>

#include <cfenv>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "coda/backend/cpu/product.h"
#include "tests/programs/harness.h"
#include "tests/support/forked.h"

namespace coda::test {
namespace {

struct Job {
  std::string name;
  std::function<void(Case&)> call;  // draws from the case's seed, so that each run has the same inputs
  Shape shape;
  coda::Layout layout = coda::Layout::nt;
};

ops::NormDot dot(Case& c) { return {.zdz = c.out("zdz", c.m, ops::tiles_n(c.n), c.stats)}; }

/// Shapes of several tiles, whose order depends on the number of threads, and one tile with a long inner dimension,
/// which a library might cut among threads.
std::vector<Job> jobs() {
  std::vector<Job> all;
  for (const coda::Layout l : kLayouts) {
    for (const Shape s : {Shape{300, 700, 64}, Shape{200, 130, 1500}, Shape{1, 256, 4000}, Shape{256, 200, 2048},
                          Shape{900, 600, 130}, Shape{1100, 600, 130}}) {
      all.push_back({"gemm",
                     [](Case& c) {
                       c.draw_product();
                       ops::gemm({.a = c.a,
                                  .b = c.b,
                                  .layout = c.layout,
                                  .activation = ops::Activation::gelu_erf,
                                  .out = c.out("out", c.m, c.n)});
                     },
                     s, l});
    }
    all.push_back({"gemm_rms_backward",
                   [](Case& c) {
                     c.draw_product();
                     ops::gemm_rms_backward({.a = c.a,
                                             .b = c.b,
                                             .layout = c.layout,
                                             .x = c.in(c.draw(c.m, c.n)),
                                             .rstd = c.vec(c.factors(c.m, 1, c.stats), c.stats),
                                             .row_term = c.vec(c.draw_vec(c.m, 1, c.stats), c.stats),
                                             .dx = c.out("dx", c.m, c.n),
                                             .h = c.out("h", c.m, c.n),
                                             .dweight = c.out("dweight", ops::tiles_m(c.m), c.n, c.stats)});
                   },
                   {600, 300, 140},
                   l});
  }
  all.push_back({"gemm_residual",
                 [](Case& c) {
                   c.draw_product();
                   const auto [mean, m2] = c.out_pair("mean", "m2", c.m, ops::tiles_n(c.n), c.stats);
                   ops::gemm_residual({.a = c.a,
                                       .b = c.b,
                                       .residual = c.in(c.draw(c.m, c.n)),
                                       .x = c.out("x", c.m, c.n),
                                       .mean = mean,
                                       .m2 = m2});
                 },
                 {270, 530, 150}});
  all.push_back({"gemm_glu_backward",
                 [](Case& c) {
                   c.draw_product();
                   ops::gemm_glu_backward({.a = c.a,
                                           .b = c.b,
                                           .layout = coda::Layout::nt,
                                           .preact = c.in(c.draw(c.m, 2 * c.n)),
                                           .dpreact = c.out("dpreact", c.m, 2 * c.n),
                                           .out = c.out("out", c.m, c.n),
                                           .dot = dot(c)});
                 },
                 {300, 520, 133}});
  all.push_back(
      {"linear_cross_entropy and its backward",
       [](Case& c) {
         c.draw_product();
         const ConstVector target = c.indices(random_targets(c.random, c.m, c.n, 5), true);
         const Vector lse = c.out_vec("lse", c.m, c.stats);
         ops::linear_cross_entropy(
             {.a = c.a, .weight = c.b, .target = target, .lse = lse, .loss = c.out_vec("loss", c.m, c.stats)});
         ops::linear_cross_entropy_backward({.a = c.a,
                                             .weight = c.b,
                                             .h = {},
                                             .target = target,
                                             .lse = lse,
                                             .dloss = c.vec(c.factors(c.m, 1, c.stats), c.stats),
                                             .chunk = 300,
                                             .da = c.out("da", c.m, c.k),
                                             .dweight = c.in_place("dweight", Mat(c.n, c.k), c.stats),
                                             .row_dot = c.out_vec("row_dot", c.m, c.stats)});
       },
       {290, 800, 48}});
  all.push_back({"reductions",
                 [](Case& c) {
                   const ConstMatrix partial = c.in(c.draw(c.m, c.n), c.stats);
                   ops::rms_finalize(
                       {.sum_sq = c.in(Mat(c.m, 3, 2.5), c.stats), .n = 700, .rstd = c.out_vec("rstd", c.m, c.stats)});
                   ops::sum_rows({.partial = partial, .out = c.out_vec("rows", c.m, c.stats)});
                   ops::sum_columns({.partial = partial, .out = c.out_vec("columns", c.n, c.stats)});
                   ops::embedding_backward({.dx = c.in(c.draw(c.m, c.n)),
                                            .token = c.indices(random_targets(c.random, c.m, 9), false),
                                            .dtable = c.in_place("dtable", Mat(9, c.n), c.stats)});
                 },
                 {2000, 600, 0}});
  return all;
}

Case run(const Job& job, DType t) {
  Case c(t, job.layout, job.shape.m, job.shape.n, job.shape.k, 1, false, base_seed());
  job.call(c);
  return c;
}

TEST(Bits, AreTheSameForAnyNumberOfThreadsAndFromRunToRun) {
  const int before = omp_get_max_threads();
#if defined(__SANITIZE_ADDRESS__)  // ten times slower, and no bit differs for it
  const std::vector<DType> types{DType::bf16};
#else
  const std::vector<DType> types{DType::bf16, DType::fp16, DType::fp32};
#endif
  for (const DType t : types) {
    for (const Job& job : jobs()) {
      SCOPED_TRACE(job.name + " " + coda::name_of(t) + " " + coda::name_of(job.layout) +
                   " K=" + std::to_string(job.shape.k));
      omp_set_num_threads(1);
      Case first = run(job, t);
      for (const int threads : {1, 2, 3, 5, 2}) {
        omp_set_num_threads(threads);
        Case again = run(job, t);
        EXPECT_EQ(first.difference(again), "") << "with " << threads << " threads";
        EXPECT_EQ(omp_get_max_threads(), threads) << "a call leaves the caller's number of threads as it was";
      }
    }
  }
  omp_set_num_threads(before);
}

TEST(Bits, AreTheSameFromTwoThreadsThatCallAtOnce) {
  std::vector<Job> all = jobs();
  std::vector<std::unique_ptr<Case>> expected;
  for (const Job& job : all) expected.push_back(std::make_unique<Case>(run(job, DType::bf16)));
  std::vector<std::string> failures[2];
  std::vector<std::thread> threads;
  for (int id = 0; id < 2; ++id) {
    threads.emplace_back([&, id] {
      // From different ends, so that unlike calls meet.
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::size_t at = id == 0 ? i : all.size() - 1 - i;
        Case again = run(all[at], DType::bf16);
        const std::string difference = expected[at]->difference(again);
        if (!difference.empty()) failures[id].push_back(all[at].name + ": " + difference);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& list : failures)
    for (const std::string& text : list) ADD_FAILURE() << text;
}

TEST(Bits, AreTheSameInAChildOfAProcessThatHasThreads) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(2);
  for (const Job& job : jobs()) {
    Case first = run(job, DType::fp32);
    const bool same = holds_in_child([&] {
      Case again = run(job, DType::fp32);
      return first.difference(again).empty();
    });
    ASSERT_TRUE(same) << job.name;
  }
  omp_set_num_threads(before);
}

/// While it lives, the thread that made it rounds towards zero and, where that can be said, has no subnormal numbers.
class OtherRounding {
 public:
  OtherRounding() {
    std::fegetenv(&before_);
    std::fesetround(FE_TOWARDZERO);
#if defined(__SSE2__)
    constexpr unsigned kNoSubnormals = 0x8040;
    _mm_setcsr(_mm_getcsr() | kNoSubnormals);
#endif
  }
  OtherRounding(const OtherRounding&) = delete;
  OtherRounding& operator=(const OtherRounding&) = delete;
  ~OtherRounding() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_{};
};

TEST(Bits, DoNotDependOnHowTheCallersThreadRounds) {
  const int before = omp_get_max_threads();
  Random random(base_seed());
  const auto draw = [&](std::int64_t count, double scale) {
    std::vector<float> x(static_cast<std::size_t>(count));
    for (float& e : x) e = static_cast<float>(scale * random.uniform(-1, 1));
    return x;
  };
  constexpr std::int64_t kM = 1100, kN = 300, kK = 140;
  const std::vector<float> a = draw(kM * kK, 1e-20), b = draw(kN * kK, 1e-20), x = draw(kM * kN, 1e-39);
  struct Results {
    std::vector<float> product{std::vector<float>(kM * kN)}, rows{std::vector<float>(kM)};
    double norm = 0;
    bool operator==(const Results&) const = default;
  };
  const auto results = [&](int threads) {
    omp_set_num_threads(threads);
    Results r;
    const MatrixOf<const float> partial(x.data(), kM, kN);
    ops::gemm({.a = MatrixOf<const float>(a.data(), kM, kK),
               .b = MatrixOf<const float>(b.data(), kN, kK),
               .out = MatrixOf<float>(r.product.data(), kM, kN)});
    ops::sum_rows({.partial = partial, .out = VectorOf<float>(r.rows.data(), kM)});
    ops::squared_norm({.x = VectorOf<const float>(x.data(), kM * kN), .out = VectorOf<double>(&r.norm, 1)});
    return r;
  };
  const Results expected = results(2);
  for (const int threads : {1, 2, 3}) {
    std::optional<Results> got;
    {
      const OtherRounding rounding;
      got = results(threads);
      EXPECT_EQ(std::fegetround(), FE_TOWARDZERO) << "a call leaves it as it was";
    }
    EXPECT_TRUE(*got == expected) << "with " << threads << " threads";
  }
  omp_set_num_threads(before);
}

// oneDNN's cache of kernels, of 1024 by default, is the process's, and each thread keeps what it got of it.
TEST(Bits, DoNotDependOnTheCallsBefore) {
  const std::vector<float> values = [] {
    std::mt19937 random(base_seed());
    std::normal_distribution<float> normal;
    std::vector<float> v(1300);
    for (float& x : v) x = normal(random);
    return v;
  }();
  struct Product {
    std::int64_t m, n, k;
  };
  const auto product = [&](coda::Layout layout, const Product& p) {
    const bool a_is_km = layout == coda::Layout::tn, b_is_nk = layout == coda::Layout::nt;
    std::vector<float> out(static_cast<std::size_t>(p.m * p.n));
    ops::gemm({.a = MatrixOf<const float>(values.data(), a_is_km ? p.k : p.m, a_is_km ? p.m : p.k),
               .b = MatrixOf<const float>(values.data() + 1, b_is_nk ? p.n : p.k, b_is_nk ? p.k : p.n),
               .layout = layout,
               .out = MatrixOf<float>(out.data(), p.m, p.n)});
    return out;
  };
  using Results = std::vector<std::vector<float>>;
  const auto products = [&](coda::Layout layout) {
    Results all;
    for (const Product& p : {Product{1, 1, 65}, {2, 1, 300}, {1, 1, 257}, {257, 1, 4}, {1, 40, 1}, {40, 1, 1}})
      all.push_back(product(layout, p));
    return all;
  };
  for (const coda::Layout layout : kLayouts) {
    const Results first = products(layout);
    for (std::int64_t i = 0; i < 1100; ++i) product(coda::Layout::nn, {2 + i % 40, 2 + i / 40, 3});
    for (const coda::Layout other : kLayouts)
      if (other != layout) products(other);
    Results again;
    std::thread([&] { again = products(layout); }).join();
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i], again[i]) << coda::name_of(layout) << " " << i;
  }
}

TEST(Bits, OfARowDoNotDependOnTheRowsBelowIt) {
  // Whole tiles of rows, on one side of where the number of rows or tiles makes the CPU take another kernel.
  struct Rows {
    std::int64_t top, all, n;
  };
  // Without AVX-512 oneDNN has no kernel for blocks, and adds in another order for another number of columns.
  if (!cpu::detail::has_blocked_product(DType::fp32, 64, 64, 256)) GTEST_SKIP() << "no products in blocks";
  for (const DType t : {DType::bf16, DType::fp32}) {
    for (const coda::Layout layout : {coda::Layout::nt, coda::Layout::nn}) {
      for (const auto& [top_rows, all_rows, n] : {Rows{768, 1024, 2048}, Rows{256, 512, 4096}, Rows{256, 768, 300}}) {
        Case c(t, layout, all_rows, n, 256, 1, false, base_seed());
        c.draw_product();
        ops::gemm({.a = c.a, .b = c.b, .layout = layout, .out = c.out("all", all_rows, n)});
        ConstMatrix top = c.a;
        top.rows = top_rows;
        ops::gemm({.a = top, .b = c.b, .layout = layout, .out = c.out("top", top_rows, n)});
        Mat all = c.got("all"), part = c.got("top");
        all.rows = top_rows, all.v.resize(part.v.size());
        EXPECT_EQ(check_exact("the first rows", part, all), "")
            << coda::name_of(t) << " " << coda::name_of(layout) << " " << top_rows << " of " << all_rows << " x " << n;
      }
    }
  }
}

}  // namespace
}  // namespace coda::test
