#include "tests/gpu/reruns.h"

#include <stdexcept>

#include "tests/gpu/compare.h"

namespace coda::test::gpu {
namespace {

/// FNV-1a of 64 bits.
std::uint64_t hash_of(const std::vector<unsigned char>& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char b : bytes) hash = (hash ^ b) * 0x100000001b3u;
  return hash;
}

}  // namespace

Reruns::Reruns(Execution& run, const Stream& stream, const std::function<void()>& first)
    : memory_(run.image().device_data()), bytes_(run.image().device_size()), differing_(sizeof(std::uint64_t)) {
  if (!memory_) throw std::logic_error("Reruns: expected matrices in one memory, got separate buffers");
  const auto kept = std::make_shared<First>();
  kept->before = sm90::DeviceBuffer(bytes_), kept->after = sm90::DeviceBuffer(bytes_);
  run.reset(stream.get());
  copy_on_device(kept->before.data(), memory_, bytes_, stream.get());
  first();
  copy_on_device(kept->after.data(), memory_, bytes_, stream.get());
  run.fetch(stream.get());
  kept->hash = hash_of(run.bytes());
  first_ = kept;
  begin(stream);
}

Reruns::Reruns(Execution& run, const Stream& stream, const Reruns& like)
    : memory_(run.image().device_data()),
      bytes_(run.image().device_size()),
      first_(like.first_),
      differing_(sizeof(std::uint64_t)) {
  if (bytes_ != like.bytes_) throw std::logic_error("Reruns: expected another execution of the same problem");
  begin(stream);
}

/// Nothing here waits for the whole device, where other threads may be at work.
void Reruns::begin(const Stream& stream) {
  copy_on_device(memory_, first_->before.data(), bytes_, stream.get());
  const std::uint64_t none = 0;
  copy_to_device(differing_.data(), &none, sizeof none, stream.get());
}

void Reruns::compare(const Stream& stream) const {
  compare_and_restore(memory_, first_->after.data(), first_->before.data(), bytes_,
                      static_cast<std::uint64_t*>(differing_.data()), stream.get());
}

std::uint64_t Reruns::differing(const Stream& stream) const {
  std::uint64_t count = 0;
  copy_to_host(&count, differing_.data(), sizeof count, stream.get());
  return count;
}

}  // namespace coda::test::gpu
