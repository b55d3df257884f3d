#include "tests/gpu/problem_layer.h"

#include <cmath>

namespace coda::test::gpu {
namespace {

/// The arguments of a layer. N is the hidden size and K the feed-forward's.
class LayerDraw : public Draw {
 public:
  const LayerOptions layer;
  const LayerSizes sizes;
  const std::int64_t attended_width, width;

  LayerDraw(const LayerOptions& o, const LayerSizes& s)
      : Draw({.type = o.type, .exact = false, .seed = o.seed}, {s.m, s.hidden, s.ffn}),
        layer(o),
        sizes(s),
        attended_width(s.q * s.head_dim),
        width((s.q + 2 * s.kv) * s.head_dim) {}

  Id weight(const char* name, std::int64_t rows, std::int64_t cols) {
    const double size = 1 / std::sqrt(static_cast<double>(cols));
    return input({.name = name}, normal_mat(random, rows, cols, size, layer.type));
  }
  Id norm(const char* name, std::int64_t size) { return factors(name, size, Kind::operand, 1, false); }
  Id statistic(const char* name) {
    const Id id = row_statistic(name, false);
    slot(id).of_short = true;
    return id;
  }
  Id gradient(const char* name, std::int64_t rows, std::int64_t cols) {
    const Kind kind = layer.wide_gradients ? Kind::statistic : Kind::operand;
    const Id id = output({.name = name, .kind = kind, .rows = rows, .cols = cols, .of_short = true});
    return filled(id, normal_mat(random, rows, cols, 1, layer.wide_gradients ? DType::fp32 : layer.type));
  }
  Id norm_gradient(const char* name, std::int64_t size) {
    const Id id =
        output({.name = name, .kind = Kind::statistic, .rows = size, .cols = 1, .packed = true, .of_short = true});
    return filled(id, normal_mat(random, size, 1, 1, DType::fp32));
  }

  struct BlockIds {
    Id out, post_norm, gate_up, down;
    template <class Views>
    Views bind(const Bound& x) const {
      return {.out = x[out], .post_norm = x[post_norm], .gate_up = x[gate_up], .down = x[down]};
    }
  };
  BlockIds block_weights() {
    return {weight("weights.out", n, attended_width), norm("weights.post_norm", n), weight("weights.gate_up", 2 * k, n),
            weight("weights.down", n, k)};
  }
  BlockIds block_gradients() {
    return {gradient("gradients.out", n, attended_width), norm_gradient("gradients.post_norm", n),
            gradient("gradients.gate_up", 2 * k, n), gradient("gradients.down", n, k)};
  }
  struct QkvIds {
    Id input_norm, qkv, q_norm = kNone, k_norm = kNone;
    template <class Views>
    Views bind(const Bound& x) const {
      return {.input_norm = x[input_norm], .qkv = x[qkv], .q_norm = x[q_norm], .k_norm = x[k_norm]};
    }
  };
  QkvIds qkv_weights() {
    QkvIds ids{norm("next.input_norm", n), weight("next.qkv", width, n)};
    if (layer.qk_norm)
      ids.q_norm = norm("next.q_norm", sizes.head_dim), ids.k_norm = norm("next.k_norm", sizes.head_dim);
    return ids;
  }
  QkvIds qkv_gradients() {
    QkvIds ids{norm_gradient("gradients.input_norm", n), gradient("gradients.qkv", width, n)};
    if (layer.qk_norm) {
      ids.q_norm = norm_gradient("gradients.q_norm", sizes.head_dim);
      ids.k_norm = norm_gradient("gradients.k_norm", sizes.head_dim);
    }
    return ids;
  }
  Heads layer_heads() {
    const std::int64_t positions = m + 5;
    Mat angles(positions, sizes.head_dim);
    ops::rotary_table(MatrixOf<double>(angles.v.data(), positions, sizes.head_dim), 10000);
    for (double& a : angles.v) a = static_cast<float>(a);
    std::vector<std::int64_t> position;
    for (std::int64_t i = 0; i < m; ++i) position.push_back(random.integer(0, positions - 1));
    return {.q = sizes.q,
            .k = sizes.kv,
            .v = sizes.kv,
            .dim = sizes.head_dim,
            .table = input({.name = "heads.table", .kind = Kind::statistic, .packed = true}, std::move(angles)),
            .position = indices("heads.position", position)};
  }

