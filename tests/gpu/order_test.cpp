// Kernels of a stream are set up while those ahead of them are at work: what each reads must be what the one ahead of
// it wrote, and what it writes must not be what that one still reads.
#include <string>
#include <vector>

#include "coda/ops/ops.h"
#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/support/random.h"

namespace coda::test::gpu {
namespace {

class Order : public OnHopper {};

/// Calls that feed each other: casts, products of each kind, the reductions between them.
class Chain {
 public:
  explicit Chain(std::int64_t rows) : random_(static_cast<std::uint64_t>(rows)), rows_(rows) {}

  /// Enqueues all of them; `each` comes behind each.
  template <class F>
  void run(void* stream, const F& each) {
    const ops::Target on{ops::Backend::sm90, stream};
    ops::cast({.in = in_.matrix(), .out = first_.matrix(), .on = on}), each();
    ops::cast({.in = first_.matrix(), .out = second_.matrix(), .on = on}), each();
    ops::gemm_residual({.a = second_.matrix(),
                        .b = square_.matrix(),
                        .residual = first_.matrix(),
                        .x = x_.matrix(),
                        .sum_sq = sums_.matrix(),
                        .on = on}),
        each();
    ops::rms_finalize({.sum_sq = sums_.matrix(), .n = kWidth, .rstd = rstd_.vector(), .on = on}), each();
    ops::gemm_norm_glu({.a = x_.matrix(),
                        .b = wide_.matrix(),
                        .norm = {.rstd = rstd_.vector()},
                        .preact = preact_.matrix(),
                        .out = y_.matrix(),
                        .on = on}),
        each();
    // By cuBLASLt, whose kernels wait as kernels always do.
    ops::gemm({.a = y_.matrix(), .b = square_.matrix(), .out = second_.matrix(), .on = on}), each();
    ops::gemm_glu_backward({.a = second_.matrix(),
                            .b = square_.matrix(),
                            .preact = preact_.matrix(),
                            .dpreact = dpreact_.matrix(),
                            .on = on}),
        each();
    ops::cast({.in = dpreact_.matrix(), .out = preact_.matrix(), .on = on}), each();
    // Over what the first ones read.
    ops::cast({.in = y_.matrix(), .out = first_.matrix(), .on = on}), each();
  }
  void poison() {
    for (OnDevice<bf16>* x : {&first_, &second_, &x_, &preact_, &y_, &dpreact_}) x->poison();
    sums_.poison(), rstd_.poison();
  }
  std::vector<std::vector<unsigned char>> bits() const {
    std::vector<std::vector<unsigned char>> all;
    for (const OnDevice<bf16>* x : {&first_, &second_, &x_, &preact_, &y_, &dpreact_}) all.push_back(x->bits());
    return all;
  }

 private:
  static constexpr std::int64_t kWidth = 1024;
  OnDevice<bf16> matrix(std::int64_t rows, std::int64_t cols, double scale) {
    return OnDevice<bf16>(normal_mat(random_, rows, cols, scale, DType::bf16));
  }

  Random random_;
  std::int64_t rows_;
  OnDevice<bf16> in_ = matrix(rows_, kWidth, 1), square_ = matrix(kWidth, kWidth, 0.03),
                 wide_ = matrix(2 * kWidth, kWidth, 0.03);
  OnDevice<bf16> first_{rows_, kWidth}, second_{rows_, kWidth}, x_{rows_, kWidth}, preact_{rows_, 2 * kWidth},
      y_{rows_, kWidth}, dpreact_{rows_, 2 * kWidth};
  OnDevice<float> sums_{rows_, ops::tiles_n(kWidth, ops::Backend::sm90)}, rstd_{1, rows_};
};

TEST_F(Order, OfCallsHoldsWithoutWaiting) {
  const Stream stream;
  for (const std::int64_t rows : {16, 300, 2500, 5000, 20000}) {
    for (const auto way : {sm90::Way::automatic, sm90::Way::fused, sm90::Way::unfused}) {
      const ChosenWay chosen(way);
      Chain chain(rows);
      chain.run(stream.get(), [&] { stream.wait(); });
      const auto expected = chain.bits();
      for (int repeat = 0; repeat < 4; ++repeat) {
        chain.poison();
        chain.run(stream.get(), [] {});
        ASSERT_TRUE(chain.bits() == expected) << rows << " rows, " << sm90::name_of(way);
      }
      chain.poison();
      Graph(stream, [&] { chain.run(stream.get(), [] {}); }).launch(stream);
      ASSERT_TRUE(chain.bits() == expected) << rows << " rows, " << sm90::name_of(way) << ", in a graph";
    }
  }
}

}  // namespace
}  // namespace coda::test::gpu
