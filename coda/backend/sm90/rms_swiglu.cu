#include "coda/backend/sm90/gemm.cuh"
#include "coda/backend/sm90/sm90.h"
#include "coda/programs/activation.h"

namespace coda::sm90 {

void gemm_rms_swiglu(const GemmRmsSwigluArgs& args, void* stream) {
  using detail::Presence;
  const detail::Call call = detail::describe("gemm_rms_swiglu", args.a, args.b, args.layout);
  const DType dtype = detail::check_dtype(call, args.a, args.b);
  if (call.n % 2 != 0) call.fail(Status::invalid_argument, "b: expected an even N, gate and up interleaved");
  check_vector(call, "rstd", args.rstd, call.m, DType::fp32, Presence::optional);
  check_matrix(call, "preact", args.preact, call.m, call.n, dtype, Presence::optional);
  check_matrix(call, "out", args.out, call.m, call.n / 2, dtype, Presence::required);
  with_element(dtype, [&]<class T>(T) {
    GemmNormGlu<T> program;
    program.norm.rstd.data = args.rstd.as<float>().data;
    program.preact = args.preact.as<T>();
    program.out = args.out.as<T>();
    gemm<T>(args.a.as<T>(), args.b.as<T>(), program, args.layout, static_cast<cudaStream_t>(stream), call.op);
  });
}

}  // namespace coda::sm90
