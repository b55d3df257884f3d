#include "coda/cli/sm90/small.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "coda/backend/sm90/blas.h"
#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/kernels.h"
#include "coda/cli/sm90/baseline.h"
#include "coda/cli/sm90/host_time.h"
#include "coda/ops/ops.h"

namespace coda::bench {
namespace {

using Cases = std::vector<SmallCase>;
constexpr DType kFp32 = DType::fp32, kBf16 = DType::bf16;

// A copy whose two buffers lie badly, as those of 512 MiB each do, is slower by a third: compare with the fastest copy,
// as scripts/render_results.py does. `ratio` is to the one beside it.

void add_casts(Cases& cases) {
  constexpr std::int64_t kRows = 16384, kCols = 8192;
  const auto add = [&](const std::string& name, DType from, DType to, std::int64_t padding = 0) {
    cases.push_back({name, kRows, kCols, kRows * kCols * (size_of(from) + size_of(to)), [=](Buffers& b) -> Launch {
                       Matrix in = b.matrix(kRows, kCols + padding, from),
                              out = b.matrix(kRows, kCols + 2 * padding, to);
                       in.cols = out.cols = kCols;
                       return [=](void* on) { sm90::cast("cast", in, out, 1.f, on); };
                     }});
  };
  for (const auto& [from, to] : {std::pair{kFp32, kBf16}, {kBf16, kFp32}, {kBf16, DType::fp16}})
    add(std::string("cast_") + name_of(from) + "_" + name_of(to), from, to);
  add("cast_fp32_bf16_pitched", kFp32, kBf16, 8);
}

void add_fills(Cases& cases) {
  const auto fill = [&](std::int64_t rows, std::int64_t cols) {
    cases.push_back({"fill", rows, cols, rows * cols * 4, [=](Buffers& b) -> Launch {
                       return [out = b.matrix(rows, cols, kFp32)](void* on) { sm90::fill("fill", out, 1, on); };
                     }});
  };
  constexpr std::int64_t kRows = 16384, kCols = 8192, kBytes = kRows * kCols * 4;
  fill(kRows, kCols);
  cases.push_back({"memset", kRows, kCols, kBytes, [](Buffers& b) -> Launch {
                     return [out = b.matrix(kRows, kCols, kFp32)](void* on) { set_bytes(out.data, 1, kBytes, on); };
                   }});
  fill(1, 1);
}

void add_optimiser(Cases& cases) {
  constexpr std::int64_t kSize = std::int64_t{16384} * 8192;
  cases.push_back({"adamw", kSize, 1, kSize * 28, [](Buffers& b) -> Launch {
                     const sm90::AdamwArgs args{.master = b.vector(kSize, kFp32),
                                                .m = b.vector(kSize, kFp32),
                                                .v = b.vector(kSize, kFp32),
                                                .weight = b.vector(kSize, kBf16),
                                                .gradient = b.vector(kSize, kBf16),
                                                .rate = 1e-3,
                                                .beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .eps = 1e-8,
                                                .squared_norm = b.vector(1, DType::fp64),
                                                .clip_norm = 1};
                     return [=](void* on) { sm90::adamw("adamw", args, on); };
                   }});
  for (const DType t : {kBf16, kFp32})
    cases.push_back(
        {std::string("squared_norm_") + name_of(t), 3 * kSize, 1, 3 * kSize * size_of(t), [=](Buffers& b) -> Launch {
           const Vector x = b.vector(3 * kSize, t), out = b.vector(1, DType::fp64);
           return [=](void* on) { sm90::squared_norm("squared_norm", x, 0, out, on); };
         }});
}

void add_masks(Cases& cases) {
  for (const std::int64_t tokens : {16384, 1 << 24, 3 << 24})
    cases.push_back({"masked_dloss", tokens, 1, tokens * 16, [=](Buffers& b) -> Launch {
                       const Vector dloss = b.vector(tokens, kFp32), target = b.vector(tokens, DType::int64),
                                    out = b.vector(tokens, kFp32);
                       return
                           [=](void* on) { sm90::masked_dloss("masked_dloss", dloss, target, -100, 1 << 17, out, on); };
                     }});
}

void add_row_reductions(Cases& cases) {
  // A step of 16384 tokens, and rows enough to fill the chip.
  for (const std::int64_t m : {16384, 1 << 20, 3 << 20}) {
    constexpr std::int64_t kWidth = 8192, kTiles = sm90::tiles_n(kWidth);
    cases.push_back({"rms_finalize", m, kTiles, m * (kTiles + 1) * 4, [=](Buffers& b) -> Launch {
                       const Matrix x = b.matrix(m, kTiles, kFp32);
                       const Vector rstd = b.vector(m, kFp32);
                       return [=](void* on) { sm90::rms_finalize("rms_finalize", x, kWidth, 1e-5, rstd, on); };
                     }});
    cases.push_back({"layernorm_finalize", m, kTiles, m * (kTiles + 1) * 8, [=](Buffers& b) -> Launch {
                       const Matrix x = b.matrix(m, kTiles, kFp32), y = b.matrix(m, kTiles, kFp32);
                       const Vector mean = b.vector(m, kFp32), rstd = b.vector(m, kFp32);
                       return [=](void* on) {
                         sm90::layernorm_finalize("layernorm_finalize", x, y, kWidth, 1e-5, mean, rstd, on);
                       };
                     }});
    cases.push_back({"sum_rows", m, kTiles, m * (kTiles + 1) * 4, [=](Buffers& b) -> Launch {
                       const Matrix x = b.matrix(m, kTiles, kFp32);
                       const Vector out = b.vector(m, kFp32);
                       return [=](void* on) { sm90::sum_rows("sum_rows", x, 1, out, on); };
                     }});
  }
  for (const std::int64_t m : {2048, 16384, 131072}) {
    constexpr std::int64_t kVocabulary = 128256, kTiles = sm90::tiles_n(kVocabulary);
    cases.push_back({"lse_finalize", m, kTiles, m * (8 * kTiles + 20), [=](Buffers& b) -> Launch {
                       const sm90::LseFinalizeArgs args{.max = b.matrix(m, kTiles, kFp32),
                                                        .sum = b.matrix(m, kTiles, kFp32),
                                                        .target = b.vector(m, DType::int64),
                                                        .target_logit = b.vector(m, kFp32),
                                                        .lse = b.vector(m, kFp32),
                                                        .loss = b.vector(m, kFp32)};
                       return [=](void* on) { sm90::lse_finalize("lse_finalize", args, on); };
                     }});
  }
}

void add_column_reductions(Cases& cases) {
  for (const auto& [rows, cols] :
       {std::pair<std::int64_t, std::int64_t>{128, 4096}, {128, 28672}, {2048, 28672}, {8192, 28672}})
    cases.push_back(
        {"sum_columns", rows, cols, (rows + 1) * cols * 4, [rows = rows, cols = cols](Buffers& b) -> Launch {
           const Matrix x = b.matrix(rows, cols, kFp32);
           const Vector out = b.vector(cols, kFp32);
           return [=](void* on) { sm90::sum_columns("sum_columns", x, 0, out, on); };
         }});
  constexpr std::int64_t kHeads = 64, kDim = 128;
  for (const std::int64_t rows : {128, 2048, 24576})
    cases.push_back({"sum_heads", rows, kHeads * kDim, rows * kHeads * kDim * 4, [=](Buffers& b) -> Launch {
                       const Matrix x = b.matrix(rows, kHeads * kDim, kFp32);
                       const Vector out = b.vector(kDim, kFp32);
                       return [=](void* on) { sm90::sum_heads("sum_heads", x, 0, kHeads, kDim, 0, out, on); };
                     }});
}

/// Programs without a product.
void add_elementwise(Cases& cases) {
  constexpr std::int64_t kTokens = 50000, kDim = 128;
  const ops::Heads heads{.q = 32, .k = 8, .v = 8, .head_dim = kDim};
  const std::int64_t width = (heads.q + heads.k + heads.v) * kDim;
  cases.push_back({"rope_backward", kTokens, width, kTokens * width * 6, [=](Buffers& b) -> Launch {
                     ops::RopeBackward args{.y = b.matrix(kTokens, width, kBf16),
                                            .dy = b.matrix(kTokens, width, kBf16),
                                            .heads = heads,
                                            .dz = b.matrix(kTokens, width, kBf16),
                                            .dot = {.zdz = b.matrix(kTokens, sm90::tiles_n(width), kFp32)}};
                     args.heads.table = b.matrix(kTokens, kDim, kFp32);
                     return [=](void* on) mutable { args.on = {ops::Backend::sm90, on}, ops::rope_backward(args); };
                   }});
  cases.push_back({"qknorm_rope_backward", kTokens, width, kTokens * width * 6, [=](Buffers& b) -> Launch {
                     ops::QkNormRopeBackward args{.preact = b.matrix(kTokens, width, kBf16),
                                                  .dy = b.matrix(kTokens, width, kBf16),
                                                  .heads = heads,
                                                  .q_weight = b.vector(kDim, kBf16),
                                                  .k_weight = b.vector(kDim, kBf16),
                                                  .dz = b.matrix(kTokens, width, kBf16),
                                                  .dweight = b.matrix(sm90::tiles_m(kTokens), width, kFp32),
                                                  .dot = {.zdz = b.matrix(kTokens, sm90::tiles_n(width), kFp32)}};
                     args.heads.table = b.matrix(kTokens, kDim, kFp32);
                     return
                         [=](void* on) mutable { args.on = {ops::Backend::sm90, on}, ops::qknorm_rope_backward(args); };
                   }});
  constexpr std::int64_t kRows = 8192, kVocabulary = 128256;
  cases.push_back({"cross_entropy_backward", kRows, kVocabulary, kRows * kVocabulary * 4, [](Buffers& b) -> Launch {
                     const Matrix logits = b.matrix(kRows, kVocabulary, kBf16);
                     ops::CrossEntropyBackward args{.preact = logits,
                                                    .target = b.vector(kRows, DType::int64),
                                                    .lse = b.vector(kRows, kFp32),
                                                    .dloss = b.vector(kRows, kFp32),
                                                    .dz = logits,
                                                    .dot = {.zdz = b.matrix(kRows, sm90::tiles_n(kVocabulary), kFp32)}};
                     return [=](void* on) mutable {
                       args.on = {ops::Backend::sm90, on}, ops::cross_entropy_backward(args);
                     };
                   }});
}

/// `size` of the values [0, range), none of them twice, in random order.
std::vector<std::int64_t> distinct_tokens(std::int64_t size, std::int64_t range) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(range));
  std::iota(values.begin(), values.end(), 0);
  std::shuffle(values.begin(), values.end(), std::mt19937(1));
  values.resize(static_cast<std::size_t>(size));
  return values;
}
/// Values in [0, range) as words are in a text, the n-th most frequent of which has a share of 1/n (Zipf).
std::vector<std::int64_t> zipf_tokens(std::int64_t size, std::int64_t range) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(size));
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform;
  for (std::int64_t& v : values) v = static_cast<std::int64_t>(std::pow(range, uniform(random)) - 1);
  return values;
}

