// The small kernels between the Hopper programs against fp64. Skipped where there is no such GPU.
#include "coda/backend/sm90/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "coda/backend/sm90/config.h"
#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/reference/small.h"
#include "tests/support/accuracy.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kFp32 = 4e-7;  // a few units in the last place of fp32, relative

/// |got - ref| <= relative |ref| + absolute, infinities and NaN where ref has them.
void expect_near(const std::string& name, const Vec& got, const Vec& ref, double relative = kFp32,
                 double absolute = 1e-37) {
  ASSERT_EQ(got.size(), ref.size()) << name;
  for (std::size_t i = 0; i < ref.size(); ++i) {
    if (std::isnan(ref[i]) && std::isnan(got[i])) continue;
    if (std::isinf(ref[i]) && got[i] == ref[i]) continue;
    ASSERT_TRUE(std::abs(got[i] - ref[i]) <= relative * std::abs(ref[i]) + absolute)
        << name << ", element " << i << " of " << ref.size() << ": expected " << ref[i] << ", got " << got[i];
  }
}
template <class T>
void expect_near(const std::string& name, OnDevice<T>& got, const Vec& ref, double relative = kFp32,
                 double absolute = 1e-37) {
  expect_near(name, got.fetch(name).mat().v, ref, relative, absolute);
}

template <class F>
void for_types(const F& f) {
  f(bf16());
  f(fp16());
  f(float());
}
template <class F>
void for_index_types(const F& f) {
  f(std::int32_t());
  f(std::int64_t());
}

struct Shape {
  std::int64_t rows, cols;
};
std::string text(const Shape& s) { return "(" + std::to_string(s.rows) + ", " + std::to_string(s.cols) + ")"; }
const Placed kPlaces[] = {{}, {.pad = 8}, {.pad = 3}, {.misalign = 1}};
/// Rows and tiles of partial results: one, less and more than a warp has lanes, as many as a vocabulary has.
const Shape kPartials[] = {{1, 1},    {3, 2},    {4000, 1}, {1001, 4},  {515, 5},  {300, 7},  {65, 64}, {66, 32},
                           {130, 65}, {70, 112}, {33, 300}, {21, 1000}, {9, 1003}, {5, 2049}, {17, 0},  {0, 5}};

using Kernels = OnHopper;

TEST_F(Kernels, cast_rounds_once_in_every_direction) {
  Random random(1);
  const double special[] = {0.0, -0.0, kInf, -kInf, kNan, 65504, 65520, 1e-8, 6e-8, 1e-40, 3.4e38, 1.00390625};
  for (const Shape& s : {Shape{1, 1}, {5, 3}, {33, 1000}, {257, 264}, {3, 8}, {70, 7}, {1, 100001}, {4000, 1}}) {
    for (const Placed& how : kPlaces) {
      for_types([&](auto from) {
        for_types([&](auto to) {
          using In = decltype(from);
          using Out = decltype(to);
          SCOPED_TRACE(std::string(name_of(dtype_of<In>)) + " to " + name_of(dtype_of<Out>) + " " + text(s) +
                       " pad=" + std::to_string(how.pad) + " misalign=" + std::to_string(how.misalign));
          Mat x = normal_mat(random, s.rows, s.cols, 1, dtype_of<In>);
          for (std::size_t i = 0; i < x.v.size() && i < std::size(special); ++i) {
            x.v[x.v.size() - 1 - i] = static_cast<float>(In(static_cast<float>(special[i])));
          }
          const OnDevice<In> in(x, how);
          OnDevice<Out> out(s.rows, s.cols, {.pad = how.pad, .misalign = 2 * how.misalign});
          for (const float scale : {1.f, 0.5f}) {
            sm90::cast("cast", in.matrix(), out.matrix(), scale, nullptr);
            Vec ref = x.v;
            for (double& e : ref) e = static_cast<float>(Out(scale * static_cast<float>(e)));
            expect_near("out", out.fetch("out", false).mat().v, ref, 0, 0);
          }
        });
      });
    }
  }
}

