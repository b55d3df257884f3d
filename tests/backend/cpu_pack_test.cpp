// Copies of operands in another order: every element in its place, and nothing beside.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "coda/backend/cpu/pack.h"
#include "coda/core/types.h"

namespace coda::cpu {
namespace {

/// Some bits for each place; of a number, as those of NaN may change when it is converted.
template <class T>
T element(std::int64_t r, std::int64_t c) {
  return T(static_cast<float>((7 * r + 3 * c + r * c) % 251 - 125));
}

template <class From, class To>
void expect_transposed(std::int64_t rows, std::int64_t cols, std::int64_t pitch) {
  std::vector<From> in(static_cast<std::size_t>(rows * pitch), From(1e4F));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) in[static_cast<std::size_t>(r * pitch + c)] = element<From>(r, c);
  }
  constexpr std::size_t kGuard = 64;
  const To guard(-1e4F);
  std::vector<To> out(static_cast<std::size_t>(rows * cols) + 2 * kGuard, guard);
  transpose(in.data(), rows, cols, pitch, out.data() + kGuard);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i) - static_cast<std::int64_t>(kGuard);
    const bool inside = at >= 0 && at < rows * cols;
    const To expected = inside ? To(static_cast<float>(element<From>(at % rows, at / rows))) : guard;
    ASSERT_EQ(std::memcmp(&out[i], &expected, sizeof(To)), 0)
        << rows << " x " << cols << ", pitch " << pitch << ": element " << at;
  }
}

TEST(Pack, TransposesAnyShape) {
  // Rows of the output are whole KiB, just not, and short; columns whole blocks, and ragged.
  for (const std::int64_t rows : {1, 7, 33, 255, 256, 512, 520, 1024, 1100, 2048}) {
    for (const std::int64_t cols : {1, 16, 31, 64, 77, 256}) {
      for (const std::int64_t pad : {0, 5}) {
        expect_transposed<bf16, bf16>(rows, cols, cols + pad);
        expect_transposed<float, float>(rows, cols, cols + pad);
        expect_transposed<fp16, float>(rows, cols, cols + pad);
        expect_transposed<bf16, float>(rows, cols, cols + pad);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace coda::cpu
