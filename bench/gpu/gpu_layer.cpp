// Speed of a whole layer on Hopper, forward (`ops::block`) and backward (`ops::block_backward`), against the sum of its
// bare products by cuBLASLt, for a batch of two sequences of 8192 tokens.
//
// Candidates are CUDA graphs: fill a buffer larger than the L2 cache, then a call of the layer, or all of its products
// one after the other (4 forward; 4 input and 4 weight gradients backward), between two event records. They are
// replayed in turn, since the chip's clock follows its power: only figures of one run compare. Reported are medians,
// and ratio = gemms_ms / ms. Gradients of weights are bf16 and written, as the products' outputs are; --add measures
// their accumulation in fp32 instead, which reads and writes 8 bytes of each.
//
// bytes_saved is what a layer holds from its forward to its backward (ops::block_saved_bytes), bytes_saved_unfused what
// separate passes hold that keep the inputs of each (ops::block_saved_bytes_unfused): with both norms' outputs and the
// activation's, but nothing that a fused activation would compute again.
//
// usage: gpu_layer [--add] [--out FILE] [--rounds N] [--commit ID] [--driver VERSION] [--date DATE]
//                  [HIDDEN,FFN,Q_HEADS,KV_HEADS,HEAD_DIM ...]
#include <cmath>
#include <cstdlib>
#include <memory>
#include <span>

#include "bench/gpu/cublaslt.h"
#include "bench/gpu/timing.h"
#include "coda/backend/sm90/kernels.h"
#include "coda/ops/layer.h"

namespace coda::bench {
namespace {

constexpr std::int64_t kSequence = 8192, kTokens = 2 * kSequence;

struct Layer {
  std::int64_t hidden, ffn, q_heads, kv_heads, head_dim;
  std::int64_t attended() const { return q_heads * head_dim; }
  std::int64_t qkv() const { return (q_heads + 2 * kv_heads) * head_dim; }
};
// LLaMA-3 1B, 8B and 70B.
constexpr Layer kLayers[] = {{2048, 8192, 32, 8, 64}, {4096, 14336, 32, 8, 128}, {8192, 28672, 64, 8, 128}};

struct Record {
  Layer layer;
  const char* pass;
  double ms, gemms_ms;
  std::int64_t saved, saved_unfused;
};

/// A layer's tensors on the device, and both of its calls.
class Arguments {
 public:
  Arguments(const Layer& l, const Noise& noise, bool add, cudaStream_t stream) : noise_(noise), stream_(stream) {
    const std::int64_t h = l.hidden, f = l.ffn, q = l.attended(), w = l.qkv();
    ops::Block& x = forward;
    x.attended = noisy(kTokens, q), x.x = noisy(kTokens, h);
    x.weights = {.out = weight(h, q), .post_norm = norm(h), .gate_up = weight(2 * f, h), .down = weight(h, f)};
    x.next = {.input_norm = norm(h), .qkv = weight(w, h)};
    x.heads = {.q = l.q_heads, .k = l.kv_heads, .v = l.kv_heads, .head_dim = l.head_dim};
    x.heads.table = rotary(l.head_dim);
    x.heads.position = positions();
    x.x_mid = matrix(kTokens, h), x.rstd_mid = vector(kTokens);
    x.preact = matrix(kTokens, 2 * f);
    x.x_next = matrix(kTokens, h), x.rstd_next = vector(kTokens);
    x.qkv = matrix(kTokens, w);

    // Nothing in place: every replay has the same numbers.
    const DType t = add ? DType::fp32 : DType::bf16;
    backward = {.attended = x.attended,
                .x_mid = x.x_mid,
                .rstd_mid = x.rstd_mid,
                .preact = x.preact,
                .x_next = x.x_next,
                .rstd_next = x.rstd_next,
                .qkv = x.qkv,
                .dqkv = noisy(kTokens, w),
                .dx_next = noisy(kTokens, h),
                .weights = x.weights,
                .next = x.next,
                .heads = x.heads,
                .gradients = {.out = matrix(h, q, t),
                              .post_norm = vector(h),
                              .gate_up = matrix(2 * f, h, t),
                              .down = matrix(h, f, t)},
                .next_gradients = {.input_norm = vector(h), .qkv = matrix(w, h, t)},
                .beta = add ? 1.0 : 0.0,
                .dz = matrix(kTokens, w),
                .dpreact = matrix(kTokens, 2 * f),
                .dx = matrix(kTokens, h),
                .dattended = matrix(kTokens, q)};
    shape = {.tokens = kTokens, .hidden = h, .ffn = f, .heads = x.heads, .backend = ops::Backend::sm90};
    const auto bytes = static_cast<std::size_t>(
        std::max(ops::block_workspace_bytes(shape), ops::block_backward_workspace_bytes(shape)));
    memory_.emplace_back(bytes);
    forward.workspace = backward.workspace = {static_cast<std::byte*>(memory_.back().data()), bytes};
    CHECK(cudaStreamSynchronize(stream_));
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
    memory_.push_back(noise_.buffer(rows * cols));
    return {memory_.back().data(), DType::bf16, rows, cols};
  }
  /// Of a size that keeps the outputs at that of the inputs.
  Matrix weight(std::int64_t out, std::int64_t in) {
    const Matrix w = noisy(out, in);
    sm90::cast("gpu_layer", w, w, static_cast<float>(1 / std::sqrt(static_cast<double>(in))), stream_);
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
  ConstVector positions() {
    std::vector<std::int32_t> position(static_cast<std::size_t>(kTokens));
    for (std::size_t i = 0; i < position.size(); ++i) position[i] = static_cast<std::int32_t>(i % kSequence);
    const Matrix x = matrix(1, kTokens, DType::int32);
    memory_.back().upload(position.data(), position.size() * sizeof(std::int32_t));
    return {x.data, DType::int32, kTokens};
  }

  const Noise& noise_;
  cudaStream_t stream_;
  std::vector<DeviceBuffer> memory_;
};

/// Products one after the other, each with its own best algorithm.
class Products {
 public:
  void add(const ConstMatrix& a, const ConstMatrix& b, Layout layout, const Matrix& memory) {
    const Matrix out(memory.data, DType::bf16, layout == Layout::tn ? a.cols : a.rows,
                     layout == Layout::nt ? b.rows : b.cols);
    all_.push_back(std::make_unique<CublasLt>(a, b, layout, out));
  }
  void run(cudaStream_t stream) const {
    for (const auto& product : all_) product->run(stream);
  }

