#include "coda/nn/log.h"

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "coda/core/error.h"
#include "coda/core/json.h"

namespace coda::nn {

TrainLog::TrainLog(const std::filesystem::path& file, std::int64_t done, std::unique_ptr<FolderLock> held)
    : path_(file), lock_(held ? std::move(held) : std::make_unique<FolderLock>(file.parent_path())) {
  std::error_code ignored;  // what cannot be looked at is there
  if (done > 0 && std::filesystem::symlink_status(file, ignored).type() != std::filesystem::file_type::not_found) {
    std::istringstream in(read_text(file));
    for (std::string line; std::getline(in, line);) {
      const auto entry = parse_json(line);
      if (entry.is_object() && entry.contains("step") && entry["step"].is_number_integer() && entry["step"] <= done) {
        kept_ += line + '\n';
      }
    }
  }
}

void TrainLog::begin() {
  AtomicFile whole(path_);
  whole.write(kept_);
  whole.commit();
  out_.open(path_, std::ios::app);
}

void TrainLog::write(std::string_view line) {
  out_ << line << '\n' << std::flush;
  if (!out_) throw Error(Status::io_error, fmt::format("log: {}: the line could not be written", path_.string()));
}

}  // namespace coda::nn
