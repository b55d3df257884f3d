// The fused model against the unfused one and against its own promises.
#include "coda/nn/model.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "coda/core/error.h"
#include "coda/nn/checkpoint.h"
#include "coda/nn/generate.h"
#include "coda/nn/passes.h"
#include "coda/nn/rng.h"
#include "coda/nn/trainer.h"
#include "coda/nn/unfused.h"
#include "tests/nn/scratch.h"
#include "tests/nn/tiny_model.h"
#include "tests/support/full_memory.h"

namespace coda::nn {
namespace {

using testing::lively_weights;
using testing::random_batch;
using testing::tiny_config;

/// Larger than one tile of the programs in every direction.
ModelConfig wide_config(DType dtype, bool qk_norm, bool tied) {
  ModelConfig config = tiny_config(qk_norm, tied);
  config.vocab = 300;
  config.hidden = 264;
  config.ffn = 280;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 50;
  config.dtype = dtype;
  return config;
}

Weights starting_weights(const ModelConfig& config) {
  Weights weights = make_weights(config, config.dtype);
  initialise(weights, 11);
  return weights;
}

double relative_error(const Weights& got, const Weights& expected) {
  std::vector<const HostTensor*> reference;
  for_each_tensor(expected, [&](const std::string&, const HostTensor& t) { reference.push_back(&t); });
  std::size_t number = 0;
  double worst = 0;
  for_each_tensor(got, [&](const std::string&, const HostTensor& t) {
    double error = 0, norm = 0;
    const auto a = t.values<float>(), b = reference[number++]->values<float>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
      error += difference * difference;
      norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
    }
    const double part = std::sqrt(error / norm);
    if (!(part <= worst)) worst = part;
  });
  return worst;
}

class FusedAgainstUnfused : public ::testing::TestWithParam<std::tuple<DType, bool, bool>> {};

TEST_P(FusedAgainstUnfused, LossAndGradientsAgree) {
  const auto [dtype, qk_norm, tied] = GetParam();
  const ModelConfig config = wide_config(dtype, qk_norm, tied);
  const Weights weights = starting_weights(config);
  Weights fused_gradients = make_weights(config, DType::fp32), unfused_gradients = make_weights(config, DType::fp32);
  const Batch batch = random_batch(5, 61, config.vocab, 9);
  Model fused(config, weights);
  UnfusedModel unfused(config, weights);
  const double a = fused.forward_backward(batch, fused_gradients);
  const double b = unfused.forward_backward(batch, unfused_gradients);
  const double loss_bound = dtype == DType::fp32 ? 1e-6 : 1e-3, gradient_bound = dtype == DType::fp32 ? 2e-5 : 0.03;
  EXPECT_TRUE(std::abs(a - b) <= loss_bound * b) << a << " fused, " << b << " unfused";
  const double error = relative_error(fused_gradients, unfused_gradients);
  EXPECT_TRUE(error <= gradient_bound) << "gradients: expected up to " << gradient_bound << ", got " << error;
  EXPECT_LT(fused.bytes_moved(), unfused.bytes_moved());
  EXPECT_LT(fused.bytes_held(), unfused.bytes_held());
}

INSTANTIATE_TEST_SUITE_P(Types, FusedAgainstUnfused,
                         ::testing::Combine(::testing::Values(DType::fp32, DType::bf16, DType::fp16), ::testing::Bool(),
                                            ::testing::Bool()));

std::vector<std::byte> bytes_of(const Weights& weights) {
  std::vector<std::byte> out;
  for_each_tensor(weights, [&](const std::string&, const HostTensor& t) {
    out.insert(out.end(), t.bytes().begin(), t.bytes().end());
  });
  return out;
}

TEST(Weights, BeginAsRandomNumbersOfTheirOwn) {
  const ModelConfig config = wide_config(DType::fp32, true, false);
  const Weights weights = starting_weights(config);
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
  std::vector<std::vector<float>> begins;
  for_each_tensor(weights, [&](const std::string& name, const HostTensor& tensor) {
    const auto values = tensor.values<float>();
    double square = 0;
    for (const float x : values) square += static_cast<double>(x) * static_cast<double>(x);
    const double deviation = std::sqrt(square / static_cast<double>(values.size()));
    if (tensor.shape().size() == 1) {
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float x) { return x == 1; })) << name;
      return;
    }
    const bool into_residual = name.ends_with(".out") || name.ends_with(".down");
    EXPECT_NEAR(deviation / (into_residual ? residual : 0.02), 1, 0.02) << name;
    for (const auto& other : begins) {  // up to the factor of those that write the residual stream
      EXPECT_GT(std::abs(values[0] / other[0] - values[1] / other[1]), 1e-3F) << name << " is like one before it";
    }
    begins.push_back({values[0], values[1]});
  });
  EXPECT_EQ(std::ssize(begins), 2 + 4 * config.layers);
}

