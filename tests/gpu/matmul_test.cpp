// Plain products by cuBLASLt, and the workspaces they use, against fp64. Skipped where there is no Hopper GPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "coda/backend/sm90/blas.h"
#include "coda/backend/sm90/kernels.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/core/error.h"
#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/support/accuracy.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

constexpr coda::Layout kLayouts[] = {coda::Layout::nt, coda::Layout::nn, coda::Layout::tn};

struct Size {
  std::int64_t m, n, k;
  std::string text() const { return "M=" + std::to_string(m) + " N=" + std::to_string(n) + " K=" + std::to_string(k); }
};

/// The linear map of c and the product that every case computes.
Mat combined(double alpha, const Mat& product, double beta, const Mat& c) {
  Mat y = product;
  for (std::size_t i = 0; i < y.v.size(); ++i) y.v[i] = alpha * y.v[i] + beta * c.v[i];
  return y;
}

using Matmul = OnHopper;

// First in the file, and so the process's first product: nothing of it may break a capture.
TEST_F(Matmul, first_call_of_a_process_can_be_captured) {
  Random random(1);
  const Problem p = exact_problem(random, reference::Layout::abt, 96, 128, 4096);
  const OnDevice<bf16> a(p.a), b(p.b);
  OnDevice<bf16> out(96, 128);
  const Stream stream;
  const Graph graph(stream, [&] {
    sm90::matmul("matmul", a.matrix(), b.matrix(), coda::Layout::nt, 1, 0, {}, out.matrix(), stream.get());
  });
  const Mat ref = reference::product(p.operands());
  for (int replay = 0; replay < 10; ++replay) {
    out.poison();
    graph.launch(stream);
    stream.wait();
    EXPECT_EQ(check_exact("out", out.fetch("out").mat(), ref), "") << "replay " << replay;
  }
}

template <class T, class Out>
void expect_exact(Random& random, coda::Layout layout, const Size& s, Placed how) {
  const Problem p = exact_problem(random, reference::layout_of(layout), s.m, s.n, s.k);
  const Mat product = reference::product(p.operands()), c = integer_mat(random, s.m, s.n, -8, 8);
  const OnDevice<T> a(p.a, how), b(p.b, how);
  SCOPED_TRACE(std::string(name_of(dtype_of<T>)) + " to " + name_of(dtype_of<Out>) + " " + coda::name_of(layout) + " " +
               s.text() + " pad=" + std::to_string(how.pad) + " misalign=" + std::to_string(how.misalign));
  const auto run = [&](float alpha, float beta, const ConstMatrix& addend, OnDevice<Out>& out) {
    sm90::matmul("matmul", a.matrix(), b.matrix(), layout, alpha, beta, addend, out.matrix(), nullptr);
    EXPECT_EQ(check_exact("out", out.fetch("out").mat(), combined(alpha, product, beta, c)), "")
        << "alpha " << alpha << " beta " << beta;
  };
  OnDevice<Out> out(s.m, s.n, how), other(s.m, s.n, how), addend(c, {.pad = how.pad + 3, .misalign = how.misalign}),
      in_place(c, how);
  run(1, 0, {}, out);
  run(0.5f, 2, addend.matrix(), other);
  run(1, 1, in_place.matrix(), in_place);
  EXPECT_EQ(check_exact("c", addend.fetch("c").mat(), c), "");
}

TEST_F(Matmul, any_shape_pitch_and_alignment_is_exact) {
  const Size sizes[] = {{1, 1, 1},      {1, 8, 8},     {8, 1, 64},     {3, 5, 7},       {33, 17, 129}, {128, 128, 64},
                        {257, 131, 72}, {64, 1000, 1}, {16, 24, 8192}, {200, 264, 511}, {130, 136, 0}, {300, 1, 3}};
  const Placed places[] = {{}, {.pad = 8}, {.pad = 1}, {.pad = 0, .misalign = 1}, {.pad = 4, .misalign = 4}};
  Random random(2);
  for (const Size& s : sizes) {
    for (const Placed& how : places) {
      for (const coda::Layout layout : kLayouts) {
        expect_exact<bf16, bf16>(random, layout, s, how);
        expect_exact<bf16, float>(random, layout, s, how);
        expect_exact<fp16, fp16>(random, layout, s, how);
        expect_exact<fp16, float>(random, layout, s, how);
      }
    }
  }
}

