// The operators of PyTorch's dispatcher. Made from coda/ops/*.h by scripts/torch_api.py.
#include "coda/torch/call.h"
#include "coda/torch/layer_shape.h"

namespace coda::pytorch {
namespace {

constexpr const char* kActivation[] = {"identity", "silu", "gelu_erf", "gelu_tanh", "relu", "relu_squared"};
constexpr const char* kGlu[] = {"swiglu", "geglu_erf", "geglu_tanh", "reglu"};
constexpr const char* kLayout[] = {"nt", "nn", "tn"};

void gemm(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm", stack);
  coda_gemm_args args = coda_gemm_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("alpha", args.alpha);
  call.take("beta", args.beta);
  call.take("c", args.c);
  call.take("bias", args.bias);
  call.take("activation", args.activation, kActivation);
  call.take("preact", args.preact);
  call.take("out", args.out);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm, args);
}

void gemm_residual(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_residual", stack);
  coda_gemm_residual_args args = coda_gemm_residual_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("residual", args.residual);
  call.take("weight", args.weight);
  call.take("x", args.x);
  call.take("h", args.h);
  call.take("sum_sq", args.sum_sq);
  call.take("mean", args.mean);
  call.take("m2", args.m2);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_residual, args);
}

void embedding(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("embedding", stack);
  coda_embedding_args args = coda_embedding_defaults();
  call.take("table", args.table);
  call.take("token", args.token);
  call.take("weight", args.weight);
  call.take("x", args.x);
  call.take("h", args.h);
  call.take("sum_sq", args.sum_sq);
  call.take("mean", args.mean);
  call.take("m2", args.m2);
  call.require("table");
  args.on = call.target();
  call.run(coda_embedding, args);
}

void rms_finalize(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("rms_finalize", stack);
  coda_rms_finalize_args args = coda_rms_finalize_defaults();
  call.take("sum_sq", args.sum_sq);
  call.take("n", args.n);
  call.take("eps", args.eps);
  call.take("rstd", args.rstd);
  call.require("sum_sq");
  args.on = call.target();
  call.run(coda_rms_finalize, args);
}

void layernorm_finalize(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("layernorm_finalize", stack);
  coda_layernorm_finalize_args args = coda_layernorm_finalize_defaults();
  call.take("tile_mean", args.tile_mean);
  call.take("tile_m2", args.tile_m2);
  call.take("n", args.n);
  call.take("eps", args.eps);
  call.take("mean", args.mean);
  call.take("rstd", args.rstd);
  call.require("tile_mean");
  args.on = call.target();
  call.run(coda_layernorm_finalize, args);
}

void gemm_norm(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_norm", stack);
  coda_gemm_norm_args args = coda_gemm_norm_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("norm.rstd", args.norm.rstd);
  call.take("norm.mean", args.norm.mean);
  call.take("norm.u", args.norm.u);
  call.take("norm.c", args.norm.c);
  call.take("activation", args.activation, kActivation);
  call.take("preact", args.preact);
  call.take("out", args.out);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_norm, args);
}

void gemm_norm_glu(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_norm_glu", stack);
  coda_gemm_norm_glu_args args = coda_gemm_norm_glu_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("norm.rstd", args.norm.rstd);
  call.take("norm.mean", args.norm.mean);
  call.take("norm.u", args.norm.u);
  call.take("norm.c", args.norm.c);
  call.take("function", args.function, kGlu);
  call.take("preact", args.preact);
  call.take("out", args.out);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_norm_glu, args);
}

void gemm_norm_rope(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_norm_rope", stack);
  coda_gemm_norm_rope_args args = coda_gemm_norm_rope_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("norm.rstd", args.norm.rstd);
  call.take("norm.mean", args.norm.mean);
  call.take("norm.u", args.norm.u);
  call.take("norm.c", args.norm.c);
  call.take("heads.q", args.heads.q);
  call.take("heads.k", args.heads.k);
  call.take("heads.v", args.heads.v);
  call.take("heads.head_dim", args.heads.head_dim);
  call.take("heads.table", args.heads.table);
  call.take("heads.position", args.heads.position);
  call.take("out", args.out);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_norm_rope, args);
}

void gemm_norm_rotate(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_norm_rotate", stack);
  coda_gemm_norm_rotate_args args = coda_gemm_norm_rotate_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("norm.rstd", args.norm.rstd);
  call.take("norm.mean", args.norm.mean);
  call.take("norm.u", args.norm.u);
  call.take("norm.c", args.norm.c);
  call.take("angle", args.angle);
  call.take("preact", args.preact);
  call.take("out", args.out);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_norm_rotate, args);
}

void gemm_norm_qknorm_rope(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_norm_qknorm_rope", stack);
  coda_gemm_norm_qknorm_rope_args args = coda_gemm_norm_qknorm_rope_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("norm.rstd", args.norm.rstd);
  call.take("norm.mean", args.norm.mean);
  call.take("norm.u", args.norm.u);
  call.take("norm.c", args.norm.c);
  call.take("heads.q", args.heads.q);
  call.take("heads.k", args.heads.k);
  call.take("heads.v", args.heads.v);
  call.take("heads.head_dim", args.heads.head_dim);
  call.take("heads.table", args.heads.table);
  call.take("heads.position", args.heads.position);
  call.take("q_weight", args.q_weight);
  call.take("k_weight", args.k_weight);
  call.take("eps", args.eps);
  call.take("preact", args.preact);
  call.take("out", args.out);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_norm_qknorm_rope, args);
}

