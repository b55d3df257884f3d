// Eight host threads that call whatever comes: every result has the bits of the same call made alone, no call waits for
// the device, and none takes memory of it. CODA_TEST_SECONDS says for how long (5) each thread works on one stream, and
// CODA_TEST_CALLS how many calls (10,000) it makes on each of four.
#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/gpu/device.h"
#include "tests/gpu/reruns.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

constexpr int kThreads = 8, kStreams = 4;

class Threads : public OnHopper {};

struct Work {
  Problem problem;
  Route route;
};
/// Each variant, alternately of each type, on each route in turn.
std::vector<Work> mixed_work(std::uint64_t seed, const std::vector<Shape>& shapes) {
  std::vector<Work> all;
  for (const Program& program : programs()) {
    for (int variant = 0; variant < program.variants; ++variant) {
      const Options options{.type = ++seed % 2 == 0 ? DType::bf16 : DType::fp16,
                            .layout = program.natural,
                            .exact = false,
                            .whole_chunks = seed % 3 != 0,
                            .seed = seed};
      all.push_back(
          {draw(program, variant, options, shapes[seed % shapes.size()]), kRoutes[seed % std::size(kRoutes)]});
    }
  }
  return all;
}

/// f(number) on each thread; what one throws fails the test.
template <class F>
void on_each_thread(const F& f) {
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        f(t);
      } catch (const std::exception& e) {
        failures[static_cast<std::size_t>(t)] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(failures[static_cast<std::size_t>(t)], "") << "thread " << t;
}

TEST_F(Threads, GetTheResultsOfSerialCalls) {
  const std::vector<Work> works = mixed_work(1, {{300, 264, 136}, {33, 520, 72}, {1, 136, 264}, {513, 130, 40}});
  std::vector<std::vector<unsigned char>> serial;
  for (const Work& w : works) {
    Execution run(w.problem, w.route);
    run.once();
    ASSERT_EQ(run.fault(), "");
    serial.push_back(run.bytes());
  }

  const auto seconds = std::chrono::seconds(small_only() ? 1 : setting("CODA_TEST_SECONDS", 5));
  const auto end = std::chrono::steady_clock::now() + seconds;
  std::atomic<std::int64_t> calls{0};
  on_each_thread([&](int thread) {
    const Stream stream;
    std::vector<Execution> runs;
    for (const Work& w : works) runs.emplace_back(w.problem, w.route);
    Random random(100 + static_cast<std::uint64_t>(thread));
    while (std::chrono::steady_clock::now() < end) {
      const auto i = static_cast<std::size_t>(random.integer(0, std::ssize(works) - 1));
      runs[i].reset(stream.get());
      // Several times over: a call must not need the one before it to be done.
      const bool updates = std::any_of(works[i].problem.slots.begin(), works[i].problem.slots.end(),
                                       [](const Slot& s) { return s.output && s.filled; });
      const std::int64_t times = updates ? 1 : random.integer(1, 4);
      for (std::int64_t n = 0; n < times; ++n) runs[i].call(stream.get()), ++calls;
      runs[i].fetch(stream.get());
      if (runs[i].bytes() != serial[i]) throw std::runtime_error(runs[i].name() + ": other bits than alone");
    }
  });
  EXPECT_GE(calls, kThreads);
  RecordProperty("calls", std::to_string(calls));
}

/// A thread has no context of its own until a call of CUDA's runtime needs one.
TEST_F(Threads, NeedNoCallOfCudaBefore) {
  const Stream stream;
  for (const Work& w : mixed_work(3000, {{130, 136, 72}})) {
    Execution run(w.problem, w.route);
    run.once(stream.get());
    const auto bytes = run.bytes();
    run.reset(stream.get());
    std::string failure;
    std::thread([&] {
      try {
        run.call(stream.get());
      } catch (const std::exception& e) {
        failure = e.what();
      }
    }).join();
    EXPECT_EQ(failure, "") << run.name();
    run.fetch(stream.get());
    EXPECT_TRUE(run.bytes() == bytes) << run.name() << ": other bits than on the first thread";
  }
}

/// Wide heads need shared memory by their width, in one kernel for all.
TEST_F(Threads, WithHeadsOfTheirOwnDoNotDisturbEachOther) {
  constexpr int kCalls = 3000;
  on_each_thread([&](int thread) {
    const Stream stream;
    constexpr std::int64_t kRows = 4;
    const std::int64_t dim = std::int64_t{64} << thread % 4;
    const sm90::DeviceBuffer x(static_cast<std::size_t>(kRows * dim * 4)),
        dz(static_cast<std::size_t>(kRows * dim * 4));
    const Matrix matrix(x.data(), DType::bf16, kRows, dim);
    for (int i = 0; i < kCalls; ++i) {
      ops::qknorm_rope_backward(
          {.preact = matrix,
           .dy = matrix,
           .heads = {.q = 1, .k = 0, .v = 0, .head_dim = dim, .table = Matrix(x.data(), DType::fp32, kRows, dim)},
           .q_weight = Vector(x.data(), DType::bf16, dim),
           .dz = Matrix(dz.data(), DType::bf16, kRows, dim),
           .on = {ops::Backend::sm90, stream.get()}});
    }
    stream.wait();
  });
}