TEST_F(Kernels, fill_writes_every_element) {
  for (const Shape& s : {Shape{1, 1}, {5, 3}, {33, 1000}, {257, 264}}) {
    for (const Placed& how : kPlaces) {
      for_types([&](auto element) {
        OnDevice<decltype(element)> out(s.rows, s.cols, how);
        sm90::fill("fill", out.matrix(), 1.5, nullptr);
        expect_near("out", out, Vec(static_cast<std::size_t>(s.rows * s.cols), 1.5), 0, 0);
      });
    }
  }
}

/// A thread has no context of its own until a call of CUDA's runtime needs one, and a loaded kernel's launch is none.
TEST_F(Kernels, fill_from_a_thread_that_called_nothing_of_cuda) {
  const Stream other;
  for (void* stream : {static_cast<void*>(nullptr), static_cast<void*>(other.get())}) {
    OnDevice<float> out(33, 1000);
    sm90::fill("fill", out.matrix(), 0.5, stream);
    std::string failure;
    std::thread([&] {
      try {
        sm90::fill("fill", out.matrix(), 1.5, stream);
      } catch (const std::exception& e) {
        failure = e.what();
      }
    }).join();
    EXPECT_EQ(failure, "");
    expect_near("out", out, Vec(33000, 1.5), 0, 0);
  }
}

TEST_F(Kernels, row_and_column_sums) {
  Random random(2);
  for (const Shape& s : kPartials) {
    for (const Placed& how : kPlaces) {
      SCOPED_TRACE(text(s) + " pad=" + std::to_string(how.pad) + " misalign=" + std::to_string(how.misalign));
      // Of one sign: a sum that cancels has no relative accuracy.
      const Mat x = uniform_mat(random, s.rows, s.cols, 0.5, 2, DType::fp32);
      const OnDevice<float> partial(x, how);
      OnDevice<float> sums(s.rows, 1, {.misalign = how.misalign});
      sm90::sum_rows("sum_rows", partial.matrix(), 0.125, sums.vector(), nullptr);
      Vec ref = reference::row_sums(x);
      for (double& e : ref) e *= 0.125;
      expect_near("row sums", sums, ref);
      for (const double beta : {0.0, 1.0}) {
        const Vec before = uniform_vec(random, s.cols, 0, 1, DType::fp32);
        OnDevice<float> out = on_device<float>(before);
        if (beta == 0) out.poison();
        sm90::sum_columns("sum_columns", partial.matrix(), beta, out.vector(), nullptr);
        Vec y = reference::column_sums(x);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += beta * before[i];
        expect_near("column sums", out, y);
      }
    }
  }
}

TEST_F(Kernels, wide_column_sums_and_head_sums) {
  Random random(3);
  const Mat x = uniform_mat(random, 50, 256 * 128 + 44, 0.5, 2, DType::fp32);
  for (const Placed& how : kPlaces) {
    const OnDevice<float> partial(x, how);
    OnDevice<float> out(x.cols, 1);
    sm90::sum_columns("sum_columns", partial.matrix(), 0, out.vector(), nullptr);
    expect_near("column sums", out, reference::column_sums(x));
  }
  struct Heads {
    std::int64_t rows, first, count, dim;
  };
  // Few and many rows of heads: blocks alone, in clusters, larger ones, in two stages.
  for (const Heads& h : {Heads{1, 0, 1, 1},
                         {7, 5, 3, 2},
                         {40, 128, 8, 128},
                         {33, 0, 32, 500},
                         {5, 4, 0, 64},
                         {130, 8, 20, 64},
                         {600, 0, 40, 36},
                         {128, 64, 64, 33}}) {
    const Mat y = uniform_mat(random, h.rows, h.first + h.count * h.dim + 3, 0.5, 2, DType::fp32);
    for (const double beta : {0.0, 1.0}) {
      const Vec before = uniform_vec(random, h.dim, 0, 1, DType::fp32);
      Vec ref = before;
      for (std::int64_t d = 0; d < h.dim; ++d) {
        double sum = beta * before[static_cast<std::size_t>(d)];
        for (std::int64_t m = 0; m < h.rows; ++m)
          for (std::int64_t i = 0; i < h.count; ++i) sum += y(m, h.first + i * h.dim + d);
        ref[static_cast<std::size_t>(d)] = sum;
      }
      const OnDevice<float> partial(y, {.pad = 1});
      OnDevice<float> out = on_device<float>(before);
      sm90::sum_heads("sum_heads", partial.matrix(), h.first, h.count, h.dim, beta, out.vector(), nullptr);
      expect_near("heads of " + std::to_string(h.dim), out, ref);
    }
  }
}