void gemm_lse(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_lse", stack);
  coda_gemm_lse_args args = coda_gemm_lse_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("norm.rstd", args.norm.rstd);
  call.take("norm.mean", args.norm.mean);
  call.take("norm.u", args.norm.u);
  call.take("norm.c", args.norm.c);
  call.take("transform.scale", args.transform.scale);
  call.take("transform.cap", args.transform.cap);
  call.take("target", args.target);
  call.take("ignore_index", args.ignore_index);
  call.take("first_column", args.first_column);
  call.take("vocabulary", args.vocabulary);
  call.take("preact", args.preact);
  call.take("logits", args.logits);
  call.take("max", args.max);
  call.take("sum", args.sum);
  call.take("logit_sum", args.logit_sum);
  call.take("target_logit", args.target_logit);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_lse, args);
}

void lse_finalize(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("lse_finalize", stack);
  coda_lse_finalize_args args = coda_lse_finalize_defaults();
  call.take("max", args.max);
  call.take("sum", args.sum);
  call.take("logit_sum", args.logit_sum);
  call.take("target", args.target);
  call.take("target_logit", args.target_logit);
  call.take("vocabulary", args.vocabulary);
  call.take("options.label_smoothing", args.options.label_smoothing);
  call.take("options.z_loss", args.options.z_loss);
  call.take("options.ignore_index", args.options.ignore_index);
  call.take("lse", args.lse);
  call.take("loss", args.loss);
  call.require("max");
  args.on = call.target();
  call.run(coda_lse_finalize, args);
}

void linear_cross_entropy(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("linear_cross_entropy", stack);
  coda_linear_cross_entropy_args args = coda_linear_cross_entropy_defaults();
  call.take("a", args.a);
  call.take("weight", args.weight);
  call.take("norm.rstd", args.norm.rstd);
  call.take("norm.mean", args.norm.mean);
  call.take("norm.u", args.norm.u);
  call.take("norm.c", args.norm.c);
  call.take("transform.scale", args.transform.scale);
  call.take("transform.cap", args.transform.cap);
  call.take("target", args.target);
  call.take("options.label_smoothing", args.options.label_smoothing);
  call.take("options.z_loss", args.options.z_loss);
  call.take("options.ignore_index", args.options.ignore_index);
  call.take("lse", args.lse);
  call.take("loss", args.loss);
  call.require("a");
  args.on = call.target();
  call.run(coda_linear_cross_entropy, args);
}

void linear_cross_entropy_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("linear_cross_entropy_backward", stack);
  coda_linear_cross_entropy_backward_args args = coda_linear_cross_entropy_backward_defaults();
  call.take("a", args.a);
  call.take("weight", args.weight);
  call.take("h", args.h);
  call.take("norm.rstd", args.norm.rstd);
  call.take("norm.mean", args.norm.mean);
  call.take("norm.u", args.norm.u);
  call.take("norm.c", args.norm.c);
  call.take("transform.scale", args.transform.scale);
  call.take("transform.cap", args.transform.cap);
  call.take("target", args.target);
  call.take("lse", args.lse);
  call.take("dloss", args.dloss);
  call.take("options.label_smoothing", args.options.label_smoothing);
  call.take("options.z_loss", args.options.z_loss);
  call.take("options.ignore_index", args.options.ignore_index);
  call.take("chunk", args.chunk);
  call.take("da", args.da);
  call.take("dweight", args.dweight);
  call.take("row_dot", args.row_dot);
  call.take("row_udz", args.row_udz);
  call.require("a");
  args.on = call.target();
  call.run(coda_linear_cross_entropy_backward, args);
}

void gemm_rms_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_rms_backward", stack);
  coda_gemm_rms_backward_args args = coda_gemm_rms_backward_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("x", args.x);
  call.take("dx_in", args.dx_in);
  call.take("rstd", args.rstd);
  call.take("row_term", args.row_term);
  call.take("weight", args.weight);
  call.take("dx", args.dx);
  call.take("h", args.h);
  call.take("dweight", args.dweight);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_rms_backward, args);
}

void gemm_layernorm_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_layernorm_backward", stack);
  coda_gemm_layernorm_backward_args args = coda_gemm_layernorm_backward_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("x", args.x);
  call.take("dx_in", args.dx_in);
  call.take("rstd", args.rstd);
  call.take("mean", args.mean);
  call.take("zdz", args.zdz);
  call.take("udz", args.udz);
  call.take("weight", args.weight);
  call.take("bias", args.bias);
  call.take("dx", args.dx);
  call.take("h", args.h);
  call.take("dweight", args.dweight);
  call.take("dbias", args.dbias);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_layernorm_backward, args);
}

void gemm_glu_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_glu_backward", stack);
  coda_gemm_glu_backward_args args = coda_gemm_glu_backward_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("function", args.function, kGlu);
  call.take("preact", args.preact);
  call.take("dpreact", args.dpreact);
  call.take("out", args.out);
  call.take("dot.zdz", args.dot.zdz);
  call.take("dot.udz", args.dot.udz);
  call.take("dot.u", args.dot.u);
  call.take("dot.c", args.dot.c);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_glu_backward, args);
}

void gemm_activation_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("gemm_activation_backward", stack);
  coda_gemm_activation_backward_args args = coda_gemm_activation_backward_defaults();
  call.take("a", args.a);
  call.take("b", args.b);
  call.take("layout", args.layout, kLayout);
  call.take("activation", args.activation, kActivation);
  call.take("preact", args.preact);
  call.take("dpreact", args.dpreact);
  call.take("out", args.out);
  call.take("dot.zdz", args.dot.zdz);
  call.take("dot.udz", args.dot.udz);
  call.take("dot.u", args.dot.u);
  call.take("dot.c", args.dot.c);
  call.require("a");
  args.on = call.target();
  call.run(coda_gemm_activation_backward, args);
}

