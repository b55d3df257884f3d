// Programs on Hopper behind plain functions: no CUDA header is needed here or in a caller. Each pair of element type
// and program that the library runs is instantiated in one of the .cu files; any other is a missing symbol.
//
// Pointers are device pointers, `stream` is a cudaStream_t. Kernels are enqueued and nobody waits for them. Errors:
// Error(invalid_argument) for shapes, Error(unsupported) for the device, Error(device_error) for what CUDA reports;
// `op` names the operation in them. What is kept for a device is its primary context's, for the life of the process: no
// other context is served, and nothing after cudaDeviceReset().
#pragma once

#include "coda/backend/sm90/choice.h"
#include "coda/backend/sm90/config.h"
#include "coda/backend/sm90/device.h"
#include "coda/core/error.h"
#include "coda/core/tensor.h"

namespace coda::sm90 {

/// The program on the product of a and b, of any shape and layout (see sm90::gemm in product.cuh).
template <class T, class P>
struct Product {
  static void run(const ConstMatrix& a, const ConstMatrix& b, Layout layout, const P& program, void* stream,
                  const char* op);
};

/// The program alone, on an accumulator of zeros (see sm90::apply in apply.cuh).
template <class P>
struct Elementwise {
  static void run(std::int64_t m, std::int64_t n, const P& program, void* stream, const char* op);
};

}  // namespace coda::sm90
