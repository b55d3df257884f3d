#include "coda/cli/command.h"

#include <CLI/CLI.hpp>
#include <cmath>

namespace coda::cli {

Option Option::required() const { return option_->required(), *this; }
Option Option::excludes(const Option& other) const { return option_->excludes(other.option_), *this; }
Option Option::needs(const Option& other) const { return option_->needs(other.option_), *this; }
Option Option::group(const char* name) const { return option_->group(name), *this; }
Option Option::shows_default() const { return option_->capture_default_str(), *this; }

Option Option::where(const std::function<bool(double)>& holds, const std::string& expected) const {
  const auto check = [holds, expected](const std::string& text) -> std::string {
    double x = 0;
    if (CLI::detail::lexical_cast(text, x) && holds(x)) return {};
    return fmt::format("expected {}, got `{}`", expected, text);
  };
  option_->check(check, "");
  return *this;
}
Option Option::at_least(int least) const {
  return where([least](double x) { return std::isfinite(x) && x >= least; },
               fmt::format("a number of at least {}", least));
}

Command::Command(CLI::App& app, const char* name, const char* description)
    : app_(*app.add_subcommand(name, description)) {}

Option Command::flag(const char* names, bool& value, const std::string& help) {
  return Option(*app_.add_flag(names, value, help));
}

template <class Value>
Option Command::option(const char* names, Value& value, const std::string& help) {
  return Option(*app_.add_option(names, value, help));
}
template Option Command::option(const char*, std::string&, const std::string&);
template Option Command::option(const char*, std::filesystem::path&, const std::string&);
template Option Command::option(const char*, float&, const std::string&);
template Option Command::option(const char*, double&, const std::string&);

namespace {

/// CLI11 is given the number without leading zeros.
template <class Integer>
CLI::Validator whole_number(Integer least, Integer most) {
  const auto check = [least, most](std::string& text) {
    Integer x{};
    std::string problem = problem_of(text, x, least, most);
    if (problem.empty()) text = fmt::to_string(x);
    return problem;
  };
  return {check, {}};
}

}  // namespace

template <class Integer>
Option Command::whole(const char* names, Integer& value, const std::string& help, Integer least, Integer most) {
  return Option(*app_.add_option(names, value, help)->transform(whole_number(least, most)));
}
template Option Command::whole(const char*, int&, const std::string&, int, int);
template Option Command::whole(const char*, std::int64_t&, const std::string&, std::int64_t, std::int64_t);
template Option Command::whole(const char*, std::uint64_t&, const std::string&, std::uint64_t, std::uint64_t);

Option Command::whole(const char* names, std::optional<int>& value, const std::string& help, int least) {
  CLI::Option* option = app_.add_option(names, value, help);
  return Option(*option->transform(whole_number(least, std::numeric_limits<int>::max())));
}

Option Command::list(const char* flag, std::vector<std::string>& values, const std::string& help) {
  const auto split = [&values](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      for (std::size_t first = 0, comma = 0; comma != std::string::npos; first = comma + 1) {
        comma = text.find(',', first);
        values.push_back(text.substr(first, comma - first));
      }
    }
  };
  return Option(*app_.add_option_function<std::vector<std::string>>(flag, split, help)->allow_extra_args(false));
}

Option Command::words(const char* name, std::vector<std::string>& values, const std::string& help) {
  return Option(*app_.add_option(name, values, help));
}
Option Command::words(const char* flag, std::vector<std::string>& values, int count, const char* what,
                      const std::string& help) {
  return Option(*app_.add_option(flag, values, help)->expected(count)->type_name(what));
}

void Command::footer(const std::string& text) { app_.footer(text); }
void Command::runs(const std::function<void()>& work) { app_.callback(work); }

}  // namespace coda::cli
