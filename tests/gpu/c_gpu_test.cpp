// The interface for C on a Hopper GPU: its Target goes through, and so does what is wrong there. How its structs become
// those of C++ is tests/c's.
#include "coda/c/coda.h"
#include "coda/ops/ops.h"
#include "tests/gpu/device.h"
#include "tests/gpu/on_device.h"
#include "tests/support/accuracy.h"
#include "tests/support/random.h"

namespace coda::test {
namespace {

using OfC = OnHopper;

TEST_F(OfC, ACallRunsOnItsStreamWithTheBitsOfCpp) {
  const std::int64_t m = 300, n = 520, k = 136;
  Random random(91);
  const OnDevice<bf16> a(normal_mat(random, m, k, 1, DType::bf16)), b(normal_mat(random, n, k, 0.1, DType::bf16));
  const OnDevice<float> rstd(Mat(m, 1, 0.75));
  OnDevice<bf16> of_cpp(m, n / 2), of_c(m, n / 2);
  const Stream stream;
  ops::gemm_norm_glu({.a = a.matrix(),
                      .b = b.matrix(),
                      .norm = {.rstd = {rstd.matrix().data, DType::fp32, m}},
                      .out = of_cpp.matrix(),
                      .on = {ops::Backend::sm90, stream.get()}});

  coda_gemm_norm_glu_args args = coda_gemm_norm_glu_defaults();
  args.a = coda_const_matrix_of(a.matrix().data, CODA_DTYPE_BF16, m, k);
  args.b = coda_const_matrix_of(b.matrix().data, CODA_DTYPE_BF16, n, k);
  args.norm.rstd = coda_const_vector_of(rstd.matrix().data, CODA_DTYPE_FP32, m);
  args.out = coda_matrix_of(of_c.matrix().data, CODA_DTYPE_BF16, m, n / 2);
  args.on = {CODA_BACKEND_SM90, stream.get()};
  const int enqueued =
      nodes_enqueued(stream, [&] { EXPECT_EQ(coda_gemm_norm_glu(&args), CODA_OK) << coda_last_error(); });
  EXPECT_GT(enqueued, 0) << "the call went to another stream";
  ASSERT_EQ(coda_gemm_norm_glu(&args), CODA_OK) << coda_last_error();
  stream.wait();
  EXPECT_EQ(check_exact("out", of_c.fetch("out").mat(), of_cpp.fetch("out").mat()), "");

  float on_the_host = 0;
  args.norm.rstd.data = &on_the_host;
  EXPECT_EQ(coda_gemm_norm_glu(&args), CODA_INVALID_ARGUMENT);
  EXPECT_EQ(std::string(coda_last_error()).rfind("gemm_norm_glu: norm.rstd: ", 0), 0u) << coda_last_error();
}

}  // namespace
}  // namespace coda::test