// The forward pass takes tokens as they come, so a row of the table is counted for each: what repeats mostly has left
// the caches, and where it has not, a ratio is above 1. The backward pass sorts them and is to touch each row once.
void add_embedding(Cases& cases) {
  constexpr std::int64_t kWidth = 4096, kVocabulary = 151936;
  const auto add = [=, &cases](const std::string& suffix, const std::vector<std::int64_t>& tokens) {
    const auto m = static_cast<std::int64_t>(tokens.size());
    const auto distinct = static_cast<std::int64_t>(std::set<std::int64_t>(tokens.begin(), tokens.end()).size());
    cases.push_back({"embedding" + suffix, m, kWidth, m * (2 * kWidth * 2 + 8), [=](Buffers& b) -> Launch {
                       ops::Embedding args{.table = b.matrix(kVocabulary, kWidth, kBf16),
                                           .token = b.vector(tokens),
                                           .x = b.matrix(m, kWidth, kBf16)};
                       return [=](void* on) mutable { args.on = {ops::Backend::sm90, on}, ops::embedding(args); };
                     }});
    cases.push_back({"embedding_backward" + suffix, m, kWidth, m * (kWidth * 2 + 8) + distinct * kWidth * 8,
                     [=](Buffers& b) -> Launch {
                       const Matrix dx = b.matrix(m, kWidth, kBf16), table = b.matrix(kVocabulary, kWidth, kFp32);
                       return [dx, table, token = b.vector(tokens)](void* on) {
                         sm90::embedding_backward("embedding_backward", dx, token, table, on);
                       };
                     }});
  };
  for (const std::int64_t m : {16384, 131072}) {
    add("", distinct_tokens(m, kVocabulary));
    add("_zipf", zipf_tokens(m, kVocabulary));
  }
}

}  // namespace

