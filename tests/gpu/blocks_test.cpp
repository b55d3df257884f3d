// The layer calls on Hopper, forward and backward in a row: within the bound of fp64, as every program alone; no memory
// of the device taken by repeated calls. In a graph: first_call_test.cpp.
#include <algorithm>

#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/gpu/problem_layer.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

/// Not of the device: that the problems are good ones.
TEST(LayerProblems, RunOnTheCpu) {
  for (const MakeProblem make : kLayerProblems) {
    for (const LayerOptions& o : layer_variants()) {
      const Problem problem = make(o, {40, 72, 40, 4, 1, 8, 88}, {});
      Execution run(problem, ops::Backend::cpu, problem.type, Route::ragged, 3);
      run.once();
      EXPECT_EQ(run.fault(), "");
      EXPECT_EQ(compare(problem, run.values(), expected_of(problem)), "");
    }
  }
}

class Blocks : public OnHopper {};

TEST_F(Blocks, HoldTheBound) {
  const Stream stream;
  for (const MakeProblem make : kLayerProblems) {
    for (const LayerOptions& o : layer_variants()) {
      for (const LayerSizes& s : {kRaggedLayer, kWholeLayer}) {
        if (small_only() && s.m == kWholeLayer.m) continue;
        const Problem problem = make(o, s, {});
        const Expected expected = expected_of(problem);
        for (const Route route : kRoutes) {
          if (s.m == kWholeLayer.m && route.kind == Route::ragged) continue;
          EXPECT_EQ(check_on_hopper(problem, route, expected, stream.get()), "");
        }
      }
    }
  }
}

TEST_F(Blocks, HaveTheSameBitsWithTheCallersWorkspace) {
  const Stream stream;
  for (const MakeProblem make : kLayerProblems) {
    for (const bool qk_norm : {false, true}) {
      const LayerOptions o{.qk_norm = qk_norm, .seed = 7};
      const LayerSizes s = kRaggedLayer;
      const ops::LayerShape shape{.dtype = o.type,
                                  .tokens = s.m,
                                  .hidden = s.hidden,
                                  .ffn = s.ffn,
                                  .vocabulary = s.vocab,
                                  .heads = {.q = s.q, .k = s.kv, .v = s.kv, .head_dim = s.head_dim},
                                  .qk_norm = qk_norm,
                                  .label_smoothing = true,
                                  .logit_rows = 128,
                                  .backend = ops::Backend::sm90};
      const std::int64_t bytes =
          std::max({ops::block_workspace_bytes(shape), ops::block_backward_workspace_bytes(shape),
                    ops::block_post_workspace_bytes(shape), ops::block_post_backward_workspace_bytes(shape)});
      OnDevice<float> memory(1, bytes / 4);
      const Workspace workspace(static_cast<std::byte*>(memory.matrix().data), static_cast<std::size_t>(bytes));
      for (const Route route : kRoutes) {
        Execution own(make(o, s, {}), route), given(make(o, s, workspace), route);
        own.once(stream.get());
        given.once(stream.get());
        EXPECT_TRUE(own.bytes() == given.bytes()) << own.name();
        memory.fetch("workspace", false);
      }
    }
  }
}

TEST_F(Blocks, TakeNoFurtherMemoryOfTheDevice) {
  const Stream stream;
  std::vector<Execution> runs;
  for (const MakeProblem make : kLayerProblems) {
    const Problem problem = make({.qk_norm = true, .seed = 9}, small_only() ? kRaggedLayer : kWholeLayer, {});
    runs.emplace_back(problem).once(stream.get());
  }
  // Other processes may take memory meanwhile, but not every time.
  bool grows = true;
  for (int attempt = 0; attempt < 10 && grows; ++attempt) {
    const std::size_t before = free_device_memory();
    for (int i = 0; i < 50; ++i) {
      for (Execution& run : runs) run.call(stream.get());
    }
    stream.wait();
    grows = free_device_memory() < before;
  }
  EXPECT_FALSE(grows) << "50 calls took memory of the device, ten times over";
}

TEST_F(Blocks, BadCallsAreNamedAndTheNextOneWorks) {
  const Stream stream;
  sm90::DeviceBuffer tiny(256);
  const Workspace workspace(static_cast<std::byte*>(tiny.data()), tiny.size());
  for (const MakeProblem make : kLayerProblems) {
    Execution bad(make({.seed = 11}, kRaggedLayer, workspace));
    bad.reset(stream.get());
    try {
      bad.call(stream.get());
      ADD_FAILURE() << bad.problem().name << ": expected an error for a workspace of 256 bytes";
    } catch (const Error& e) {
      const std::string what = e.what();
      EXPECT_NE(what.find(": workspace: expected at least "), std::string::npos) << what;
      EXPECT_EQ(what.rfind("block", 0), 0u) << what;
    }
    bad.fetch(stream.get());
    Execution untouched(bad.problem());
    untouched.reset(stream.get());
    untouched.fetch(stream.get());
    EXPECT_TRUE(bad.bytes() == untouched.bytes()) << bad.problem().name << ": something ran before the error";
    const Problem good = make({.seed = 11}, kRaggedLayer, {});
    EXPECT_EQ(check_on_hopper(good, Route::fused, expected_of(good), stream.get()), "");
  }
}

}  // namespace
}  // namespace coda::test::gpu
