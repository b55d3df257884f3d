// Counter-based random numbers (Philox4x32-10, Salmon et al., SC'11): the value is a pure function of
// (seed, stream, index), so it does not depend on threads, on order, or on where a run was stopped and resumed.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace coda::nn {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return c;
}

/// The numbers of one (seed, stream). Has no state: every call names the index it wants.
class Rng {
 public:
  constexpr Rng(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  /// Uniform in [0, 1), 53 random bits.
  constexpr double uniform(std::uint64_t index) const {
    const PhiloxCounter r = draw(index);
    return to_unit(r[0], r[1]);
  }

  /// Mean 0, variance 1 (Box-Muller, in double).
  double normal(std::uint64_t index) const {
    const PhiloxCounter r = draw(index);
    const double radius = std::sqrt(-2.0 * std::log(1.0 - to_unit(r[0], r[1])));
    return radius * std::cos(2.0 * std::numbers::pi * to_unit(r[2], r[3]));
  }

  /// Uniform in [0, bound) for 1 <= bound <= 2^53.
  constexpr std::uint64_t below(std::uint64_t bound, std::uint64_t index) const {
    const auto value = static_cast<std::uint64_t>(uniform(index) * static_cast<double>(bound));
    return value < bound ? value : bound - 1;
  }

  constexpr std::uint32_t bits(std::uint64_t index) const { return draw(index)[0]; }

 private:
  constexpr PhiloxCounter draw(std::uint64_t index) const {
    return philox4x32({low(index), high(index), low(stream_), high(stream_)}, {low(seed_), high(seed_)});
  }
  static constexpr double to_unit(std::uint32_t a, std::uint32_t b) {
    return static_cast<double>((std::uint64_t{a} << 32 | b) >> 11) * 0x1p-53;
  }
  static constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
  static constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

  std::uint64_t seed_, stream_;
};

/// Who draws from which streams of a seed, so that no two users share numbers.
namespace streams {
inline constexpr std::uint64_t weights = 0;                          // plus the number of the tensor
inline constexpr std::uint64_t data_order = std::uint64_t{1} << 32;  // plus the epoch
inline constexpr std::uint64_t data_phase = std::uint64_t{2} << 32;
inline constexpr std::uint64_t sampling = std::uint64_t{3} << 32;
}  // namespace streams

}  // namespace coda::nn
