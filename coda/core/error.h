// One exception type for everything that a caller can get wrong or that can fail at run time.
#pragma once

#include <stdexcept>
#include <string>

namespace coda {

enum class Status { invalid_argument, unsupported, io_error, device_error, interrupted };

/// Thrown by every public call. `what()` reads "operation: argument: expected ..., got ...", or, of a device_error,
/// "operation (shape): what failed: what was said of it". That is also a lack of memory for what a call needs between.
class Error : public std::runtime_error {
 public:
  Error(Status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  Status status() const noexcept { return status_; }

 private:
  Status status_;
};

}  // namespace coda
