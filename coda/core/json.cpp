#include "coda/core/json.h"

namespace coda {

using nlohmann::json;

json parse_json(std::string_view text, const SeeJson& see) {
  constexpr int kDeepest = 64;
  bool deep = false;
  const auto look = [&](int depth, json::parse_event_t event, const json& value) {
    deep = deep || depth > kDeepest;
    if (!deep && see) see(depth, event, value);
    return !deep;
  };
  json root = json::parse(text, look, /*allow_exceptions=*/false);
  return deep || text.find('\0') != text.npos ? json(json::value_t::discarded) : root;
}

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() <= 120) return text;
  std::size_t end = 117;
  const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xc0) == 0x80; };
  while (end > 0 && continues(end)) --end;  // not in the middle of a character
  return text.substr(0, end) + "...";
}

}  // namespace coda
