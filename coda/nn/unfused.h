// The same model without programs: plain products to memory (the same backend's), and between them one separate pass
// for each scale, norm, rotation, activation, residual and loss, and for each of their textbook backwards. It is what
// the fused model is compared with: in its losses, its time and the bytes that it moves.
#pragma once

#include <vector>

#include "coda/core/arena.h"
#include "coda/nn/model.h"

namespace coda::nn {

class UnfusedModel : public Network {
 public:
  UnfusedModel(const ModelConfig& config, const Weights& weights);

  double forward_backward(const Batch& batch, Weights& gradients) override;
  double loss(const Batch& batch) override;
  std::int64_t bytes_moved() const override { return traffic_.bytes(); }
  std::int64_t bytes_held() const override { return held_; }

 private:
  /// What autograd would keep of a layer.
  struct Layer {
    Matrix x, normed;      // (M, H)
    Vector rstd;           // (M)
    Matrix qkv_preact;     // (M, QKV), with qk_norm only
    Matrix qkv, attended;  // (M, QKV), (M, Q)
    Matrix lse;            // (M, heads)
    Matrix x_mid, normed_mid;
    Vector rstd_mid;
    Matrix gate_up, y;  // (M, 2F), (M, F)
  };

  void prepare(const Batch& batch);
  void lay_out(Arena& arena);
  void forward(const Batch& batch);
  void layer_forward(std::size_t index);
  void layer_backward(std::size_t index, Weights& gradients);

  void linear(const ConstMatrix& in, const HostTensor& weight, const Matrix& out);
  void linear_backward(const ConstMatrix& in, const HostTensor& weight, const ConstMatrix& dout, const Matrix& din,
                       HostTensor& gradient);
  void norm(const Matrix& x, const HostTensor& weight, const Matrix& out, const Vector& rstd);
  void norm_backward(const Matrix& x, const HostTensor& weight, const Vector& rstd, const Matrix& dout,
                     const Matrix& dx, HostTensor& gradient);
  void add(const Matrix& a, const Matrix& b, const Matrix& out);
  ops::Heads heads() const;

  ModelConfig config_;
  const Weights& weights_;
  std::vector<Layer> layers_;
  Matrix x_, normed_, logits_, rotary_;
  Vector rstd_, lse_, loss_, dweight_;
  Matrix projected_, dx_, dnormed_, dattended_, dqkv_, dy_, dgate_up_;  // shared by all layers
  Traffic traffic_;
  HostTensor memory_, position_;
  std::int64_t batch_ = 0, seq_ = 0, held_ = 0;
};

}  // namespace coda::nn
