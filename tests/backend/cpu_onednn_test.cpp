// What is asked of oneDNN.
#include <gtest/gtest.h>

#include "coda/backend/cpu/onednn.h"

namespace coda::cpu::detail {
namespace {

TEST(Onednn, MultipliesInTheOperandsTypeWhateverTheProcessAllows) {
  const dnnl::fpmath_mode before = dnnl::get_default_fpmath_mode();
  dnnl::set_default_fpmath_mode(dnnl::fpmath_mode::bf16);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const dnnl::memory::desc x({128, 128}, dnnl_type(DType::fp32), dnnl::memory::format_tag::ab);
  dnnl::post_ops sum;
  sum.append_sum();
  dnnl::primitive_attr adds;
  adds.set_post_ops(sum);
  for (const auto& product : {describe_matmul(engine, x, x, x), describe_matmul(engine, x, x, x, adds)}) {
    const dnnl::primitive_attr attributes = product.get_primitive_attr();
    EXPECT_EQ(static_cast<int>(attributes.get_fpmath_mode()), static_cast<int>(dnnl::fpmath_mode::strict));
  }
  dnnl::set_default_fpmath_mode(before);
}

}  // namespace
}  // namespace coda::cpu::detail
