// The subcommands of `coda`. Each function registers one: its options, its help, and what it does.
#pragma once

#include "coda/cli/command.h"

namespace coda::cli {

void add_info(CLI::App& app);
void add_programs(CLI::App& app);
void add_verify(CLI::App& app);
void add_bench(CLI::App& app);
void add_tune(CLI::App& app);
void add_train(CLI::App& app);
void add_generate(CLI::App& app);

}  // namespace coda::cli
