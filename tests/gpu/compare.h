// Comparing results on the device, where thousands of them are. No CUDA header is needed here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace coda::test {

/// Adds to *differing, on the device, how many of the 16-byte words of `now` are not those of `expected`, and sets
/// `now` to `initial`. `bytes` and addresses are multiples of 16. Does not wait.
void compare_and_restore(void* now, const void* expected, const void* initial, std::size_t bytes,
                         std::uint64_t* differing, void* stream);

}  // namespace coda::test
