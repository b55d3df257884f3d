// Markers that let one source compile as plain C++ and as CUDA. Nothing else about the compiler leaks out of here.
#pragma once

#if defined(__CUDACC__)
#define CODA_FN __host__ __device__ __forceinline__
#elif defined(__GNUC__) || defined(__clang__)
#define CODA_FN inline __attribute__((always_inline))
#else
#define CODA_FN inline
#endif

// Placed before a loop whose trip count is a small constant: fragments live in registers only if every index is
// constant.
#if defined(__CUDA_ARCH__) || defined(__clang__)
#define CODA_UNROLL _Pragma("unroll")
#elif defined(__GNUC__) && !defined(__CUDACC__)  // nvcc's host pass runs no fragment
#define CODA_UNROLL _Pragma("GCC unroll 64")
#else
#define CODA_UNROLL
#endif
