// The tile loop. Operands that many tiles read are brought into the order oneDNN likes best once (packed), in groups
// that bound the memory this takes; then each thread takes a tile, asks oneDNN for its product and runs the epilogue.
#include "coda/backend/cpu/gemm.h"

#include <omp.h>
#include <sys/mman.h>

#include <exception>
#include <map>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <tuple>
#include <vector>

#include "coda/backend/cpu/pack.h"

namespace coda::cpu::detail {
namespace {

using dnnl::memory;

// At most this much of each operand is held packed at a time (but one tile's share at least).
constexpr std::int64_t kPackBytes = std::int64_t{64} << 20;

const dnnl::engine& engine() {
  static const dnnl::engine e(dnnl::engine::kind::cpu, 0);
  return e;
}
dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

memory::data_type dnnl_type(DType t) { return t == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32; }

// A grow-only buffer of one thread, on large pages where the system has them: tiles are read with long strides, and the
// same product is a quarter slower on 4 KiB pages (measured at 1024^3 in bf16).
struct Buffer {
  static constexpr std::size_t kLargePage = std::size_t{2} << 20;
  std::unique_ptr<std::byte, void (*)(void*)> data{nullptr, std::free};
  std::size_t size = 0;
  void* get(std::size_t bytes) {
    if (bytes > size) {
      const std::size_t page = bytes < kLargePage / 4 ? 4096 : kLargePage;
      bytes = (bytes + page - 1) / page * page;
      data.reset(static_cast<std::byte*>(std::aligned_alloc(page, bytes)));
#if defined(MADV_HUGEPAGE)
      if (data && page == kLargePage) madvise(data.get(), bytes, MADV_HUGEPAGE);
#endif
      if (!data) {
        size = 0;
        throw Error(Status::device_error, "gemm: workspace: could not allocate " + std::to_string(bytes) + " bytes");
      }
      size = bytes;
    }
    return data.get();
  }
};

// One operand as (rows of the product's free dimension) x k, wherever its elements are.
struct Operand {
  const std::byte* data;
  DType dtype;
  std::int64_t free_stride, k_stride;  // in elements

