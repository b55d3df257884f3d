#include "coda/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include "coda/core/error.h"

namespace coda {
namespace {

[[noreturn]] void fail_io(const char* operation, const std::filesystem::path& path, std::string_view cause) {
  throw Error(Status::io_error, fmt::format("{}: {}: {}", operation, path.string(), cause));
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

constexpr std::string_view kTemporary = ".tmp";  // behind the file's name and eight digits

std::string message(int error) { return std::generic_category().message(error); }

/// Where a write to `path` goes: a symbolic link stays, and what it names is replaced. Nothing but a file is.
std::filesystem::path written_by(std::filesystem::path path) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, error)); ++links) {
    if (links == 40) fail_io("write", path, message(ELOOP));
    const fs::path to = fs::read_symlink(path, error);
    if (error) fail_io("write", path, error.message());
    path = folder_of(path) / to;  // `to` alone, if it is absolute
  }
  const fs::file_status there = fs::status(path, error);
  if (fs::exists(there) && !fs::is_regular_file(there)) fail_io("write", path, "expected a regular file or none");
  return path;
}

}  // namespace

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe would make it wait
  if (fd_ < 0) fail_io("read", path_, message(errno));
  struct stat info {};
  const bool known = ::fstat(fd_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(std::exchange(fd_, -1));
    fail_io("read", path_, "expected a regular file");
  }
  size_ = static_cast<std::uint64_t>(info.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_io("read", path_, message(errno));
    if (got == 0) {
      fail_io("read", path_, fmt::format("expected {} bytes at {}, got {}", out.size(), offset, done));
    }
    done += static_cast<std::size_t>(got);
  }
}

std::string read_text(const std::filesystem::path& path, std::uint64_t most) {
  const InputFile file(path);
  if (file.size() > most) fail_io("read", path, fmt::format("expected at most {} bytes, got {}", most, file.size()));
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(written_by(std::move(path))) {
  remove_abandoned();
  // Not by mkostemp: its files are the owner's alone, and asking for the umask changes it for a moment, for all
  // threads.
  std::random_device random;
  for (int tries = 0; fd_ < 0 && tries < 100; ++tries) {
    temporary_ = fmt::format("{}.{:08x}{}", path_.string(), random(), kTemporary);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) break;
    if (fd_ >= 0 && !hold()) ::close(std::exchange(fd_, -1));
  }
  if (fd_ < 0) fail_io("write", path_, message(errno));
}

/// Locks the temporary for as long as it lives, so that no other process takes it for abandoned; false if one did.
bool AtomicFile::hold() const {
  // A file system without locks has nobody who takes it.
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  struct stat info {};
  return ::fstat(fd_, &info) != 0 || info.st_nlink > 0;
}

/// Removes the temporaries that processes left which were killed: those of this file that nobody holds.
void AtomicFile::remove_abandoned() const {
  const std::string begin = path_.filename().string() + '.';
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(folder_of(path_), ignored), end; it != end; it.increment(ignored)) {
    const std::string name = it->path().filename().string();
    if (name.size() != begin.size() + 8 + kTemporary.size() || !name.starts_with(begin) || !name.ends_with(kTemporary))
      continue;
    const std::string_view digits = std::string_view(name).substr(begin.size(), 8);
    if (digits.find_first_not_of("0123456789abcdef") != digits.npos) continue;
    const int fd = ::open(it->path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(it->path().c_str());
    ::close(fd);
  }
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (pending_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what, int error) {
  fail_io("write", path_, fmt::format("{}: {} (the old file, if any, is unchanged)", what, message(error)));
}

void AtomicFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    // Linux writes at most 2 GiB a call.
    const ssize_t done = ::write(fd_, data.data(), std::min(data.size(), std::size_t{1} << 30));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("writing", errno);
    data = data.subspan(static_cast<std::size_t>(done));
  }
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::finish() {
  while (::fsync(fd_) != 0) {
    if (errno != EINTR) fail("flushing", errno);
  }
}

void AtomicFile::commit() {
  finish();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renaming", errno);
  pending_ = false;
  // The new name is durable once the folder is; a file system that cannot flush a folder still has the file.
  const int directory = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
}

FolderLock::FolderLock(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail_io("write", folder, error.message());
  fd_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) fail_io("write", folder, message(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(std::exchange(fd_, -1));
    fail_io("write", folder, "expected a folder of our own, got one that another process is writing to");
  }
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace coda
