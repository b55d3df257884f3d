// Every variant of every program on each of its ways through Hopper: the fused kernel, and the product followed by the
// program as a kernel of its own, which moves 16 bytes at a time or single elements.
#include <map>
#include <optional>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

class Programs : public OnHopper {};

TEST_F(Programs, HoldTheBoundOnEveryRoute) {
  // Ragged in all sides but for chunks of 16 bytes; more than one tile each way.
  constexpr Shape kShapes[] = {{300, 264, 136}, {77, 392, 72}};
  const Stream stream;
  std::uint64_t seed = 1000;
  for (const Program& program : programs()) {
    for (int variant = 0; variant < program.variants; ++variant) {
      for (const DType type : {DType::bf16, DType::fp16}) {
        for (const bool exact : {false, true}) {
          if (small_only() && exact) continue;
          const Options options{
              .type = type, .layout = program.natural, .exact = exact, .whole_chunks = true, .seed = ++seed};
          const Problem problem =
              draw(program, variant, options, small_only() ? Shape{130, 136, 72} : kShapes[seed % 2]);
          const Expected expected = expected_of(problem);
          for (const Route route : kRoutes) EXPECT_EQ(check_on_hopper(problem, route, expected, stream.get()), "");
        }
      }
    }
  }
}

TEST_F(Programs, HoldTheBoundInEveryLayout) {
  const Stream stream;
  std::uint64_t seed = 2000;
  for (const Program& program : programs()) {
    if (!program.any_layout) continue;
    for (int variant = 0; variant < program.variants; ++variant) {
      for (const Layout layout : {Layout::nt, Layout::nn, Layout::tn}) {
        if (small_only() && (layout == program.natural || layout == Layout::tn)) continue;
        const DType type = ++seed % 2 == 0 ? DType::bf16 : DType::fp16;
        const Options options{.type = type, .layout = layout, .whole_chunks = true, .seed = seed};
        const Problem problem = draw(program, variant, options, {130, 136, 72});
        const Expected expected = expected_of(problem);
        for (const Route route : kRoutes) EXPECT_EQ(check_on_hopper(problem, route, expected, stream.get()), "");
      }
    }
  }
}

/// Each number of thread blocks to a tile that there is on 132 multiprocessors: three with rows for all warps, five,
/// two and four for each of several tiles of rows, six, and seven.
TEST_F(Programs, HoldTheBoundWhereKIsSplit) {
  constexpr Shape kShapes[] = {{57, 264, 1544},  {41, 136, 5128}, {200, 136, 520},
                               {130, 136, 4104}, {64, 136, 6152}, {9, 136, 7176}};
  const Stream stream;
  std::uint64_t seed = 4000;
  for (const Program& program : programs()) {
    if (!program.product) continue;
    for (int variant = 0; variant < program.variants; ++variant) {
      for (const Shape& shape : kShapes) {
        if (small_only() && shape.k > 2000) continue;
        for (const DType type : {DType::bf16, DType::fp16}) {
          const Options options{
              .type = type, .layout = program.natural, .exact = ++seed % 2 == 0, .whole_chunks = true, .seed = seed};
          const Problem problem = draw(program, variant, options, shape);
          std::optional<Expected> expected;
          for (int config = 0; config < kConfigurations; ++config) {
            const Route route(Route::fused, config);
            if (!Execution(problem, route).is_fused(stream)) continue;
            if (!expected) expected = expected_of(problem);
            EXPECT_EQ(check_on_hopper(problem, route, *expected, stream.get()), "");
          }
        }
      }
    }
  }
}

/// More than two tiles for each thread block of a fused kernel, so that they follow each other in its pipelines: with
/// twice the rows also of those whose teams multiply at once, which are none of the first configurations.
TEST_F(Programs, AreExactInManyTiles) {
  const Stream stream;
  std::uint64_t seed = 3000;
  for (const Program& program : programs()) {
    if (!program.product) continue;
    for (int variant = 0; variant < program.variants; ++variant) {
      for (int config = 0; config < kConfigurations; ++config) {
        const Route route(Route::fused, config);
        const Options options{.type = seed++ % 2 == 0 ? DType::bf16 : DType::fp16,
                              .layout = program.natural,
                              .whole_chunks = true,
                              .everything = true,
                              .seed = seed};
        if (small_only() && variant > 0) continue;
        // Drawn small first, which takes less time: few variants are fused.
        if (!Execution(draw(program, variant, options, {128, 128, 64}), route).is_fused(stream)) continue;
        const Shape shape = small_only() ? Shape{2600, 1800, 72}
                            : config > 0 ? Shape{5200, 1800, 136}
                                         : Shape{2600, 1800, 264};
        const Problem problem = draw(program, variant, options, shape);
        EXPECT_EQ(check_on_hopper(problem, route, expected_of(problem), stream.get()), "");
      }
    }
  }
}

