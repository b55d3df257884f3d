// The Hopper backend's functions in a library that was built without a CUDA toolkit.
#include "coda/backend/sm90/sm90.h"

namespace coda::sm90 {

namespace {

constexpr const char* kReason = "this library was built without CUDA";

[[noreturn]] void refuse(const char* op) {
  throw Error(Status::unsupported, std::string(op) + ": device: expected a Hopper GPU, but " + kReason);
}

}  // namespace

bool available(std::string* why) {
  if (why) *why = kReason;
  return false;
}
DeviceInfo device_info() { refuse("device_info"); }
void synchronize() { refuse("synchronize"); }

DeviceBuffer::DeviceBuffer(std::size_t) { refuse("DeviceBuffer"); }
DeviceBuffer::~DeviceBuffer() = default;
DeviceBuffer::DeviceBuffer(DeviceBuffer&&) noexcept = default;
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&&) noexcept = default;
void DeviceBuffer::upload(const void*, std::size_t, std::size_t) { refuse("DeviceBuffer::upload"); }
void DeviceBuffer::download(void*, std::size_t, std::size_t) const { refuse("DeviceBuffer::download"); }
void DeviceBuffer::fill(unsigned char) { refuse("DeviceBuffer::fill"); }

void gemm(const GemmArgs&, void*) { refuse("gemm"); }
void gemm_residual_rms(const GemmResidualRmsArgs&, void*) { refuse("gemm_residual_rms"); }
void gemm_rms_swiglu(const GemmRmsSwigluArgs&, void*) { refuse("gemm_rms_swiglu"); }
void gemm_swiglu_backward(const GemmSwigluBackwardArgs&, void*) { refuse("gemm_swiglu_backward"); }

}  // namespace coda::sm90