/// What the thread asks for does not outlive a test.
struct Ask {
  explicit Ask(const std::optional<sm90::Algorithm>& x) { sm90::set_algorithm(x); }
  Ask(const Ask&) = delete;
  Ask& operator=(const Ask&) = delete;
  ~Ask() { sm90::set_algorithm({}); }
};

template <class Out>
std::size_t expect_all_exact(const Problem& p, const Mat& ref, coda::Layout layout, const Size& s) {
  const auto offered = sm90::algorithms("matmul", DType::bf16, dtype_of<Out>, layout, s.m, s.n, s.k);
  // The first is as tuning measures it; the others have pitches and addresses that an algorithm may not take.
  for (const Placed& how : {Placed{}, Placed{.pad = 8}, Placed{.pad = 1}, Placed{.misalign = 4}}) {
    const OnDevice<bf16> a(p.a, how), b(p.b, how);
    OnDevice<Out> out(s.m, s.n, how);
    for (const sm90::Algorithm& x : offered) {
      const Ask ask(x);
      out.poison();
      sm90::matmul("matmul", a.matrix(), b.matrix(), layout, 1, 0, {}, out.matrix(), nullptr);
      EXPECT_EQ(check_exact("out", out.fetch("out").mat(), ref), "")
          << sm90::text_of(x) << " to " << name_of(dtype_of<Out>) << " " << coda::name_of(layout) << " " << s.text()
          << " pad=" << how.pad << " misalign=" << how.misalign;
    }
  }
  return offered.size();
}

TEST_F(Matmul, each_algorithm_that_tuning_tries_is_exact) {
  Random random(5);
  std::size_t tried = 0;
  for (const Size& s : {Size{512, 768, 640}, Size{600, 1000, 136}, Size{16, 1024, 4096}}) {
    for (const coda::Layout layout : kLayouts) {
      const Problem p = exact_problem(random, reference::layout_of(layout), s.m, s.n, s.k);
      const Mat ref = reference::product(p.operands());
      tried += expect_all_exact<bf16>(p, ref, layout, s);
      tried += expect_all_exact<float>(p, ref, layout, s);
    }
  }
  EXPECT_GT(tried, 90U) << "of 18 products cuBLASLt offers hardly more than its own choice";
}

TEST_F(Matmul, an_algorithm_that_cublaslt_does_not_take_is_not_run) {
  Random random(6);
  const Size s{256, 384, 128};
  const sm90::Algorithm good =
      sm90::algorithms("matmul", DType::bf16, DType::bf16, coda::Layout::nt, s.m, s.n, s.k).back();
  ASSERT_NE(good, sm90::Algorithm());
  std::vector<sm90::Algorithm> bad(4, good);
  bad[0].id = 999999, bad[1].tile = 888888, bad[2].stages = 77777, bad[3].cluster_shape = 6666;
  for (const sm90::Algorithm& x : bad) {
    const Ask ask(x);
    SCOPED_TRACE(sm90::text_of(x));
    expect_exact<bf16, bf16>(random, coda::Layout::nt, s, {});
  }
}

TEST_F(Matmul, an_algorithm_runs_where_it_was_asked_for) {
  // Splitting K changes the order of a sum, and so bits: what was asked for must have run.
  const Size s{16, 512, 16384};
  std::vector<sm90::Algorithm> offered =
      sm90::algorithms("matmul", DType::bf16, DType::fp32, coda::Layout::nt, s.m, s.n, s.k);
  std::erase_if(offered, [](const sm90::Algorithm& x) { return x.id < 0; });
  Random random(7);
  const Problem p = normal_problem(random, reference::Layout::abt, s.m, s.n, s.k, 1, DType::bf16);
  const OnDevice<bf16> a(p.a), b(p.b);
  OnDevice<float> out(s.m, s.n);
  const auto bits_of = [&](const sm90::Algorithm& x) {
    const Ask ask(x);
    out.poison();
    sm90::matmul("matmul", a.matrix(), b.matrix(), coda::Layout::nt, 1, 0, {}, out.matrix(), nullptr);
    sm90::synchronize();
    return out.bits();
  };
  std::set<int> splits;
  std::set<std::vector<unsigned char>> results;
  for (const sm90::Algorithm& x : offered) {
    EXPECT_EQ(bits_of(x), bits_of(x)) << sm90::text_of(x);
    splits.insert(x.split_k);
    results.insert(bits_of(x));
  }
  ASSERT_GT(splits.size(), 1U);
  EXPECT_GT(results.size(), 1U);
}

