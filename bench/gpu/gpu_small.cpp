// Speed of the small kernels between the programs against a copy that moves as many bytes, and the host's time for a
// plain product.
//
// `bytes` are what a kernel must at least read and write; the copy (cudaMemcpyAsync on the device) reads and writes
// half of them each. Timed as in gpu_kernels: graphs, L2 flushed, interleaved with the copy, medians; ratio = copy_ms /
// ms. Each kernel has a size that models have and one that fills the chip. Where it has so little to do that its launch
// is what takes time (a fill of one element shows how long that is), the copy has the same. `memset` is not ours: what
// the driver reaches where nothing is read, for comparison with `fill`.
//
// No size is one whose copy moves exactly 512 MiB: that is slower by a third than those just below and above.
//
// usage: gpu_small [--out FILE] [--rounds N] [--commit ID] [--driver VERSION] [--date DATE]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/gpu/timing.h"
#include "coda/backend/sm90/blas.h"
#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/kernels.h"

namespace {

using coda::ConstVector;
using coda::DType;
using coda::Layout;
using coda::Matrix;
using coda::size_of;
using coda::Vector;
using coda::bench::Candidate;
using coda::bench::DeviceBuffer;
namespace sm90 = coda::sm90;

struct Record {
  std::string program;
  std::int64_t m, n, bytes;
  double ms, copy_ms;
};
struct HostRecord {
  std::string call;
  Layout layout;
  std::int64_t size;  // m, n and k
  double first_us, seen_us;
};

/// Buffers of one case, all bytes 0x3c: small positive numbers in every type.
class Buffers {
 public:
  Matrix matrix(std::int64_t rows, std::int64_t cols, DType t) {
    buffers_.emplace_back(static_cast<std::size_t>(rows * cols * size_of(t)));
    buffers_.back().fill(0x3c);
    return {buffers_.back().data(), t, rows, cols};
  }
  Vector vector(std::int64_t size, DType t) { return {matrix(1, size, t).data, t, size}; }
  /// Values in [0, range).
  Vector tokens(std::int64_t size, std::int64_t range, std::int64_t* distinct) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(size));
    std::uint64_t state = 1;
    for (std::int64_t& v : values) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      v = static_cast<std::int64_t>((state >> 33) % static_cast<std::uint64_t>(range));
    }
    *distinct = static_cast<std::int64_t>(std::set<std::int64_t>(values.begin(), values.end()).size());
    const Vector out = vector(size, DType::int64);
    buffers_.back().upload(values.data(), values.size() * sizeof(std::int64_t));
    return out;
  }

 private:
  std::vector<DeviceBuffer> buffers_;
};

class Bench {
 public:
  explicit Bench(int rounds) : rounds_(rounds), flush_(std::size_t{256} << 20) { CHECK(cudaStreamCreate(&stream_)); }
  ~Bench() { cudaStreamDestroy(stream_); }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void measure(const std::string& name, std::int64_t m, std::int64_t n, std::int64_t bytes,
               const std::function<void(cudaStream_t)>& launch) {
    const auto half = static_cast<std::size_t>(bytes / 2);
    const DeviceBuffer from(half), to(half);
    std::vector<std::unique_ptr<Candidate>> candidates;
    const auto add = [&](const char* label, const std::function<void(cudaStream_t)>& work) {
      candidates.push_back(std::make_unique<Candidate>(label, work, flush_, stream_));
    };
    add("copy",
        [&](cudaStream_t on) { CHECK(cudaMemcpyAsync(to.data(), from.data(), half, cudaMemcpyDeviceToDevice, on)); });
    add(name.c_str(), launch);
    coda::bench::interleave(candidates, stream_, rounds_);
    const Record r{name, m, n, bytes, candidates[1]->median(), candidates[0]->median()};
    std::printf("%-32s %9lld %9lld %12lld %10.4f %10.4f %7.3f\n", r.program.c_str(), static_cast<long long>(m),
                static_cast<long long>(n), static_cast<long long>(bytes), r.ms, r.copy_ms, r.copy_ms / r.ms);
    std::fflush(stdout);
    records_.push_back(r);
  }
  const std::vector<Record>& records() const { return records_; }

