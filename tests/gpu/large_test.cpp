// Outputs of more than 2^31 elements: sampled rows, the last one among them, are exact.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "coda/backend/sm90/kernels.h"
#include "tests/gpu/device.h"
#include "tests/gpu/image.h"
#include "tests/gpu/settings.h"

namespace coda::test::gpu {
namespace {

constexpr ops::Target kHopper{ops::Backend::sm90, nullptr};
constexpr std::int64_t kM = 16384, kN = 131080, kK = 16;  // M N = 2^31 + 131072
constexpr std::int64_t kGiB = std::int64_t{1} << 30;
static_assert(kM * kN > std::int64_t{1} << 31 && kN % 8 == 0);
constexpr std::int64_t kRows[] = {0, 129, 8191, 16382, 16383};

/// Small integers, so that no sum is rounded.
double a_value(std::int64_t m, std::int64_t k) { return static_cast<double>((3 * m + 5 * k + m * k) % 3 - 1); }
double b_value(std::int64_t n, std::int64_t k) { return static_cast<double>((7 * n + 2 * k + n * k) % 5 - 2); }
double product(std::int64_t m, std::int64_t n) {
  double sum = 0;
  for (std::int64_t k = 0; k < kK; ++k) sum += a_value(m, k) * b_value(n, k);
  return sum;
}
double positive(double x) { return std::max(x, 0.0); }

/// A matrix on the device, poisoned, or filled by value(row, column). Too large for an Image, which has all of it here.
class Large {
 public:
  Large(DType type, std::int64_t rows, std::int64_t cols, std::int64_t pitch)
      : type_(type),
        rows_(rows),
        cols_(cols),
        pitch_(pitch),
        memory_(static_cast<std::size_t>(rows * pitch * size() + 2 * kGuard)) {
    memory_.fill(kPoison);
  }
  Large(DType type, std::int64_t rows, std::int64_t cols) : Large(type, rows, cols, cols) {}
  template <class F>
  Large(DType type, std::int64_t rows, std::int64_t cols, const F& value) : Large(type, rows, cols) {
    std::vector<unsigned char> host(static_cast<std::size_t>(rows * cols * size()));
    for (std::int64_t m = 0; m < rows; ++m)
      for (std::int64_t n = 0; n < cols; ++n) store_element(host.data() + (m * cols + n) * size(), type, value(m, n));
    memory_.upload(host.data(), host.size(), kGuard);
  }

  Matrix matrix() const { return {data(), type_, rows_, cols_, pitch_}; }
  Vector vector() const { return {data(), type_, rows_ * cols_}; }
  /// Its guard zones too.
  void fill(unsigned char byte) {
    memory_.fill(byte);
    guard_ = byte;
  }

  std::vector<double> row(std::int64_t m) const {
    std::vector<unsigned char> bytes(static_cast<std::size_t>(cols_ * size()));
    memory_.download(bytes.data(), bytes.size(), static_cast<std::size_t>(kGuard + m * pitch_ * size()));
    std::vector<double> values(static_cast<std::size_t>(cols_));
    for (std::int64_t n = 0; n < cols_; ++n)
      values[static_cast<std::size_t>(n)] = load_element(bytes.data() + n * size(), type_);
    return values;
  }
  double at(std::int64_t m, std::int64_t n) const {
    unsigned char bytes[8];
    const std::int64_t offset = kGuard + (m * pitch_ + n) * size();
    memory_.download(bytes, static_cast<std::size_t>(size()), static_cast<std::size_t>(offset));
    return load_element(bytes, type_);
  }
  /// Rows kRows of it against expected(row, column), and the zones round it.
  template <class F>
  void expect(const char* name, const F& expected, double relative = 0) const {
    for (const std::int64_t m : kRows) {
      const std::vector<double> values = row(m);
      for (std::int64_t n = 0; n < cols_; ++n) {
        const double x = values[static_cast<std::size_t>(n)], y = expected(m, n);
        ASSERT_TRUE(std::fabs(x - y) <= relative * std::fabs(y))
            << name << ": got " << x << ", expected " << y << " at row " << m << ", column " << n;
      }
    }
    std::vector<unsigned char> zone(static_cast<std::size_t>(kGuard));
    for (const std::size_t at : {std::size_t{0}, memory_.size() - zone.size()}) {
      memory_.download(zone.data(), zone.size(), at);
      ASSERT_TRUE(std::all_of(zone.begin(), zone.end(), [&](unsigned char byte) { return byte == guard_; }))
          << name << ": wrote to the guard zone " << (at == 0 ? "before" : "behind") << " it";
    }
  }

