// What the tests of the training system share: a folder of their own and a check on the words of an error.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "coda/core/error.h"

namespace coda::testing {

/// A fresh folder, removed at the end of the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "coda-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    folder_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::filesystem::remove_all(folder_); }

  const std::filesystem::path& path() const { return folder_; }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }

 private:
  std::filesystem::path folder_;
};

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::size_t count_files(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

/// While it lives, a file cannot grow past `bytes`: what a full disk does to a write, at a place of our choosing.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

/// Runs `call`, which must throw a coda::Error of `status` whose text holds each of `words`.
template <class Call, class... Words>
void expect_error(Status status, Call&& call, const Words&... words) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    for (const std::string_view word : {std::string_view(words)...}) {
      EXPECT_NE(std::string_view(error.what()).find(word), std::string_view::npos)
          << "'" << word << "' is not in: " << error.what();
    }
    return;
  }
  ADD_FAILURE() << "expected an error, got none";
}

}  // namespace coda::testing
