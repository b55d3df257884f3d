// Building blocks of the operations: from checked run-time views to the ports of a program.
#pragma once

#include "coda/backend/cpu/gemm.h"
#include "coda/backend/cpu/memory.h"
#include "coda/backend/sm90/run.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/ops/check.h"
#include "coda/programs/norm.h"

namespace coda::ops {

// Shorthand for the ports; absent views become absent ports.
template <class T>
const T* pointer(const ConstVector& v) {
  return static_cast<const T*>(v.data);
}
template <class T>
T* pointer(const Vector& v) {
  return static_cast<T*>(v.data);
}
inline IndexVector index_vector(const ConstVector& v) {
  if (v.dtype == DType::int64) return IndexVector(pointer<std::int64_t>(v));
  return IndexVector(pointer<std::int32_t>(v));
}

enum class NormKind { rms, layernorm };

/// Whether a view is given where these are its elements: that of none may be null.
template <class View>
bool given(const View& view, std::int64_t elements) {
  return view || elements == 0;
}

inline NormKind check_norm(Check& check, const Norm& norm, const Product& p) {
  check.optional_vector("norm.rstd", norm.rstd, p.m, p.stats);
  check.optional_vector("norm.mean", norm.mean, p.m, p.stats);
  check.optional_vector("norm.u", norm.u, p.n, p.stats);
  check.optional_vector("norm.c", norm.c, p.n, p.stats);
  check.operand("norm.rstd", norm.rstd);
  check.operand("norm.mean", norm.mean);
  check.operand("norm.u", norm.u);
  check.operand("norm.c", norm.c);
  if (!norm.mean && !norm.u && !norm.c) return NormKind::rms;
  check.require(given(norm.rstd, p.m) && given(norm.mean, p.m) && given(norm.u, p.n), "norm",
                "expected rstd alone (RMSNorm) or rstd, mean and u, with or without c (LayerNorm), got another mix");
  return NormKind::layernorm;
}

inline NormKind check_dot(Check& check, const NormDot& dot, std::int64_t m, std::int64_t tiles, std::int64_t width,
                          DType stats) {
  check.optional_matrix("dot.zdz", dot.zdz, m, tiles, stats);
  check.optional_matrix("dot.udz", dot.udz, m, tiles, stats);
  check.optional_vector("dot.u", dot.u, width, stats);
  check.optional_vector("dot.c", dot.c, width, stats);
  check.operand("dot.u", dot.u);
  check.operand("dot.c", dot.c);
  check.output("dot.zdz", dot.zdz);
  check.output("dot.udz", dot.udz);
  if (!dot.udz && !dot.u && !dot.c) return NormKind::rms;
  const std::int64_t partial = m * tiles;
  check.require(given(dot.zdz, partial) && given(dot.udz, partial) && given(dot.u, width), "dot",
                "expected zdz alone (RMSNorm) or zdz, udz and u, with or without c (LayerNorm), got another mix");
  return NormKind::layernorm;
}

// A norm's struct of ports, and that of the sums for its backward.
template <class T>
RmsScale<T> rms_scale(const Norm& n) {
  return {.rstd = {pointer<acc_t<T>>(n.rstd)}};
}
template <class T>
LayerNormScale<T> layernorm_scale(const Norm& n) {
  using Acc = acc_t<T>;
  return {.rstd = {pointer<Acc>(n.rstd)},
          .mean = {pointer<Acc>(n.mean), 0},
          .u = {pointer<Acc>(n.u), 0},
          .c = {pointer<Acc>(n.c), 0}};
}
template <class T, Width W>
RmsDot<T, W> rms_dot(const NormDot& d) {
  return {.zdz = d.zdz.as<acc_t<T>>()};
}
template <class T, Width W>
LayerNormDot<T, W> layernorm_dot(const NormDot& d) {
  using Acc = acc_t<T>;
  return {.u = {pointer<Acc>(d.u), 0}, .c = {pointer<Acc>(d.c), 0}, .zdz = d.zdz.as<Acc>(), .udz = d.udz.as<Acc>()};
}
template <class T, class F>
void with_norm(NormKind kind, const Norm& n, F&& f) {
  kind == NormKind::rms ? f(rms_scale<T>(n)) : f(layernorm_scale<T>(n));
}
template <class T, Width W, class F>
void with_dot(NormKind kind, const NormDot& d, F&& f) {
  kind == NormKind::rms ? f(rms_dot<T, W>(d)) : f(layernorm_dot<T, W>(d));
}
// Both at once: a program with the norm of one kind and the sums of the other does not exist on Hopper.
template <class T, Width W, class F>
void with_norm_and_dot(NormKind kind, const Norm& n, const NormDot& d, F&& f) {
  kind == NormKind::rms ? f(rms_scale<T>(n), rms_dot<T, W>(d)) : f(layernorm_scale<T>(n), layernorm_dot<T, W>(d));
}

template <class F>
void with_activation(const Check& check, Activation a, F&& f) {
  switch (a) {
    case Activation::identity:
      return f(coda::Identity{});
    case Activation::silu:
      return f(coda::Silu{});
    case Activation::gelu_erf:
      return f(coda::GeluErf{});
    case Activation::gelu_tanh:
      return f(coda::GeluTanh{});
    case Activation::relu:
      return f(coda::Relu{});
    case Activation::relu_squared:
      return f(coda::ReluSquared{});
  }
  check.fail("activation", "expected one of the enumerators, got {}", static_cast<int>(a));
}
template <class F>
void with_glu(const Check& check, Glu g, F&& f) {
  switch (g) {
    case Glu::swiglu:
      return f(coda::SwiGlu{});
    case Glu::geglu_erf:
      return f(coda::GeGluErf{});
    case Glu::geglu_tanh:
      return f(coda::GeGluTanh{});
    case Glu::reglu:
      return f(coda::ReGlu{});
  }
  check.fail("function", "expected one of the enumerators, got {}", static_cast<int>(g));
}

// Statistics of the residual stream, and which norm they are for.
inline NormKind check_stats(Check& check, const Matrix& sum_sq, const Matrix& mean, const Matrix& m2, std::int64_t m,
                            std::int64_t tiles, DType stats) {
  check.optional_matrix("sum_sq", sum_sq, m, tiles, stats);
  check.optional_matrix("mean", mean, m, tiles, stats);
  check.optional_matrix("m2", m2, m, tiles, stats);
  check.output("sum_sq", sum_sq);
  check.output("mean", mean);
  check.output("m2", m2);
  check.require(static_cast<bool>(mean) == static_cast<bool>(m2) && !(mean && sum_sq), "sum_sq, mean, m2",
                "expected sum_sq (RMSNorm), or mean and m2 (LayerNorm), or none, got another mix");
  if (mean) check.same_pitch("m2", m2, "mean", mean);
  return mean ? NormKind::layernorm : NormKind::rms;
}
template <class T, class F>
void with_stats(NormKind kind, const Matrix& sum_sq, const Matrix& mean, const Matrix& m2, F&& f) {
  using Acc = acc_t<T>;
  if (kind == NormKind::rms) f(SumOfSquares<T>{.sum = sum_sq.as<Acc>()});
  else f(Moments<T>{.moments = MomentsN<Acc>(mean.as<Acc>(), m2.as<Acc>())});
}

// Whether the library has Hopper kernels for products of T.
#if !defined(CODA_SM90)
template <class T>
inline constexpr bool kOnSm90 = false;
#elif defined(CODA_SM90_REDUCED)
template <class T>
inline constexpr bool kOnSm90 = std::is_same_v<T, bf16>;
#else
template <class T>
inline constexpr bool kOnSm90 = size_of(dtype_of<T>) == 2;
#endif
template <class T>
[[noreturn]] void refuse_sm90(const Check& check) {
#if defined(CODA_SM90)
  check.fail(Status::unsupported, "on.backend", "expected cpu for {}: the sm90 backend has no kernels for it, got sm90",
             coda::name_of(dtype_of<T>));
#else
  check.fail(Status::unsupported, "on.backend", "expected cpu: this library was built without CUDA, got sm90");
#endif
}

// For what enqueues other work ahead of its first program: that there are kernels of it for products of t.
inline void check_kernels(const Check& check, Backend backend, DType t) {
  with_real(t, [&]<class T>(T) {
    if constexpr (!kOnSm90<T>) {
      if (backend == Backend::sm90) refuse_sm90<T>(check);
    }
  });
}

// Memory that an operation needs between its steps, where it runs; values are undefined at first.
template <class X>
class Temporary {
 public:
  Temporary() = default;
  Temporary(const Check& check, const Target& on, std::int64_t count) {
    if (on.backend == Backend::cpu) {
      const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(X));
      host_ = cpu::allocate(static_cast<std::size_t>(bytes));
      if (!host_) check.fail(Status::device_error, "workspace", "expected {} bytes of memory, got none", bytes);
      data_ = reinterpret_cast<X*>(host_.get());
    } else {
      device_ = sm90::Workspace(static_cast<std::size_t>(count) * sizeof(X), on.stream, check.operation());
      data_ = device_.as<X>();
    }
  }
  X* data() const { return data_; }

 private:
  cpu::Memory host_;
  sm90::Workspace device_;
  X* data_ = nullptr;
};

// The program on the product of a and b, or on the matrices of its ports alone.
template <class T, class P>
void run(const Check& check, const Target& on, const ConstMatrix& a, const ConstMatrix& b, Layout layout,
         const P& program) {
  if (on.backend == Backend::cpu) return cpu::gemm(a.as<T>(), b.as<T>(), program, layout, check.operation());
  if constexpr (kOnSm90<T>) {
    sm90::Product<T, P>::run(a, b, layout, program, on.stream, check.operation());
  } else {
    refuse_sm90<T>(check);
  }
}
template <class T, class P>
void apply(const Check& check, const Target& on, std::int64_t m, std::int64_t n, const P& program) {
  if (on.backend == Backend::cpu) return cpu::apply<acc_t<T>>(m, n, program, check.operation());
  if constexpr (kOnSm90<T>) {
    sm90::Elementwise<P>::run(m, n, program, on.stream, check.operation());
  } else {
    refuse_sm90<T>(check);
  }
}

}  // namespace coda::ops
