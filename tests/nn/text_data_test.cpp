#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "coda/nn/data.h"
#include "tests/nn/scratch.h"

namespace {

using coda::Status;
using coda::nn::Batch;
using coda::nn::DataOptions;
using coda::nn::permuted_index;
using coda::nn::TextData;
using coda::testing::expect_error;

// A text whose byte at i tells i (for sizes up to 256).
std::vector<std::uint8_t> counting(std::size_t size) {
  std::vector<std::uint8_t> text(size);
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<std::uint8_t>(i);
  return text;
}

TEST(TextData, PermutationsAreOnto) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 16, 17, 100, 1000}) {
    for (const std::uint64_t epoch : {0u, 1u, 7u}) {
      std::vector<std::int64_t> image;
      for (std::int64_t i = 0; i < size; ++i) image.push_back(permuted_index(i, size, 5, epoch));
      std::sort(image.begin(), image.end());
      for (std::int64_t i = 0; i < size; ++i) ASSERT_EQ(image[static_cast<std::size_t>(i)], i) << size;
    }
  }
  std::set<std::int64_t> firsts;
  for (std::uint64_t epoch = 0; epoch < 64; ++epoch) firsts.insert(permuted_index(0, 1000, 5, epoch));
  EXPECT_GT(firsts.size(), 50u) << "epochs should differ in their order";
}

// A run that an older version began goes on with the same text.
TEST(TextData, TheOrderOfASeedStaysWhatItWas) {
  const std::vector<std::int64_t> sixteen{0, 3, 14, 5, 6, 4, 1, 7, 15, 2, 8, 12, 10, 11, 13, 9};
  const std::vector<std::int64_t> thousand{653, 219, 826, 74, 269, 654, 604, 398};
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(permuted_index(static_cast<std::int64_t>(i), 16, 5, 0), sixteen[i]);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(permuted_index(static_cast<std::int64_t>(i), 1000, 5, 1), thousand[i]);
  const TextData data(counting(201), {.batch = 1, .seq = 10, .validation = 0, .seed = 4});
  const std::pair<std::int64_t, std::int32_t> begins[] = {{0, 172}, {1, 42}, {19, 114}, {20, 54}, {38, 57}, {39, 67}};
  for (const auto& [step, begin] : begins) EXPECT_EQ(data.next_batch(step).inputs[0], begin) << step;
}

TEST(TextData, TargetsAreTheNextByteAndStayInsideTraining) {
  const TextData data(counting(200), {.batch = 3, .seq = 7, .validation = 0.25, .seed = 3});
  EXPECT_EQ(data.train().size(), 150u);
  EXPECT_EQ(data.validation().size(), 50u);
  EXPECT_EQ(data.validation().front(), 150);
  for (std::int64_t step = 0; step < 200; ++step) {
    const Batch batch = data.next_batch(step);
    ASSERT_EQ(batch.rows, 3);
    ASSERT_EQ(batch.inputs.size(), 21u);
    for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
      ASSERT_EQ(batch.targets[i], batch.inputs[i] + 1);
      ASSERT_LT(batch.targets[i], 150);
      if (i % 7 != 0) {
        ASSERT_EQ(batch.inputs[i], batch.targets[i - 1]);
      }
    }
  }
}

TEST(TextData, TheOrderIsAFunctionOfSeedAndStep) {
  const DataOptions options{.batch = 2, .seq = 8, .validation = 0.1, .seed = 9};
  const TextData one(counting(250), options), two(counting(250), options);
  std::vector<Batch> straight;
  for (std::int64_t step = 0; step < 40; ++step) straight.push_back(one.next_batch(step));
  for (std::int64_t step = 39; step >= 0; --step) {
    EXPECT_EQ(two.next_batch(step).inputs, straight[static_cast<std::size_t>(step)].inputs);
  }
  DataOptions other = options;
  other.seed = 10;
  const TextData three(counting(250), other);
  int equal = 0;
  for (std::int64_t step = 0; step < 40; ++step) {
    equal += three.next_batch(step).inputs == straight[static_cast<std::size_t>(step)].inputs;
  }
  EXPECT_LT(equal, 5);
}

TEST(TextData, AnEpochShowsEachWindowOnce) {
  const TextData data(counting(201), {.batch = 1, .seq = 10, .validation = 0, .seed = 4});
  const std::int64_t windows = 19;  // 20 fit; one less leaves room for the phase
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<std::int32_t, int> seen;
    for (std::int64_t i = 0; i < windows; ++i) ++seen[data.next_batch(epoch * windows + i).inputs[0]];
    ASSERT_EQ(seen.size(), 19u);
    for (const auto& [start, times] : seen) {
      EXPECT_EQ(times, 1);
      EXPECT_EQ((start - seen.begin()->first) % 10, 0);
    }
  }
}