void rope_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("rope_backward", stack);
  coda_rope_backward_args args = coda_rope_backward_defaults();
  call.take("y", args.y);
  call.take("dy", args.dy);
  call.take("heads.q", args.heads.q);
  call.take("heads.k", args.heads.k);
  call.take("heads.v", args.heads.v);
  call.take("heads.head_dim", args.heads.head_dim);
  call.take("heads.table", args.heads.table);
  call.take("heads.position", args.heads.position);
  call.take("dz", args.dz);
  call.take("dot.zdz", args.dot.zdz);
  call.take("dot.udz", args.dot.udz);
  call.take("dot.u", args.dot.u);
  call.take("dot.c", args.dot.c);
  call.require("y");
  args.on = call.target();
  call.run(coda_rope_backward, args);
}

void qknorm_rope_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("qknorm_rope_backward", stack);
  coda_qknorm_rope_backward_args args = coda_qknorm_rope_backward_defaults();
  call.take("preact", args.preact);
  call.take("dy", args.dy);
  call.take("heads.q", args.heads.q);
  call.take("heads.k", args.heads.k);
  call.take("heads.v", args.heads.v);
  call.take("heads.head_dim", args.heads.head_dim);
  call.take("heads.table", args.heads.table);
  call.take("heads.position", args.heads.position);
  call.take("q_weight", args.q_weight);
  call.take("k_weight", args.k_weight);
  call.take("eps", args.eps);
  call.take("dz", args.dz);
  call.take("dweight", args.dweight);
  call.take("dot.zdz", args.dot.zdz);
  call.take("dot.udz", args.dot.udz);
  call.take("dot.u", args.dot.u);
  call.take("dot.c", args.dot.c);
  call.require("preact");
  args.on = call.target();
  call.run(coda_qknorm_rope_backward, args);
}

void cross_entropy_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("cross_entropy_backward", stack);
  coda_cross_entropy_backward_args args = coda_cross_entropy_backward_defaults();
  call.take("preact", args.preact);
  call.take("transform.scale", args.transform.scale);
  call.take("transform.cap", args.transform.cap);
  call.take("target", args.target);
  call.take("lse", args.lse);
  call.take("dloss", args.dloss);
  call.take("options.label_smoothing", args.options.label_smoothing);
  call.take("options.z_loss", args.options.z_loss);
  call.take("options.ignore_index", args.options.ignore_index);
  call.take("dz", args.dz);
  call.take("dot.zdz", args.dot.zdz);
  call.take("dot.udz", args.dot.udz);
  call.take("dot.u", args.dot.u);
  call.take("dot.c", args.dot.c);
  call.require("preact");
  args.on = call.target();
  call.run(coda_cross_entropy_backward, args);
}

void sum_rows(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("sum_rows", stack);
  coda_sum_rows_args args = coda_sum_rows_defaults();
  call.take("partial", args.partial);
  call.take("scale", args.scale);
  call.take("out", args.out);
  call.require("partial");
  args.on = call.target();
  call.run(coda_sum_rows, args);
}

void sum_columns(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("sum_columns", stack);
  coda_sum_columns_args args = coda_sum_columns_defaults();
  call.take("partial", args.partial);
  call.take("beta", args.beta);
  call.take("out", args.out);
  call.require("partial");
  args.on = call.target();
  call.run(coda_sum_columns, args);
}

void head_weight_gradient(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("head_weight_gradient", stack);
  coda_head_weight_gradient_args args = coda_head_weight_gradient_defaults();
  call.take("partial", args.partial);
  call.take("heads.q", args.heads.q);
  call.take("heads.k", args.heads.k);
  call.take("heads.v", args.heads.v);
  call.take("heads.head_dim", args.heads.head_dim);
  call.take("heads.table", args.heads.table);
  call.take("heads.position", args.heads.position);
  call.take("beta", args.beta);
  call.take("dq_weight", args.dq_weight);
  call.take("dk_weight", args.dk_weight);
  call.require("partial");
  args.on = call.target();
  call.run(coda_head_weight_gradient, args);
}

void embedding_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("embedding_backward", stack);
  coda_embedding_backward_args args = coda_embedding_backward_defaults();
  call.take("dx", args.dx);
  call.take("token", args.token);
  call.take("dtable", args.dtable);
  call.require("dx");
  args.on = call.target();
  call.run(coda_embedding_backward, args);
}

void cast(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("cast", stack);
  coda_cast_args args = coda_cast_defaults();
  call.take("in", args.in);
  call.take("out", args.out);
  call.require("in");
  args.on = call.target();
  call.run(coda_cast, args);
}

void squared_norm(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("squared_norm", stack);
  coda_squared_norm_args args = coda_squared_norm_defaults();
  call.take("x", args.x);
  call.take("beta", args.beta);
  call.take("out", args.out);
  call.require("x");
  args.on = call.target();
  call.run(coda_squared_norm, args);
}

void adamw(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("adamw", stack);
  coda_adamw_args args = coda_adamw_defaults();
  call.take("master", args.master);
  call.take("m", args.m);
  call.take("v", args.v);
  call.take("weight", args.weight);
  call.take("gradient", args.gradient);
  call.take("rate", args.rate);
  call.take("beta1", args.beta1);
  call.take("beta2", args.beta2);
  call.take("eps", args.eps);
  call.take("weight_decay", args.weight_decay);
  call.take("step", args.step);
  call.take("gradient_scale", args.gradient_scale);
  call.take("squared_norm", args.squared_norm);
  call.take("clip_norm", args.clip_norm);
  call.require("master");
  args.on = call.target();
  call.run(coda_adamw, args);
}