TEST_F(Kernels, column_sums_of_many_rows) {
  Random random(13);
  for (const Shape& s :
       {Shape{257, 4096}, {513, 33}, {2100, 200}, {16384, 8}, {16385, 36}, {20000, 1}, {17000, 1030}}) {
    const Mat x = uniform_mat(random, s.rows, s.cols, 0.5, 2, DType::fp32);
    for (const Placed& how : {Placed{}, Placed{.pad = 3}}) {
      const OnDevice<float> partial(x, how);
      const Vec before = uniform_vec(random, s.cols, 0, 1, DType::fp32);
      OnDevice<float> out = on_device<float>(before);
      sm90::sum_columns("sum_columns", partial.matrix(), 1, out.vector(), nullptr);
      Vec ref = reference::column_sums(x);
      for (std::size_t i = 0; i < ref.size(); ++i) ref[i] += before[i];
      expect_near("column sums of " + text(s) + " pad=" + std::to_string(how.pad), out, ref);
    }
  }
}

TEST_F(Kernels, norm_statistics) {
  Random random(4);
  for (const Shape& s : kPartials) {
    if (s.cols == 0) continue;
    for (const std::int64_t last : {1, 77, 128}) {  // width of the last tile
      const std::int64_t n = (s.cols - 1) * sm90::kTileN + last;
      SCOPED_TRACE(text(s) + " n=" + std::to_string(n));
      const Mat squares = uniform_mat(random, s.rows, s.cols, 0, 300, DType::fp32);
      // Means that are large beside the deviations.
      const Mat means = uniform_mat(random, s.rows, s.cols, 7.9, 8.1, DType::fp32);
      Mat sums = means;
      for (std::int64_t m = 0; m < s.rows; ++m)
        for (std::int64_t t = 0; t < s.cols; ++t) sums(m, t) *= t + 1 < s.cols ? sm90::kTileN : last;
      const auto ref = reference::layernorm_finalize_centered(sums, squares, n, sm90::kTileN, 1e-5);
      for (const std::int64_t pad : {0, 1}) {
        SCOPED_TRACE("pad=" + std::to_string(pad));
        const OnDevice<float> sum_sq(squares, {.pad = pad}), tile_mean(means, {.pad = 2 * pad});
        OnDevice<float> rstd(s.rows, 1), mean(s.rows, 1);
        sm90::rms_finalize("rms_finalize", sum_sq.matrix(), n, 1e-5, rstd.vector(), nullptr);
        expect_near("rstd", rstd, reference::rms_finalize(squares, n, 1e-5));
        rstd.poison();
        sm90::layernorm_finalize("layernorm_finalize", tile_mean.matrix(), sum_sq.matrix(), n, 1e-5, mean.vector(),
                                 rstd.vector(), nullptr);
        expect_near("mean", mean, ref.mean);
        expect_near("rstd of a LayerNorm", rstd, ref.rstd);
      }
    }
  }
  OnDevice<float> rstd(4, 1);
  const OnDevice<float> special(Mat(4, 1, {0.0, kInf, kNan, 1e38}));
  sm90::rms_finalize("rms_finalize", special.matrix(), 100, 0, rstd.vector(), nullptr);
  expect_near("rstd of special values", rstd.fetch("rstd", false).mat().v, {kInf, 0, kNan, 1e-18});
}