TEST(TextData, ValidationShowsEachWindowInOrder) {
  const TextData data(counting(200), {.batch = 4, .seq = 10, .validation = 0.355, .seed = 3});
  ASSERT_EQ(data.validation().size(), 71u);  // seven windows and the byte after them
  ASSERT_EQ(data.validation_batches(), 2);
  EXPECT_EQ(data.validation_batch(0).rows, 4);
  const Batch last = data.validation_batch(1);
  EXPECT_EQ(last.rows, 3);
  EXPECT_EQ(last.inputs.front(), 129 + 40);
  EXPECT_EQ(last.targets.back(), 199);
  expect_error(Status::invalid_argument, [&] { data.validation_batch(2); }, "validation batch", "got 2");
  expect_error(Status::invalid_argument, [&] { data.validation_batch(-1); }, "validation batch", "got -1");
  // A byte less: the last window has no byte after it. A part of a byte is a byte.
  const TextData shorter(counting(200), {.batch = 7, .seq = 10, .validation = 0.3451, .seed = 3});
  ASSERT_EQ(shorter.validation().size(), 70u);
  EXPECT_EQ(shorter.validation_batch(0).rows, 6);
}

TEST(TextData, ValidationHasNoEmptyBatch) {
  // As short as it may be: a window and the byte after it.
  const TextData one(counting(88), {.batch = 1, .seq = 10, .validation = 0.125, .seed = 3});
  ASSERT_EQ(one.validation().size(), 11u);
  EXPECT_EQ(one.validation_batches(), 1);
  EXPECT_EQ(one.validation_batch(0).targets.back(), 87);
  EXPECT_EQ(TextData(counting(88), {.batch = 1, .seq = 1, .validation = 0}).validation_batches(), 0);
}

TEST(TextData, TheShortestTextIsOneSequenceAndOneByte) {
  const TextData data(counting(6), {.batch = 2, .seq = 5, .validation = 0, .seed = 1});
  EXPECT_EQ(data.next_batch(123).inputs, (std::vector<std::int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
  EXPECT_EQ(data.validation_batches(), 0);
  expect_error(Status::invalid_argument, [&] { data.next_batch(-1); }, "step", "got -1");
  constexpr std::int64_t kLast = std::numeric_limits<std::int64_t>::max();
  expect_error(Status::invalid_argument, [&] { data.next_batch(kLast); }, "step", "got 9223372036854775807");
  // The last whose rows all have a number.
  EXPECT_EQ(data.next_batch(kLast / 2 - 1).inputs, data.next_batch(0).inputs);
  expect_error(Status::invalid_argument, [&] { data.next_batch(kLast / 2); }, "step", "got 4611686018427387903");
}

TEST(TextData, ReadsBytesAboveAsciiAsUnsigned) {
  coda::testing::Scratch scratch;
  const TextData data(scratch.write("text", std::string("\xff\x80\x00z", 4)), {.batch = 1, .seq = 3, .validation = 0});
  EXPECT_EQ(data.next_batch(0).inputs, (std::vector<std::int32_t>{255, 128, 0}));
  EXPECT_EQ(data.next_batch(0).targets, (std::vector<std::int32_t>{128, 0, 'z'}));
}

TEST(TextData, UnusableTextsAreNamed) {
  coda::testing::Scratch scratch;
  const auto open = [&](const std::string& name, DataOptions options) {
    return [=, &scratch] { TextData data(scratch / name, options); };
  };
  expect_error(Status::io_error, open("none.txt", {}), "none.txt", "No such file");
  scratch.write("empty.txt", "");
  expect_error(Status::invalid_argument, open("empty.txt", {}), "empty.txt", "some text");
  scratch.write("short.txt", std::string(100, 'a'));
  expect_error(Status::invalid_argument, open("short.txt", {.seq = 100, .validation = 0}), "short.txt", "101",
               "got 100");
  expect_error(Status::invalid_argument, open("short.txt", {.seq = 20, .validation = 0.1}), "validate", "got 10");
  expect_error(Status::invalid_argument, open("short.txt", {.seq = 20, .validation = 0.2}), "validate", "got 20");
  expect_error(Status::invalid_argument, open("short.txt", {.seq = 0}), "seq", "got 0");
  expect_error(Status::invalid_argument, open("short.txt", {.seq = std::int64_t{1} << 31}), "seq", "2^30");
  expect_error(Status::invalid_argument, open("short.txt", {.batch = std::int64_t{1} << 31}), "batch", "2^30");
  expect_error(Status::invalid_argument, open("short.txt", {.validation = -0.1}), "validation", "got -0.1");
  expect_error(Status::invalid_argument, open("short.txt", {.batch = -1}), "batch", "got -1");
  expect_error(Status::invalid_argument, open("short.txt", {.validation = 1.0}), "validation");
  expect_error(Status::invalid_argument, open("short.txt", {.validation = std::nan("")}), "validation");
}

}  // namespace
