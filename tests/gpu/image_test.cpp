// That an image finds what a call must not have done. On the CPU, whose calls work in the image's host memory.
#include "tests/gpu/image.h"

#include <gtest/gtest.h>

namespace coda::test::gpu {
namespace {

constexpr std::int64_t kRows = 3, kCols = 5, kPitch = 8;

/// An input and an output, both with padding.
class ImageFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    const Block block{.type = DType::bf16, .rows = kRows, .cols = kCols, .pitch = kPitch, .misalign = 2};
    Block output = block;
    output.output = true;
    in_ = image_.add(block), out_ = image_.add(output);
    image_.allocate();
    image_.set(in_, Mat(kRows, kCols, 1.0));
    image_.upload(nullptr);
  }
  /// Element `n` of row `m`, inside the matrix or not.
  void write(int block, std::int64_t m, std::int64_t n, double value = 2) {
    store_element(static_cast<unsigned char*>(image_.matrix(block).data) + 2 * (m * kPitch + n), DType::bf16, value);
  }
  void write_output() {
    for (std::int64_t m = 0; m < kRows; ++m)
      for (std::int64_t n = 0; n < kCols; ++n) write(out_, m, n);
  }
  std::string fault() {
    image_.download(nullptr);
    return image_.fault([&](int block) { return block == in_ ? "in" : "out"; });
  }

  Image image_{ops::Backend::cpu};
  int in_ = 0, out_ = 0;
};

TEST_F(ImageFaults, NoneWhereTheOutputIsWrittenAndNothingElse) {
  write_output();
  EXPECT_EQ(fault(), "");
  EXPECT_EQ(image_.get(out_).v, Mat(kRows, kCols, 2.0).v);
}

TEST_F(ImageFaults, AnElementThatIsNotWritten) {
  write_output();
  image_.poison(out_);
  image_.upload(nullptr);
  for (std::int64_t m = 0; m < kRows; ++m)
    for (std::int64_t n = 0; n < kCols; ++n)
      if (m != 1 || n != 4) write(out_, m, n);
  EXPECT_EQ(fault(), "out: row 1, column 4 was not written");
  EXPECT_EQ(image_.unwritten(out_), "row 1, column 4 was not written");
}

TEST_F(ImageFaults, AnInputThatIsWritten) {
  write_output();
  write(in_, 2, 4);
  EXPECT_EQ(fault(), "in: wrote to an input, 40 bytes from its begin");
}

TEST_F(ImageFaults, PaddingThatIsWritten) {
  write_output();
  write(out_, 0, kCols);
  EXPECT_EQ(fault(), "out: wrote to the padding of its rows, 10 bytes from its begin");
}

TEST_F(ImageFaults, GuardZonesThatAreWritten) {
  write_output();
  write(in_, 0, -kGuard / 2);
  EXPECT_EQ(fault(), "in: wrote to the guard zone before it, -4096 bytes from its begin");
  image_.upload(nullptr);
  write_output();
  write(out_, kRows - 1, kPitch + kGuard / 2 - 1);
  EXPECT_EQ(fault(), "out: wrote to the guard zone behind it, 4142 bytes from its begin");
}

}  // namespace
}  // namespace coda::test::gpu
