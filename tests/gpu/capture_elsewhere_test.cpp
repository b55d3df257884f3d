// Somebody captures a stream in global mode, as PyTorch does, while calls run on another one: neither may notice.
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "coda/backend/sm90/kernels.h"
#include "coda/backend/sm90/workspace.h"
#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/gpu/problem_layer.h"
#include "tests/gpu/run.h"

namespace coda::test::gpu {
namespace {

using CaptureElsewhere = OnHopper;

/// A stream to capture.
class Beside {
 public:
  /// Runs `work` meanwhile: in the thread that captures, and in another one.
  void run(const std::string& name, const std::function<void()>& work) {
    for (const bool another_thread : {false, true}) {
      SCOPED_TRACE(name + (another_thread ? ", in another thread" : ", in the thread that captures"));
      EXPECT_NO_THROW({
        const Graph graph(captured_, [&] {
          another_thread ? std::async(std::launch::async, work).get() : work();
          sm90::fill("fill", flag_.matrix(), 1, captured_.get());
        });
        EXPECT_EQ(graph.kernels(), 1) << "what ran on another stream is in the graph";
      });
    }
  }
  void run(const Problem& problem, const Stream& stream) {
    for (const Route route : {Route(Route::automatic), Route(Route::unfused), Route(Route::ragged)}) {
      Execution execution(problem, route);
      execution.reset(stream.get());
      run(execution.name(), [&] { execution.call(stream.get()); });
      execution.fetch(stream.get());
      EXPECT_EQ(execution.fault(), "") << execution.name();
    }
  }

 private:
  Stream captured_;
  OnDevice<float> flag_{1, 1};
};

TEST_F(CaptureElsewhere, IsNotBrokenByAnyCall) {
  Beside beside;
  const Stream stream;
  // Sums over columns and heads, and gradients of embeddings, take memory for many rows only.
  for (const Shape& shape : {Shape{130, 264, 136}, Shape{17000, 16, 16}})
    for (const Problem& problem : one_of_each(shape, 6200)) beside.run(problem, stream);
  for (const MakeProblem make : kLayerProblems) beside.run(make({.qk_norm = true}, kRaggedLayer, {}), stream);
}

TEST_F(CaptureElsewhere, IsNotBrokenByMemoryOfAKernelOrWhatIsGivenBackLater) {
  Beside beside;
  for (int i = 0; i < sm90::Workspace::kStreams + 2; ++i) {
    const Stream stream;
    beside.run("memory of a kernel", [&] { sm90::Workspace::of_kernel(4096, stream.get(), "test"); });
  }
  const Stream stream;
  std::optional<sm90::Workspace> earlier(std::in_place, 1 << 20, stream.get(), "test");
  beside.run("memory from before", [&] {
    earlier.reset();
    earlier.emplace(1 << 20, stream.get(), "test");
  });
}

}  // namespace
}  // namespace coda::test::gpu