 private:
  std::int64_t size() const { return size_of(type_); }
  void* data() const { return static_cast<unsigned char*>(memory_.data()) + kGuard; }

  DType type_;
  std::int64_t rows_, cols_, pitch_;
  unsigned char guard_ = kPoison;
  sm90::DeviceBuffer memory_;
};

class LargeOutputs : public OnHopper {
 protected:
  void SetUp() override {
    OnHopper::SetUp();
    if (IsSkipped()) return;
    if (small_only()) GTEST_SKIP() << "CODA_TEST_SMALL is set";
    if (free_device_memory() < static_cast<std::size_t>(24 * kGiB)) GTEST_SKIP() << "less than 24 GiB are free";
    a_.emplace(DType::bf16, kM, kK, a_value);
    b_.emplace(DType::bf16, kN, kK, b_value);
    b_nn_.emplace(DType::bf16, kK, kN, [](std::int64_t k, std::int64_t n) { return b_value(n, k); });
  }
  ConstMatrix a() const { return a_->matrix(); }
  ConstMatrix b() const { return b_->matrix(); }
  ConstMatrix b_nn() const { return b_nn_->matrix(); }
  static double row_factor(std::int64_t m) { return m % 2 == 0 ? 2 : 0.5; }
  static Large rstd() {
    return {DType::fp32, kM, 1, [](std::int64_t m, std::int64_t) { return row_factor(m); }};
  }

