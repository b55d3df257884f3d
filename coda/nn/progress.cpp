#include "coda/nn/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace coda::nn {
namespace {

using Mode = ProgressOptions::Mode;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string format_rate(double tokens_per_second) {
  if (tokens_per_second >= 1e6) return fmt::format("{:.2f}M tokens/s", tokens_per_second / 1e6);
  if (tokens_per_second >= 1e4) return fmt::format("{:.1f}k tokens/s", tokens_per_second / 1e3);
  return fmt::format("{:.0f} tokens/s", tokens_per_second);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e8)) return "?";
  const auto s = static_cast<std::int64_t>(std::lround(seconds));
  if (s >= 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  if (s >= 60) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}s", s);
}

void tell(std::FILE* out, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

bool is_drawn_on(std::FILE* out) {
  const char* type = std::getenv("TERM");
  return ::isatty(::fileno(out)) && !(type && std::string_view(type) == "dumb");
}

Progress::Progress(std::string label, std::int64_t total, std::int64_t first, ProgressOptions options)
    : label_(std::move(label)), total_(total), first_(first), done_(first), options_(std::move(options)) {
  if (!options_.clock) options_.clock = steady_seconds;
  if (options_.mode == Mode::detect) options_.mode = is_drawn_on(options_.out) ? Mode::terminal : Mode::lines;
  start_ = options_.clock();
  last_draw_ = start_;
}

Progress::~Progress() { finish(); }

double Progress::elapsed() const { return options_.clock() - start_; }

bool Progress::due() const {
  const double pause = options_.mode == Mode::terminal ? (drawn_ ? 0.1 : 0.0) : options_.line_seconds;
  return options_.mode != Mode::off && options_.clock() - last_draw_ >= pause;
}

void Progress::update(std::int64_t done, std::string_view detail) {
  done_ = done;
  detail_ = detail;
  is_shown_ = false;
  if (due()) draw();
}

void Progress::update_training(std::int64_t done, double loss, std::int64_t tokens) {
  const double seconds = std::max(elapsed(), 1e-9);
  update(done, fmt::format("loss {:.4f}  {}", loss, format_rate(static_cast<double>(tokens) / seconds)));
}

int Progress::columns() const {
  winsize size{};
  return ::ioctl(::fileno(options_.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void Progress::draw() {
  last_draw_ = options_.clock();
  drawn_ = true;
  is_shown_ = true;
  const double part = total_ > 0 ? std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0) : 1.0;
  const std::string time =
      done_ >= total_ ? "in " + format_duration(elapsed())
      : done_ > first_
          ? format_duration(elapsed() * static_cast<double>(total_ - done_) / static_cast<double>(done_ - first_)) +
                " left"
          : "";
  std::string text =
      fmt::format("{:3.0f}%  {}/{}  {}{}{}", part * 100, done_, total_, detail_, detail_.empty() ? "" : "  ", time);
  if (options_.mode == Mode::lines) {
    tell(options_.out, fmt::format("{} {}\n", label_, text));
  } else {
    // The bar takes the room that is left; a line that would wrap is cut, since it could not be redrawn in place.
    const int room = columns() - 1;
    const int bar = std::min(30, room - static_cast<int>(label_.size() + text.size()) - 4);
    std::string line = label_ + ' ';
    if (bar >= 5) {
      const auto full = static_cast<std::size_t>(std::lround(part * bar));
      line += '[' + std::string(full, '#') + std::string(static_cast<std::size_t>(bar) - full, '.') + "] ";
    }
    line += text;
    tell(options_.out, fmt::format("\r{}\x1b[K", line.substr(0, static_cast<std::size_t>(std::max(room, 1)))));
  }
}

void Progress::note(std::string_view line) {
  if (options_.mode == Mode::off) return;
  if (options_.mode == Mode::terminal) {
    tell(options_.out, fmt::format("\r\x1b[K{}\n", line));
    if (drawn_ && !finished_) draw();
  } else {
    tell(options_.out, fmt::format("{}\n", line));
  }
}

void Progress::finish() {
  if (std::exchange(finished_, true) || options_.mode == Mode::off) return;
  if (!is_shown_ || done_ < total_) draw();
  if (options_.mode == Mode::terminal) tell(options_.out, "\n");
}

}  // namespace coda::nn
