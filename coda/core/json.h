// JSON of others.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coda {

/// The document; a discarded value where the text is none, or is nested deeper than any of ours: what one does with a
/// value (a copy, a dump) recurses.
inline nlohmann::json parse_json(std::string_view text) {
  constexpr int kDeepest = 64;
  bool deep = false;
  const auto look = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    deep = deep || depth > kDeepest;
    return !deep;
  };
  auto root = nlohmann::json::parse(text, look, /*allow_exceptions=*/false);
  return deep ? nlohmann::json(nlohmann::json::value_t::discarded) : root;
}

/// A value as a message shows it: no longer than a line, and in UTF-8 whatever its bytes.
inline std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= 120 ? text : text.substr(0, 117) + "...";
}

}  // namespace coda
