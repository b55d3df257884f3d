#include "coda/cli/sm90/layer.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "coda/backend/sm90/device.h"
#include "coda/backend/sm90/kernels.h"
#include "coda/cli/sm90/baseline.h"
#include "coda/ops/layer.h"

namespace coda::bench {
namespace {

constexpr std::int64_t kSequence = 8192;

/// A layer's tensors on the device, and both of its calls.
class LayerArguments {
 public:
  LayerArguments(const LayerCase& c, const Meter& meter) : meter_(meter) {
    const Layer& l = c.layer;
    const std::int64_t m = c.tokens, h = l.hidden, f = l.ffn, q = l.attended(), w = l.qkv();
    ops::Block& x = forward;
    x.attended = noisy(m, q), x.x = noisy(m, h);
    x.weights = {.out = weight(h, q), .post_norm = norm(h), .gate_up = weight(2 * f, h), .down = weight(h, f)};
    x.next = {.input_norm = norm(h), .qkv = weight(w, h)};
    x.heads = {.q = l.q_heads, .k = l.kv_heads, .v = l.kv_heads, .head_dim = l.head_dim};
    x.heads.table = rotary(l.head_dim);
    x.heads.position = positions(m);
    x.x_mid = matrix(m, h), x.rstd_mid = vector(m);
    x.preact = matrix(m, 2 * f);
    x.x_next = matrix(m, h), x.rstd_next = vector(m);
    x.qkv = matrix(m, w);

    // Nothing in place: every replay has the same numbers.
    backward = {
        .attended = x.attended,
        .x_mid = x.x_mid,
        .rstd_mid = x.rstd_mid,
        .preact = x.preact,
        .x_next = x.x_next,
        .rstd_next = x.rstd_next,
        .qkv = x.qkv,
        .dqkv = noisy(m, w),
        .dx_next = noisy(m, h),
        .weights = x.weights,
        .next = x.next,
        .heads = x.heads,
        .gradients = {.out = matrix(h, q), .post_norm = vector(h), .gate_up = matrix(2 * f, h), .down = matrix(h, f)},
        .next_gradients = {.input_norm = vector(h), .qkv = matrix(w, h)},
        .beta = 0,
        .dz = matrix(m, w),
        .dpreact = matrix(m, 2 * f),
        .dx = matrix(m, h),
        .dattended = matrix(m, q)};
    shape = {.tokens = m, .hidden = h, .ffn = f, .heads = x.heads, .backend = ops::Backend::sm90};
    const auto bytes = static_cast<std::size_t>(
        std::max(ops::block_workspace_bytes(shape), ops::block_backward_workspace_bytes(shape)));
    memory_.emplace_back(bytes);
    forward.workspace = backward.workspace = {static_cast<std::byte*>(memory_.back().data()), bytes};
    sm90::synchronize();
  }

  Matrix matrix(std::int64_t rows, std::int64_t cols, DType t = DType::bf16) {
    memory_.emplace_back(static_cast<std::size_t>(rows * cols * size_of(t)));
    memory_.back().fill(0);
    return {memory_.back().data(), t, rows, cols};
  }

  ops::Block forward;
  ops::BlockBackward backward;
  ops::LayerShape shape;

 private:
  Vector vector(std::int64_t size) { return {matrix(1, size, DType::fp32).data, DType::fp32, size}; }
  Matrix noisy(std::int64_t rows, std::int64_t cols) {
    memory_.push_back(meter_.noise().buffer(rows * cols));
    return {memory_.back().data(), DType::bf16, rows, cols};
  }
  /// Of a size that keeps the outputs at that of the inputs.
  Matrix weight(std::int64_t out, std::int64_t in) {
    const Matrix w = noisy(out, in);
    sm90::cast("bench", w, w, static_cast<float>(1 / std::sqrt(static_cast<double>(in))), meter_.stream());
    return w;
  }
  Vector norm(std::int64_t size) { return {noisy(1, size).data, DType::bf16, size}; }
  Matrix rotary(std::int64_t head_dim) {
    std::vector<float> angles(static_cast<std::size_t>(kSequence * head_dim));
    ops::rotary_table(MatrixOf<float>(angles.data(), kSequence, head_dim), 500000);
    const Matrix table = matrix(kSequence, head_dim, DType::fp32);
    memory_.back().upload(angles.data(), angles.size() * sizeof(float));
    return table;
  }
  ConstVector positions(std::int64_t tokens) {
    std::vector<std::int32_t> position(static_cast<std::size_t>(tokens));
    for (std::size_t i = 0; i < position.size(); ++i) position[i] = static_cast<std::int32_t>(i % kSequence);
    const Matrix x = matrix(1, tokens, DType::int32);
    memory_.back().upload(position.data(), position.size() * sizeof(std::int32_t));
    return {x.data, DType::int32, tokens};
  }