TEST_F(Kernels, layernorm_of_equal_tiles_has_no_variance_however_large_the_mean) {
  for (const double value : {0.0, 1.0, -12345.678, 1e30}) {
    const double mean_value = static_cast<double>(static_cast<float>(value));
    const OnDevice<float> means(Mat(9, 64, mean_value)), squares(Mat(9, 64, 0.0));
    OnDevice<float> mean(9, 1), rstd(9, 1);
    sm90::layernorm_finalize("layernorm_finalize", means.matrix(), squares.matrix(), 64 * sm90::kTileN - 5, 1e-6,
                             mean.vector(), rstd.vector(), nullptr);
    expect_near("mean", mean, Vec(9, mean_value), 0, 0);
    expect_near("rstd", rstd, Vec(9, 1e3));
  }
}

TEST_F(Kernels, layernorm_of_infinities_and_nans) {
  Mat means(4, 3, 1.0), squares(4, 3, 1.0);
  means(0, 0) = kInf, means(1, 2) = -kInf, means(2, 1) = kNan, squares(3, 2) = kInf;
  const OnDevice<float> device_means(means), device_squares(squares);
  OnDevice<float> mean(4, 1), rstd(4, 1);
  sm90::layernorm_finalize("layernorm_finalize", device_means.matrix(), device_squares.matrix(), 3 * sm90::kTileN, 0,
                           mean.vector(), rstd.vector(), nullptr);
  expect_near("mean", mean.fetch("mean", false).mat().v, {kInf, -kInf, kNan, 1});
  Vec expected(4, kNan);  // no {kNan, kNan, kNan, 0}: of that, g++ 12.2 made four NaN here
  expected[3] = 0;
  expect_near("rstd", rstd.fetch("rstd", false).mat().v, expected);
}

/// The bytes of a row or column statistic of x, wherever x lies.
template <class Call>
void expect_same_bits_everywhere(const std::string& name, const Mat& x, std::int64_t size, const Call& call) {
  std::vector<unsigned char> first;
  for (const Placed& how : kPlaces) {
    const OnDevice<float> partial(x, how);
    OnDevice<float> out(size, 1);
    call(partial.matrix(), out.vector());
    if (first.empty()) first = out.bits();
    EXPECT_EQ(out.bits(), first) << name << " " << x.rows << " x " << x.cols << " pad=" << how.pad
                                 << " misalign=" << how.misalign;
  }
}

TEST_F(Kernels, bits_of_reductions_do_not_depend_on_alignment) {
  Random random(14);
  for (const Shape& s : {Shape{33, 64}, {70, 112}, {21, 1000}, {2500, 64}, {18000, 36}}) {
    const Mat x = normal_mat(random, s.rows, s.cols, 1, DType::fp32);
    const Mat squares = uniform_mat(random, s.rows, s.cols, 0.5, 2, DType::fp32);
    expect_same_bits_everywhere("sum_rows", x, s.rows, [](const Matrix& partial, const Vector& out) {
      sm90::sum_rows("op", partial, 1, out, nullptr);
    });
    expect_same_bits_everywhere("rms_finalize", squares, s.rows, [&](const Matrix& partial, const Vector& out) {
      sm90::rms_finalize("op", partial, s.cols * sm90::kTileN, 1e-5, out, nullptr);
    });
    expect_same_bits_everywhere("layernorm_finalize", squares, s.rows, [&](const Matrix& partial, const Vector& out) {
      OnDevice<float> mean(s.rows, 1);
      sm90::layernorm_finalize("op", partial, partial, s.cols * sm90::kTileN, 1e-5, mean.vector(), out, nullptr);
    });
    expect_same_bits_everywhere("sum_columns", x, s.cols, [](const Matrix& partial, const Vector& out) {
      sm90::sum_columns("op", partial, 0, out, nullptr);
    });
    expect_same_bits_everywhere("sum_heads", x, 4, [](const Matrix& partial, const Vector& out) {
      sm90::sum_heads("op", partial, 4, 7, 4, 0, out, nullptr);
    });
  }
}