 private:
  std::optional<Large> a_, b_, b_nn_;
};

TEST_F(LargeOutputs, OfGemm) {
  const Large bias(DType::bf16, kN, 1, [](std::int64_t n, std::int64_t) { return static_cast<double>(n % 7); });
  // The second pitch leaves no row at 16 bytes: that way has no fused kernel. Without a bias cuBLASLt does it all.
  for (const std::int64_t pitch : {kN, kN + 1}) {
    for (const bool biased : {true, false}) {
      Large out(DType::bf16, kM, kN, pitch);
      ops::gemm({.a = a(),
                 .b = b(),
                 .bias = biased ? ConstVector(bias.vector()) : ConstVector(),
                 .out = out.matrix(),
                 .on = kHopper});
      out.expect("out", [&](std::int64_t m, std::int64_t n) {
        return product(m, n) + (biased ? static_cast<double>(n % 7) : 0);
      });
    }
  }
}

// So much work that clusters keep pace with each other on any chip, in each configuration.
TEST_F(LargeOutputs, OfALongLaunch) {
  constexpr std::int64_t kLongN = 16384, kLongK = 8192;
  static_assert(sm90::keeps_pace(kM, kLongN, kLongK, 8, {.multiprocessors = 132, .memory_gbs = 4814}));
  const auto picked = [](std::int64_t m) { return m * 7919 % kLongK; };
  const auto value = [](std::int64_t n, std::int64_t k) {
    return static_cast<double>((n * 3 + k * 5 + n % 11 * k) % 17 - 8);
  };
  const Large a(DType::bf16, kM, kLongK, [&](std::int64_t m, std::int64_t k) { return k == picked(m) ? 1. : 0.; });
  const Large b(DType::bf16, kLongN, kLongK, value);
  const Large scale = rstd();
  Large out(DType::bf16, kM, kLongN);
  const int configurations = sm90::find_fused("gemm_rms")->configurations;
  for (int config = 0; config < configurations; ++config) {
    // The second launch finds what the first one left of what it counted.
    for (int launch = 0; launch < 2; ++launch) {
      SCOPED_TRACE("configuration " + std::to_string(config) + ", launch " + std::to_string(launch));
      out.fill(0xff);
      const ChosenWay chosen(sm90::Choice{.way = sm90::Way::fused, .config = config});
      ops::gemm_norm(
          {.a = a.matrix(), .b = b.matrix(), .norm = {.rstd = scale.vector()}, .out = out.matrix(), .on = kHopper});
      out.expect("out", [&](std::int64_t m, std::int64_t n) { return row_factor(m) * value(n, picked(m)); });
    }
  }
}

TEST_F(LargeOutputs, OfGemmNormGlu) {
  const Large scale = rstd();
  Large preact(DType::bf16, kM, kN), out(DType::bf16, kM, kN / 2);
  for (const Layout layout : {Layout::nt, Layout::nn}) {
    preact.fill(0xff), out.fill(0xff);
    ops::gemm_norm_glu({.a = a(),
                        .b = layout == Layout::nt ? b() : b_nn(),
                        .layout = layout,
                        .norm = {.rstd = scale.vector()},
                        .function = ops::Glu::reglu,
                        .preact = preact.matrix(),
                        .out = out.matrix(),
                        .on = kHopper});
    const auto z = [](std::int64_t m, std::int64_t n) { return row_factor(m) * product(m, n); };
    preact.expect("preact", z);
    // A product of two such values may need one bit more than bf16 has.
    out.expect("out", [&](std::int64_t m, std::int64_t n) { return positive(z(m, 2 * n)) * z(m, 2 * n + 1); }, 0x1p-8);
  }
}

TEST_F(LargeOutputs, OfGemmResidual) {
  // x is not what the copy engine stores; more than 2^32 elements lie before its last row.
  Large residual(DType::bf16, kM, kN, 2 * kN), h(DType::bf16, kM, kN);
  residual.fill(0);
  const Large sums(DType::fp32, kM, ops::tiles_n(kN, ops::Backend::sm90));
  ops::gemm_residual({.a = a(),
                      .b = b(),
                      .residual = residual.matrix(),
                      .x = residual.matrix(),
                      .h = h.matrix(),
                      .sum_sq = sums.matrix(),
                      .on = kHopper});
  residual.expect("x", product);
  h.expect("h", product);
  sums.expect("sum_sq", [](std::int64_t m, std::int64_t t) {
    double sum = 0;
    for (std::int64_t n = 128 * t; n < std::min(128 * (t + 1), kN); ++n) sum += product(m, n) * product(m, n);
    return sum;
  });
}

TEST_F(LargeOutputs, OfGemmLse) {
  Large logits(DType::bf16, kM, kN);
  const std::int64_t tiles = ops::tiles_n(kN, ops::Backend::sm90);
  const Large max(DType::fp32, kM, tiles), sum(DType::fp32, kM, tiles);
  ops::gemm_lse(
      {.a = a(), .b = b(), .logits = logits.matrix(), .max = max.matrix(), .sum = sum.matrix(), .on = kHopper});
  logits.expect("logits", product);
  max.expect("max", [](std::int64_t m, std::int64_t t) {
    double most = -1e9;
    for (std::int64_t n = 128 * t; n < std::min(128 * (t + 1), kN); ++n) most = std::max(most, product(m, n));
    return most;
  });
}

TEST_F(LargeOutputs, OfGemmGluBackward) {
  constexpr std::int64_t kHalf = kN / 2;
  const Large weight(DType::bf16, kK, kHalf, [](std::int64_t k, std::int64_t n) { return b_value(n, k); });
  Large preact(DType::bf16, kM, kN);
  preact.fill(0x40);  // 0x4040 is 3 in bf16
  ops::gemm_glu_backward({.a = a(),
                          .b = weight.matrix(),
                          .function = ops::Glu::reglu,
                          .preact = preact.matrix(),
                          .dpreact = preact.matrix(),
                          .on = kHopper});
  preact.expect("dpreact", [](std::int64_t m, std::int64_t n) { return 3 * product(m, n / 2); });
}

TEST_F(LargeOutputs, OfGemmRmsBackward) {
  const Large scale = rstd(), term(DType::fp32, kM, 1, [](std::int64_t, std::int64_t) { return 1.0; });
  Large x(DType::bf16, kM, kN);
  x.fill(0x40);
  ops::gemm_rms_backward({.a = a(),
                          .b = b_nn(),
                          .x = x.matrix(),
                          .rstd = scale.vector(),
                          .row_term = term.vector(),
                          .dx = x.matrix(),
                          .on = kHopper});
  x.expect("dx", [](std::int64_t m, std::int64_t n) { return row_factor(m) * (product(m, n) - 3 * row_factor(m)); });
}

/// `pitch`: of the matrix that the gradient is written over.
void expect_cross_entropy_backward(std::int64_t pitch) {
  Large z(DType::bf16, kM, kN, pitch);
  z.fill(0);
  const Large lse(DType::fp32, kM, 1, [](std::int64_t, std::int64_t) { return std::log(static_cast<double>(kN)); }),
      dloss(DType::fp32, kM, 1, [](std::int64_t, std::int64_t) { return 1.0; }),
      target(DType::int64, kM, 1, [](std::int64_t m, std::int64_t) { return static_cast<double>(kN - 1 - m); });
  ops::cross_entropy_backward({.preact = z.matrix(),
                               .target = target.vector(),
                               .lse = lse.vector(),
                               .dloss = dloss.vector(),
                               .dz = z.matrix(),
                               .on = kHopper});
  z.expect(
      "dz",
      [](std::int64_t m, std::int64_t n) { return 1.0 / static_cast<double>(kN) - (n == kN - 1 - m ? 1.0 : 0.0); },
      0x1p-8);
}
TEST_F(LargeOutputs, OfCrossEntropyBackward) { expect_cross_entropy_backward(kN); }
TEST_F(LargeOutputs, OfCrossEntropyBackwardInRowsThatBeginAnywhere) { expect_cross_entropy_backward(kN + 1); }

TEST_F(LargeOutputs, OfCast) {
  Large in(DType::bf16, kM, kN), out(DType::fp16, kM, kN);
  in.fill(0x40);
  ops::cast({.in = in.matrix(), .out = out.matrix(), .on = kHopper});
  out.expect("out", [](std::int64_t, std::int64_t) { return 3.0; });
}

/// Rows that begin anywhere, in single elements: the number of an element times the row's length is past 2^64.
TEST_F(LargeOutputs, OfFillHaveTheirLastElementsAndNoneBehindThem) {
  constexpr std::int64_t kFew = 5, kWide = (std::int64_t{1} << 31) + 1, kPitch = kWide + 2;
  const Large out(DType::bf16, kFew, kWide, kPitch);
  sm90::fill("fill", out.matrix(), 1.5, nullptr);
  for (std::int64_t m = 0; m < kFew; ++m) {
    EXPECT_EQ(out.at(m, 0), 1.5) << "row " << m;
    EXPECT_EQ(out.at(m, kWide - 1), 1.5) << "row " << m;
    if (m < kFew - 1) {
      EXPECT_TRUE(std::isnan(out.at(m, kWide))) << "behind row " << m << ", where poison was";
    }
  }
}

/// Columns of what is twice as wide as the product must be 32 bits, too.
TEST_F(LargeOutputs, TwiceAsWideAsTheProductAreRefusedPastThirtyTwoBits) {
  constexpr std::int64_t kWide = (std::int64_t{1} << 30) + 264, kDepth = 8;
  if (free_device_memory() < static_cast<std::size_t>(32 * kGiB)) GTEST_SKIP() << "less than 32 GiB are free";
  const Large row(DType::bf16, 1, kDepth), weight(DType::bf16, kDepth, kWide), preact(DType::bf16, 1, 2 * kWide);
  std::string text = "no error";
  try {
    ops::gemm_glu_backward({.a = row.matrix(),
                            .b = weight.matrix(),
                            .preact = preact.matrix(),
                            .dpreact = preact.matrix(),
                            .on = kHopper});
  } catch (const Error& e) {
    text = e.what();
  }
  EXPECT_NE(text.find("M, N, K: expected at most"), std::string::npos) << text;
  sm90::synchronize();
}

/// 2^31 bytes from a row to the next. `far` and `near`: the same matrix.
TEST_F(LargeOutputs, WhoseRowsLieGigabytesApart) {
  constexpr std::int64_t kRowsHere = 2, kDim = 64, kWidth = 2 * kDim, kFar = std::int64_t{1} << 30;
  const auto some = [](std::int64_t m, std::int64_t n) { return static_cast<double>((5 * m + 3 * n) % 7 - 3); };
  const Large preact(DType::bf16, kRowsHere, kWidth, some), dy(DType::bf16, kRowsHere, kWidth, some),
      weight(DType::bf16, kDim, 1, some), table(DType::fp32, kRowsHere, kDim, some);
  Large near(DType::bf16, kRowsHere, kWidth), far(DType::bf16, kRowsHere, kWidth, kFar);
  for (const Large* dz : {&near, &far}) {
    ops::qknorm_rope_backward({.preact = preact.matrix(),
                               .dy = dy.matrix(),
                               .heads = {.q = 1, .k = 1, .v = 0, .head_dim = kDim, .table = table.matrix()},
                               .q_weight = weight.vector(),
                               .k_weight = weight.vector(),
                               .dz = dz->matrix(),
                               .on = kHopper});
  }
  for (std::int64_t m = 0; m < kRowsHere; ++m) {
    const std::vector<double> expected = near.row(m), got = far.row(m);
    for (std::int64_t n = 0; n < kWidth; ++n) {
      const auto i = static_cast<std::size_t>(n);
      ASSERT_NEAR(got[i], expected[i], 0x1p-6 * std::fabs(expected[i])) << "row " << m << ", column " << n;
    }
  }
}

}  // namespace
}  // namespace coda::test::gpu
