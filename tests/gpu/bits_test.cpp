// The same bits whatever the run, the stream, the graph, the load of the chip, and the other rows of a batch.
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

/// One problem of each variant, alternately of each type.
std::vector<Problem> one_of_each(const Shape& shape, std::uint64_t seed) {
  std::vector<Problem> all;
  for (const Program& program : programs()) {
    for (int variant = 0; variant < program.variants; ++variant) {
      const Options options{.type = ++seed % 2 == 0 ? DType::bf16 : DType::fp16,
                            .layout = program.natural,
                            .exact = false,
                            .whole_chunks = true,
                            .everything = true,
                            .seed = seed};
      all.push_back(draw(program, variant, options, shape));
    }
  }
  return all;
}

std::vector<unsigned char> bytes_of(Execution& e, const Stream& stream) {
  e.once(stream.get());
  return e.bytes();
}

/// Keeps the chip busy from construction to destruction, with products on a stream of their own.
class Load {
 public:
  Load() : thread_([this] { run(); }) {
    while (!started_) std::this_thread::yield();
  }
  ~Load() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    constexpr std::int64_t kSize = 2048;
    constexpr std::size_t kBytes = kSize * kSize * 2;
    const Stream stream;
    sm90::DeviceBuffer a(kBytes), b(kBytes), out(kBytes);
    a.fill(0x3c), b.fill(0x3c);
    const auto matrix = [&](const sm90::DeviceBuffer& x) { return Matrix(x.data(), DType::bf16, kSize, kSize); };
    while (!stop_) {
      for (int i = 0; i < 50; ++i) {
        ops::gemm({.a = matrix(a), .b = matrix(b), .out = matrix(out), .on = {ops::Backend::sm90, stream.get()}});
      }
      started_ = true;
      stream.wait();
    }
  }

  std::atomic<bool> stop_{false}, started_{false};
  std::thread thread_;
};

// The first in this program: nothing has been called in the process before.
class FirstCalls : public OnHopper {};
class Bits : public OnHopper {};

TEST_F(FirstCalls, MayBeCapturedInAGraph) {
  const Stream stream;
  for (const Problem& problem : one_of_each({300, 264, 136}, 10)) {
    for (const Placement placement : {Placement::aligned, Placement::ragged}) {
      Execution run(problem, ops::Backend::sm90, problem.type, placement);
      run.reset(stream.get());
      try {
        const Graph graph(stream, [&] { run.call(stream.get()); });
        graph.launch(stream);
      } catch (const Error& e) {
        ADD_FAILURE() << problem.name << ": first call inside of a capture: " << e.what();
        continue;
      }
      run.fetch(stream.get());
      EXPECT_EQ(run.fault(), "");
      const auto captured = run.bytes();
      EXPECT_TRUE(bytes_of(run, stream) == captured) << problem.name << ": other bits outside of a graph";
    }
  }
}

TEST_F(Bits, AreTheSameInEveryRunOnEveryStream) {
  const int runs = small_only() ? 2 : 20;
  const Stream streams[3];
  for (const Problem& problem : one_of_each({300, 264, 136}, 20)) {
    for (const Placement placement : {Placement::aligned, Placement::ragged}) {
      Execution run(problem, ops::Backend::sm90, problem.type, placement);
      const auto first = bytes_of(run, streams[0]);
      EXPECT_EQ(run.fault(), "");
      for (int i = 1; i < runs; ++i) {
        ASSERT_TRUE(bytes_of(run, streams[i % 3]) == first) << problem.name << ": run " << i;
      }
      run.once(nullptr);
      EXPECT_TRUE(run.bytes() == first) << problem.name << ": on the default stream";
    }
  }
}

TEST_F(Bits, AreTheSameWhileOtherKernelsRun) {
  if (small_only()) GTEST_SKIP() << "CODA_TEST_SMALL is set";
  const Stream stream;
  std::vector<Execution> runs;
  std::vector<std::vector<unsigned char>> idle;
  for (const Problem& problem : one_of_each({700, 520, 328}, 30)) {
    runs.emplace_back(problem, ops::Backend::sm90, problem.type);
    idle.push_back(bytes_of(runs.back(), stream));
  }
  const Load load;
  for (int i = 0; i < 20; ++i) {
    for (std::size_t p = 0; p < runs.size(); ++p) {
      ASSERT_TRUE(bytes_of(runs[p], stream) == idle[p]) << runs[p].problem().name << ": run " << i << " under load";
    }
  }
}