struct LossOptions {
  double smoothing, z_loss;
};
/// The definition in fp64, on the maxima and sums of the tiles. A row whose maxima are all -inf has lse -inf.
void reference_loss(const Mat& max, const Mat& sum, const Mat& logit_sum, const Vec& target, const Vec& logit,
                    double vocabulary, const LossOptions& o, Vec& lse, Vec& loss) {
  for (std::int64_t m = 0; m < max.rows; ++m) {
    const auto i = static_cast<std::size_t>(m);
    double top = -kInf, total = 0, logits = 0;
    for (std::int64_t t = 0; t < max.cols; ++t) top = std::max(top, max(m, t));
    if (top == -kInf) top = 0;
    for (std::int64_t t = 0; t < max.cols; ++t) {
      total += sum(m, t) * std::exp(max(m, t) - top);
      logits += logit_sum(m, t);
    }
    lse[i] = top + std::log(total);
    loss[i] = (1 - o.smoothing) * (lse[i] - logit[i]);
    if (o.smoothing != 0) loss[i] += o.smoothing * (lse[i] - logits / vocabulary);
    if (o.z_loss != 0) loss[i] += o.z_loss * lse[i] * lse[i];
    if (target[i] == -100) loss[i] = 0;
  }
}

TEST_F(Kernels, lse_and_loss) {
  Random random(5);
  for (const Shape& s : kPartials) {
    const auto rows = static_cast<std::size_t>(s.rows);
    Mat max = normal_mat(random, s.rows, s.cols, 4, DType::fp32);
    Mat sum = uniform_mat(random, s.rows, s.cols, 1, 128, DType::fp32);
    const Mat logit_sum = normal_mat(random, s.rows, s.cols, 100, DType::fp32);
    const Vec logit = normal_vec(random, s.rows, 2, DType::fp32);
    // Tiles of -inf here and there, a row of nothing else, one with a single finite logit, NaN, +inf.
    for (std::int64_t m = 0; m < s.rows && s.cols > 0; ++m) {
      const std::int64_t t = random.integer(0, s.cols - 1);
      if (m % 7 == 1) max(m, t) = -kInf, sum(m, t) = 0;
      if (m % 7 == 2 || m % 7 == 3) {
        for (std::int64_t u = 0; u < s.cols; ++u) max(m, u) = -kInf, sum(m, u) = 0;
      }
      if (m % 7 == 3) max(m, t) = -50, sum(m, t) = 1;
      if (m % 7 == 4) max(m, t) = kNan, sum(m, t) = kNan;
      if (m % 7 == 5) max(m, t) = kInf, sum(m, t) = kNan;
    }
    const OnDevice<float> device_max(max, {.pad = 1}), device_sum(sum, {.pad = 2}), device_logits(logit_sum),
        device_logit = on_device<float>(logit);
    for_index_types([&](auto index) {
      for (const int ignore_every : {0, 3, 1}) {
        for (const LossOptions& o : {LossOptions{0, 0}, {0.1, 0}, {0, 1e-3}, {0.2, 1e-2}}) {
          SCOPED_TRACE(text(s) + " ignored: one in " + std::to_string(ignore_every) + ", smoothing " +
                       std::to_string(o.smoothing) + ", z_loss " + std::to_string(o.z_loss));
          Vec target = index_vec(random_targets(random, s.rows, 1000, ignore_every));
          for (std::size_t i = 5; i < rows; i += 9) target[i] = i % 2 == 0 ? 1000 : -5;  // none of the vocabulary
          const auto device_target = on_device<decltype(index)>(target);
          OnDevice<float> lse(s.rows, 1), loss(s.rows, 1);
          const bool smooth = o.smoothing != 0;
          sm90::LseFinalizeArgs args{.max = device_max.matrix(),
                                     .sum = device_sum.matrix(),
                                     .logit_sum = smooth ? device_logits.matrix() : Matrix(),
                                     .target = device_target.vector(),
                                     .target_logit = device_logit.vector(),
                                     .label_smoothing = o.smoothing,
                                     .z_loss = o.z_loss,
                                     .vocabulary = 1000,
                                     .lse = lse.vector(),
                                     .loss = loss.vector()};
          sm90::lse_finalize("lse_finalize", args, nullptr);
          Vec ref_lse(rows), ref_loss(rows);
          reference_loss(max, sum, logit_sum, target, logit, 1000, o, ref_lse, ref_loss);
          for (std::size_t i = 5; i < rows; i += 9) ref_loss[i] = kNan;
          // Terms of about 10 that may cancel.
          expect_near("lse", lse.fetch("lse", false).mat().v, ref_lse, kFp32, 1e-6);
          expect_near("loss", loss.fetch("loss", false).mat().v, ref_loss, kFp32, 4e-6);
          lse.poison(), loss.poison();
          args.loss = {}, args.target = {}, args.target_logit = {};
          sm90::lse_finalize("lse_finalize", args, nullptr);
          expect_near("lse alone", lse.fetch("lse", false).mat().v, ref_lse, kFp32, 1e-6);
          EXPECT_TRUE(s.rows == 0 || !loss.fetch("loss", false).unwritten("loss").empty());
        }
      }
    });
  }
}