/// Of 72 tiles to 66 clusters, or of 104, which are those of 132 multiprocessors: to each tile of the last round
/// several that help, or to each that helps several tiles.
TEST_F(Programs, AreExactWhereTheLastRoundIsSplit) {
  constexpr Shape kManyHelp{1100, 1800, 1416}, kFewHelp{1650, 1800, 3208};
  if (small_only()) GTEST_SKIP() << "no small shape is split";
  if (sm90::device_info().multiprocessors == 132) {
    ASSERT_GT(sm90::rounds_of(72, 23, 132).split.helpers, 1);
    ASSERT_GT(sm90::rounds_of(104, 51, 132).split.tiles, 1);
  }
  const Stream stream;
  std::uint64_t seed = 3500;
  for (const Program& program : programs()) {
    if (!program.product) continue;
    for (int config = 0; config < kConfigurations; ++config) {
      const Route route(Route::fused, config);
      for (int variant = 0; variant < program.variants; ++variant) {
        const Options options{.type = seed++ % 2 == 0 ? DType::bf16 : DType::fp16,
                              .layout = program.natural,
                              .whole_chunks = true,
                              .everything = true,
                              .seed = seed};
        if (!Execution(draw(program, variant, options, {128, 128, 64}), route).is_fused(stream)) continue;
        Shape shape = program.name == std::string("gemm_residual") ? kFewHelp : kManyHelp;
        if (config > 0) shape.m *= 2;  // as many tiles of those whose teams multiply at once
        const Problem problem = draw(program, variant, options, shape);
        EXPECT_EQ(check_on_hopper(problem, route, expected_of(problem), stream.get()), "");
        break;  // variants differ behind the product
      }
    }
  }
}

/// Rows of more tiles than a thread of the elementwise kernel has places for, with each choice of tiles for its blocks.
TEST_F(Programs, WithoutAProductAreRightInWideRows) {
  const Stream stream;
  std::uint64_t seed = 5000;
  for (const Program& program : programs()) {
    if (program.product) continue;
    for (int variant = 0; variant < program.variants; ++variant) {
      for (int choice = 0; choice < 5; ++choice, seed += 4) {
        const Options options{.type = choice % 2 == 0 ? DType::bf16 : DType::fp16,
                              .layout = program.natural,
                              .whole_chunks = true,
                              .everything = true,
                              .head_dim = choice < 3 ? 0 : 40,  // a tile begins anywhere in a head of 40
                              .seed = seed};
        const Problem problem = draw(program, variant, options, small_only() ? Shape{5, 9800, 8} : Shape{21, 20488, 8});
        Execution run(problem, Route::unfused, seed);  // a way that is chosen, with the tiles that the seed chooses
        run.once(stream.get());
        std::string failure = run.fault();
        if (failure.empty()) failure = compare(problem, run.values(), expected_of(problem));
        EXPECT_EQ(failure, "");
      }
    }
  }
}

/// These are what a model runs: each must be one kernel where its matrices allow it, or the speed is gone unnoticed.
TEST_F(Programs, OfAModelAreOneKernel) {
  struct Expectation {
    const char* program;
    int variant;
    Layout layout;
    int after;  // kernels of the reductions that the problem runs after it
  };
  constexpr Expectation kExpected[] = {
      {"gemm", 0, Layout::nt, 0},
      {"gemm", 0, Layout::nn, 0},
      {"gemm_residual", 0, Layout::nt, 1},
      {"gemm_residual", 1, Layout::nt, 1},
      {"gemm_norm", 0, Layout::nt, 0},
      {"gemm_norm", 6, Layout::nt, 0},
      {"gemm_norm_glu", 0, Layout::nt, 0},
      {"gemm_norm_rope", 0, Layout::nt, 0},
      {"gemm_norm_rotate", 0, Layout::nt, 0},
      {"gemm_norm_qknorm_rope", 0, Layout::nt, 0},
      {"gemm_lse", 0, Layout::nt, 1},
      {"gemm_rms_backward", 0, Layout::nn, 0},
      {"gemm_glu_backward", 0, Layout::nn, 0},
      {"gemm_activation_backward", 1, Layout::nn, 0},
  };
  std::map<std::string, Program> by_name;
  for (const Program& p : programs()) by_name[p.name] = p;
  const Stream stream;
  for (const Expectation& e : kExpected) {
    const Options options{.layout = e.layout, .whole_chunks = true, .everything = true, .seed = 5};
    // As many tiles as the chip has multiprocessors, and more: small outputs may take the other way for speed.
    const Problem problem = draw(by_name.at(e.program), e.variant, options, {2048, 2048, 256});
    for (const Route route : {Route::automatic, Route::fused, Route::unfused, Route::ragged}) {
      Execution run(problem, route);
      run.reset(stream.get());
      const int kernels = kernels_of(run, stream) - e.after;
      if (route.kind == Route::automatic || route.kind == Route::fused) {
        EXPECT_EQ(kernels, 1) << run.name();
      } else {
        EXPECT_GE(kernels, 2) << run.name();
      }
    }
  }
}

}  // namespace
}  // namespace coda::test::gpu
