// A table of bad calls of one operation: each starts from a call that works, spoils one thing, and must give an Error
// that names operation, argument, what was expected and what came, with every output as it was before.
#pragma once

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "coda/c/core.h"
#include "tests/programs/harness.h"
#include "tests/support/any_call.h"

namespace coda::test {

/// The member of a call, for the functions below: AT(heads.table).
#define AT(member) [](auto& call_) -> auto& { return call_.member; }

template <class Call>
class BadCalls {
  /// A function that lives longer than this. There are many hundred of them, each of a type of its own: made into a
  /// std::function each, they take the compiler twice as long.
  class Spoil {
   public:
    template <class F>
    Spoil(const F& f) : f_(&f), run_([](const void* g, Call& x) { (*static_cast<const F*>(g))(x); }) {}
    void operator()(Call& x) const { run_(f_, x); }

   private:
    const void* f_;
    void (*run_)(const void*, Call&);
  };

 public:
  /// `make` fills a case of these sizes with a call that works; `run` is the operation.
  BadCalls(const char* operation, void (*run)(const Call&), std::function<Call(Case&)> make)
      : operation_(operation), run_(run), make_(std::move(make)) {
    Case c = fresh();
    const Call call = make_(c);
    EXPECT_NO_THROW(run_(call)) << operation << ": the call that the bad ones are made of";
    add("on.backend", "expected", [](Call& x) { x.on.backend = static_cast<ops::Backend>(9); });
    spoil_at_random(call);
  }

  /// What can be wrong with any matrix; `fixed` says that its shape is prescribed by other arguments.
  template <class At>
  BadCalls& matrix(const char* name, At at, bool required, bool fixed = true) {
    add(name, "got int32", [at](Call& x) { at(x).dtype = DType::int32; });
    add(name, "got no dtype", [at](Call& x) { at(x).dtype = static_cast<DType>(200); });
    add(name, "bytes off", [at](Call& x) { shift(at(x).data, 1); });
    add(name, "at least 0", [at](Call& x) { at(x).rows = -1; });
    add(name, "at least 0", [at](Call& x) { at(x).cols = -1; });
    if (fixed) {
      add(name, "expected shape", [at](Call& x) { ++at(x).rows; });
      add(name, "expected shape", [at](Call& x) { --at(x).cols; });
    }
    if (required) add(name, "null pointer", [at](Call& x) { at(x).data = nullptr; });
    if (required) add(name, "got none", [at](Call& x) { at(x) = {}; });
    Case c = fresh();
    Call probe = make_(c);
    if (at(probe).rows > 1) {
      add(name, "pitch", [at](Call& x) { at(x).pitch = at(x).cols - 1; });
      add(name, "2^62 bytes", [at](Call& x) { at(x).pitch = std::int64_t{1} << 60; });
    }
    return *this;
  }
  template <class At>
  BadCalls& vector(const char* name, At at, bool required) {
    add(name, "expected dtype", [at](Call& x) {
      const bool index = at(x).dtype == DType::int32 || at(x).dtype == DType::int64;
      at(x).dtype = index ? DType::bf16 : DType::int64;
    });
    add(name, "bytes off", [at](Call& x) { shift(at(x).data, 1); });
    add(name, "got", [at](Call& x) { ++at(x).size; });
    add(name, "at least 0", [at](Call& x) { at(x).size = -1; });
    if (required) {
      add(name, "null pointer", [at](Call& x) { at(x).data = nullptr; });
      add(name, "got none", [at](Call& x) { at(x) = {}; });
    }
    return *this;
  }
  /// An output whose memory begins inside that of another argument, `by` elements past its begin.
  template <class Out, class Other>
  BadCalls& overlap(const char* name, Out out, Other other, std::int64_t by = 1) {
    add(name, "overlaps", [out, other, by](Call& x) {
      using Pointer = std::remove_reference_t<decltype(out(x).data)>;
      out(x).data = const_cast<Pointer>(static_cast<const void*>(other(x).data));
      shift(out(x).data, by * size_of(out(x).dtype));
    });
    return *this;
  }
  BadCalls& add(const char* argument, const char* text, Spoil spoil) {
    ++count_;
    Case c = fresh();
    Call call = make_(c);
    spoil(call);
    const std::string begin = std::string(operation_) + ": ";
    try {
      run_(call);
      ADD_FAILURE() << begin << argument << ": expected an error with '" << text << "', got none (bad call " << count_
                    << ")";
    } catch (const Error& e) {
      const std::string what = e.what();
      const bool elsewhere = what.find("got sm90") != std::string::npos;  // a backend that has not the operation
      EXPECT_EQ(e.status(), elsewhere ? Status::unsupported : Status::invalid_argument) << what;
      EXPECT_EQ(what.rfind(begin, 0), 0u) << what;
      const std::string named = what.substr(std::min(begin.size(), what.size()));
      EXPECT_EQ(named.rfind(argument, 0), 0u) << what << "\n  expected it to name " << argument;
      for (const char* part : {"expected", "got", text}) {
        EXPECT_NE(what.find(part), std::string::npos) << what << "\n  expected it to say '" << part << "'";
      }
    }
    EXPECT_EQ(c.touched(), "") << begin << argument << " (" << text << ")";
    return *this;
  }
  int count() const { return count_; }

 private:
  static Case fresh() { return Case(DType::bf16, coda::Layout::nt, 4, 8, 6, 1, true, base_seed()); }
  /// Calls that nobody thought of; and, where CODA_FUZZ_SEEDS names a folder, what a fuzzer begins with.
  void spoil_at_random(const Call& call) {
    constexpr std::int64_t kCalls = 1000;
    const std::vector<std::uint8_t> bytes = bytes_of_call(operation_, &call, sizeof call);
    ASSERT_FALSE(bytes.empty()) << operation_ << ": expected a call of the interface for C";
    EXPECT_TRUE(run_any_call(bytes).succeeded) << operation_ << ": " << coda_last_error();
    const Mutations mutations = run_mutations(bytes, kCalls, base_seed());
    EXPECT_EQ(mutations.broken, "") << "seed " << base_seed();
    EXPECT_GT(mutations.ran, kCalls / 4) << operation_;
    EXPECT_GT(mutations.succeeded, kCalls / 20) << operation_;
    if (const char* folder = std::getenv("CODA_FUZZ_SEEDS")) {
      std::ofstream(std::string(folder) + "/" + operation_, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  static void shift(void*& p, std::int64_t bytes) { p = static_cast<std::byte*>(p) + bytes; }
  static void shift(const void*& p, std::int64_t bytes) { p = static_cast<const std::byte*>(p) + bytes; }

  const char* operation_;
  void (*run_)(const Call&);
  std::function<Call(Case&)> make_;
  int count_ = 0;
};

}  // namespace coda::test