TEST_F(Kernels, masked_dloss_zeroes_rows_without_a_target) {
  Random random(6);
  for (const std::int64_t rows : {0, 1, 1000, 5001}) {
    for_index_types([&](auto index) {
      for (const int ignore : {-100, 7}) {
        Vec x = normal_vec(random, rows, 1, DType::fp32);
        Vec target = index_vec(random_targets(random, rows, 50, 3));
        for (std::size_t i = 4; i < x.size(); i += 7) target[i] = i % 2 == 0 ? 50 : -1;
        Vec ref = x;
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (target[i] != ignore && target[i] >= 0 && target[i] < 50) continue;
          x[i] = kNan;  // must not come through
          ref[i] = 0;
        }
        for (const std::int64_t misalign : {0, 1}) {
          const auto dloss = on_device<float>(x, misalign);
          const auto device_target = on_device<decltype(index)>(target, misalign);
          OnDevice<float> out(rows, 1, {.misalign = misalign});
          sm90::masked_dloss("masked_dloss", dloss.vector(), device_target.vector(), ignore, 50, out.vector(), nullptr);
          expect_near("out, misaligned by " + std::to_string(misalign), out, ref, 0, 0);
        }
      }
    });
  }
}

template <class T, class Index>
void expect_embedding_gradient(Random& random, const Shape& s, std::int64_t vocabulary, bool one_token, Placed how) {
  SCOPED_TRACE(std::string(name_of(dtype_of<T>)) + " " + text(s) + " vocabulary " + std::to_string(vocabulary) +
               " pad=" + std::to_string(how.pad) + " misalign=" + std::to_string(how.misalign));
  // Integers: their sums are exact in any order.
  const Mat dx = integer_mat(random, s.rows, s.cols, -8, 8);
  Mat table = integer_mat(random, vocabulary, s.cols, -8, 8);
  Vec tokens(static_cast<std::size_t>(s.rows));
  const double strange[] = {-1, static_cast<double>(vocabulary), -2147483648.0, 2147483647.0};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = one_token ? 0 : static_cast<double>(random.integer(0, vocabulary - 1));
    if (i % 11 == 5) tokens[i] = strange[i / 11 % 4];
  }
  const OnDevice<T> device_dx(dx, how);
  const auto token = on_device<Index>(tokens);
  OnDevice<float> dtable(table, {.pad = how.pad});
  sm90::embedding_backward("embedding_backward", device_dx.matrix(), token.vector(), dtable.matrix(), nullptr);
  for (std::int64_t m = 0; m < s.rows; ++m) {
    const double t = tokens[static_cast<std::size_t>(m)];
    if (t < 0 || t >= static_cast<double>(vocabulary)) continue;
    for (std::int64_t n = 0; n < s.cols; ++n) table(static_cast<std::int64_t>(t), n) += dx(m, n);
  }
  EXPECT_EQ(check_exact("dtable", dtable.fetch("dtable").mat(), table), "");
}

