#include "coda/cli/sm90/programs.h"

#include "coda/backend/sm90/run.h"
#include "coda/programs/loss.h"

namespace coda::bench {
namespace {

constexpr std::int64_t kElement = 2;  // bf16

std::int64_t up_to_8(std::int64_t x) { return (x + 7) / 8 * 8; }
ops::Target on(void* stream) { return {ops::Backend::sm90, stream}; }

void run_gemm(const Arguments& x, Layout layout, void* stream) {
  ops::gemm({.a = x.a(layout), .b = x.b(layout), .layout = layout, .out = x.out, .on = on(stream)});
}
/// As it is added to what the steps before left.
void run_gemm_weight_gradient(const Arguments& x, Layout layout, void* stream) {
  ops::gemm(
      {.a = x.a(layout), .b = x.b(layout), .layout = layout, .beta = 1, .c = x.sum, .out = x.sum, .on = on(stream)});
}
void run_gemm_bias(const Arguments& x, Layout layout, void* stream) {
  ops::gemm({.a = x.a(layout), .b = x.b(layout), .layout = layout, .bias = x.weight, .out = x.out, .on = on(stream)});
}
void run_gemm_rms(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_norm(
      {.a = x.a(layout), .b = x.b(layout), .layout = layout, .norm = {.rstd = x.rstd}, .out = x.out, .on = on(stream)});
}
ops::Norm layernorm(const Arguments& x) {
  return {.rstd = x.rstd, .mean = x.mean, .u = x.column_sum, .c = x.column_sum};
}
void run_gemm_layernorm(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_norm(
      {.a = x.a(layout), .b = x.b(layout), .layout = layout, .norm = layernorm(x), .out = x.out, .on = on(stream)});
}
void run_gemm_layernorm_gelu(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_norm({.a = x.a(layout),
                  .b = x.b(layout),
                  .layout = layout,
                  .norm = layernorm(x),
                  .activation = ops::Activation::gelu_tanh,
                  .preact = x.second,
                  .out = x.out,
                  .on = on(stream)});
}
void run_swiglu(const Arguments& x, Layout layout, void* stream, bool keep) {
  ops::gemm_norm_glu({.a = x.a(layout),
                      .b = x.b(layout),
                      .layout = layout,
                      .norm = {.rstd = x.rstd},
                      .preact = keep ? x.out : Matrix(),
                      .out = x.half,
                      .on = on(stream)});
}
void run_gemm_rms_swiglu(const Arguments& x, Layout layout, void* stream) { run_swiglu(x, layout, stream, true); }
void run_gemm_rms_swiglu_without_preact(const Arguments& x, Layout layout, void* stream) {
  run_swiglu(x, layout, stream, false);
}
void run_gemm_residual_rms(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_residual({.a = x.a(layout),
                      .b = x.b(layout),
                      .layout = layout,
                      .residual = x.addend,
                      .weight = x.weight,
                      .x = x.out,
                      .h = x.second,
                      .sum_sq = x.partial[0],
                      .on = on(stream)});
}
void run_gemm_residual_layernorm(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_residual({.a = x.a(layout),
                      .b = x.b(layout),
                      .layout = layout,
                      .residual = x.addend,
                      .weight = x.weight,
                      .x = x.out,
                      .h = x.second,
                      .mean = x.partial[0],
                      .m2 = x.partial[1],
                      .on = on(stream)});
}
void run_gemm_rms_rope(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_norm_rope({.a = x.a(layout),
                       .b = x.b(layout),
                       .layout = layout,
                       .norm = {.rstd = x.rstd},
                       .heads = x.heads,
                       .out = x.out,
                       .on = on(stream)});
}
void run_gemm_rms_rotate(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_norm_rotate({.a = x.a(layout),
                         .b = x.b(layout),
                         .layout = layout,
                         .norm = {.rstd = x.rstd},
                         .angle = x.addend,
                         .preact = x.second,
                         .out = x.out,
                         .on = on(stream)});
}
void run_gemm_rms_qknorm_rope(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_norm_qknorm_rope({.a = x.a(layout),
                              .b = x.b(layout),
                              .layout = layout,
                              .norm = {.rstd = x.rstd},
                              .heads = x.heads,
                              .q_weight = x.head_weight,
                              .k_weight = x.head_weight,
                              .preact = x.second,
                              .out = x.out,
                              .on = on(stream)});
}
void run_lse(const Arguments& x, Layout layout, void* stream, bool keep) {
  ops::gemm_lse({.a = x.a(layout),
                 .b = x.b(layout),
                 .layout = layout,
                 .norm = {.rstd = x.rstd},
                 .target = x.target,
                 .preact = keep ? x.out : Matrix(),
                 .max = x.partial[0],
                 .sum = x.partial[1],
                 .target_logit = x.target_logit,
                 .on = on(stream)});
}
void run_gemm_lse(const Arguments& x, Layout layout, void* stream) { run_lse(x, layout, stream, true); }
void run_gemm_lse_without_logits(const Arguments& x, Layout layout, void* stream) { run_lse(x, layout, stream, false); }

/// A block of the vocabulary in linear_cross_entropy_backward, which also runs two plain products.
void run_gemm_cross_entropy_backward(const Arguments& x, Layout layout, void* stream) {
  const auto vector = [](const ConstVector& v) { return static_cast<const float*>(v.data); };
  const GemmCrossEntropyBackward<bf16> block{
      .norm = {.rstd = {vector(x.rstd)}},
      .gradient = {.lse = {vector(x.lse)},
                   .dloss = {vector(x.dloss)},
                   .target = {IndexVector(static_cast<const std::int64_t*>(x.target.data)), 0}},
      .dz = x.out.as<bf16>(),
      .dot = {.zdz = x.partial[0].as<float>()}};
  sm90::Product<bf16, GemmCrossEntropyBackward<bf16>>::run(x.a(layout), x.b(layout), layout, block, stream,
                                                           "gemm_cross_entropy_backward");
}

void run_gemm_rms_backward(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_rms_backward({.a = x.a(layout),
                          .b = x.b(layout),
                          .layout = layout,
                          .x = x.addend,
                          .dx_in = x.second,
                          .rstd = x.rstd,
                          .row_term = x.mean,
                          .weight = x.weight,
                          .dx = x.second,
                          .h = x.out,
                          .dweight = x.column_partial,
                          .on = on(stream)});
}
void run_gemm_swiglu_backward(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_glu_backward({.a = x.a(layout),
                          .b = x.b(layout),
                          .layout = layout,
                          .preact = x.wide,
                          .dpreact = x.wide_out,
                          .out = x.out,
                          .dot = {.zdz = x.partial[0]},
                          .on = on(stream)});
}
void run_gemm_gelu_backward(const Arguments& x, Layout layout, void* stream) {
  ops::gemm_activation_backward({.a = x.a(layout),
                                 .b = x.b(layout),
                                 .layout = layout,
                                 .activation = ops::Activation::gelu_tanh,
                                 .preact = x.addend,
                                 .dpreact = x.out,
                                 .out = x.second,
                                 .dot = {.zdz = x.partial[0]},
                                 .on = on(stream)});
}

}  // namespace

std::int64_t bytes_needed(const Shape& s, const Needs& needs) {
  const std::int64_t operands = (up_to_8(s.m) + up_to_8(s.n)) * up_to_8(s.k), outputs = s.m * s.n;
  return kElement * (operands + outputs * (1 + needs.addend + 4 * needs.wide + needs.second + 2 * needs.fp32));
}

Arguments::Arguments(const Shape& s, const Needs& needs, const Noise& noise, std::int64_t head_dim) : shape(s) {
  const auto matrix = [](void* data, std::int64_t rows, std::int64_t cols) {
    return Matrix(data, DType::bf16, rows, cols);
  };
  a_ = noisy(noise, up_to_8(s.m) * up_to_8(s.k));
  b_ = noisy(noise, up_to_8(s.n) * up_to_8(s.k));
  if (needs.addend) addend = matrix(noisy(noise, s.m * s.n), s.m, s.n);
  if (needs.wide) {
    wide = matrix(noisy(noise, 2 * s.m * s.n), s.m, 2 * s.n);
    wide_out = matrix(allocate(2 * s.m * s.n * kElement), s.m, 2 * s.n);
  }
  if (needs.fp32) {
    sum = Matrix(allocate(s.m * s.n * 4), DType::fp32, s.m, s.n);
    memory_.back().fill(0);
  }
  if (needs.second) second = matrix(noisy(noise, s.m * s.n), s.m, s.n);
  out = matrix(allocate(s.m * s.n * kElement), s.m, s.n);
  half = matrix(out.data, s.m, s.n / 2);
  // Where the pre-activation is kept, too, it needs memory beside it.
  if (needs.second) half = matrix(second.data, s.m, s.n / 2);

  const auto tiles = [&](std::int64_t rows, std::int64_t cols) {
    return Matrix(allocate(rows * cols * 4), DType::fp32, rows, cols);
  };
  for (Matrix& x : partial) x = tiles(s.m, ops::tiles_n(s.n, ops::Backend::sm90));
  column_partial = tiles(ops::tiles_m(s.m, ops::Backend::sm90), s.n);
  const auto filled = [&](std::int64_t size, float value) {
    const std::vector<float> host(static_cast<std::size_t>(size), value);
    void* data = allocate(size * 4);
    memory_.back().upload(host.data(), host.size() * 4);
    return ConstVector(data, DType::fp32, size);
  };
  weight = ConstVector(noisy(noise, s.n), DType::bf16, s.n);
  head_weight = ConstVector(noisy(noise, head_dim), DType::bf16, head_dim);
  rstd = filled(s.m, 0.75f), mean = filled(s.m, 0.125f), dloss = filled(s.m, 1.f), lse = filled(s.m, 100.f);
  column_sum = filled(s.n, 0.5f);
  target_logit = Vector(allocate(s.m * 4), DType::fp32, s.m);
  std::vector<std::int64_t> targets(static_cast<std::size_t>(s.m));
  for (std::int64_t m = 0; m < s.m; ++m) targets[static_cast<std::size_t>(m)] = m * 7919 % s.n;
  target = ConstVector(allocate(s.m * 8), DType::int64, s.m);
  memory_.back().upload(targets.data(), targets.size() * 8);

  if (s.n % head_dim == 0) {
    const std::int64_t total = s.n / head_dim;
    heads.head_dim = head_dim;
    heads.k = heads.v = total / 6;
    heads.q = total - heads.k - heads.v;
    std::vector<float> table(static_cast<std::size_t>(s.m * head_dim));
    ops::rotary_table(MatrixOf<float>(table.data(), s.m, head_dim), 500000.0);
    heads.table = ConstMatrix(allocate(s.m * head_dim * 4), DType::fp32, s.m, head_dim);
    memory_.back().upload(table.data(), table.size() * 4);
  }
}

ConstMatrix Arguments::operand(const void* data, std::int64_t rows, std::int64_t cols) {
  return {data, DType::bf16, rows, cols, up_to_8(cols)};
}
ConstMatrix Arguments::a(Layout layout) const {
  return layout == Layout::tn ? operand(a_, shape.k, shape.m) : operand(a_, shape.m, shape.k);
}
ConstMatrix Arguments::b(Layout layout) const {
  return layout == Layout::nt ? operand(b_, shape.n, shape.k) : operand(b_, shape.k, shape.n);
}
void* Arguments::allocate(std::int64_t bytes) {
  memory_.emplace_back(static_cast<std::size_t>(bytes));
  return memory_.back().data();
}
void* Arguments::noisy(const Noise& noise, std::int64_t elements) {
  memory_.push_back(noise.buffer(elements));
  return memory_.back().data();
}

const std::vector<Program>& programs() {
  constexpr Layout nt = Layout::nt, nn = Layout::nn;
  constexpr Needs kOut{}, kSecond{.second = true}, kTwo{.addend = true, .second = true}, kWide{.wide = true},
      kSum{.fp32 = true};
  static const std::vector<Program> all{
      {"gemm", nt, kOut, "product", run_gemm},
      {"gemm_weight_gradient", Layout::tn, kSum, "product_fp32", run_gemm_weight_gradient},
      {"gemm_bias", nt, kOut, "gemm", run_gemm_bias},
      {"gemm_rms", nt, kOut, "gemm_rms", run_gemm_rms},
      {"gemm_layernorm", nt, kOut, "gemm_layernorm", run_gemm_layernorm},
      {"gemm_layernorm_gelu", nt, kSecond, "", run_gemm_layernorm_gelu},
      {"gemm_rms_swiglu", nt, kSecond, "gemm_rms_swiglu", run_gemm_rms_swiglu, 2},
      {"gemm_rms_swiglu_without_preact", nt, kOut, "", run_gemm_rms_swiglu_without_preact, 2},
      {"gemm_residual_rms", nt, kTwo, "gemm_residual_rms", run_gemm_residual_rms},
      {"gemm_residual_layernorm", nt, kTwo, "gemm_residual_layernorm", run_gemm_residual_layernorm},
      {"gemm_rms_rope", nt, kOut, "gemm_rms_rope", run_gemm_rms_rope, 128},
      {"gemm_rms_rotate", nt, kTwo, "", run_gemm_rms_rotate, 2},
      {"gemm_rms_qknorm_rope", nt, kSecond, "gemm_rms_qknorm_rope", run_gemm_rms_qknorm_rope, 128},
      {"gemm_lse", nt, kOut, "", run_gemm_lse},
      // What a loss calls, and what suffers most from an order that does not suit it.
      {"gemm_lse_without_logits", nt, kOut, "gemm_lse", run_gemm_lse_without_logits},
      {"gemm_cross_entropy_backward", nt, kOut, "gemm_cross_entropy_backward", run_gemm_cross_entropy_backward},
      {"gemm_rms_backward", nn, kTwo, "gemm_rms_backward", run_gemm_rms_backward},
      {"gemm_swiglu_backward", nn, kWide, "gemm_swiglu_backward", run_gemm_swiglu_backward},
      {"gemm_gelu_backward", nn, kTwo, "gemm_activation_backward", run_gemm_gelu_backward},
  };
  return all;
}

const Program* find_program(const std::string& name) {
  for (const Program& p : programs())
    if (name == p.name) return &p;
  return nullptr;
}

}  // namespace coda::bench
