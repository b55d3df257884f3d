// The command `coda`: exit status 0 when all went well, 1 when an operation or a check failed, 2 for a wrong call.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "coda/cli/commands.h"
#include "coda/core/build_info.h"
#include "coda/nn/progress.h"

namespace {

constexpr int kFailed = 1, kUsage = 2;
constexpr const char* kLost = "stdout: expected to write all of the output, could not";

int fail(int status, const char* message) {
  std::fflush(stdout);
  coda::nn::tell(stderr, fmt::format("coda: error: {}\n", message));
  return status;
}

// CLI11 would only say that a subcommand is required.
void refuse_unknown(const CLI::App& app, const char* name) {
  if (name[0] == '-') {
    if (app.get_option_no_throw(name)) return;
    throw coda::cli::UsageError("option", fmt::format("expected a subcommand, --help or --version, got `{}`", name));
  }
  std::string known;
  for (const CLI::App* s : app.get_subcommands(nullptr)) {
    if (s->check_name(name)) return;
    known += (known.empty() ? "" : ", ") + s->get_name();
  }
  throw coda::cli::UsageError("subcommand", fmt::format("expected one of {}, got `{}`", known, name));
}

/// A file that we write must not become the stdout or stderr that we were started without.
void take_standard_numbers() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(number, F_GETFD) < 0) ::open("/dev/null", O_RDONLY);  // gets this number; to write to it is an error
}

/// An empty value is mostly a variable of a script that was not set, and would mean that the option was not given.
void refuse_empty(CLI::App& app) {
  const auto check = [](const std::string& text) { return text.empty() ? "expected a value, got ``" : ""; };
  for (CLI::App* command : app.get_subcommands(nullptr)) {
    for (CLI::Option* option : command->get_options())
      if (option->get_items_expected_max() > 0 && !option->check_lname("prompt")) option->check(check, "");
  }
}

int refuse(const CLI::App& app, const std::exception& error) {
  const auto used = app.get_subcommands();
  fail(kUsage, error.what());
  coda::nn::tell(stderr, fmt::format("Try: coda{}{} --help\n", used.empty() ? "" : " ",
                                     used.empty() ? "" : used.front()->get_name()));
  return kUsage;
}

int run(CLI::App& app, int argc, char** argv) {
  try {
    if (argc > 1) refuse_unknown(app, argv[1]);
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    app.exit(success);
  } catch (const CLI::ParseError& error) {
    return refuse(app, error);
  } catch (const coda::cli::UsageError& error) {
    return refuse(app, error);
  }
  // What was printed may still be on its way, or was lost on it before: a full disk shows here.
  return std::fflush(stdout) == 0 && !std::ferror(stdout) ? 0 : fail(kFailed, kLost);
}

}  // namespace

int main(int argc, char** argv) {
  take_standard_numbers();
  try {
    CLI::App app("CODA: Transformer blocks as GEMM-epilogue programs.", "coda");
    app.set_version_flag("--version", std::string("coda ") + coda::build_info().version, "Print the version");
    app.require_subcommand(1);
    app.footer(
        "Examples:\n"
        "  coda info                              what this build and this machine can do\n"
        "  coda programs swiglu                   ports and formulas of the programs named so\n"
        "  coda verify --all                      every program against fp64, all types and layouts\n"
        "  coda verify gemm_lse --dtype bf16,fp32 --shape 300x520x200\n"
        "  coda bench gemm_rms_swiglu --shape 2048x2048x2048\n"
        "  coda info --explain gemm_rms_swiglu 16384 28672 4096\n"
        "Exit status: 0 all went well; 1 an operation or a check failed; 2 a wrong call.\n"
        "`coda <subcommand> --help` tells more.");
    coda::cli::add_info(app);
    coda::cli::add_programs(app);
    coda::cli::add_verify(app);
    coda::cli::add_bench(app);
    coda::cli::add_tune(app);
    coda::cli::add_train(app);
    coda::cli::add_generate(app);
    refuse_empty(app);
    return run(app, argc, argv);
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "out of memory");
  } catch (const std::exception& error) {
    return fail(kFailed, std::ferror(stdout) ? kLost : error.what());
  }
}
