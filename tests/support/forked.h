// What a process does that was made by fork.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

namespace coda::test {

/// Whether `f()` is true in a child made by fork; false, too, if it does not end within a minute.
template <class F>
bool holds_in_child(const F& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(f() ? 0 : 1);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace coda::test
