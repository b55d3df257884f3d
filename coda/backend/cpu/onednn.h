// What this library asks of oneDNN, versions 2 and 3 alike. Not installed: of the library's own sources only.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "coda/core/tensor.h"

namespace coda::cpu::detail {

inline dnnl::memory::data_type dnnl_type(DType t) {
  return t == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// In the operands' own types, whatever the process has said by dnnl_set_default_fpmath_mode or
/// ONEDNN_DEFAULT_FPMATH_MODE: that would make bf16 products of fp32 ones.
inline dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                                    const dnnl::memory::desc& b, const dnnl::memory::desc& d,
                                                    dnnl::primitive_attr attributes = {}) {
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, d, attributes};
#else
  return {dnnl::matmul::desc(a, b, d), attributes, engine};
#endif
}

}  // namespace coda::cpu::detail
