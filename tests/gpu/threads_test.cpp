// Eight host threads on streams of their own, each calling whatever comes: every result has the bits of the same call
// made alone. CODA_TEST_SECONDS says for how long (5).
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

class Threads : public OnHopper {};

std::vector<Problem> mixed_problems(std::uint64_t seed) {
  constexpr Shape kShapes[] = {{300, 264, 136}, {33, 520, 72}, {1, 136, 264}, {513, 130, 40}};
  std::vector<Problem> all;
  for (const Program& program : programs()) {
    for (int variant = 0; variant < program.variants; ++variant) {
      const Options options{.type = ++seed % 2 == 0 ? DType::bf16 : DType::fp16,
                            .layout = program.natural,
                            .exact = false,
                            .whole_chunks = seed % 3 != 0,
                            .seed = seed};
      all.push_back(draw(program, variant, options, kShapes[seed % std::size(kShapes)]));
    }
  }
  return all;
}

TEST_F(Threads, GetTheResultsOfSerialCalls) {
  constexpr int kThreads = 8;
  const std::vector<Problem> problems = mixed_problems(1);
  std::vector<std::vector<unsigned char>> serial;
  for (const Problem& p : problems) {
    Execution run(p, ops::Backend::sm90, p.type);
    run.once();
    ASSERT_EQ(run.fault(), "");
    serial.push_back(run.bytes());
  }

  const auto seconds = std::chrono::seconds(small_only() ? 1 : setting("CODA_TEST_SECONDS", 5));
  const auto end = std::chrono::steady_clock::now() + seconds;
  std::atomic<std::int64_t> calls{0};
  std::atomic<bool> failed{false};
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::string& failure = failures[static_cast<std::size_t>(t)];
      try {
        const Stream stream;
        std::vector<Execution> runs;
        for (const Problem& p : problems) runs.emplace_back(p, ops::Backend::sm90, p.type);
        Random random(100 + static_cast<std::uint64_t>(t));
        while (!failed && std::chrono::steady_clock::now() < end) {
          const auto i = static_cast<std::size_t>(random.integer(0, std::ssize(problems) - 1));
          runs[i].reset(stream.get());
          // Several times over: a call must not need the one before it to be done.
          const std::int64_t times = random.integer(1, 4);
          const bool idempotent = [&] {
            for (const Slot& s : problems[i].slots)
              if (s.output && s.filled) return false;
            return true;
          }();
          for (std::int64_t n = 0; n < (idempotent ? times : 1); ++n) runs[i].call(stream.get()), ++calls;
          runs[i].fetch(stream.get());
          if (runs[i].bytes() == serial[i]) continue;
          failure = problems[i].name + ": other bits than alone";
          failed = true;
        }
      } catch (const std::exception& e) {
        failure = e.what();
        failed = true;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(failures[static_cast<std::size_t>(t)], "") << "thread " << t;
  EXPECT_GE(calls, kThreads);
  RecordProperty("calls", std::to_string(calls));
}

}  // namespace
}  // namespace coda::test::gpu
