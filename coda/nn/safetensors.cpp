#include "coda/nn/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "coda/core/error.h"
#include "coda/core/json.h"

namespace coda::nn {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "coda: safetensors data is little-endian");

// The format's own limit, so that a damaged length cannot ask for all memory.
constexpr std::uint64_t kMaxHeader = 100'000'000;

// In the order of DType.
constexpr std::array<const char*, 6> kNames{"BF16", "F16", "F32", "F64", "I32", "I64"};

[[noreturn]] void damaged(const std::filesystem::path& path, const std::string& message) {
  throw Error(Status::invalid_argument, fmt::format("safetensors: {}: {}", path.string(), message));
}

json read_header(const InputFile& file, std::uint64_t& data_begin) {
  if (file.size() < 8) damaged(file.path(), fmt::format("expected at least 8 bytes, got {}", file.size()));
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMaxHeader || length > file.size() - 8) {
    damaged(file.path(),
            fmt::format("header length: expected at most {}, got {}", std::min(kMaxHeader, file.size() - 8), length));
  }
  std::string text(length, '\0');
  file.read(8, std::as_writable_bytes(std::span(text)));
  data_begin = 8 + length;
  constexpr int kDepth = 3;  // tensors, what is told of one, its sides
  std::array<std::set<std::string>, kDepth> names;
  const auto once = [&](int depth, json::parse_event_t event, const json& value) {
    if (depth > kDepth) damaged(file.path(), "header: expected lists of numbers, got deeper ones");
    if (event != json::parse_event_t::key) return;
    const auto level = static_cast<std::size_t>(depth - 1);
    if (level + 1 < names.size()) names[level + 1].clear();
    const auto name = value.get<std::string>();
    if (!names[level].insert(name).second) {
      damaged(file.path(), fmt::format("header: {}: expected once, got it twice", shown(name)));
    }
  };
  json header = parse_json(text, once);
  // The parser would skip a byte order mark or blanks.
  const bool plain = !text.empty() && text[0] == '{';
  if (!plain || !header.is_object()) damaged(file.path(), "header: expected a JSON object, got something else");
  return header;
}

DType parse_dtype(const std::filesystem::path& path, const std::string& name, const json& entry) {
  const auto it = entry.find("dtype");
  if (it == entry.end() || !it->is_string()) damaged(path, fmt::format("{}: dtype: expected a string", shown(name)));
  const auto text = it->get<std::string>();
  const auto found = std::find(kNames.begin(), kNames.end(), text);
  if (found == kNames.end()) {
    throw Error(Status::unsupported,
                fmt::format("safetensors: {}: {}: dtype: expected BF16, F16, F32, F64, I32 or I64, got {}",
                            path.string(), shown(name), shown(text)));
  }
  return static_cast<DType>(found - kNames.begin());
}

/// A list of `count` non-negative integers below 2^62 (any number of them for count < 0).
std::vector<std::int64_t> parse_integers(const std::filesystem::path& path, const std::string& name, const json& entry,
                                         const char* key, int count) {
  const auto it = entry.find(key);
  bool good = it != entry.end() && it->is_array() && (count < 0 || it->size() == static_cast<std::size_t>(count));
  std::vector<std::int64_t> values;
  for (std::size_t i = 0; good && i < it->size(); ++i) {
    good = (*it)[i].is_number_unsigned() && (*it)[i].get<std::uint64_t>() < std::uint64_t{1} << 62;
    if (good) values.push_back((*it)[i].get<std::int64_t>());
  }
  if (!good) {
    damaged(path, fmt::format("{}: {}: expected a list of {} non-negative integers", shown(name), key,
                              count < 0 ? std::string("any number") : std::to_string(count)));
  }
  return values;
}

TensorEntry parse_entry(const InputFile& file, const std::string& name, const json& entry, std::uint64_t data_begin) {
  const auto& path = file.path();
  if (!entry.is_object()) damaged(path, fmt::format("{}: expected an object, got {}", shown(name), entry.type_name()));
  TensorEntry out;
  out.dtype = parse_dtype(path, name, entry);
  out.shape = parse_integers(path, name, entry, "shape", -1);
  const auto offsets = parse_integers(path, name, entry, "data_offsets", 2);
  std::int64_t bytes = 0;
  try {
    bytes = element_count(out.shape, out.dtype) * size_of(out.dtype);
  } catch (const Error& error) {
    damaged(path, fmt::format("{}: {}", shown(name), error.what()));
  }
  if (offsets[1] < offsets[0] || offsets[1] - offsets[0] != bytes) {
    damaged(path,
            fmt::format("{}: data_offsets: expected {} bytes for {} of {}, got [{}, {}]", shown(name), bytes,
                        to_string(out.shape), kNames[static_cast<std::size_t>(out.dtype)], offsets[0], offsets[1]));
  }
  const std::uint64_t available = file.size() - data_begin;
  if (static_cast<std::uint64_t>(offsets[1]) > available) {
    damaged(path, fmt::format("{}: data_offsets: expected an end of at most {} (is the file truncated?), got {}",
                              shown(name), available, offsets[1]));
  }
  out.begin = data_begin + static_cast<std::uint64_t>(offsets[0]);
  out.bytes = static_cast<std::uint64_t>(bytes);
  return out;
}