TEST_F(Bits, AreTheSameInEveryReplayOfAGraph) {
  const int replays = small_only() ? 2 : 100;
  const Stream captured_on, stream;
  for (const Problem& problem : one_of_each({130, 264, 72}, 40)) {
    Execution run(problem, ops::Backend::sm90, problem.type);
    const auto direct = bytes_of(run, stream);
    const Graph graph(captured_on, [&] { run.call(captured_on.get()); });
    for (int i = 0; i < replays; ++i) {
      run.reset(stream.get());
      graph.launch(stream);
      run.fetch(stream.get());
      ASSERT_TRUE(run.bytes() == direct) << problem.name << ": replay " << i;
    }
  }
}

/// Workspaces come from a pool: what a call enqueues must not meet another stream's.
TEST_F(Bits, AreTheSameWhenStreamsOverlap) {
  const Stream streams[4];
  for (const Problem& problem : one_of_each({300, 264, 136}, 50)) {
    std::vector<Execution> runs;
    for (int i = 0; i < 4; ++i) runs.emplace_back(problem, ops::Backend::sm90, problem.type, Placement::ragged);
    const auto alone = bytes_of(runs[0], streams[0]);
    for (int i = 0; i < 4; ++i) runs[static_cast<std::size_t>(i)].reset(streams[i].get());
    for (int repeat = 0; repeat < 5; ++repeat) {
      // Enqueued again over their own outputs, all at once.
      for (int i = 0; i < 4; ++i) runs[static_cast<std::size_t>(i)].reset(streams[i].get());
      for (int i = 0; i < 4; ++i) runs[static_cast<std::size_t>(i)].call(streams[i].get());
      for (int i = 0; i < 4; ++i) {
        runs[static_cast<std::size_t>(i)].fetch(streams[i].get());
        ASSERT_TRUE(runs[static_cast<std::size_t>(i)].bytes() == alone) << problem.name << ": stream " << i;
      }
    }
  }
}

int kernels_of(const Execution& run, const Stream& stream) {
  return Graph(stream, [&] { run.call(stream.get()); }).kernels();
}

/// Rows [first, first + count) of every output that has a row for each row of the batch.
void expect_rows(const Execution& part, const Execution& whole, std::int64_t first) {
  for (int i = 0; i < part.image().blocks(); ++i) {
    const Slot& s = part.problem().slot(i);
    if (!s.output || !s.by_row) continue;
    const Block& block = part.image().block(i);
    const auto width = static_cast<std::size_t>(block.cols * size_of(block.type));
    for (std::int64_t m = 0; m < block.rows; ++m) {
      ASSERT_EQ(std::memcmp(part.image().row(i, m), whole.image().row(i, first + m), width), 0)
          << part.problem().name << ": " << s.name << " of row " << first + m << " has other bits in the whole batch";
    }
  }
}

/// Holds where the same kernels run. A product that cuBLASLt computes may go another way for another number of rows.
TEST_F(Bits, OfARowDoNotDependOnTheOtherRows) {
  const std::int64_t rows = small_only() ? 300 : 4096;
  const Stream stream;
  for (const Program& program : programs()) {
    if (!program.rows_are_alone) continue;
    for (int variant = 0; variant < program.variants; ++variant) {
      const Options options{
          .layout = program.natural, .exact = false, .whole_chunks = true, .everything = true, .seed = 60};
      const Problem problem = draw(program, variant, options, {rows, 264, 72});
      Execution whole(problem, ops::Backend::sm90, problem.type);
      whole.once(stream.get());
      const int kernels = kernels_of(whole, stream);
      const Execution ragged(problem, ops::Backend::sm90, problem.type, Placement::ragged);
      if (program.product && kernels_of(ragged, stream) == kernels) continue;  // it has no fused kernel
      for (const std::int64_t count : {1, 2, 3, 16, 127, 128, 129, 1000}) {
        for (const std::int64_t first : {std::int64_t{0}, rows / 2 + 1, rows - count}) {
          if (first < 0 || first + count > rows) continue;
          Execution part(problem.rows(first, count), ops::Backend::sm90, problem.type);
          if (kernels_of(part, stream) != kernels) continue;  // few rows may take the other way
          part.once(stream.get());
          expect_rows(part, whole, first);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace coda::test::gpu
