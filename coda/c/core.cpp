#include "coda/c/core.h"

#include <cstdio>

#include "coda/backend/sm90/device.h"
#include "coda/c/call.h"
#include "coda/core/build_info.h"
#include "coda/core/tensor.h"

namespace coda::c {
namespace {

thread_local char message_of_thread[1024] = "";

template <class View, class C>
constexpr bool same_matrix =
    sizeof(View) == sizeof(C) && CODA_SAME_PLACE(C, View, data) && CODA_SAME_PLACE(C, View, dtype) &&
    CODA_SAME_PLACE(C, View, rows) && CODA_SAME_PLACE(C, View, cols) && CODA_SAME_PLACE(C, View, pitch);
static_assert(same_matrix<Matrix, coda_matrix> && same_matrix<ConstMatrix, coda_const_matrix>);

template <class View, class C>
constexpr bool same_vector = sizeof(View) == sizeof(C) && CODA_SAME_PLACE(C, View, data) &&
                             CODA_SAME_PLACE(C, View, dtype) && CODA_SAME_PLACE(C, View, size);
static_assert(same_vector<Vector, coda_vector> && same_vector<ConstVector, coda_const_vector>);

template <class E>
constexpr bool is(E value, int c) {
  return static_cast<int>(value) == c;
}
static_assert(is(DType::bf16, CODA_DTYPE_BF16) && is(DType::fp16, CODA_DTYPE_FP16) &&
              is(DType::fp32, CODA_DTYPE_FP32) && is(DType::fp64, CODA_DTYPE_FP64) &&
              is(DType::int32, CODA_DTYPE_INT32) && is(DType::int64, CODA_DTYPE_INT64));
static_assert(is(Layout::nt, CODA_LAYOUT_NT) && is(Layout::nn, CODA_LAYOUT_NN) && is(Layout::tn, CODA_LAYOUT_TN));
static_assert(is(Status::invalid_argument, CODA_INVALID_ARGUMENT - 1) &&
              is(Status::unsupported, CODA_UNSUPPORTED - 1) && is(Status::io_error, CODA_IO_ERROR - 1) &&
              is(Status::device_error, CODA_DEVICE_ERROR - 1) && is(Status::interrupted, CODA_INTERRUPTED - 1));

}  // namespace

coda_status fail(coda_status status, const char* operation, const char* message) noexcept {
  std::snprintf(message_of_thread, sizeof(message_of_thread), "%s%s%s", operation, *operation ? ": " : "", message);
  return status;
}

}  // namespace coda::c

extern "C" {

const char* coda_last_error(void) { return coda::c::message_of_thread; }

const char* coda_version(void) { return coda::build_info().version; }

coda_status coda_sm90_available(void) {
  return coda::c::guarded("sm90_available", [] {
    std::string why;
    if (!coda::sm90::available(&why)) throw coda::Error(coda::Status::unsupported, "sm90_available: " + why);
  });
}
}
