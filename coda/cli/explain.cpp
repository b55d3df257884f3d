#include "coda/cli/explain.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "coda/backend/sm90/choice.h"
#include "coda/backend/sm90/device.h"
#include "coda/cli/arguments.h"

namespace coda::cli {
namespace {

using json = nlohmann::ordered_json;

/// Programs of the catalog whose product is one of another name.
struct Alias {
  const char* name;
  const char* program;
};
constexpr Alias kAliases[] = {{"linear_cross_entropy", "gemm_lse"},
                              {"linear_cross_entropy_backward", "gemm_cross_entropy_backward"}};

constexpr sm90::Chip kH200{132, 4814};  // as the shipped table has it

struct Question {
  std::string program;
  Shape shape;
  Layout layout;
  DType dtype;
};

Question parse(const ExplainArguments& a) {
  Question q;
  q.program = a.call[0];
  for (const Alias& alias : kAliases)
    if (q.program == alias.name) q.program = alias.program;
  const sm90::FusedProgram* fused = sm90::is_product(q.program) ? nullptr : sm90::find_fused(q.program);
  const Entry* entry = fused ? nullptr : parse_programs({q.program}, "--explain").front();
  if (entry && !entry->product)
    throw UsageError("--explain",
                     fmt::format("expected a program with a product, got {}: it is one kernel of its own", q.program));
  // A backward's N is the half that it reads; forward, N are pairs.
  const bool forward = q.program.find("backward") == std::string::npos;
  const bool heads = q.program.find("rope") != std::string::npos;
  const bool pairs = forward && (q.program.find("glu") != std::string::npos || heads);
  const auto side = [&](std::size_t i) { return parse_side("--explain", a.call[i]); };
  q.shape = {side(1), side(2), side(3)};
  if (pairs && q.shape.n % 2 != 0)
    throw UsageError("--explain", fmt::format("expected an even N for {}, which works on pairs of columns, got {}",
                                              q.program, q.shape.n));
  if (!heads && a.head_dim != 0)
    throw UsageError("--head-dim",
                     fmt::format("expected none for {}, which has no heads, got {}", q.program, a.head_dim));
  if (a.head_dim % 2 != 0)
    throw UsageError("--head-dim",
                     fmt::format("expected an even number, as rotations are of pairs of columns, got {}", a.head_dim));
  if (a.head_dim != 0 && q.shape.n % a.head_dim != 0)
    throw UsageError("--explain", fmt::format("expected an N of whole heads of --head-dim {} columns, got {}",
                                              a.head_dim, q.shape.n));
  q.dtype = parse_dtypes({a.dtype}).front();
  if (size_of(q.dtype) != 2) throw UsageError("--dtype", fmt::format("expected bf16 or fp16, got `{}`", a.dtype));
  if (!a.layout.empty()) q.layout = parse_layouts({a.layout}).front();
  else if (fused) q.layout = fused->nt ? Layout::nt : Layout::nn;
  else q.layout = entry->layout;
  return q;
}

/// What runs where nothing follows the product: an algorithm of cuBLASLt, or a fused kernel that has no epilogue. No
/// entry: it was not measured.
struct BareProduct {
  const sm90::Entry* entry = nullptr;
  sm90::Way way = sm90::Way::unfused;
  std::string text;
};
BareProduct bare_product(const Question& q, const sm90::Chip& chip, const std::string& cublaslt) {
  const auto& [m, n, k] = q.shape;
  const sm90::Explanation ours = sm90::explain(sm90::product_name(q.dtype), q.dtype, q.layout, m, n, k, 0, chip);
  if (ours.choice.way == sm90::Way::fused)
    return {ours.entry, ours.choice.way, sm90::text_of(ours.choice, ours.splits_k)};
  const sm90::Entry* entry = sm90::find_product(q.dtype, q.layout, m, n, k, chip, cublaslt);
  return {entry, sm90::Way::unfused, sm90::text_of(entry ? entry->algorithm : sm90::Algorithm())};
}

}  // namespace

void explain(const ExplainArguments& a) {
  const Question q = parse(a);
  std::string no_device, cublaslt;
  const bool available = sm90::available(&no_device);
  sm90::Chip chip = kH200;
  if (available) {
    const sm90::DeviceInfo device = sm90::device_info();
    chip = {device.multiprocessors, device.memory_gbs};
    cublaslt = device.cublaslt;
  }
  const BareProduct product = q.program == "gemm" ? bare_product(q, chip, cublaslt) : BareProduct();
  const sm90::Explanation x =
      sm90::explain(q.program, q.dtype, q.layout, q.shape.m, q.shape.n, q.shape.k, a.head_dim, chip);
  const sm90::FusedProgram* fused = sm90::find_fused(q.program);
  const std::string only = fused ? fused->only : "";
  const std::string& user = sm90::user_table().path;
  if (a.as_json) {
    json j{{"command", "info"},
           {"explain", q.program},
           {"m", q.shape.m},
           {"n", q.shape.n},
           {"k", q.shape.k},
           {"layout", coda::name_of(q.layout)},
           {"dtype", coda::name_of(q.dtype)},
           {"multiprocessors", chip.multiprocessors},
           {"memory_gbs", chip.memory_gbs},
           {"device_present", available},
           {"way", sm90::name_of(x.choice.way)},
           {"why", x.why},
           {"measured", x.entry != nullptr}};
    if (x.choice.way == sm90::Way::fused) {
      j["config"] = x.choice.config;
      j["band"] = x.choice.raster.band;
      j["along"] = x.choice.raster.along_m ? "m" : "n";
    }
    if (x.rounds) {
      const sm90::Rounds& r = *x.rounds;
      j["rounds"] = {{"clusters", r.clusters}, {"full", r.full}, {"left", r.left}, {"split", r.split.helpers > 0}};
    }
    if (x.entry)
      j["entry"] = {{"m", x.entry->m},
                    {"origin", x.entry->origin},
                    {"ms", x.entry->ms},
                    {"rule_ms", x.entry->rule_ms},
                    {"unfused_ms", x.entry->unfused_ms}};
    if (!only.empty()) j["only"] = only;
    if (q.program == "gemm") j["product"] = {{"way", sm90::name_of(product.way)}, {"what", product.text}};
    if (product.entry)
      j["product"].update({{"m", product.entry->m},
                           {"origin", product.entry->origin},
                           {"ms", product.entry->ms},
                           {"rule_ms", product.entry->rule_ms},
                           {"unfused_ms", product.entry->unfused_ms}});
    if (!user.empty()) j["user_table"] = {{"path", user}, {"error", sm90::user_table().error}};
    fmt::print("{}\n", j.dump(1, ' ', false, json::error_handler_t::replace));  // paths are bytes
    return;
  }
  fmt::print("{} {} {} {}: {}\n", q.program, to_string(q.shape), coda::name_of(q.layout), coda::name_of(q.dtype),
             sm90::text_of(x.choice, x.splits_k));
  fmt::print("  why     {}\n", x.why);
  if (x.choice.way == sm90::Way::unfused)
    fmt::print("  unfused cuBLASLt's product in fp32, and one kernel behind it that runs the program\n");
  else fmt::print("  needs   16-byte aligned rows of all matrices; where they are not, unfused\n");
  if (x.rounds) fmt::print("  rounds  {}\n", sm90::text_of(*x.rounds, x.tile_m, x.steps));
  if (!only.empty()) fmt::print("  fused   of this program only: {}\n", only);
  if (product.entry) {
    const sm90::Entry& e = *product.entry;
    fmt::print("  product {}, where nothing follows it: measured with M = {} ({}): {} ms; ", product.text, e.m,
               e.origin, e.ms);
    if (product.way == sm90::Way::fused) fmt::print("cuBLASLt's fastest algorithm {} ms, ", e.unfused_ms);
    fmt::print("cuBLASLt's own choice {} ms\n", e.rule_ms);
  } else if (q.program == "gemm") {
    fmt::print("  product {}, where nothing follows it; not measured: the rule's\n", product.text);
  }
  if (!available) fmt::print("  device  none here ({}): an H200 assumed\n", no_device);
  if (!user.empty())
    fmt::print("  table   CODA_TUNING={}{}\n", user, sm90::user_table().error.empty() ? "" : ", which is not used");
}

}  // namespace coda::cli
