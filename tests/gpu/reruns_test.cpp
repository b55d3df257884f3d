// Every program in every layout, type and way, again and again: no bit differs while the chip is idle, and none while
// it is busy. CODA_RERUNS says how often (20). Prints a hash of what each leaves, so that processes can be compared,
// and scripts/gpu_test.sh --reruns does.
#include "tests/gpu/reruns.h"

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

class RepeatedCalls : public OnHopper {};

/// Keeps a part of the chip busy from construction to destruction: products on a stream of their own, which end soon
/// enough to let others in.
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
    constexpr std::int64_t kSize = 1024;
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

/// One call of a program, on each route that it has.
struct Case {
  Program program;
  int variant;
  Options options;
  Shape shape;
  bool fused_only = false;
};

std::vector<Case> all_cases() {
  // Ragged in all sides but for chunks of 16 bytes; more than one tile each way.
  constexpr Shape kShape{130, 264, 72}, kSplit{33, 264, 1544};
  std::vector<Case> cases;
  std::uint64_t seed = 5000;
  for (const Program& program : programs()) {
    for (int variant = 0; variant < program.variants; ++variant) {
      for (const Layout layout : {Layout::nt, Layout::nn, Layout::tn}) {
        if (!program.any_layout && layout != Layout::nt) continue;
        for (const DType type : {DType::bf16, DType::fp16}) {
          const Options options{.type = type,
                                .layout = layout,
                                .exact = false,
                                .whole_chunks = true,
                                .everything = type == DType::bf16,
                                .seed = ++seed};
          cases.push_back({program, variant, options, kShape});
          if (program.product) cases.push_back({program, variant, options, kSplit, true});
          // A product over nothing fills its output.
          if (program.name == std::string("gemm") && variant == 12) {
            cases.push_back({program, variant, options, {130, 264, 0}});
          }
        }
      }
    }
  }
  return cases;
}

struct Result {
  std::string name;
  std::uint64_t hash, differing;
};

/// `alone`: one thread at a time is on the device.
class Runner {
 public:
  Runner(std::uint64_t times, bool alone) : times_(times), alone_(alone) {}

  std::vector<Result> run(const Case& c, const Stream& stream) {
    std::vector<Result> results;
    const Problem problem = draw(c.program, c.variant, c.options, c.shape);
    // Each thread block has several tiles, so that they follow each other in its pipelines, and the last round of 132
    // multiprocessors is split. Exact: drawn sooner.
    Options options = c.options;
    options.exact = true;
    std::optional<Problem> large;
    for (const Route route : kRoutes) {
      if (c.fused_only && route.kind != Route::fused) continue;
      if (route.kind == Route::fused) {
        if (!Execution(problem, route).is_fused(stream)) continue;
        if (!large && !c.fused_only) large = draw(c.program, c.variant, options, {2300, 1800, 1032});
        if (large) results.push_back(run(*large, route, (times_ + 4) / 5, stream));
      }
      results.push_back(run(problem, route, times_, stream));
    }
    return results;
  }

 private:
  Result run(const Problem& problem, Route route, std::uint64_t times, const Stream& stream) {
    Execution execution(problem, route);
    std::unique_lock lock(device_, std::defer_lock);
    if (alone_) lock.lock();
    const Reruns reruns(execution, stream, [&] { execution.call(stream.get()); });
    if (const std::string fault = execution.fault(); !fault.empty()) throw std::runtime_error(fault);
    for (std::uint64_t i = 0; i < times; ++i) {
      execution.call(stream.get());
      reruns.compare(stream);
    }
    return {execution.name(), reruns.hash(), reruns.differing(stream)};
  }

  std::uint64_t times_;
  bool alone_;
  std::mutex device_;
};

/// All cases. Prints how many kernels, layouts and shapes there were, and a hash of what each left.
void rerun_all(const char* what, bool alone) {
  constexpr int kThreads = 4;
  const std::uint64_t times = small_only() ? 2 : setting("CODA_RERUNS", 20);
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<Case> cases = all_cases();
  std::vector<std::vector<Result>> results(cases.size());
  std::vector<std::string> failures(cases.size());
  Runner runner(times, alone);
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      const Stream stream;
      for (std::size_t i = next++; i < cases.size(); i = next++) {
        try {
          results[i] = runner.run(cases[i], stream);
        } catch (const std::exception& e) {
          failures[i] = e.what();
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();

  std::size_t count = 0, differing = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(failures[i], "");
    for (const Result& r : results[i]) {
      ++count, differing += r.differing != 0;
      EXPECT_EQ(r.differing, 0u) << r.name << ": other bits than in the first run";
      fmt::print("hash: {:016x} {}\n", r.hash, r.name);
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  fmt::print("reruns: {} kernels and layouts x {} {}, {} differ, {:.0f} s\n", count, times, what, differing,
             seconds.count());
}

TEST_F(RepeatedCalls, LeaveTheSameBitsWhileIdle) { rerun_all("while idle", true); }

TEST_F(RepeatedCalls, LeaveTheSameBitsUnderLoad) {
  const Load load;
  rerun_all("under load", false);
}

}  // namespace
}  // namespace coda::test::gpu
