#include "coda/cli/catalog.h"

#include <fmt/format.h>

#include "coda/cli/bench_cases.h"
#include "coda/cli/ports.h"
#include "coda/cli/verify_cases.h"
#include "coda/programs/activation.h"
#include "coda/programs/gemm.h"
#include "coda/programs/loss.h"
#include "coda/programs/residual.h"
#include "coda/programs/rope.h"

namespace coda::cli {
namespace {

using T = bf16;  // of the programs whose ports are listed
constexpr bool kOptional = true;

const PortLabel kRstd{"norm.rstd", "(M)", kOptional}, kMean{"norm.mean", "(M)"}, kU{"norm.u", "(N)"},
    kC{"norm.c", "(N)", kOptional};
const PortLabel kPreact{"preact", "(M, N)", kOptional}, kOut{"out", "(M, N)"};
const PortLabel kPartial{"dot.zdz", "(M, tiles_n)", kOptional};

std::vector<PortInfo> residual_ports() {
  return ports_of<coda::GemmResidual<T>>({{"residual", "(M, N)"},
                                          {"weight", "(N)", kOptional},
                                          {"x", "(M, N)"},
                                          {"h", "(M, N)", kOptional},
                                          {"sum_sq", "(M, tiles_n)", kOptional}});
}
template <class F>
std::vector<PortInfo> glu_ports() {
  return ports_of<coda::GemmNormGlu<T, RmsScale<T>, F>>({kRstd, kPreact, {"out", "(M, N / 2)"}});
}
template <class F>
std::vector<PortInfo> glu_backward_ports() {
  return ports_of<coda::GemmGluBackward<T, F>>(
      {{"preact", "(M, 2 N)"}, {"dpreact", "(M, 2 N)"}, {"out", "(M, N)", kOptional}, kPartial});
}
std::vector<PortInfo> lse_ports() {
  return ports_of<coda::GemmNormLse<T>>({kRstd,
                                         kPreact,
                                         {"logits", "(M, N)", kOptional},
                                         {"max, sum", "(M, tiles_n) each"},
                                         {"logit_sum", "(M, tiles_n)", kOptional},
                                         {"target, target_logit", "(M) each", kOptional}});
}

constexpr const char* kGluFormula =
    "z = rstd[m] acc; preact = z; out[m, j] = {}(z[m, 2j]) z[m, 2j + 1]\n"
    "layernorm: z = rstd[m] (acc - mean[m] u[n]) + c[n]";
constexpr const char* kGluBackwardFormula =
    "dy = acc; (g, u) = pairs of preact; dpreact pairs = (dy u {0}'(g), dy {0}(g)); out = {0}(g) u;\n"
    "zdz[m, t] = sum over tile t of preact dpreact; the derivative is derived from the forward function";
std::string with_function(const char* formula, const char* f) { return fmt::format(fmt::runtime(formula), f); }

std::vector<Entry> forward_entries() {
  return {
      {.name = "gemm",
       .call = "gemm",
       .formula = "preact = alpha acc + beta c + bias; out = f(preact)\n"
                  "f: identity, silu, gelu_erf, gelu_tanh, relu, relu_squared",
       .ports = ports_of<coda::Gemm<T>>({{"c", "(M, N)", kOptional}, {"bias", "(N)", kOptional}, kPreact, kOut}),
       .verify = verify_gemm,
       .bench = bench_gemm},
      {.name = "gemm_residual_rms",
       .call = "gemm_residual",
       .formula = "x = acc + residual; h = x weight[n]; sum_sq[m, t] = sum over tile t of x^2",
       .ports = residual_ports(),
       .verify = verify_gemm_residual_rms,
       .bench = bench_gemm_residual_rms},
      {.name = "gemm_residual_layernorm",
       .call = "gemm_residual",
       .formula = "x = acc + residual; h = x weight[n]; mean[m, t], m2[m, t] = mean of x and sum of (x - mean)^2\n"
                  "over tile t",
       .ports = ports_of<coda::GemmResidual<T, coda::Moments<T>>>({{"residual", "(M, N)"},
                                                                   {"weight", "(N)", kOptional},
                                                                   {"x", "(M, N)"},
                                                                   {"h", "(M, N)", kOptional},
                                                                   {"mean, m2", "(M, tiles_n) each"}}),
       .verify = verify_gemm_residual_layernorm,
       .bench = bench_gemm_residual_layernorm},
      {.name = "embedding",
       .call = "embedding",
       .formula = "x[m] = table[token[m]]; h and sum_sq (or mean, m2) as in gemm_residual_rms",
       .ports = ports_of<coda::Embedding<T>>({{"table, token", "(V, N), (M)"},
                                              {"weight", "(N)", kOptional},
                                              {"x", "(M, N)"},
                                              {"h", "(M, N)", kOptional},
                                              {"sum_sq", "(M, tiles_n)", kOptional}}),
       .product = false,
       .any_layout = false,
       .verify = verify_embedding},
      {.name = "gemm_rms",
       .call = "gemm_norm",
       .formula = "preact = rstd[m] acc; out = f(preact); f as in gemm",
       .ports = ports_of<coda::GemmNorm<T>>({kRstd, kPreact, kOut}),
       .verify = verify_gemm_rms,
       .bench = bench_gemm_rms},
      {.name = "gemm_layernorm",
       .call = "gemm_norm",
       .formula = "preact = rstd[m] (acc - mean[m] u[n]) + c[n]; out = f(preact); u = W w, c = W b of the norm's w, b",
       .ports =
           ports_of<coda::GemmNorm<T, coda::LayerNormScale<T>>>({{"norm.rstd", "(M)"}, kMean, kU, kC, kPreact, kOut}),
       .verify = verify_gemm_layernorm,
       .bench = bench_gemm_layernorm},
      {.name = "gemm_rms_swiglu",
       .call = "gemm_norm_glu",
       .formula = with_function(kGluFormula, "silu"),
       .ports = glu_ports<SwiGlu>(),
       .verify = verify_gemm_rms_swiglu,
       .bench = bench_gemm_rms_swiglu},
      {.name = "gemm_rms_geglu_erf",
       .call = "gemm_norm_glu",
       .formula = with_function(kGluFormula, "gelu_erf"),
       .ports = glu_ports<GeGluErf>(),
       .verify = verify_gemm_rms_geglu_erf,
       .bench = bench_gemm_rms_geglu_erf},
      {.name = "gemm_rms_geglu_tanh",
       .call = "gemm_norm_glu",
       .formula = with_function(kGluFormula, "gelu_tanh"),
       .ports = glu_ports<GeGluTanh>(),
       .verify = verify_gemm_rms_geglu_tanh,
       .bench = bench_gemm_rms_geglu_tanh},
      {.name = "gemm_rms_reglu",
       .call = "gemm_norm_glu",
       .formula = with_function(kGluFormula, "relu"),
       .ports = glu_ports<ReGlu>(),
       .verify = verify_gemm_rms_reglu,
       .bench = bench_gemm_rms_reglu},
      {.name = "gemm_rms_rope",
       .call = "gemm_norm_rope",
       .formula = "z = rstd[m] acc; pairs of q and k heads: out = (z0 cos - z1 sin, z0 sin + z1 cos) at the angle of\n"
                  "(position[m], pair); v heads: out = z",
       .ports = ports_of<coda::GemmNormRope<T>>(
           {kRstd, {"heads.table, .position", "(positions, head_dim), (M)"}, {"out", "(M, (q+k+v) head_dim)"}}),
       .verify = verify_gemm_rms_rope,
       .bench = bench_gemm_rms_rope},
      {.name = "gemm_rms_rotate",
       .call = "gemm_norm_rotate",
       .formula = "z = rstd[m] acc; preact = z; pairs of all columns: out = (z0 cos + z1 sin, z1 cos - z0 sin) with\n"
                  "(cos, sin) = pairs of angle",
       .ports = ports_of<coda::GemmNormRotate<T>>({kRstd, {"angle", "(M, N)"}, kPreact, kOut}),
       .verify = verify_gemm_rms_rotate,
       .bench = bench_gemm_rms_rotate},
      {.name = "gemm_rms_qknorm_rope",
       .call = "gemm_norm_qknorm_rope",
       .formula = "z = rstd[m] acc; n = z rsqrt(mean of z^2 over the head + eps) weight of q or k; out as in\n"
                  "gemm_rms_rope from n",
       .ports = ports_of<coda::GemmNormQkNormRope<T>>({kRstd,
                                                       {"mean of z^2", "one per row and head"},
                                                       {"q_weight, k_weight", "(head_dim) each"},
                                                       {"heads.table, .position", "(positions, head_dim), (M)"},
                                                       {"preact", "(M, (q+k+v) head_dim)", kOptional},
                                                       {"out", "(M, (q+k+v) head_dim)"}}),
       .verify = verify_gemm_rms_qknorm_rope,
       .bench = bench_gemm_rms_qknorm_rope},
  };
}

std::vector<Entry> loss_entries() {
  return {
      {.name = "gemm_lse",
       .call = "gemm_lse",
       .formula = "z = rstd[m] acc; l = scale z, or cap tanh(scale z / cap); of each row and tile max l and sum of\n"
                  "exp(l - max); logit_sum = sum of l; target_logit[m] = l[m, target[m]]; preact = z, logits = l",
       .ports = lse_ports(),
       .verify = verify_gemm_lse,
       .bench = bench_gemm_lse},
      {.name = "linear_cross_entropy",
       .call = "linear_cross_entropy",
       .formula = "gemm_lse without stored logits, then lse_finalize",
       .ports = lse_ports(),
       .any_layout = false,
       .verify = verify_linear_cross_entropy,
       .bench = bench_linear_cross_entropy},
      {.name = "cross_entropy_backward",
       .call = "cross_entropy_backward",
       .formula = "p = exp(l - lse[m]); dl = (p + 2 zeta lse p - (1 - s) onehot(target) - s / V) dloss[m];\n"
                  "dz = dl times the slope of scale and soft-cap; zdz[m, t] = sum over tile t of z dz",
       .ports = ports_of<coda::CrossEntropyBackward<T>>(
           {{"preact", "(M, N)"}, {"lse", "(M)"}, {"dloss", "(M)"}, {"target", "(M)"}, {"dz", "(M, N)"}, kPartial}),
       .product = false,
       .any_layout = false,
       .verify = verify_cross_entropy_backward},
      {.name = "linear_cross_entropy_backward",
       .call = "linear_cross_entropy_backward",
       .formula = "block by block of the vocabulary: z = rstd[m] acc again, dz as in cross_entropy_backward;\n"
                  "da += dz W, dweight += dz^T h, row_dot[m] += sum of z dz",
       .ports = ports_of<coda::GemmCrossEntropyBackward<T>>({kRstd,
                                                             {"lse", "(M)"},
                                                             {"dloss", "(M)"},
                                                             {"target", "(M)"},
                                                             {"dz", "(M, chunk)"},
                                                             {"row_dot", "(M)", kOptional}}),
       .any_layout = false,
       .verify = verify_linear_cross_entropy_backward},
  };
}

std::vector<Entry> backward_entries() {
  const PortLabel dx_in{"dx_in", "(M, N)", kOptional}, dweight{"dweight", "(tiles_m, N)", kOptional};
  return {
      {.name = "gemm_rms_backward",
       .call = "gemm_rms_backward",
       .formula = "dh = acc; n = x rstd[m]; dx = dx_in + rstd[m] (dh weight[n] - n row_term[m]); h = n weight[n];\n"
                  "dweight[t, n] = sum over row tile t of dh n; row_term = sum of zdz / N of the next layer",
       .ports = ports_of<coda::GemmRmsBackward<T>>({{"x", "(M, N)"},
                                                    dx_in,
                                                    {"rstd", "(M)"},
                                                    {"row_term", "(M)"},
                                                    {"weight", "(N)"},
                                                    {"dx", "(M, N)"},
                                                    {"h", "(M, N)", kOptional},
                                                    dweight}),
       .layout = Layout::nn,
       .verify = verify_gemm_rms_backward,
       .bench = bench_gemm_rms_backward},
      {.name = "gemm_layernorm_backward",
       .call = "gemm_layernorm_backward",
       .formula = "dh = acc; n = (x - mean[m]) rstd[m]; dx = dx_in + rstd[m] (dh weight[n] - udz[m] - n zdz[m]);\n"
                  "h = n weight[n] + bias[n]; dweight, dbias = sums over row tiles of dh n and dh",
       .ports = ports_of<coda::GemmLayerNormBackward<T>>({{"x", "(M, N)"},
                                                          dx_in,
                                                          {"rstd", "(M)"},
                                                          {"mean", "(M)"},
                                                          {"zdz", "(M)"},
                                                          {"udz", "(M)"},
                                                          {"weight", "(N)"},
                                                          {"bias", "(N)", kOptional},
                                                          {"dx", "(M, N)"},
                                                          {"h", "(M, N)", kOptional},
                                                          dweight,
                                                          {"dbias", "(tiles_m, N)", kOptional}}),
       .layout = Layout::nn,
       .verify = verify_gemm_layernorm_backward,
       .bench = bench_gemm_layernorm_backward},
      {.name = "gemm_swiglu_backward",
       .call = "gemm_glu_backward",
       .formula = with_function(kGluBackwardFormula, "silu"),
       .ports = glu_backward_ports<SwiGlu>(),
       .layout = Layout::nn,
       .verify = verify_gemm_swiglu_backward,
       .bench = bench_gemm_swiglu_backward},
      {.name = "gemm_geglu_erf_backward",
       .call = "gemm_glu_backward",
       .formula = with_function(kGluBackwardFormula, "gelu_erf"),
       .ports = glu_backward_ports<GeGluErf>(),
       .layout = Layout::nn,
       .verify = verify_gemm_geglu_erf_backward,
       .bench = bench_gemm_geglu_erf_backward},
      {.name = "gemm_geglu_tanh_backward",
       .call = "gemm_glu_backward",
       .formula = with_function(kGluBackwardFormula, "gelu_tanh"),
       .ports = glu_backward_ports<GeGluTanh>(),
       .layout = Layout::nn,
       .verify = verify_gemm_geglu_tanh_backward,
       .bench = bench_gemm_geglu_tanh_backward},
      {.name = "gemm_reglu_backward",
       .call = "gemm_glu_backward",
       .formula = with_function(kGluBackwardFormula, "relu"),
       .ports = glu_backward_ports<ReGlu>(),
       .layout = Layout::nn,
       .verify = verify_gemm_reglu_backward,
       .bench = bench_gemm_reglu_backward},
      {.name = "gemm_activation_backward",
       .call = "gemm_activation_backward",
       .formula = "dy = acc; dpreact = dy f'(preact); out = f(preact); zdz[m, t] = sum over tile t of preact dpreact;\n"
                  "f as in gemm, its derivative derived from it",
       .ports = ports_of<coda::GemmActivationBackward<T>>(
           {{"preact", "(M, N)"}, {"dpreact", "(M, N)"}, {"out", "(M, N)", kOptional}, kPartial}),
       .layout = Layout::nn,
       .verify = verify_gemm_activation_backward,
       .bench = bench_gemm_activation_backward},
      {.name = "rope_backward",
       .call = "rope_backward",
       .formula = "dz = R^T dy: pairs (dy0 cos + dy1 sin, dy1 cos - dy0 sin); zdz[m, t] = sum over tile t of z dz",
       .ports = ports_of<coda::RopeBackward<T>>({{"y", "(M, N)"},
                                                 {"dy", "(M, N)"},
                                                 {"heads.table, .position", "(positions, head_dim), (M)"},
                                                 {"dz", "(M, N)"},
                                                 kPartial}),
       .product = false,
       .any_layout = false,
       .verify = verify_rope_backward},
      {.name = "qknorm_rope_backward",
       .call = "qknorm_rope_backward",
       .formula = "r = rsqrt(mean of z^2 over the head + eps); n = z r; g = R^T dy weight; dz = r (g - n mean(g n));\n"
                  "dweight[t, n] = sum over row tile t of R^T dy n; zdz[m, t] = sum over head tile t of z dz",
       .ports = ports_of<coda::QkNormRopeBackward<T>>({{"preact", "(M, N)"},
                                                       {"dy", "(M, N)"},
                                                       {"mean of z^2", "one per row and head"},
                                                       {"mean of g z", "one per row and head"},
                                                       {"q_weight, k_weight", "(head_dim) each"},
                                                       {"heads.table, .position", "(positions, head_dim), (M)"},
                                                       {"dz", "(M, N)"},
                                                       dweight,
                                                       {"dot.zdz", "(M, head_tiles_n)", kOptional}}),
       .product = false,
       .any_layout = false,
       .verify = verify_qknorm_rope_backward},
  };
}

// The reductions between programs are plain functions: their arguments are listed.
Entry reduction(const char* name, const char* formula, std::vector<PortInfo> arguments, void (*verify)(VerifyCase&)) {
  return {.name = name,
          .call = name,
          .formula = formula,
          .ports = std::move(arguments),
          .product = false,
          .any_layout = false,
          .verify = verify};
}
PortInfo input(const char* name, const char* shape, const char* dtype = "S", bool optional = false) {
  return {name, "input", dtype, shape, optional};
}
PortInfo output(const char* name, const char* shape, const char* dtype = "S", bool optional = false) {
  return {name, "output", dtype, shape, optional};
}

std::vector<Entry> reduction_entries() {
  return {
      reduction("rms_finalize", "rstd[m] = 1 / sqrt(sum_t sum_sq[m, t] / n + eps)",
                {input("sum_sq", "(M, tiles_n)"), output("rstd", "(M)")}, verify_rms_finalize),
      reduction("layernorm_finalize", "mean[m], rstd[m] = 1 / sqrt(var + eps) merged from the tiles' means and m2",
                {input("tile_mean", "(M, tiles_n)"), input("tile_m2", "(M, tiles_n)"), output("mean", "(M)"),
                 output("rstd", "(M)")},
                verify_layernorm_finalize),
      reduction("lse_finalize",
                "lse[m] = log sum exp over the tiles; loss[m] = (1 - s)(lse - l[target]) + s (lse - mean(l)) + zeta\n"
                "lse^2, 0 where the target is ignore_index",
                {input("max", "(M, tiles)"), input("sum", "(M, tiles)"), input("logit_sum", "(M, tiles)", "S", true),
                 input("target", "(M)", "int32 or int64", true), input("target_logit", "(M)", "S", true),
                 output("lse", "(M)"), output("loss", "(M)", "S", true)},
                verify_lse_finalize),
      reduction("sum_rows", "out[m] = scale sum_t partial[m, t]",
                {input("partial", "(M, tiles)"), output("out", "(M)")}, verify_sum_rows),
      reduction("sum_columns", "out[n] = beta out[n] + sum_t partial[t, n]",
                {input("partial", "(tiles, N)"), output("out", "(N)")}, verify_sum_columns),
      reduction(
          "head_weight_gradient", "dq_weight[d], dk_weight[d] = beta itself + sum over rows and heads of partial",
          {input("partial", "(tiles_m, N)"), output("dq_weight", "(head_dim)"), output("dk_weight", "(head_dim)")},
          verify_head_weight_gradient),
      reduction("embedding_backward", "dtable[token[m]] += dx[m], in row order",
                {input("dx", "(M, N)", "T"), input("token", "(M)", "int32 or int64"), output("dtable", "(V, N)")},
                verify_embedding_backward),
      reduction("cast", "out = in, rounded to another type",
                {input("in", "(M, N)", "T"), output("out", "(M, N)", "any")}, verify_cast),
      reduction("squared_norm", "out = beta out + sum of x^2",
                {input("x", "(size)", "T"), output("out", "(1)", "fp64")}, verify_squared_norm),
      reduction("adamw",
                "g = gradient_scale gradient, clipped to the global norm; m = beta1 m + (1 - beta1) g;\n"
                "v = beta2 v + (1 - beta2) g^2; master = master (1 - rate decay) - rate m_hat / (sqrt(v_hat) + eps),\n"
                "m_hat = m / (1 - beta1^step), v_hat = v / (1 - beta2^step); weight = master",
                {input("gradient", "(size)", "any"), input("squared_norm", "(1)", "fp64", true),
                 output("master, m, v", "(size) each"), output("weight", "(size)", "any", true)},
                verify_adamw),
  };
}

std::vector<Entry> all_entries() {
  std::vector<Entry> all;
  for (const auto part : {forward_entries, loss_entries, backward_entries, reduction_entries})
    for (const Entry& e : part()) all.push_back(e);
  return all;
}

}  // namespace

const std::vector<Entry>& catalog() {
  static const std::vector<Entry> entries = all_entries();
  return entries;
}

const Entry* find_entry(const std::string& name) {
  for (const Entry& e : catalog())
    if (e.name == name) return &e;
  return nullptr;
}

}  // namespace coda::cli
