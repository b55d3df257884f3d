#include "coda/cli/sm90/kernels.h"

#include <algorithm>
#include <string>
#include <utility>

#include "coda/backend/sm90/choice.h"
#include "coda/cli/sm90/baseline.h"

namespace coda::bench {
namespace {

int rounds_for(double ms, int most) {
  return std::clamp(static_cast<int>(500 / std::max(ms, 0.01)), std::min(9, most), most);
}

}  // namespace

std::vector<KernelRecord> measure(const Group& g, const Meter& meter, int rounds) {
  if (!g.fits_in_memory()) return {};
  const Arguments arguments(g.shape, g.needs(), meter.noise(), g.head_dim);
  const CublasLt bare(arguments.a(g.layout), arguments.b(g.layout), g.layout, arguments.out);
  Candidates candidates;
  const auto add = [&](const std::string& name, const Launch& launch) {
    candidates.push_back(meter.candidate(name, launch));
  };
  add("bare", [&](void* on) { bare.run(on); });
  for (const Program* p : g.programs) {
    add(p->name, [&](void* on) { p->run(arguments, g.layout, on); });
    if (!g.both_ways || sm90::is_product(p->tunes)) continue;
    for (const auto way : {sm90::Way::fused, sm90::Way::unfused})
      add(p->name + std::string("_") + sm90::name_of(way), [&](void* on) {
        sm90::set_way(way);
        p->run(arguments, g.layout, on);
        sm90::set_way(sm90::Way::automatic);
      });
  }
  for (int i = 0; i < 3; ++i) candidates.front()->replay(meter.stream(), true);
  meter.interleave(candidates, rounds_for(candidates.front()->median(), rounds), kWarmUpMs);
  const double bare_ms = candidates.front()->median();
  std::vector<KernelRecord> records;
  records.reserve(candidates.size() - 1);
  for (std::size_t i = 1; i < candidates.size(); ++i)
    records.push_back({candidates[i]->name, g.shape, g.layout, candidates[i]->median(), bare_ms});
  if (bare_ms >= kLongMs) {
    meter.each_alone(candidates);
    for (std::size_t i = 1; i < candidates.size(); ++i)
      records[i - 1].alone = {candidates[i]->median(), candidates.front()->median()};
  }
  return records;
}

}  // namespace coda::bench