  Problem problem(const char* name, Call call) {
    return {.name = std::string(name) + " " + coda::name_of(layer.type) + " M=" + std::to_string(m) +
                    " H=" + std::to_string(n) + " F=" + std::to_string(k) + (layer.qk_norm ? " qk_norm " : " ") +
                    ops::name_of(layer.glu) + " seed=" + std::to_string(layer.seed),
            .type = layer.type,
            .shape = {m, n, k},
            .exact = false,
            .slots = std::move(slots),
            .call = std::move(call)};
  }
};

Workspace on_device(const ops::Target& on, Workspace workspace) {
  return on.backend == ops::Backend::sm90 ? workspace : Workspace();
}

}  // namespace

Problem block_problem(const LayerOptions& o, const LayerSizes& s, Workspace workspace) {
  LayerDraw d(o, s);
  const Id attended = d.matrix("attended", d.attended_width), stream = d.matrix("x", d.n);
  const Id dqkv = d.matrix("dqkv", d.width), dx_next = d.matrix("dx_next", d.n);
  const auto weights = d.block_weights();
  const auto next = d.qkv_weights();
  const auto heads = d.layer_heads();
  const Id x_mid = d.out("x_mid", d.n, false), rstd_mid = d.statistic("rstd_mid");
  const Id preact = d.out("preact", 2 * d.k, false), x_next = d.out("x_next", d.n, false);
  const Id rstd_next = d.statistic("rstd_next"), qkv = d.out("qkv", d.width, false);
  const Id qkv_preact = o.qk_norm ? d.out("qkv_preact", d.width, false) : kNone;
  const auto gradients = d.block_gradients();
  const auto next_gradients = d.qkv_gradients();
  const Id dz = d.out("dz", d.width, false), dpreact = d.out("dpreact", 2 * d.k, false);
  const Id dx = d.out("dx", d.n, false), dattended = d.out("dattended", d.attended_width, false);
  return d.problem("block", [=](const Bound& x, const ops::Target& on) {
    const auto w = weights.bind<ops::BlockWeights>(x);
    const auto p = next.bind<ops::QkvWeights>(x);
    ops::block({.attended = x[attended],
                .x = x[stream],
                .weights = w,
                .next = p,
                .heads = heads.bind(x),
                .function = o.glu,
                .x_mid = x[x_mid],
                .rstd_mid = x[rstd_mid],
                .preact = x[preact],
                .x_next = x[x_next],
                .rstd_next = x[rstd_next],
                .qkv_preact = x[qkv_preact],
                .qkv = x[qkv],
                .workspace = on_device(on, workspace),
                .on = on});
    ops::block_backward({.attended = x[attended],
                         .x_mid = x[x_mid],
                         .rstd_mid = x[rstd_mid],
                         .preact = x[preact],
                         .x_next = x[x_next],
                         .rstd_next = x[rstd_next],
                         .qkv = x[qkv],
                         .qkv_preact = x[qkv_preact],
                         .dqkv = x[dqkv],
                         .dx_next = x[dx_next],
                         .weights = w,
                         .next = p,
                         .heads = heads.bind(x),
                         .function = o.glu,
                         .gradients = gradients.bind<ops::BlockGradients>(x),
                         .next_gradients = next_gradients.bind<ops::QkvGradients>(x),
                         .dz = x[dz],
                         .dpreact = x[dpreact],
                         .dx = x[dx],
                         .dattended = x[dattended],
                         .workspace = on_device(on, workspace),
                         .on = on});
  });
}

Problem block_pre_problem(const LayerOptions& o, const LayerSizes& s, Workspace workspace) {
  LayerDraw d(o, s);
  const Id table = d.input({.name = "table"}, normal_mat(d.random, s.vocab, d.n, 1, o.type));
  std::vector<std::int64_t> tokens;
  for (std::int64_t i = 0; i < d.m; ++i) tokens.push_back(d.random.integer(0, s.vocab - 1));
  const Id token = d.indices("token", tokens);
  const Id dqkv = d.matrix("dqkv", d.width), dx_next = d.matrix("dx_next", d.n);
  const auto next = d.qkv_weights();
  const auto heads = d.layer_heads();
  const Id stream = d.out("x", d.n, false), rstd = d.statistic("rstd"), qkv = d.out("qkv", d.width, false);
  const Id qkv_preact = o.qk_norm ? d.out("qkv_preact", d.width, false) : kNone;
  const auto gradients = d.qkv_gradients();
  const Id dtable =
      d.filled(d.output({.name = "dtable", .kind = Kind::statistic, .rows = s.vocab, .cols = d.n, .of_short = true}),
               normal_mat(d.random, s.vocab, d.n, 1, DType::fp32));
  const Id dz = d.out("dz", d.width, false), dx = d.out("dx", d.n, false);
  return d.problem("block_pre", [=](const Bound& x, const ops::Target& on) {
    const auto p = next.bind<ops::QkvWeights>(x);
    ops::block_pre({.table = x[table],
                    .token = x[token],
                    .next = p,
                    .heads = heads.bind(x),
                    .x = x[stream],
                    .rstd = x[rstd],
                    .qkv_preact = x[qkv_preact],
                    .qkv = x[qkv],
                    .workspace = on_device(on, workspace),
                    .on = on});
    ops::block_pre_backward({.token = x[token],
                             .x = x[stream],
                             .rstd = x[rstd],
                             .qkv = x[qkv],
                             .qkv_preact = x[qkv_preact],
                             .dqkv = x[dqkv],
                             .dx_next = x[dx_next],
                             .next = p,
                             .heads = heads.bind(x),
                             .gradients = gradients.bind<ops::QkvGradients>(x),
                             .dtable = x[dtable],
                             .dz = x[dz],
                             .dx = x[dx],
                             .workspace = on_device(on, workspace),
                             .on = on});
  });
}

/// The loss by block_post, and once more with the gradients by block_post_backward, some rows of logits at a time.
Problem block_post_problem(const LayerOptions& o, const LayerSizes& s, Workspace workspace) {
  LayerDraw d(o, s);
  const Id attended = d.matrix("attended", d.attended_width), stream = d.matrix("x", d.n);
  const auto weights = d.block_weights();
  const Id final_norm = d.norm("head.final_norm", d.n), head = d.weight("head.head", s.vocab, d.n);
  const Id target = d.targets(s.vocab), dloss = d.factors("dloss", d.m, Kind::statistic, 1, true);
  const Id x_mid = d.out("x_mid", d.n, false), rstd_mid = d.statistic("rstd_mid");
  const Id preact = d.out("preact", 2 * d.k, false), x_last = d.out("x_last", d.n, false);
  const Id rstd_last = d.statistic("rstd_last"), h = d.out("h", d.n, false);
  const Id lse = d.statistic("lse"), loss = d.statistic("loss");
  const Id lse_again = d.statistic("lse of the backward"), loss_again = d.statistic("loss of the backward");
  const auto gradients = d.block_gradients();
  const Id dfinal_norm = d.norm_gradient("head_gradients.final_norm", d.n);
  const Id dhead = d.gradient("head_gradients.head", s.vocab, d.n);
  const Id dpreact = d.out("dpreact", 2 * d.k, false), dx = d.out("dx", d.n, false);
  const Id dattended = d.out("dattended", d.attended_width, false);
  const ops::LogitTransform transform{.scale = 0.75, .cap = o.qk_norm ? 4.0 : 0.0};
  const ops::CrossEntropy options{.label_smoothing = o.qk_norm ? 0.125 : 0, .z_loss = 0.01};
  return d.problem("block_post", [=](const Bound& x, const ops::Target& on) {
    const auto w = weights.bind<ops::BlockWeights>(x);
    const ops::HeadWeights head_weights{.final_norm = x[final_norm], .head = x[head]};
    ops::block_post({.attended = x[attended],
                     .x = x[stream],
                     .weights = w,
                     .head = head_weights,
                     .function = o.glu,
                     .transform = transform,
                     .target = x[target],
                     .options = options,
                     .x_mid = x[x_mid],
                     .rstd_mid = x[rstd_mid],
                     .preact = x[preact],
                     .x_last = x[x_last],
                     .rstd_last = x[rstd_last],
                     .h = x[h],
                     .lse = x[lse],
                     .loss = x[loss],
                     .workspace = on_device(on, workspace),
                     .on = on});
    ops::block_post_backward({.attended = x[attended],
                              .x_mid = x[x_mid],
                              .rstd_mid = x[rstd_mid],
                              .preact = x[preact],
                              .x_last = x[x_last],
                              .rstd_last = x[rstd_last],
                              .h = x[h],
                              .dloss = x[dloss],
                              .weights = w,
                              .head = head_weights,
                              .function = o.glu,
                              .transform = transform,
                              .target = x[target],
                              .options = options,
                              .logit_rows = 128,
                              .gradients = gradients.bind<ops::BlockGradients>(x),
                              .head_gradients = {.final_norm = x[dfinal_norm], .head = x[dhead]},
                              .lse = x[lse_again],
                              .loss = x[loss_again],
                              .dpreact = x[dpreact],
                              .dx = x[dx],
                              .dattended = x[dattended],
                              .workspace = on_device(on, workspace),
                              .on = on});
  });
}

std::vector<LayerOptions> layer_variants() {
  return {{.seed = 1},
          {.type = DType::fp16, .qk_norm = true, .wide_gradients = false, .seed = 2},
          {.qk_norm = true, .glu = ops::Glu::geglu_tanh, .wide_gradients = false, .seed = 3},
          {.type = DType::fp16, .glu = ops::Glu::geglu_erf, .seed = 4},
          {.qk_norm = true, .glu = ops::Glu::reglu, .seed = 5}};
}

}  // namespace coda::test::gpu
