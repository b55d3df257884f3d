#include "coda/ops/layer_check.h"

#include <cstdint>

#include "coda/ops/common.h"
#include "coda/ops/layer_memory.h"

namespace coda::ops {
namespace {

/// The checks of one call, by the layer's shape as far as it is known.
class LayerCheck {
 public:
  LayerCheck(Check& check, const Target& on) : check_(check) { shape_.backend = on.backend; }

  const LayerShape& shape() const { return shape_; }

  /// An input that tells dtype and number of tokens.
  void leads(const char* name, const ConstMatrix& m) {
    check_.given(name, m);
    set_tokens(m.rows, check_.real(name, m.dtype));
    input(name, m, m.cols);
  }
  void set_tokens(std::int64_t tokens, DType dtype) { shape_.tokens = tokens, shape_.dtype = dtype; }
  /// H, the columns of this argument: at least 1, since the norms divide by it.
  void set_hidden(const char* name, const ConstMatrix& m) {
    if (m.cols < 1) check_.fail(name, "expected at least 1 column, got {}", m.cols);
    shape_.hidden = m.cols;
  }

  // ---- matrices and vectors with a row for each token

  void input(const char* name, const ConstMatrix& m, std::int64_t cols) {
    check_.matrix(name, m, shape_.tokens, cols, shape_.dtype);
    check_.operand(name, m);
  }
  /// One that these outputs, and no other, may overwrite: it is read before they are written, or element by element.
  template <class... Outputs>
  void input_of(const char* name, const ConstMatrix& m, std::int64_t cols, const Outputs&... outputs) {
    check_.matrix(name, m, shape_.tokens, cols, shape_.dtype);
    const bool replaced = ((outputs.data == m.data && (m.rows <= 1 || outputs.pitch == m.pitch)) || ...);
    if (!replaced) check_.operand(name, m);
  }
  void input(const char* name, const ConstVector& v) {
    check_.vector(name, v, shape_.tokens, stats());
    check_.operand(name, v);
  }
  void output(const char* name, const Matrix& m, std::int64_t cols) {
    check_.matrix(name, m, shape_.tokens, cols, shape_.dtype);
    check_.output(name, m);
  }
  void output(const char* name, const Vector& v) {
    check_.vector(name, v, shape_.tokens, stats());
    check_.output(name, v);
  }
  void optional_output(const char* name, const Matrix& m, std::int64_t cols) {
    if (m) output(name, m, cols);
  }
  void optional_output(const char* name, const Vector& v) {
    if (v) output(name, v);
  }
  void qk_norm_output(const char* name, const Matrix& m, std::int64_t cols) {
    check_.require(shape_.qk_norm || !m, name, "expected none without next.q_norm and next.k_norm, got a matrix");
    optional_output(name, m, cols);
  }

  // ---- groups

