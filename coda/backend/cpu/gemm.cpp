// The tile loop. Operands that many tiles read are brought into the order oneDNN likes best once (packed), in groups
// that bound the memory this takes; then each thread takes a tile, asks oneDNN for its product, some rows at a time,
// and runs the epilogue on them.
#include "coda/backend/cpu/gemm.h"

#include <omp.h>

#include <exception>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "coda/backend/cpu/memory.h"
#include "coda/backend/cpu/pack.h"
#include "coda/backend/cpu/product.h"

namespace coda::cpu::detail {
namespace {

// At most this much of each operand is held packed at a time (but one tile's share at least).
constexpr std::int64_t kPackBytes = std::int64_t{64} << 20;

// Elements of an output from which on it is not to be found in a second-level cache when it is read again.
constexpr std::int64_t kStreamed = std::int64_t{1} << 18;

// A grow-only buffer of one thread.
struct Buffer {
  Memory data;
  std::size_t size = 0;
  void* get(std::size_t bytes) {
    if (bytes > size) {
      size = 0;
      data.reset();  // before, so that never both are held
      data = allocate(bytes);
      if (!data) {
        throw Error(Status::device_error, "gemm: workspace: could not allocate " + std::to_string(bytes) + " bytes");
      }
      size = bytes;
    }
    return data.get();
  }
};

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

// How a panel's elements are ordered in memory of ours; `as_is`: they stay where they are.
enum class Order { as_is, free_inner, k_inner, blocks };

// How an operand is cut into tiles along its free dimension, and those of them that are packed at present.
struct Panels {
  Operand operand;
  std::int64_t size, k, tile;
  Order order;
  std::int64_t per_group;
  void* memory = nullptr;