TEST_F(Kernels, embedding_gradient_adds_every_row_once) {
  Random random(8);
  // Up to 16384 rows are sorted by one kernel.
  for (const Shape& s : {Shape{1, 1},
                         {0, 8},
                         {40, 264},
                         {300, 100},
                         {50, 1100},
                         {3000, 72},
                         {9000, 24},
                         {16384, 8},
                         {16385, 8},
                         {40000, 24}}) {
    for (const std::int64_t vocabulary : {1, 37, 128, 5000}) {
      for (const Placed& how : kPlaces) {
        for_types([&](auto element) {
          using T = decltype(element);
          expect_embedding_gradient<T, std::int32_t>(random, s, vocabulary, false, how);
        });
      }
      expect_embedding_gradient<bf16, std::int64_t>(random, s, vocabulary, false, {});
      expect_embedding_gradient<bf16, std::int64_t>(random, s, vocabulary, true, {.pad = 8});
    }
  }
}

struct AdamwCase {
  std::int64_t size;
  bool weight, norm;
  double clip_norm;
  std::int64_t misalign;
};
template <class G, class W>
void expect_adamw(Random& random, const AdamwCase& c) {
  SCOPED_TRACE(std::string("gradient ") + name_of(dtype_of<G>) + " weight " + name_of(dtype_of<W>) + " size " +
               std::to_string(c.size) + " clip " + std::to_string(c.clip_norm) + " misalign " +
               std::to_string(c.misalign));
  constexpr double kRate = 0.01, kBeta1 = 0.9, kBeta2 = 0.95, kEps = 1e-8, kDecay = 0.1, kScale = 0.5;
  constexpr int kStep = 7;
  const Vec g = normal_vec(random, c.size, 1, dtype_of<G>);
  Vec w = normal_vec(random, c.size, 1, DType::fp32), m = normal_vec(random, c.size, 1, DType::fp32),
      v = uniform_vec(random, c.size, 0.5, 2, DType::fp32);
  auto master = on_device<float>(w, c.misalign), dm = on_device<float>(m, c.misalign),
       dv = on_device<float>(v, c.misalign);
  const auto gradient = on_device<G>(g, c.misalign);
  OnDevice<W> weight(c.size, 1, {.misalign = c.misalign});
  double square = 0;
  for (const double e : g) square += e * e;
  const auto norm = on_device<double>({square});
  sm90::adamw("adamw",
              {.master = master.vector(),
               .m = dm.vector(),
               .v = dv.vector(),
               .weight = c.weight ? weight.vector() : Vector(),
               .gradient = gradient.vector(),
               .rate = kRate,
               .beta1 = kBeta1,
               .beta2 = kBeta2,
               .eps = kEps,
               .weight_decay = kDecay,
               .step = kStep,
               .gradient_scale = kScale,
               .squared_norm = c.norm ? norm.vector() : Vector(),
               .clip_norm = c.clip_norm},
              nullptr);
  const double total = std::sqrt(square) * kScale;
  const double scale = c.clip_norm > 0 && total > c.clip_norm ? kScale * c.clip_norm / total : kScale;
  for (std::size_t i = 0; i < w.size(); ++i) {
    m[i] = kBeta1 * m[i] + (1 - kBeta1) * scale * g[i];
    v[i] = kBeta2 * v[i] + (1 - kBeta2) * scale * g[i] * scale * g[i];
    const double m_hat = m[i] / (1 - std::pow(kBeta1, kStep)), v_hat = v[i] / (1 - std::pow(kBeta2, kStep));
    w[i] = w[i] * (1 - kRate * kDecay) - kRate * m_hat / (std::sqrt(v_hat) + kEps);
  }
  expect_near("master", master, w, kFp32, 1e-6);
  expect_near("m", dm, m, kFp32, 1e-6);
  expect_near("v", dv, v, kFp32, 1e-6);
  if (!c.weight) {
    EXPECT_TRUE(c.size == 0 || !weight.fetch("weight", false).unwritten("weight").empty());
    return;
  }
  Vec rounded = master.fetch("master").mat().v;
  for (double& e : rounded) e = static_cast<float>(W(static_cast<float>(e)));
  expect_near("weight", weight, rounded, 0, 0);
}

