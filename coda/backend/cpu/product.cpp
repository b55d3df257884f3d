#include "coda/backend/cpu/product.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "coda/backend/cpu/onednn.h"

namespace coda::cpu::detail {
namespace {

using dnnl::memory;

const dnnl::engine& engine() {
  static const auto& e = *new dnnl::engine(dnnl::engine::kind::cpu, 0);  // never destroyed: threads may outlive main
  return e;
}
dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

bool is_optimised(const dnnl::matmul::primitive_desc& pd) {
  return std::string_view(pd.impl_info_str()).substr(0, 3) != "ref";
}

// Each of oneDNN's sets of instructions has a bit for each of those it includes.
bool has_instructions(dnnl::cpu_isa set) {
  static const auto has = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(set);
  return (has & wanted) == wanted;
}

// Primitives are made once per thread: they own scratch memory that only one thread may use at a time.
constexpr std::size_t kMostPrimitives = 1024;

// A primitive and what it is called with, whose addresses change from tile to tile.
struct Matmul {
  dnnl::matmul primitive;
  memory a, b, acc;

  explicit Matmul(const dnnl::matmul::primitive_desc& pd)
      : primitive(pd),
        a(pd.src_desc(), engine(), nullptr),
        b(pd.weights_desc(), engine(), nullptr),
        acc(pd.dst_desc(), engine(), nullptr) {}

  void run(const void* pa, const void* pb, void* out) {
    a.set_data_handle(const_cast<void*>(pa));
    b.set_data_handle(const_cast<void*>(pb));
    acc.set_data_handle(out);
    primitive.execute(stream(), {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, acc}});
    stream().wait();
  }
};

// The entry of `key`, made by `make()` if it is new.
template <class Key, class Value, class Make>
Value& find_or_make(std::map<Key, Value>& cache, const Key& key, const Make& make) {
  auto it = cache.find(key);
  if (it == cache.end()) {
    if (cache.size() >= kMostPrimitives) cache.clear();
    it = cache.emplace(key, make()).first;
  }
  return it->second;
}

dnnl::matmul::primitive_desc blocked_product(DType t, std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  using Tag = memory::format_tag;
  dnnl::primitive_attr attributes;
  if (add) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  const memory::desc a({m, k}, dnnl_type(t), Tag::ab);
  const memory::desc b({k, n}, dnnl_type(t), t == DType::bf16 ? Tag::BA16a64b2a : Tag::BA16a64b);
  const memory::desc acc({m, n}, memory::data_type::f32, memory::format_tag::ab);
  return describe_matmul(engine(), a, b, acc, attributes);
}

// acc += a[:, k] b[:, k], of bf16.
void add_step(const Operand& a, const Operand& b, std::int64_t m, std::int64_t n, std::int64_t k, float* acc,
              std::int64_t ld) {
  const auto* x = reinterpret_cast<const bf16*>(a.data) + k * a.k_stride;
  const auto* y = reinterpret_cast<const bf16*>(b.data) + k * b.k_stride;
  constexpr std::int64_t kColumns = 256;
  float row[kColumns];
  for (std::int64_t first = 0; first < n; first += kColumns) {
    const std::int64_t count = std::min(kColumns, n - first);
    for (std::int64_t j = 0; j < count; ++j) row[j] = static_cast<float>(y[(first + j) * b.free_stride]);
    for (std::int64_t i = 0; i < m; ++i) {
      const auto factor = static_cast<float>(x[i * a.free_stride]);
      float* to = acc + i * ld + first;
      for (std::int64_t j = 0; j < count; ++j) to[j] += factor * row[j];
    }
  }
}

// What oneDNN's cache of kernels takes for the same description may differ in the stride of a single row, column or
// step, which means nothing: it would depend on earlier calls which kernel runs, and in which order it adds.
Operand settled(Operand x, std::int64_t free, std::int64_t k) {
  if (free == 1) x.free_stride = x.k_stride == 1 ? k : 1;
  if (k == 1) x.k_stride = x.free_stride == 1 ? free : 1;
  return x;
}

// oneDNN 3.7 takes the elements of a single row of A, and those of a single column of the result, for adjacent. They
// are made so for any version.
void multiply_row(const Operand& a, const Operand& b, std::int64_t n, std::int64_t k, float* acc, std::int64_t ld) {
  thread_local std::vector<std::byte> row;
  const std::size_t size = size_of(a.dtype);
  row.resize(static_cast<std::size_t>(k) * size);
  for (std::int64_t l = 0; l < k; ++l) std::memcpy(row.data() + l * size, a.data + l * a.k_stride * size, size);
  multiply({row.data(), a.dtype, k, 1}, b, 1, n, k, acc, ld);
}
void multiply_column(const Operand& a, const Operand& b, std::int64_t m, std::int64_t k, float* acc, std::int64_t ld) {
  constexpr std::int64_t kRows = 256;
  float column[kRows];
  for (std::int64_t first = 0; first < m; first += kRows) {
    const std::int64_t count = std::min(kRows, m - first);
    const auto* rows = static_cast<const std::byte*>(a.at(first));
    multiply({rows, a.dtype, a.free_stride, a.k_stride}, b, count, 1, k, column, 1);
    for (std::int64_t i = 0; i < count; ++i) acc[(first + i) * ld] = column[i];
  }
}

using BlockedKey = std::tuple<DType, std::int64_t, std::int64_t, std::int64_t, bool>;

}  // namespace

