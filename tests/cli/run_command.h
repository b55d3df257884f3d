// Runs the command `coda` as a user does, and collects what it prints.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace coda::test {

struct CommandResult {
  int status = -1;  // exit status; 128 + the signal's number if one ended it
  std::string out, err;
};

namespace detail {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

inline File temporary_file() {
  File f(std::tmpfile(), std::fclose);
  if (!f) throw std::runtime_error("run_coda: no temporary file");
  return f;
}
inline std::string contents(std::FILE* f) {
  std::string text;
  std::rewind(f);
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, f)) > 0;) text.append(buffer, n);
  return text;
}

}  // namespace detail

/// Runs `coda` with these arguments. `stdout_path` replaces what collects its output, such as /dev/full.
inline CommandResult run_coda(std::vector<std::string> arguments, const char* stdout_path = nullptr) {
  const detail::File out = detail::temporary_file(), err = detail::temporary_file();
  std::string program = CODA_CLI_PATH;
  std::vector<char*> argv{program.data()};
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);

  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("run_coda: fork failed");
  if (child == 0) {
    const int to = stdout_path != nullptr ? ::open(stdout_path, O_WRONLY) : ::fileno(out.get());
    ::dup2(to, STDOUT_FILENO);
    ::dup2(::fileno(err.get()), STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), detail::contents(out.get()),
          detail::contents(err.get())};
}

}  // namespace coda::test
