// Values at the edges of what a type holds, and shapes and indices at the edges of what a call takes.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const Program& program_of(const char* name) {
  static const std::vector<Program> all = programs();
  for (const Program& p : all) {
    if (p.name == name) return p;
  }
  throw std::logic_error(std::string("no program ") + name);
}

class Extremes : public OnHopper {
 protected:
  /// `kind` is for the figures that each test prints.
  void check(const Problem& problem, const std::string& kind) {
    const Expected expected = expected_of(problem);
    std::string failures;
    for (const Route route : kRoutes) failures += check_on_hopper(problem, route, expected, stream().get());
    count(failures, kind);
  }
  /// A case is done; no failures: an empty text.
  void count(const std::string& failures, const std::string& kind) {
    EXPECT_EQ(failures, "") << kind;
    Count& of_kind = counts_[kind];
    ++of_kind.cases, of_kind.failed += !failures.empty();
  }
  void TearDown() override {
    for (const auto& [kind, count] : counts_) {
      fmt::print("edge cases: {} with {}, {} failed\n", count.cases, kind, count.failed);
    }
  }
  /// f(program, variant, number) for each.
  template <class F>
  void for_all(const F& f) {
    std::uint64_t number = 0;
    for (const Program& program : programs())
      for (int variant = 0; variant < program.variants; ++variant) f(program, variant, ++number);
  }
  const Stream& stream() {
    if (!stream_) stream_ = std::make_unique<Stream>();
    return *stream_;
  }

