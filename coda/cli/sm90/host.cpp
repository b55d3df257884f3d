#include "coda/cli/sm90/host.h"

#include "coda/backend/sm90/choice.h"
#include "coda/backend/sm90/device.h"
#include "coda/backend/sm90/schedule.h"
#include "coda/cli/sm90/host_time.h"

namespace coda::bench {
namespace {

Needs everything() {
  Needs all;
  for (const Program& p : programs()) all = all | p.needs;
  return all;
}

/// Whether a fused kernel splits the last round of its tiles.
bool is_split(const Shape& s) {
  const std::int64_t tiles = ceil_div(s.m, sm90::kTileM) * ceil_div(s.n, sm90::kTileN * sm90::kClusterN);
  return sm90::rounds_of(tiles, ceil_div(s.k, sm90::kStepK), sm90::device_info().multiprocessors).split.helpers > 0;
}

}  // namespace

// Of so many tiles that the fused way is taken; the last of one for each of 66 clusters, and 15 more.
HostMeter::HostMeter(const Meter& meter)
    : stream_(meter.stream()),
      usual_({2048, 2048, 2048}, everything(), meter.noise(), 128),
      other_({1920, 2304, 512}, everything(), meter.noise(), 128),
      split_({1152, 2304, 2048}, everything(), meter.noise(), 128) {}

HostRecord HostMeter::measure(const Program& p) const {
  HostRecord r{p.name, p.layout, 0, 0, 0, 0};
  const auto call = [&] { p.run(usual_, p.layout, stream_); };
  r.first_us = host_us(call);
  r.new_us = host_us([&] { p.run(other_, p.layout, stream_); });
  r.seen_us = median_host_us(call);
  sm90::set_way(sm90::Way::unfused);
  call();
  r.unfused_us = median_host_us(call);
  sm90::set_way(sm90::Way::automatic);
  if (p.layout != Layout::tn && is_split(split_.shape)) {
    const auto split = [&] { p.run(split_, p.layout, stream_); };
    split();
    r.split_us = median_host_us(split);
  }
  return r;
}

}  // namespace coda::bench