 private:
  int rounds_;
  cudaStream_t stream_ = nullptr;
  DeviceBuffer flush_;
  std::vector<Record> records_;
};

void measure_elementwise(Bench& bench) {
  constexpr std::int64_t kRows = 16384, kCols = 8192, kSize = kRows * kCols;
  for (const auto& [from, to] : {std::pair{DType::fp32, DType::bf16}, std::pair{DType::bf16, DType::fp32},
                                 std::pair{DType::bf16, DType::fp16}}) {
    Buffers b;
    const Matrix in = b.matrix(kRows, kCols, from), out = b.matrix(kRows, kCols, to);
    bench.measure(std::string("cast_") + name_of(from) + "_" + name_of(to), kRows, kCols,
                  kSize * (size_of(from) + size_of(to)),
                  [=](cudaStream_t on) { sm90::cast("cast", in, out, 1.f, on); });
  }
  {
    Buffers b;
    Matrix in = b.matrix(kRows, kCols + 8, DType::fp32), out = b.matrix(kRows, kCols + 16, DType::bf16);
    in.cols = out.cols = kCols;
    bench.measure("cast_fp32_bf16_pitched", kRows, kCols, kSize * 6,
                  [=](cudaStream_t on) { sm90::cast("cast", in, out, 1.f, on); });
  }
  {
    Buffers b;
    const Matrix out = b.matrix(kRows, kCols, DType::fp32);
    bench.measure("fill", kRows, kCols, kSize * 4, [=](cudaStream_t on) { sm90::fill("fill", out, 1, on); });
    bench.measure("memset", kRows, kCols, kSize * 4,
                  [=](cudaStream_t on) { CHECK(cudaMemsetAsync(out.data, 1, kSize * 4, on)); });
    const Matrix one{out.data, DType::fp32, 1, 1};
    bench.measure("fill", 1, 1, 4, [=](cudaStream_t on) { sm90::fill("fill", one, 1, on); });
  }
  {
    Buffers b;
    const sm90::AdamwArgs args{.master = b.vector(kSize, DType::fp32),
                               .m = b.vector(kSize, DType::fp32),
                               .v = b.vector(kSize, DType::fp32),
                               .weight = b.vector(kSize, DType::bf16),
                               .gradient = b.vector(kSize, DType::bf16),
                               .rate = 1e-3,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .squared_norm = b.vector(1, DType::fp64),
                               .clip_norm = 1};
    bench.measure("adamw", kSize, 1, kSize * 28, [=](cudaStream_t on) { sm90::adamw("adamw", args, on); });
  }
  for (const DType t : {DType::bf16, DType::fp32}) {
    Buffers b;
    const Vector x = b.vector(3 * kSize, t), out = b.vector(1, DType::fp64);
    bench.measure(std::string("squared_norm_") + name_of(t), x.size, 1, x.size * size_of(t),
                  [=](cudaStream_t on) { sm90::squared_norm("squared_norm", x, 0, out, on); });
  }
  for (const std::int64_t tokens : {16384, 1 << 24, 3 << 24}) {
    Buffers b;
    const Vector dloss = b.vector(tokens, DType::fp32), target = b.vector(tokens, DType::int64),
                 out = b.vector(tokens, DType::fp32);
    bench.measure("masked_dloss", tokens, 1, tokens * 16,
                  [=](cudaStream_t on) { sm90::masked_dloss("masked_dloss", dloss, target, -100, out, on); });
  }
}

