// The subcommands of `coda`. Each function registers one: its options, its help, and a callback that does the work,
// prints to stdout and throws: coda::Error (or any std::exception) when something failed, CLI::ValidationError when an
// argument makes no sense.
#pragma once

#include <CLI/CLI.hpp>

namespace coda::cli {

void add_info(CLI::App& app);
void add_programs(CLI::App& app);
void add_verify(CLI::App& app);
void add_bench(CLI::App& app);
void add_tune(CLI::App& app);
void add_train(CLI::App& app);
void add_generate(CLI::App& app);

}  // namespace coda::cli