void block_pre(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("block_pre", stack);
  coda_block_pre_args args = coda_block_pre_defaults();
  call.take("table", args.table);
  call.take("token", args.token);
  call.take("next.input_norm", args.next.input_norm);
  call.take("next.qkv", args.next.qkv);
  call.take("next.q_norm", args.next.q_norm);
  call.take("next.k_norm", args.next.k_norm);
  call.take("heads.q", args.heads.q);
  call.take("heads.k", args.heads.k);
  call.take("heads.v", args.heads.v);
  call.take("heads.head_dim", args.heads.head_dim);
  call.take("heads.table", args.heads.table);
  call.take("heads.position", args.heads.position);
  call.take("eps", args.eps);
  call.take("head_eps", args.head_eps);
  call.take("x", args.x);
  call.take("rstd", args.rstd);
  call.take("qkv_preact", args.qkv_preact);
  call.take("qkv", args.qkv);
  call.require("table");
  args.on = call.target();
  args.workspace = call.workspace(coda_block_pre_workspace_bytes, shape_of(args));
  call.run(coda_block_pre, args);
}

void block(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("block", stack);
  coda_block_args args = coda_block_defaults();
  call.take("attended", args.attended);
  call.take("x", args.x);
  call.take("weights.out", args.weights.out);
  call.take("weights.post_norm", args.weights.post_norm);
  call.take("weights.gate_up", args.weights.gate_up);
  call.take("weights.down", args.weights.down);
  call.take("next.input_norm", args.next.input_norm);
  call.take("next.qkv", args.next.qkv);
  call.take("next.q_norm", args.next.q_norm);
  call.take("next.k_norm", args.next.k_norm);
  call.take("heads.q", args.heads.q);
  call.take("heads.k", args.heads.k);
  call.take("heads.v", args.heads.v);
  call.take("heads.head_dim", args.heads.head_dim);
  call.take("heads.table", args.heads.table);
  call.take("heads.position", args.heads.position);
  call.take("function", args.function, kGlu);
  call.take("eps", args.eps);
  call.take("head_eps", args.head_eps);
  call.take("x_mid", args.x_mid);
  call.take("rstd_mid", args.rstd_mid);
  call.take("preact", args.preact);
  call.take("x_next", args.x_next);
  call.take("rstd_next", args.rstd_next);
  call.take("qkv_preact", args.qkv_preact);
  call.take("qkv", args.qkv);
  call.require("attended");
  args.on = call.target();
  args.workspace = call.workspace(coda_block_workspace_bytes, shape_of(args));
  call.run(coda_block, args);
}

void block_post(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("block_post", stack);
  coda_block_post_args args = coda_block_post_defaults();
  call.take("attended", args.attended);
  call.take("x", args.x);
  call.take("weights.out", args.weights.out);
  call.take("weights.post_norm", args.weights.post_norm);
  call.take("weights.gate_up", args.weights.gate_up);
  call.take("weights.down", args.weights.down);
  call.take("head.final_norm", args.head.final_norm);
  call.take("head.head", args.head.head);
  call.take("function", args.function, kGlu);
  call.take("eps", args.eps);
  call.take("transform.scale", args.transform.scale);
  call.take("transform.cap", args.transform.cap);
  call.take("target", args.target);
  call.take("options.label_smoothing", args.options.label_smoothing);
  call.take("options.z_loss", args.options.z_loss);
  call.take("options.ignore_index", args.options.ignore_index);
  call.take("x_mid", args.x_mid);
  call.take("rstd_mid", args.rstd_mid);
  call.take("preact", args.preact);
  call.take("x_last", args.x_last);
  call.take("rstd_last", args.rstd_last);
  call.take("h", args.h);
  call.take("lse", args.lse);
  call.take("loss", args.loss);
  call.require("attended");
  args.on = call.target();
  args.workspace = call.workspace(coda_block_post_workspace_bytes, shape_of(args));
  call.run(coda_block_post, args);
}

void block_pre_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("block_pre_backward", stack);
  coda_block_pre_backward_args args = coda_block_pre_backward_defaults();
  call.take("token", args.token);
  call.take("x", args.x);
  call.take("rstd", args.rstd);
  call.take("qkv", args.qkv);
  call.take("qkv_preact", args.qkv_preact);
  call.take("dqkv", args.dqkv);
  call.take("dx_next", args.dx_next);
  call.take("next.input_norm", args.next.input_norm);
  call.take("next.qkv", args.next.qkv);
  call.take("next.q_norm", args.next.q_norm);
  call.take("next.k_norm", args.next.k_norm);
  call.take("heads.q", args.heads.q);
  call.take("heads.k", args.heads.k);
  call.take("heads.v", args.heads.v);
  call.take("heads.head_dim", args.heads.head_dim);
  call.take("heads.table", args.heads.table);
  call.take("heads.position", args.heads.position);
  call.take("head_eps", args.head_eps);
  call.take("gradients.input_norm", args.gradients.input_norm);
  call.take("gradients.qkv", args.gradients.qkv);
  call.take("gradients.q_norm", args.gradients.q_norm);
  call.take("gradients.k_norm", args.gradients.k_norm);
  call.take("dtable", args.dtable);
  call.take("beta", args.beta);
  call.take("dz", args.dz);
  call.take("dx", args.dx);
  call.require("x");
  args.on = call.target();
  args.workspace = call.workspace(coda_block_pre_backward_workspace_bytes, shape_of(args));
  call.run(coda_block_pre_backward, args);
}