TEST_F(Kernels, adamw_updates_every_element_once) {
  Random random(9);
  for (const std::int64_t size : {0, 1, 7, 2048, 5001}) {
    for (const AdamwCase& c : {AdamwCase{size, true, false, 0, 0},
                               {size, true, true, 0.1, 0},
                               {size, true, true, 1e9, 1},
                               {size, false, true, 0, 0}}) {
      for_types([&](auto g) { for_types([&](auto w) { expect_adamw<decltype(g), decltype(w)>(random, c); }); });
    }
  }
}

TEST_F(Kernels, adamw_changes_nothing_where_the_norm_is_not_finite) {
  for (const double square : {kInf, kNan}) {
    const Mat one(100, 1, 1.0);
    OnDevice<float> master(one), m(one), v(one);
    OnDevice<bf16> weight(one);
    const OnDevice<bf16> gradient(one);
    const OnDevice<double> norm(Mat(1, 1, square));
    sm90::adamw("adamw",
                {.master = master.vector(),
                 .m = m.vector(),
                 .v = v.vector(),
                 .weight = weight.vector(),
                 .gradient = gradient.vector(),
                 .rate = 1,
                 .eps = 1,
                 .squared_norm = norm.vector()},
                nullptr);
    for (OnDevice<float>* x : {&master, &m, &v}) expect_near("state", *x, one.v, 0, 0);
    expect_near("weight", weight, one.v, 0, 0);
  }
}

TEST_F(Kernels, squared_norm_is_in_fp64_and_does_not_depend_on_alignment) {
  Random random(10);
  for (const std::int64_t size : {0, 1, 5, 4096, 100003, 3000001}) {
    for_types([&](auto element) {
      using T = decltype(element);
      SCOPED_TRACE(std::string(name_of(dtype_of<T>)) + " size " + std::to_string(size));
      const Vec x = normal_vec(random, size, 1, dtype_of<T>);
      double ref = 0;
      for (const double e : x) ref += e * e;
      const OnDevice<T> aligned = on_device<T>(x), misaligned = on_device<T>(x, 1);
      OnDevice<double> out(1, 1), other(Mat(1, 1, 0.0));
      sm90::squared_norm("squared_norm", aligned.vector(), 0, out.vector(), nullptr);
      sm90::squared_norm("squared_norm", misaligned.vector(), 1, other.vector(), nullptr);
      expect_near("out", out, {ref}, 1e-12);
      EXPECT_EQ(out.bits(), other.bits());
    });
  }
  const OnDevice<float> huge(Mat(10, 1, static_cast<double>(1e30f)));
  OnDevice<double> out(1, 1);
  sm90::squared_norm("squared_norm", huge.vector(), 0, out.vector(), nullptr);
  expect_near("of huge values", out, {10 * static_cast<double>(1e30f) * static_cast<double>(1e30f)}, 1e-12);
}

TEST_F(Kernels, unsupported_types_are_named) {
  const OnDevice<double> wide(4, 4);
  const OnDevice<float> x(4, 4);
  const auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message([&] { sm90::cast("my_cast", wide.matrix(), x.matrix(), 1, nullptr); }),
            "my_cast (4, 4): in: expected bf16, fp16 or fp32, got fp64");
  EXPECT_EQ(message([&] { sm90::sum_rows("my_sum", wide.matrix(), 1, x.vector(), nullptr); }),
            "my_sum (4, 4): partial: expected fp32, got fp64");
  EXPECT_EQ(message([&] { sm90::squared_norm("my_norm", x.vector(), 0, x.vector(), nullptr); }),
            "my_norm (16, 1): out: expected fp64, got fp32");
}

}  // namespace
}  // namespace coda::test
