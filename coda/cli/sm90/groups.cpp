#include "coda/cli/sm90/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "coda/nn/progress.h"

namespace coda::bench {
namespace {

struct Weight {
  std::int64_t out, in;
};
struct Model {
  std::int64_t hidden, ffn, heads, kv_heads, head_dim, vocabulary;

  std::int64_t attention() const { return heads * head_dim; }
  std::int64_t qkv() const { return (heads + 2 * kv_heads) * head_dim; }
  /// Of a layer.
  std::array<Weight, 4> weights() const {
    return {{{qkv(), hidden}, {hidden, attention()}, {2 * ffn, hidden}, {hidden, ffn}}};
  }
};
// LLaMA-3 1B, 8B, 70B and Qwen3-8B.
constexpr Model kModels[] = {{2048, 8192, 32, 8, 64, 128256},
                             {4096, 14336, 32, 8, 128, 128256},
                             {8192, 28672, 64, 8, 128, 128256},
                             {4096, 12288, 32, 8, 128, 151936}};
constexpr std::int64_t kRows = 16384;  // of a batch of two sequences
constexpr std::int64_t kSquares[] = {2048, 4096, 8192}, kFewRows[] = {1, 16, 64, 256, 1024};

}  // namespace

Needs Group::needs() const {
  Needs all;
  for (const Program* p : programs) all = all | p->needs;
  return all;
}
bool Group::fits_in_memory() const {
  if (bytes_needed(shape, needs()) <= std::int64_t{20} << 30) return true;
  nn::tell(stderr, fmt::format("skipped {}: its matrices need more than 20 GiB\n", cli::to_string(shape)));
  return false;
}

void Groups::add(const Program& p, const Shape& s, std::int64_t head_dim, bool both_ways) {
  for (const Layout layout : selection_.layouts.empty() ? std::vector{p.layout} : selection_.layouts)
    add(p, s, layout, head_dim, both_ways);
}
void Groups::add(const Program& p, const Shape& s, Layout layout, std::int64_t head_dim, bool both_ways) {
  const auto selected = [&](const Program* q) { return q == &p; };
  if (std::none_of(selection_.programs.begin(), selection_.programs.end(), selected) || s.n % p.columns != 0) return;
  const auto same = [&](const Group& g) { return g.shape == s && g.layout == layout && g.head_dim == head_dim; };
  const auto group = std::find_if(all_.begin(), all_.end(), same);
  if (group == all_.end()) all_.push_back({s, layout, head_dim, both_ways, {&p}});
  else if (std::none_of(group->programs.begin(), group->programs.end(), selected)) group->programs.push_back(&p);
}
void Groups::add_all(const Shape& s, bool both_ways) {
  for (const Program& p : programs()) add(p, s, 128, both_ways);
}
void Groups::add_squares() {
  for (const std::int64_t size : kSquares) add_all({size, size, size});
}
void Groups::add_few_rows() {
  for (const std::int64_t rows : kFewRows)
    for (const Program& p : programs())
      if (p.layout != Layout::tn) add(p, {rows, 4096, 4096}, 128, true);
}
void Groups::add_models() {
  constexpr std::int64_t kVocabularyBlock = 4096;
  for (const Model& m : kModels) {
    const std::int64_t attention = m.attention(), qkv = m.qkv();
    const auto product = [&](const char* name, std::int64_t n, std::int64_t k) {
      add(*find_program(name), {kRows, n, k}, m.head_dim);
    };
    for (const char* name : {"gemm", "gemm_bias", "gemm_residual_rms"}) product(name, m.hidden, attention);
    for (const char* name : {"gemm_residual_rms", "gemm_residual_layernorm"}) product(name, m.hidden, m.ffn);
    for (const char* name : {"gemm_rms", "gemm_layernorm", "gemm_rms_rope", "gemm_rms_qknorm_rope"})
      product(name, qkv, m.hidden);
    for (const char* name : {"gemm_rms_swiglu", "gemm_rms_swiglu_without_preact"}) product(name, 2 * m.ffn, m.hidden);
    product("gemm_layernorm_gelu", m.ffn, m.hidden);
    for (const char* name : {"gemm_lse", "gemm_lse_without_logits"}) product(name, m.vocabulary, m.hidden);
    product("gemm_cross_entropy_backward", kVocabularyBlock, m.hidden);
    for (const char* name : {"gemm_swiglu_backward", "gemm_gelu_backward"}) product(name, m.ffn, m.hidden);
    for (const std::int64_t k : {2 * m.ffn, qkv}) product("gemm_rms_backward", m.hidden, k);
    for (const Weight& w : m.weights()) add(*find_program("gemm_weight_gradient"), {w.out, w.in, kRows}, m.head_dim);
  }
}
void Groups::add_products(const Shape& s) {
  for (const char* name : {"gemm", "gemm_weight_gradient"})
    for (const Layout layout : {Layout::nt, Layout::nn, Layout::tn}) add(*find_program(name), s, layout, 128);
}
void Groups::add_products() {
  for (const std::int64_t size : kSquares) add_products({size, size, size});
  for (const std::int64_t rows : kFewRows) add_products({rows, 4096, 4096});
  for (const Model& m : kModels) {
    const Program &gemm = *find_program("gemm"), &sum = *find_program("gemm_weight_gradient");
    for (const Weight& w : m.weights()) {
      add(gemm, {kRows, w.out, w.in}, Layout::nt, 128);
      add(gemm, {kRows, w.in, w.out}, Layout::nn, 128);
      add(gemm, {w.out, w.in, kRows}, Layout::tn, 128);
      add(sum, {w.out, w.in, kRows}, Layout::tn, 128);
    }
    add(gemm, {kRows, m.vocabulary, m.hidden}, Layout::nt, 128);
  }
}

}  // namespace coda::bench
