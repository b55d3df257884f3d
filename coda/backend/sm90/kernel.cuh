// The types of a program's kernel: CUTLASS's warp-specialised main loop, and the program as its epilogue. The main loop
// is put together here rather than by CUTLASS's builders, whose headers bring in every other architecture.
#pragma once

#include <cutlass/gemm/collective/collective_mma_decl.hpp>
#include <cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp>

#include "coda/backend/sm90/epilogue.cuh"
#include "coda/backend/sm90/splitk.cuh"
#include "coda/backend/sm90/teams.cuh"

namespace coda::sm90 {

namespace detail {

template <class T>
struct CutlassElement {
  using type = T;
};
template <>
struct CutlassElement<bf16> {
  using type = cutlass::bfloat16_t;
};
template <>
struct CutlassElement<fp16> {
  using type = cutlass::half_t;
};
inline constexpr int kSharedBytes = 232448;  // of one thread block on sm_90

}  // namespace detail

/// `Absent`: ports that no call of this kernel has.
template <class T, class Program, PortMask Absent, Layout L, class Conf>
struct KernelTypes {
  using Element = typename detail::CutlassElement<T>::type;
  static constexpr int kM = Conf::kM * Conf::kTeamsAtOnce;
  using Tile = cute::Shape<cute::Int<kM>, cute::Int<Conf::kN>, cute::Int<Conf::kK>>;
  static constexpr bool kAIsKMajor = L != Layout::tn, kBIsKMajor = L == Layout::nt;

  using Epilogue = sm90::Epilogue<Program, Absent, Conf>;

  using RowStride = cute::Stride<std::int64_t, cute::_1, std::int64_t>;
  template <bool KMajor>
  using Operand = std::conditional_t<KMajor, RowStride, cute::Stride<cute::_1, std::int64_t, std::int64_t>>;
  template <bool KMajor>
  using OperandSmem =
      std::conditional_t<KMajor, cute::GMMA::Layout_K_SW128_Atom<Element>, cute::GMMA::Layout_MN_SW128_Atom<Element>>;
  template <bool KMajor>
  static constexpr auto kMajor = KMajor ? cute::GMMA::Major::K : cute::GMMA::Major::MN;

  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, kMajor<kAIsKMajor>, kMajor<kBIsKMajor>>(),
      cute::Layout<cute::Shape<cute::Int<Conf::kGroups * Conf::kTeamsAtOnce>, cute::_1, cute::_1>>{}));
  static constexpr int kStageBytes = (kM + Conf::kN) * Conf::kK * 2 + 16;  // and its two barriers
  static constexpr int kOtherBytes = (static_cast<int>(sizeof(typename Epilogue::Shared)) + 2047) / 1024 * 1024;
  static constexpr int kStages = (detail::kSharedBytes - kOtherBytes) / kStageBytes;
  // Its products alone: operands are the kernel's to load, and clusters.
  using Mainloop = cutlass::gemm::collective::CollectiveMma<
      cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<kStages, cute::Shape<cute::_1, cute::_1, cute::_1>,
                                                        cutlass::gemm::KernelTmaWarpSpecializedPingpong>,
      Tile, Element, Operand<kAIsKMajor>, Element, Operand<kBIsKMajor>, TiledMma, cute::SM90_TMA_LOAD,
      OperandSmem<kAIsKMajor>, void, cute::identity, cute::SM90_TMA_LOAD, OperandSmem<kBIsKMajor>, void,
      cute::identity>;

  using Kernel = std::conditional_t<Conf::kSplitsK, SplitK<Mainloop, Epilogue, L>, TwoTeams<Mainloop, Epilogue, L>>;
  static_assert(Kernel::kSharedBytes <= detail::kSharedBytes);
};

}  // namespace coda::sm90