/// What each call says of weights, or gradients, of another model; nothing is computed or written.
TEST(Weights, OfAnotherModelAreNamed) {
  const ModelConfig config = tiny_config(true, false);
  const Weights right = starting_weights(config);
  const auto error = [](const auto& call) {
    try {
      call();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  struct Fault {
    void (*spoil)(Weights&);
    const char* text;
  };
  constexpr Fault kFaults[] = {
      {[](Weights& w) { w.layers.pop_back(); }, ": layers: expected 2, got 1"},
      {[](Weights& w) { w.layers.push_back({}); }, ": layers: expected 2, got 3"},
      {[](Weights& w) { w.layers[1].q_norm = {}; }, ": layers.1.q_norm: expected fp64 [6], got none"},
      {[](Weights& w) { w.head = {}; }, ": head: expected fp64 [11, 12], got none"},
      {[](Weights& w) { w.layers[0].down = HostTensor(DType::fp64, {12, 9}); },
       ": layers.0.down: expected fp64 [12, 10], got fp64 [12, 9]"},
      {[](Weights& w) { w.final_norm = HostTensor(DType::bf16, {12}); },
       ": final_norm: expected fp64 [12], got bf16 [12]"},
  };
  for (const Fault& fault : kFaults) {
    Weights wrong = starting_weights(config);
    fault.spoil(wrong);
    const std::string text = fault.text;
    EXPECT_EQ(error([&] { Model(config, wrong); }), "model: weights" + text);
    EXPECT_EQ(error([&] { UnfusedModel(config, wrong); }), "unfused model: weights" + text);
    EXPECT_EQ(error([&] { Decoder(config, wrong, 4); }), "decoder: weights" + text);
    const testing::Scratch folder;
    EXPECT_EQ(error([&] { save_checkpoint(folder / "c", config, wrong, nullptr, nullptr); }),
              "checkpoint: weights" + text);
    EXPECT_FALSE(std::filesystem::exists(folder / "c"));
    const Batch batch = random_batch(1, 3, config.vocab, 1);
    EXPECT_EQ(error([&] { Model(config, right).forward_backward(batch, wrong); }), "model: gradients" + text);
    EXPECT_EQ(error([&] { UnfusedModel(config, right).forward_backward(batch, wrong); }),
              "unfused model: gradients" + text);
  }
  ModelConfig other = config;
  other.qk_norm = false;
  EXPECT_EQ(error([&] { Model(other, right); }), "model: weights: layers.0.q_norm: expected none, got fp64 [6]");
  EXPECT_NE(error([&] { Model(config, Weights()); }), "");
}

TEST(ModelPromise, BitsDoNotDependOnThreads) {
  const ModelConfig config = wide_config(DType::bf16, true, true);
  const Weights weights = starting_weights(config);
  const Batch batch = random_batch(5, 61, config.vocab, 9);
  const int before = omp_get_max_threads();
  std::vector<std::vector<std::byte>> gradients;
  std::vector<double> losses;
  for (const int threads : {1, 2, 7}) {
    omp_set_num_threads(threads);
    Weights g = make_weights(config, DType::fp32);
    Model model(config, weights);
    losses.push_back(model.forward_backward(batch, g));
    gradients.push_back(bytes_of(g));
  }
  omp_set_num_threads(before);
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_TRUE(gradients[0] == gradients[1]);
  EXPECT_TRUE(gradients[0] == gradients[2]);
}

TEST(ModelPromise, BatchesOfOtherSizesDoNotDisturbEachOther) {
  const ModelConfig config = wide_config(DType::fp32, false, false);
  const Weights weights = starting_weights(config);
  Model model(config, weights), fresh(config, weights);
  const Batch large = random_batch(5, 61, config.vocab, 9), small = random_batch(2, 61, config.vocab, 10);
  const Batch shorter = random_batch(3, 8, config.vocab, 11);
  const double expected = fresh.loss(small);
  model.loss(large);
  EXPECT_EQ(model.loss(small), expected);
  model.loss(shorter);
  EXPECT_EQ(model.loss(small), expected);
}

TEST(ModelPromise, ABatchThatMemoryHasNoRoomForDisturbsNoOther) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator ends the process";
#endif
  const ModelConfig config = wide_config(DType::fp32, false, false);
  const Weights weights = starting_weights(config);
  const Batch small = random_batch(2, 61, config.vocab, 10), large = random_batch(200, 61, config.vocab, 9);
  Model model(config, weights);
  UnfusedModel unfused(config, weights);
  for (Network* network : std::initializer_list<Network*>{&model, &unfused}) {
    const double expected = network->loss(small);
    {
      const test::FullMemory full(rlim_t{32} << 20);
      EXPECT_THROW(network->loss(large), std::bad_alloc);
      EXPECT_EQ(network->loss(small), expected);
    }
    EXPECT_EQ(network->loss(small), expected);
  }
}

TEST(ModelPromise, AccumulatedGradientsAreThoseOfTheLargerBatch) {
  const ModelConfig config = tiny_config(true, false);
  const Weights weights = lively_weights(config, DType::fp64, 5);
  const Batch whole = random_batch(4, 7, config.vocab, 9);
  Weights expected = make_weights(config, DType::fp64), got = make_weights(config, DType::fp64);
  Model model(config, weights);
  const double loss = model.forward_backward(whole, expected);
  double parts = 0;
  for (std::size_t half = 0; half < 2; ++half) {
    Batch part{2, 7, {}, {}};
    const auto first = static_cast<std::ptrdiff_t>(half * 14);
    part.inputs.assign(whole.inputs.begin() + first, whole.inputs.begin() + first + 14);
    part.targets.assign(whole.targets.begin() + first, whole.targets.begin() + first + 14);
    parts += model.forward_backward(part, got);
  }
  EXPECT_NEAR(parts, loss, 1e-12 * loss);
  std::vector<const HostTensor*> reference;
  for_each_tensor(expected, [&](const std::string&, const HostTensor& t) { reference.push_back(&t); });
  std::size_t number = 0;
  for_each_tensor(got, [&](const std::string& name, const HostTensor& t) {
    const auto a = t.values<double>(), b = reference[number++]->values<double>();
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-11 * (1 + std::abs(b[i]))) << name;
  });
}

