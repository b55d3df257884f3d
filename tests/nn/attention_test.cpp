// Attention against plain loops in fp64, its gradients against finite differences, and its promises.
#include "coda/nn/attention.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "coda/nn/arena.h"
#include "coda/nn/convert.h"
#include "coda/nn/host_tensor.h"
#include "coda/nn/rng.h"
#include "tests/nn/scratch.h"
#include "tests/support/forked.h"

namespace coda::nn {
namespace {

struct Sizes {
  std::int64_t batch, heads, kv_heads, head_dim, queries, keys;
  std::int64_t q_cols() const { return heads * head_dim; }
  std::int64_t kv_cols() const { return kv_heads * head_dim; }
};

HostTensor random(DType dtype, std::int64_t rows, std::int64_t cols, std::uint64_t stream) {
  HostTensor out(dtype, {rows, cols});
  const Rng rng(3, stream);
  visit_real(dtype, [&]<class T>(std::type_identity<T>) {
    const auto values = out.values<T>();
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = convert_to<T>(rng.normal(i));
  });
  return out;
}

std::vector<double> widen(const HostTensor& t) {
  std::vector<double> out(static_cast<std::size_t>(t.size()));
  load_as(t.data(), t.dtype(), 0, t.size(), out.data());
  return out;
}

/// softmax(q k^T / sqrt(d)) v by the definition, in fp64.
std::vector<double> reference(const Sizes& s, const std::vector<double>& q, const std::vector<double>& k,
                              const std::vector<double>& v, std::vector<double>* lse = nullptr) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<double> out(q.size());
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t kv = h * s.kv_heads / s.heads;
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const std::int64_t row = b * s.queries + i, visible = s.keys - s.queries + i + 1;
        std::vector<double> weight(at(visible));
        double sum = 0;
        for (std::int64_t j = 0; j < visible; ++j) {
          double dot = 0;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            dot += q[at(row * s.q_cols() + h * s.head_dim + d)] *
                   k[at((b * s.keys + j) * s.kv_cols() + kv * s.head_dim + d)];
          }
          weight[at(j)] = std::exp(dot / std::sqrt(static_cast<double>(s.head_dim)));
          sum += weight[at(j)];
        }
        if (lse) (*lse)[at(row * s.heads + h)] = std::log(sum);
        for (std::int64_t d = 0; d < s.head_dim; ++d) {
          double value = 0;
          for (std::int64_t j = 0; j < visible; ++j) {
            value += weight[at(j)] * v[at((b * s.keys + j) * s.kv_cols() + kv * s.head_dim + d)];
          }
          out[at(row * s.q_cols() + h * s.head_dim + d)] = value / sum;
        }
      }
    }
  }
  return out;
}

struct Tensors {
  HostTensor q, k, v, out, lse;
  Tensors(const Sizes& s, DType t)
      : q(random(t, s.batch * s.queries, s.q_cols(), 1)),
        k(random(t, s.batch * s.keys, s.kv_cols(), 2)),
        v(random(t, s.batch * s.keys, s.kv_cols(), 3)),
        out(t, {s.batch * s.queries, s.q_cols()}),
        lse(t == DType::fp64 ? DType::fp64 : DType::fp32, {s.batch * s.queries, s.heads}) {}
  Attention call(const Sizes& s) {
    return {s.batch, s.heads, s.kv_heads, s.head_dim, q.matrix(), k.matrix(), v.matrix(), out.matrix(), lse.matrix()};
  }
};

void expect_close(const std::vector<double>& got, const std::vector<double>& expected, double bound, const char* what) {
  double scale = 0, worst = 0;
  for (const double x : expected) scale = std::max(scale, std::abs(x));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - expected[i]);
    if (!(error <= worst)) worst = error;
  }
  EXPECT_TRUE(worst <= bound * scale) << what << ": expected an error up to " << bound * scale << ", got " << worst;
}

class AttentionOf : public ::testing::TestWithParam<std::tuple<DType, Sizes>> {};

TEST_P(AttentionOf, EqualsTheDefinition) {
  const auto [dtype, s] = GetParam();
  Tensors t(s, dtype);
  attention(t.call(s));
  std::vector<double> lse(static_cast<std::size_t>(t.lse.size()));
  const auto expected = reference(s, widen(t.q), widen(t.k), widen(t.v), &lse);
  const double bound = dtype == DType::fp64 ? 1e-13 : dtype == DType::fp32 ? 2e-6 : dtype == DType::fp16 ? 2e-3 : 1e-2;
  expect_close(widen(t.out), expected, bound, "out");
  expect_close(widen(t.lse), lse, dtype == DType::fp64 ? 1e-13 : 2e-6, "lse");
}

