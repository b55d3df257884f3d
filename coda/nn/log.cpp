#include "coda/nn/log.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "coda/core/error.h"

namespace coda::nn {

TrainLog::TrainLog(const std::filesystem::path& file, std::int64_t done) : path_(file), lock_(file.parent_path()) {
  std::string kept;
  if (done > 0) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
      const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (entry.is_object() && entry.contains("step") && entry["step"].is_number_integer() && entry["step"] <= done) {
        kept += line + '\n';
      }
    }
  }
  AtomicFile whole(file);
  whole.write(kept);
  whole.commit();
  out_.open(file, std::ios::app);
}

void TrainLog::write(std::string_view line) {
  out_ << line << '\n' << std::flush;
  if (!out_) throw Error(Status::io_error, fmt::format("log: {}: the line could not be written", path_.string()));
}

}  // namespace coda::nn
