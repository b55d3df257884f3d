// The Hopper backend's functions in a library that was built without a CUDA toolkit.
#include "coda/backend/sm90/blas.h"
#include "coda/backend/sm90/device.h"
#include "coda/backend/sm90/kernels.h"
#include "coda/backend/sm90/run.h"
#include "coda/backend/sm90/timing.h"
#include "coda/backend/sm90/workspace.h"
#include "coda/core/error.h"
#include "coda/programs/loss.h"

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
Reach::Reach(void* stream) : stream_(stream) {}
bool Reach::operator()(const void*, std::string*) const { return true; }

DeviceBuffer::DeviceBuffer(std::size_t) { refuse("DeviceBuffer"); }
DeviceBuffer::~DeviceBuffer() = default;
DeviceBuffer::DeviceBuffer(DeviceBuffer&&) noexcept = default;
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&&) noexcept = default;
void DeviceBuffer::upload(const void*, std::size_t, std::size_t) { refuse("DeviceBuffer::upload"); }
void DeviceBuffer::download(void*, std::size_t, std::size_t) const { refuse("DeviceBuffer::download"); }
void DeviceBuffer::fill(unsigned char) { refuse("DeviceBuffer::fill"); }

Workspace::Workspace(std::size_t, void*, const char* op) { refuse(op); }
Workspace Workspace::of_kernel(std::size_t, void*, const char* op) { refuse(op); }
Workspace::~Workspace() = default;
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;

Stream::Stream() { refuse("Stream"); }
Stream::~Stream() = default;
Candidate::Candidate(std::string label, const std::function<void(void*)>&, const DeviceBuffer&, void*)
    : Candidate(std::move(label)) {
  refuse(name.c_str());
}
Candidate::~Candidate() = default;
void Candidate::replay(void*, bool) { refuse(name.c_str()); }
double Candidate::median() const { refuse(name.c_str()); }

/// No checked call runs this program alone, but `coda tune` does.
template <>
void Product<bf16, GemmCrossEntropyBackward<bf16>>::run(const ConstMatrix&, const ConstMatrix&, Layout,
                                                        const GemmCrossEntropyBackward<bf16>&, void*, const char* op) {
  refuse(op);
}

void matmul(const char* op, const ConstMatrix&, const ConstMatrix&, Layout, float, float, const ConstMatrix&,
            const Matrix&, void*) {
  refuse(op);
}
std::vector<Algorithm> algorithms(const char* op, DType, DType, Layout, std::int64_t, std::int64_t, std::int64_t) {
  refuse(op);
}
void rms_finalize(const char* op, const ConstMatrix&, std::int64_t, double, const Vector&, void*) { refuse(op); }
void layernorm_finalize(const char* op, const ConstMatrix&, const ConstMatrix&, std::int64_t, double, const Vector&,
                        const Vector&, void*) {
  refuse(op);
}
void lse_finalize(const char* op, const LseFinalizeArgs&, void*) { refuse(op); }
void sum_rows(const char* op, const ConstMatrix&, double, const Vector&, void*) { refuse(op); }
void sum_columns(const char* op, const ConstMatrix&, double, const Vector&, void*) { refuse(op); }
void sum_heads(const char* op, const ConstMatrix&, std::int64_t, std::int64_t, std::int64_t, double, const Vector&,
               void*) {
  refuse(op);
}
void masked_dloss(const char* op, const ConstVector&, const ConstVector&, std::int64_t, std::int64_t, const Vector&,
                  void*) {
  refuse(op);
}
void cast(const char* op, const ConstMatrix&, const Matrix&, float, void*) { refuse(op); }
void fill(const char* op, const Matrix&, double, void*) { refuse(op); }
void embedding_backward(const char* op, const ConstMatrix&, const ConstVector&, const Matrix&, void*) { refuse(op); }
void adamw(const char* op, const AdamwArgs&, void*) { refuse(op); }
void squared_norm(const char* op, const ConstVector&, double, const Vector&, void*) { refuse(op); }

}  // namespace coda::sm90
