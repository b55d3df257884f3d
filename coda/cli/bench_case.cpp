#include "coda/cli/bench_case.h"

#include <algorithm>
#include <chrono>

#include "coda/backend/cpu/onednn.h"
#include "coda/backend/cpu/product.h"
#include "coda/core/error.h"

namespace coda::cli {
namespace {

using cpu::detail::describe_matmul;
using cpu::detail::dnnl_type;
using dnnl::memory;

void store(DType t, void* data, std::int64_t i, float x) {
  if (t == DType::bf16) static_cast<bf16*>(data)[i] = bf16(x);
  else static_cast<float*>(data)[i] = x;
}

}  // namespace

BenchCase::BenchCase(DType t, Layout l, Shape s)
    : type(t),
      layout(l),
      m(s.m),
      n(s.n),
      k(s.k),
      a(l == Layout::tn ? matrix(k, m) : matrix(m, k)),
      b(l == Layout::nt ? matrix(n, k) : matrix(k, n)),
      product(matrix(m, n)) {}

void* BenchCase::allocate(std::int64_t count, DType t) {
  memory_.push_back(cpu::allocate(static_cast<std::size_t>(count * size_of(t))));
  if (!memory_.back()) throw Error(Status::device_error, "bench: out of memory");
  return memory_.back().get();
}

Matrix BenchCase::matrix(std::int64_t rows, std::int64_t cols, DType t) {
  const Vector v = vector(rows * cols, t);
  return {v.data, t, rows, cols};
}

Vector BenchCase::vector(std::int64_t size, DType t) {
  void* data = allocate(size, t);
  for (std::int64_t i = 0; i < size; ++i) store(t, data, i, static_cast<float>(random_.uniform(-1, 1)));
  return {data, t, size};
}

Vector BenchCase::statistic(std::int64_t size) {
  const Vector v = vector(size, DType::fp32);
  for (std::int64_t i = 0; i < size; ++i)
    static_cast<float*>(v.data)[i] = static_cast<float>(random_.uniform(0.5, 1.5));
  return v;
}

Vector BenchCase::targets() {
  auto* data = static_cast<std::int32_t*>(allocate(m, DType::int32));
  for (std::int64_t i = 0; i < m; ++i) data[i] = static_cast<std::int32_t>(random_.integer(0, n - 1));
  return {data, DType::int32, m};
}

ops::Heads BenchCase::heads() {
  std::int64_t dim = 128;
  while (dim > 2 && (n % dim != 0 || n / dim < 3)) dim /= 2;
  const std::int64_t total = n / dim, v = total >= 3 ? std::max<std::int64_t>(1, total / 6) : 0;
  const Matrix table = matrix(m, dim, DType::fp32);
  ops::rotary_table(table, 10000);
  return {.q = total - 2 * v, .k = v, .v = v, .head_dim = dim, .table = table};
}

// ---- the bare product

struct BareProduct::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  memory a, b, d;
  dnnl::matmul matmul;
};

BareProduct::BareProduct(BenchCase& c) : impl_(std::make_unique<Impl>()) {
  const bool widened = c.type == DType::bf16 && !cpu::detail::native_bf16();
  const auto bind = [&](const ConstMatrix& x, bool transposed) {
    const ConstMatrix used = widened ? ConstMatrix(c.matrix(x.rows, x.cols, DType::fp32)) : x;
    const memory::dims dims = transposed ? memory::dims{x.cols, x.rows} : memory::dims{x.rows, x.cols};
    const memory::dims strides = transposed ? memory::dims{1, used.pitch} : memory::dims{used.pitch, 1};
    return memory({dims, dnnl_type(used.dtype), strides}, impl_->engine, const_cast<void*>(used.data));
  };
  impl_->a = bind(c.a, c.layout == Layout::tn);
  impl_->b = bind(c.b, c.layout == Layout::nt);
  impl_->d = bind(c.product, false);
  impl_->matmul =
      dnnl::matmul(describe_matmul(impl_->engine, impl_->a.get_desc(), impl_->b.get_desc(), impl_->d.get_desc()));
}
BareProduct::~BareProduct() = default;

void BareProduct::run() {
  impl_->matmul.execute(impl_->stream,
                        {{DNNL_ARG_SRC, impl_->a}, {DNNL_ARG_WEIGHTS, impl_->b}, {DNNL_ARG_DST, impl_->d}});
  impl_->stream.wait();
}

// ---- timing

std::vector<Time> interleaved(const std::vector<std::function<void()>>& calls, int rounds) {
  std::vector<std::vector<double>> times(calls.size());
  for (const auto& call : calls) call();
  for (int r = 0; r < rounds; ++r)
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      calls[i]();
      times[i].push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
  std::vector<Time> out;
  for (auto& t : times) {
    std::sort(t.begin(), t.end());
    out.push_back({t[t.size() / 2], t.front()});
  }
  return out;
}

Times measure(BenchCase& c, int rounds) {
  try {
    BareProduct bare(c);
    const auto times = interleaved({[&] { bare.run(); }, c.fused,
                                    [&] {
                                      bare.run();
                                      c.pass();
                                    }},
                                   rounds);
    return {times[0], times[1], times[2]};
  } catch (const dnnl::error& e) {
    throw Error(Status::device_error, std::string("bench: oneDNN: ") + e.what());
  }
}

}  // namespace coda::cli