void block_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("block_backward", stack);
  coda_block_backward_args args = coda_block_backward_defaults();
  call.take("attended", args.attended);
  call.take("x_mid", args.x_mid);
  call.take("rstd_mid", args.rstd_mid);
  call.take("preact", args.preact);
  call.take("x_next", args.x_next);
  call.take("rstd_next", args.rstd_next);
  call.take("qkv", args.qkv);
  call.take("qkv_preact", args.qkv_preact);
  call.take("dqkv", args.dqkv);
  call.take("dx_next", args.dx_next);
  call.take("weights.out", args.weights.out);
  call.take("weights.post_norm", args.weights.post_norm);
  call.take("weights.gate_up", args.weights.gate_up);
  call.take("weights.down", args.weights.down);
  call.take("next.input_norm", args.next.input_norm);
  call.take("next.qkv", args.next.qkv);
  call.take("next.q_norm", args.next.q_norm);
  call.take("next.k_norm", args.next.k_norm);
  call.take("heads.q", args.heads.q);
  call.take("heads.k", args.heads.k);
  call.take("heads.v", args.heads.v);
  call.take("heads.head_dim", args.heads.head_dim);
  call.take("heads.table", args.heads.table);
  call.take("heads.position", args.heads.position);
  call.take("function", args.function, kGlu);
  call.take("head_eps", args.head_eps);
  call.take("gradients.out", args.gradients.out);
  call.take("gradients.post_norm", args.gradients.post_norm);
  call.take("gradients.gate_up", args.gradients.gate_up);
  call.take("gradients.down", args.gradients.down);
  call.take("next_gradients.input_norm", args.next_gradients.input_norm);
  call.take("next_gradients.qkv", args.next_gradients.qkv);
  call.take("next_gradients.q_norm", args.next_gradients.q_norm);
  call.take("next_gradients.k_norm", args.next_gradients.k_norm);
  call.take("beta", args.beta);
  call.take("dz", args.dz);
  call.take("dpreact", args.dpreact);
  call.take("dx", args.dx);
  call.take("dattended", args.dattended);
  call.require("attended");
  args.on = call.target();
  args.workspace = call.workspace(coda_block_backward_workspace_bytes, shape_of(args));
  call.run(coda_block_backward, args);
}

void block_post_backward(StableIValue* stack, std::uint64_t, std::uint64_t) {
  Call call("block_post_backward", stack);
  coda_block_post_backward_args args = coda_block_post_backward_defaults();
  call.take("attended", args.attended);
  call.take("x_mid", args.x_mid);
  call.take("rstd_mid", args.rstd_mid);
  call.take("preact", args.preact);
  call.take("x_last", args.x_last);
  call.take("rstd_last", args.rstd_last);
  call.take("h", args.h);
  call.take("dloss", args.dloss);
  call.take("weights.out", args.weights.out);
  call.take("weights.post_norm", args.weights.post_norm);
  call.take("weights.gate_up", args.weights.gate_up);
  call.take("weights.down", args.weights.down);
  call.take("head.final_norm", args.head.final_norm);
  call.take("head.head", args.head.head);
  call.take("function", args.function, kGlu);
  call.take("transform.scale", args.transform.scale);
  call.take("transform.cap", args.transform.cap);
  call.take("target", args.target);
  call.take("options.label_smoothing", args.options.label_smoothing);
  call.take("options.z_loss", args.options.z_loss);
  call.take("options.ignore_index", args.options.ignore_index);
  call.take("logit_rows", args.logit_rows);
  call.take("gradients.out", args.gradients.out);
  call.take("gradients.post_norm", args.gradients.post_norm);
  call.take("gradients.gate_up", args.gradients.gate_up);
  call.take("gradients.down", args.gradients.down);
  call.take("head_gradients.final_norm", args.head_gradients.final_norm);
  call.take("head_gradients.head", args.head_gradients.head);
  call.take("beta", args.beta);
  call.take("lse", args.lse);
  call.take("loss", args.loss);
  call.take("dpreact", args.dpreact);
  call.take("dx", args.dx);
  call.take("dattended", args.dattended);
  call.require("attended");
  args.on = call.target();
  args.workspace = call.workspace(coda_block_post_backward_workspace_bytes, shape_of(args));
  call.run(coda_block_post_backward, args);
}

}  // namespace
}  // namespace coda::pytorch

