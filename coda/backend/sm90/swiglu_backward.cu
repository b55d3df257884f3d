#include "coda/backend/sm90/gemm.cuh"
#include "coda/backend/sm90/sm90.h"
#include "coda/programs/activation.h"

namespace coda::sm90 {

/// C and D are pairs, twice the registers and shared memory of other programs.
template <class T>
struct Tuning<GemmGluBackward<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 2, 1, Groups::pingpong, 32, 4, 2, true>;
};

void gemm_swiglu_backward(const GemmSwigluBackwardArgs& args, void* stream) {
  using detail::Presence;
  const detail::Call call = detail::describe("gemm_swiglu_backward", args.a, args.b, args.layout);
  const DType dtype = detail::check_dtype(call, args.a, args.b);
  check_matrix(call, "preact", args.preact, call.m, 2 * call.n, dtype, Presence::required);
  check_matrix(call, "dpreact", args.dpreact, call.m, 2 * call.n, dtype, Presence::required);
  check_matrix(call, "out", args.out, call.m, call.n, dtype, Presence::optional);
  check_matrix(call, "zdz", args.zdz, call.m, tiles_n(call.n), DType::fp32, Presence::optional);
  with_element(dtype, [&]<class T>(T) {
    GemmGluBackward<T> program;
    program.preact = args.preact.as<T>();
    program.dpreact = args.dpreact.as<T>();
    program.out = args.out.as<T>();
    program.dot.zdz = args.zdz.as<float>();
    gemm<T>(args.a.as<T>(), args.b.as<T>(), program, args.layout, static_cast<cudaStream_t>(stream), call.op);
  });
}

}  // namespace coda::sm90
