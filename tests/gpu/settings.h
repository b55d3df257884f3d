// Numbers that an environment variable may change.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace coda::test::gpu {

inline std::uint64_t setting(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}
/// Set to run a few small shapes only, as the sanitizers need: each kernel once.
inline bool small_only() { return setting("CODA_TEST_SMALL", 0) != 0; }

}  // namespace coda::test::gpu
