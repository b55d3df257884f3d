// A progress bar on stderr for a list of cases: on a terminal only, and only when they take longer than a second.
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "coda/nn/progress.h"

namespace coda::cli {

class CaseProgress {
 public:
  CaseProgress(std::string label, std::int64_t total) : label_(std::move(label)), total_(total) {}

  void update(std::int64_t done, const std::string& detail) {
    if (!terminal_) return;
    const auto now = std::chrono::steady_clock::now();
    if (!bar_ && now - start_ > std::chrono::seconds(1)) bar_.emplace(label_, total_, done);
    if (bar_) bar_->update(done, detail);
  }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  void finish() { bar_.reset(); }

 private:
  std::string label_;
  std::int64_t total_;
  bool terminal_ = nn::is_drawn_on(stderr);
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<nn::Progress> bar_;
};

}  // namespace coda::cli
