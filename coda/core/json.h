// JSON of others.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coda {

/// The document; a discarded value where the text is none, or is nested deeper than any of ours: what one does with a
/// value (a copy, a dump) recurses. The parser by itself would end at a NUL, and not look at what is behind it.
/// `see(depth, event, value)` may throw at what it does not want, before memory is asked for it.
template <class See>
nlohmann::json parse_json(std::string_view text, const See& see) {
  constexpr int kDeepest = 64;
  bool deep = false;
  const auto look = [&](int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value) {
    deep = deep || depth > kDeepest;
    if (!deep) see(depth, event, value);
    return !deep;
  };
  auto root = nlohmann::json::parse(text, look, /*allow_exceptions=*/false);
  return deep || text.find('\0') != text.npos ? nlohmann::json(nlohmann::json::value_t::discarded) : root;
}

inline nlohmann::json parse_json(std::string_view text) {
  return parse_json(text, [](int, nlohmann::json::parse_event_t, const nlohmann::json&) {});
}

/// A value as a message shows it: no longer than a line, and in UTF-8 whatever its bytes.
inline std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() <= 120) return text;
  std::size_t end = 117;
  const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80; };
  while (end > 0 && continues(end)) --end;  // not in the middle of a character
  return text.substr(0, end) + "...";
}

}  // namespace coda
