// Several GPUs of one kind: each gives the same bits, alone and beside the others, and none takes another's memory.
#include <thread>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"

namespace coda::test::gpu {
namespace {

class Devices : public OnHopper {
 protected:
  void SetUp() override {
    OnHopper::SetUp();
    if (IsSkipped()) return;
    const std::string name = sm90::device_info().name;
    for (int number = 0; number < device_count(); ++number) {
      const CurrentDevice device(number);
      if (sm90::device_info().name == name) alike_.push_back(number);
    }
    if (alike_.size() < 2) GTEST_SKIP() << "one " << name << " alone";
  }
  std::vector<int> alike_;
};

struct Result {
  std::vector<unsigned char> bytes;
  std::string fault;
};
/// On a stream, with memory, of that device.
Result result_on(int number, const Problem& problem, Route route) {
  const CurrentDevice device(number);
  const Stream stream;
  Execution run(problem, route);
  run.once(stream.get());
  return {run.bytes(), run.fault()};
}

TEST_F(Devices, GiveTheSameBitsInTurn) {
  for (const Problem& problem : one_of_each({300, 264, 136}, 20)) {
    for (const Route route : kRoutes) {
      const Result first = result_on(alike_[0], problem, route);
      EXPECT_EQ(first.fault, "") << problem.name << " " << name_of(route);
      for (const int number : alike_) {
        ASSERT_TRUE(result_on(number, problem, route).bytes == first.bytes)
            << problem.name << " " << name_of(route) << ": device " << number;
      }
    }
  }
}

TEST_F(Devices, GiveTheSameBitsAtTheSameTime) {
  const std::vector<Problem> problems = one_of_each({300, 264, 136}, 50);
  std::vector<std::vector<Result>> results(alike_.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < alike_.size(); ++i) {
    threads.emplace_back([&, i] {
      for (const Problem& problem : problems) {
        try {
          results[i].push_back(result_on(alike_[i], problem, Route::automatic));
        } catch (const std::exception& e) {
          results[i].push_back({{}, e.what()});
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < alike_.size(); ++i) {
    for (std::size_t p = 0; p < problems.size(); ++p) {
      EXPECT_EQ(results[i][p].fault, "") << problems[p].name << ": device " << alike_[i];
      EXPECT_TRUE(results[i][p].bytes == results[0][p].bytes) << problems[p].name << ": device " << alike_[i];
    }
  }
}

TEST_F(Devices, RefuseEachOthersMemory) {
  constexpr std::size_t kBytes = 1 << 20;
  sm90::DeviceBuffer foreign;
  {
    const CurrentDevice device(alike_[1]);
    foreign = sm90::DeviceBuffer(kBytes);
  }
  const CurrentDevice device(alike_[0]);
  const Stream stream;
  const std::string expected = "expected memory of the device, got memory of device " + std::to_string(alike_[1]) +
                               ", not of the current one, " + std::to_string(alike_[0]);
  for (const Problem& problem : one_of_each({140, 136, 24}, 7)) {
    Execution run(problem);
    run.reset(stream.get());
    for (Id id = 0; id < std::ssize(problem.slots); ++id) {
      const Spoil elsewhere{id, [&](Matrix& x) { x.data = foreign.data(); },
                            [&](Vector& x) { x.data = foreign.data(); }};
      std::string text = "no error";
      try {
        run.call(stream.get(), &elsewhere);
      } catch (const Error& e) {
        text = e.what();
      }
      EXPECT_NE(text.find(expected), std::string::npos)
          << problem.name << ": " << problem.slot(id).name << ": " << text;
    }
  }
  sm90::synchronize();
}

}  // namespace
}  // namespace coda::test::gpu