INSTANTIATE_TEST_SUITE_P(TypesAndShapes, AttentionOf,
                         ::testing::Combine(::testing::Values(DType::bf16, DType::fp16, DType::fp32, DType::fp64),
                                            ::testing::Values(Sizes{1, 1, 1, 2, 1, 1},         // one token
                                                              Sizes{2, 4, 2, 6, 5, 5},         // grouped
                                                              Sizes{1, 3, 3, 16, 129, 129},    // past a block
                                                              Sizes{2, 4, 1, 32, 256, 256},    // whole blocks
                                                              Sizes{1, 2, 2, 64, 1, 300},      // a decoder's step
                                                              Sizes{2, 2, 1, 8, 130, 200})));  // a cache before it

class AttentionGradient : public ::testing::TestWithParam<Sizes> {};

TEST_P(AttentionGradient, EqualsCentralDifferences) {
  const Sizes s = GetParam();
  Tensors t(s, DType::fp64);
  attention(t.call(s));
  const HostTensor dout = random(DType::fp64, s.batch * s.queries, s.q_cols(), 4);
  HostTensor dq(DType::fp64, t.q.shape()), dk(DType::fp64, t.k.shape()), dv(DType::fp64, t.v.shape());
  attention_backward({s.batch, s.heads, s.kv_heads, s.head_dim, t.q.matrix(), t.k.matrix(), t.v.matrix(),
                      t.out.matrix(), dout.matrix(), t.lse.matrix(), dq.matrix(), dk.matrix(), dv.matrix()});
  const auto value = [&] {
    Tensors& m = t;
    HostTensor out(DType::fp64, m.out.shape());
    Attention call = m.call(s);
    call.out = out.matrix();
    call.lse = {};
    attention(call);
    double dot = 0;
    for (std::int64_t i = 0; i < out.size(); ++i) {
      dot += out.values<double>()[static_cast<std::size_t>(i)] * dout.values<double>()[static_cast<std::size_t>(i)];
    }
    return dot;
  };
  const auto check = [&](const char* what, HostTensor& in, const HostTensor& gradient) {
    const auto x = in.values<double>();
    const auto g = gradient.values<double>();
    for (std::size_t i = 0; i < x.size(); i += std::max<std::size_t>(1, x.size() / 40)) {
      const double before = x[i], step = 1e-5;
      x[i] = before + step;
      const double above = value();
      x[i] = before - step;
      const double below = value();
      x[i] = before;
      const double numeric = (above - below) / (2 * step);
      EXPECT_TRUE(std::abs(numeric - g[i]) <= 1e-8 * (1 + std::abs(numeric)))
          << what << '[' << i << "]: expected " << numeric << ", got " << g[i];
    }
  };
  check("dq", t.q, dq);
  check("dk", t.k, dk);
  check("dv", t.v, dv);
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionGradient,
                         ::testing::Values(Sizes{1, 1, 1, 2, 1, 1}, Sizes{2, 4, 2, 6, 5, 5},
                                           Sizes{1, 2, 1, 4, 131, 131}, Sizes{1, 4, 4, 4, 3, 7},
                                           Sizes{2, 4, 2, 4, 3, 7}));

TEST(AttentionPromise, ScoresFarBelowZeroAreAsGoodAsOthers) {
  const Sizes s{1, 1, 1, 2, 3, 3};
  Tensors t(s, DType::fp32);
  for (float& x : t.q.values<float>()) x = 40;
  for (float& x : t.k.values<float>()) x = -40;
  attention(t.call(s));
  expect_close(widen(t.out), reference(s, std::vector<double>(6), std::vector<double>(6), widen(t.v)), 2e-6, "out");
}

TEST(AttentionPromise, GradientsOfKeysWithoutQueriesAreZero) {
  const Sizes s{2, 4, 2, 8, 0, 6};
  const HostTensor k = random(DType::bf16, s.batch * s.keys, s.kv_cols(), 2);
  const HostTensor v = random(DType::bf16, s.batch * s.keys, s.kv_cols(), 3);
  HostTensor dk = random(DType::bf16, s.batch * s.keys, s.kv_cols(), 4);
  HostTensor dv = random(DType::bf16, s.batch * s.keys, s.kv_cols(), 5);
  const Matrix none(nullptr, DType::bf16, 0, s.q_cols()), no_lse(nullptr, DType::fp32, 0, s.heads);
  attention_backward({s.batch, s.heads, s.kv_heads, s.head_dim, none, k.matrix(), v.matrix(), none, none, no_lse, none,
                      dk.matrix(), dv.matrix()});
  const std::vector<double> zeros(static_cast<std::size_t>(dk.size()));
  EXPECT_EQ(widen(dk), zeros);
  EXPECT_EQ(widen(dv), zeros);
}

/// What attention and its backward write.
std::vector<std::byte> results() {
  const Sizes s{2, 4, 2, 32, 200, 200};
  Tensors t(s, DType::bf16);
  attention(t.call(s));
  const HostTensor dout = random(DType::bf16, s.batch * s.queries, s.q_cols(), 4);
  HostTensor d(DType::bf16, {s.batch * s.queries, s.q_cols() + 2 * s.kv_cols()});
  attention_backward({s.batch, s.heads, s.kv_heads, s.head_dim, t.q.matrix(), t.k.matrix(), t.v.matrix(),
                      t.out.matrix(), dout.matrix(), t.lse.matrix(), columns_of(d.matrix(), 0, s.q_cols()),
                      columns_of(d.matrix(), s.q_cols(), s.kv_cols()),
                      columns_of(d.matrix(), s.q_cols() + s.kv_cols(), s.kv_cols())});
  std::vector<std::byte> all(t.out.bytes().begin(), t.out.bytes().end());
  all.insert(all.end(), d.bytes().begin(), d.bytes().end());
  return all;
}