 private:
  struct Count {
    int cases = 0, failed = 0;
  };
  std::map<std::string, Count> counts_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(Extremes, LargeAndTinyInputsHoldTheBound) {
  for_all([&](const Program& program, int variant, std::uint64_t number) {
    for (const double scale : {1e-3, 1.0, 1e3}) {
      // Products and squares of 1e3 leave fp16's range.
      const DType type = number % 2 == 0 && scale <= 1 ? DType::fp16 : DType::bf16;
      check(draw(program, variant,
                 {.type = type,
                  .layout = program.natural,
                  .exact = false,
                  .scale = scale,
                  .whole_chunks = true,
                  .seed = 100 + number},
                 {140, 264, 72}),
            fmt::format("inputs of scale {}", scale));
    }
  });
}

TEST_F(Extremes, EmptySidesAreNoError) {
  for_all([&](const Program& program, int variant, std::uint64_t number) {
    for (const Shape& shape : {Shape{0, 64, 32}, Shape{5, 0, 32}, Shape{5, 64, 0}, Shape{0, 0, 0}, Shape{1, 1, 1}}) {
      check(draw(program, variant, {.layout = program.natural, .seed = 200 + number}, shape), shape.m == 0   ? "M = 0"
                                                                                              : shape.n == 0 ? "N = 0"
                                                                                              : shape.k == 0
                                                                                                  ? "K = 0"
                                                                                                  : "one element");
    }
  });
}

/// It may be smaller than the row, odd, or more than the copy engine takes.
TEST_F(Extremes, ThePitchOfASingleRowMeansNothing) {
  for_all([&](const Program& program, int variant, std::uint64_t number) {
    const Options options{.layout = program.natural, .whole_chunks = true, .everything = true, .seed = 600 + number};
    const Problem problem = draw(program, variant, options, {1, 264, 136});
    const Expected expected = expected_of(problem);
    for (const std::int64_t pitch : {std::int64_t{1}, (std::int64_t{1} << 45) + 1}) {
      std::string failures;
      for (const Route route : kRoutes) {
        for (Id id = 0; id < static_cast<Id>(problem.slots.size()); ++id) {
          const auto change = [pitch](Matrix& x) { x.pitch = x.rows == 1 ? pitch : x.pitch; };
          const Spoil spoil{.id = id, .matrix = change, .vector = [](Vector&) {}};
          Execution run(problem, route);
          run.reset(stream().get());
          run.call(stream().get(), &spoil);
          run.fetch(stream().get());
          const std::string fault = run.fault();
          failures += fault.empty() ? compare(problem, run.values(), expected) : fault;
        }
      }
      count(failures, "a single row of any pitch");
    }
  });
}

/// One value that is no number, or infinite, in an operand, or in each of the matrices that the epilogue reads.
TEST_F(Extremes, InfinitiesAndNaNPropagateAsInFp64) {
  constexpr const char* kPrograms[] = {"gemm",
                                       "gemm_residual",
                                       "gemm_norm",
                                       "gemm_norm_glu",
                                       "gemm_rms_backward",
                                       "gemm_glu_backward",
                                       "gemm_activation_backward",
                                       "embedding",
                                       "rope_backward",
                                       "gemm_norm_rope",
                                       "gemm_norm_rotate",
                                       "gemm_norm_qknorm_rope",
                                       "qknorm_rope_backward",
                                       "cast",
                                       "gemm_layernorm_backward",
                                       "gemm_lse",
                                       "linear_cross_entropy",
                                       "cross_entropy_backward"};
  std::uint64_t seed = 300;
  for (const char* name : kPrograms) {
    const Program& program = program_of(name);
    for (int variant = 0; variant < program.variants; ++variant) {
      for (const double value : {kInfinity, -kInfinity, kNan}) {
        const Options options{.layout = program.natural, .exact = false, .whole_chunks = true, .seed = ++seed};
        Problem problem = draw(program, variant, options, {70, 136, 40});
        problem.name += " with " + std::to_string(value);
        Random random(seed);
        for (Slot& s : problem.slots) {
          const bool matrix = s.values.rows > 1 && s.values.cols > 1 && (s.kind == Kind::operand || s.name == "in");
          if (!matrix || random.integer(0, 1) == 0) continue;
          s.values(random.integer(0, s.values.rows - 1), random.integer(0, s.values.cols - 1)) = value;
        }
        check(problem, std::isnan(value) ? "NaN" : "infinite values");
      }
    }
  }
}

// ---- logits

struct LossCall {
  Problem problem;
  Id find(const std::string& name) const {
    for (std::size_t i = 0; i < problem.slots.size(); ++i)
      if (problem.slots[i].name == name) return static_cast<Id>(i);
    throw std::logic_error("no argument " + name);
  }
  Mat& values(const std::string& name) { return problem.slots[static_cast<std::size_t>(find(name))].values; }
};

/// Batches in which all logits of a row are -inf, or all but one, with an ignored target among them: lse -inf, the
/// logit itself, and a loss of 0.
TEST_F(Extremes, RowsOfMinusInfinityHaveTheirLogSumExp) {
  const Program& program = program_of("gemm_lse");
  for (std::uint64_t seed = 400; seed < 440; ++seed) {
    // With K = 8 and a of one 1 in column 0 of each row, the logits are column 0 of b; b = -inf masks a column.
    LossCall call{draw(program, static_cast<int>(seed / 2 % 2),
                       {.layout = Layout::nt, .whole_chunks = true, .everything = true, .seed = seed}, {9, 264, 8})};
    Mat &a = call.values("a"), &b = call.values("b");
    a = Mat(9, 8);
    for (std::int64_t m = 0; m < 9; ++m) a(m, 0) = 1;
    // Anywhere, or among the few columns of the last tile.
    const auto finite = static_cast<std::int64_t>(seed % 8 < 4 ? seed * 37 % 264 : 256 + seed % 8);
    for (std::int64_t n = 0; n < 264; ++n) {
      for (std::int64_t k = 1; k < 8; ++k) b(n, k) = 1;
      b(n, 0) = seed % 2 == 0 || n != finite ? -kInfinity : 3;
    }
    Mat& target = call.values("target");
    target = Mat(9, 1, static_cast<double>(finite));
    target(2, 0) = -100;
    check(call.problem, seed % 2 == 0 ? "logits that are all -inf" : "one finite logit");
  }
}

/// lse is that of the logits in memory, to fp32's precision, whatever they were before they were rounded.
TEST_F(Extremes, StoredLogitsAreThoseOfTheirLogSumExp) {
  for (int variant = 0; variant < 2; ++variant) {
    int same = 0;  // those with a transform that does nothing
    for (std::uint64_t seed = 460; seed < 480; ++seed) {
      const LossCall call{draw(program_of("gemm_lse"), variant,
                               {.exact = false, .whole_chunks = true, .everything = true, .seed = seed},
                               {70, 392, 264})};
      const auto at = [&](const char* name) { return static_cast<std::size_t>(call.find(name)); };
      for (const Route route : kRoutes) {
        Execution run(call.problem, route);
        run.once(stream().get());
        const std::vector<Mat> values = run.values();
        const Mat &z = values[at("preact")], &lse = values[at("lse")];
        if (z.v != values[at("logits")].v) continue;
        ++same;
        for (std::int64_t m = 0; m < z.rows; ++m) {
          double most = z(m, 0), total = 0;
          for (std::int64_t n = 0; n < z.cols; ++n) most = std::max(most, z(m, n));
          for (std::int64_t n = 0; n < z.cols; ++n) total += std::exp(z(m, n) - most);
          const double wanted = most + std::log(total);
          ASSERT_NEAR(lse(m, 0), wanted, 1e-5 * (1 + std::fabs(wanted))) << run.name() << ", row " << m;
        }
      }
    }
    EXPECT_GT(same, 0);
  }
}

TEST_F(Extremes, ABatchOfIgnoredTargetsHasNoLossAndNoGradient) {
  for (const char* name :
       {"gemm_lse", "linear_cross_entropy", "cross_entropy_backward", "linear_cross_entropy_backward"}) {
    const Program& program = program_of(name);
    for (int variant = 0; variant < program.variants; ++variant) {
      for (std::uint64_t seed = 450; seed < 455; ++seed) {
        LossCall call{draw(program, variant, {.everything = true, .seed = seed}, {33, 136, 16})};
        call.values("target") = Mat(33, 1, -100);
        check(call.problem, "targets that are all ignored");
      }
    }
  }
}

/// exp(l - lse) is 0 / 0 where all logits are -inf; an ignored row must get zeros all the same.
TEST_F(Extremes, AnIgnoredRowOfMinusInfinityHasNoGradient) {
  for (int variant = 0; variant < 2; ++variant) {
    for (std::uint64_t seed = 460; seed < 465; ++seed) {
      LossCall call{
          draw(program_of("cross_entropy_backward"), variant, {.everything = true, .seed = seed}, {6, 264, 8})};
      for (const Slot& s : call.problem.slots) {
        if (s.name != "preact" && s.name != "dz") continue;
        if (s.values.rows == 0) continue;
        Mat& z = call.values(s.name);
        for (std::int64_t n = 0; n < z.cols; ++n) z(3, n) = -kInfinity;
      }
      call.values("lse")(3, 0) = -kInfinity;
      call.values("target")(3, 0) = -100;
      check(call.problem, "an ignored row of -inf");
    }
  }
}

// ---- positions and indices

TEST_F(Extremes, PositionsUpTo131071AreExact) {
  constexpr std::int64_t kPositions = 131072, kDim = 64;
  Mat table(kPositions, kDim);
  {
    std::vector<float> values(static_cast<std::size_t>(kPositions * kDim));
    ops::rotary_table(MatrixOf<float>(values.data(), kPositions, kDim), 500000.0);
    for (std::size_t i = 0; i < values.size(); ++i) table.v[i] = values[i];
  }
  for (const char* name : {"gemm_norm_rope", "gemm_norm_qknorm_rope", "rope_backward"}) {
    for (std::uint64_t seed = 440;; ++seed) {
      LossCall call{draw(program_of(name), 0, {.exact = false, .whole_chunks = true, .everything = true, .seed = seed},
                         {150, 256, 64})};
      if (call.values("heads.table").cols != kDim) continue;  // heads of another width were drawn
      call.values("heads.table") = table;
      Slot& slot = call.problem.slots[static_cast<std::size_t>(call.find("heads.table"))];
      slot.rows = kPositions;
      Mat& position = call.values("heads.position");
      for (std::int64_t m = 0; m < 150; ++m) position(m, 0) = static_cast<double>(kPositions - 1 - m * m);
      position(149, 0) = 0;
      check(call.problem, "positions up to 131071");
      break;
    }
  }
}

/// Indices on the device cannot be looked at before the kernel runs. A wrong one must spoil its own row at most: NaN
/// where a value is missing, nothing where a row is to be added to.
class BadIndices : public Extremes {
 protected:
  /// `poisoned`: the output whose row must be NaN; kAll: each of them; else none need be.
  static constexpr const char* kAll = "all";
  void check_row(const char* name, int variant, const char* argument, const std::string& poisoned) {
    const Options options{.layout = program_of(name).natural, .whole_chunks = true, .everything = true, .seed = 450};
    LossCall call{draw(program_of(name), variant, options, {140, 264, 24})};
    Slot& slot = call.problem.slots[static_cast<std::size_t>(call.find(argument))];
    slot.fixed = DType::int64;
    const Problem good = call.problem;
    for (const Route route : kRoutes) {
      Execution expected(good, route);
      expected.once(stream().get());
      std::vector<Mat> of_minus_one;
      for (const double index : {-1.0, 1e6, 4294967296.0, -9e15, 9e15}) {
        call.problem = good;
        call.values(argument)(5, 0) = index;
        Execution got(call.problem, route);
        got.once(stream().get());
        EXPECT_EQ(got.fault(), "") << argument << " " << index;
        expect_only_row(call.problem, got.image(), expected.image(), poisoned);
        std::vector<Mat> values = got.values();
        if (of_minus_one.empty()) of_minus_one = std::move(values);
        else
          EXPECT_TRUE(are_same(values, of_minus_one))
              << call.problem.name << ": " << argument << " " << index << " is none";
      }
    }
  }

