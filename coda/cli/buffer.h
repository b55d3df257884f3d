// A guarded buffer whose element type is known at run time, on the host or mirrored on the device.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "coda/backend/sm90/device.h"
#include "coda/core/tensor.h"
#include "coda/ops/ops.h"
#include "tests/support/guarded.h"

namespace coda::cli {

using reference::Mat;
using reference::Vec;

class Buffer {
 public:
  /// (rows, cols), all NaN, with guard zones before, behind and, where pitch > cols, behind each row.
  Buffer(ops::Backend backend, DType type, std::int64_t rows, std::int64_t cols, std::int64_t pitch)
      : host_(make(type, rows, cols, pitch)), type_(type), rows_(rows), cols_(cols), pitch_(pitch) {
    if (backend == ops::Backend::sm90) device_.emplace(extent().second);
    upload();
  }

  void set(const Mat& values) {
    std::visit([&](auto& h) { h->set(values); }, host_);
    upload();
  }
  Mat values() const {
    return std::visit([](auto& h) { return h->mat(); }, host_);
  }

  Matrix matrix() const { return {data(), type_, rows_, cols_, pitch_}; }
  Vector vector() const { return {data(), type_, rows_ * cols_}; }

  /// Brings what a device wrote to where `values` and `fault` look.
  void download() {
    if (!device_) return;
    unlocked([&](void* begin, std::size_t bytes) { device_->download(begin, bytes); });
  }
  /// Empty, or what was written outside of the elements, or which element never was.
  std::string fault(const std::string& name) const {
    return std::visit(
        [&](auto& h) {
          const std::string damage = h->guard_damage(name);
          return damage.empty() ? h->unwritten(name) : damage;
        },
        host_);
  }

 private:
  template <class T>
  using Host = std::unique_ptr<test::Guarded<T>>;
  using AnyHost = std::variant<Host<bf16>, Host<fp16>, Host<float>, Host<double>, Host<std::int64_t>>;

  static AnyHost make(DType type, std::int64_t rows, std::int64_t cols, std::int64_t pitch) {
    const test::Placement place{.pitch = pitch};
    switch (type) {
      case DType::bf16:
        return std::make_unique<test::Guarded<bf16>>(rows, cols, place);
      case DType::fp16:
        return std::make_unique<test::Guarded<fp16>>(rows, cols, place);
      case DType::fp32:
        return std::make_unique<test::Guarded<float>>(rows, cols, place);
      case DType::fp64:
        return std::make_unique<test::Guarded<double>>(rows, cols, place);
      default:
        return std::make_unique<test::Guarded<std::int64_t>>(rows, cols, place);
    }
  }

  static constexpr std::int64_t kGuard = test::Guarded<float>::kGuardBytes;

  // The elements with both guard zones: a device's copy has them too.
  std::pair<void*, std::size_t> extent() const {
    auto* begin = reinterpret_cast<unsigned char*>(std::visit([](auto& h) -> void* { return h->data(); }, host_));
    return {begin - kGuard, static_cast<std::size_t>(rows_ * pitch_ * size_of(type_) + 2 * kGuard)};
  }
  template <class F>
  void unlocked(const F& f) const {
    std::visit([](auto& h) { h->forbid_guards(false); }, host_);
    f(extent().first, extent().second);
    std::visit([](auto& h) { h->forbid_guards(true); }, host_);
  }
  void upload() {
    if (device_) unlocked([&](const void* begin, std::size_t bytes) { device_->upload(begin, bytes); });
  }
  void* data() const { return static_cast<unsigned char*>(device_ ? device_->data() : extent().first) + kGuard; }

  AnyHost host_;
  std::optional<sm90::DeviceBuffer> device_;
  DType type_;
  std::int64_t rows_, cols_, pitch_;
};

}  // namespace coda::cli