TEST(AttentionPromise, BitsDoNotDependOnThreads) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<std::byte> expected = results();
  for (const int threads : {2, 5}) {
    omp_set_num_threads(threads);
    EXPECT_TRUE(results() == expected) << threads;
  }
  EXPECT_TRUE(test::holds_in_child([&] { return results() == expected; })) << "in a child made by fork";
  omp_set_num_threads(before);
}

TEST(AttentionPromise, ATokenDoesNotSeeLaterOnes) {
  const Sizes s{1, 2, 1, 8, 140, 140};
  Tensors a(s, DType::fp32), b(s, DType::fp32);
  for (std::int64_t r = 70; r < s.keys; ++r) {
    for (std::int64_t c = 0; c < s.kv_cols(); ++c) {
      b.k.values<float>()[static_cast<std::size_t>(r * s.kv_cols() + c)] += 1;
      b.v.values<float>()[static_cast<std::size_t>(r * s.kv_cols() + c)] -= 1;
    }
  }
  attention(a.call(s));
  attention(b.call(s));
  EXPECT_EQ(std::memcmp(a.out.data(), b.out.data(), static_cast<std::size_t>(70 * s.q_cols()) * sizeof(float)), 0);
  EXPECT_NE(std::memcmp(a.out.data(), b.out.data(), a.out.bytes().size()), 0);
}

TEST(AttentionErrors, NameTheArgument) {
  const Sizes s{1, 4, 2, 8, 6, 6};
  Tensors t(s, DType::fp32);
  Attention call = t.call(s);
  call.kv_heads = 3;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "attention", "kv_heads", "divisor");
  call = t.call(s);
  call.k.rows = 4;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "k", "at least as many keys");
  call = t.call(s);
  call.v.cols = 8;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "v", "(6, 16)", "(6, 8)");
  call = t.call(s);
  call.v.rows = 5;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "v", "(6, 16)", "(5, 16)");
  call = t.call(s);
  call.out.dtype = DType::bf16;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "out", "fp32", "bf16");
  call = t.call(s);
  call.q.data = nullptr;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "q", "null pointer");
  call = t.call(s);
  call.batch = 0;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "batch", "above 0", "got 0");
  call = t.call(s);
  call.batch = 4;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "batch", "divisor", "got 4");
  call = t.call(s);
  call.batch = 2, call.k.rows = call.v.rows = 7;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "batch", "divisor", "got 2");
  call = t.call(s);
  call.q.dtype = DType::int32;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "q", "bf16", "int32");
  call = t.call(s);
  call.k.cols = 8;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "k", "(6, 16)", "(6, 8)");
  call = t.call(s);
  call.lse.cols = 3;
  testing::expect_error(Status::invalid_argument, [&] { attention(call); }, "lse", "(6, 4)", "(6, 3)");
  // What a product of a thread refuses reaches the caller, too.
  call = t.call(s);
  call.out = t.q.matrix();
  call.v = columns_of(t.q.matrix(), 0, 16);
  EXPECT_THROW(attention(call), Error);
}

TEST(AttentionErrors, OfTheBackwardNameTheArgument) {
  const Sizes s{1, 4, 2, 8, 6, 6};
  Tensors t(s, DType::fp32);
  HostTensor dout(DType::fp32, t.q.shape()), dq(DType::fp32, t.q.shape()), dk(DType::fp32, t.k.shape()),
      dv(DType::fp32, t.v.shape());
  const auto refused = [&](auto change, const char* argument, const char* expected, const char* got) {
    AttentionBackward call{s.batch,      s.heads,      s.kv_heads,     s.head_dim,    t.q.matrix(),
                           t.k.matrix(), t.v.matrix(), t.out.matrix(), dout.matrix(), t.lse.matrix(),
                           dq.matrix(),  dk.matrix(),  dv.matrix()};
    change(call);
    testing::expect_error(
        Status::invalid_argument, [&] { attention_backward(call); }, "attention_backward: " + std::string(argument),
        expected, got);
  };
  refused([](auto& c) { c.lse.dtype = DType::fp64; }, "lse", "fp32", "fp64");
  refused([](auto& c) { c.dout.cols = 31; }, "dout", "(6, 32)", "(6, 31)");
  refused([](auto& c) { c.dq.rows = 5; }, "dq", "(6, 32)", "(5, 32)");
  refused([](auto& c) { c.dk.cols = 32; }, "dk", "(6, 16)", "(6, 32)");
  refused([](auto& c) { c.dv.data = nullptr; }, "dv", "data", "null pointer");
}

}  // namespace
}  // namespace coda::nn
