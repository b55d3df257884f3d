// A call of C's interface as bytes, so that whatever makes bytes makes calls: mutations of calls that work, or a
// fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coda::test {

/// What came of a call: `broken` says which promise was not kept, and is empty where all were.
struct AnyOutcome {
  bool ran = false;  // false: the bytes are no call, or one of memory that there is not
  bool succeeded = false;
  std::string broken;
};

/// Runs the call of these bytes: the operation's number, the struct of its arguments, and what its memory begins with.
/// A pointer is 0, or counts bytes from the begin of that memory. Views that claim more memory than that make no call,
/// for they would be the caller's fault, unless they claim what the library must refuse.
///
/// The promises: a call succeeds or says "operation: ..." and has written nothing; one that succeeds has written
/// nothing but its outputs and its workspace. Reads outside of the memory are for a sanitizer to find.
AnyOutcome run_any_call(std::span<const std::uint8_t> bytes);

/// The bytes of a call that works; `args` are the operation's arguments as C++ has them.
std::vector<std::uint8_t> bytes_of_call(const std::string& operation, const void* args, std::size_t size);

/// Makes `count` other calls of this one, each by a few changes of its struct's words and of its memory, and runs them.
struct Mutations {
  std::int64_t ran = 0, succeeded = 0;
  std::string broken;  // of the first that broke a promise
};
Mutations run_mutations(const std::vector<std::uint8_t>& call, std::int64_t count, std::uint64_t seed);

}  // namespace coda::test