TEST(ModelPromise, LargeVocabulariesGoThroughTheHeadInBlocksOfRows) {
  ModelConfig config = tiny_config(false, false);
  config.vocab = 17000;  // so that 256 rows of logits are held, of the 300
  config.layers = 1;
  const Weights weights = lively_weights(config, DType::fp64, 5);
  Weights fused_gradients = make_weights(config, DType::fp64), gradients = make_weights(config, DType::fp64);
  const Batch batch = random_batch(3, 100, config.vocab, 9);
  Model fused(config, weights);
  UnfusedModel unfused(config, weights);
  const double loss = unfused.forward_backward(batch, gradients);
  EXPECT_NEAR(fused.forward_backward(batch, fused_gradients), loss, 1e-11 * loss);
  const auto a = fused_gradients.final_norm.values<double>(), b = gradients.final_norm.values<double>();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-10 * (1 + std::abs(b[i])));
  const auto c = fused_gradients.head.values<double>(), d = gradients.head.values<double>();
  for (std::size_t i = 0; i < c.size(); i += 97) EXPECT_NEAR(c[i], d[i], 1e-10 * (1 + std::abs(d[i])));
}

/// Of heads, which the model calls in place or not, as it needs it.
TEST(Passes, WriteAllOfAnotherMatrixAsTheyDoInPlace) {
  constexpr std::int64_t kRows = 3, kDim = 10, kWidth = 5 * kDim;
  const auto random = [](std::uint64_t stream, const Shape& shape) {
    HostTensor tensor(DType::fp32, shape);
    const Rng rng(5, stream);
    for (std::size_t i = 0; float& x : tensor.values<float>()) x = static_cast<float>(rng.normal(i++));
    return tensor;
  };
  const HostTensor in = random(1, {kRows, kWidth}), x = random(2, {kRows, kWidth}), q = random(3, {kDim}),
                   k = random(4, {kDim});
  HostTensor table(DType::fp32, {kRows, kDim}), position(DType::int32, {kRows});
  ops::rotary_table(table.matrix(), 100);
  std::iota(position.values<std::int32_t>().begin(), position.values<std::int32_t>().end(), 0);
  const ops::Heads heads{.q = 2,
                         .k = 1,
                         .v = 2,
                         .head_dim = kDim,
                         .table = std::as_const(table).matrix(),
                         .position = std::as_const(position).vector()};
  const auto expect_same = [&](const char* name, const auto& run) {
    HostTensor same = in.clone(), other = in.clone();
    for (float& value : other.values<float>()) value = NAN;
    run(std::as_const(same).matrix(), same.matrix());
    run(in.matrix(), other.matrix());
    EXPECT_EQ(std::memcmp(same.data(), other.data(), same.bytes().size()), 0) << name;
    const std::span<const float> first = same.values<float>(), before = in.values<float>();
    EXPECT_NE(first[kWidth], before[kWidth]) << name;  // of the second row
    EXPECT_EQ(first[kWidth - 1], before[kWidth - 1]) << name << ": of v";
  };
  for (const bool back : {false, true}) {
    expect_same("rotate", [&](const ConstMatrix& from, const Matrix& to) { passes::rotate(from, heads, back, to); });
  }
  expect_same("head_norm", [&](const ConstMatrix& from, const Matrix& to) {
    passes::head_norm(from, heads, q.vector(), k.vector(), 1e-5, to);
  });
  expect_same("head_norm_backward", [&](const ConstMatrix& from, const Matrix& to) {
    HostTensor dweight(DType::fp32, {passes::row_blocks(kRows), kWidth});
    for (float& value : dweight.values<float>()) value = NAN;
    passes::head_norm_backward(x.matrix(), heads, q.vector(), k.vector(), 1e-5, from, to, dweight.matrix());
    for (std::size_t i = 0; const float value : dweight.values<float>()) {
      EXPECT_EQ(value == 0, i++ >= 3 * kDim) << "of v nothing, and of all others something";
    }
  });
}

