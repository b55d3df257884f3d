// Bad calls of the layer operations: told before anything runs, by the layer's name and argument.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "tests/ops/bad_calls.h"
#include "tests/ops/layer_case.h"

namespace coda::test {
namespace {

constexpr LayerDims kDims{.m = 4, .hidden = 8, .ffn = 6, .heads = {2, 1, 1, 4}, .qk_norm = true, .vocab = 11};
constexpr std::int64_t kAttended = 8, kWidth = 16;

LayerNumbers numbers(Case& c) { return LayerNumbers(c.random, kDims, DType::bf16); }

template <class Call>
void add_block_weights(BadCalls<Call>& bad) {
  bad.matrix("weights.out", AT(weights.out), true).vector("weights.post_norm", AT(weights.post_norm), true);
  bad.matrix("weights.gate_up", AT(weights.gate_up), true).matrix("weights.down", AT(weights.down), true, false);
  bad.add("weights.gate_up", "expected shape (10, 8)", [](Call& x) { --x.weights.down.cols; });
  bad.add("function", "got 9", [](Call& x) { x.function = static_cast<ops::Glu>(9); });
}
template <class Call>
void add_projection(BadCalls<Call>& bad) {
  bad.vector("next.input_norm", AT(next.input_norm), true).matrix("next.qkv", AT(next.qkv), true, false);
  bad.vector("next.q_norm", AT(next.q_norm), true).vector("next.k_norm", AT(next.k_norm), true);
  bad.matrix("heads.table", AT(heads.table), true, false).vector("heads.position", AT(heads.position), false);
  bad.add("heads", "got (3 + 1 + 1) * 4", [](Call& x) { x.heads.q = 3; });
  bad.add("head_eps", "got -1", [](Call& x) { x.head_eps = -1; });
  bad.add("heads.head_dim", "got 3", [](Call& x) { x.heads.head_dim = 3; });
  bad.add("heads.position", "got 7 at row 2",
          [](Call& x) { const_cast<std::int64_t*>(static_cast<const std::int64_t*>(x.heads.position.data))[2] = 7; });
}
template <class Call>
void add_workspace(BadCalls<Call>& bad, std::int64_t needed) {
  alignas(64) static std::byte memory[1 << 16];
  bad.add("workspace", "got 64", [](Call& x) { x.workspace = {memory, 64}; });
  bad.add("workspace", ("at least " + std::to_string(needed) + " bytes").c_str(),
          [=](Call& x) { x.workspace = {memory, static_cast<std::size_t>(needed - 1)}; });
  bad.add("workspace", "some 8 off", [](Call& x) { x.workspace = {memory + 8, sizeof memory - 8}; });
}
ops::LayerShape shape() {
  return {.tokens = kDims.m,
          .hidden = kDims.hidden,
          .ffn = kDims.ffn,
          .vocabulary = kDims.vocab,
          .heads = {.q = 2, .k = 1, .v = 1, .head_dim = 4},
          .qk_norm = true};
}
template <class Call>
void add_kept(BadCalls<Call>& bad) {
  bad.matrix("x_mid", AT(x_mid), false).matrix("preact", AT(preact), false);
  bad.vector("rstd_mid", AT(rstd_mid), false);
  bad.add("eps", "got nan", [](Call& x) { x.eps = std::nan(""); });
}

TEST(BadInput, OfBlockIsNamed) {
  BadCalls<ops::Block> bad("block", ops::block, [](Case& c) { return block_call(c, numbers(c)); });
  bad.matrix("attended", AT(attended), true, false).matrix("x", AT(x), true, false);
  bad.add("x", "expected shape (4, 8)", [](auto& x) { --x.x.rows; });
  bad.add("x", "expected at least 1 column, got 0", [](auto& x) { x.x.cols = 0; });
  add_block_weights(bad), add_projection(bad), add_kept(bad);
  add_workspace(bad, ops::block_workspace_bytes(shape()));
  bad.matrix("x_next", AT(x_next), true).vector("rstd_next", AT(rstd_next), true);
  bad.matrix("qkv", AT(qkv), true).matrix("qkv_preact", AT(qkv_preact), false);
  bad.add("qkv_preact", "expected none", [](auto& x) { x.next.q_norm = x.next.k_norm = {}; });
  bad.overlap("x_mid", AT(x_mid), AT(attended)).overlap("x_next", AT(x_next), AT(x));
  bad.overlap("x_next", AT(x_next), AT(x_mid), 0).overlap("qkv", AT(qkv), AT(x));
  bad.overlap("preact", AT(preact), AT(weights.gate_up)).overlap("rstd_next", AT(rstd_next), AT(rstd_mid), 0);
  bad.overlap("qkv", AT(qkv), AT(heads.table));
  bad.add("workspace", "overlaps the output x_next", [](auto& x) {
    alignas(64) static std::byte memory[1 << 16];
    x.workspace = memory, x.x_next.data = memory + 128;
  });
  EXPECT_GT(bad.count(), 80);
}

TEST(BadInput, OfBlockPreIsNamed) {
  BadCalls<ops::BlockPre> bad("block_pre", ops::block_pre, [](Case& c) {
    const LayerNumbers x = numbers(c);
    const LayerViews v(c, x);
    return ops::BlockPre{.table = c.in(x.table),
                         .token = c.indices(x.token, true),
                         .next = v.next,
                         .heads = v.heads,
                         .x = c.out("x", 4, 8),
                         .rstd = c.out_vec("rstd", 4, DType::fp32),
                         .qkv_preact = c.out("qkv_preact", 4, kWidth),
                         .qkv = c.out("qkv", 4, kWidth)};
  });
  bad.matrix("table", AT(table), true, false).matrix("x", AT(x), true).vector("rstd", AT(rstd), true);
  bad.matrix("qkv", AT(qkv), true).matrix("qkv_preact", AT(qkv_preact), false);
  bad.add("table", "expected at least 1 column, got 0", [](auto& x) { x.table.cols = 0; });
  bad.add("token", "expected values in [0, 5)", [](auto& x) { x.table.rows = 5, x.token = x.heads.position; });
  bad.add("eps", "got nan", [](auto& x) { x.eps = std::nan(""); });
  bad.overlap("x", AT(x), AT(table)).overlap("qkv", AT(qkv), AT(x));
  add_projection(bad);
  add_workspace(bad, ops::block_pre_workspace_bytes(shape()));
}

TEST(BadInput, OfBlockPostIsNamed) {
  BadCalls<ops::BlockPost> bad("block_post", ops::block_post,
                               [](Case& c) { return block_post_call(c, numbers(c), true); });
  bad.matrix("attended", AT(attended), true, false).matrix("x", AT(x), true, false);
  bad.add("x", "expected at least 1 column, got 0", [](auto& x) { x.x.cols = 0; });
  add_block_weights(bad), add_kept(bad);
  bad.vector("head.final_norm", AT(head.final_norm), true).matrix("head.head", AT(head.head), false, false);
  bad.matrix("x_last", AT(x_last), true).vector("rstd_last", AT(rstd_last), true).matrix("h", AT(h), true);
  bad.vector("lse", AT(lse), true).vector("loss", AT(loss), true).vector("target", AT(target), true);
  bad.add("target", "expected none without head.head", [](auto& x) { x.head.head = {}; });
  bad.add("lse", "expected none without head.head", [](auto& x) { x.head.head = {}, x.target = {}; });
  bad.add("loss", "expected none without head.head", [](auto& x) { x.head.head = {}, x.target = {}, x.lse = {}; });
  bad.add("transform.cap", "got -1", [](auto& x) { x.transform.cap = -1; });
  bad.add("options.label_smoothing", "got 1", [](auto& x) { x.options.label_smoothing = 1; });
  bad.overlap("h", AT(h), AT(x_last), 0).overlap("x_last", AT(x_last), AT(x)).overlap("loss", AT(loss), AT(lse), 0);
  add_workspace(bad, ops::block_post_workspace_bytes(shape()));
}

template <class Call>
void add_block_gradients(BadCalls<Call>& bad) {
  bad.matrix("gradients.out", AT(gradients.out), false).matrix("gradients.down", AT(gradients.down), false);
  bad.matrix("gradients.gate_up", AT(gradients.gate_up), false);
  bad.vector("gradients.post_norm", AT(gradients.post_norm), false);
  bad.matrix("dpreact", AT(dpreact), true).matrix("dx", AT(dx), true).matrix("dattended", AT(dattended), true);
  bad.matrix("x_mid", AT(x_mid), true, false).matrix("preact", AT(preact), true);
  bad.vector("rstd_mid", AT(rstd_mid), true);
  bad.add("beta", "got 2", [](Call& x) { x.beta = 2; });
  bad.overlap("dx", AT(dx), AT(x_mid), 0).overlap("dpreact", AT(dpreact), AT(preact));
  bad.overlap("dattended", AT(dattended), AT(attended), 0);
  bad.overlap("gradients.down", AT(gradients.down), AT(weights.down), 0);
  bad.overlap("gradients.post_norm", AT(gradients.post_norm), AT(weights.post_norm), 0);
  bad.overlap("gradients.post_norm", AT(gradients.post_norm), AT(rstd_mid), 0);
}
ops::BlockGradients block_gradients(Case& c) {
  return {.out = c.out("gradients.out", 8, kAttended, DType::fp32),
          .post_norm = c.out_vec("gradients.post_norm", 8, DType::fp32),
          .gate_up = c.out("gradients.gate_up", 12, 8),
          .down = c.out("gradients.down", 8, 6, DType::fp32)};
}
ops::QkvGradients projection_gradients(Case& c) {
  return {.input_norm = c.out_vec("gradients.input_norm", 8, DType::fp32),
          .qkv = c.out("gradients.qkv", kWidth, 8, DType::fp32),
          .q_norm = c.out_vec("gradients.q_norm", 4, DType::fp32),
          .k_norm = c.out_vec("gradients.k_norm", 4, DType::fp32)};
}

TEST(BadInput, OfBlockBackwardIsNamed) {
  BadCalls<ops::BlockBackward> bad("block_backward", ops::block_backward, [](Case& c) {
    const LayerNumbers x = numbers(c);
    const LayerViews v(c, x);
    const ConstVector ones = c.vec(Vec(4, 1.0), DType::fp32);
    return ops::BlockBackward{.attended = c.in(x.attended),
                              .x_mid = c.in(x.x),
                              .rstd_mid = ones,
                              .preact = c.in(Mat(4, 12, 1.0)),
                              .x_next = c.in(x.dx_next),
                              .rstd_next = ones,
                              .qkv_preact = c.in(x.dqkv),
                              .dqkv = c.in(x.dqkv),
                              .dx_next = c.in(x.dx_next),
                              .weights = v.weights,
                              .next = v.next,
                              .heads = v.heads,
                              .gradients = block_gradients(c),
                              .next_gradients = projection_gradients(c),
                              .dz = c.out("dz", 4, kWidth),
                              .dpreact = c.out("dpreact", 4, 12),
                              .dx = c.out("dx", 4, 8),
                              .dattended = c.out("dattended", 4, kAttended)};
  });
  bad.matrix("attended", AT(attended), true, false).matrix("x_next", AT(x_next), true);
  bad.vector("rstd_next", AT(rstd_next), true).matrix("qkv_preact", AT(qkv_preact), true);
  bad.matrix("dqkv", AT(dqkv), true).matrix("dx_next", AT(dx_next), true).matrix("dz", AT(dz), true);
  bad.vector("next_gradients.input_norm", AT(next_gradients.input_norm), false);
  bad.matrix("next_gradients.qkv", AT(next_gradients.qkv), false);
  bad.vector("next_gradients.q_norm", AT(next_gradients.q_norm), false);
  bad.vector("next_gradients.k_norm", AT(next_gradients.k_norm), false);
  bad.add("next_gradients.q_norm", "got one", [](auto& x) { x.next_gradients.q_norm = {}; });
  bad.add("next_gradients.k_norm", "got one", [](auto& x) { x.next_gradients.k_norm = {}; });
  bad.overlap("dz", AT(dz), AT(dqkv)).overlap("dx", AT(dx), AT(dx_next)).overlap("dx", AT(dx), AT(x_next), 0);
  bad.overlap("dz", AT(dz), AT(qkv_preact), 0).overlap("dz", AT(dz), AT(dx_next), 0);
  bad.add("dz", "overlaps the input dqkv",
          [](auto& x) { x.dz = Matrix(const_cast<void*>(x.dqkv.data), x.dqkv.dtype, 4, kWidth, x.dqkv.pitch + 1); });
  bad.add("dz", "overlaps the input dx_next",
          [](auto& x) { x.dx_next = Matrix(x.dz.data, x.dz.dtype, 4, 8, x.dz.pitch); });
  bad.add("x_mid", "expected at least 1 column, got 0", [](auto& x) { x.x_mid.cols = 0; });
  add_block_weights(bad), add_projection(bad), add_block_gradients(bad);
  add_workspace(bad, ops::block_backward_workspace_bytes(shape()));
  bad.add("next_gradients.q_norm", "expected none", [](auto& x) {
    x.next.q_norm = x.next.k_norm = {};
    x.qkv = x.qkv_preact;
  });
}

TEST(BadInput, OfBlockPreBackwardIsNamed) {
  BadCalls<ops::BlockPreBackward> bad("block_pre_backward", ops::block_pre_backward, [](Case& c) {
    const LayerNumbers x = numbers(c);
    const LayerViews v(c, x);
    return ops::BlockPreBackward{.token = c.indices(x.token, true),
                                 .x = c.in(x.x),
                                 .rstd = c.vec(Vec(4, 1.0), DType::fp32),
                                 .qkv_preact = c.in(x.dqkv),
                                 .dqkv = c.in(x.dqkv),
                                 .dx_next = c.in(x.dx_next),
                                 .next = v.next,
                                 .heads = v.heads,
                                 .gradients = projection_gradients(c),
                                 .dtable = c.out("dtable", 11, 8, DType::fp32),
                                 .dz = c.out("dz", 4, kWidth),
                                 .dx = c.out("dx", 4, 8)};
  });
  bad.matrix("x", AT(x), true, false).vector("rstd", AT(rstd), true).matrix("qkv_preact", AT(qkv_preact), true);
  bad.matrix("dqkv", AT(dqkv), true).matrix("dx_next", AT(dx_next), true).vector("token", AT(token), true);
  bad.matrix("dz", AT(dz), true).matrix("dx", AT(dx), true);
  bad.vector("gradients.input_norm", AT(gradients.input_norm), false);
  bad.matrix("gradients.qkv", AT(gradients.qkv), false);
  bad.add("dtable", "expected dtype fp32", [](auto& x) { x.dtable.dtype = DType::bf16; });
  bad.add("dtable", "expected shape (11, 8)", [](auto& x) { --x.dtable.cols; });
  bad.add("x", "expected at least 1 column, got 0", [](auto& x) { x.x.cols = 0; });
  bad.add("beta", "got 0.5", [](auto& x) { x.beta = 0.5; });
  bad.overlap("dx", AT(dx), AT(x), 0).overlap("dz", AT(dz), AT(dqkv)).overlap("dtable", AT(dtable), AT(x));
  bad.add("dz", "overlaps the input dx_next",
          [](auto& x) { x.dx_next = Matrix(x.dz.data, x.dz.dtype, 4, 8, x.dz.pitch); });
  add_projection(bad);
  add_workspace(bad, ops::block_pre_backward_workspace_bytes(shape()));
}

TEST(BadInput, OfBlockPostBackwardIsNamed) {
  BadCalls<ops::BlockPostBackward> bad("block_post_backward", ops::block_post_backward, [](Case& c) {
    const LayerNumbers x = numbers(c);
    const LayerViews v(c, x);
    const ConstVector ones = c.vec(Vec(4, 1.0), DType::fp32);
    return ops::BlockPostBackward{.attended = c.in(x.attended),
                                  .x_mid = c.in(x.x),
                                  .rstd_mid = ones,
                                  .preact = c.in(Mat(4, 12, 1.0)),
                                  .x_last = c.in(x.dx_next),
                                  .rstd_last = ones,
                                  .h = c.out("h", 4, 8),
                                  .dloss = ones,
                                  .weights = v.weights,
                                  .head = {.final_norm = v.next.input_norm, .head = c.in(x.head)},
                                  .target = c.indices(x.target, true),
                                  .options = {.ignore_index = LayerNumbers::kIgnore},
                                  .gradients = block_gradients(c),
                                  .head_gradients = {.final_norm = c.out_vec("final_norm", 8, DType::fp32),
                                                     .head = c.out("head", 11, 8, DType::fp32)},
                                  .lse = c.out_vec("lse", 4, DType::fp32),
                                  .loss = c.out_vec("loss", 4, DType::fp32),
                                  .dpreact = c.out("dpreact", 4, 12),
                                  .dx = c.out("dx", 4, 8),
                                  .dattended = c.out("dattended", 4, kAttended)};
  });
  bad.matrix("attended", AT(attended), true, false).matrix("x_last", AT(x_last), true);
  bad.vector("rstd_last", AT(rstd_last), true).matrix("h", AT(h), true).vector("dloss", AT(dloss), true);
  bad.vector("head.final_norm", AT(head.final_norm), true).matrix("head.head", AT(head.head), true, false);
  bad.vector("head_gradients.final_norm", AT(head_gradients.final_norm), false);
  bad.matrix("head_gradients.head", AT(head_gradients.head), false);
  bad.vector("target", AT(target), true).vector("lse", AT(lse), true).vector("loss", AT(loss), true);
  bad.add("logit_rows", "got -1", [](auto& x) { x.logit_rows = -1; });
  bad.overlap("dx", AT(dx), AT(x_last), 0).overlap("h", AT(h), AT(x_last), 0);
  bad.add("x_mid", "expected at least 1 column, got 0", [](auto& x) { x.x_mid.cols = 0; });
  add_block_weights(bad), add_block_gradients(bad);
  add_workspace(bad, ops::block_post_backward_workspace_bytes(shape()));
}

TEST(BadInput, OfALayersShapeIsNamed) {
  using Bytes = std::int64_t (*)(const ops::LayerShape&);
  const std::pair<const char*, Bytes> functions[] = {
      {"block_pre_workspace_bytes", ops::block_pre_workspace_bytes},
      {"block_workspace_bytes", ops::block_workspace_bytes},
      {"block_post_workspace_bytes", ops::block_post_workspace_bytes},
      {"block_pre_backward_workspace_bytes", ops::block_pre_backward_workspace_bytes},
      {"block_backward_workspace_bytes", ops::block_backward_workspace_bytes},
      {"block_post_backward_workspace_bytes", ops::block_post_backward_workspace_bytes},
      {"block_saved_bytes", ops::block_saved_bytes},
      {"block_saved_bytes_unfused", ops::block_saved_bytes_unfused}};
  using Change = std::function<void(ops::LayerShape&)>;
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const std::pair<std::string, Change> changes[] = {
      {"dtype: expected dtype bf16, fp16, fp32 or fp64, got int32", [](auto& x) { x.dtype = DType::int32; }},
      {"tokens: expected a size of at least 0, got -1", [](auto& x) { x.tokens = -1; }},
      {"hidden: expected a size of at least 0, got -8", [](auto& x) { x.hidden = -8; }},
      {"ffn: expected a size of at least 0, got -2", [](auto& x) { x.ffn = -2; }},
      {"vocabulary: expected a size of at least 0, got -3", [](auto& x) { x.vocabulary = -3; }},
      {"heads.q: expected a size of at least 0, got -1", [](auto& x) { x.heads.q = -1; }},
      {"heads.k: expected a size of at least 0, got -1", [](auto& x) { x.heads.k = -1; }},
      {"heads.v: expected a size of at least 0, got -1", [](auto& x) { x.heads.v = -1; }},
      {"heads.head_dim: expected a size of at least 0, got -4", [](auto& x) { x.heads.head_dim = -4; }},
      {"logit_rows: expected a size of at least 0, got -1", [](auto& x) { x.logit_rows = -1; }},
      {"tokens: expected at most 2^55 elements in a layer's rows, got 2305843009213693952 rows of 47 columns",
       [](auto& x) { x.tokens = std::int64_t{1} << 61; }},
      {"tokens: expected at most 2^55 elements", [](auto& x) { x.hidden = kHuge; }},
      {"tokens: expected at most 2^55 elements", [](auto& x) { x.ffn = kHuge; }},
      {"tokens: expected at most 2^55 elements", [](auto& x) { x.vocabulary = kHuge; }},
      {"tokens: expected at most 2^55 elements", [](auto& x) { x.heads.k = x.heads.head_dim = kHuge; }},
      {"tokens: expected at most 2^55 elements", [](auto& x) { x = {.tokens = kHuge}; }},
      {"backend: expected cpu or sm90, got 9", [](auto& x) { x.backend = static_cast<ops::Backend>(9); }},
      {"hidden: expected at least 1 column, got 0", [](auto& x) { x.hidden = 0; }}};
  for (const auto& [name, bytes] : functions) {
    EXPECT_GT(bytes(shape()), 0) << name;
    for (const auto& [message, change] : changes) {
      ops::LayerShape bad = shape();
      change(bad);
      try {
        bytes(bad);
        ADD_FAILURE() << "expected " << name << ": " << message;
      } catch (const Error& e) {
        EXPECT_EQ(e.status(), Status::invalid_argument);
        EXPECT_EQ(std::string(e.what()).rfind(std::string(name) + ": " + message, 0), 0u) << e.what();
      }
    }
    for (const std::int64_t head_dim : {0, 7, 1024}) {
      ops::LayerShape bad = shape();
      bad.heads.head_dim = head_dim;
      const bool projects = std::string(name).find("post") == std::string::npos;
      try {
        bytes(bad);
        EXPECT_FALSE(projects) << "expected " << name << " to refuse a head_dim of " << head_dim;
      } catch (const Error& e) {
        EXPECT_TRUE(projects) << e.what();
        EXPECT_EQ(std::string(e.what()), std::string(name) +
                                             ": heads.head_dim: expected an even number from 2 to 512, got " +
                                             std::to_string(head_dim));
      }
    }
  }
}

TEST(Layer, TheLargestShapeStillHasAPositiveNumberOfBytes) {
  for (const DType t : {DType::bf16, DType::fp64}) {
    for (const ops::Backend backend : {ops::Backend::cpu, ops::Backend::sm90}) {
      for (const bool many_rows : {false, true}) {
        constexpr std::int64_t kMost = std::int64_t{1} << 55;
        ops::LayerShape s{.dtype = t, .heads = {.head_dim = 2}, .label_smoothing = true, .backend = backend};
        if (many_rows) s.tokens = kMost / 8, s.hidden = s.vocabulary = 1, s.ffn = 3;
        else s.tokens = 1, s.hidden = s.vocabulary = kMost / 8, s.ffn = 3 * (kMost / 8);
        for (const auto bytes :
             {ops::block_workspace_bytes, ops::block_post_workspace_bytes, ops::block_backward_workspace_bytes,
              ops::block_post_backward_workspace_bytes, ops::block_saved_bytes, ops::block_saved_bytes_unfused}) {
          EXPECT_GT(bytes(s), kMost / 8);
        }
      }
    }
  }
}

TEST(BadInput, OfWhatTheHopperBackendHasNotIsNamed) {
  Case c = layer_case(DType::fp32, kDims, base_seed());
  ops::Block call = block_call(c, LayerNumbers(c.random, kDims, DType::fp32));
  call.on.backend = ops::Backend::sm90;
  try {
    ops::block(call);
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::unsupported) << e.what();
    EXPECT_EQ(std::string(e.what()).rfind("block: on.backend: expected cpu", 0), 0u) << e.what();
  }
  EXPECT_EQ(c.touched(), "");
}

}  // namespace
}  // namespace coda::test
