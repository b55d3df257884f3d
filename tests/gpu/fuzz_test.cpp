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

/// A variant of a program in a layout, and a configuration of its fused kernel.
struct Form {
  Program program;
  int variant = 0;
  Layout layout = Layout::nt;
  int config = 0;
};
constexpr Layout kLayouts[] = {Layout::nt, Layout::nn, Layout::tn};

/// All of them in the layout that models run them in, or that CODA_FUZZ_VARIANT names.
std::vector<Form> all_forms() {
  std::vector<Form> all;
  for (const Program& p : programs()) {
    for (int v = 0; v < p.variants; ++v) {
      if (setting("CODA_FUZZ_VARIANT", static_cast<std::uint64_t>(v)) == static_cast<std::uint64_t>(v)) {
        all.push_back({.program = p, .variant = v, .layout = p.natural});
      }
    }
  }
  return all;
}

/// Those that have a fused kernel, in every layout and configuration that has one.
std::vector<Form> fused_forms(const Stream& stream) {
  std::vector<Form> fused;
  for (Form form : all_forms()) {
    if (!form.program.product) continue;
    for (const Layout layout : kLayouts) {
      if (layout != form.layout && !form.program.any_layout) continue;
      const Options options{.layout = layout, .whole_chunks = true, .everything = true};
      const Problem problem = draw(form.program, form.variant, options, {128, 128, 64});
      for (int config = 0; config < kConfigurations; ++config) {
        if (!Execution(problem, {Route::fused, config}).is_fused(stream)) continue;
        fused.push_back({form.program, form.variant, layout, config});
      }
    }
  }
  return fused;
}

struct Case {
  Problem problem;
  int config;
};
Case draw_case(std::uint64_t seed, const std::vector<Form>& forms, bool fused) {
  Random random(seed);
  const auto& [program, variant, layout, config] =
      forms[static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(forms.size()) - 1))];
  Options options{.type = random.integer(0, 1) == 0 ? DType::bf16 : DType::fp16, .layout = layout};
  // What has to be fused as a model has it, but for an eighth, which no fused kernel may take though all of its rows
  // are aligned; of the others a half, and a half in any layout and shape.
  options.whole_chunks = fused ? random.integer(0, 7) != 0 : random.integer(0, 1) == 0;
  if (!fused && random.integer(0, 1) == 0) options.layout = kLayouts[random.integer(0, 2)];
  options.seed = random.next();
  Shape shape{skewed(random, 4096), random.integer(1, 600), random.integer(0, 300)};
  if (shape.m > 1000) shape.n = random.integer(1, 200);  // the CPU has to keep up
  if (shape.m <= 64 && shape.k % 4 == 0) shape.k *= 8;   // enough for a kernel to split
  Problem problem = draw(program, variant, options, shape);
  problem.name = "case " + std::to_string(seed) + ": " + problem.name;
  return {std::move(problem), config};
}

TEST_F(Fuzz, HopperGivesWhatTheCpuGives) {
  const std::uint64_t cases = setting("CODA_FUZZ_CASES", small_only() ? 40 : 300);
  const std::uint64_t first = setting("CODA_FUZZ_SEED", 1);
  const Stream stream;
  const std::vector<Form> all = all_forms(), with_kernel = fused_forms(stream);
  std::uint64_t failed = 0, fused = 0, outputs = 0;
  for (std::uint64_t seed = first; seed < first + cases && failed < 20; ++seed) {
    // A half of them fused, where anything can be.
    constexpr Route::Kind kKinds[] = {Route::ragged, Route::fused, Route::unfused, Route::fused};
    const Route::Kind kind = kKinds[seed % 4];
    const bool to_fuse = kind == Route::fused && !with_kernel.empty();
    const auto drawn = [&] { return draw_case(seed, to_fuse ? with_kernel : all, to_fuse); };
    std::string failure;
    try {
      const auto [problem, config] = drawn();
      const Expected expected = expected_of(problem);
      Execution run(problem, {kind, config}, seed);
      fused += run.is_fused(stream);
      run.once(stream.get());
      failure = run.fault();
      if (failure.empty()) failure = compare(problem, run.values(), expected);
      for (const Slot& s : problem.slots) outputs += s.output;
    } catch (const Error& e) {
      failure = drawn().problem.name + ": " + e.what();
    }
    failed += !failure.empty();
    EXPECT_EQ(failure, "");
  }
  if (cases >= 100 && !with_kernel.empty()) {
    EXPECT_GE(4 * fused, cases) << "too few of the cases ran in fused kernels";
  }
  fmt::print("fuzz: {} cases, {} fused, {} outputs, {} failed, seeds {} to {}\n", cases, fused, outputs, failed, first,
             first + cases - 1);
}

}  // namespace
}  // namespace coda::test::gpu
