#include "coda/ops/layer_memory.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace coda::ops {
namespace {

/// What the call itself would refuse is refused here, too; `projects`: whether it makes heads.
LayerShape checked(const char* operation, const LayerShape& s, bool projects = true) {
  const Check check(operation, {});
  check_backend(check, "backend", s.backend);
  check_sizes(check, s);
  if (s.hidden < 1) check.fail("hidden", "expected at least 1 column, got {}", s.hidden);
  if (projects) check_head_dim(check, "heads.head_dim", s.heads.head_dim);
  return s;
}

/// Bytes of one layout after the other in the same memory.
template <class... Layouts>
std::int64_t bytes_of(const LayerShape& s) {
  const auto measure = [&]<class Layout>(std::type_identity<Layout>) {
    Arena arena;
    Layout(arena, s);
    return arena.bytes();
  };
  return std::max({measure(std::type_identity<Layouts>{})...});
}

LayerShape without_ffn(LayerShape s) {
  s.ffn = 0;
  return s;
}
LayerShape without_qkv(LayerShape s) {
  s.heads = {};
  return s;
}

std::int64_t held_logit_rows(const LayerShape& s) {
  constexpr std::int64_t kTile = 256;
  // Each block of rows reads and writes the whole gradient of the head.
  const std::int64_t bytes = std::int64_t{s.backend == Backend::sm90 ? 2048 : 512} << 20;
  const std::int64_t row = std::max<std::int64_t>(s.vocabulary * size_of(s.dtype), 1);
  const std::int64_t rows = s.logit_rows > 0 ? s.logit_rows : std::max<std::int64_t>(bytes / row / kTile, 1) * kTile;
  return std::min(rows, s.tokens);
}

}  // namespace

void check_sizes(const Check& check, const LayerShape& s) {
  check.real("dtype", s.dtype);
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"tokens", s.tokens},        {"hidden", s.hidden},   {"ffn", s.ffn},         {"vocabulary", s.vocabulary},
      {"heads.q", s.heads.q},      {"heads.k", s.heads.k}, {"heads.v", s.heads.v}, {"heads.head_dim", s.heads.head_dim},
      {"logit_rows", s.logit_rows}};
  for (const auto& [name, size] : sizes)
    if (size < 0) check.fail(name, "expected a size of at least 0, got {}", size);
  // In floating point, which does not overflow: more than any memory holds, and 2^63 bytes are far.
  const auto real = [](std::int64_t x) { return static_cast<double>(x); };
  const double heads = (real(s.heads.q) + real(s.heads.k) + real(s.heads.v)) * real(s.heads.head_dim);
  const double columns = real(s.hidden) + 2 * real(s.ffn) + real(s.vocabulary) + heads;
  constexpr double kMostElements = 0x1p55;
  if (std::max(real(s.tokens), 1.0) * std::max(columns, 1.0) > kMostElements) {
    check.fail("tokens", "expected at most 2^55 elements in a layer's rows, got {} rows of {:.0f} columns", s.tokens,
               columns);
  }
}

FeedForwardMemory::FeedForwardMemory(Arena& arena, const LayerShape& s)
    : y(arena.matrix(s.dtype, s.tokens, s.ffn)),
      partial(arena.matrix(stats_of(s.dtype), s.tokens, tiles_n(s.hidden, s.backend))) {}

ForwardMemory::ForwardMemory(Arena& arena, const LayerShape& s)
    : FeedForwardMemory(arena, s), h(arena.matrix(s.dtype, s.tokens, s.hidden)) {}

LossMemory::LossMemory(Arena& arena, const LayerShape& s) {
  const DType stats = stats_of(s.dtype);
  const std::int64_t tiles = tiles_n(s.vocabulary, s.backend);
  max = arena.matrix(stats, s.tokens, tiles);
  sum = arena.matrix(stats, s.tokens, tiles);
  if (s.label_smoothing) logit_sum = arena.matrix(stats, s.tokens, tiles);
  target_logit = arena.vector(stats, s.tokens);
}