  void weights(const BlockWeights& w, std::int64_t attended, Glu function) {
    check_.given("weights.down", w.down);
    shape_.ffn = w.down.cols;
    weight("weights.out", w.out, shape_.hidden, attended);
    weight("weights.post_norm", w.post_norm, shape_.hidden);
    weight("weights.down", w.down, shape_.hidden, shape_.ffn);
    weight("weights.gate_up", w.gate_up, 2 * shape_.ffn, shape_.hidden);
    if (function > Glu::reglu) {
      check_.fail("function", "expected one of the enumerators, got {}", static_cast<int>(function));
    }
  }
  void gradients(const BlockGradients& g, const BlockWeights& w) {
    gradient("gradients.out", g.out, w.out);
    gradient("gradients.post_norm", g.post_norm, w.post_norm);
    gradient("gradients.gate_up", g.gate_up, w.gate_up);
    gradient("gradients.down", g.down, w.down);
  }
  void projection(const QkvWeights& w, const Heads& heads, double head_eps, const Target& on) {
    weight("next.input_norm", w.input_norm, shape_.hidden);
    check_.given("next.qkv", w.qkv);
    weight("next.qkv", w.qkv, w.qkv.rows, shape_.hidden);
    check_heads(check_, on, heads, shape_.tokens, w.qkv.rows, stats());
    shape_.heads = heads;
    shape_.qk_norm = w.q_norm || w.k_norm;
    if (!shape_.qk_norm) return;
    weight("next.q_norm", w.q_norm, heads.head_dim);
    weight("next.k_norm", w.k_norm, heads.head_dim);
    check_eps(check_, "head_eps", head_eps, stats());
  }
  void gradients(const char* input_norm, const char* qkv, const char* q_norm, const char* k_norm, const QkvGradients& g,
                 const QkvWeights& w) {
    gradient(input_norm, g.input_norm, w.input_norm);
    gradient(qkv, g.qkv, w.qkv);
    if (!g.q_norm && !g.k_norm) return;
    check_.require(shape_.qk_norm, q_norm, "expected none without next.q_norm and next.k_norm, got a gradient");
    check_.require(g.q_norm && g.k_norm, g.q_norm ? k_norm : q_norm,
                   "expected both gradients of the heads' norms or none, got one");
    gradient(q_norm, g.q_norm, w.q_norm);
    gradient(k_norm, g.k_norm, w.k_norm);
  }
  /// What the backward of the projection reads: qkv, or under QK-norm qkv_preact.
  void projected(const ConstMatrix& qkv, const ConstMatrix& preact) {
    const std::int64_t width = qkv_width(shape_.heads);
    if (shape_.qk_norm) input("qkv_preact", preact, width);
    else input("qkv", qkv, width);
  }
  void head(const HeadWeights& w, bool required) {
    weight("head.final_norm", w.final_norm, shape_.hidden);
    if (!w.head && !required) return;
    check_.given("head.head", w.head);
    shape_.vocabulary = w.head.rows;
    weight("head.head", w.head, shape_.vocabulary, shape_.hidden);
  }
  void loss(const LogitTransform& transform, const CrossEntropy& options, const ConstVector& target, const Target& on) {
    check_transform(check_, transform, stats());
    check_options(check_, options, stats());
    check_targets(check_, on, target, shape_.tokens, shape_.vocabulary, options.ignore_index);
    shape_.label_smoothing = options.label_smoothing != 0;
  }
  void gradients(const HeadGradients& g, const HeadWeights& w) {
    gradient("head_gradients.final_norm", g.final_norm, w.final_norm);
    gradient("head_gradients.head", g.head, w.head);
  }
  void gradient_of_table(const Matrix& dtable, std::int64_t rows) {
    if (!dtable) return;
    check_.matrix("dtable", dtable, rows, shape_.hidden, stats());
    check_.output("dtable", dtable);
  }

  void beta(double beta) { check_beta(check_, beta); }
  void eps(double eps) { check_eps(check_, "eps", eps, stats()); }

  /// Last of all: the memory for temporaries, and that no two arguments share theirs.
  const LayerShape& finish(std::span<std::byte> workspace, std::int64_t (*bytes)(const LayerShape&)) {
    check_kernels(check_, shape_.backend, shape_.dtype);
    check_sizes(check_, shape_);
    if (!workspace.empty()) {
      constexpr std::uintptr_t kAlignment = 64;
      const std::int64_t needed = bytes(shape_);
      if (std::ssize(workspace) < needed) {
        check_.fail("workspace", "expected at least {} bytes, got {}", needed, workspace.size());
      }
      const auto off = reinterpret_cast<std::uintptr_t>(workspace.data()) % kAlignment;
      if (off != 0) check_.fail("workspace", "expected memory aligned to {} bytes, got some {} off", kAlignment, off);
      check_.output("workspace", Vector(workspace.data(), DType::bf16, std::ssize(workspace) / 2));
    }
    check_.no_overlap();
    return shape_;
  }

  void set_logit_rows(std::int64_t rows) {
    if (rows < 0) check_.fail("logit_rows", "expected a number of rows, or 0 for the library's choice, got {}", rows);
    shape_.logit_rows = rows;
  }

