// The same bits on any stream and whatever the other rows of a batch. The same in every run: reruns_test.cpp.
#include <cstring>

#include "tests/gpu/device.h"
#include "tests/gpu/run.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

std::vector<unsigned char> bytes_of(Execution& e, const Stream& stream) {
  e.once(stream.get());
  return e.bytes();
}

class Bits : public OnHopper {};

TEST_F(Bits, AreTheSameOnEveryStream) {
  const Stream streams[3];
  for (const Problem& problem : one_of_each({300, 264, 136}, 20)) {
    for (const Route route : kRoutes) {
      Execution run(problem, route);
      const auto first = bytes_of(run, streams[0]);
      EXPECT_EQ(run.fault(), "");
      for (int i = 1; i < 6; ++i) {
        ASSERT_TRUE(bytes_of(run, streams[i % 3]) == first) << run.name() << ": stream " << i % 3;
      }
      run.once(nullptr);
      EXPECT_TRUE(run.bytes() == first) << run.name() << ": on the default stream";
    }
  }
}

/// Workspaces come from a pool: what a call enqueues must not meet another stream's.
TEST_F(Bits, AreTheSameWhenStreamsOverlap) {
  const Stream streams[4];
  for (const Problem& problem : one_of_each({300, 264, 136}, 50)) {
    std::vector<Execution> runs;
    for (int i = 0; i < 4; ++i) runs.emplace_back(problem, Route::ragged);
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

/// Of the fused kernels. A product that cuBLASLt computes may go another way for another number of rows.
TEST_F(Bits, OfARowDoNotDependOnTheOtherRows) {
  const std::int64_t rows = small_only() ? 300 : 4096;
  const Stream stream;
  for (const Program& program : programs()) {
    if (!program.rows_are_alone) continue;
    for (int variant = 0; variant < program.variants; ++variant) {
      const Options options{
          .layout = program.natural, .exact = false, .whole_chunks = true, .everything = true, .seed = 60};
      const Problem problem = draw(program, variant, options, {rows, 264, 72});
      for (int config = 0; config < kConfigurations; ++config) {
        const Route route(Route::fused, config);
        Execution whole(problem, route);
        whole.once(stream.get());
        if (program.product && !whole.is_fused(stream)) continue;
        for (const std::int64_t count : {1, 2, 3, 16, 127, 128, 129, 1000}) {
          for (const std::int64_t first : {std::int64_t{0}, rows / 2 + 1, rows - count}) {
            if (first < 0 || first + count > rows) continue;
            Execution part(problem.rows(first, count), route);
            part.once(stream.get());
            expect_rows(part, whole, first);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

/// Up to 64 rows K is split in as many parts, however many they are.
TEST_F(Bits, OfARowAreThoseOfAFullBatchOfFewRows) {
  const Stream stream;
  for (const Program& program : programs()) {
    if (!program.rows_are_alone || !program.product) continue;
    for (int variant = 0; variant < program.variants; ++variant) {
      const Options options{
          .layout = program.natural, .exact = false, .whole_chunks = true, .everything = true, .seed = 61};
      const Problem problem = draw(program, variant, options, {64, 264, 4104});
      for (int config = 0; config < kConfigurations; ++config) {
        const Route route(Route::fused, config);
        Execution whole(problem, route);
        whole.once(stream.get());
        if (!whole.is_fused(stream)) continue;
        for (const std::int64_t count : {1, 2, 8, 9, 16, 33, 63}) {
          for (const std::int64_t first : {std::int64_t{0}, 64 - count}) {
            Execution part(problem.rows(first, count), route);
            part.once(stream.get());
            expect_rows(part, whole, first);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace coda::test::gpu