/// The format wants every byte of the data to belong to exactly one tensor.
void check_cover(const InputFile& file, const std::map<std::string, TensorEntry>& tensors, std::uint64_t data_begin) {
  std::vector<std::pair<const std::string*, const TensorEntry*>> order;
  order.reserve(tensors.size());
  for (const auto& [name, entry] : tensors) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->bytes) < std::pair(b.second->begin, b.second->bytes);
  });
  std::uint64_t end = data_begin;
  for (const auto& [name, entry] : order) {
    if (entry->begin != end) {
      damaged(file.path(),
              fmt::format("{}: data_offsets: expected a begin of {}, got {} ({})", shown(*name), end - data_begin,
                          entry->begin - data_begin,
                          entry->begin < end ? "it overlaps another tensor" : "bytes before it are unused"));
    }
    end += entry->bytes;
  }
  if (end != file.size()) {
    damaged(file.path(), fmt::format("expected {} bytes, got {}", end, file.size()));
  }
}

}  // namespace

bool is_utf8(const std::string& text) {
  const json value(text);
  using Wrong = json::error_handler_t;
  return value.dump(-1, ' ', false, Wrong::replace) == value.dump(-1, ' ', false, Wrong::ignore);
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  std::uint64_t data_begin = 0;
  const json header = read_header(file_, data_begin);
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      tensors_.emplace(name, parse_entry(file_, name, entry, data_begin));
      continue;
    }
    if (!entry.is_object()) damaged(path, "__metadata__: expected an object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) damaged(path, fmt::format("__metadata__: {}: expected a string", shown(key)));
      metadata_.emplace(key, value.get<std::string>());
    }
  }
  check_cover(file_, tensors_, data_begin);
}

const TensorEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) damaged(path(), fmt::format("{}: expected this tensor, got none", shown(name)));
  return it->second;
}

void SafetensorsFile::load(const std::string& name, std::span<std::byte> out) const {
  const TensorEntry& found = entry(name);
  if (out.size() != found.bytes) {
    damaged(path(), fmt::format("{}: expected {} bytes, got {}", shown(name), out.size(), found.bytes));
  }
  file_.read(found.begin, out);
}

HostTensor SafetensorsFile::load(const std::string& name) const {
  const TensorEntry& found = entry(name);
  HostTensor tensor(found.dtype, found.shape);
  load(name, tensor.bytes());
  return tensor;
}

void write_safetensors(AtomicFile& file, std::vector<TensorToWrite> tensors, const Metadata& metadata) {
  // Wide types first, then by name, as the reference writer does: with a padded header all data is aligned.
  std::sort(tensors.begin(), tensors.end(), [](const TensorToWrite& a, const TensorToWrite& b) {
    return std::pair(-size_of(a.dtype), std::string_view(a.name)) <
           std::pair(-size_of(b.dtype), std::string_view(b.name));
  });
  const auto require_utf8 = [](const std::string& text) {
    if (is_utf8(text)) return;
    throw Error(Status::invalid_argument, fmt::format("safetensors: header: expected UTF-8, got {}", shown(text)));
  };
  for (const auto& [key, value] : metadata) require_utf8(key), require_utf8(value);
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = metadata;
  std::int64_t offset = 0, largest = 0;
  for (const TensorToWrite& tensor : tensors) {
    require_utf8(tensor.name);
    if (header.contains(tensor.name)) {
      throw Error(Status::invalid_argument, fmt::format("safetensors: {}: expected a new name", shown(tensor.name)));
    }
    const std::int64_t bytes = element_count(tensor.shape, tensor.dtype) * size_of(tensor.dtype);
    header[tensor.name] = {{"dtype", kNames[static_cast<std::size_t>(tensor.dtype)]},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
    largest = std::max(largest, bytes);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(text);
  std::vector<std::byte> buffer(static_cast<std::size_t>(largest));
  for (const TensorToWrite& tensor : tensors) {
    const std::int64_t bytes = element_count(tensor.shape, tensor.dtype) * size_of(tensor.dtype);
    const std::span part(buffer.data(), static_cast<std::size_t>(bytes));
    tensor.fill(part);
    file.write(part);
  }
}

void write_safetensors(const std::filesystem::path& path, std::vector<TensorToWrite> tensors,
                       const Metadata& metadata) {
  AtomicFile file(path);
  write_safetensors(file, std::move(tensors), metadata);
  file.commit();
}

}  // namespace coda::nn
