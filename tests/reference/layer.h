// A layer between two attentions, forward and backward, as a composition of the reference's programs.
#pragma once

#include <cstdint>

#include "tests/reference/backward.h"
#include "tests/reference/forward.h"
#include "tests/reference/loss.h"

namespace coda::reference {

struct LayerWeights {
  Mat out;                       // (H, Q)
  Vec post_norm;                 // (H)
  Mat gate_up, down;             // (2F, H), (H, F)
  Vec next_norm;                 // (H): the next layer's input norm, or the final norm
  Mat qkv;                       // (W, H)
  Vec q_norm = {}, k_norm = {};  // (head_dim) or empty
};

struct LayerOptions {
  Activation gate = Activation::silu;
  Heads heads = {};
  RopeTable table = {};
  Positions position = {};
  double eps = 1e-5, head_eps = 1e-6;
};

/// Out-projection to the statistics of the next stream.
struct FeedForward {
  Mat x_mid;
  Vec rstd_mid;
  Mat preact, y;
  Mat x_out;
  Vec rstd_out;
  Mat h;  // x_out times the next norm's weight
};

inline FeedForward feed_forward(const Mat& attended, const Mat& x, const LayerWeights& w, const LayerOptions& o,
                                Round r = {}) {
  const std::int64_t hidden = x.cols;
  Residual middle = gemm_residual_norm({attended, w.out}, x, w.post_norm, hidden, nullptr, r);
  FeedForward f;
  f.rstd_mid = rms_finalize(middle.sum_squares, hidden, o.eps, r);
  PreactAndOutput glu = gemm_norm_gated({middle.h, w.gate_up}, NormScale::rms(f.rstd_mid), o.gate, nullptr, r);
  Residual last = gemm_residual_norm({glu.y, w.down}, middle.x, w.next_norm, hidden, nullptr, r);
  f.rstd_out = rms_finalize(last.sum_squares, hidden, o.eps, r);
  f.x_mid = std::move(middle.x), f.preact = std::move(glu.z), f.y = std::move(glu.y);
  f.x_out = std::move(last.x), f.h = std::move(last.h);
  return f;
}

/// QKV with its rotation: z before the heads' norms and the rotation, y after.
inline PreactAndOutput project(const Mat& h, const Vec& rstd, const LayerWeights& w, const LayerOptions& o,
                               Round r = {}) {
  const NormScale scale = NormScale::rms(rstd);
  if (w.q_norm.empty()) return gemm_norm_rope({h, w.qkv}, scale, o.table, o.position, o.heads, nullptr, r);
  return gemm_norm_qknorm_rope({h, w.qkv}, scale, {w.q_norm, w.k_norm, o.head_eps}, o.table, o.position, o.heads,
                               nullptr, r);
}

struct ProjectGradient {
  Mat dz, dx;
  Vec norm;  // gradients of the weights
  Mat qkv;
  Vec q_norm = {}, k_norm = {};
};

/// `dx_next` is the gradient that reaches the stream x otherwise.
inline ProjectGradient project_backward(const Mat& dqkv, const PreactAndOutput& qkv, const Mat& x, const Vec& rstd,
                                        const Mat& dx_next, const LayerWeights& w, const LayerOptions& o,
                                        Round r = {}) {
  const std::int64_t m = x.rows;
  ProjectGradient g;
  if (w.q_norm.empty()) {
    g.dz = rope_backward(dqkv, qkv.y, o.table, o.position, o.heads, r).dz;
  } else {
    RopeGradient heads = qknorm_rope_backward(dqkv, qkv.z, {w.q_norm, w.k_norm, o.head_eps}, o.table, o.position,
                                              o.heads, m, nullptr, r);
    g.dz = std::move(heads.dz), g.q_norm = column_sums(heads.dwq, r), g.k_norm = column_sums(heads.dwk, r);
  }
  const Mat dh = product({g.dz, w.qkv, Layout::ab}, r);
  NormGradient n = rms_backward(dh, x, rstd, w.next_norm, &dx_next, rms_row_term(dh, x, rstd, w.next_norm, r), m, r);
  g.dx = std::move(n.dx), g.norm = column_sums(n.dw, r);
  g.qkv = product({g.dz, n.h, Layout::atb}, r);
  return g;
}

struct FeedForwardGradient {
  Mat dpreact, dx, dattended;
  Mat out;  // gradients of the weights
  Vec post_norm;
  Mat gate_up, down;
};

/// dx_out is the gradient of x_out.
inline FeedForwardGradient feed_forward_backward(const Mat& dx_out, const Mat& attended, const FeedForward& f,
                                                 const LayerWeights& w, const LayerOptions& o, Round r = {}) {
  FeedForwardGradient g;
  ActivationGradient glu = gemm_gated_backward({dx_out, w.down, Layout::ab}, f.preact, o.gate, w.down.cols, nullptr, r);
  g.down = product({dx_out, glu.y, Layout::atb}, r);
  const Mat dh = product({glu.dz, w.gate_up, Layout::ab}, r);
  NormGradient n = rms_backward(dh, f.x_mid, f.rstd_mid, w.post_norm, &dx_out,
                                rms_row_term(dh, f.x_mid, f.rstd_mid, w.post_norm, r), dh.rows, r);
  g.gate_up = product({glu.dz, n.h, Layout::atb}, r);
  g.post_norm = column_sums(n.dw, r);
  g.dpreact = std::move(glu.dz), g.dx = std::move(n.dx);
  g.dattended = product({g.dx, w.out, Layout::ab}, r);
  g.out = product({g.dx, attended, Layout::atb}, r);
  return g;
}

struct HeadGradient {
  Loss result;
  Mat dx;
  Vec norm;  // gradients of the weights
  Mat head;
};

/// Loss of each row, and the gradients of its sum weighted by dloss.
inline HeadGradient head_backward(const FeedForward& f, const Mat& head, const Vec& norm, const Targets& targets,
                                  const Vec& dloss, const LossOptions& o = {}, Round r = {}) {
  GemmLse forward = gemm_lse({f.h, head}, NormScale::rms(f.rstd_out), targets, head.rows, o, r);
  const Mat dz = cross_entropy_backward(forward.l, forward.result.lse, targets, dloss, o, r).dz;
  const Mat dh = product({dz, head, Layout::ab}, r);
  NormGradient n =
      rms_backward(dh, f.x_out, f.rstd_out, norm, nullptr, rms_row_term(dh, f.x_out, f.rstd_out, norm, r), dh.rows, r);
  return {std::move(forward.result), std::move(n.dx), column_sums(n.dw, r), product({dz, n.h, Layout::atb}, r)};
}

}  // namespace coda::reference
