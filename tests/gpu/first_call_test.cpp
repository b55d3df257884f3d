// Each operation as the first call of a process, which is captured in a graph: nothing that it sets up may break the
// capture, and CODA_TEST_REPLAYS (1,000) replays have the same bits. CTest and scripts/gpu_test.sh run each of these
// tests in a process of its own.
#include "tests/gpu/device.h"
#include "tests/gpu/problem_layer.h"
#include "tests/gpu/reruns.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

struct Operation {
  std::string name;
  std::function<std::vector<Problem>()> draw;  // a problem of each variant
};
void PrintTo(const Operation& o, std::ostream* out) { *out << o.name; }

std::vector<Problem> variants_of(const Program& program) {
  std::vector<Problem> all;
  for (int variant = 0; variant < program.variants; ++variant) {
    const Options options{.type = variant % 2 == 0 ? DType::bf16 : DType::fp16,
                          .layout = program.natural,
                          .exact = false,
                          .whole_chunks = true,
                          .everything = true,
                          .seed = 6000 + static_cast<std::uint64_t>(variant)};
    all.push_back(draw(program, variant, options, {130, 264, 136}));
  }
  return all;
}
std::vector<Operation> operations() {
  std::vector<Operation> all;
  for (const Program& program : programs()) all.push_back({program.name, [=] { return variants_of(program); }});
  constexpr const char* kLayerNames[] = {"block", "block_pre", "block_post"};
  for (std::size_t i = 0; i < std::size(kLayerProblems); ++i) {
    all.push_back({kLayerNames[i], [=] {
                     std::vector<Problem> problems;
                     for (const LayerOptions& o : layer_variants()) {
                       problems.push_back(kLayerProblems[i](o, small_only() ? kRaggedLayer : kWholeLayer, {}));
                     }
                     return problems;
                   }});
  }
  return all;
}

class FirstCall : public OnHopper, public ::testing::WithParamInterface<Operation> {};

TEST_P(FirstCall, IsCapturedAndReplaysHaveItsBits) {
  const std::uint64_t replays = small_only() ? 2 : setting("CODA_TEST_REPLAYS", 1000);
  const Stream captured_on, stream;
  for (const Problem& problem : GetParam().draw()) {
    // What is new to the process on another route or in another variant, such as cuBLASLt, is captured as well.
    for (const Route route : kRoutes) {
      Execution run(problem, route);
      const Graph graph(captured_on, [&] { run.call(captured_on.get()); });
      const Reruns reruns(run, stream, [&] { graph.launch(stream); });
      EXPECT_EQ(run.fault(), "");
      for (std::uint64_t i = 1; i < replays; ++i) {
        graph.launch(stream);
        reruns.compare(stream);
      }
      EXPECT_EQ(reruns.differing(stream), 0u) << run.name() << ": a replay has other bits than the first";
      run.call(stream.get());
      reruns.compare(stream);
      EXPECT_EQ(reruns.differing(stream), 0u) << run.name() << ": other bits outside of the graph";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operations, FirstCall, ::testing::ValuesIn(operations()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace coda::test::gpu
