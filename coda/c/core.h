// What the interface for C has besides the calls themselves: statuses and messages, element types, views. C99; the same
// header serves C++.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What a call returns. Nothing is thrown, and nothing stops the program; but GCC's OpenMP does where it cannot start
/// its threads.
typedef int32_t coda_status;
enum {
  CODA_OK = 0,
  CODA_INVALID_ARGUMENT,  ///< an argument is wrong; nothing was written
  CODA_UNSUPPORTED,       ///< this build, or this machine, cannot do it
  CODA_IO_ERROR,
  CODA_DEVICE_ERROR,  ///< CUDA, cuBLASLt or oneDNN failed, or there is no memory for what a call needs between
  CODA_INTERRUPTED,
  CODA_OUT_OF_MEMORY,  ///< of the host, for anything else
  CODA_INTERNAL_ERROR  ///< a fault of this library
};

/// What the last call of this thread that did not return CODA_OK said: "operation: argument: expected ..., got ...",
/// cut after 1023 bytes; "" before there was one. Valid until the thread's next such call.
const char* coda_last_error(void);

/// Of these headers; before 1.0 the layout of the structs may change with the minor version.
#define CODA_VERSION_MAJOR 0
#define CODA_VERSION_MINOR 1
#define CODA_VERSION_PATCH 0

/// Of the library that runs: "0.1.0".
const char* coda_version(void);

/// CODA_OK if calls can run on CODA_BACKEND_SM90, on the calling thread's current CUDA device; else CODA_UNSUPPORTED,
/// and coda_last_error says what is missing.
coda_status coda_sm90_available(void);

typedef uint8_t coda_dtype;
enum { CODA_DTYPE_BF16, CODA_DTYPE_FP16, CODA_DTYPE_FP32, CODA_DTYPE_FP64, CODA_DTYPE_INT32, CODA_DTYPE_INT64 };

/// Which product a GEMM computes from its row-major operands. nt: A (M,K) times B (N,K) transposed, a linear layer's
/// forward. nn: A (M,K) times B (K,N), its input gradient. tn: A (K,M) transposed times B (K,N), its weight gradient.
typedef uint8_t coda_layout;
enum { CODA_LAYOUT_NT, CODA_LAYOUT_NN, CODA_LAYOUT_TN };

/// Row-major (rows, cols) views; `pitch` is the distance between two rows, in elements, at least `cols`. One with a
/// null `data` is absent: an optional argument that is not given.
typedef struct coda_matrix {
  void* data;
  coda_dtype dtype;
  int64_t rows, cols, pitch;
} coda_matrix;
typedef struct coda_const_matrix {
  const void* data;
  coda_dtype dtype;
  int64_t rows, cols, pitch;
} coda_const_matrix;

typedef struct coda_vector {
  void* data;
  coda_dtype dtype;
  int64_t size;
} coda_vector;
typedef struct coda_const_vector {
  const void* data;
  coda_dtype dtype;
  int64_t size;
} coda_const_vector;

/// Memory for a layer's temporaries; absent if `data` is null.
typedef struct coda_workspace {
  void* data;
  size_t bytes;
} coda_workspace;

/// Views of dense memory: a matrix's pitch is its width.
static inline coda_matrix coda_matrix_of(void* data, coda_dtype dtype, int64_t rows, int64_t cols) {
  const coda_matrix view = {data, dtype, rows, cols, cols};
  return view;
}
static inline coda_const_matrix coda_const_matrix_of(const void* data, coda_dtype dtype, int64_t rows, int64_t cols) {
  const coda_const_matrix view = {data, dtype, rows, cols, cols};
  return view;
}
static inline coda_vector coda_vector_of(void* data, coda_dtype dtype, int64_t size) {
  const coda_vector view = {data, dtype, size};
  return view;
}
static inline coda_const_vector coda_const_vector_of(const void* data, coda_dtype dtype, int64_t size) {
  const coda_const_vector view = {data, dtype, size};
  return view;
}

#ifdef __cplusplus
}
#endif
