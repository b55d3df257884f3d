#include "coda/backend/sm90/gemm.cuh"
#include "coda/backend/sm90/sm90.h"
#include "coda/programs/residual.h"

namespace coda::sm90 {

/// Wider subtiles would spill registers.
template <class T>
struct Tuning<GemmResidual<T>> : Tuning<void> {
  using Config = sm90::Config<128, 128, 2, 1, Groups::pingpong, 32, 4, 2>;
};

void gemm_residual_rms(const GemmResidualRmsArgs& args, void* stream) {
  using detail::Presence;
  const detail::Call call = detail::describe("gemm_residual_rms", args.a, args.b, args.layout);
  const DType dtype = detail::check_dtype(call, args.a, args.b);
  check_matrix(call, "residual", args.residual, call.m, call.n, dtype, Presence::required);
  check_vector(call, "weight", args.weight, call.n, dtype, Presence::optional);
  check_matrix(call, "x", args.x, call.m, call.n, dtype, Presence::required);
  check_matrix(call, "h", args.h, call.m, call.n, dtype, Presence::optional);
  check_matrix(call, "sum_of_squares", args.sum_of_squares, call.m, tiles_n(call.n), DType::fp32, Presence::optional);
  with_element(dtype, [&]<class T>(T) {
    GemmResidual<T> program;
    program.residual = args.residual.as<T>();
    program.weight.data = args.weight.as<T>().data;
    program.x = args.x.as<T>();
    program.h = args.h.as<T>();
    program.stat.sum = args.sum_of_squares.as<float>();
    gemm<T>(args.a.as<T>(), args.b.as<T>(), program, args.layout, static_cast<cudaStream_t>(stream), call.op);
  });
}

}  // namespace coda::sm90
