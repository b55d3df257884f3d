// How a function of C's interface calls its function of C++. Private to this folder: not installed.
#pragma once

#include <bit>
#include <cstddef>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <type_traits>

#include "coda/c/core.h"
#include "coda/core/error.h"
#include "coda/core/traffic.h"

namespace coda::c {

template <class Struct, class Member>
constexpr std::size_t size_of(Member Struct::*) {
  return sizeof(Member);  // NOLINT(bugprone-sizeof-expression): some are pointers
}

/// Whether a member lies where it does in the other struct, and is as large.
#define CODA_SAME_PLACE(C, Cpp, member) \
  (offsetof(C, member) == offsetof(Cpp, member) && coda::c::size_of(&C::member) == coda::c::size_of(&Cpp::member))

/// Keeps the message for coda_last_error, without allocating, and returns the status.
coda_status fail(coda_status status, const char* operation, const char* message) noexcept;

/// The status of running `f`, which may throw.
template <class F>
coda_status guarded(const char* operation, F&& f) noexcept {
  try {
    f();
    return CODA_OK;
  } catch (const Error& error) {  // its message begins with the operation
    return fail(CODA_INVALID_ARGUMENT + static_cast<coda_status>(error.status()), "", error.what());
  } catch (const std::bad_alloc&) {
    return fail(CODA_OUT_OF_MEMORY, operation, "expected enough memory of the host, got less");
  } catch (const std::exception& error) {
    return fail(CODA_INTERNAL_ERROR, operation, error.what());
  } catch (...) {
    return fail(CODA_INTERNAL_ERROR, operation, "an exception of an unknown type");
  }
}

/// The struct of C++ with what the one of C holds. Their members are the same, and lie at the same places.
template <class Args, class C>
Args from_c(const char* operation, const char* name, const C* c) {
  if (!c) {
    throw Error(Status::invalid_argument,
                std::string(operation) + ": " + name + ": expected a struct, got a null pointer");
  }
  Args args = std::bit_cast<Args>(*c);
  // That a span is a pointer and a size, in this order, is nowhere promised.
  if constexpr (requires { args.workspace; }) {
    args.workspace = std::span(static_cast<std::byte*>(c->workspace.data), c->workspace.data ? c->workspace.bytes : 0);
  }
  return args;
}

template <class Args, class C>
C defaults() noexcept {
  C c = std::bit_cast<C>(Args{});
  if constexpr (requires { c.workspace; }) c.workspace = {};
  return c;
}

template <class Args, class C>
coda_status call(const char* operation, void (*run)(const Args&), const C* c) noexcept {
  return guarded(operation, [&] {
    auto args = from_c<Args>(operation, "args", c);
    if constexpr (requires { args.traffic; }) {
      Traffic moved;
      args.traffic = c->traffic ? &moved : nullptr;
      run(args);
      if (c->traffic) *c->traffic += moved.bytes();
    } else {
      run(args);
    }
  });
}

/// For functions whose result is a number: it goes to `result`, which is left alone if they fail.
template <class F>
coda_status value(const char* operation, int64_t* result, F&& f) noexcept {
  return guarded(operation, [&] {
    if (!result) {
      throw Error(Status::invalid_argument,
                  std::string(operation) + ": result: expected a pointer, got a null pointer");
    }
    *result = f();
  });
}

}  // namespace coda::c