bool native_bf16() { return has_instructions(dnnl::cpu_isa::avx512_core_bf16); }

bool has_amx() { return has_instructions(dnnl::cpu_isa::avx512_core_amx); }

void multiply(const Operand& a, const Operand& b, std::int64_t m, std::int64_t n, std::int64_t k, float* acc,
              std::int64_t ld) {
  // oneDNN's kernels for AVX512_BF16 take steps of k by pairs. Where the last one is single they multiply its value by
  // what stands for the missing one, 0: NaN, if it is infinite.
  if (a.dtype == DType::bf16 && k % 2 != 0) {
    if (k > 1) multiply(a, b, m, n, k - 1, acc, ld);
    else
      for (std::int64_t i = 0; i < m; ++i) std::fill_n(acc + i * ld, n, 0.F);
    return add_step(a, b, m, n, k - 1, acc, ld);
  }
  if (m == 1 && k > 1 && a.k_stride != 1) return multiply_row(a, b, n, k, acc, ld);
  if (n == 1 && ld != 1) return multiply_column(a, b, m, k, acc, ld);
  const Operand x = settled(a, m, k), y = settled(b, n, k);
  using Key = std::tuple<DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                         std::int64_t, std::int64_t>;
  thread_local std::map<Key, Matmul> cache;
  const Key key{x.dtype, m, n, k, x.free_stride, x.k_stride, y.free_stride, y.k_stride, ld};
  find_or_make(cache, key, [&] {
    const memory::desc src({m, k}, dnnl_type(x.dtype), memory::dims{x.free_stride, x.k_stride});
    const memory::desc weights({k, n}, dnnl_type(y.dtype), memory::dims{y.k_stride, y.free_stride});
    const memory::desc dst({m, n}, memory::data_type::f32, memory::dims{ld, 1});
    return Matmul(describe_matmul(engine(), src, weights, dst));
  }).run(a.data, b.data, acc);
}

// fp64 exists to test gradients: clear rather than fast.
void multiply(const Operand& a, const Operand& b, std::int64_t m, std::int64_t n, std::int64_t k, double* acc,
              std::int64_t ld) {
  const auto* pa = reinterpret_cast<const double*>(a.data);
  const auto* pb = reinterpret_cast<const double*>(b.data);
  for (std::int64_t i = 0; i < m; ++i) {
    double* row = acc + i * ld;
    std::fill_n(row, n, 0.0);
    for (std::int64_t l = 0; l < k; ++l) {
      const double x = pa[i * a.free_stride + l * a.k_stride];
      const double* y = pb + l * b.k_stride;
      if (b.free_stride == 1) {
        for (std::int64_t j = 0; j < n; ++j) row[j] += x * y[j];
      } else {
        for (std::int64_t j = 0; j < n; ++j) row[j] += x * y[j * b.free_stride];
      }
    }
  }
}

bool has_blocked_product(DType t, std::int64_t m, std::int64_t n, std::int64_t k) {
  // The kernel of oneDNN 3.7 for AVX2 reads other memory than the blocks.
  if (k < kLeastBlockedK || !has_instructions(dnnl::cpu_isa::avx512_core)) return false;
  thread_local std::map<BlockedKey, bool> cache;
  return find_or_make(cache, BlockedKey{t, m, n, k, false}, [&] {
    try {
      return is_optimised(blocked_product(t, m, n, k, false));
    } catch (const dnnl::error& e) {
      // No answer is kept of any other: memory may have been short.
      if (e.status != dnnl_unimplemented && e.status != dnnl_invalid_arguments) throw;
      return false;
    }
  });
}

void multiply_blocked(DType t, const void* a, const void* b, std::int64_t m, std::int64_t n, std::int64_t k, float* acc,
                      bool add) {
  thread_local std::map<BlockedKey, Matmul> cache;
  find_or_make(cache, BlockedKey{t, m, n, k, add}, [&] {
    return Matmul(blocked_product(t, m, n, k, add));
  }).run(a, b, acc);
}

}  // namespace coda::cpu::detail