  const void* at(std::int64_t i) const { return data + i * free_stride * size_of(dtype); }
};

// bf16 products run on bf16 instructions where oneDNN has them for this machine, and on fp32 ones elsewhere: exact,
// since every bf16 is a float.
bool native_bf16() {
  static const bool yes = [] {
    try {
      const memory::desc a({64, 64}, memory::data_type::bf16, memory::format_tag::ab);
      const memory::desc c({64, 64}, memory::data_type::f32, memory::format_tag::ab);
      const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(a, a, c), engine());
      return std::string_view(pd.impl_info_str()).substr(0, 3) != "ref";
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return yes;
}

using MatmulKey = std::tuple<DType, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                             std::int64_t, std::int64_t>;

// Primitives are made once per thread: they own scratch memory that only one thread may use at a time.
void multiply(const Operand& a, const Operand& b, std::int64_t m, std::int64_t n, std::int64_t k, float* acc,
              std::int64_t ld) {
  thread_local std::map<MatmulKey, dnnl::matmul> cache;
  const MatmulKey key{a.dtype, m, n, k, a.free_stride, a.k_stride, b.free_stride, b.k_stride, ld};
  const memory::desc src({m, k}, dnnl_type(a.dtype), memory::dims{a.free_stride, a.k_stride});
  const memory::desc weights({k, n}, dnnl_type(b.dtype), memory::dims{b.k_stride, b.free_stride});
  const memory::desc dst({m, n}, memory::data_type::f32, memory::dims{ld, 1});
  auto it = cache.find(key);
  if (it == cache.end()) {
    if (cache.size() >= 1024) cache.clear();
    const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(src, weights, dst), engine());
    it = cache.emplace(key, dnnl::matmul(pd)).first;
  }
  memory s(src, engine(), const_cast<std::byte*>(a.data)), w(weights, engine(), const_cast<std::byte*>(b.data)),
      d(dst, engine(), acc);
  it->second.execute(stream(), {{DNNL_ARG_SRC, s}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, d}});
  stream().wait();
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

bool needs_widening(DType t) { return t == DType::fp16 || (t == DType::bf16 && !native_bf16()); }

// Copies `count` rows of the free dimension from `first` on, as the product wants them: contiguous, in fp32 where the
// type has no product of its own, and with the dimension `inner_free ? free : k` running fastest.
void pack(const Operand& in, std::int64_t first, std::int64_t count, std::int64_t k, bool inner_free, void* out) {
  const bool free_runs = in.free_stride == 1 && in.k_stride != 1;
  const std::int64_t rows = free_runs ? k : count, cols = free_runs ? count : k;
  const std::int64_t pitch = free_runs ? in.k_stride : in.free_stride;
  const bool turn = free_runs != inner_free;
  const auto copy = [&](auto from, auto to) {
    using From = decltype(from);
    using To = decltype(to);
    const auto* source = static_cast<const From*>(in.at(first));
    turn ? transpose(source, rows, cols, pitch, static_cast<To*>(out))
         : copy_rows(source, rows, cols, pitch, static_cast<To*>(out));
  };
  if (in.dtype == DType::fp32) copy(float{}, float{});
  else if (in.dtype == DType::fp16) copy(fp16{}, float{});
  else if (needs_widening(in.dtype)) copy(bf16{}, float{});
  else copy(bf16{}, bf16{});
}

// The first exception of a parallel region, to be thrown after it.
class Failure {
 public:
  template <class F>
  void guard(const F& f) noexcept {
    try {
      f();
    } catch (...) {
#pragma omp critical(coda_cpu_failure)
      if (!error_) error_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (!error_) return;
    try {
      std::rethrow_exception(error_);
    } catch (const dnnl::error& e) {
      throw Error(Status::device_error,
                  std::string("gemm: oneDNN: ") + e.what() + " (status " + std::to_string(e.status) + ")");
    } catch (const std::bad_alloc&) {
      throw Error(Status::device_error, "gemm: workspace: out of memory");
    }
  }

 private:
  std::exception_ptr error_;
};

// How an operand is cut into tiles along its free dimension, and those of them that are packed at present.
struct Panels {
  Operand operand;
  std::int64_t size, k, tile;
  bool packed, inner_free;
  std::int64_t per_group;
  void* memory = nullptr;