  static bool are_same(const std::vector<Mat>& x, const std::vector<Mat>& y) {
    const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
    for (std::size_t i = 0; i < x.size(); ++i)
      if (!std::equal(x[i].v.begin(), x[i].v.end(), y[i].v.begin(), y[i].v.end(), same)) return false;
    return true;
  }

 private:
  static void expect_only_row(const Problem& p, const Image& got, const Image& expected, const std::string& poisoned) {
    for (std::size_t i = 0; i < p.slots.size(); ++i) {
      const Slot& s = p.slots[i];
      if (!s.output || !s.by_row) continue;
      const Mat x = got.get(static_cast<int>(i)), y = expected.get(static_cast<int>(i));
      bool nan = false;
      for (std::int64_t m = 0; m < x.rows; ++m) {
        for (std::int64_t n = 0; n < x.cols; ++n) {
          if (m == 5) {
            nan = nan || std::isnan(x(m, n));
          } else {
            ASSERT_EQ(x(m, n), y(m, n)) << p.name << ": " << s.name << " row " << m << ", of another index";
          }
        }
      }
      EXPECT_TRUE(nan || (poisoned != kAll && poisoned != s.name))
          << p.name << ": " << s.name << ": row 5 has a wrong index and is not NaN";
    }
  }
};

TEST_F(BadIndices, OfTokensAndPositionsMakeTheirRowNaN) {
  check_row("embedding", 0, "token", kAll);
  check_row("embedding", 1, "token", kAll);
  for (const char* name : {"gemm_norm_rope", "gemm_norm_qknorm_rope", "rope_backward", "qknorm_rope_backward"}) {
    check_row(name, 0, "heads.position", "");
  }
}
TEST_F(BadIndices, OfTargetsMakeTheirLossNaN) {
  check_row("gemm_lse", 0, "target", "");
  check_row("linear_cross_entropy", 0, "target", "loss");
}
TEST_F(BadIndices, OfTargetsHaveNoGradient) {
  for (const char* name : {"cross_entropy_backward", "linear_cross_entropy_backward"}) {
    LossCall call{draw(program_of(name), 0, {.whole_chunks = true, .everything = true, .seed = 451}, {140, 264, 24})};
    call.problem.slots[static_cast<std::size_t>(call.find("target"))].fixed = DType::int64;
    Problem without = call.problem;
    LossCall ignored{without};
    ignored.values("target")(5, 0) = -100;
    for (const Route route : kRoutes) {
      Execution expected(ignored.problem, route);
      expected.once(stream().get());
      for (const double index : {-1.0, 264.0, 4294967296.0, -9e15}) {
        call.values("target")(5, 0) = index;
        Execution got(call.problem, route);
        got.once(stream().get());
        EXPECT_EQ(got.fault(), "") << got.name() << " " << index;
        EXPECT_TRUE(are_same(got.values(), expected.values())) << got.name() << ": target " << index << " is none";
      }
    }
  }
}
TEST_F(BadIndices, OfTokensAddToNoGradient) {
  LossCall call{draw(program_of("embedding_backward"), 0, {.whole_chunks = true, .seed = 460}, {140, 264, 24})};
  Slot& slot = call.problem.slots[static_cast<std::size_t>(call.find("token"))];
  slot.fixed = DType::int64;
  // The same as a batch in which the row is zero.
  Problem without = call.problem;
  for (Slot& s : without.slots) {
    if (s.name != "dx") continue;
    for (std::int64_t n = 0; n < s.values.cols; ++n) s.values(5, n) = 0;
  }
  const Expected expected = expected_of(without);
  for (const double index : {-1.0, 24.0, 4294967296.0, 9e15}) {
    call.values("token")(5, 0) = index;
    EXPECT_EQ(check_on_hopper(call.problem, Route::fused, expected, stream().get()), "") << index;
  }
}

}  // namespace
}  // namespace coda::test::gpu
