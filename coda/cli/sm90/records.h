// What is measured on a GPU, and what result files say of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "coda/cli/shape.h"
#include "coda/core/tensor.h"

namespace coda::bench {

using json = nlohmann::ordered_json;

/// As many digits as a measurement has, and fewer lines that differ between two files.
inline double rounded(double x, int digits) {
  const double scale = std::pow(10., digits);
  return std::round(x * scale) / scale;
}

/// Times of work and of the bare products in it, each replayed alone; 0 where the work is too short for that.
struct Alone {
  double ms = 0, bare_ms = 0;
};
inline void add_alone(json& j, const Alone& alone, const char* bare_name) {
  if (alone.ms <= 0) return;
  j["alone_ms"] = rounded(alone.ms, 4);
  j[bare_name] = rounded(alone.bare_ms, 4);
  j["alone_ratio"] = rounded(alone.bare_ms / alone.ms, 4);
}

/// A program beside cuBLASLt's bare product of its shape.
struct KernelRecord {
  std::string program;
  cli::Shape shape;
  Layout layout;
  double ms, bare_ms;
  Alone alone = {};
  double ratio() const { return bare_ms / ms; }
};
inline void to_json(json& j, const KernelRecord& r) {
  j = {{"program", r.program},
       {"m", r.shape.m},
       {"n", r.shape.n},
       {"k", r.shape.k},
       {"dtype", "bf16"},
       {"layout", name_of(r.layout)},
       {"ms", rounded(r.ms, 5)},
       {"cublaslt_ms", rounded(r.bare_ms, 5)},
       {"ratio", rounded(r.ratio(), 4)}};
  add_alone(j, r.alone, "cublaslt_alone_ms");
}

/// Microseconds that the caller of a program waits.
struct HostRecord {
  std::string program;
  Layout layout;
  double first_us, new_us, seen_us, unfused_us;  // of the process, of a shape, of one that was seen, and unfused
  std::optional<double> split_us = {};           // of one that was seen whose last round of tiles is split
};
inline void to_json(json& j, const HostRecord& r) {
  j = {{"program", r.program},           {"layout", name_of(r.layout)},      {"first_us", rounded(r.first_us, 1)},
       {"new_us", rounded(r.new_us, 2)}, {"seen_us", rounded(r.seen_us, 2)}, {"unfused_us", rounded(r.unfused_us, 2)}};
  if (r.split_us) j["split_us"] = rounded(*r.split_us, 2);
}

struct Layer {
  std::int64_t hidden, ffn, q_heads, kv_heads, head_dim;
  std::int64_t attended() const { return q_heads * head_dim; }
  std::int64_t qkv() const { return (q_heads + 2 * kv_heads) * head_dim; }
};
/// A pass through a layer beside the sum of its bare products.
struct LayerRecord {
  Layer layer;
  std::int64_t tokens;
  const char* pass;
  double ms, products_ms;
  std::int64_t saved, saved_unfused;  // bytes that are held from the forward to the backward pass
  Alone alone = {};
  double ratio() const { return products_ms / ms; }
};
inline void to_json(json& j, const LayerRecord& r) {
  j = {{"hidden", r.layer.hidden},
       {"ffn", r.layer.ffn},
       {"q_heads", r.layer.q_heads},
       {"kv_heads", r.layer.kv_heads},
       {"head_dim", r.layer.head_dim},
       {"tokens", r.tokens},
       {"dtype", "bf16"},
       {"pass", r.pass},
       {"ms", rounded(r.ms, 4)},
       {"gemms_ms", rounded(r.products_ms, 4)},
       {"ratio", rounded(r.ratio(), 4)},
       {"bytes_saved", r.saved},
       {"bytes_saved_unfused", r.saved_unfused}};
  add_alone(j, r.alone, "gemms_alone_ms");
}

/// A small kernel beside a copy of the bytes that it must at least read and write.
struct SmallRecord {
  std::string program;
  std::int64_t m, n, bytes;
  double ms, copy_ms;
  double ratio() const { return copy_ms / ms; }
};
inline void to_json(json& j, const SmallRecord& r) {
  j = {{"program", r.program},
       {"m", r.m},
       {"n", r.n},
       {"bytes", r.bytes},
       {"ms", rounded(r.ms, 5)},
       {"copy_ms", rounded(r.copy_ms, 5)},
       {"ratio", rounded(r.ratio(), 4)}};
}

/// Microseconds that the caller of a plain product waits, of which m = n = k = size.
struct ProductHostRecord {
  std::string call;
  Layout layout;
  std::int64_t size;
  double first_us, seen_us;
};
inline void to_json(json& j, const ProductHostRecord& r) {
  j = {{"call", r.call},
       {"layout", name_of(r.layout)},
       {"m", r.size},
       {"n", r.size},
       {"k", r.size},
       {"first_us", rounded(r.first_us, 2)},
       {"seen_us", rounded(r.seen_us, 2)}};
}

}  // namespace coda::bench
