#include "coda/nn/data.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "coda/core/error.h"
#include "coda/core/file.h"
#include "coda/nn/rng.h"

namespace coda::nn {
namespace {

std::int64_t windows_in(std::int64_t tokens, std::int64_t seq) { return (tokens - 1) / seq; }

std::vector<std::uint8_t> read_bytes(const std::filesystem::path& path) {
  const InputFile file(path);
  std::vector<std::uint8_t> text(file.size());
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

std::int64_t permuted_index(std::int64_t index, std::int64_t size, std::uint64_t seed, std::uint64_t epoch) {
  // A Feistel network permutes 0 .. 4^half - 1 >= size; walking its cycle until below `size` permutes 0 .. size-1.
  const int half = (std::bit_width(static_cast<std::uint64_t>(size - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half) - 1;
  const Rng round_function(seed, streams::data_order + epoch);
  auto value = static_cast<std::uint64_t>(index);
  do {
    std::uint64_t left = value >> half, right = value & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t mixed = left ^ (round_function.bits(round << 32 | right) & mask);
      left = std::exchange(right, mixed);
    }
    value = left << half | right;
  } while (value >= static_cast<std::uint64_t>(size));
  return static_cast<std::int64_t>(value);
}

TextData::TextData(const std::filesystem::path& path, const DataOptions& options)
    : text_(read_bytes(path)), options_(options) {
  check(path.string());
}

TextData::TextData(std::vector<std::uint8_t> text, const DataOptions& options)
    : text_(std::move(text)), options_(options) {
  check("text");
}

namespace {
void require(bool ok, const char* argument, const std::string& expected, auto got) {
  if (ok) return;
  throw Error(Status::invalid_argument, fmt::format("data: {}: expected {}, got {}", argument, expected, got));
}
}  // namespace

void DataOptions::check() const {
  constexpr std::int64_t limit = 1 << 30;
  require(batch >= 1 && batch <= limit, "batch", "a number from 1 to 2^30", batch);
  require(seq >= 1 && seq <= limit, "seq", "a number from 1 to 2^30", seq);
  require(validation >= 0 && validation < 1, "validation", "a part from 0 to below 1", validation);
}

void TextData::check(const std::string& what) {
  options_.check();
  const auto size = static_cast<std::int64_t>(text_.size());
  require(size > 0, what.c_str(), "some text", "an empty file");
  const auto held_out = static_cast<std::int64_t>(std::ceil(static_cast<double>(size) * options_.validation));
  split_ = size - held_out;
  const std::int64_t needed = options_.seq + 1;  // a sequence and the token after it
  const auto least = fmt::format("at least {} bytes (a sequence of {} and the next one)", needed, options_.seq);
  const auto of_all = [&](std::int64_t part) {
    return fmt::format("{} of {}: {} of the text is held out to validate on", part, size, options_.validation);
  };
  require(split_ >= needed, what.c_str(), least + " to train on", of_all(split_));
  require(held_out == 0 || held_out >= needed, what.c_str(), least + " to validate on, or none", of_all(held_out));
}

Batch TextData::gather(std::span<const std::uint8_t> part, std::span<const std::int64_t> starts) const {
  Batch batch{static_cast<std::int64_t>(starts.size()), options_.seq, {}, {}};
  batch.inputs.reserve(starts.size() * static_cast<std::size_t>(options_.seq));
  batch.targets.reserve(batch.inputs.capacity());
  for (const std::int64_t start : starts) {
    const std::uint8_t* text = part.data() + start;
    batch.inputs.insert(batch.inputs.end(), text, text + options_.seq);
    batch.targets.insert(batch.targets.end(), text + 1, text + 1 + options_.seq);
  }
  return batch;
}

Batch TextData::next_batch(std::int64_t step) const {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / options_.batch - 1;
  if (step < 0 || step > most) {
    throw Error(Status::invalid_argument, fmt::format("data: step: expected 0 to {}, got {}", most, step));
  }
  // One window less than fit leaves room to shift all of them by a phase that differs from epoch to epoch.
  const std::int64_t windows = std::max<std::int64_t>(1, windows_in(split_, options_.seq) - 1);
  const std::int64_t phases = split_ - windows * options_.seq;
  std::vector<std::int64_t> starts(static_cast<std::size_t>(options_.batch));
  for (std::int64_t row = 0; row < options_.batch; ++row) {
    const std::int64_t index = step * options_.batch + row;
    const auto epoch = static_cast<std::uint64_t>(index / windows);
    const auto phase = Rng(options_.seed, streams::data_phase).below(static_cast<std::uint64_t>(phases), epoch);
    starts[static_cast<std::size_t>(row)] =
        permuted_index(index % windows, windows, options_.seed, epoch) * options_.seq +
        static_cast<std::int64_t>(phase);
  }
  return gather(train(), starts);
}

std::int64_t TextData::validation_batches() const {
  const auto size = static_cast<std::int64_t>(validation().size());
  return size == 0 ? 0 : (windows_in(size, options_.seq) + options_.batch - 1) / options_.batch;
}

Batch TextData::validation_batch(std::int64_t index) const {
  if (index < 0 || index >= validation_batches()) {
    throw Error(Status::invalid_argument,
                fmt::format("data: validation batch: expected 0 to below {}, got {}", validation_batches(), index));
  }
  const std::int64_t windows = windows_in(static_cast<std::int64_t>(validation().size()), options_.seq);
  std::vector<std::int64_t> starts;
  for (std::int64_t w = index * options_.batch; w < std::min(windows, (index + 1) * options_.batch); ++w) {
    starts.push_back(w * options_.seq);
  }
  return gather(validation(), starts);
}

}  // namespace coda::nn
