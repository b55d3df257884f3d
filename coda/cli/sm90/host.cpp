#include "coda/cli/sm90/host.h"

#include "coda/backend/sm90/choice.h"
#include "coda/backend/sm90/device.h"
#include "coda/cli/sm90/host_time.h"

namespace coda::bench {
namespace {

constexpr std::int64_t kHeadDim = 128;

Needs everything() {
  Needs all;
  for (const Program& p : programs()) all = all | p.needs;
  return all;
}

/// Whether a program that the table names runs as a kernel that splits the last round of its tiles.
bool is_split(const Program& p, const Shape& s) {
  const sm90::DeviceInfo device = sm90::device_info();
  const sm90::Explanation x = sm90::explain(p.tunes, DType::bf16, p.layout, s.m, s.n, s.k, kHeadDim,
                                            {device.multiprocessors, device.memory_gbs});
  return x.rounds && x.rounds->split.helpers > 0;
}

}  // namespace

// Of so many tiles that the fused way is taken; the last of a tile for each of 66 clusters, and 15 more.
HostMeter::HostMeter(const Meter& meter)
    : stream_(meter.stream()),
      usual_({2048, 2048, 2048}, everything(), meter.noise(), kHeadDim),
      other_({1920, 2304, 512}, everything(), meter.noise(), kHeadDim),
      split_({1152, 2304, 2048}, everything(), meter.noise(), kHeadDim) {}

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
  if (is_split(p, split_.shape)) {
    const auto split = [&] { p.run(split_, p.layout, stream_); };
    split();
    r.split_us = median_host_us(split);
  }
  return r;
}

}  // namespace coda::bench
