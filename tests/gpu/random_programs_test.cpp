// Programs that nobody wrote (tests/random/generate.py), on both backends: ports of all kinds, in any order, give what
// ports.h says of each of them. As many as CMake's CODA_RANDOM_PROGRAMS says, of its CODA_RANDOM_SEED.
#include "random_programs.h"

#include <span>

#include "tests/gpu/device.h"
#include "tests/random/harness.h"

#if !defined(CODA_TEST_CUDA)  // else in random_<number>.cu
template <class T, class P>
void coda::sm90::Product<T, P>::run(const ConstMatrix&, const ConstMatrix&, Layout, const P&, void*, const char* op) {
  throw Error(Status::unsupported, std::string(op) + ": expected a build with CUDA");
}
#endif

namespace coda::test {
namespace {

using enum coda::Layout;

std::string text_of(const RandomCall& c) {
  return fmt::format("M={} N={} K={} {} head_dim={} pad={} seed={}", c.m, c.n, c.k, name_of(c.layout), c.head_dim,
                     c.pad, c.seed);
}

/// Ends of tiles in each direction, all layouts, heads that a tile holds some, one and a part of, rows with a pitch.
constexpr RandomCall kCalls[] = {
    {.m = 1, .n = 8, .k = 8},
    {.m = 100, .n = 264, .k = 64},
    {.m = 300, .n = 520, .k = 136},
    {.m = 129, .n = 136, .k = 72, .layout = nn},
    {.m = 129, .n = 130, .k = 70, .layout = nn},
    {.m = 257, .n = 90, .k = 33, .layout = tn},
    {.m = 70, .n = 1032, .k = 24, .head_dim = 64},
    {.m = 64, .n = 192, .k = 16, .head_dim = 128},
    {.m = 200, .n = 520, .k = 24, .layout = nn, .head_dim = 2, .pad = 8},
};
/// Tiles for more than a round of a GPU, few tiles and a long K, heads wider than a tile.
constexpr RandomCall kLarger[] = {
    {.m = 1920, .n = 1160, .k = 64, .head_dim = 128},
    {.m = 260, .n = 2056, .k = 40, .layout = nn, .head_dim = 64, .pad = 8},
    {.m = 16, .n = 512, .k = 2048},
    {.m = 512, .n = 512, .k = 1024, .head_dim = 128},
    {.m = 300, .n = 768, .k = 96, .head_dim = 256},
};

/// f(call) for each, with a seed of its own; what it returns is empty or a failure.
template <class F>
void for_all(std::span<const RandomCall> calls, std::uint64_t* seed, const F& f) {
  for (RandomCall call : calls) {
    call.seed = ++*seed;
    EXPECT_EQ(f(call), "") << text_of(call);
  }
}

#define CODA_ON_CPU(Name)                                                                         \
  TEST(RandomProgram, Name##IsRightOnTheCpu) {                                                    \
    using namespace random_programs;                                                              \
    std::uint64_t seed = 0;                                                                       \
    for_all(kCalls, &seed, check_random_on_cpu<bf16, Name<bf16, float>, Name<double, double>>);   \
    for_all(kCalls, &seed, check_random_on_cpu<float, Name<float, float>, Name<double, double>>); \
  }
CODA_FOR_RANDOM_PROGRAMS(CODA_ON_CPU)

using RandomProgramOnHopper = OnHopper;

#define CODA_ON_HOPPER(Name)                                                                        \
  TEST_F(RandomProgramOnHopper, Name##IsRightInEachWay) {                                           \
    using namespace random_programs;                                                                \
    std::uint64_t seed = 0;                                                                         \
    for_all(kCalls, &seed, check_random_on_hopper<bf16, Name<bf16, float>, Name<double, double>>);  \
    for_all(kLarger, &seed, check_random_on_hopper<bf16, Name<bf16, float>, Name<double, double>>); \
  }
CODA_FOR_RANDOM_PROGRAMS(CODA_ON_HOPPER)

}  // namespace
}  // namespace coda::test
