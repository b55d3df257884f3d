// For what is done once, such as making a pool or a handle, and for memory of a stream.
#pragma once

#include <cuda_runtime_api.h>

namespace coda::sm90::detail {

/// While it lives, calls of this thread that are forbidden while any stream is captured in global mode are allowed.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // the thread's own while this lives
};

}  // namespace coda::sm90::detail
