// The log of a run: one JSON object a line, flushed as it is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "coda/core/file.h"

namespace coda::nn {

class TrainLog {
 public:
  /// Continues the log after step `done` (0: a new one). Its folder is held as FolderLock does, by `held` if that is
  /// one; nothing is written yet. Throws Error(io_error) if a log is there that cannot be read.
  TrainLog(const std::filesystem::path& file, std::int64_t done, std::unique_ptr<FolderLock> held = nullptr);

  /// Writes the lines up to step `done`: those of later steps, which a run wrote after its last checkpoint, go.
  void begin();
  /// One JSON object, once it has begun. Throws Error(io_error) when it cannot be written.
  void write(std::string_view line);

 private:
  std::filesystem::path path_;
  std::unique_ptr<FolderLock> lock_;
  std::string kept_;
  std::ofstream out_;
};

}  // namespace coda::nn
