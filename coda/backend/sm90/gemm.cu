#include "coda/backend/sm90/gemm.cuh"
#include "coda/backend/sm90/sm90.h"
#include "coda/programs/gemm.h"

namespace coda::sm90 {

/// The bare product, without c, bias and preact, has a kernel of its own.
template <class T>
struct Tuning<Gemm<T>> : Tuning<void> {
  static constexpr PortMask kOptional = 0b0111;
};

void gemm(const GemmArgs& args, void* stream) {
  using detail::Presence;
  const detail::Call call = detail::describe("gemm", args.a, args.b, args.layout);
  const DType dtype = detail::check_dtype(call, args.a, args.b);
  check_matrix(call, "c", args.c, call.m, call.n, dtype, args.beta != 0 ? Presence::required : Presence::optional);
  check_vector(call, "bias", args.bias, call.n, dtype, Presence::optional);
  check_matrix(call, "preact", args.preact, call.m, call.n, dtype, Presence::optional);
  check_matrix(call, "out", args.out, call.m, call.n, dtype, Presence::required);
  with_element(dtype, [&]<class T>(T) {
    Gemm<T> program{.alpha = args.alpha, .beta = args.beta};
    if (args.beta != 0) program.c = args.c.as<T>();
    program.bias.data = args.bias.as<T>().data;
    program.preact = args.preact.as<T>();
    program.out = args.out.as<T>();
    gemm<T>(args.a.as<T>(), args.b.as<T>(), program, args.layout, static_cast<cudaStream_t>(stream), call.op);
  });
}

}  // namespace coda::sm90
