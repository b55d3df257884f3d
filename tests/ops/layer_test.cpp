// The layer calls on the CPU against the reference's layer, forward and backward.
#include <gtest/gtest.h>

#include "tests/ops/layer_case.h"

namespace coda::test {
namespace {

using reference::Heads;

const LayerDims kDims[] = {
    {.m = 37, .hidden = 48, .ffn = 40, .heads = {4, 2, 2, 8}, .vocab = 61},
    {.m = 40,
     .hidden = 40,
     .ffn = 56,
     .heads = {4, 1, 1, 12},
     .qk_norm = true,
     .glu = ops::Glu::geglu_tanh,
     .vocab = 30},
    {.m = 261, .hidden = 264, .ffn = 136, .heads = {4, 1, 1, 48}, .vocab = 270},
    {.m = 66, .hidden = 72, .ffn = 272, .heads = {6, 2, 2, 32}, .qk_norm = true, .vocab = 80},
    {.m = 1, .hidden = 8, .ffn = 6, .heads = {2, 2, 2, 4}, .glu = ops::Glu::geglu_erf, .vocab = 5},
    {.m = 20, .hidden = 24, .ffn = 16, .heads = {2, 1, 1, 6}, .qk_norm = true, .glu = ops::Glu::reglu, .vocab = 9},
    // One more tile of whole heads than of plain columns; logits that take more memory than anything else.
    {.m = 21, .hidden = 16, .ffn = 8, .heads = {2, 1, 1, 160}, .qk_norm = true, .vocab = 700},
};

/// body(case, numbers) for each type and shape; the case then has all of its memory checked.
template <class Body>
void for_layers(const Body& body) {
  std::uint64_t seed = base_seed();
  for (const DType type : {DType::bf16, DType::fp16, DType::fp32, DType::fp64}) {
    for (const LayerDims& d : kDims) {
      SCOPED_TRACE(std::string(coda::name_of(type)) + " " + name_of(d) + " seed=" + std::to_string(seed));
      Case c = layer_case(type, d, seed++);
      const LayerNumbers x(c.random, d, type);
      body(c, x);
      c.finish();
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// Both of the reference's results of a computation: exact, and as the chain of the case's type has it.
template <class F>
auto both(const Case& c, const F& f) {
  return std::pair{f(Round::exact()), f(c.round())};
}

void expect_feed_forward(Case& c, const reference::FeedForward& ref, const reference::FeedForward& chain,
                         const char* x_out, const char* rstd_out) {
  expect(c, "x_mid", ref.x_mid, chain.x_mid);
  expect(c, "rstd_mid", ref.rstd_mid, chain.rstd_mid);
  expect(c, "preact", ref.preact, chain.preact);
  expect(c, x_out, ref.x_out, chain.x_out);
  expect(c, rstd_out, ref.rstd_out, chain.rstd_out);
}

ops::LayerShape shape_of(const Case& c, const LayerDims& d) {
  return {.dtype = c.type,
          .tokens = d.m,
          .hidden = d.hidden,
          .ffn = d.ffn,
          .vocabulary = d.vocab,
          .heads = {.q = d.heads.q, .k = d.heads.k, .v = d.heads.v, .head_dim = d.heads.dim},
          .qk_norm = d.qk_norm};
}

/// The call with temporaries in memory of the caller's, exactly as much as it asks for; nothing round it may change.
template <class Call>
void run_in(std::int64_t bytes, void (*run)(const Call&), Call call) {
  Guarded<bf16> memory(1, bytes / 2);
  call.workspace = {reinterpret_cast<std::byte*>(memory.data()), static_cast<std::size_t>(bytes)};
  run(call);
  EXPECT_EQ(memory.guard_damage("workspace"), "");
}
/// In every second case; in the others the library's own memory.
template <class Call>
void run_layer(const Case& c, std::int64_t bytes, void (*run)(const Call&), const Call& call) {
  if (c.seed % 2 == 0) run(call);
  else run_in(bytes, run, call);
}

TEST(Layer, BlockIsItsPrograms) {
  for_layers([](Case& c, const LayerNumbers& x) {
    run_layer(c, ops::block_workspace_bytes(shape_of(c, x.d)), ops::block, block_call(c, x));
    const auto f = both(c, [&](Round r) { return reference::feed_forward(x.attended, x.x, x.w, x.o, r); });
    const auto z = std::pair{reference::project(f.first.h, f.first.rstd_out, x.w, x.o),
                             reference::project(f.second.h, f.second.rstd_out, x.w, x.o, c.round())};
    expect_feed_forward(c, f.first, f.second, "x_next", "rstd_next");
    expect(c, "qkv_preact", z.first.z, z.second.z);
    expect(c, "qkv", z.first.y, z.second.y);
  });
}

TEST(Layer, BlockPreIsItsPrograms) {
  for_layers([](Case& c, const LayerNumbers& x) {
    const LayerViews v(c, x);
    const std::int64_t m = x.d.m, width = x.d.heads.width();
    const ops::BlockPre call{.table = c.in(x.table),
                             .token = c.indices(x.token, false),
                             .next = v.next,
                             .heads = v.heads,
                             .eps = x.o.eps,
                             .head_eps = x.o.head_eps,
                             .x = c.out("x", m, x.d.hidden),
                             .rstd = c.out_vec("rstd", m, c.stats),
                             .qkv_preact = x.d.qk_norm ? c.out("qkv_preact", m, width) : Matrix(),
                             .qkv = c.out("qkv", m, width)};
    run_layer(c, ops::block_pre_workspace_bytes(shape_of(c, x.d)), ops::block_pre, call);
    Mat stream(m, x.d.hidden), h = stream;
    const auto run = [&](Round r) {
      for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < stream.cols; ++j) {
          stream(i, j) = x.table(x.token[static_cast<std::size_t>(i)], j);
          h(i, j) = r(stream(i, j) * x.w.next_norm[static_cast<std::size_t>(j)]);
        }
      }
      const Mat squares = reference::block_sums(
          m, stream.cols, stream.cols, r, [&](std::int64_t i, std::int64_t j) { return stream(i, j) * stream(i, j); });
      const Vec rstd = reference::rms_finalize(squares, stream.cols, x.o.eps, r);
      return std::pair{rstd, reference::project(h, rstd, x.w, x.o, r)};
    };
    const auto [ref, chain] = both(c, run);
    c.expect_linear("x", stream, stream);
    expect(c, "rstd", ref.first, chain.first);
    expect(c, "qkv_preact", ref.second.z, chain.second.z);
    expect(c, "qkv", ref.second.y, chain.second.y);
  });
}

TEST(Layer, BlockPostIsItsPrograms) {
  for_layers([](Case& c, const LayerNumbers& x) {
    const LossCase loss = loss_case(x.d);
    ops::BlockPost call = block_post_call(c, x, true);
    call.transform = loss.transform, call.options = loss.options;
    ops::LayerShape shape = shape_of(c, x.d);
    shape.label_smoothing = loss.options.label_smoothing != 0;
    run_layer(c, ops::block_post_workspace_bytes(shape), ops::block_post, call);
    const auto f = both(c, [&](Round r) { return reference::feed_forward(x.attended, x.x, x.w, x.o, r); });
    const auto l = [&](const reference::FeedForward& forward, Round r) {
      return reference::gemm_lse({forward.h, x.head}, reference::NormScale::rms(forward.rstd_out), x.target, x.d.vocab,
                                 loss.ref, r)
          .result;
    };
    const reference::Loss ref = l(f.first, {}), chain = l(f.second, c.round());
    expect_feed_forward(c, f.first, f.second, "x_last", "rstd_last");
    expect(c, "h", f.first.h, f.second.h);
    expect(c, "lse", ref.lse, chain.lse);
    expect(c, "loss", ref.loss, chain.loss);
  });
}

// ---- backward

void expect_block_gradients(Case& c, LayerGradients& g, const reference::FeedForwardGradient& ref,
                            const reference::FeedForwardGradient& chain) {
  expect(c, "dpreact", ref.dpreact, chain.dpreact);
  expect(c, "dx", ref.dx, chain.dx);
  expect(c, "dattended", ref.dattended, chain.dattended);
  g.expect_added("out", ref.out, chain.out);
  g.expect_added("post_norm", ref.post_norm, chain.post_norm);
  g.expect_added("gate_up", ref.gate_up, chain.gate_up);
  g.expect_added("down", ref.down, chain.down);
}
void expect_projection_gradients(Case& c, LayerGradients& g, const reference::ProjectGradient& ref,
                                 const reference::ProjectGradient& chain) {
  expect(c, "dz", ref.dz, chain.dz);
  g.expect_added("qkv", ref.qkv, chain.qkv);
  g.expect_added("input_norm", ref.norm, chain.norm);
  if (ref.q_norm.empty()) return;
  g.expect_added("q_norm", ref.q_norm, chain.q_norm);
  g.expect_added("k_norm", ref.k_norm, chain.k_norm);
}
/// T for the first half of the shapes, fp32 or fp64 for the others.
DType gradient_type(const Case& c, const LayerDims& d) { return d.m % 2 == 0 ? c.type : c.stats; }

TEST(Layer, BlockBackwardIsItsPrograms) {
  for_layers([](Case& c, const LayerNumbers& x) {
    Case saved = layer_case(c.type, x.d, c.seed + 1000);
    const ops::Block forward = block_call(saved, x);
    ops::block(forward);
    LayerGradients g{c, gradient_type(c, x.d)};
    run_layer(c, ops::block_backward_workspace_bytes(shape_of(c, x.d)), ops::block_backward,
              block_backward_call(c, x, forward, g));
    const auto run = [&](Round r) {
      const auto f = reference::feed_forward(x.attended, x.x, x.w, x.o, r);
      const auto z = reference::project(f.h, f.rstd_out, x.w, x.o, r);
      auto p = reference::project_backward(x.dqkv, z, f.x_out, f.rstd_out, x.dx_next, x.w, x.o, r);
      auto b = reference::feed_forward_backward(p.dx, x.attended, f, x.w, x.o, r);
      return std::pair{std::move(p), std::move(b)};
    };
    const auto [ref, chain] = both(c, run);
    expect_projection_gradients(c, g, ref.first, chain.first);
    expect_block_gradients(c, g, ref.second, chain.second);
  });
}

TEST(Layer, BlockPreBackwardIsItsPrograms) {
  for_layers([](Case& c, const LayerNumbers& x) {
    // The stream and its projection, as block_pre leaves them: any numbers will do that belong together.
    Case saved = layer_case(c.type, x.d, c.seed + 1000);
    const ops::Block forward = block_call(saved, x);
    ops::block(forward);
    LayerGradients g{c, gradient_type(c, x.d)};
    const ops::QkvGradients gradients = projection_gradients(g, x);
    const ops::BlockPreBackward call{
        .token = c.indices(x.token, true),
        .x = forward.x_next,
        .rstd = forward.rstd_next,
        .qkv = x.d.qk_norm ? Matrix() : forward.qkv,
        .qkv_preact = forward.qkv_preact,
        .dqkv = c.in(x.dqkv),
        .dx_next = c.in(x.dx_next),
        .next = forward.next,
        .heads = forward.heads,
        .head_eps = forward.head_eps,
        .gradients = gradients,
        .dtable = c.in_place("dtable", g.begin("dtable", x.d.vocab, x.d.hidden, c.stats), c.stats),
        .dz = c.out("dz", x.d.m, x.d.heads.width()),
        .dx = c.out("dx", x.d.m, x.d.hidden)};
    run_layer(c, ops::block_pre_backward_workspace_bytes(shape_of(c, x.d)), ops::block_pre_backward, call);
    const auto run = [&](Round r) {
      const auto f = reference::feed_forward(x.attended, x.x, x.w, x.o, r);
      const auto z = reference::project(f.h, f.rstd_out, x.w, x.o, r);
      auto p = reference::project_backward(x.dqkv, z, f.x_out, f.rstd_out, x.dx_next, x.w, x.o, r);
      Mat dtable(x.d.vocab, x.d.hidden);
      for (std::int64_t i = 0; i < x.d.m; ++i) {
        for (std::int64_t j = 0; j < dtable.cols; ++j) dtable(x.token[static_cast<std::size_t>(i)], j) += p.dx(i, j);
      }
      return std::pair{std::move(p), std::move(dtable)};
    };
    const auto [ref, chain] = both(c, run);
    expect_projection_gradients(c, g, ref.first, chain.first);
    expect(c, "dx", ref.first.dx, chain.first.dx);
    g.expect_added("dtable", ref.second, chain.second);
  });
}

TEST(Layer, BlockPostBackwardIsItsPrograms) {
  for_layers([](Case& c, const LayerNumbers& x) {
    const LossCase loss = loss_case(x.d);
    Case saved = layer_case(c.type, x.d, c.seed + 1000);
    const ops::BlockPost f = block_post_call(saved, x, false);
    ops::block_post(f);
    LayerGradients g{c, gradient_type(c, x.d)};
    const ops::BlockPostBackward call = block_post_backward_call(c, x, f, g);
    ops::LayerShape shape = shape_of(c, x.d);
    shape.label_smoothing = loss.options.label_smoothing != 0, shape.logit_rows = call.logit_rows;
    run_layer(c, ops::block_post_backward_workspace_bytes(shape), ops::block_post_backward, call);
    const auto run = [&](Round r) {
      const auto forward = reference::feed_forward(x.attended, x.x, x.w, x.o, r);
      auto head = reference::head_backward(forward, x.head, x.w.next_norm, x.target, x.dloss, loss.ref, r);
      auto b = reference::feed_forward_backward(head.dx, x.attended, forward, x.w, x.o, r);
      return std::pair{std::move(head), std::move(b)};
    };
    const auto [ref, chain] = both(c, run);
    expect(c, "lse", ref.first.result.lse, chain.first.result.lse);
    expect(c, "loss", ref.first.result.loss, chain.first.result.loss);
    g.expect_added("final_norm", ref.first.norm, chain.first.norm);
    g.expect_added("head", ref.first.head, chain.first.head);
    expect_block_gradients(c, g, ref.second, chain.second);
  });
}

// ---- memory

TEST(Layer, WorkspaceOfTheCallerAndActivationsNotKeptChangeNoBit) {
  for (const LayerDims& d : kDims) {
    SCOPED_TRACE(name_of(d));
    Case one = layer_case(DType::bf16, d, base_seed()), other = layer_case(DType::bf16, d, base_seed());
    const LayerNumbers x(one.random, d, DType::bf16);
    ops::block(block_call(one, x));
    run_in(ops::block_workspace_bytes(shape_of(other, d)), ops::block, block_call(other, x));
    EXPECT_EQ(other.difference(one), "");

    Case inference = layer_case(DType::bf16, d, base_seed());
    ops::Block lean = block_call(inference, x);
    const Matrix stream = inference.in_place("stream", x.x, DType::bf16);
    lean.x = lean.x_next = stream;
    lean.x_mid = lean.preact = lean.qkv_preact = {}, lean.rstd_mid = {};
    ops::block(lean);
    EXPECT_EQ(check_exact("x_next", inference.got("stream"), one.got("x_next")), "");
    EXPECT_EQ(check_exact("rstd_next", inference.got("rstd_next"), one.got("rstd_next")), "");
    EXPECT_EQ(check_exact("qkv", inference.got("qkv"), one.got("qkv")), "");

    Case kept = layer_case(DType::bf16, d, base_seed());
    ops::Block over = block_call(kept, x);
    over.x = over.x_mid = kept.in_place("stream", x.x, DType::bf16);
    ops::block(over);
    EXPECT_EQ(check_exact("x_mid", kept.got("stream"), one.got("x_mid")), "");
    EXPECT_EQ(check_exact("qkv", kept.got("qkv"), one.got("qkv")), "");
  }
}

TEST(Layer, BlockPostMayWriteOverTheStream) {
  const LayerDims& d = kDims[1];
  Case one = layer_case(DType::bf16, d, base_seed());
  const LayerNumbers x(one.random, d, DType::bf16);
  ops::block_post(block_post_call(one, x, true));
  for (const bool mid : {false, true}) {
    Case other = layer_case(DType::bf16, d, base_seed());
    ops::BlockPost call = block_post_call(other, x, true);
    const Matrix stream = other.in_place("stream", x.x, DType::bf16);
    call.x = (mid ? call.x_mid : call.x_last) = stream;
    ops::block_post(call);
    EXPECT_EQ(check_exact("stream", other.got("stream"), one.got(mid ? "x_mid" : "x_last")), "");
    EXPECT_EQ(check_exact("loss", other.got("loss"), one.got("loss")), "");
  }
}

TEST(Layer, BackwardMayWriteOverWhatItReadsLast) {
  for (const LayerDims& d : kDims) {
    SCOPED_TRACE(name_of(d));
    Case saved = layer_case(DType::bf16, d, base_seed()), c = layer_case(DType::bf16, d, base_seed() + 1),
         replacing = layer_case(DType::bf16, d, base_seed() + 1);
    const LayerNumbers x(saved.random, d, DType::bf16);
    const ops::Block forward = block_call(saved, x);
    ops::block(forward);
    LayerGradients g{c, DType::fp32}, same{replacing, DType::fp32};
    ops::block_backward(block_backward_call(c, x, forward, g));
    ops::BlockBackward call = block_backward_call(replacing, x, forward, same);
    call.dqkv = call.dz = replacing.in_place("dqkv", x.dqkv, DType::bf16);
    call.dx_next = call.dx = replacing.in_place("dx_next", x.dx_next, DType::bf16);
    call.dpreact = forward.preact;
    if (d.m == 1) call.dz.pitch += 3, call.dx.pitch += 5, call.dpreact.pitch += 7;  // which mean nothing
    run_in(ops::block_backward_workspace_bytes(shape_of(replacing, d)), ops::block_backward, call);
    for (const auto& [mine, other] : {std::pair{"dqkv", "dz"},
                                      {"dx_next", "dx"},
                                      {"dattended", "dattended"},
                                      {"down", "down"},
                                      {"gate_up", "gate_up"},
                                      {"qkv", "qkv"},
                                      {"out", "out"}}) {
      EXPECT_EQ(check_exact(mine, replacing.got(mine), c.got(other)), "");
    }
    EXPECT_EQ(check_exact("dpreact", saved.got("preact"), c.got("dpreact")), "");
  }
}

TEST(Layer, GradientsAreOptional) {
  const LayerDims& d = kDims[1];
  Case saved = layer_case(DType::bf16, d, base_seed());
  const LayerNumbers x(saved.random, d, DType::bf16);
  const ops::Block forward = block_call(saved, x);
  ops::block(forward);
  Case none = layer_case(DType::bf16, d, base_seed() + 1), all = layer_case(DType::bf16, d, base_seed() + 1);
  LayerGradients g{none, DType::fp32}, a{all, DType::fp32};
  ops::BlockBackward call = block_backward_call(none, x, forward, g);
  call.gradients = {}, call.next_gradients = {};
  ops::block_backward(call);
  for (const auto& [name, before] : g.start) EXPECT_EQ(check_exact(name, none.got(name), before), "");
  ops::block_backward(block_backward_call(all, x, forward, a));
  for (const char* name : {"dz", "dpreact", "dx", "dattended"}) {
    EXPECT_EQ(check_exact(name, none.got(name), all.got(name)), "");
  }
}

TEST(Layer, GradientsAreWrittenWithBetaZeroWhateverTheyHeld) {
  for (const LayerDims& d : kDims) {
    SCOPED_TRACE(name_of(d));
    Case saved = layer_case(DType::bf16, d, base_seed()), added = layer_case(DType::bf16, d, base_seed() + 1),
         written = layer_case(DType::bf16, d, base_seed() + 1);
    const LayerNumbers x(saved.random, d, DType::bf16);
    const ops::Block forward = block_call(saved, x);
    ops::block(forward);
    LayerGradients a{added, DType::fp32, LayerGradients::zeros}, w{written, DType::fp32, LayerGradients::poison};
    ops::block_backward(block_backward_call(added, x, forward, a));
    ops::BlockBackward call = block_backward_call(written, x, forward, w);
    call.beta = 0;
    ops::block_backward(call);
    EXPECT_EQ(written.difference(added), "");
  }
}

TEST(Layer, GradientsOfTheHeadAreWrittenWithBetaZeroWhateverTheyHeld) {
  for (const LayerDims& d : kDims) {
    SCOPED_TRACE(name_of(d));
    Case saved = layer_case(DType::bf16, d, base_seed()), again = layer_case(DType::bf16, d, base_seed()),
         added = layer_case(DType::bf16, d, base_seed() + 1), written = layer_case(DType::bf16, d, base_seed() + 1);
    const LayerNumbers x(saved.random, d, DType::bf16);
    LayerGradients a{added, DType::fp32, LayerGradients::zeros}, w{written, DType::fp32, LayerGradients::poison};
    const ops::BlockPost forward = block_post_call(saved, x, false), same = block_post_call(again, x, false);
    ops::block_post(forward);
    ops::block_post(same);
    ops::block_post_backward(block_post_backward_call(added, x, forward, a));
    ops::BlockPostBackward call = block_post_backward_call(written, x, same, w);
    call.beta = 0;
    ops::block_post_backward(call);
    EXPECT_EQ(written.difference(added), "");
  }
}

TEST(Layer, NoTokensAreNoError) {
  const LayerDims d{.m = 0, .hidden = 8, .ffn = 8, .heads = {2, 1, 1, 4}, .vocab = 5};
  Case saved = layer_case(DType::bf16, d, base_seed()), c = layer_case(DType::bf16, d, base_seed()),
       post = layer_case(DType::bf16, d, base_seed());
  const LayerNumbers x(c.random, d, DType::bf16);
  const ops::Block forward = block_call(saved, x);
  ops::block(forward);
  LayerGradients g{c, DType::fp32};
  ops::block_backward(block_backward_call(c, x, forward, g));
  for (const auto& [name, before] : g.start) EXPECT_EQ(check_exact(name, c.got(name), before), "");
  ops::block_post(block_post_call(post, x, true));
}

TEST(Layer, GradientsAreZeroWithBetaZeroAndNoTokens) {
  const LayerDims d{.m = 0, .hidden = 8, .ffn = 8, .heads = {2, 1, 1, 4}, .vocab = 5};
  Case saved = layer_case(DType::bf16, d, base_seed()), c = layer_case(DType::bf16, d, base_seed()),
       head = layer_case(DType::bf16, d, base_seed());
  const LayerNumbers x(c.random, d, DType::bf16);
  LayerGradients g{c, DType::fp32, LayerGradients::poison}, h{head, DType::bf16, LayerGradients::poison};
  ops::BlockBackward call = block_backward_call(c, x, block_call(saved, x), g);
  ops::BlockPostBackward post = block_post_backward_call(head, x, block_post_call(saved, x, false), h);
  call.beta = post.beta = 0;
  ops::block_backward(call);
  ops::block_post_backward(post);
  for (auto* of : {&g, &h}) {
    for (const auto& [name, before] : of->start) {
      EXPECT_EQ(check_exact(name, of->c.got(name), Mat(before.rows, before.cols)), "");
    }
  }
}

/// All targets are ignored then: the loss is 0, and nothing comes back from it.
TEST(Layer, AnEmptyVocabularyIsNoError) {
  const LayerDims d{.m = 4, .hidden = 8, .ffn = 8, .heads = {2, 1, 1, 4}, .vocab = 5};
  for (const double smoothing : {0.0, 0.1}) {
    Case c = layer_case(DType::bf16, d, base_seed()), plain = layer_case(DType::bf16, d, base_seed());
    LayerNumbers x(c.random, d, DType::bf16);
    x.target.assign(4, LayerNumbers::kIgnore), x.head = Mat(0, d.hidden);
    ops::BlockPost call = block_post_call(c, x, true);
    call.options.label_smoothing = smoothing;
    ops::block_post(call);
    ops::block_post(block_post_call(plain, x, false));
    for (const char* name : {"x_last", "h"}) EXPECT_EQ(check_exact(name, c.got(name), plain.got(name)), "");
    EXPECT_EQ(check_exact("loss", c.got("loss"), Mat(4, 1)), "");
    Case back = layer_case(DType::bf16, d, base_seed());
    LayerGradients g{back, DType::fp32, LayerGradients::zeros};
    ops::BlockPostBackward backward = block_post_backward_call(back, x, call, g);
    backward.options.ignore_index = LayerNumbers::kIgnore, backward.options.label_smoothing = smoothing;
    ops::block_post_backward(backward);
    EXPECT_EQ(check_exact("dx", back.got("dx"), Mat(4, d.hidden)), "");
    for (const auto& [name, before] : g.start) EXPECT_EQ(check_exact(name, back.got(name), before), "");
  }
}

TEST(Layer, TrafficAndBytesSavedFollowFromTheShape) {
  const LayerDims d{.m = 64, .hidden = 32, .ffn = 48, .heads = {2, 1, 1, 16}, .vocab = 5};
  Case c = layer_case(DType::bf16, d, base_seed());
  const LayerNumbers x(c.random, d, DType::bf16);
  Traffic traffic;
  ops::Block call = block_call(c, x);
  call.traffic = &traffic;
  ops::block(call);
  const std::int64_t m = 64, h = 32, f = 48, q = 32, w = 64, tiles = ops::tiles_n(h);
  // Each program's inputs and outputs in bf16, and statistics of 4 bytes.
  EXPECT_EQ(traffic.bytes(), m * (2 * (q + 3 * h) + 4 * tiles) + m * (2 * (h + 3 * f) + 4) +
                                 m * (2 * (f + 3 * h) + 4 * tiles) + m * (2 * (h + w) + 4));
  const ops::LayerShape shape = shape_of(c, d);
  EXPECT_EQ(ops::block_saved_bytes(shape), m * (2 * (q + 2 * h + 2 * f + w) + 8));
  EXPECT_EQ(ops::block_saved_bytes_unfused(shape) - ops::block_saved_bytes(shape), m * 2 * (2 * h + f));
  ops::LayerShape with_norm = shape, without_heads = shape;
  with_norm.qk_norm = true;  // whose input is kept beside its output
  EXPECT_EQ(ops::block_saved_bytes(with_norm) - ops::block_saved_bytes(shape), m * 2 * w);
  without_heads.heads = {};
  EXPECT_EQ(ops::block_post_backward_workspace_bytes(shape), ops::block_post_backward_workspace_bytes(without_heads));
}

TEST(Layer, TrafficOfTheOtherCallsFollowsFromTheShape) {
  const LayerDims d{.m = 64, .hidden = 32, .ffn = 48, .heads = {2, 1, 1, 16}, .vocab = 20};
  Case c = layer_case(DType::bf16, d, base_seed()), b = layer_case(DType::bf16, d, base_seed()),
       last = layer_case(DType::bf16, d, base_seed());
  const LayerNumbers x(c.random, d, DType::bf16);
  const auto bytes = [](auto run, auto call) {
    Traffic traffic;
    call.traffic = &traffic;
    run(call);
    return traffic.bytes();
  };
  constexpr std::int64_t m = 64, h = 32, f = 48, q = 32, w = 64, v = 20;
  const ops::Block forward = block_call(c, x);
  ops::block(forward);
  EXPECT_EQ(bytes(ops::block_pre, ops::BlockPre{.table = c.in(x.table),
                                                .token = c.indices(x.token, true),
                                                .next = forward.next,
                                                .heads = forward.heads,
                                                .x = c.out("x", m, h),
                                                .rstd = c.out_vec("rstd", m, c.stats),
                                                .qkv = c.out("qkv_of_pre", m, w)}),
            m * (2 * 3 * h + 4) + m * (2 * (h + w) + 4));
  const std::int64_t feed_forward = m * (2 * (q + 3 * h) + 4) + m * (2 * (h + 3 * f) + 4) + m * (2 * (f + 3 * h) + 4);
  const ops::BlockPost post = block_post_call(last, x, true);
  EXPECT_EQ(bytes(ops::block_post, post), feed_forward + m * (2 * h + 3 * 4));

  // RoPE or SwiGLU, the product behind a norm, then the gradients of weights; one tile of statistics each.
  const std::int64_t project_data = m * (2 * 3 * w + 4) + m * 2 * (w + 3 * h);
  const std::int64_t project_weights = m * 2 * h + 4 * h + m * 2 * (w + h);
  const std::int64_t block_data = m * (2 * (h + 4 * f) + 4) + m * 2 * (2 * f + 3 * h) + m * 2 * (h + q);
  const std::int64_t block_weights =
      m * 2 * f + m * 2 * h + 4 * h + m * 2 * (h + f) + m * 2 * (2 * f + h) + m * 2 * (h + q);
  LayerGradients g{b, DType::fp32}, of_head{last, DType::fp32};
  ops::BlockBackward back = block_backward_call(b, x, forward, g);
  EXPECT_EQ(bytes(ops::block_backward, back), project_data + project_weights + block_data + block_weights);
  ops::BlockPreBackward pre{.token = c.indices(x.token, true),
                            .x = forward.x_next,
                            .rstd = forward.rstd_next,
                            .qkv = forward.qkv,
                            .dqkv = back.dqkv,
                            .dx_next = back.dx_next,
                            .next = forward.next,
                            .heads = forward.heads,
                            .gradients = back.next_gradients,
                            .dtable = c.in_place("dtable", Mat(v, h), c.stats),
                            .dz = back.dz,
                            .dx = back.dx};
  EXPECT_EQ(bytes(ops::block_pre_backward, pre), project_data + project_weights + m * 2 * h);
  pre.dtable = {}, pre.token = {};
  EXPECT_EQ(bytes(ops::block_pre_backward, pre), project_data + project_weights);
  back.gradients = {}, back.next_gradients = {};
  EXPECT_EQ(bytes(ops::block_backward, back), project_data + block_data);

  LayerDims normed = d;
  normed.qk_norm = true;
  Case heads = layer_case(DType::bf16, normed, base_seed()), grads = layer_case(DType::bf16, normed, base_seed());
  const LayerNumbers y(heads.random, normed, DType::bf16);
  const ops::Block with_norm = block_call(heads, y);
  ops::block(with_norm);
  LayerGradients of_heads{grads, DType::fp32};
  back = block_backward_call(grads, y, with_norm, of_heads);
  const std::int64_t all = bytes(ops::block_backward, back);
  back.next_gradients.q_norm = back.next_gradients.k_norm = {};
  EXPECT_EQ(all - bytes(ops::block_backward, back), 4 * w);

  ops::BlockPostBackward loss = block_post_backward_call(last, x, post, of_head);
  loss.options.label_smoothing = 0;
  const std::int64_t head =
      m * (2 * (h + v) + 4 * 4) + m * (2 * 2 * v + 4) + m * 2 * (v + 3 * h) + 4 * h + m * 2 * (v + h);
  EXPECT_EQ(bytes(ops::block_post_backward, loss), head + block_data + block_weights);
}

}  // namespace
}  // namespace coda::test