void measure_rows(Bench& bench) {
  // A step of 16384 tokens, and rows enough to fill the chip.
  for (const std::int64_t m : {16384, 1 << 20, 1 << 22}) {
    Buffers b;
    constexpr std::int64_t kWidth = 8192, kTiles = sm90::tiles_n(kWidth);
    const Matrix x = b.matrix(m, kTiles, DType::fp32), y = b.matrix(m, kTiles, DType::fp32);
    const Vector mean = b.vector(m, DType::fp32), rstd = b.vector(m, DType::fp32);
    bench.measure("rms_finalize", m, kTiles, m * (kTiles + 1) * 4,
                  [=](cudaStream_t on) { sm90::rms_finalize("rms_finalize", x, kWidth, 1e-5, rstd, on); });
    bench.measure("layernorm_finalize", m, kTiles, m * (kTiles + 1) * 8, [=](cudaStream_t on) {
      sm90::layernorm_finalize("layernorm_finalize", x, y, kWidth, 1e-5, mean, rstd, on);
    });
    bench.measure("sum_rows", m, kTiles, m * (kTiles + 1) * 4,
                  [=](cudaStream_t on) { sm90::sum_rows("sum_rows", x, 1, rstd, on); });
  }
  for (const std::int64_t m : {2048, 16384, 131072}) {
    Buffers b;
    constexpr std::int64_t kVocabulary = 128256, kTiles = sm90::tiles_n(kVocabulary);
    const sm90::LseFinalizeArgs args{.max = b.matrix(m, kTiles, DType::fp32),
                                     .sum = b.matrix(m, kTiles, DType::fp32),
                                     .target = b.vector(m, DType::int64),
                                     .target_logit = b.vector(m, DType::fp32),
                                     .lse = b.vector(m, DType::fp32),
                                     .loss = b.vector(m, DType::fp32)};
    bench.measure("lse_finalize", m, kTiles, m * (8 * kTiles + 20),
                  [=](cudaStream_t on) { sm90::lse_finalize("lse_finalize", args, on); });
  }
}

void measure_columns(Bench& bench) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{128, 4096}, {128, 28672}, {2048, 28672}, {8192, 28672}}) {
    Buffers b;
    const Matrix x = b.matrix(rows, cols, DType::fp32);
    const Vector out = b.vector(cols, DType::fp32);
    bench.measure("sum_columns", rows, cols, (rows + 1) * cols * 4,
                  [x = x, out](cudaStream_t on) { sm90::sum_columns("sum_columns", x, 0, out, on); });
  }
  for (const std::int64_t rows : {128, 2048, 24576}) {
    Buffers b;
    constexpr std::int64_t kHeads = 64, kDim = 128;
    const Matrix x = b.matrix(rows, kHeads * kDim, DType::fp32);
    const Vector out = b.vector(kDim, DType::fp32);
    bench.measure("sum_heads", rows, x.cols, rows * x.cols * 4,
                  [=](cudaStream_t on) { sm90::sum_heads("sum_heads", x, 0, kHeads, kDim, 0, out, on); });
  }
  for (const std::int64_t m : {std::int64_t{16384}, std::int64_t{131072}}) {
    Buffers b;
    constexpr std::int64_t kWidth = 4096, kVocabulary = 128256;
    const Matrix dx = b.matrix(m, kWidth, DType::bf16), table = b.matrix(kVocabulary, kWidth, DType::fp32);
    std::int64_t distinct = 0;
    const Vector token = b.tokens(m, kVocabulary, &distinct);
    bench.measure("embedding_backward", m, kWidth, m * (kWidth * 2 + 8) + distinct * kWidth * 8,
                  [=](cudaStream_t on) { sm90::embedding_backward("embedding_backward", dx, token, table, on); });
  }
}

