// Runs a problem on a backend, and judges what Hopper made of it by what the CPU does.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/gpu/device.h"
#include "tests/gpu/problem.h"

namespace coda::test::gpu {

/// How products run, and so how matrices lie. fused: in a fused kernel, of the configuration of that number, where one
/// is built for them; rows begin at 16 bytes, with pitches above the width. unfused: the same matrices, the product
/// followed by the program. automatic: the same, and the library decides. ragged: no row of a matrix, and no vector,
/// begins at 16 bytes, so that no fused kernel can run, and the program behind the product moves single elements.
struct Route {
  enum Kind : std::uint8_t { automatic, fused, unfused, ragged };
  Kind kind;
  int config;
  constexpr Route(Kind k = automatic, int number = 0) : kind(k), config(number) {}
};
std::string name_of(const Route& route);

/// Configurations that a program is built in at most; in one that it is not built in it runs unfused.
inline constexpr int kConfigurations = [] {
  int most = 1;
  for (const sm90::FusedProgram& p : sm90::kFusedPrograms) most = std::max(most, p.configurations);
  return most;
}();
/// Between them all device code of a program runs.
inline constexpr auto kRoutes = [] {
  std::array<Route, kConfigurations + 2> routes{Route::unfused, Route::ragged};
  for (int i = 0; i < kConfigurations; ++i) routes[static_cast<std::size_t>(2 + i)] = {Route::fused, i};
  return routes;
}();

/// A problem in memory. The matrices have the type `type`: the problem's own, or fp64 for a reference on the CPU.
class Execution {
 public:
  /// `seed` chooses pitches, alignments, and the order in which a fused kernel walks over tiles, and how many
  /// of them side by side a thread block of an elementwise one takes.
  Execution(const Problem& problem, ops::Backend backend, DType type, Route route = Route::automatic,
            std::uint64_t seed = 0);
  /// On Hopper.
  explicit Execution(const Problem& problem, Route route = Route::automatic, std::uint64_t seed = 0)
      : Execution(problem, ops::Backend::sm90, problem.type, route, seed) {}

  /// Inputs, poisoned outputs and guard zones as they must be before a call.
  void reset(void* stream = nullptr) { image_.upload(stream); }
  /// Enqueues the operation.
  void call(void* stream = nullptr, const Spoil* spoil = nullptr) const;
  /// Whether a fused kernel takes part: then there are fewer than of a product and the program behind it, or fewer of
  /// cuBLASLt's. Runs nothing.
  bool is_fused(const Stream& stream) const;
  /// Waits, and brings the outputs here.
  void fetch(void* stream = nullptr) { image_.download(stream); }
  /// All three.
  void once(void* stream = nullptr) {
    reset(stream);
    call(stream);
    fetch(stream);
  }

  /// Empty, or what was written outside of the outputs, or what of them was not.
  std::string fault() const;
  /// Outputs as numbers, partial results in blocks of columns or rows that all backends share; inputs are empty.
  std::vector<Mat> values() const;
  /// Every byte that a call could reach.
  std::vector<unsigned char> bytes() const { return image_.bytes(); }
  const Image& image() const { return image_; }
  const Problem& problem() const { return problem_; }
  /// For messages: the problem's name and the route.
  std::string name() const;

 private:
  void call_as(const ChosenWay&, void* stream, const Spoil* spoil) const;

  Problem problem_;
  ops::Backend backend_;
  Route route_;
  sm90::Choice choice_;  // but for the way
  Image image_;
};

/// Kernels that a call enqueues. Runs nothing; threads may ask at the same time.
int kernels_of(const Execution& run, const Stream& stream);

/// What the CPU makes of it, in fp64 and in the problem's type. The first is empty where nothing needs it.
struct Expected {
  std::vector<Mat> reference, chain;
};
Expected expected_of(const Problem& problem);

/// Empty, or the first output that is off. On exact inputs a linear output must be equal to the CPU's. Any other may
/// differ from fp64 by twice as much as the CPU's largest difference, one unit in the last place at the output's scale,
/// and 64 units of fp32 at the scale of the terms that it is made of, or one for each 16 of K if these are more: so
/// often tensor cores cut off what they add up. Infinities and NaN must be where fp64 has them.
std::string compare(const Problem& problem, const std::vector<Mat>& got, const Expected& expected);

/// Runs it on Hopper and compares: empty, or what is wrong.
std::string check_on_hopper(const Problem& problem, Route route, const Expected& expected, void* stream = nullptr);

}  // namespace coda::test::gpu
