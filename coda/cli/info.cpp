// `coda info`: what this build was made of and what this machine can do with it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <oneapi/dnnl/dnnl.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "coda/backend/cpu/gemm.h"
#include "coda/backend/sm90/device.h"
#include "coda/cli/arguments.h"
#include "coda/cli/commands.h"
#include "coda/cli/explain.h"
#include "coda/core/build_info.h"

namespace coda::cli {
namespace {

using json = nlohmann::ordered_json;

struct Cpu {
  std::string model = "unknown";
  std::vector<std::string> features;  // those that matter here, in the kernel's spelling
};

Cpu cpu_of_this_machine() {
  Cpu cpu;
  std::ifstream file("/proc/cpuinfo");
  std::string line, flags;
  while (std::getline(file, line) && (cpu.model == "unknown" || flags.empty())) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.rfind("model name", 0) == 0) cpu.model = line.substr(colon + 2);
    if (line.rfind("flags", 0) == 0) flags = line.substr(colon + 2);
  }
  std::istringstream words(flags);
  for (std::string word; words >> word;)
    for (const char* wanted : {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16",
                               "avx_vnni", "avx512_vnni", "amx_tile", "amx_bf16"})
      if (word == wanted) cpu.features.push_back(word);
  return cpu;
}

/// What the compiler was allowed to use.
std::vector<std::string> compiled_features() {
  std::vector<std::string> out;
#if defined(__AVX2__)
  out.emplace_back("avx2");
#endif
#if defined(__FMA__)
  out.emplace_back("fma");
#endif
#if defined(__F16C__)
  out.emplace_back("f16c");
#endif
#if defined(__AVX512F__)
  out.emplace_back("avx512f");
#endif
#if defined(__AVX512BF16__)
  out.emplace_back("avx512_bf16");
#endif
#if defined(__AVX512FP16__)
  out.emplace_back("avx512_fp16");
#endif
#if defined(__AMX_BF16__)
  out.emplace_back("amx_bf16");
#endif
  return out;
}

/// The instructions that oneDNN will use, which ONEDNN_MAX_CPU_ISA may restrict.
const char* dnnl_isa() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse4.1";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2 + vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512 + vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512 + bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512 + bf16 + amx";
    default:
      return "other";
  }
}

json collect() {
  const BuildInfo& build = build_info();
  const Cpu cpu = cpu_of_this_machine();
  const dnnl_version_t* dnnl = dnnl_version();
  json j;
  j["command"] = "info";
  j["version"] = build.version;
  j["commit"] = build.commit;
  j["build"] = {{"compiler", build.compiler},      {"type", build.build_type},       {"flags", build.flags},
                {"arch", build.cpu_arch},          {"sanitizers", build.sanitizers}, {"cuda", build.cuda},
                {"features", compiled_features()}, {"simd_bytes", kSimdBytes}};
  j["cpu"] = {{"model", cpu.model},
              {"features", cpu.features},
              {"processors", omp_get_num_procs()},
              {"threads", omp_get_max_threads()}};
  j["onednn"] = {{"version", fmt::format("{}.{}.{}", dnnl->major, dnnl->minor, dnnl->patch)}, {"isa", dnnl_isa()}};
  j["backends"]["cpu"] = {
      {"available", true}, {"tile", {cpu::kTileM, cpu::kTileN}}, {"dtypes", {"bf16", "fp16", "fp32", "fp64"}}};
  std::string why;
  const bool sm90 = sm90::available(&why);
  j["backends"]["sm90"] = {{"available", sm90}};
  j["devices"] = json::array();
  if (sm90) {
    const sm90::DeviceInfo d = sm90::device_info();
    j["devices"].push_back({{"name", d.name},
                            {"compute_capability", fmt::format("{}.{}", d.compute_major, d.compute_minor)},
                            {"multiprocessors", d.multiprocessors},
                            {"memory_gbs", d.memory_gbs},
                            {"memory_bytes", d.memory_bytes},
                            {"cuda_driver", d.driver},
                            {"cuda_runtime", d.runtime},
                            {"cutlass", d.cutlass},
                            {"cublaslt", d.cublaslt}});
  } else {
    j["backends"]["sm90"]["why_not"] = why;
  }
  return j;
}

void print(const json& j) {
  const auto text = [](const json& x) { return x.get<std::string>(); };
  const auto list = [](const json& x) { return fmt::format("{}", fmt::join(x.get<std::vector<std::string>>(), " ")); };
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("{:<12}{}\n", name, value.empty() ? "-" : value);
  };
  const json &build = j["build"], &cpu = j["cpu"], &sm90 = j["backends"]["sm90"];
  const std::string sanitizers = text(build["sanitizers"]), arch = text(build["arch"]);
  line("coda", text(j["version"]) + (text(j["commit"]).empty() ? "" : " (" + text(j["commit"]) + ")"));
  line("compiler", fmt::format("{}, {}, {}", text(build["compiler"]), text(build["type"]), text(build["flags"])));
  line("compiled", fmt::format("{}: {} ({}-byte vectors)", arch.empty() ? "no -march" : "-march=" + arch,
                               list(build["features"]), build["simd_bytes"].get<int>()));
  if (!sanitizers.empty()) line("sanitizers", sanitizers);
  line("cuda", text(build["cuda"]).empty() ? "not built in" : "nvcc " + text(build["cuda"]));
  line("cpu", fmt::format("{}, {} processors, {} threads", text(cpu["model"]), cpu["processors"].get<int>(),
                          cpu["threads"].get<int>()));
  line("features", list(cpu["features"]));
  line("oneDNN", fmt::format("{}, uses {}", text(j["onednn"]["version"]), text(j["onednn"]["isa"])));
  line("backend", fmt::format("cpu: available, tiles of {}x{}", cpu::kTileM, cpu::kTileN));
  line("backend", sm90["available"].get<bool>() ? "sm90: available" : "sm90: not available: " + text(sm90["why_not"]));
  for (const json& d : j["devices"])
    line("device", fmt::format("{}, compute capability {}, {} multiprocessors, {:.0f} GiB, CUTLASS {}", text(d["name"]),
                               text(d["compute_capability"]), d["multiprocessors"].get<int>(),
                               d["memory_bytes"].get<double>() / 0x1p30, text(d["cutlass"])));
}

}  // namespace

void add_info(CLI::App& app) {
  Command command(app, "info", "Tell what this build and this machine can do");
  const auto a = std::make_shared<ExplainArguments>();
  command.flag("--json", a->as_json, "Print one JSON document");
  const Option question =
      command.words("--explain", a->call, 4, "PROGRAM M N K", "What a program runs as on a Hopper GPU: PROGRAM M N K");
  command.option("--layout", a->layout, "With --explain: nt, nn or tn; the program's usual one").needs(question);
  command.option("--dtype", a->dtype, "With --explain: bf16 or fp16").needs(question).shows_default();
  command
      .whole<std::int64_t>("--head-dim", a->head_dim, "With --explain: columns of a head, for rotary programs", 2, 512)
      .needs(question);
  command.footer(
      "Examples:\n"
      "  coda info --json\n"
      "  coda info --explain gemm_rms_swiglu 16384 28672 4096");
  command.runs([a] {
    if (!a->call.empty()) return explain(*a);
    const json j = collect();
    if (a->as_json) fmt::print("{}\n", j.dump(1));
    else print(j);
  });
}

}  // namespace coda::cli