/// Microseconds of the host: the process's first product, the first of a shape after that, and one seen before.
std::vector<HostRecord> measure_host() {
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); };
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreate(&stream));
  std::vector<HostRecord> records;
  std::printf("\n%-18s %-6s %6s %10s %10s\n", "host time", "layout", "m=n=k", "first us", "seen us");
  const auto measure = [&](const char* name, Layout layout, std::int64_t size) {
    Buffers b;
    const Matrix x = b.matrix(size, size, DType::bf16), y = b.matrix(size, size, DType::bf16),
                 out = b.matrix(size, size, DType::bf16);
    const auto call = [&] { sm90::matmul("matmul", x, y, layout, 1, 0, {}, out, stream); };
    sm90::synchronize();
    const auto begin = Clock::now();
    call();
    const double first = us(Clock::now() - begin);
    std::vector<double> batches;
    for (int batch = 0; batch < 21; ++batch) {
      CHECK(cudaStreamSynchronize(stream));
      constexpr int kCalls = 100;  // few enough that the stream's queue is never full
      const auto start = Clock::now();
      for (int i = 0; i < kCalls; ++i) call();
      batches.push_back(us(Clock::now() - start) / kCalls);
    }
    CHECK(cudaStreamSynchronize(stream));
    std::sort(batches.begin(), batches.end());
    records.push_back({name, layout, size, first, batches[batches.size() / 2]});
    std::printf("%-18s %-6s %6lld %10.2f %10.2f\n", name, coda::name_of(layout), static_cast<long long>(size), first,
                records.back().seen_us);
  };
  measure("matmul, very first", Layout::nt, 128);
  for (const Layout layout : {Layout::nt, Layout::nn, Layout::tn}) {
    for (const std::int64_t size : {256, 384, 1024}) measure("matmul", layout, size);
  }
  CHECK(cudaStreamDestroy(stream));
  return records;
}

void write_json(std::FILE* f, const std::vector<Record>& records, const std::vector<HostRecord>& host,
                const coda::bench::Provenance& provenance, int rounds) {
  std::fprintf(f, "{\n");
  coda::bench::write_provenance(f, provenance);
  std::fprintf(f,
               "  \"method\": \"graph replay, L2 flushed before each, interleaved with a device-to-device copy of the "
               "same bytes, median of %d; ratio = copy_ms / ms\",\n",
               rounds);
  std::fprintf(f, "  \"records\": [\n");
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& r = records[i];
    std::fprintf(
        f,
        "    {\"program\": \"%s\", \"m\": %lld, \"n\": %lld, \"bytes\": %lld, \"ms\": %.5f, \"copy_ms\": %.5f, "
        "\"ratio\": %.4f}%s\n",
        r.program.c_str(), static_cast<long long>(r.m), static_cast<long long>(r.n), static_cast<long long>(r.bytes),
        r.ms, r.copy_ms, r.copy_ms / r.ms, i + 1 < records.size() ? "," : "");
  }
  std::fprintf(f, "  ],\n  \"host\": [\n");
  for (std::size_t i = 0; i < host.size(); ++i) {
    const HostRecord& r = host[i];
    std::fprintf(
        f,
        "    {\"call\": \"%s\", \"layout\": \"%s\", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"first_us\": %.2f, "
        "\"seen_us\": %.2f}%s\n",
        r.call.c_str(), coda::name_of(r.layout), static_cast<long long>(r.size), static_cast<long long>(r.size),
        static_cast<long long>(r.size), r.first_us, r.seen_us, i + 1 < host.size() ? "," : "");
  }
  std::fprintf(f, "  ]\n}\n");
}

int run(int argc, char** argv) {
  std::string out;
  coda::bench::Provenance provenance;
  int rounds = 40;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw std::runtime_error(arg + ": expected a value");
      return argv[++i];
    };
    if (arg == "--out") out = value();
    else if (arg == "--commit") provenance.commit = value();
    else if (arg == "--driver") provenance.driver = value();
    else if (arg == "--date") provenance.date = value();
    else if (arg == "--rounds") rounds = std::max(1, std::atoi(value().c_str()));
    else throw std::runtime_error("expected an option, got '" + arg + "'");
  }
  std::string why;
  if (!sm90::available(&why)) throw std::runtime_error(why);

  const std::vector<HostRecord> host = measure_host();
  std::printf("\n%-32s %9s %9s %12s %10s %10s %7s\n", "program", "m", "n", "bytes", "ms", "copy ms", "ratio");
  Bench bench(rounds);
  measure_elementwise(bench);
  measure_rows(bench);
  measure_columns(bench);
  if (!out.empty()) {
    std::FILE* f = std::fopen(out.c_str(), "w");
    if (!f) throw std::runtime_error("--out: cannot write " + out);
    write_json(f, bench.records(), host, provenance, rounds);
    if (std::fclose(f) != 0) throw std::runtime_error("--out: cannot write " + out);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_small: %s\n", e.what());
    return 1;
  }
}