 private:
  std::vector<std::unique_ptr<CublasLt>> all_;
};

std::vector<Record> measure(const Layer& l, bool add, int rounds, const Noise& noise, const DeviceBuffer& flush,
                            cudaStream_t stream) {
  Arguments x(l, noise, add, stream);
  const ops::Block& f = x.forward;
  const ops::BlockBackward& b = x.backward;
  // Operands of the products: any numbers of their shape, but like the layer's. Outputs all go to one place.
  const Matrix out = x.matrix(std::max(kTokens, l.hidden), 2 * std::max(l.ffn, l.hidden));
  const Matrix h = f.x_mid, y(f.preact.data, DType::bf16, kTokens, l.ffn);
  Products forward, backward;
  forward.add(f.attended, f.weights.out, Layout::nt, out);
  forward.add(h, f.weights.gate_up, Layout::nt, out);
  forward.add(y, f.weights.down, Layout::nt, out);
  forward.add(h, f.next.qkv, Layout::nt, out);
  const auto backward_of = [&](const ConstMatrix& dy, const ConstMatrix& in, const ConstMatrix& weight) {
    backward.add(dy, weight, Layout::nn, out);
    backward.add(dy, in, Layout::tn, out);
  };
  backward_of(b.dz, h, b.next.qkv);
  backward_of(b.dx, y, b.weights.down);
  backward_of(b.dpreact, h, b.weights.gate_up);
  backward_of(b.dx, b.attended, b.weights.out);

  std::vector<std::unique_ptr<Candidate>> candidates;
  const auto candidate = [&](const char* name, const std::function<void(cudaStream_t)>& launch) {
    candidates.push_back(std::make_unique<Candidate>(name, launch, flush, stream));
  };
  const auto on = [](auto args, cudaStream_t s) {
    args.on = {ops::Backend::sm90, s};
    return args;
  };
  candidate("forward", [&](cudaStream_t s) { ops::block(on(f, s)); });
  candidate("forward products", [&](cudaStream_t s) { forward.run(s); });
  candidate("backward", [&](cudaStream_t s) { ops::block_backward(on(b, s)); });
  candidate("backward products", [&](cudaStream_t s) { backward.run(s); });
  interleave(candidates, stream, rounds);
  const std::int64_t saved = ops::block_saved_bytes(x.shape), unfused = ops::block_saved_bytes_unfused(x.shape);
  return {{l, "forward", candidates[0]->median(), candidates[1]->median(), saved, unfused},
          {l, "backward", candidates[2]->median(), candidates[3]->median(), saved, unfused}};
}

void write_record(std::FILE* f, const Record& r) {
  std::fprintf(f,
               "\"hidden\": %lld, \"ffn\": %lld, \"q_heads\": %lld, \"kv_heads\": %lld, \"head_dim\": %lld, "
               "\"tokens\": %lld, \"dtype\": \"bf16\", \"pass\": \"%s\", \"ms\": %.4f, \"gemms_ms\": %.4f, "
               "\"ratio\": %.4f, \"bytes_saved\": %lld, \"bytes_saved_unfused\": %lld",
               static_cast<long long>(r.layer.hidden), static_cast<long long>(r.layer.ffn),
               static_cast<long long>(r.layer.q_heads), static_cast<long long>(r.layer.kv_heads),
               static_cast<long long>(r.layer.head_dim), static_cast<long long>(kTokens), r.pass, r.ms, r.gemms_ms,
               r.gemms_ms / r.ms, static_cast<long long>(r.saved), static_cast<long long>(r.saved_unfused));
}

struct Settings {
  std::string out;
  Provenance from;
  bool add = false;
  int rounds = 20;
  std::vector<Layer> layers;
};
Settings parse(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) throw std::runtime_error(arg + ": expected a value");
      return argv[++i];
    };
    if (arg == "--add") s.add = true;
    else if (arg == "--out") s.out = value();
    else if (arg == "--commit") s.from.commit = value();
    else if (arg == "--driver") s.from.driver = value();
    else if (arg == "--date") s.from.date = value();
    else if (arg == "--rounds") s.rounds = std::max(1, std::atoi(value().c_str()));
    else {
      long long h = 0, f = 0, q = 0, kv = 0, d = 0;
      if (std::sscanf(arg.c_str(), "%lld,%lld,%lld,%lld,%lld", &h, &f, &q, &kv, &d) != 5 ||
          std::min({h, f, q, kv, d}) <= 0) {
        throw std::runtime_error("expected an option or HIDDEN,FFN,Q_HEADS,KV_HEADS,HEAD_DIM, got '" + arg + "'");
      }
      s.layers.push_back({h, f, q, kv, d});
    }
  }
  if (s.layers.empty()) s.layers.assign(std::begin(kLayers), std::end(kLayers));
  return s;
}

