// Ctrl-C during a long job: the job stops where it can.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdio>

namespace coda::cli {

/// While it lives, the first Ctrl-C (or SIGTERM) asks the job to stop; a second one kills it.
class CatchInterrupt {
 public:
  CatchInterrupt() {
    struct sigaction action {};
    action.sa_handler = [](int) { seen_ = true; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    for (std::size_t i = 0; i < 2; ++i) ::sigaction(kSignals[i], &action, &before_[i]);
  }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;
  ~CatchInterrupt() {
    for (std::size_t i = 0; i < 2; ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }

  static bool seen() { return seen_; }
  /// As if the signal had not been caught, so that a shell's loop ends too.
  static void end_process() {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  inline static std::atomic<bool> seen_{false};
  struct sigaction before_[2];
};

/// What a job throws that only stops halfway.
struct Interrupted {};

/// Runs such a job.
template <class Job>
void interruptible(const char* command, const Job& job) {
  const CatchInterrupt signals;
  try {
    job();
  } catch (const Interrupted&) {
    std::fflush(stdout);
    fmt::print(stderr, "{}: interrupted\n", command);
    CatchInterrupt::end_process();
  }
}

}  // namespace coda::cli
