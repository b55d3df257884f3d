// The host's time of calls, and of the parts that they are made of: what a call costs whose shape was seen, or is new,
// or is the first of the process. Nothing of the device's time is among them: calls are enqueued in batches that fit
// into the driver's queue.
//
// usage: gpu_host [--out FILE] [--commit ID] [--driver VERSION] [--date DATE]
#include <cudaTypedefs.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "bench/gpu/cublaslt.h"
#include "bench/gpu/programs.h"
#include "coda/backend/sm90/blas.h"
#include "coda/backend/sm90/kernels.h"
#include "coda/backend/sm90/run.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/programs/activation.h"

namespace coda::bench {
namespace {

struct Record {
  std::string part, what;
  double us;
};
std::vector<Record> records;

void tell(const std::string& part, const std::string& what, double us) {
  std::printf("%-8s %-64s %10.2f\n", part.c_str(), what.c_str(), us);
  std::fflush(stdout);
  records.push_back({part, what, us});
}

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}
double time_of(const std::function<void()>& f) {
  const auto begin = Clock::now();
  f();
  return since(begin);
}
double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// The median of batches, each of `calls` calls; the device is idle where one begins.
double seen(const std::function<void()>& call, int calls = 100) {
  call();
  std::vector<double> batches;
  for (int batch = 0; batch < 11; ++batch) {
    CHECK(cudaDeviceSynchronize());
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    batches.push_back(since(begin) / calls);
  }
  CHECK(cudaDeviceSynchronize());
  return median(batches);
}

class Host {
 public:
  Host() { CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Host() { cudaStreamDestroy(stream_); }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  /// First of all, while nothing has been called in the process but what makes a context.
  void first_calls() {
    const std::size_t bytes = 512 * 512 * 4;
    const DeviceBuffer a(bytes), b(bytes), out(bytes);
    const auto matrix = [](const DeviceBuffer& x, DType t) { return Matrix(x.data(), t, 512, 512); };
    const auto product = [&](DType t) {
      sm90::matmul("matmul", matrix(a, DType::bf16), matrix(b, DType::bf16), Layout::nt, 1, 0, {}, matrix(out, t),
                   stream_);
    };
    cublasLtHandle_t handle = nullptr;
    tell("first", "cublasLtCreate", time_of([&] { CHECK(cublasLtCreate(&handle)); }));
    tell("first", "cublasLtCreate, once more", time_of([&] {
           cublasLtHandle_t another = nullptr;
           CHECK(cublasLtCreate(&another));
           CHECK(cublasLtDestroy(another));
         }));
    tell("first", "sm90::matmul to bf16", time_of([&] { product(DType::bf16); }));
    CHECK(cudaDeviceSynchronize());
    tell("first", "sm90::matmul to fp32", time_of([&] { product(DType::fp32); }));
    CHECK(cudaDeviceSynchronize());
    CHECK(cublasLtDestroy(handle));
    const Needs everything{.addend = true, .wide = true, .second = true};
    const Arguments x({2048, 2048, 2048}, everything, noise_, 128);
    for (const Program& p : programs()) {
      for (const auto w : {sm90::Way::fused, sm90::Way::unfused}) {
        sm90::set_way(w);
        tell("first", std::string(p.name) + ", " + sm90::name_of(w), time_of([&] { p.run(x, stream_); }));
        CHECK(cudaDeviceSynchronize());
      }
    }
    sm90::set_way(sm90::Way::automatic);
  }

  /// What CUDA's own functions cost that calls are made of.
  void parts() {
    const DeviceBuffer memory(std::size_t{64} << 20);
    int device = 0;
    tell("part", "cudaGetDevice", seen([&] { CHECK(cudaGetDevice(&device)); }, 1000));
    cudaPointerAttributes attributes{};
    tell("part", "cudaPointerGetAttributes",
         seen([&] { CHECK(cudaPointerGetAttributes(&attributes, memory.data())); }, 1000));
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    tell("part", "cudaStreamIsCapturing", seen([&] { CHECK(cudaStreamIsCapturing(stream_, &capture)); }, 1000));
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    tell("part", "cudaThreadExchangeStreamCaptureMode, twice",
         seen(
             [&] {
               CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
               CHECK(cudaThreadExchangeStreamCaptureMode(&mode));
             },
             1000));
    void* function = nullptr;
    cudaDriverEntryPointQueryResult query{};
    const auto look_up = [&] {
      CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &query));
    };
    tell("part", "cudaGetDriverEntryPointByVersion", seen(look_up, 1000));
    const auto encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
    alignas(64) CUtensorMap map{};
    const cuuint64_t sides[] = {4096, 4096}, pitches[] = {8192};
    const cuuint32_t box[] = {64, 128}, steps[] = {1, 1};
    tell("part", "cuTensorMapEncodeTiled",
         seen(
             [&] {
               const CUresult status = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, memory.data(), sides, pitches,
                                              box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                              CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
               if (status != CUDA_SUCCESS) throw std::runtime_error("cuTensorMapEncodeTiled failed");
             },
             1000));
    tell("part", "sm90::reachable, addresses seen", seen([&] { sm90::reachable(memory.data(), stream_); }, 1000));
    for (const std::size_t mib : {1, 64})
      tell("part", "Workspace of " + std::to_string(mib) + " MiB, made and given back",
           seen([&] { const sm90::Workspace w(mib << 20, stream_, "gpu_host"); }));
    tell("part", "sm90::fill of 16 bytes: the smallest kernel",
         seen([&] { sm90::fill("fill", Matrix(memory.data(), DType::fp32, 1, 4), 0, stream_); }));
    const Matrix a(memory.data(), DType::bf16, 512, 512),
        out(static_cast<char*>(memory.data()) + 8192 * 512, DType::bf16, 512, 512);
    const CublasLt bare(a, a, Layout::nt, out);
    tell("part", "cublasLtMatmul itself", seen([&] { bare.run(stream_); }));
    tell("part", "cublasLt: descriptors, heuristic and a handle for a shape",
         seen([&] { const CublasLt another(a, a, Layout::nt, out); }, 10));
    const Matrix wide(static_cast<char*>(memory.data()) + 8192 * 1024, DType::fp32, 512, 512);
    tell("part", "sm90::matmul to bf16",
         seen([&] { sm90::matmul("matmul", a, a, Layout::nt, 1, 0, {}, out, stream_); }));
    tell("part", "sm90::matmul to fp32",
         seen([&] { sm90::matmul("matmul", a, a, Layout::nt, 1, 0, {}, wide, stream_); }));
  }

