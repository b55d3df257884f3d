// libFuzzer's entry: bytes as a call of the interface for C. `make test-fuzz` builds and runs it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/support/any_call.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const coda::test::AnyOutcome outcome = coda::test::run_any_call({data, size});
  if (!outcome.broken.empty()) {
    std::fprintf(stderr, "fuzz: %s\n", outcome.broken.c_str());
    std::abort();
  }
  return outcome.ran ? 0 : -1;  // what is no call is not worth keeping
}