Matrix Buffers::matrix(std::int64_t rows, std::int64_t cols, DType t) {
  buffers_.emplace_back(static_cast<std::size_t>(rows * cols * size_of(t)));
  buffers_.back().fill(0x3c);
  return {buffers_.back().data(), t, rows, cols};
}
Vector Buffers::vector(const std::vector<std::int64_t>& values) {
  const Vector out = vector(static_cast<std::int64_t>(values.size()), DType::int64);
  buffers_.back().upload(values.data(), values.size() * sizeof(std::int64_t));
  return out;
}

std::vector<SmallCase> small_cases() {
  Cases cases;
  add_casts(cases);
  add_fills(cases);
  add_optimiser(cases);
  add_masks(cases);
  add_row_reductions(cases);
  add_column_reductions(cases);
  add_elementwise(cases);
  add_embedding(cases);
  return cases;
}

SmallRecord measure(const SmallCase& c, const Meter& meter, int rounds) {
  Buffers buffers;
  const Launch launch = c.prepare(buffers);
  const auto half = static_cast<std::size_t>(c.bytes / 2);
  const DeviceBuffer from(half), to(half);
  Candidates candidates;
  candidates.push_back(meter.candidate("copy", [&](void* on) { copy(to.data(), from.data(), half, on); }));
  candidates.push_back(meter.candidate(c.name, launch));
  constexpr double kMs = 20;  // bound by memory, the clock of which stays as it is
  meter.interleave(candidates, rounds, kMs);
  return {c.name, c.m, c.n, c.bytes, candidates[1]->median(), candidates[0]->median()};
}

std::vector<ProductHostRecord> measure_product_host(const Meter& meter, bool very_first) {
  std::vector<ProductHostRecord> records;
  const auto product = [&](const char* name, Layout layout, std::int64_t size) {
    Buffers b;
    const Matrix x = b.matrix(size, size, kBf16), y = b.matrix(size, size, kBf16), out = b.matrix(size, size, kBf16);
    const auto call = [&] { sm90::matmul("matmul", x, y, layout, 1, 0, {}, out, meter.stream()); };
    const double first = host_us(call);
    records.push_back({name, layout, size, first, median_host_us(call)});
  };
  if (very_first) product("matmul, very first", Layout::nt, 128);
  for (const Layout layout : {Layout::nt, Layout::nn, Layout::tn})
    for (const std::int64_t size : {256, 384, 1024}) product("matmul", layout, size);
  return records;
}

}  // namespace coda::bench
