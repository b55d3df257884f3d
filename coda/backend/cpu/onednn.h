// What this library asks of oneDNN, versions 2 and 3 alike. Not installed: of the library's own sources only.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "coda/core/tensor.h"

namespace coda::cpu::detail {

inline dnnl::memory::data_type dnnl_type(DType t) {
  return t == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

inline dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                                    const dnnl::memory::desc& b, const dnnl::memory::desc& d,
                                                    const dnnl::primitive_attr& attributes = {}) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, d, attributes};
#else
  return {dnnl::matmul::desc(a, b, d), attributes, engine};
#endif
}

}  // namespace coda::cpu::detail