 private:
  DType stats() const { return stats_of(shape_.dtype); }

  void weight(const char* name, const ConstMatrix& w, std::int64_t rows, std::int64_t cols) {
    check_.matrix(name, w, rows, cols, shape_.dtype);
    check_.operand(name, w);
  }
  void weight(const char* name, const ConstVector& w, std::int64_t size) {
    check_.vector(name, w, size, shape_.dtype);
    check_.operand(name, w);
  }
  void gradient(const char* name, const Matrix& g, const ConstMatrix& w) {
    if (!g) return;
    check_.matrix(name, g, w.rows, w.cols, g.dtype == stats() ? stats() : shape_.dtype);
    check_.output(name, g);
  }
  void gradient(const char* name, const Vector& g, const ConstVector& w) {
    if (!g) return;
    check_.vector(name, g, w.size, stats());
    check_.output(name, g);
  }

  Check& check_;
  LayerShape shape_;
};

/// attended, the stream that tells H, and the block's weights: what Block and BlockPost, and their backwards, begin
/// with.
template <class Args>
LayerCheck begin_block(Check& check, const Args& args, const char* stream_name, const ConstMatrix& stream) {
  LayerCheck c(check, args.on);
  c.leads("attended", args.attended);
  check.given(stream_name, stream);
  check.matrix(stream_name, stream, args.attended.rows, stream.cols, args.attended.dtype);
  c.set_hidden(stream_name, stream);
  c.weights(args.weights, args.attended.cols, args.function);
  return c;
}
template <class Args>
void kept_outputs(LayerCheck& c, const Args& args) {
  c.optional_output("x_mid", args.x_mid, c.shape().hidden);
  c.optional_output("rstd_mid", args.rstd_mid);
  c.optional_output("preact", args.preact, 2 * c.shape().ffn);
}
template <class Args>
void qkv_outputs(LayerCheck& c, const Args& args) {
  const std::int64_t width = qkv_width(c.shape().heads);
  c.qk_norm_output("qkv_preact", args.qkv_preact, width);
  c.output("qkv", args.qkv, width);
}
/// What the backward from x_next or x_last to attended and x reads and writes.
template <class Args>
void block_gradients(LayerCheck& c, const Args& args) {
  c.input("x_mid", args.x_mid, c.shape().hidden);
  c.input("rstd_mid", args.rstd_mid);
  c.input_of("preact", args.preact, 2 * c.shape().ffn, args.dpreact);
  c.gradients(args.gradients, args.weights);
  c.beta(args.beta);
  c.output("dpreact", args.dpreact, 2 * c.shape().ffn);
  c.output("dx", args.dx, c.shape().hidden);
  c.output("dattended", args.dattended, args.attended.cols);
}

}  // namespace

LayerShape check_layer(Check& check, const BlockPre& args) {
  LayerCheck c(check, args.on);
  check.given("table", args.table);
  check.given("token", args.token, args.x.rows);
  c.set_tokens(args.token.size, check.real("table", args.table.dtype));
  check.matrix("table", args.table, args.table.rows, args.table.cols, args.table.dtype);
  check.operand("table", args.table);
  check_tokens(check, args.on, args.token, args.token.size, args.table.rows);
  c.set_hidden("table", args.table);
  c.projection(args.next, args.heads, args.head_eps, args.on);
  c.eps(args.eps);
  c.output("x", args.x, args.table.cols);
  c.output("rstd", args.rstd);
  qkv_outputs(c, args);
  return c.finish(args.workspace, block_pre_workspace_bytes);
}

LayerShape check_layer(Check& check, const Block& args) {
  LayerCheck c = begin_block(check, args, "x", args.x);
  c.input_of("x", args.x, args.x.cols, args.x_mid, args.x_next);
  c.projection(args.next, args.heads, args.head_eps, args.on);
  c.eps(args.eps);
  kept_outputs(c, args);
  c.output("x_next", args.x_next, c.shape().hidden);
  c.output("rstd_next", args.rstd_next);
  qkv_outputs(c, args);
  return c.finish(args.workspace, block_workspace_bytes);
}

LayerShape check_layer(Check& check, const BlockPost& args) {
  LayerCheck c = begin_block(check, args, "x", args.x);
  c.input_of("x", args.x, args.x.cols, args.x_mid, args.x_last);
  c.head(args.head, false);
  c.eps(args.eps);
  kept_outputs(c, args);
  c.output("x_last", args.x_last, c.shape().hidden);
  c.output("rstd_last", args.rstd_last);
  c.output("h", args.h, c.shape().hidden);
  if (args.head.head) {
    c.loss(args.transform, args.options, args.target, args.on);
    c.output("lse", args.lse);
    c.output("loss", args.loss);
  } else {
    const auto none = [&](const char* name, bool given) {
      check.require(!given, name, "expected none without head.head, got a vector");
    };
    none("target", static_cast<bool>(args.target));
    none("lse", static_cast<bool>(args.lse));
    none("loss", static_cast<bool>(args.loss));
  }
  return c.finish(args.workspace, block_post_workspace_bytes);
}

LayerShape check_layer(Check& check, const BlockPreBackward& args) {
  LayerCheck c(check, args.on);
  c.leads("x", args.x);
  c.set_hidden("x", args.x);
  c.input("rstd", args.rstd);
  c.projection(args.next, args.heads, args.head_eps, args.on);
  c.projected(args.qkv, args.qkv_preact);
  const std::int64_t width = qkv_width(c.shape().heads);
  c.input_of("dqkv", args.dqkv, width, args.dz);
  c.input_of("dx_next", args.dx_next, c.shape().hidden, args.dx);
  c.gradients("gradients.input_norm", "gradients.qkv", "gradients.q_norm", "gradients.k_norm", args.gradients,
              args.next);
  c.beta(args.beta);
  if (args.dtable) check_tokens(check, args.on, args.token, c.shape().tokens, args.dtable.rows);
  c.gradient_of_table(args.dtable, args.dtable.rows);
  c.output("dz", args.dz, width);
  c.output("dx", args.dx, c.shape().hidden);
  return c.finish(args.workspace, block_pre_backward_workspace_bytes);
}

LayerShape check_layer(Check& check, const BlockBackward& args) {
  LayerCheck c = begin_block(check, args, "x_mid", args.x_mid);
  c.projection(args.next, args.heads, args.head_eps, args.on);
  c.projected(args.qkv, args.qkv_preact);
  const std::int64_t width = qkv_width(c.shape().heads);
  c.input("x_next", args.x_next, c.shape().hidden);
  c.input("rstd_next", args.rstd_next);
  c.input_of("dqkv", args.dqkv, width, args.dz);
  c.input_of("dx_next", args.dx_next, c.shape().hidden, args.dx);
  c.gradients("next_gradients.input_norm", "next_gradients.qkv", "next_gradients.q_norm", "next_gradients.k_norm",
              args.next_gradients, args.next);
  c.output("dz", args.dz, width);
  block_gradients(c, args);
  return c.finish(args.workspace, block_backward_workspace_bytes);
}

LayerShape check_layer(Check& check, const BlockPostBackward& args) {
  LayerCheck c = begin_block(check, args, "x_mid", args.x_mid);
  c.head(args.head, true);
  c.loss(args.transform, args.options, args.target, args.on);
  c.set_logit_rows(args.logit_rows);
  c.input("x_last", args.x_last, c.shape().hidden);
  c.input("rstd_last", args.rstd_last);
  c.input("dloss", args.dloss);
  c.gradients(args.head_gradients, args.head);
  c.output("h", args.h, c.shape().hidden);
  c.output("lse", args.lse);
  c.output("loss", args.loss);
  block_gradients(c, args);
  return c.finish(args.workspace, block_post_backward_workspace_bytes);
}

}  // namespace coda::ops
