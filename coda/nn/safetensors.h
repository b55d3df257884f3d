// The safetensors file format: 8 bytes of little-endian header length, a JSON header, raw row-major data.
// Every claim of a header is checked before a byte of data is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "coda/core/file.h"
#include "coda/nn/host_tensor.h"

namespace coda::nn {

/// Whether a header, which is JSON, can hold the text.
bool is_utf8(const std::string& text);

using Metadata = std::map<std::string, std::string>;

/// One tensor of a file; `begin` is its offset in the file.
struct TensorEntry {
  DType dtype = DType::fp32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws io_error for a file that cannot be read, invalid_argument for a damaged one,
  /// unsupported for an element type other than BF16, F16, F32, F64, I32, I64.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::map<std::string, TensorEntry>& tensors() const { return tensors_; }
  const Metadata& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return tensors_.count(name) != 0; }

  /// The named entry; throws when there is none.
  const TensorEntry& entry(const std::string& name) const;
  /// The data of the named tensor, in its own element type.
  HostTensor load(const std::string& name) const;
  /// The data of the named tensor into memory of exactly its size.
  void load(const std::string& name, std::span<std::byte> out) const;

 private:
  InputFile file_;
  std::map<std::string, TensorEntry> tensors_;
  Metadata metadata_;
};

/// One tensor to write. `fill` is called once, when its turn comes, with memory of the tensor's size.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::fp32;
  Shape shape;
  std::function<void(std::span<std::byte>)> fill;
};

/// Writes the bytes of a whole safetensors file; the caller commits. Throws on a repeated name.
void write_safetensors(AtomicFile& file, std::vector<TensorToWrite> tensors, const Metadata& metadata);
/// The same, replacing `path` atomically.
void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors, const Metadata& metadata);

}  // namespace coda::nn