  Panels(const Operand& o, std::int64_t size_, std::int64_t k_, std::int64_t tile_, Order order_)
      : operand(o), size(size_), k(k_), tile(tile_), order(order_) {
    per_group = packed() ? std::clamp<std::int64_t>(kPackBytes / panel_bytes(), 1, count()) : count();
  }
  bool packed() const { return order != Order::as_is; }
  std::int64_t count() const { return (size + tile - 1) / tile; }
  std::int64_t extent(std::int64_t i) const { return std::min(tile, size - i * tile); }
  DType stored() const { return needs_widening(operand.dtype) ? DType::fp32 : operand.dtype; }
  std::int64_t panel_bytes() const {
    const std::int64_t elements = order != Order::blocks    ? tile * k
                                  : stored() == DType::bf16 ? blocked_size<bf16>(tile, k)
                                                            : blocked_size<float>(tile, k);
    return (elements * size_of(stored()) + 63) / 64 * 64;
  }
  std::size_t group_bytes() const { return packed() ? static_cast<std::size_t>(per_group * panel_bytes()) : 0; }
  void* slot(std::int64_t i) const { return static_cast<std::byte*>(memory) + (i % per_group) * panel_bytes(); }
  void fill(std::int64_t i) const {
    if (order != Order::blocks) return pack(operand, i * tile, extent(i), k, order == Order::free_inner, slot(i));
    const auto fill_blocks = [&](auto from, auto to) {
      using From = decltype(from);
      pack_blocks(static_cast<const From*>(operand.at(i * tile)), extent(i), k, operand.free_stride, operand.k_stride,
                  static_cast<decltype(to)*>(slot(i)));
    };
    if (operand.dtype == DType::fp32) fill_blocks(float{}, float{});
    else if (operand.dtype == DType::fp16) fill_blocks(fp16{}, float{});
    else if (needs_widening(operand.dtype)) fill_blocks(bf16{}, float{});
    else fill_blocks(bf16{}, bf16{});
  }
  /// Where the panel is; not for blocks, which have no strides.
  Operand get(std::int64_t i) const {
    if (!packed())
      return {static_cast<const std::byte*>(operand.at(i * tile)), operand.dtype, operand.free_stride,
              operand.k_stride};
    const bool free_inner = order == Order::free_inner;
    return {static_cast<const std::byte*>(slot(i)), stored(), free_inner ? 1 : k, free_inner ? extent(i) : 1};
  }
};

// Rows of a tile whose product is made, and whose epilogue is run, at a time: in blocks a kernel needs no more to be
// fast, and 64 rows of fp32 are still in the nearest caches when the epilogue reads them. Of a long fp32 product all
// rows at once: its panel of B does not stay in a second-level cache of 2 MiB from one stripe to the next.
constexpr std::int64_t kStripe = 64, kLongK = 1024;
std::int64_t stripe_of(DType stored, std::int64_t k) { return stored == DType::fp32 && k > kLongK ? kTileM : kStripe; }

// Whether all tiles of this call can have their second operand in blocks, and there are enough of them to pay for that.
bool should_block(const GemmCall& c) {
  const bool widen = needs_widening(c.a.dtype);
  const DType t = widen ? DType::fp32 : c.a.dtype;
  // A bf16 product that takes rows of B as they are stored is fast enough to be overtaken only by this much work.
  const std::int64_t enough = t == DType::bf16 && c.layout == Layout::nt ? 2 * kTileM : 2 * kStripe;
  if (c.m <= enough) return false;
  const std::int64_t stripe = stripe_of(t, c.k);
  for (const std::int64_t m : {std::min(c.m, stripe), c.m % stripe}) {
    for (const std::int64_t n : {std::min(c.n, c.tile_n), c.n % c.tile_n}) {
      if (m > 0 && n > 0 && !has_blocked_product(t, m, n, c.k)) return false;
    }
  }
  return true;
}

struct Plan {
  Order a, b;
  std::int64_t stripe;
};

Plan plan_of(const GemmCall& c, const Operand& a, const Operand& b) {
  if (c.k <= 0 || a.dtype == DType::fp64) return {Order::as_is, Order::as_is, kTileM};
  const bool widen = needs_widening(a.dtype), one_tile = c.n <= c.tile_n;
  if (should_block(c)) {
    const bool contiguous = a.k_stride == 1 && a.free_stride == c.k;
    return {contiguous && !widen ? Order::as_is : Order::k_inner, Order::blocks,
            stripe_of(widen ? DType::fp32 : a.dtype, c.k)};
  }
  // Else packing pays where more than one tile reads an operand whose stored order oneDNN would have to change each
  // time (A stored (K, M); B stored (N, K) in fp32: its bf16 products take that order as it is), or a B whose rows all
  // fall into the same few sets of the cache.
  const bool aliased = b.k_stride * size_of(b.dtype) % 1024 == 0;
  const bool turn_b = b.free_stride != 1 && b.dtype == DType::fp32;
  return {widen || (a.k_stride != 1 && !one_tile) ? Order::k_inner : Order::as_is,
          widen || (turn_b && c.m > kTileM) || (b.free_stride == 1 && aliased && c.m > 2 * kTileM) ? Order::free_inner
                                                                                                   : Order::as_is,
          kTileM};
}

// The product of a tile and its epilogue, a stripe of rows after the other.
template <class Acc>
void run_tile(const GemmCall& c, const Panels& a, const Panels& b, std::int64_t tm, std::int64_t tn,
              std::int64_t stripe) {
  const TileGeometry g{tm * kTileM, tn * c.tile_n, a.extent(tm), b.extent(tn), tm, tn, c.m * c.n >= kStreamed};
  constexpr std::int64_t kColumns = CpuTile<Acc>::kColumns;
  const std::int64_t ld = b.order == Order::blocks ? g.cols : (g.cols + kColumns - 1) / kColumns * kColumns;
  thread_local Buffer buffer;
  Acc* acc = static_cast<Acc*>(buffer.get(static_cast<std::size_t>(stripe * ld + kColumns) * sizeof(Acc)));
  if (c.k <= 0) std::fill_n(acc, stripe * ld + kColumns, Acc(0));
  Operand rows = a.get(tm);
  for (std::int64_t r = 0; r < g.rows; r += stripe) {
    const std::int64_t count = std::min(stripe, g.rows - r);
    if constexpr (std::is_same_v<Acc, float>) {
      if (b.order == Order::blocks) multiply_blocked(b.stored(), rows.at(r), b.slot(tn), count, g.cols, c.k, acc);
    }
    if (b.order != Order::blocks && c.k > 0) multiply(rows, b.get(tn), count, g.cols, c.k, acc, ld);
    c.epilogue(c.program, g, r, count, acc, ld);
  }
}

template <class Acc>
void run_typed(const GemmCall& c) {
  const Operand a{static_cast<const std::byte*>(c.a.data), c.a.dtype, c.layout == Layout::tn ? 1 : c.a.pitch,
                  c.layout == Layout::tn ? c.a.pitch : 1};
  const Operand b{static_cast<const std::byte*>(c.b.data), c.b.dtype, c.layout == Layout::nt ? c.b.pitch : 1,
                  c.layout == Layout::nt ? 1 : c.b.pitch};
  const Plan plan = plan_of(c, a, b);
  Panels pa(a, c.m, c.k, kTileM, plan.a), pb(b, c.n, c.k, c.tile_n, plan.b);
  const std::int64_t count_m = pa.count(), count_n = pb.count();
  thread_local Buffer buffer_a, buffer_b;
  pa.memory = pa.packed() ? buffer_a.get(pa.group_bytes()) : nullptr;
  pb.memory = pb.packed() ? buffer_b.get(pb.group_bytes()) : nullptr;

  Failure failure;
  for (std::int64_t m0 = 0; m0 < count_m; m0 += pa.per_group) {
    const std::int64_t m1 = std::min(count_m, m0 + pa.per_group);
    for (std::int64_t n0 = 0; n0 < count_n; n0 += pb.per_group) {
      const std::int64_t n1 = std::min(count_n, n0 + pb.per_group);
      const std::int64_t fill_a = pa.packed() && n0 == 0 ? m1 - m0 : 0, fill_b = pb.packed() ? n1 - n0 : 0;
      const std::int64_t tiles = (m1 - m0) * (n1 - n0);
      const bool parallel = tiles + fill_a + fill_b > 1 && !omp_in_parallel();
      // A thread's next tile lies below the last one, so that B's panel is in its cache, but not many times: going on
      // along the rows, an epilogue finds the page table entries of its matrices' rows at hand. (All the way down, it
      // took a third longer at 1024^3 on pages of 4 KiB; along the rows only, the product 5 % longer.)
      const std::int64_t band = tiles >= 8 * omp_get_max_threads() ? 2 : 1;
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
#pragma omp for schedule(dynamic) collapse(2)
        for (std::int64_t tm = m0; tm < m1; tm += band) {
          for (std::int64_t tn = n0; tn < n1; ++tn) {
            for (std::int64_t i = tm; i < std::min(tm + band, m1); ++i) {
              failure.guard([&] { run_tile<Acc>(c, pa, pb, i, tn, plan.stripe); });
            }
          }
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
