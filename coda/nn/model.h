// A LLaMA-style language model that is trained and run through the programs of CODA.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "coda/nn/blocks.h"
#include "coda/nn/data.h"

namespace coda::nn {

/// What training needs of a model, however it is computed.
class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;
  /// Sum of the losses of all tokens, in nats. Adds the gradients of that sum to `gradients` (fp32, or fp64 for a
  /// model in fp64), whose structure is that of the weights.
  virtual double forward_backward(const Batch& batch, Weights& gradients) = 0;
  /// Sum of the losses of all tokens.
  virtual double loss(const Batch& batch) = 0;
  /// Bytes of activations that the last call of forward_backward read and wrote, and that are held for it.
  virtual std::int64_t bytes_moved() const = 0;
  virtual std::int64_t bytes_held() const = 0;
};

/// The statistics' and the gradients' type of a model whose weights have this one.
constexpr DType gradient_dtype(DType weights) { return weights == DType::fp64 ? DType::fp64 : DType::fp32; }

/// Throws an Error naming the token unless all are in [0, vocab).
void check_tokens(std::span<const std::int32_t> tokens, std::int64_t vocab, const char* what);
/// The same of a batch, whose sizes must agree too.
void check_batch(const Batch& batch, std::int64_t vocab);

/// Position in its sequence of each token of a batch: 0 .. seq-1, `rows` times.
HostTensor positions(std::int64_t rows, std::int64_t seq);
inline ConstVector tokens_of(const std::vector<std::int32_t>& v) {
  return VectorOf<const std::int32_t>(v.data(), static_cast<std::int64_t>(v.size()));
}
/// All elements of a vector of reals, in order, in double.
double sum(const Vector& v);

/// The fused model: blocks of programs. Reads `weights` at each call; both arguments must outlive it. Memory is laid
/// out for the largest batch seen. Weights or gradients that are not those of the model are an Error (check_weights).
class Model : public Network {
 public:
  Model(const ModelConfig& config, const Weights& weights);

  double forward_backward(const Batch& batch, Weights& gradients) override;
  double loss(const Batch& batch) override;
  std::int64_t bytes_moved() const override { return traffic_.bytes(); }
  std::int64_t bytes_held() const override { return held_; }

 private:
  void prepare(const Batch& batch);

  ModelConfig config_;
  Blocks blocks_;
  Activations activations_;
  Traffic traffic_;
  HostTensor memory_, position_;
  std::int64_t rows_ = 0, seq_ = 0, held_ = 0;
};

/// Runs a model on one growing text: a prompt at first, then token by token. The rows of QKV that were computed are
/// the cache.
class Decoder {
 public:
  Decoder(const ModelConfig& config, const Weights& weights, std::int64_t capacity);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  /// Appends tokens and returns the logits of the last one, in the model's type widened to fp32.
  std::span<const float> append(std::span<const std::int32_t> tokens);
  /// Logits of all of `tokens` in a text that begins with them: (tokens, vocab), in the model's type.
  HostTensor all_logits(std::span<const std::int32_t> tokens);

  std::int64_t length() const { return length_; }
  std::int64_t capacity() const { return capacity_; }
  void clear() { length_ = 0; }

 private:
  Activations run(std::span<const std::int32_t> tokens);

  ModelConfig config_;
  Blocks blocks_;
  Activations all_;  // laid out for `capacity` tokens
  HostTensor memory_, tokens_, position_, logits_;
  std::vector<float> last_;
  std::int64_t capacity_, length_ = 0;
};

}  // namespace coda::nn
