#include "tests/gpu/image.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "tests/gpu/device.h"

namespace coda::test::gpu {
namespace {

template <class T>
T load_as(const void* from) {
  T x;
  std::memcpy(&x, from, sizeof x);  // also right where it is not aligned
  return x;
}
template <class T>
void store_as(void* to, T x) {
  std::memcpy(to, &x, sizeof x);
}
bool all_poison(const unsigned char* p, std::int64_t bytes) {
  return std::all_of(p, p + bytes, [](unsigned char b) { return b == kPoison; });
}

}  // namespace

double load_element(const void* from, DType type) {
  switch (type) {
    case DType::bf16:
      return static_cast<float>(load_as<bf16>(from));
    case DType::fp16:
      return static_cast<float>(load_as<fp16>(from));
    case DType::fp32:
      return load_as<float>(from);
    case DType::fp64:
      return load_as<double>(from);
    case DType::int32:
      return load_as<std::int32_t>(from);
    case DType::int64:
      break;
  }
  return static_cast<double>(load_as<std::int64_t>(from));
}

void store_element(void* to, DType type, double value) {
  switch (type) {
    case DType::bf16:
      return store_as(to, bf16(static_cast<float>(value)));
    case DType::fp16:
      return store_as(to, fp16(static_cast<float>(value)));
    case DType::fp32:
      return store_as(to, static_cast<float>(value));
    case DType::fp64:
      return store_as(to, value);
    case DType::int32:
      return store_as(to, static_cast<std::int32_t>(value));
    case DType::int64:
      return store_as(to, static_cast<std::int64_t>(value));
  }
}

int Image::add(const Block& block) {
  if (block.pitch < block.cols) throw std::logic_error("Image::add: pitch is less than the width");
  const auto begin = (size_ + static_cast<std::size_t>(kGuard + kAlign - 1)) / kAlign * kAlign;
  blocks_.push_back(block);
  offsets_.push_back(begin + static_cast<std::size_t>(block.misalign));
  size_ = offsets_.back() + static_cast<std::size_t>(size_of_block(blocks() - 1));
  return blocks() - 1;
}

void Image::allocate() {
  size_ = (size_ + static_cast<std::size_t>(kGuard + kAlign - 1)) / kAlign * kAlign;
  before_.assign(size_ + kAlign, kPoison);
  after_ = before_;
  const auto to_aligned = [](const std::vector<unsigned char>& x) {
    return (kAlign - reinterpret_cast<std::uintptr_t>(x.data()) % kAlign) % kAlign;
  };
  // The CPU works in after_; the two images need the same base to be compared byte by byte.
  base_ = to_aligned(after_);
  if (backend_ != ops::Backend::sm90) return;
  separate_ = std::getenv("CODA_TEST_SEPARATE_BUFFERS") != nullptr;
  if (!separate_) {
    device_ = sm90::DeviceBuffer(size_);
    return;
  }
  for (int i = 0; i < blocks(); ++i) {
    // At least one byte, so that an empty matrix has an address too.
    parts_.emplace_back(static_cast<std::size_t>(std::max<std::int64_t>(size_of_block(i), 1) + block(i).misalign));
  }
}

void* Image::address(int i) const {
  if (backend_ != ops::Backend::sm90) return const_cast<unsigned char*>(at(after_, i, 0));
  if (!separate_) return static_cast<unsigned char*>(device_.data()) + offset(i);
  return static_cast<unsigned char*>(parts_[static_cast<std::size_t>(i)].data()) + block(i).misalign;
}

Matrix Image::matrix(int i) const {
  const Block& b = block(i);
  return {address(i), b.type, b.rows, b.cols, b.pitch};
}
Vector Image::vector(int i) const {
  const Block& b = block(i);
  if (b.rows > 1 && b.pitch != b.cols) throw std::logic_error("Image::vector: a padded matrix is no vector");
  return {address(i), b.type, b.rows * b.cols};
}

void Image::set(int i, const Mat& values) {
  const Block& b = block(i);
  if (values.rows != b.rows || values.cols != b.cols) throw std::logic_error("Image::set: shapes differ");
  for (std::int64_t m = 0; m < b.rows; ++m) {
    auto* to = at(before_, i, m);
    for (std::int64_t n = 0; n < b.cols; ++n) store_element(to + n * size_of(b.type), b.type, values(m, n));
  }
}

void Image::poison(int i) {
  for (std::int64_t m = 0; m < block(i).rows; ++m) std::memset(at(before_, i, m), kPoison, row_bytes(i));
}

Mat Image::get(int i) const {
  const Block& b = block(i);
  Mat x(b.rows, b.cols);
  for (std::int64_t m = 0; m < b.rows; ++m) {
    const unsigned char* from = row(i, m);
    for (std::int64_t n = 0; n < b.cols; ++n) x(m, n) = load_element(from + n * size_of(b.type), b.type);
  }
  return x;
}

void Image::upload(void* stream) {
  if (backend_ != ops::Backend::sm90) {
    std::copy(before_.begin(), before_.end(), after_.begin());  // in place: matrices keep their addresses
    return;
  }
  if (!separate_) return copy_to_device(device_.data(), before_.data() + base_, size_, stream);
  for (int i = 0; i < blocks(); ++i) {
    if (block(i).output && !block(i).filled) continue;
    if (size_of_block(i) == 0) continue;
    copy_to_device(address(i), at(before_, i, 0), static_cast<std::size_t>(size_of_block(i)), stream);
  }
}

void Image::download(void* stream) {
  if (backend_ != ops::Backend::sm90) return;
  if (!separate_) return copy_to_host(after_.data() + base_, device_.data(), size_, stream);
  after_ = before_;
  for (int i = 0; i < blocks(); ++i) {
    const std::int64_t pitch = block(i).pitch * size_of(block(i).type);
    copy_rows_to_host(at(after_, i, 0), address(i), static_cast<std::size_t>(pitch), row_bytes(i),
                      static_cast<std::size_t>(block(i).rows), stream);
  }
}

std::string Image::unwritten(int i) const {
  const std::int64_t element = size_of(block(i).type);
  for (std::int64_t m = 0; m < block(i).rows; ++m) {
    for (std::int64_t n = 0; n < block(i).cols; ++n) {
      if (!all_poison(row(i, m) + n * element, element)) continue;
      return "row " + std::to_string(m) + ", column " + std::to_string(n) + " was not written";
    }
  }
  return {};
}

std::string Image::find_fault(int* which) const {
  const unsigned char* before = before_.data() + base_;
  const unsigned char* after = after_.data() + base_;
  std::size_t seen = 0;  // all bytes before this one are as they must be
  std::string text;
  const auto unchanged = [&](std::size_t end, int i, const char* what) {
    if (end <= seen || !text.empty()) return;
    if (std::memcmp(before + seen, after + seen, end - seen) != 0) {
      std::size_t byte = seen;
      while (before[byte] == after[byte]) ++byte;
      const auto from = static_cast<std::int64_t>(byte) - static_cast<std::int64_t>(offset(i));
      text = std::string("wrote to ") + what + ", " + std::to_string(from) + " bytes from its begin";
      *which = i;
    }
  };
  for (int i = 0; i < blocks() && text.empty(); ++i) {
    const Block& b = block(i);
    unchanged(offset(i), i, "the guard zone before it");
    seen = offset(i);
    for (std::int64_t m = 0; b.output && m < b.rows; ++m) {
      unchanged(offset(i, m), i, "the padding of its rows");
      seen = offset(i, m) + row_bytes(i);
    }
    const std::size_t end = offset(i, b.rows);
    unchanged(end, i, b.output ? "the padding of its last row" : "an input");
    seen = end;
    if (!text.empty() || !b.output || b.filled) continue;
    text = unwritten(i);
    *which = i;
  }
  if (blocks() > 0) unchanged(size_, blocks() - 1, "the guard zone behind it");
  return text;
}

}  // namespace coda::test::gpu
