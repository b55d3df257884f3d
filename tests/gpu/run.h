// Runs a problem on a backend, and judges what Hopper made of it by what the CPU does.
#pragma once

#include <string>
#include <vector>

#include "tests/gpu/problem.h"

namespace coda::test::gpu {

/// aligned: what the fused kernels need, with row pitches above the width. ragged: no row of a matrix, and no vector,
/// begins at 16 bytes, so that no fused kernel can run.
enum class Placement { aligned, ragged };

/// A problem in memory. The matrices have the type `type`: the problem's own, or fp64 for a reference on the CPU.
class Execution {
 public:
  Execution(const Problem& problem, ops::Backend backend, DType type, Placement placement = Placement::aligned,
            std::uint64_t seed = 0);

  /// Inputs, poisoned outputs and guard zones as they must be before a call.
  void reset(void* stream = nullptr) { image_.upload(stream); }
  /// Enqueues the operation.
  void call(void* stream = nullptr, const Spoil* spoil = nullptr) const {
    problem_.call(Bound(image_, spoil), {backend_, stream});
  }
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

 private:
  Problem problem_;
  ops::Backend backend_;
  Image image_;
};

/// What the CPU makes of it, in fp64 and in the problem's type. The first is empty where nothing needs it.
struct Expected {
  std::vector<Mat> reference, chain;
};
Expected expected_of(const Problem& problem);

/// Empty, or the first output that is off. On exact inputs a linear output must be equal to the CPU's. Any other may
/// differ from fp64 by twice as much as the CPU's largest difference, one unit in the last place at the output's scale,
/// and 64 units of fp32 at the scale of the terms that it is made of. Infinities and NaN must be where fp64 has them.
std::string compare(const Problem& problem, const std::vector<Mat>& got, const Expected& expected);

/// Runs it on Hopper and compares: empty, or what is wrong.
std::string check_on_hopper(const Problem& problem, Placement placement, const Expected& expected,
                            void* stream = nullptr);

}  // namespace coda::test::gpu
