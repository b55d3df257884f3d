// The message of the error that a call throws.
#pragma once

#include <string>

#include "coda/core/error.h"

namespace coda::test {

/// Empty if it throws none.
template <class F>
std::string error_of(const F& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace coda::test
