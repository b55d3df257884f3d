#include "coda/cli/sm90/host.h"

#include "coda/backend/sm90/choice.h"
#include "coda/cli/sm90/host_time.h"

namespace coda::bench {
namespace {

Needs everything() {
  Needs all;
  for (const Program& p : programs()) all = all | p.needs;
  return all;
}

}  // namespace

// Of so many tiles that the fused way is taken.
HostMeter::HostMeter(const Meter& meter)
    : stream_(meter.stream()),
      usual_({2048, 2048, 2048}, everything(), meter.noise(), 128),
      other_({1920, 2304, 512}, everything(), meter.noise(), 128) {}

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
  return r;
}

}  // namespace coda::bench