/// exp() of logits is out of range both ways, if not less the largest of them; the last register is not full.
TEST(Passes, CrossEntropyOfLogitsFarFromZero) {
  constexpr std::int64_t kColumns = 41;
  HostTensor logits(DType::fp32, {2, kColumns}), target(DType::int32, {2}), lse(DType::fp32, {2}),
      loss(DType::fp32, {2});
  for (float& x : logits.values<float>()) x = -1000;
  logits.values<float>()[kColumns + 5] = 1000;
  target.values<std::int32_t>()[1] = 5;
  passes::cross_entropy(logits.matrix(), target.vector(), lse.vector(), loss.vector());
  EXPECT_NEAR(lse.values<float>()[0], -1000 + std::log(kColumns), 1e-3);
  EXPECT_NEAR(loss.values<float>()[0], std::log(kColumns), 1e-3);
  EXPECT_EQ(lse.values<float>()[1], 1000);
  EXPECT_EQ(loss.values<float>()[1], 0);
}

TEST(Decoder, TokenByTokenEqualsTheWholeText) {
  for (const bool qk_norm : {false, true}) {
    const ModelConfig config = tiny_config(qk_norm, false);
    const Weights weights = lively_weights(config, DType::fp64, 5);
    const Batch text = random_batch(1, 20, config.vocab, 4);
    Decoder whole(config, weights, 20), stepwise(config, weights, 20);
    const HostTensor expected = whole.all_logits(text.inputs);
    std::span<const float> logits = stepwise.append(std::span(text.inputs).first(6));
    for (std::size_t i = 5; i < 20; ++i) {
      if (i > 5) logits = stepwise.append(std::span(text.inputs).subspan(i, 1));
      for (std::size_t v = 0; v < logits.size(); ++v) {
        const double e = expected.values<double>()[i * logits.size() + v];
        ASSERT_NEAR(static_cast<double>(logits[v]), e, 1e-6 * (1 + std::abs(e))) << "token " << i << ", logit " << v;
      }
    }
  }
}

