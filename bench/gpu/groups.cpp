#include "bench/gpu/groups.h"

#include <algorithm>
#include <cstdio>

namespace coda::bench {
namespace {

struct Model {
  std::int64_t hidden, ffn, heads, kv_heads, head_dim, vocabulary;
};
// LLaMA-3 1B, 8B, 70B and Qwen3-8B.
constexpr Model kModels[] = {{2048, 8192, 32, 8, 64, 128256},
                             {4096, 14336, 32, 8, 128, 128256},
                             {8192, 28672, 64, 8, 128, 128256},
                             {4096, 12288, 32, 8, 128, 151936}};

/// The product that each program really has in a model, for a batch of two sequences of 8192 tokens.
void add_model(Groups& groups, const Model& m) {
  constexpr std::int64_t kRows = 16384, kVocabularyBlock = 4096;
  const std::int64_t attention = m.heads * m.head_dim, qkv = attention + 2 * m.kv_heads * m.head_dim;
  const auto add = [&](const char* name, std::int64_t n, std::int64_t k) {
    groups.add(program(name), {kRows, n, k}, m.head_dim);
  };
  for (const char* name : {"gemm", "gemm_bias", "gemm_residual_rms"}) add(name, m.hidden, attention);
  for (const char* name : {"gemm_residual_rms", "gemm_residual_layernorm"}) add(name, m.hidden, m.ffn);
  for (const char* name : {"gemm_rms", "gemm_layernorm", "gemm_rms_rope", "gemm_rms_qknorm_rope"})
    add(name, qkv, m.hidden);
  for (const char* name : {"gemm_rms_swiglu", "gemm_rms_swiglu_without_preact"}) add(name, 2 * m.ffn, m.hidden);
  add("gemm_layernorm_gelu", m.ffn, m.hidden);
  for (const char* name : {"gemm_lse", "gemm_lse_without_logits"}) add(name, m.vocabulary, m.hidden);
  add("gemm_cross_entropy_backward", kVocabularyBlock, m.hidden);
  for (const char* name : {"gemm_swiglu_backward", "gemm_gelu_backward"}) add(name, m.ffn, m.hidden);
  for (const std::int64_t k : {2 * m.ffn, qkv}) add("gemm_rms_backward", m.hidden, k);
}

}  // namespace

Needs Group::needs() const {
  Needs all;
  for (const Program* p : programs) all = all | p->needs;
  return all;
}
bool Group::fits_in_memory() const {
  if (bytes_needed(shape, needs()) <= std::int64_t{20} << 30) return true;
  std::fprintf(stderr, "skipped M=%lld N=%lld K=%lld: its matrices need more than 20 GiB\n",
               static_cast<long long>(shape.m), static_cast<long long>(shape.n), static_cast<long long>(shape.k));
  return false;
}

void Groups::add(const Program& p, const Shape& s, std::int64_t head_dim, bool both_ways) {
  for (Group& g : all_) {
    if (g.shape != s || g.layout != p.layout || g.head_dim != head_dim) continue;
    if (std::find(g.programs.begin(), g.programs.end(), &p) == g.programs.end()) g.programs.push_back(&p);
    return;
  }
  all_.push_back({s, p.layout, head_dim, both_ways, {&p}});
}
void Groups::add_all(const Shape& s, bool both_ways) {
  for (const Program& p : programs()) add(p, s, 128, both_ways);
}

Groups standard_groups(bool quick) {
  Groups groups;
  for (const std::int64_t size : {2048, 4096, 8192}) groups.add_all({size, size, size});
  if (quick) return groups;
  for (const std::int64_t rows : {1, 16, 64, 256, 1024}) groups.add_all({rows, 4096, 4096}, true);
  for (const Model& m : kModels) add_model(groups, m);
  return groups;
}

}  // namespace coda::bench
