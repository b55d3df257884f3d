// The small kernels between the Hopper programs inside and outside of a graph. Skipped where there is no such GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "coda/backend/sm90/kernels.h"
#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

/// One call of every kernel, on outputs that all have values before.
class EveryKernel {
 public:
  EveryKernel() {
    for (OnDevice<float>* x : {&master_, &m_, &v_}) x->set(normal_mat(random_, kSize, 1, 1, DType::fp32));
    v_.set(uniform_mat(random_, kSize, 1, 0.5, 2, DType::fp32));
    keep();
  }
  /// Back to the values before the first run.
  void reset() {
    master_.set(before_[0]), m_.set(before_[1]), v_.set(before_[2]);
    table_.set(Mat(kVocabulary, kWidth, 0.25));
    norm_.set(Mat(1, 1, 1.0));
    for (OnDevice<float>* x : {&rstd_, &mean_, &lse_, &loss_, &sums_, &columns_, &heads_, &dloss_out_}) x->poison();
    cast_.poison(), filled_.poison(), weight_.poison();
  }
  void run(void* on) {
    sm90::rms_finalize("op", partial_.matrix(), kTiles * 128, 1e-5, rstd_.vector(), on);
    sm90::layernorm_finalize("op", partial_.matrix(), squares_.matrix(), kTiles * 128 - 5, 1e-5, mean_.vector(),
                             rstd_.vector(), on);
    sm90::lse_finalize("op",
                       {.max = partial_.matrix(),
                        .sum = squares_.matrix(),
                        .logit_sum = partial_.matrix(),
                        .target = target_.vector(),
                        .target_logit = logit_.vector(),
                        .label_smoothing = 0.1,
                        .z_loss = 1e-3,
                        .vocabulary = kTiles * 128,
                        .lse = lse_.vector(),
                        .loss = loss_.vector()},
                       on);
    sm90::sum_rows("op", partial_.matrix(), 0.5, sums_.vector(), on);
    sm90::sum_columns("op", partial_.matrix(), 0, columns_.vector(), on);
    sm90::sum_heads("op", partial_.matrix(), 2, 5, 12, 0, heads_.vector(), on);
    sm90::masked_dloss("op", logit_.vector(), target_.vector(), 3, kVocabulary, dloss_out_.vector(), on);
    sm90::cast("op", partial_.matrix(), cast_.matrix(), 1, on);
    sm90::fill("op", filled_.matrix(), 3, on);
    sm90::embedding_backward("op", dx_.matrix(), target_.vector(), table_.matrix(), on);
    sm90::squared_norm("op", gradient_.vector(), 1, norm_.vector(), on);
    sm90::adamw("op",
                {.master = master_.vector(),
                 .m = m_.vector(),
                 .v = v_.vector(),
                 .weight = weight_.vector(),
                 .gradient = gradient_.vector(),
                 .rate = 0.01,
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .eps = 1e-8,
                 .weight_decay = 0.1,
                 .step = 3,
                 .squared_norm = norm_.vector(),
                 .clip_norm = 1},
                on);
  }
  std::vector<std::vector<unsigned char>> bits() {
    return {rstd_.bits(),   mean_.bits(), lse_.bits(),    loss_.bits(),  sums_.bits(), columns_.bits(),
            heads_.bits(),  cast_.bits(), filled_.bits(), table_.bits(), norm_.bits(), dloss_out_.bits(),
            master_.bits(), m_.bits(),    v_.bits(),      weight_.bits()};
  }

 private:
  static constexpr std::int64_t kRows = 3000, kTiles = 70, kVocabulary = 50, kWidth = 264, kSize = 100003;
  void keep() {
    before_ = {master_.fetch("master").mat(), m_.fetch("m").mat(), v_.fetch("v").mat()};
    reset();
  }

  Random random_{7};
  OnDevice<float> partial_{normal_mat(random_, kRows, kTiles, 1, DType::fp32)},
      squares_{uniform_mat(random_, kRows, kTiles, 1, 2, DType::fp32)}, logit_ = on_device<float>(Vec(kRows, 0.5));
  OnDevice<std::int64_t> target_ = on_device<std::int64_t>(index_vec(random_targets(random_, kRows, kVocabulary, 9)));
  OnDevice<bf16> dx_{normal_mat(random_, kRows, kWidth, 1, DType::bf16)}, cast_{kRows, kTiles}, weight_{kSize, 1};
  OnDevice<float> gradient_{normal_mat(random_, kSize, 1, 1, DType::fp32)};
  OnDevice<float> rstd_{kRows, 1}, mean_{kRows, 1}, lse_{kRows, 1}, loss_{kRows, 1}, sums_{kRows, 1},
      columns_{kTiles, 1}, heads_{12, 1}, dloss_out_{kRows, 1}, table_{kVocabulary, kWidth}, master_{kSize, 1},
      m_{kSize, 1}, v_{kSize, 1};
  OnDevice<fp16> filled_{33, 100};
  OnDevice<double> norm_{1, 1};
  std::vector<Mat> before_;
};

using KernelCapture = OnHopper;

// Alone in its process, and so each kernel's first call: nothing of it may break a capture.
TEST_F(KernelCapture, of_first_calls_works_and_replays_are_bitwise_equal) {
  EveryKernel every;
  const Stream stream;
  const Graph graph(stream, [&] { every.run(stream.get()); });
  std::vector<std::vector<unsigned char>> first;
  for (int replay = 0; replay < 20; ++replay) {
    every.reset();
    graph.launch(stream);
    stream.wait();
    const auto bits = every.bits();
    if (replay == 0) first = bits;
    ASSERT_EQ(bits, first) << "replay " << replay;
  }
  for (int run = 0; run < 20; ++run) {
    every.reset();
    every.run(run % 2 == 0 ? nullptr : stream.get());
    sm90::synchronize();
    ASSERT_EQ(every.bits(), first) << "run " << run << " without a graph";
  }
}

}  // namespace
}  // namespace coda::test
