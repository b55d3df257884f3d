// Random calls of every program on Hopper against the CPU backend: exact inputs, any shape, layout, route and option.
// CODA_FUZZ_CASES (300) calls from seed CODA_FUZZ_SEED (1) on: a failure names its seed, and that one alone is
// CODA_FUZZ_SEED=<seed> CODA_FUZZ_CASES=1.
#include <fmt/core.h>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

class Fuzz : public OnHopper {};

/// Small more often than large: as many cases between 1 and 2 as between 2048 and 4096.
std::int64_t skewed(Random& random, std::int64_t largest) {
  std::int64_t limit = 1;
  while (limit < largest && random.integer(0, 3) != 0) limit *= 2;
  return random.integer(1, std::min(2 * limit, largest));
}

Problem draw_case(std::uint64_t seed) {
  static const std::vector<Program> all = programs();
  constexpr Layout kLayouts[] = {Layout::nt, Layout::nn, Layout::tn};
  Random random(seed);
  std::int64_t variants = 0;
  for (const Program& p : all) variants += p.variants;
  std::int64_t variant = random.integer(0, variants - 1);
  const Program* program = all.data();
  for (; variant >= program->variants; ++program) variant -= program->variants;
  variant = static_cast<std::int64_t>(setting("CODA_FUZZ_VARIANT", static_cast<std::uint64_t>(variant)));
  Options options{.type = random.integer(0, 1) == 0 ? DType::bf16 : DType::fp16, .layout = program->natural};
  // Half of the cases as a model has them, half in any layout and shape.
  options.whole_chunks = random.integer(0, 1) == 0;
  if (random.integer(0, 1) == 0) options.layout = kLayouts[random.integer(0, 2)];
  options.seed = random.next();
  Shape shape{skewed(random, 4096), random.integer(1, 600), random.integer(0, 300)};
  if (shape.m > 1000) shape.n = random.integer(1, 200);  // the CPU has to keep up
  if (shape.m <= 64 && shape.k % 4 == 0) shape.k *= 8;   // enough for a kernel to split
  Problem problem = draw(*program, static_cast<int>(variant), options, shape);
  problem.name = "case " + std::to_string(seed) + ": " + problem.name;
  return problem;
}

TEST_F(Fuzz, HopperGivesWhatTheCpuGives) {
  const std::uint64_t cases = setting("CODA_FUZZ_CASES", small_only() ? 40 : 300);
  const std::uint64_t first = setting("CODA_FUZZ_SEED", 1);
  const Stream stream;
  std::uint64_t failed = 0, fused = 0, outputs = 0;
  for (std::uint64_t seed = first; seed < first + cases && failed < 20; ++seed) {
    std::string failure;
    try {
      const Problem problem = draw_case(seed);
      // What could be fused is, as often as not.
      constexpr Route::Kind kKinds[] = {Route::ragged, Route::fused, Route::unfused, Route::fused};
      const Route route(kKinds[seed % 4], static_cast<int>(seed / 32 % kConfigurations));
      const Expected expected = expected_of(problem);
      Execution run(problem, route, seed);
      fused += run.is_fused(stream);
      run.once(stream.get());
      failure = run.fault();
      if (failure.empty()) failure = compare(problem, run.values(), expected);
      for (const Slot& s : problem.slots) outputs += s.output;
    } catch (const Error& e) {
      failure = draw_case(seed).name + ": " + e.what();
    }
    failed += !failure.empty();
    EXPECT_EQ(failure, "");
  }
  fmt::print("fuzz: {} cases, {} fused, {} outputs, {} failed, seeds {} to {}\n", cases, fused, outputs, failed, first,
             first + cases - 1);
}

}  // namespace
}  // namespace coda::test::gpu
