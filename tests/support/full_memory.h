// What happens when memory runs out.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace coda::test {

/// While it lives, the process gets no more than `bytes` of address space on top of what it has.
class FullMemory {
 public:
  explicit FullMemory(rlim_t bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + bytes;
    ::setrlimit(RLIMIT_AS, &limit);
  }
  FullMemory(const FullMemory&) = delete;
  FullMemory& operator=(const FullMemory&) = delete;
  ~FullMemory() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

}  // namespace coda::test
