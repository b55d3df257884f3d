// A text file as byte tokens, split into training and validation, served in an order that is a function of the seed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace coda::nn {

/// `targets[b, s]` is the token that follows `inputs[b, s]` in the text. Both are row-major (rows, seq).
struct Batch {
  std::int64_t rows = 0;
  std::int64_t seq = 0;
  std::vector<std::int32_t> inputs, targets;
};

struct DataOptions {
  std::int64_t batch = 8;
  std::int64_t seq = 256;
  double validation = 0.1;  // part of the text, taken from its end; 0 for none
  std::uint64_t seed = 1;

  /// Throws an Error naming the number that no text can go with.
  void check() const;
};

class TextData {
 public:
  /// Reads `path`; the tokens are its bytes. Throws when the file is missing, empty, or too short for a sequence of
  /// each part.
  TextData(const std::filesystem::path& path, const DataOptions& options);
  TextData(std::vector<std::uint8_t> text, const DataOptions& options);

  std::span<const std::uint8_t> train() const { return {text_.data(), static_cast<std::size_t>(split_)}; }
  std::span<const std::uint8_t> validation() const {
    return std::span(text_).subspan(static_cast<std::size_t>(split_));
  }
  const DataOptions& options() const { return options_; }

  /// Training batch number `step` (0-based), always full. Nothing is remembered between calls: a resumed run sees
  /// exactly what an uninterrupted one sees. Within an epoch each window of the text comes once, in a random order.
  Batch next_batch(std::int64_t step) const;

  /// The validation text in order, each window once; the last batch may have fewer rows.
  std::int64_t validation_batches() const;
  Batch validation_batch(std::int64_t index) const;

 private:
  void check(const std::string& what);
  Batch gather(std::span<const std::uint8_t> part, std::span<const std::int64_t> starts) const;

  std::vector<std::uint8_t> text_;
  DataOptions options_;
  std::int64_t split_ = 0;
};

/// Element `index` of a pseudo-random permutation of 0 .. size-1 chosen by (seed, epoch); no table is kept. `index` is
/// one of them.
std::int64_t permuted_index(std::int64_t index, std::int64_t size, std::uint64_t seed, std::uint64_t epoch);

}  // namespace coda::nn