STABLE_TORCH_LIBRARY_FRAGMENT(coda, m) {
  m.def(
      "gemm(Tensor? a=None, Tensor? b=None, str layout=\"nt\", float alpha=1.0, float beta=0.0, "
      "Tensor? c=None, Tensor? bias=None, str activation=\"identity\", Tensor(a!)? preact=None, "
      "Tensor(b!)? out=None) -> ()");
  m.def(
      "gemm_residual(Tensor? a=None, Tensor? b=None, str layout=\"nt\", Tensor? residual=None, "
      "Tensor? weight=None, Tensor(a!)? x=None, Tensor(b!)? h=None, Tensor(c!)? sum_sq=None, "
      "Tensor(d!)? mean=None, Tensor(e!)? m2=None) -> ()");
  m.def(
      "embedding(Tensor? table=None, Tensor? token=None, Tensor? weight=None, Tensor(a!)? x=None, "
      "Tensor(b!)? h=None, Tensor(c!)? sum_sq=None, Tensor(d!)? mean=None, Tensor(e!)? m2=None) -> ()");
  m.def("rms_finalize(Tensor? sum_sq=None, int n=0, float eps=1e-05, Tensor(a!)? rstd=None) -> ()");
  m.def(
      "layernorm_finalize(Tensor? tile_mean=None, Tensor? tile_m2=None, int n=0, float eps=1e-05, "
      "Tensor(a!)? mean=None, Tensor(b!)? rstd=None) -> ()");
  m.def(
      "gemm_norm(Tensor? a=None, Tensor? b=None, str layout=\"nt\", Tensor? norm_rstd=None, "
      "Tensor? norm_mean=None, Tensor? norm_u=None, Tensor? norm_c=None, str activation=\"identity\", "
      "Tensor(a!)? preact=None, Tensor(b!)? out=None) -> ()");
  m.def(
      "gemm_norm_glu(Tensor? a=None, Tensor? b=None, str layout=\"nt\", Tensor? norm_rstd=None, "
      "Tensor? norm_mean=None, Tensor? norm_u=None, Tensor? norm_c=None, str function=\"swiglu\", "
      "Tensor(a!)? preact=None, Tensor(b!)? out=None) -> ()");
  m.def(
      "gemm_norm_rope(Tensor? a=None, Tensor? b=None, str layout=\"nt\", Tensor? norm_rstd=None, "
      "Tensor? norm_mean=None, Tensor? norm_u=None, Tensor? norm_c=None, int heads_q=0, int heads_k=0, "
      "int heads_v=0, int heads_head_dim=0, Tensor? heads_table=None, Tensor? heads_position=None, "
      "Tensor(a!)? out=None) -> ()");
  m.def(
      "gemm_norm_rotate(Tensor? a=None, Tensor? b=None, str layout=\"nt\", Tensor? norm_rstd=None, "
      "Tensor? norm_mean=None, Tensor? norm_u=None, Tensor? norm_c=None, Tensor? angle=None, "
      "Tensor(a!)? preact=None, Tensor(b!)? out=None) -> ()");
  m.def(
      "gemm_norm_qknorm_rope(Tensor? a=None, Tensor? b=None, str layout=\"nt\", Tensor? norm_rstd=None, "
      "Tensor? norm_mean=None, Tensor? norm_u=None, Tensor? norm_c=None, int heads_q=0, int heads_k=0, "
      "int heads_v=0, int heads_head_dim=0, Tensor? heads_table=None, Tensor? heads_position=None, "
      "Tensor? q_weight=None, Tensor? k_weight=None, float eps=1e-06, Tensor(a!)? preact=None, "
      "Tensor(b!)? out=None) -> ()");
  m.def(
      "gemm_lse(Tensor? a=None, Tensor? b=None, str layout=\"nt\", Tensor? norm_rstd=None, "
      "Tensor? norm_mean=None, Tensor? norm_u=None, Tensor? norm_c=None, float transform_scale=1.0, "
      "float transform_cap=0.0, Tensor? target=None, int ignore_index=-100, int first_column=0, "
      "int vocabulary=0, Tensor(a!)? preact=None, Tensor(b!)? logits=None, Tensor(c!)? max=None, "
      "Tensor(d!)? sum=None, Tensor(e!)? logit_sum=None, Tensor(f!)? target_logit=None) -> ()");
  m.def(
      "lse_finalize(Tensor? max=None, Tensor? sum=None, Tensor? logit_sum=None, Tensor? target=None, "
      "Tensor? target_logit=None, int vocabulary=0, float options_label_smoothing=0.0, "
      "float options_z_loss=0.0, int options_ignore_index=-100, Tensor(a!)? lse=None, "
      "Tensor(b!)? loss=None) -> ()");
  m.def(
      "linear_cross_entropy(Tensor? a=None, Tensor? weight=None, Tensor? norm_rstd=None, "
      "Tensor? norm_mean=None, Tensor? norm_u=None, Tensor? norm_c=None, float transform_scale=1.0, "
      "float transform_cap=0.0, Tensor? target=None, float options_label_smoothing=0.0, "
      "float options_z_loss=0.0, int options_ignore_index=-100, Tensor(a!)? lse=None, "
      "Tensor(b!)? loss=None) -> ()");
  m.def(
      "linear_cross_entropy_backward(Tensor? a=None, Tensor? weight=None, Tensor? h=None, "
      "Tensor? norm_rstd=None, Tensor? norm_mean=None, Tensor? norm_u=None, Tensor? norm_c=None, "
      "float transform_scale=1.0, float transform_cap=0.0, Tensor? target=None, Tensor? lse=None, "
      "Tensor? dloss=None, float options_label_smoothing=0.0, float options_z_loss=0.0, "
      "int options_ignore_index=-100, int chunk=4096, Tensor(a!)? da=None, Tensor(b!)? dweight=None, "
      "Tensor(c!)? row_dot=None, Tensor(d!)? row_udz=None) -> ()");
  m.def(
      "gemm_rms_backward(Tensor? a=None, Tensor? b=None, str layout=\"nn\", Tensor? x=None, "
      "Tensor? dx_in=None, Tensor? rstd=None, Tensor? row_term=None, Tensor? weight=None, "
      "Tensor(a!)? dx=None, Tensor(b!)? h=None, Tensor(c!)? dweight=None) -> ()");
  m.def(
      "gemm_layernorm_backward(Tensor? a=None, Tensor? b=None, str layout=\"nn\", Tensor? x=None, "
      "Tensor? dx_in=None, Tensor? rstd=None, Tensor? mean=None, Tensor? zdz=None, Tensor? udz=None, "
      "Tensor? weight=None, Tensor? bias=None, Tensor(a!)? dx=None, Tensor(b!)? h=None, "
      "Tensor(c!)? dweight=None, Tensor(d!)? dbias=None) -> ()");
  m.def(
      "gemm_glu_backward(Tensor? a=None, Tensor? b=None, str layout=\"nn\", str function=\"swiglu\", "
      "Tensor? preact=None, Tensor(a!)? dpreact=None, Tensor(b!)? out=None, Tensor(c!)? dot_zdz=None, "
      "Tensor(d!)? dot_udz=None, Tensor? dot_u=None, Tensor? dot_c=None) -> ()");
  m.def(
      "gemm_activation_backward(Tensor? a=None, Tensor? b=None, str layout=\"nn\", str activation=\"silu\", "
      "Tensor? preact=None, Tensor(a!)? dpreact=None, Tensor(b!)? out=None, Tensor(c!)? dot_zdz=None, "
      "Tensor(d!)? dot_udz=None, Tensor? dot_u=None, Tensor? dot_c=None) -> ()");
  m.def(
      "rope_backward(Tensor? y=None, Tensor? dy=None, int heads_q=0, int heads_k=0, int heads_v=0, "
      "int heads_head_dim=0, Tensor? heads_table=None, Tensor? heads_position=None, Tensor(a!)? dz=None, "
      "Tensor(b!)? dot_zdz=None, Tensor(c!)? dot_udz=None, Tensor? dot_u=None, Tensor? dot_c=None) -> ()");
  m.def(
      "qknorm_rope_backward(Tensor? preact=None, Tensor? dy=None, int heads_q=0, int heads_k=0, "
      "int heads_v=0, int heads_head_dim=0, Tensor? heads_table=None, Tensor? heads_position=None, "
      "Tensor? q_weight=None, Tensor? k_weight=None, float eps=1e-06, Tensor(a!)? dz=None, "
      "Tensor(b!)? dweight=None, Tensor(c!)? dot_zdz=None, Tensor(d!)? dot_udz=None, Tensor? dot_u=None, "
      "Tensor? dot_c=None) -> ()");
  m.def(
      "cross_entropy_backward(Tensor? preact=None, float transform_scale=1.0, float transform_cap=0.0, "
      "Tensor? target=None, Tensor? lse=None, Tensor? dloss=None, float options_label_smoothing=0.0, "
      "float options_z_loss=0.0, int options_ignore_index=-100, Tensor(a!)? dz=None, "
      "Tensor(b!)? dot_zdz=None, Tensor(c!)? dot_udz=None, Tensor? dot_u=None, Tensor? dot_c=None) -> ()");
  m.def("sum_rows(Tensor? partial=None, float scale=1.0, Tensor(a!)? out=None) -> ()");
  m.def("sum_columns(Tensor? partial=None, float beta=0.0, Tensor(a!)? out=None) -> ()");
  m.def(
      "head_weight_gradient(Tensor? partial=None, int heads_q=0, int heads_k=0, int heads_v=0, "
      "int heads_head_dim=0, Tensor? heads_table=None, Tensor? heads_position=None, float beta=0.0, "
      "Tensor(a!)? dq_weight=None, Tensor(b!)? dk_weight=None) -> ()");
  m.def("embedding_backward(Tensor? dx=None, Tensor? token=None, Tensor(a!)? dtable=None) -> ()");
  m.def("cast(Tensor? input=None, Tensor(a!)? out=None) -> ()");
  m.def("squared_norm(Tensor? x=None, float beta=0.0, Tensor(a!)? out=None) -> ()");
  m.def(
      "adamw(Tensor(a!)? master=None, Tensor(b!)? m=None, Tensor(c!)? v=None, Tensor(d!)? weight=None, "
      "Tensor? gradient=None, float rate=0.0, float beta1=0.9, float beta2=0.95, float eps=1e-08, "
      "float weight_decay=0.0, int step=1, float gradient_scale=1.0, Tensor? squared_norm=None, "
      "float clip_norm=0.0) -> ()");
  m.def(
      "block_pre(Tensor? table=None, Tensor? token=None, Tensor? next_input_norm=None, "
      "Tensor? next_qkv=None, Tensor? next_q_norm=None, Tensor? next_k_norm=None, int heads_q=0, "
      "int heads_k=0, int heads_v=0, int heads_head_dim=0, Tensor? heads_table=None, "
      "Tensor? heads_position=None, float eps=1e-05, float head_eps=1e-06, Tensor(a!)? x=None, "
      "Tensor(b!)? rstd=None, Tensor(c!)? qkv_preact=None, Tensor(d!)? qkv=None) -> ()");
  m.def(
      "block(Tensor? attended=None, Tensor? x=None, Tensor? weights_out=None, "
      "Tensor? weights_post_norm=None, Tensor? weights_gate_up=None, Tensor? weights_down=None, "
      "Tensor? next_input_norm=None, Tensor? next_qkv=None, Tensor? next_q_norm=None, "
      "Tensor? next_k_norm=None, int heads_q=0, int heads_k=0, int heads_v=0, int heads_head_dim=0, "
      "Tensor? heads_table=None, Tensor? heads_position=None, str function=\"swiglu\", float eps=1e-05, "
      "float head_eps=1e-06, Tensor(a!)? x_mid=None, Tensor(b!)? rstd_mid=None, Tensor(c!)? preact=None, "
      "Tensor(d!)? x_next=None, Tensor(e!)? rstd_next=None, Tensor(f!)? qkv_preact=None, "
      "Tensor(g!)? qkv=None) -> ()");
  m.def(
      "block_post(Tensor? attended=None, Tensor? x=None, Tensor? weights_out=None, "
      "Tensor? weights_post_norm=None, Tensor? weights_gate_up=None, Tensor? weights_down=None, "
      "Tensor? head_final_norm=None, Tensor? head_head=None, str function=\"swiglu\", float eps=1e-05, "
      "float transform_scale=1.0, float transform_cap=0.0, Tensor? target=None, "
      "float options_label_smoothing=0.0, float options_z_loss=0.0, int options_ignore_index=-100, "
      "Tensor(a!)? x_mid=None, Tensor(b!)? rstd_mid=None, Tensor(c!)? preact=None, "
      "Tensor(d!)? x_last=None, Tensor(e!)? rstd_last=None, Tensor(f!)? h=None, Tensor(g!)? lse=None, "
      "Tensor(h!)? loss=None) -> ()");
  m.def(
      "block_pre_backward(Tensor? token=None, Tensor? x=None, Tensor? rstd=None, Tensor? qkv=None, "
      "Tensor? qkv_preact=None, Tensor? dqkv=None, Tensor? dx_next=None, Tensor? next_input_norm=None, "
      "Tensor? next_qkv=None, Tensor? next_q_norm=None, Tensor? next_k_norm=None, int heads_q=0, "
      "int heads_k=0, int heads_v=0, int heads_head_dim=0, Tensor? heads_table=None, "
      "Tensor? heads_position=None, float head_eps=1e-06, Tensor(a!)? gradients_input_norm=None, "
      "Tensor(b!)? gradients_qkv=None, Tensor(c!)? gradients_q_norm=None, "
      "Tensor(d!)? gradients_k_norm=None, Tensor(e!)? dtable=None, float beta=1.0, Tensor(f!)? dz=None, "
      "Tensor(g!)? dx=None) -> ()");
  m.def(
      "block_backward(Tensor? attended=None, Tensor? x_mid=None, Tensor? rstd_mid=None, "
      "Tensor? preact=None, Tensor? x_next=None, Tensor? rstd_next=None, Tensor? qkv=None, "
      "Tensor? qkv_preact=None, Tensor? dqkv=None, Tensor? dx_next=None, Tensor? weights_out=None, "
      "Tensor? weights_post_norm=None, Tensor? weights_gate_up=None, Tensor? weights_down=None, "
      "Tensor? next_input_norm=None, Tensor? next_qkv=None, Tensor? next_q_norm=None, "
      "Tensor? next_k_norm=None, int heads_q=0, int heads_k=0, int heads_v=0, int heads_head_dim=0, "
      "Tensor? heads_table=None, Tensor? heads_position=None, str function=\"swiglu\", float head_eps=1e-06, "
      "Tensor(a!)? gradients_out=None, Tensor(b!)? gradients_post_norm=None, "
      "Tensor(c!)? gradients_gate_up=None, Tensor(d!)? gradients_down=None, "
      "Tensor(e!)? next_gradients_input_norm=None, Tensor(f!)? next_gradients_qkv=None, "
      "Tensor(g!)? next_gradients_q_norm=None, Tensor(h!)? next_gradients_k_norm=None, float beta=1.0, "
      "Tensor(i!)? dz=None, Tensor(j!)? dpreact=None, Tensor(k!)? dx=None, "
      "Tensor(l!)? dattended=None) -> ()");
  m.def(
      "block_post_backward(Tensor? attended=None, Tensor? x_mid=None, Tensor? rstd_mid=None, "
      "Tensor? preact=None, Tensor? x_last=None, Tensor? rstd_last=None, Tensor(a!)? h=None, "
      "Tensor? dloss=None, Tensor? weights_out=None, Tensor? weights_post_norm=None, "
      "Tensor? weights_gate_up=None, Tensor? weights_down=None, Tensor? head_final_norm=None, "
      "Tensor? head_head=None, str function=\"swiglu\", float transform_scale=1.0, float transform_cap=0.0, "
      "Tensor? target=None, float options_label_smoothing=0.0, float options_z_loss=0.0, "
      "int options_ignore_index=-100, int logit_rows=0, Tensor(b!)? gradients_out=None, "
      "Tensor(c!)? gradients_post_norm=None, Tensor(d!)? gradients_gate_up=None, "
      "Tensor(e!)? gradients_down=None, Tensor(f!)? head_gradients_final_norm=None, "
      "Tensor(g!)? head_gradients_head=None, float beta=1.0, Tensor(h!)? lse=None, Tensor(i!)? loss=None, "
      "Tensor(j!)? dpreact=None, Tensor(k!)? dx=None, Tensor(l!)? dattended=None) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(coda, CompositeExplicitAutograd, m) {
  m.impl("gemm", &coda::pytorch::gemm);
  m.impl("gemm_residual", &coda::pytorch::gemm_residual);
  m.impl("embedding", &coda::pytorch::embedding);
  m.impl("rms_finalize", &coda::pytorch::rms_finalize);
  m.impl("layernorm_finalize", &coda::pytorch::layernorm_finalize);
  m.impl("gemm_norm", &coda::pytorch::gemm_norm);
  m.impl("gemm_norm_glu", &coda::pytorch::gemm_norm_glu);
  m.impl("gemm_norm_rope", &coda::pytorch::gemm_norm_rope);
  m.impl("gemm_norm_rotate", &coda::pytorch::gemm_norm_rotate);
  m.impl("gemm_norm_qknorm_rope", &coda::pytorch::gemm_norm_qknorm_rope);
  m.impl("gemm_lse", &coda::pytorch::gemm_lse);
  m.impl("lse_finalize", &coda::pytorch::lse_finalize);
  m.impl("linear_cross_entropy", &coda::pytorch::linear_cross_entropy);
  m.impl("linear_cross_entropy_backward", &coda::pytorch::linear_cross_entropy_backward);
  m.impl("gemm_rms_backward", &coda::pytorch::gemm_rms_backward);
  m.impl("gemm_layernorm_backward", &coda::pytorch::gemm_layernorm_backward);
  m.impl("gemm_glu_backward", &coda::pytorch::gemm_glu_backward);
  m.impl("gemm_activation_backward", &coda::pytorch::gemm_activation_backward);
  m.impl("rope_backward", &coda::pytorch::rope_backward);
  m.impl("qknorm_rope_backward", &coda::pytorch::qknorm_rope_backward);
  m.impl("cross_entropy_backward", &coda::pytorch::cross_entropy_backward);
  m.impl("sum_rows", &coda::pytorch::sum_rows);
  m.impl("sum_columns", &coda::pytorch::sum_columns);
  m.impl("head_weight_gradient", &coda::pytorch::head_weight_gradient);
  m.impl("embedding_backward", &coda::pytorch::embedding_backward);
  m.impl("cast", &coda::pytorch::cast);
  m.impl("squared_norm", &coda::pytorch::squared_norm);
  m.impl("adamw", &coda::pytorch::adamw);
  m.impl("block_pre", &coda::pytorch::block_pre);
  m.impl("block", &coda::pytorch::block);
  m.impl("block_post", &coda::pytorch::block_post);
  m.impl("block_pre_backward", &coda::pytorch::block_pre_backward);
  m.impl("block_backward", &coda::pytorch::block_backward);
  m.impl("block_post_backward", &coda::pytorch::block_post_backward);
}
