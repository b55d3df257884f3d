// One line that tells how far a long job is. Redrawn in place on a terminal, a plain line now and then elsewhere.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

namespace coda::nn {

/// "1h02m", "3m05s", "12s"
std::string format_duration(double seconds);

/// Prints what is told beside the work, which goes on where it cannot be written: a full disk, a pipe without a reader.
void tell(std::FILE* out, std::string_view text);

/// Whether a line of it can be drawn again: a terminal, but no dumb one (TERM), such as an editor's.
bool is_drawn_on(std::FILE* out);

struct ProgressOptions {
  std::FILE* out = stderr;
  enum class Mode { detect, terminal, lines, off } mode = Mode::detect;
  double line_seconds = 10;       // between two lines where lines of `out` cannot be redrawn
  std::function<double()> clock;  // seconds; the steady clock unless given
};

class Progress {
 public:
  /// A job of `total` units, of which `first` were done in an earlier run.
  Progress(std::string label, std::int64_t total, std::int64_t first = 0, ProgressOptions options = {});
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();

  /// `done` units of the total are done. Cheap: draws at most ten times a second.
  void update(std::int64_t done, std::string_view detail = {});
  /// The same for training: `loss` in nats per token and all the tokens processed since the start of this run.
  void update_training(std::int64_t done, double loss, std::int64_t tokens);
  /// Prints a line of its own above the bar.
  void note(std::string_view line);
  /// Draws the last state and ends the line. Called by the destructor if need be.
  void finish();

  double elapsed() const;

 private:
  bool due() const;
  void draw();
  int columns() const;

  std::string label_, detail_;
  std::int64_t total_, first_, done_;
  ProgressOptions options_;
  double start_, last_draw_;
  bool finished_ = false, drawn_ = false, is_shown_ = false;  // is_shown_: what was told last
};

}  // namespace coda::nn
