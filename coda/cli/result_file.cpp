#include "coda/cli/result_file.h"

#include <fmt/format.h>

#include <ctime>
#include <fstream>

#include "coda/core/error.h"
#include "coda/core/file.h"

namespace coda::cli {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}
/// The display driver's version, which CUDA does not tell.
std::string driver() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;)
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) return word;
  return "unknown";
}
std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

/// What no other file can take the place of, such as a pipe or a terminal.
bool is_stream(const std::filesystem::path& path) {
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

}  // namespace

std::string lines_of(const nlohmann::ordered_json& file) {
  const auto flat = [](const nlohmann::ordered_json& record) {
    std::string text;
    for (const auto& [key, value] : record.items())
      text += (text.empty() ? "\"" : ", \"") + key + "\": " + value.dump();
    return "{" + text + "}";
  };
  std::string text;
  for (const auto& [key, value] : file.items()) {
    text += (text.empty() ? "{\n  \"" : ",\n  \"") + key + "\": ";
    if (!value.is_array()) {
      text += value.dump();
      continue;
    }
    text += "[\n";
    for (std::size_t i = 0; i < value.size(); ++i)
      text += "    " + flat(value[i]) + (i + 1 < value.size() ? ",\n" : "\n");
    text += "  ]";
  }
  return text + "\n}\n";
}

nlohmann::ordered_json provenance(const sm90::DeviceInfo& device, const std::string& commit) {
  return {{"device", device.name},
          {"driver", driver()},
          {"cuda_driver", version(device.driver)},
          {"cuda", version(device.runtime)},
          {"cutlass", device.cutlass},
          {"cublaslt", device.cublaslt},
          {"commit", commit},
          {"date", today()}};
}

void require_writable(const std::filesystem::path& path, const char* option) {
  std::error_code ignored;  // opening the file fails, too
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), ignored);
  try {
    if (!is_stream(path)) {
      const AtomicFile made(path);  // and not kept
    } else if (!std::ofstream(path, std::ios::app)) {
      throw Error(Status::io_error, path.string());
    }
  } catch (const Error&) {
    throw Error(Status::io_error, fmt::format("{}: expected a file to write, got {}", option, path.string()));
  }
}

void write_result_file(const std::filesystem::path& path, const nlohmann::ordered_json& file, const char* option) {
  try {
    if (!is_stream(path)) {
      AtomicFile out(path);
      out.write(lines_of(file));
      out.commit();
    } else if (!(std::ofstream(path) << lines_of(file) << std::flush)) {
      throw Error(Status::io_error, path.string());
    }
  } catch (const Error& error) {
    throw Error(Status::io_error, fmt::format("{}: could not write {}", option, error.what()));
  }
}

}  // namespace coda::cli
