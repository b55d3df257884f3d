// A subcommand's options, as CLI11 reads them. Its headers take six seconds to compile, under sanitizers ten, so only
// command.cpp and main.cpp include them.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace coda::cli {

/// A wrong call: an option, what was expected of it, and what came.
class UsageError : public std::runtime_error {
 public:
  UsageError(const std::string& option, const std::string& message) : std::runtime_error(option + ": " + message) {}
  static UsageError missing(const std::string& option) { return UsageError(option + " is required"); }

 private:
  using std::runtime_error::runtime_error;
};

/// What is wrong with a whole number from `least` to `most`, in decimal, that is to be `x`; nothing if it is empty.
template <class Integer>
std::string problem_of(const std::string& text, Integer& x, Integer least,
                       Integer most = std::numeric_limits<Integer>::max()) {
  const char* end = text.data() + text.size();
  const auto [next, status] = std::from_chars(text.data(), end, x);
  if (status == std::errc() && next == end && x >= least && x <= most) return {};
  return fmt::format("expected a whole number from {} to {}, got `{}`", least, most, text);
}

/// A handle to one option of a command. Each function returns it for the next.
class Option {
 public:
  explicit Option(CLI::Option& option) : option_(&option) {}

  Option required() const;
  Option excludes(const Option& other) const;
  /// The other option has to be there, too.
  Option needs(const Option& other) const;
  /// The heading of the help that it is under.
  Option group(const char* name) const;
  /// The help has the value that it begins with.
  Option shows_default() const;
  /// A number of which `holds` is true; `expected` says so in words.
  Option where(const std::function<bool(double)>& holds, const std::string& expected) const;
  /// A finite number of at least that. CLI11's own check lets NaN pass.
  Option at_least(int least) const;

 private:
  CLI::Option* option_;
};

/// A subcommand. What options set has to live as long as the application.
class Command {
 public:
  Command(CLI::App& app, const char* name, const char* description);

  Option flag(const char* names, bool& value, const std::string& help);
  /// Text, a path or a number that may be a fraction: std::string, std::filesystem::path, float, double.
  template <class Value>
  Option option(const char* names, Value& value, const std::string& help);
  /// A whole number from `least` to `most`: int, std::int64_t, std::uint64_t. CLI11 would take the largest one for a
  /// larger one, and one that begins with a 0 for an octal one.
  template <class Integer>
  Option whole(const char* names, Integer& value, const std::string& help, Integer least = 0,
               Integer most = std::numeric_limits<Integer>::max());
  /// The same, from `least` on, where an option that is not given means something of its own.
  Option whole(const char* names, std::optional<int>& value, const std::string& help, int least);
  /// A list, by commas or by repeating. CLI11's own would drop empty entries; here each stays, for the check of the
  /// entries to refuse.
  Option list(const char* flag, std::vector<std::string>& values, const std::string& help);
  /// What has no option's name in front of it.
  Option words(const char* name, std::vector<std::string>& values, const std::string& help);
  /// An option with that many words behind it, and what they are.
  Option words(const char* flag, std::vector<std::string>& values, int count, const char* what,
               const std::string& help);

  /// The end of the help.
  void footer(const std::string& text);
  /// What the command does, when all options are set: prints to stdout and throws coda::Error (or any std::exception)
  /// when something failed, UsageError when an argument makes no sense.
  void runs(const std::function<void()>& work);

 private:
  CLI::App& app_;
};

}  // namespace coda::cli
