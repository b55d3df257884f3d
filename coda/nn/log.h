// The log of a run: one JSON object a line, flushed as it is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "coda/nn/file.h"

namespace coda::nn {

class TrainLog {
 public:
  /// Continues the log after step `done`: lines of later steps, which a run wrote after its last checkpoint, go. Its
  /// folder is held as FolderLock does.
  TrainLog(const std::filesystem::path& file, std::int64_t done);

  /// One JSON object. Throws Error(io_error) when it cannot be written.
  void write(std::string_view line);

 private:
  std::filesystem::path path_;
  FolderLock lock_;
  std::ofstream out_;
};

}  // namespace coda::nn