TEST_F(Matmul, empty_products_are_no_error) {
  const OnDevice<bf16> a(1, 64), b(8, 64);
  OnDevice<bf16> out(1, 8);
  const auto view = [](const OnDevice<bf16>& x, std::int64_t rows, std::int64_t cols) {
    return Matrix(x.matrix().data, DType::bf16, rows, cols);
  };
  for (const Size s : {Size{0, 8, 64}, Size{1, 0, 64}, Size{0, 0, 0}}) {
    sm90::matmul("matmul", view(a, s.m, s.k), view(b, s.n, s.k), coda::Layout::nt, 1, 0, {}, view(out, s.m, s.n),
                 nullptr);
  }
  sm90::matmul("matmul", Matrix(nullptr, DType::bf16, 0, 64), b.matrix(), coda::Layout::nt, 1, 1, {},
               Matrix(nullptr, DType::bf16, 0, 8), nullptr);
  EXPECT_NE(out.fetch("out", false).unwritten("out"), "");  // all of it as before
}

TEST_F(Matmul, accumulation_is_in_fp32) {
  Random random(3);
  for (const coda::Layout layout : kLayouts) {
    for (const Size& s : {Size{256, 384, 4096}, Size{40, 72, 16384}}) {
      SCOPED_TRACE(std::string(coda::name_of(layout)) + " " + s.text());
      const Problem p = normal_problem(random, reference::layout_of(layout), s.m, s.n, s.k, 0.1, DType::bf16);
      const OnDevice<bf16> a(p.a), b(p.b);
      const Mat ref = reference::product(p.operands()),
                chain = reference::product(p.operands(), reference::Round::to(DType::bf16));
      OnDevice<bf16> out(s.m, s.n);
      OnDevice<float> wide(s.m, s.n);
      sm90::matmul("matmul", a.matrix(), b.matrix(), layout, 1, 0, {}, out.matrix(), nullptr);
      sm90::matmul("matmul", a.matrix(), b.matrix(), layout, 1, 0, {}, wide.matrix(), nullptr);
      EXPECT_EQ(check_accuracy("out", out.fetch("out").mat(), ref, chain, DType::bf16), "");
      EXPECT_EQ(check_relative("fp32 out", wide.fetch("fp32 out").mat(), ref, DType::fp32, 1e-5), "");
    }
  }
}

