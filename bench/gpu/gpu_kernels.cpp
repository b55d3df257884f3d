// Speed of each program on Hopper against cuBLASLt's bare product of the same shape, and the host's time for a call.
//
// Each candidate is a CUDA graph: fill a buffer larger than the L2 cache, then the work between two event records.
// Candidates of a shape are replayed in turn (A B C A B C ...), since the chip's clock follows its power: only figures
// of one run compare. Reported are medians, and the product's time over the program's. With few rows each program is
// also timed both ways, as one kernel (<program>_fused) and as cuBLASLt's product and a kernel behind it
// (<program>_unfused).
//
// usage: gpu_kernels [--quick] [--out FILE] [--host FILE] [--rounds N] [--commit ID] [--driver VERSION] [--date DATE]
//                    [M,N,K ...]
// --quick: M = N = K = 2048, 4096 and 8192 only. M,N,K: these shapes only.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include "bench/gpu/cublaslt.h"
#include "bench/gpu/groups.h"
#include "coda/backend/sm90/run.h"

namespace coda::bench {
namespace {

struct Record {
  std::string program;
  Shape shape;
  Layout layout;
  double ms, bare_ms;
};
struct HostRecord {
  std::string program;
  Layout layout;
  double first_us, new_us, seen_us, unfused_us;  // of the process, of a shape, of one that was seen, and unfused
};

/// So many that a candidate takes about half a second, but enough for a median.
int rounds_for(double ms, int most) { return std::clamp(static_cast<int>(500 / std::max(ms, 0.01)), 9, most); }

std::vector<Record> measure(const Group& g, const Noise& noise, const DeviceBuffer& flush, int rounds,
                            cudaStream_t stream) {
  if (!g.fits_in_memory()) return {};
  const Arguments arguments(g.shape, g.needs(), noise, g.head_dim);
  const CublasLt bare(arguments.a, arguments.b(g.layout), g.layout, arguments.out);
  std::vector<std::unique_ptr<Candidate>> candidates;
  const auto add = [&](const std::string& name, const std::function<void(cudaStream_t)>& launch) {
    candidates.push_back(std::make_unique<Candidate>(name, launch, flush, stream));
  };
  add("bare", [&](cudaStream_t on) { bare.run(on); });
  for (const Program* p : g.programs) {
    add(p->name, [&](cudaStream_t on) { p->run(arguments, on); });
    if (!g.both_ways || p->name == std::string("gemm")) continue;
    for (const auto& [way, suffix] :
         {std::pair{sm90::Way::fused, "_fused"}, std::pair{sm90::Way::unfused, "_unfused"}}) {
      add(p->name + std::string(suffix), [&, way = way](cudaStream_t on) {
        sm90::set_way(way);
        p->run(arguments, on);
        sm90::set_way(sm90::Way::automatic);
      });
    }
  }
  for (int i = 0; i < 3; ++i) candidates.front()->replay(stream, true);
  interleave(candidates, stream, rounds_for(candidates.front()->median(), rounds));
  const double bare_ms = candidates.front()->median();
  std::vector<Record> records;
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    records.push_back({candidates[i]->name, g.shape, g.layout, candidates[i]->median(), bare_ms});
  }
  return records;
}

/// Microseconds that the caller waits, nothing of the device's time among them.
std::vector<HostRecord> measure_host(const Noise& noise, cudaStream_t stream) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
  };
  const Needs everything{.addend = true, .wide = true, .second = true};
  // Of so many tiles that the fused way is taken.
  const Arguments usual({2048, 2048, 2048}, everything, noise, 128), other({1920, 2304, 512}, everything, noise, 128);
  CHECK(cudaStreamSynchronize(stream));
  const auto seen = [&](const Program& p) {
    constexpr int kCalls = 100;  // fewer than the driver's queue holds
    std::vector<double> batches;
    for (int batch = 0; batch < 9; ++batch) {
      const auto begin = Clock::now();
      for (int i = 0; i < kCalls; ++i) p.run(usual, stream);
      batches.push_back(since(begin) / kCalls);
      CHECK(cudaStreamSynchronize(stream));
    }
    std::sort(batches.begin(), batches.end());
    return batches[batches.size() / 2];
  };
  std::vector<HostRecord> records;
  for (const Program& p : programs()) {
    HostRecord r{p.name, p.layout, 0, 0, 0, 0};
    auto begin = Clock::now();
    p.run(usual, stream);
    r.first_us = since(begin);
    CHECK(cudaStreamSynchronize(stream));
    begin = Clock::now();
    p.run(other, stream);
    r.new_us = since(begin);
    CHECK(cudaStreamSynchronize(stream));
    r.seen_us = seen(p);
    sm90::set_way(sm90::Way::unfused);
    p.run(usual, stream);
    CHECK(cudaStreamSynchronize(stream));
    r.unfused_us = seen(p);
    sm90::set_way(sm90::Way::automatic);
    records.push_back(r);
  }
  return records;
}