  const Meter& meter_;
  std::vector<DeviceBuffer> memory_;
};

/// Products one after the other, each with the first choice of cuBLASLt's heuristic.
class Products {
 public:
  void add(const ConstMatrix& a, const ConstMatrix& b, Layout layout, const Matrix& out) {
    all_.push_back(std::make_unique<CublasLt>(a, b, layout, out));
  }
  void run(void* stream) const {
    for (const auto& product : all_) product->run(stream);
  }

 private:
  std::vector<std::unique_ptr<CublasLt>> all_;
};

}  // namespace

const std::vector<LayerCase>& layer_cases() {
  static const std::vector<LayerCase> all = [] {
    constexpr Layer kSmall{2048, 8192, 32, 8, 64}, kMiddle{4096, 14336, 32, 8, 128}, kLarge{8192, 28672, 64, 8, 128};
    std::vector<LayerCase> cases;
    for (const Layer& l : {kSmall, kMiddle, kLarge}) cases.push_back({l, 2 * kSequence});
    for (const std::int64_t tokens : {1, 16, 64, 256, 1024}) cases.push_back({kMiddle, tokens});
    return cases;
  }();
  return all;
}

std::vector<LayerRecord> measure(const LayerCase& c, const Meter& meter, int rounds) {
  LayerArguments x(c, meter);
  const Layer& l = c.layer;
  const std::int64_t tokens = c.tokens;
  const ops::Block& f = x.forward;
  const ops::BlockBackward& b = x.backward;
  // Operands of the products: any numbers of their shape, but like the layer's. Each has an output of its own, as in a
  // layer.
  const Matrix h = f.x_mid, y(f.preact.data, DType::bf16, tokens, l.ffn);
  Products forward, backward;
  const auto forward_of = [&](const ConstMatrix& in, const ConstMatrix& weight) {
    forward.add(in, weight, Layout::nt, x.matrix(tokens, weight.rows));
  };
  forward_of(f.attended, f.weights.out);
  forward_of(h, f.weights.gate_up);
  forward_of(y, f.weights.down);
  forward_of(h, f.next.qkv);
  const auto backward_of = [&](const ConstMatrix& dy, const ConstMatrix& in, const ConstMatrix& weight) {
    backward.add(dy, weight, Layout::nn, x.matrix(tokens, weight.cols));
    backward.add(dy, in, Layout::tn, x.matrix(dy.cols, in.cols));
  };
  backward_of(b.dz, h, b.next.qkv);
  backward_of(b.dx, y, b.weights.down);
  backward_of(b.dpreact, h, b.weights.gate_up);
  backward_of(b.dx, b.attended, b.weights.out);

  const auto on = [](auto args, void* stream) {
    args.on = {ops::Backend::sm90, stream};
    return args;
  };
  Candidates candidates;
  const auto add = [&](const char* name, const Launch& launch) { candidates.push_back(meter.candidate(name, launch)); };
  add("forward", [&](void* s) { ops::block(on(f, s)); });
  add("forward products", [&](void* s) { forward.run(s); });
  add("backward", [&](void* s) { ops::block_backward(on(b, s)); });
  add("backward products", [&](void* s) { backward.run(s); });
  meter.interleave(candidates, rounds, kWarmUpMs);
  const std::int64_t saved = ops::block_saved_bytes(x.shape), unfused = ops::block_saved_bytes_unfused(x.shape);
  const auto ms = [&](std::size_t i) { return candidates[i]->median(); };
  std::vector<LayerRecord> records{{l, tokens, "forward", ms(0), ms(1), saved, unfused},
                                   {l, tokens, "backward", ms(2), ms(3), saved, unfused}};
  if (ms(0) >= kLongMs) {
    meter.each_alone(candidates);
    records[0].alone = {ms(0), ms(1)}, records[1].alone = {ms(2), ms(3)};
  }
  return records;
}

}  // namespace coda::bench
