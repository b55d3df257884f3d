// What this copy of the library was built with, for `coda info` and bug reports.
#pragma once

namespace coda {

struct BuildInfo {
  const char* version;     // "0.1.0"
  const char* commit;      // of the sources when they were configured, "" outside of a git checkout
  const char* compiler;    // "GNU 12.2.0"
  const char* build_type;  // "Release"
  const char* flags;       // flags of that build type
  const char* cpu_arch;    // value of -march=
  const char* sanitizers;  // "" or "address,undefined"
  const char* cuda;        // version of nvcc, "" when the Hopper backend was not built
};

/// Never fails; the strings live as long as the program.
const BuildInfo& build_info();

}  // namespace coda