/// A thread's streams, and on each the same part of the work.
class Streams {
 public:
  Streams(const std::vector<Work>& works, const std::vector<Reruns>& alone) {
    for (std::size_t s = 0; s < kStreams; ++s) {
      for (std::size_t i = s; i < works.size(); i += kStreams) {
        runs_[s].emplace_back(works[i].problem, works[i].route);
        reruns_[s].emplace_back(runs_[s].back(), streams_[s], alone[i]);
        kernels_[s].push_back(kernels_of(runs_[s].back(), streams_[s]));
      }
    }
  }
  const Stream& stream(std::size_t s) const { return streams_[s]; }
  /// Enqueues one call on stream s, and the comparison of what it leaves.
  void call(std::size_t s, std::size_t number) const {
    const std::size_t i = number % runs_[s].size();
    runs_[s][i].call(streams_[s].get());
    reruns_[s][i].compare(streams_[s]);
  }
  /// One call of each on every stream; no more than a stream takes before it makes the host wait.
  void call_each() const {
    constexpr int kFewKernels = 8;
    for (std::size_t s = 0; s < kStreams; ++s)
      for (std::size_t i = 0; i < runs_[s].size(); ++i)
        if (kernels_[s][i] <= kFewKernels) call(s, i);
  }
  void call_any(std::uint64_t calls, Random& random) const {
    for (std::uint64_t c = 0; c < calls; ++c)
      for (std::size_t s = 0; s < kStreams; ++s) call(s, random.next());
  }
  /// Waits; the first work with other results than alone.
  std::string failure() const {
    for (std::size_t s = 0; s < kStreams; ++s) {
      for (std::size_t i = 0; i < runs_[s].size(); ++i) {
        if (reruns_[s][i].differing(streams_[s]) != 0) return runs_[s][i].name() + ": other bits than alone";
      }
    }
    return {};
  }

 private:
  Stream streams_[kStreams];
  std::vector<Execution> runs_[kStreams];
  std::vector<Reruns> reruns_[kStreams];
  std::vector<int> kernels_[kStreams];
};

TEST_F(Threads, NeitherWaitNorTakeMemoryOnFourStreamsEach) {
  const std::uint64_t calls = small_only() ? 20 : setting("CODA_TEST_CALLS", 10000);
  const std::vector<Work> works = mixed_work(1000, {{130, 136, 72}, {33, 264, 40}, {1, 136, 264}, {200, 72, 136}});
  std::vector<Execution> runs;
  std::vector<Reruns> alone;
  const Stream serial;
  for (const Work& w : works) {
    Execution& run = runs.emplace_back(w.problem, w.route);
    alone.emplace_back(run, serial, [&] { run.call(serial.get()); });
    ASSERT_EQ(run.fault(), "");
  }
  std::vector<std::unique_ptr<Streams>> threads(kThreads);
  on_each_thread([&](int t) { threads[static_cast<std::size_t>(t)] = std::make_unique<Streams>(works, alone); });
  ASSERT_FALSE(HasFailure());

  const auto mine = [&](int t) -> const Streams& { return *threads[static_cast<std::size_t>(t)]; };

  // While nothing that a stream has may run, every call returns all the same: none of them waits for the device.
  on_each_thread([&](int t) { mine(t).call_each(); });  // the first calls of a thread may load what they need
  sm90::synchronize();
  {
    Gate gate;
    for (int t = 0; t < kThreads; ++t)
      for (std::size_t s = 0; s < kStreams; ++s) gate.hold(mine(t).stream(s));
    on_each_thread([&](int t) { mine(t).call_each(); });
    EXPECT_FALSE(gate.timed_out()) << "a call waited for the device";
  }

  // The pool has grown to what so many streams need at once.
  const auto enqueue = [&](std::uint64_t count, std::uint64_t seed) {
    on_each_thread([&](int t) {
      Random random(seed + static_cast<std::uint64_t>(t));
      mine(t).call_any(count, random);
      const std::string failure = mine(t).failure();
      if (!failure.empty()) throw std::runtime_error(failure);
    });
  };
  enqueue(calls / 10, 200);
  const std::size_t pool = workspace_pool_bytes();
  enqueue(calls - calls / 10, 300);
  const std::size_t grown = workspace_pool_bytes() - pool;
  EXPECT_EQ(grown, 0u) << "bytes more in the pool of workspaces, which had " << pool;
  fmt::print("threads: {} threads x {} streams x {} calls, {}, the pool of workspaces grew by {} bytes\n", kThreads,
             kStreams, calls, HasFailure() ? "FAILED" : "the bits of serial calls, none waited", grown);
}

}  // namespace
}  // namespace coda::test::gpu