TEST_F(Matmul, eight_threads_get_the_bits_of_one) {
  // Shapes that are new to all threads at once, some of which split K and so need a workspace.
  std::vector<Size> sizes;
  for (std::int64_t i = 1; i <= 24; ++i) sizes.push_back({16 * i, 8 * (25 - i), i % 3 == 0 ? 8192 : 40 * i});
  Random random(4);
  const Mat noise = normal_mat(random, 1, 8192 * 400, 1, DType::bf16);
  const OnDevice<bf16> operand(noise);
  constexpr int kThreads = 8, kRounds = 10;
  const auto run = [&](const Size& s, coda::Layout layout, const OnDevice<bf16>& out, void* on) {
    const auto view = [&](std::int64_t rows, std::int64_t cols) {
      return Matrix(operand.matrix().data, DType::bf16, rows, cols);
    };
    const Matrix a = layout == coda::Layout::tn ? view(s.k, s.m) : view(s.m, s.k);
    const Matrix b = layout == coda::Layout::nt ? view(s.n, s.k) : view(s.k, s.n);
    sm90::matmul("matmul", a, b, layout, 1, 0, {}, Matrix(out.matrix().data, DType::bf16, s.m, s.n), on);
  };
  const auto case_of = [&](std::size_t i) { return std::pair{sizes[i % sizes.size()], kLayouts[i % 3]}; };
  const std::size_t cases = 3 * sizes.size() - 1;

  std::vector<std::string> failures(kThreads);
  std::vector<std::vector<std::vector<unsigned char>>> results(kThreads);
  const auto work = [&](int thread) {
    try {
      const Stream stream;
      OnDevice<bf16> out(400, 200);
      for (int round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < cases; ++i) {
          const auto& [s, layout] = case_of(i);
          out.poison();
          run(s, layout, out, stream.get());
          stream.wait();
          const auto bits = out.bits();
          auto& mine = results[static_cast<std::size_t>(thread)];
          if (round == 0) mine.push_back(bits);
          else if (mine[i] != bits)
            throw std::runtime_error("round " + std::to_string(round) + " differs: " + s.text());
        }
      }
    } catch (const std::exception& e) {
      failures[static_cast<std::size_t>(thread)] = e.what();
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& t : threads) t.join();
  for (int t = 0; t < kThreads; ++t) {
    const auto thread = static_cast<std::size_t>(t);
    EXPECT_EQ(failures[thread], "") << "thread " << t;
    EXPECT_EQ(results[thread], results[0]) << "thread " << t;
  }
}

TEST_F(Matmul, bad_calls_are_named) {
  const OnDevice<bf16> a(8, 16), b(8, 16);
  const OnDevice<float> wide(8, 8);
  OnDevice<bf16> out(8, 8);
  const auto message = [&](const ConstMatrix& x, const ConstMatrix& y, const Matrix& z, float beta) -> std::string {
    try {
      sm90::matmul("my_call", x, y, coda::Layout::nt, 1, beta, {}, z, nullptr);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << "\nexpected: " << part;
    EXPECT_NE(text.find("my_call (M="), std::string::npos) << text;
  };
  Matrix short_b = b.matrix();
  short_b.cols = 8;
  expect(message(a.matrix(), short_b, out.matrix(), 0), "b: expected a matrix (8, 16) of bf16, got (8, 8) of bf16");
  expect(message(wide.matrix(), wide.matrix(), out.matrix(), 0), "a: expected bf16 or fp16, got fp32");
  expect(message(a.matrix(), b.matrix(), a.matrix(), 0), "out: expected a matrix (8, 8) of bf16, got (8, 16) of bf16");
  expect(message(a.matrix(), b.matrix(), out.matrix(), 1), "c: expected a matrix (8, 8) of bf16, got a null pointer");
  EXPECT_EQ(message(a.matrix(), b.matrix(), out.matrix(), 0), "no error");
  sm90::synchronize();
}

TEST_F(Matmul, workspace_is_memory_of_its_stream) {
  const Stream stream;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{32} << 20}) {
    sm90::Workspace first(bytes, stream.get(), "test"), second(bytes, stream.get(), "test");
    EXPECT_NE(first.data(), second.data());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first.data()) % 256, 0u);
    const auto elements = static_cast<std::int64_t>(bytes / sizeof(float));
    sm90::fill("fill", MatrixOf<float>(first.as<float>(), 1, elements), 1, stream.get());
    void* data = first.data();
    const sm90::Workspace moved = std::move(first);
    EXPECT_EQ(moved.data(), data);
    EXPECT_EQ(first.data(), nullptr);  // NOLINT: what is moved from is empty
  }
  EXPECT_EQ(sm90::Workspace(0, stream.get(), "test").data(), nullptr);
  stream.wait();
}

TEST_F(Matmul, workspace_that_does_not_fit_is_an_error_and_the_next_call_works) {
  const Stream stream;
  try {
    const sm90::Workspace huge(std::size_t{1} << 45, stream.get(), "my_call");
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::device_error);
    EXPECT_NE(std::string(e.what()).find("my_call: workspace of 35184372088832 bytes"), std::string::npos) << e.what();
  }
  const sm90::Workspace next(1 << 20, stream.get(), "my_call");
  EXPECT_NE(next.data(), nullptr);
  stream.wait();
}

}  // namespace
}  // namespace coda::test