int run(int argc, char** argv) {
  const Settings s = parse(argc, argv);
  std::string why;
  if (!sm90::available(&why)) throw std::runtime_error(why);
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const Noise noise;
  const DeviceBuffer flush(std::size_t{256} << 20);
  std::printf("%-8s %6s %6s %6s %10s %10s %7s %12s %14s\n", "pass", "hidden", "ffn", "qkv", "ms", "gemms ms", "ratio",
              "MiB saved", "MiB unfused");
  std::vector<Record> records;
  for (const Layer& l : s.layers) {
    for (const Record& r : measure(l, s.add, s.rounds, noise, flush, stream)) {
      std::printf("%-8s %6lld %6lld %6lld %10.3f %10.3f %7.3f %12.0f %14.0f\n", r.pass,
                  static_cast<long long>(l.hidden), static_cast<long long>(l.ffn), static_cast<long long>(l.qkv()),
                  r.ms, r.gemms_ms, r.gemms_ms / r.ms, static_cast<double>(r.saved) / 1048576,
                  static_cast<double>(r.saved_unfused) / 1048576);
      records.push_back(r);
    }
    std::fflush(stdout);
  }
  CHECK(cudaStreamDestroy(stream));
  if (s.out.empty()) return 0;
  write_file(s.out, s.from,
             "graph replay, L2 flushed before each, interleaved, median of " + std::to_string(s.rounds) +
                 "; ratio = gemms_ms / ms; gradients of weights " + (s.add ? "added to in fp32" : "written in bf16"),
             records, write_record);
  return 0;
}

}  // namespace
}  // namespace coda::bench

int main(int argc, char** argv) {
  try {
    return coda::bench::run(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "gpu_layer: %s\n", e.what());
    return 1;
  }
}