TEST(Decoder, LossOfItsLogitsIsTheModels) {
  const ModelConfig config = tiny_config(true, true);
  const Weights weights = lively_weights(config, DType::fp64, 5);
  const Batch text = random_batch(1, 20, config.vocab, 4);
  Decoder decoder(config, weights, 20);
  const HostTensor logits = decoder.all_logits(text.inputs);
  const auto z = logits.values<double>();
  const auto v = static_cast<std::size_t>(config.vocab);
  double loss = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < v; ++j) sum += std::exp(z[i * v + j]);
    loss += std::log(sum) - z[i * v + static_cast<std::size_t>(text.targets[i])];
  }
  Model model(config, weights);
  EXPECT_NEAR(model.loss(text), loss, 1e-10 * loss);
}

TEST(Generate, IsAFunctionOfItsSeedAndOutgrowsTheModelsPositions) {
  ModelConfig config = tiny_config(false, false);
  config.max_positions = 16;
  const Weights weights = lively_weights(config, DType::fp32, 5);
  const std::vector<std::int32_t> prompt{1, 2, 3};
  const auto a = generate(config, weights, prompt, {.tokens = 50, .sample = {.seed = 3}});
  const auto b = generate(config, weights, prompt, {.tokens = 50, .sample = {.seed = 3}});
  const auto c = generate(config, weights, prompt, {.tokens = 50, .sample = {.seed = 4}});
  EXPECT_EQ(a.size(), 50U);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
  std::vector<std::int32_t> endless;
  GenerateOptions options{.tokens = std::numeric_limits<std::int64_t>::max(), .sample = {.seed = 3}};
  options.on_token = [&](std::int32_t token) {
    endless.push_back(token);
    if (endless.size() == a.size()) throw std::runtime_error("enough");
  };
  EXPECT_THROW(generate(config, weights, prompt, options), std::runtime_error);
  EXPECT_EQ(endless, a);
}

TEST(Generate, GoesOnFromWhatItWrote) {
  const ModelConfig config = tiny_config(false, false);
  const Weights weights = lively_weights(config, DType::fp32, 5);
  const std::vector<std::int32_t> prompt{1, 2, 3};
  const auto whole = generate(config, weights, prompt, {.tokens = 8, .sample = {.seed = 3}});
  std::vector<std::int32_t> text = prompt;
  for (const std::int64_t tokens : {2, 6}) {
    const auto part = generate(config, weights, text, {.tokens = tokens, .sample = {.seed = 3}});
    text.insert(text.end(), part.begin(), part.end());
  }
  EXPECT_EQ(std::vector<std::int32_t>(text.begin() + 3, text.end()), whole);
}

TEST(Generate, BehindAllPositionsGoesOnFromTheLaterHalfOfTheText) {
  ModelConfig config = tiny_config(false, false);
  config.max_positions = 16;
  const Weights weights = lively_weights(config, DType::fp32, 5);
  for (std::int32_t first = 0; first < 5; ++first) {
    std::vector<std::int32_t> text{first, 2, 3};
    const auto made = generate(config, weights, text, {.tokens = 15, .sample = {.temperature = 0}});
    text.insert(text.end(), made.begin(), made.end() - 1);  // one more than there are positions
    ASSERT_EQ(text.size(), 17U);
    const std::vector<std::int32_t> half(text.end() - 8, text.end());
    EXPECT_EQ(generate(config, weights, half, {.tokens = 1, .sample = {.temperature = 0}}).at(0), made.back());
  }
}

TEST(Generate, HoldsNoMorePositionsThanItsTextHas) {
  ModelConfig config = tiny_config(false, false);
  const Weights weights = lively_weights(config, DType::fp32, 5);
  const std::vector<std::int32_t> prompt{1, 2};
  EXPECT_TRUE(generate(config, weights, prompt, {.tokens = 0}).empty());
  const auto few = generate(config, weights, prompt, {.tokens = 3});  // starts the threads, too
  config.max_positions = std::numeric_limits<std::int32_t>::max();
  const test::FullMemory full(rlim_t{32} << 20);
  EXPECT_EQ(generate(config, weights, prompt, {.tokens = 3}), few);
}