BackwardMemory::BackwardMemory(Arena& arena, const LayerShape& s) {
  const DType stats = stats_of(s.dtype);
  const std::int64_t width = qkv_width(s.heads);
  std::int64_t tiles = tiles_n(s.ffn, s.backend);
  if (width > 0) {
    tiles = std::max(tiles, s.qk_norm ? head_tiles_n(width, s.heads.head_dim, s.backend) : tiles_n(width, s.backend));
  }
  h = arena.matrix(s.dtype, s.tokens, s.hidden);
  y = arena.matrix(s.dtype, s.tokens, s.ffn);
  partial = arena.vector(stats, s.tokens * tiles);
  row_term = arena.vector(stats, s.tokens);
  dweight = arena.vector(stats, tiles_m(s.tokens, s.backend) * std::max(s.hidden, s.qk_norm ? width : 0));
}

HeadMemory::HeadMemory(Arena& arena, const LayerShape& s) : rows(held_logit_rows(s)) {
  const DType stats = stats_of(s.dtype);
  const std::int64_t tiles = tiles_n(s.vocabulary, s.backend);
  logits = arena.matrix(s.dtype, rows, s.vocabulary);
  max = arena.matrix(stats, rows, tiles);
  sum = arena.matrix(stats, rows, tiles);
  if (s.label_smoothing) logit_sum = arena.matrix(stats, rows, tiles);
  target_logit = arena.vector(stats, rows);
  row_term = arena.vector(stats, rows);
  dweight = arena.matrix(stats, tiles_m(rows, s.backend), s.hidden);
}

Scratch::Scratch(const Check& check, const Target& on, std::span<std::byte> given, std::int64_t bytes) {
  if (!given.empty()) {
    data_ = given.data();
  } else if (on.backend == Backend::sm90) {
    device_ = sm90::Workspace(static_cast<std::size_t>(bytes), on.stream, check.operation());
    data_ = device_.as<std::byte>();
  } else {
    host_ = cpu::allocate(static_cast<std::size_t>(bytes));
    if (!host_) check.fail(Status::device_error, "workspace", "expected {} bytes of memory, got none", bytes);
    data_ = host_.get();
  }
}

std::int64_t block_pre_workspace_bytes(const LayerShape& s) {
  return bytes_of<ForwardMemory>(without_ffn(checked("block_pre_workspace_bytes", s)));
}
std::int64_t block_workspace_bytes(const LayerShape& s) {
  return bytes_of<ForwardMemory>(checked("block_workspace_bytes", s));
}
std::int64_t block_post_workspace_bytes(const LayerShape& s) {
  return bytes_of<FeedForwardMemory, LossMemory>(checked("block_post_workspace_bytes", s, false));
}
std::int64_t block_pre_backward_workspace_bytes(const LayerShape& s) {
  return bytes_of<BackwardMemory>(without_ffn(checked("block_pre_backward_workspace_bytes", s)));
}
std::int64_t block_backward_workspace_bytes(const LayerShape& s) {
  return bytes_of<BackwardMemory>(checked("block_backward_workspace_bytes", s));
}
std::int64_t block_post_backward_workspace_bytes(const LayerShape& s) {
  return bytes_of<BackwardMemory, HeadMemory>(without_qkv(checked("block_post_backward_workspace_bytes", s, false)));
}

std::int64_t block_saved_bytes(const LayerShape& s) {
  checked("block_saved_bytes", s);
  const std::int64_t width = qkv_width(s.heads), attended = s.heads.q * s.heads.head_dim;
  const std::int64_t columns = attended + 2 * s.hidden + 2 * s.ffn + width * (s.qk_norm ? 2 : 1);
  return s.tokens * (columns * size_of(s.dtype) + 2 * size_of(stats_of(s.dtype)));
}
std::int64_t block_saved_bytes_unfused(const LayerShape& s) {
  checked("block_saved_bytes_unfused", s);
  return block_saved_bytes(s) + s.tokens * (2 * s.hidden + s.ffn) * size_of(s.dtype);
}

}  // namespace coda::ops
