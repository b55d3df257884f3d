// JSON of others. The parser takes as long to compile as all else of a file, so it is in json.cpp alone.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace coda {

/// What is told of a document while it is read: how deep, what (a key, a value, an object's begin), and the value.
using SeeJson = std::function<void(int depth, nlohmann::json::parse_event_t event, const nlohmann::json& value)>;

/// The document; a discarded value where the text is none, or is nested deeper than any of ours: what one does with a
/// value (a copy, a dump) recurses. The parser by itself would end at a NUL, and not look at what is behind it.
/// `see` may throw at what it does not want, before memory is asked for it.
nlohmann::json parse_json(std::string_view text, const SeeJson& see = {});

/// A value as a message shows it: no longer than a line, and in UTF-8 whatever its bytes.
std::string shown(const nlohmann::json& value);

}  // namespace coda
