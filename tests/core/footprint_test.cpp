// Which views share memory: against the bytes of each, one by one.
#include "coda/core/footprint.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace coda::test {
namespace {

std::set<const void*> bytes_of(const ConstMatrix& m) {
  std::set<const void*> bytes;
  for (std::int64_t row = 0; row < m.rows; ++row) {
    const std::byte* first = static_cast<const std::byte*>(m.data) + row * m.pitch * size_of(m.dtype);
    for (std::int64_t i = 0; i < m.cols * size_of(m.dtype); ++i) bytes.insert(first + i);
  }
  return bytes;
}

/// All views of two buffers' worth of shapes, pitches and places, in pairs. Where pitches differ, views whose extents
/// meet count as overlapping, whether they do or not.
TEST(Footprint, OverlapsWhereAByteIsInBoth) {
  std::vector<float> buffer(64);
  std::vector<ConstMatrix> views;
  for (const std::int64_t offset : {0, 1, 2, 3, 6, 9, 24}) {
    for (const std::int64_t rows : {1, 2, 3}) {
      for (const std::int64_t cols : {1, 2, 4}) {
        for (const std::int64_t pitch : {4, 6}) {
          views.emplace_back(buffer.data() + offset, DType::fp32, rows, cols, pitch);
        }
      }
    }
  }
  int shared = 0, beside = 0;
  for (const ConstMatrix& a : views) {
    const auto bytes = bytes_of(a);
    for (const ConstMatrix& b : views) {
      const bool exact = a.rows == 1 || b.rows == 1 || a.pitch == b.pitch;
      bool meet = false;
      for (const void* byte : bytes_of(b)) meet = meet || bytes.contains(byte);
      const bool told = Footprint(a).overlaps(Footprint(b));
      ASSERT_TRUE(exact ? told == meet : told || !meet)
          << a.rows << "x" << a.cols << " pitch " << a.pitch << ", " << b.rows << "x" << b.cols << " pitch " << b.pitch
          << ", " << static_cast<const float*>(b.data) - static_cast<const float*>(a.data) << " apart: " << told;
      meet ? ++shared : ++beside;
    }
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(beside, 100);
}

TEST(Footprint, OfNothingOverlapsNothing) {
  float x[2] = {};
  const Footprint whole(ConstVector(x, DType::fp32, 2));
  EXPECT_TRUE(whole.overlaps(whole));
  for (const Footprint& none :
       {Footprint(ConstMatrix()), Footprint(ConstVector()), Footprint(ConstMatrix(x, DType::fp32, 0, 1)),
        Footprint(ConstMatrix(x, DType::fp32, 2, 0, 1)), Footprint(ConstVector(x, DType::fp32, 0))}) {
    EXPECT_FALSE(none.overlaps(whole));
    EXPECT_FALSE(whole.overlaps(none));
  }
}

/// What may be overwritten in place is the same elements in the same places. The pitch of one row means nothing.
TEST(Footprint, IsAnotherIfPlaceShapePitchAndTypeAre) {
  float x[12] = {};
  const ConstMatrix m(x, DType::fp32, 2, 3, 4);
  EXPECT_EQ(Footprint(m), Footprint(m));
  EXPECT_NE(Footprint(m), Footprint(ConstMatrix(x + 1, DType::fp32, 2, 3, 4)));
  EXPECT_NE(Footprint(m), Footprint(ConstMatrix(x, DType::fp32, 1, 3, 4)));
  EXPECT_NE(Footprint(m), Footprint(ConstMatrix(x, DType::fp32, 2, 2, 4)));
  EXPECT_NE(Footprint(m), Footprint(ConstMatrix(x, DType::fp32, 2, 3, 5)));
  EXPECT_NE(Footprint(m), Footprint(ConstMatrix(x, DType::int32, 2, 3, 4)));
  EXPECT_EQ(Footprint(ConstMatrix(x, DType::fp32, 1, 3, 4)), Footprint(ConstVector(x, DType::fp32, 3)));
}

}  // namespace
}  // namespace coda::test
