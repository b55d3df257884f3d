// Files with errors that name path and cause: random-access reading, and writing that replaces a file only when whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace coda {

/// A file open for reading. Reads by position, so that a file cut short meanwhile is an error and not a signal.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  std::uint64_t size() const { return size_; }
  const std::filesystem::path& path() const { return path_; }
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

/// The whole of a file of at most so many bytes.
std::string read_text(const std::filesystem::path& path, std::uint64_t most = std::uint64_t{1} << 40);

/// Writes `path` by way of a temporary file beside it: until `commit`, and after any error (a full disk, say), the old
/// file is untouched; after it the new one is whole, also across a power cut. Without `commit` the temporary is
/// removed; that of a process that was killed goes when the file is next written. Where `path` is a symbolic link, what
/// it names is written, and the link stays. Throws Error(io_error), also where something other than a file is there.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> data);
  void write(std::string_view text);
  /// Flushes to the disk; all that can fail for want of space has happened after this.
  void finish();
  /// `finish`, then takes the name of the old file.
  void commit();

 private:
  [[noreturn]] void fail(const char* what, int error);
  void remove_abandoned() const;
  bool hold() const;

  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  bool pending_ = true;
};

/// A folder, made if need be, that one process at a time writes into, for as long as this lives. Throws Error(io_error)
/// if another one has it. On a file system without locks nobody is kept out.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  int fd_ = -1;
};

}  // namespace coda
