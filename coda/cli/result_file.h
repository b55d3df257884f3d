// Files of measurements, as they lie under results/ and as the library reads them (CODA_TUNING).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "coda/backend/sm90/device.h"

namespace coda::cli {

/// The text of a result file: each record, an element of a list, on one line, so that files can be compared.
std::string lines_of(const nlohmann::ordered_json& file);

/// What a result file says once: device, versions, commit and today's date.
nlohmann::ordered_json provenance(const sm90::DeviceInfo& device, const std::string& commit);

/// Before the minutes that measuring takes: makes the folder, and throws Error(io_error) naming `option` if the file
/// cannot be written.
void require_writable(const std::filesystem::path& path, const char* option);
void write_result_file(const std::filesystem::path& path, const nlohmann::ordered_json& file, const char* option);

}  // namespace coda::cli