void write_kernel(std::FILE* f, const Record& r) {
  std::fprintf(f,
               "\"program\": \"%s\", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"dtype\": \"bf16\", \"layout\": \"%s\", "
               "\"ms\": %.5f, \"cublaslt_ms\": %.5f, \"ratio\": %.4f",
               r.program.c_str(), static_cast<long long>(r.shape.m), static_cast<long long>(r.shape.n),
               static_cast<long long>(r.shape.k), name_of(r.layout), r.ms, r.bare_ms, r.bare_ms / r.ms);
}
void write_host(std::FILE* f, const HostRecord& r) {
  std::fprintf(f,
               "\"program\": \"%s\", \"layout\": \"%s\", \"first_us\": %.1f, \"new_us\": %.2f, \"seen_us\": %.2f, "
               "\"unfused_us\": %.2f",
               r.program.c_str(), name_of(r.layout), r.first_us, r.new_us, r.seen_us, r.unfused_us);
}

struct Settings {
  std::string out, host;
  Provenance from;
  Groups groups;
  int rounds = 40;
};
Settings parse(int argc, char** argv) {
  Settings s;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw std::runtime_error(arg + ": expected a value");
      return argv[++i];
    };
    if (arg == "--quick") quick = true;
    else if (arg == "--out") s.out = value();
    else if (arg == "--host") s.host = value();
    else if (arg == "--commit") s.from.commit = value();
    else if (arg == "--driver") s.from.driver = value();
    else if (arg == "--date") s.from.date = value();
    else if (arg == "--rounds") s.rounds = std::max(9, std::atoi(value().c_str()));
    else {
      long long m = 0, n = 0, k = 0;
      if (std::sscanf(arg.c_str(), "%lld,%lld,%lld", &m, &n, &k) != 3 || m <= 0 || n <= 0 || k <= 0) {
        throw std::runtime_error("expected an option or M,N,K, got '" + arg + "'");
      }
      s.groups.add_all({m, n, k});
    }
  }
  if (s.groups.all().empty()) s.groups = standard_groups(quick);
  return s;
}

int run(int argc, char** argv) {
  const Settings s = parse(argc, argv);
  std::string why;
  if (!sm90::available(&why)) throw std::runtime_error(why);
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const Noise noise;
  const DeviceBuffer flush(std::size_t{256} << 20);

  // First of all, while nothing has been called in the process.
  const std::vector<HostRecord> host = measure_host(noise, stream);
  std::printf("%-32s %-6s %12s %12s %12s %12s\n", "host time of a call, us", "layout", "first", "new shape",
              "seen shape", "unfused");
  for (const HostRecord& r : host) {
    std::printf("%-32s %-6s %12.1f %12.2f %12.2f %12.2f\n", r.program.c_str(), name_of(r.layout), r.first_us, r.new_us,
                r.seen_us, r.unfused_us);
  }
  std::printf("\n%-36s %-6s %6s %6s %6s %10s %10s %7s\n", "program", "layout", "m", "n", "k", "ms", "bare ms", "ratio");
  std::vector<Record> records;
  for (const Group& g : s.groups.all()) {
    for (const Record& r : measure(g, noise, flush, s.rounds, stream)) {
      std::printf("%-36s %-6s %6lld %6lld %6lld %10.4f %10.4f %7.3f\n", r.program.c_str(), name_of(r.layout),
                  static_cast<long long>(r.shape.m), static_cast<long long>(r.shape.n),
                  static_cast<long long>(r.shape.k), r.ms, r.bare_ms, r.bare_ms / r.ms);
      records.push_back(r);
    }
    std::fflush(stdout);
  }
  CHECK(cudaStreamDestroy(stream));
  const std::string method = "graph replay, L2 flushed before each, interleaved, median of up to " +
                             std::to_string(s.rounds) + "; ratio = cublaslt_ms / ms";
  if (!s.out.empty()) write_file(s.out, s.from, method, records, write_kernel);
  if (!s.host.empty()) {
    write_file(s.host, s.from,
               "C++ calls that nobody waits for: the first of the process (2048), of a shape, and the "
               "median batch of 100 with a shape that was seen, as the library runs it and unfused",
               host, write_host);
  }
  return 0;
}

}  // namespace
}  // namespace coda::bench

int main(int argc, char** argv) {
  try {
    return coda::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_kernels: %s\n", e.what());
    return 1;
  }
}
