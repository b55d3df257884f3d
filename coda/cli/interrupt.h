// Ctrl-C during a long job: the job stops where it can.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "coda/nn/progress.h"

namespace coda::cli {

/// While it lives, the first Ctrl-C (or SIGTERM) asks the job to stop; a second one kills it. A terminal that closes
/// asks, too, but kills nothing: it may send SIGHUP twice, by the shell and by the kernel. A signal that the process
/// was started to ignore (`nohup`) stays ignored.
class CatchInterrupt {
 public:
  CatchInterrupt() {
    struct sigaction action {};
    action.sa_handler = [](int signal) { seen_ = signal; };
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      action.sa_flags = kSignals[i] == SIGHUP ? 0 : static_cast<int>(SA_RESETHAND);
      ::sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
  }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;
  ~CatchInterrupt() {
    for (std::size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  }

  static bool seen() { return seen_ != 0; }
  /// As if the signal had not been caught, so that a shell's loop ends too.
  [[noreturn]] static void end_process() {
    std::signal(seen_, SIG_DFL);
    std::raise(seen_);
    std::_Exit(128 + seen_);  // the first process of a container is ended by no signal
  }

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  inline static std::atomic<int> seen_{0};  // the signal
  struct sigaction before_[std::size(kSignals)];
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
    nn::tell(stderr, fmt::format("{}: interrupted\n", command));
    CatchInterrupt::end_process();
  }
}

}  // namespace coda::cli
