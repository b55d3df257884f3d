#include "coda/nn/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

using coda::nn::format_duration;
using coda::nn::Progress;
using coda::nn::ProgressOptions;
using Mode = ProgressOptions::Mode;

/// A stream that remembers, and a clock that we turn.
class Capture {
 public:
  Capture() : stream_(::open_memstream(&text_, &size_)) {}
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    std::fclose(stream_);
    std::free(text_);
  }
  ProgressOptions options(Mode mode) {
    return {.out = stream_, .mode = mode, .line_seconds = 10, .clock = [this] { return now; }};
  }
  std::string text() {
    std::fflush(stream_);
    return {text_, size_};
  }
  double now = 100;

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* stream_;
};

TEST(Progress, OffATerminalItPrintsALineNowAndThen) {
  Capture capture;
  {
    Progress progress("train", 100, 0, capture.options(Mode::detect));  // a memory stream is no terminal
    for (int i = 1; i <= 50; ++i) {
      capture.now += 0.5;
      progress.update_training(i, 2.5, i * 8192);
    }
    EXPECT_EQ(capture.text(),
              "train  20%  20/100  loss 2.5000  16.4k tokens/s  40s left\n"
              "train  40%  40/100  loss 2.5000  16.4k tokens/s  30s left\n");
  }
  EXPECT_NE(capture.text().find("train  50%  50/100"), std::string::npos);
}

TEST(Progress, OnATerminalItRedrawsOneLine) {
  Capture capture;
  Progress progress("train", 10, 0, capture.options(Mode::terminal));
  capture.now += 1;
  progress.update(5, "half");
  EXPECT_EQ(capture.text(), "\rtrain [###############...............]  50%  5/10  half  1s left\x1b[K");
  const std::size_t before = capture.text().size();
  capture.now += 0.01;
  progress.update(6, "soon");
  EXPECT_EQ(capture.text().size(), before) << "drawn at most ten times a second";
  progress.note("a note");
  EXPECT_NE(capture.text().find("\r\x1b[Ka note\n"), std::string::npos);
  progress.update(10, "all");
  progress.finish();
  progress.finish();
  const std::string text = capture.text();
  EXPECT_NE(text.find("100%  10/10  all  in 1s\x1b[K\n"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
}

TEST(Progress, OnADumbTerminalItPrintsLines) {
  for (const char* type : {"xterm", "dumb"}) {
    const int host = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (host < 0 || ::grantpt(host) != 0 || ::unlockpt(host) != 0) GTEST_SKIP() << "no pseudo-terminals here";
    std::FILE* terminal = ::fopen(::ptsname(host), "w");
    ASSERT_NE(terminal, nullptr);
    ::setenv("TERM", type, 1);
    { Progress("train", 10, 0, {.out = terminal, .clock = {}}).note("a note"); }
    std::fclose(terminal);
    std::string text;
    char part[256];
    for (ssize_t size; (size = ::read(host, part, sizeof(part))) > 0;)
      text.append(part, static_cast<std::size_t>(size));
    ::close(host);
    EXPECT_NE(text.find("a note"), std::string::npos) << text;
    EXPECT_EQ(text.find('\x1b') != std::string::npos, std::string(type) == "xterm") << type << ": " << text;
  }
}

TEST(Progress, ALineNeverWraps) {
  Capture capture;
  Progress progress("train", 10, 0, capture.options(Mode::terminal));
  progress.update(5, std::string(300, 'x'));
  EXPECT_LE(capture.text().size(), 80u + 4);
}

TEST(Progress, TheLastThingToldIsShown) {
  Capture capture;
  Progress progress("train", 10, 0, capture.options(Mode::terminal));
  progress.update(10, "validating");
  progress.update(10, "all");
  progress.finish();
  EXPECT_NE(capture.text().find("10/10  all"), std::string::npos) << capture.text();
}

TEST(Progress, TheTimeLeftOfAResumedRunCountsItsOwnSteps) {
  Capture capture;
  Progress progress("train", 100, 80, capture.options(Mode::lines));
  capture.now += 10;
  progress.update(90);
  EXPECT_EQ(capture.text(), "train  90%  90/100  10s left\n");
}

TEST(Progress, OffIsSilent) {
  Capture capture;
  {
    Progress progress("train", 100, 0, capture.options(Mode::off));
    capture.now += 100;
    progress.update(50);
    progress.note("note");
  }
  EXPECT_EQ(capture.text(), "");
}

TEST(Progress, Durations) {
  EXPECT_EQ(format_duration(0.4), "0s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(3723), "1h02m");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(1e300), "?");
}

}  // namespace