  /// A program with and without the checks of ops.
  void checks() {
    const Arguments x({2048, 2048, 2048}, {}, noise_, 128);
    const GemmNorm<bf16> program{
        .norm = {.rstd = {static_cast<const float*>(x.rstd.data)}}, .preact = {}, .out = x.out.as<bf16>()};
    for (const auto w : {sm90::Way::fused, sm90::Way::unfused}) {
      sm90::set_way(w);
      const std::string name = std::string(", ") + sm90::name_of(w);
      tell("check", "ops::gemm_norm" + name, seen([&] { bench::program("gemm_rms").run(x, stream_); }));
      tell("check", "sm90::Product of the same" + name, seen([&] {
             sm90::Product<bf16, GemmNorm<bf16>>::run(x.a, x.b_nt, Layout::nt, program, stream_, "gemm_norm");
           }));
    }
    sm90::set_way(sm90::Way::automatic);
  }

  /// Each program, both ways, with a shape that was seen and with shapes that are new, but for the way that all share:
  /// the pointers, as a model's buffers do, stay the same.
  void programs_of_ops() {
    const Needs everything{.addend = true, .wide = true, .second = true};
    const Arguments x({2048, 2048, 2048}, everything, noise_, 128);
    std::int64_t rows = 2047;
    for (const Program& p : programs()) {
      for (const auto w : {sm90::Way::fused, sm90::Way::unfused}) {
        sm90::set_way(w);
        const std::string name = std::string(p.name) + ", " + sm90::name_of(w);
        tell("seen", name, seen([&] { p.run(x, stream_); }));
        if (p.name != std::string("gemm") && p.name != std::string("gemm_rms")) continue;
        std::vector<double> times;
        for (int i = 0; i < 16; ++i) {
          const Arguments fresh({--rows, 2048, 512}, everything, noise_, 128);
          CHECK(cudaDeviceSynchronize());
          times.push_back(time_of([&] { p.run(fresh, stream_); }));
          CHECK(cudaDeviceSynchronize());
        }
        tell("new", name, median(times));
      }
    }
    sm90::set_way(sm90::Way::automatic);
  }

 private:
  cudaStream_t stream_ = nullptr;
  Noise noise_;
};

int run(int argc, char** argv) {
  std::string out;
  Provenance from;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    std::string* const value = option == "--out"      ? &out
                               : option == "--commit" ? &from.commit
                               : option == "--driver" ? &from.driver
                               : option == "--date"   ? &from.date
                                                      : nullptr;
    if (!value) throw std::runtime_error("unknown option " + option);
    *value = argv[i + 1];
  }
  if (argc % 2 == 0) throw std::runtime_error(std::string(argv[argc - 1]) + ": expected a value");
  std::string why;
  if (!sm90::available(&why)) throw std::runtime_error(why);
  CHECK(cudaFree(nullptr));  // the context
  std::printf("%-8s %-64s %10s\n", "", "host time", "us");
  Host host;
  host.first_calls();
  host.parts();
  host.checks();
  host.programs_of_ops();
  if (out.empty()) return 0;
  write_file(out, from, "microseconds that the caller waits; medians of batches but for first calls", records,
             [](std::FILE* f, const Record& r) {
               std::fprintf(f, "\"part\": \"%s\", \"what\": \"%s\", \"us\": %.3f", r.part.c_str(), r.what.c_str(),
                            r.us);
             });
  return 0;
}

}  // namespace
}  // namespace coda::bench

int main(int argc, char** argv) {
  try {
    return coda::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_host: %s\n", e.what());
    return 1;
  }
}
