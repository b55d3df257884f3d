// The small kernels between the programs beside a copy that moves as many bytes, and the host's time of a plain
// product.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "coda/cli/sm90/meter.h"
#include "coda/cli/sm90/records.h"

namespace coda::bench {

/// Memory of one measurement, all bytes 0x3c: small positive numbers in every type.
class Buffers {
 public:
  Matrix matrix(std::int64_t rows, std::int64_t cols, DType t);
  Vector vector(std::int64_t size, DType t) { return {matrix(1, size, t).data, t, size}; }
  Vector vector(const std::vector<std::int64_t>& values);

 private:
  std::vector<DeviceBuffer> buffers_;
};

/// `bytes` are what the kernel must at least read and write.
struct SmallCase {
  std::string name;
  std::int64_t m, n, bytes;
  std::function<Launch(Buffers&)> prepare;
};
/// Each kernel with a size that models have and one that fills the chip. Where it has so little to do that its launch
/// is what takes time (a fill of one element shows how long that is), the copy has the same. `memset` is not ours: what
/// the driver reaches where nothing is read, for comparison with `fill`.
std::vector<SmallCase> small_cases();
/// The copy reads and writes half of the bytes each.
SmallRecord measure(const SmallCase& c, const Meter& meter, int rounds);

/// A plain product's first call and one of a shape that was seen. `very_first`: nothing was called in the process
/// before.
std::vector<ProductHostRecord> measure_product_host(const Meter& meter, bool very_first);

}  // namespace coda::bench
