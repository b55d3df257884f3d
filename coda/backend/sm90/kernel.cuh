// The types of a program's kernel: the main loop, and the program as its epilogue.
#pragma once

#include "coda/backend/sm90/epilogue.cuh"
#include "coda/backend/sm90/mainloop.cuh"
#include "coda/backend/sm90/splitk.cuh"
#include "coda/backend/sm90/teams.cuh"

namespace coda::sm90 {

namespace detail {

inline constexpr int kSharedBytes = 232448;  // of one thread block on sm_90

}  // namespace detail

/// `Absent`: ports that no call of this kernel has.
template <class T, class Program, PortMask Absent, Layout L, class Conf>
struct KernelTypes {
  using Epilogue = sm90::Epilogue<Program, Absent, Conf>;
  static constexpr int kM = Conf::kM * Conf::kTeamsAtOnce;
  static constexpr int kStageBytes = (kM + Conf::kN) * Conf::kK * 2 + 16;  // and its two barriers
  static constexpr int kOtherBytes = (static_cast<int>(sizeof(typename Epilogue::Shared)) + 2047) / 1024 * 1024;
  static constexpr int kStages = (detail::kSharedBytes - kOtherBytes) / kStageBytes;
  static_assert(kStages > 1, "coda: a configuration's stages of loads and stores leave no two stages of operands");
  using Mainloop = sm90::Mainloop<T, L, kM, Conf::kN, Conf::kGroups * Conf::kTeamsAtOnce, kStages>;

  using Kernel = std::conditional_t<Conf::kSplitsK, SplitK<Mainloop, Epilogue>, TwoTeams<Mainloop, Epilogue>>;
  static_assert(Kernel::kSharedBytes <= detail::kSharedBytes);
};

}  // namespace coda::sm90
