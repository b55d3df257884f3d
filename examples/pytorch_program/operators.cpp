// The programs as operators of PyTorch's dispatcher: tensors become views, and a program runs where they are.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <string>
#include <tuple>
#include <type_traits>

#include "coda/backend/sm90/run.h"
#include "coda/coda.h"
#include "coda/torch/tensor.h"
#include "gpt_oss.h"

namespace {

using coda::pytorch::matrix, coda::pytorch::vector, coda::pytorch::Place, coda::pytorch::Tensor;

/// The program on the product of a and b.
template <class T, class P>
void run(const char* op, const Place& place, coda::MatrixOf<const T> a, coda::MatrixOf<const T> b, coda::Layout layout,
         const P& program) {
  if (!place.on_gpu()) return coda::gemm(a, b, program, layout, op);
#if defined(GPT_OSS_ON_HOPPER)
  if constexpr (std::is_same_v<T, coda::bf16>) {
    return coda::sm90::Product<T, P>::run(a, b, layout, program, place.stream(), op);
  }
#endif
  throw coda::Error(coda::Status::unsupported, std::string(op) + ": expected bf16 and a build for Hopper, or the CPU");
}

/// f(T()) with the element type of a tensor.
template <class F>
auto with_type(const Tensor& tensor, const F& f) {
  if (tensor.scalar_type() == coda::pytorch::scalar_type<coda::bf16>()) return f(coda::bf16());
  if (tensor.scalar_type() == coda::pytorch::scalar_type<float>()) return f(float());
  throw coda::Error(coda::Status::invalid_argument, "gpt_oss: expected tensors of bf16 or fp32");
}

/// x (M, K), w (2F, K), bias (2F) -> out (M, F), preact (M, 2F)
std::tuple<Tensor, Tensor> glu(Tensor x, Tensor w, Tensor bias) {
  const Place place(x, w, bias);
  return with_type(x, [&]<class T>(T) {
    const auto a = matrix<const T>("glu: x", x), b = matrix<const T>("glu: w", w);
    const Tensor out = new_empty(x, {a.rows, b.rows / 2}), preact = new_empty(x, {a.rows, b.rows});
    run<T>("glu", place, a, b, coda::Layout::nt,
           gpt_oss::Forward<T>{.bias = {vector<const T>("glu: bias", bias), 0},
                               .preact = matrix<T>("glu: preact", preact),
                               .out = matrix<T>("glu: out", out)});
    return std::tuple(out, preact);
  });
}

/// dy (M, N), w (N, F) of the layer that takes out, preact (M, 2F) -> dpreact (M, 2F), out (M, F)
std::tuple<Tensor, Tensor> glu_backward(Tensor dy, Tensor w, Tensor preact) {
  const Place place(dy, w, preact);
  return with_type(dy, [&]<class T>(T) {
    const auto a = matrix<const T>("glu_backward: dy", dy), b = matrix<const T>("glu_backward: w", w);
    const Tensor dpreact = new_empty(dy, {a.rows, 2 * b.cols}), out = new_empty(dy, {a.rows, b.cols});
    run<T>("glu_backward", place, a, b, coda::Layout::nn,
           gpt_oss::Backward<T>{.preact = matrix<const T>("glu_backward: preact", preact),
                                .dpreact = matrix<T>("glu_backward: dpreact", dpreact),
                                .out = matrix<T>("glu_backward: out", out)});
    return std::tuple(dpreact, out);
  });
}

}  // namespace

STABLE_TORCH_LIBRARY(gpt_oss, library) {
  library.def("glu(Tensor x, Tensor w, Tensor bias) -> (Tensor, Tensor)");
  library.def("glu_backward(Tensor dy, Tensor w, Tensor preact) -> (Tensor, Tensor)");
}
STABLE_TORCH_LIBRARY_IMPL(gpt_oss, CPU, library) {
  library.impl("glu", TORCH_BOX(&glu));
  library.impl("glu_backward", TORCH_BOX(&glu_backward));
}
STABLE_TORCH_LIBRARY_IMPL(gpt_oss, CUDA, library) {
  library.impl("glu", TORCH_BOX(&glu));
  library.impl("glu_backward", TORCH_BOX(&glu_backward));
}