  Panels(const Operand& o, std::int64_t size_, std::int64_t k_, std::int64_t tile_, bool packed_, bool inner_free_)
      : operand(o), size(size_), k(k_), tile(tile_), packed(packed_), inner_free(inner_free_) {
    per_group = packed ? std::clamp<std::int64_t>(kPackBytes / panel_bytes(), 1, count()) : count();
  }
  std::int64_t count() const { return (size + tile - 1) / tile; }
  std::int64_t extent(std::int64_t i) const { return std::min(tile, size - i * tile); }
  std::int64_t panel_bytes() const {
    return (tile * k * size_of(needs_widening(operand.dtype) ? DType::fp32 : operand.dtype) + 63) / 64 * 64;
  }
  std::size_t group_bytes() const { return packed ? static_cast<std::size_t>(per_group * panel_bytes()) : 0; }
  void* slot(std::int64_t i) const { return static_cast<std::byte*>(memory) + (i % per_group) * panel_bytes(); }
  void fill(std::int64_t i) const { pack(operand, i * tile, extent(i), k, inner_free, slot(i)); }
  Operand get(std::int64_t i) const {
    if (!packed)
      return {static_cast<const std::byte*>(operand.at(i * tile)), operand.dtype, operand.free_stride,
              operand.k_stride};
    return {static_cast<const std::byte*>(slot(i)), needs_widening(operand.dtype) ? DType::fp32 : operand.dtype,
            inner_free ? 1 : k, inner_free ? extent(i) : 1};
  }
};

template <class Acc>
void run_typed(const GemmCall& c) {
  const Operand a{static_cast<const std::byte*>(c.a.data), c.a.dtype, c.layout == Layout::tn ? 1 : c.a.pitch,
                  c.layout == Layout::tn ? c.a.pitch : 1};
  const Operand b{static_cast<const std::byte*>(c.b.data), c.b.dtype, c.layout == Layout::nt ? c.b.pitch : 1,
                  c.layout == Layout::nt ? 1 : c.b.pitch};
  const std::int64_t count_m = tiles_m(c.m), count_n = (c.n + c.tile_n - 1) / c.tile_n;
  const bool real = c.k > 0;
  const bool widen = needs_widening(a.dtype);
  const bool fp64 = std::is_same_v<Acc, double>;
  // Packing pays where more than one tile reads an operand whose stored order oneDNN would have to change each time
  // (A stored (K, M); B stored (N, K) in fp32: its bf16 products take that order as it is), or a B whose rows all fall
  // into the same few sets of the cache.
  const bool aliased = b.k_stride * size_of(b.dtype) % 1024 == 0;
  const bool turn_b = b.free_stride != 1 && b.dtype == DType::fp32;
  Panels pa(a, c.m, c.k, kTileM, real && !fp64 && (widen || (a.k_stride != 1 && count_n > 1)), false);
  Panels pb(b, c.n, c.k, c.tile_n,
            real && !fp64 && (widen || (turn_b && count_m > 1) || (b.free_stride == 1 && aliased && count_m > 2)),
            true);

  thread_local Buffer buffer_a, buffer_b;
  pa.memory = pa.packed ? buffer_a.get(pa.group_bytes()) : nullptr;
  pb.memory = pb.packed ? buffer_b.get(pb.group_bytes()) : nullptr;
  const std::int64_t ld =
      (std::min(c.tile_n, c.n) + CpuTile<Acc>::kColumns - 1) / CpuTile<Acc>::kColumns * CpuTile<Acc>::kColumns;

  Failure failure;
  for (std::int64_t m0 = 0; m0 < count_m; m0 += pa.per_group) {
    const std::int64_t m1 = std::min(count_m, m0 + pa.per_group);
    for (std::int64_t n0 = 0; n0 < count_n; n0 += pb.per_group) {
      const std::int64_t n1 = std::min(count_n, n0 + pb.per_group);
      const std::int64_t fill_a = pa.packed && n0 == 0 ? m1 - m0 : 0, fill_b = pb.packed ? n1 - n0 : 0;
      const std::int64_t tiles = (m1 - m0) * (n1 - n0);
      const bool parallel = tiles + fill_a + fill_b > 1 && !omp_in_parallel();
#pragma omp parallel if (parallel)
      {
        // oneDNN would cut a lone tile's inner dimension among the threads: another sum for each number of them.
        omp_set_num_threads(1);
        if (fill_a + fill_b > 0) {
#pragma omp for schedule(dynamic)
          for (std::int64_t i = 0; i < fill_a + fill_b; ++i) {
            failure.guard([&] { i < fill_a ? pa.fill(m0 + i) : pb.fill(n0 + i - fill_a); });
          }
        }
#pragma omp for schedule(dynamic)
        for (std::int64_t t = 0; t < tiles; ++t) {
          failure.guard([&] {
            thread_local Buffer buffer_acc;
            Acc* acc = static_cast<Acc*>(buffer_acc.get(static_cast<std::size_t>(kTileM * ld) * sizeof(Acc)));
            // Down a column of tiles: the panel of B stays in cache, as A's panels are reused from one column to the
            // next.
            const std::int64_t tm = m0 + t % (m1 - m0), tn = n0 + t / (m1 - m0);
            const TileGeometry g{tm * kTileM, tn * c.tile_n, pa.extent(tm), pb.extent(tn), tm, tn};
            if (real) multiply(pa.get(tm), pb.get(tn), g.rows, g.cols, c.k, acc, ld);
            else std::fill_n(acc, kTileM * ld, Acc(0));
            c.epilogue(c.program, g, acc, ld);
          });
        }
      }
    }
  }
  failure.rethrow();
}

}  // namespace

void run(const GemmCall& call) {
  if (call.m <= 0 || call.n <= 0) return;
  call.a.dtype == DType::fp64 ? run_typed<double>(call) : run_typed<float>(call);
}

}  // namespace coda::cpu::detail