TEST(Generate, TakesAPromptOfAllPositions) {
  ModelConfig config = tiny_config(false, false);
  for (const std::int64_t positions : {1, 3}) {
    config.max_positions = positions;
    const Weights weights = lively_weights(config, DType::fp32, 5);
    const std::vector<std::int32_t> prompt(static_cast<std::size_t>(positions), 1);
    EXPECT_EQ(generate(config, weights, prompt, {.tokens = 5}).size(), 5U);
  }
}

TEST(Model, BatchesOfOtherShapesFollowEachOther) {
  const ModelConfig config = tiny_config(false, false);
  const Weights weights = lively_weights(config, DType::fp32, 5);
  Model one(config, weights);
  for (const auto& [rows, seq] : {std::pair{2, 6}, {2, 4}, {1, 4}, {3, 2}, {3, 6}}) {
    Model fresh(config, weights);
    const Batch batch = random_batch(rows, seq, config.vocab, 1);
    EXPECT_EQ(one.loss(batch), fresh.loss(batch)) << rows << " x " << seq;
  }
}

TEST(Model, ComputesInTheTypeOfItsWeights) {
  ModelConfig config = tiny_config(false, false);
  config.dtype = DType::fp32;
  const Weights weights = lively_weights(config, DType::bf16, 5);
  const Batch batch = random_batch(2, 4, config.vocab, 1);
  const double loss = Model(config, weights).loss(batch);
  config.dtype = DType::bf16;
  EXPECT_EQ(loss, Model(config, weights).loss(batch));
}

TEST(ModelErrors, NameTheArgument) {
  const ModelConfig config = tiny_config(false, false);
  const Weights weights = lively_weights(config, DType::fp32, 5);
  Weights gradients = make_weights(config, DType::fp32);
  Model model(config, weights);
  Batch batch = random_batch(2, 4, config.vocab, 1);
  batch.inputs[5] = 11;
  testing::expect_error(
      Status::invalid_argument, [&] { model.forward_backward(batch, gradients); }, "inputs", "below 11", "got 11 at 5");
  batch = random_batch(2, 4, config.vocab, 1);
  batch.targets[0] = -1;
  testing::expect_error(Status::invalid_argument, [&] { model.loss(batch); }, "targets", "got -1 at 0");
  batch.targets[0] = 11;
  testing::expect_error(Status::invalid_argument, [&] { model.loss(batch); }, "targets", "below 11", "got 11 at 0");
  batch.targets.pop_back();
  testing::expect_error(Status::invalid_argument, [&] { model.loss(batch); }, "batch", "2 x 4");
  testing::expect_error(Status::invalid_argument, [&] { model.loss({0, 4, {}, {}}); }, "batch", "0 x 4");
  constexpr std::int64_t kRows = std::int64_t{1} << 62;
  testing::expect_error(Status::invalid_argument, [&] { model.loss({kRows, 4, {}, {}}); }, "batch", "x 4");
  testing::expect_error(Status::invalid_argument, [&] { Decoder none(config, weights, 0); }, "capacity", "got 0");
  Decoder decoder(config, weights, 4);
  const std::vector<std::int32_t> long_text(5, 1), empty, unknown{11};
  testing::expect_error(Status::invalid_argument, [&] { decoder.append(unknown); }, "model: tokens", "below 11");
  testing::expect_error(Status::invalid_argument, [&] { decoder.append(long_text); }, "tokens", "1 to 4", "got 5");
  testing::expect_error(Status::invalid_argument, [&] { decoder.append(empty); }, "tokens", "got 0");
  testing::expect_error(
      Status::invalid_argument, [&] { generate(config, weights, empty, {}); }, "generate", "prompt", "got 0");
  testing::expect_error(
      Status::invalid_argument, [&] { check_generate(config, 1, {.tokens = -1}); }, "tokens", "got -1");
  testing::expect_error(
      Status::invalid_argument, [&] { check_generate(config, 65, {}); }, "prompt: expected 1 to 64 tokens", "got 65");
  testing::expect_error(
      Status::invalid_argument, [&] { check_generate(config, 1, {.sample = {.top_k = -1}}); }, "top_k", "got -1");
}

}  // namespace
}  // namespace coda::nn
