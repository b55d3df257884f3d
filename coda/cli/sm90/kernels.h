// Programs beside cuBLASLt's bare product of the same shape.
#pragma once

#include <vector>

#include "coda/cli/sm90/groups.h"
#include "coda/cli/sm90/meter.h"
#include "coda/cli/sm90/records.h"

namespace coda::bench {

/// Medians of `rounds` replays in turn, or of as many as take about half a second each, but at least 9. Where the group
/// says so, each program but the plain product is also timed both ways: <program>_fused and <program>_unfused. Nothing
/// if the group needs too much memory. Long work (see kLongMs) is timed alone, too.
std::vector<KernelRecord> measure(const Group& group, const Meter& meter, int rounds);

}  // namespace coda::bench
