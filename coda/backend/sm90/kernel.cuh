// The kernel of a program: CUTLASS's warp-specialised main loop and persistent scheduler around ProgramCallbacks. The
// pieces are put together here rather than by CUTLASS's builders, whose headers bring in every other architecture.
#pragma once

#include <cutlass/gemm/kernel/gemm_universal_decl.h>

#include <cutlass/gemm/collective/collective_mma_decl.hpp>
#include <cutlass/gemm/collective/sm90_mma_tma_gmma_ss_warpspecialized.hpp>
#include <cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp>
#include <cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_pingpong.hpp>

#include "coda/backend/sm90/epilogue.cuh"

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
template <DType>
struct OfDType {
  using type = float;
};
template <>
struct OfDType<DType::bf16> {
  using type = cutlass::bfloat16_t;
};
template <>
struct OfDType<DType::fp16> {
  using type = cutlass::half_t;
};

/// A carried matrix of pairs travels as 32-bit words, here named float since no arithmetic is done on them.
template <Carried C>
using carried_t = std::conditional_t<C.pairs(), float, typename OfDType<C.dtype>::type>;

inline constexpr int kSharedBytes = 232448;  // of one thread block on sm_90

/// How a subtile of C or D lies in shared memory and travels to and from registers.
template <class Element, int Columns>
struct EpilogueSmem {
  static constexpr bool kShort = sizeof(Element) == 2;
  using Layout = std::conditional_t<Columns * sizeof(Element) == 64, cute::GMMA::Layout_K_SW64_Atom<Element>,
                                    cute::GMMA::Layout_K_SW128_Atom<Element>>;
  using Load = std::conditional_t<kShort, cute::SM75_U32x4_LDSM_N, cute::AutoVectorizingCopyWithAssumedAlignment<128>>;
  using Store = std::conditional_t<kShort, cute::SM90_U32x4_STSM_N, cute::AutoVectorizingCopyWithAssumedAlignment<128>>;
};

}  // namespace detail

/// `Absent`: ports that no call of this kernel has.
template <class T, class Program, PortMask Absent, Layout L, class Conf>
struct KernelTypes {
  using Element = typename detail::CutlassElement<T>::type;
  using Tile = cute::Shape<cute::Int<Conf::kM>, cute::Int<Conf::kN>, cute::Int<Conf::kK>>;
  using Subtile = cute::Shape<cute::Int<Conf::kSubtileM>, cute::Int<Conf::kSubtileN>>;
  using Cluster = cute::Shape<cute::Int<Conf::kClusterM>, cute::Int<Conf::kClusterN>, cute::_1>;
  static constexpr bool kCooperative = Conf::kGroups == Groups::cooperative;
  static constexpr bool kAIsKMajor = L != Layout::tn, kBIsKMajor = L == Layout::nt;

  // ---- epilogue
  static constexpr Carried kC = kLoadWith<Program, Absent>, kD = kCarriedStore<Program>;
  static_assert(kD.port >= 0, "coda: the Hopper backend needs one TileStore at least as wide as the accumulator");
  using ElementC = std::conditional_t<(kC.port >= 0), detail::carried_t<kC>, void>;
  using ElementD = detail::carried_t<kD>;
  using SmemC = detail::EpilogueSmem<std::conditional_t<(kC.port >= 0), ElementC, ElementD>, Conf::kSubtileN>;
  using SmemD = detail::EpilogueSmem<ElementD, Conf::kSubtileN>;
  static constexpr bool kSharesSmem = kC.port >= 0 && kC.bytes() == kD.bytes();
  using RowStride = cute::Stride<std::int64_t, cute::_1, std::int64_t>;

  using Callbacks = ProgramCallbacks<Program, Absent, ElementD, Conf>;
  using OnePass = cutlass::epilogue::collective::CollectiveEpilogue<
      cutlass::epilogue::Sm90TmaWarpSpecialized<Conf::kStagesC, Conf::kStagesD, kRowsHere * Accumulator::count,
                                                kSharesSmem, (kC.port < 0)>,
      Tile, Subtile, ElementC, RowStride, ElementD, RowStride, Callbacks, cute::SM90_TMA_LOAD, typename SmemC::Layout,
      typename SmemC::Load, cute::SM90_TMA_STORE, typename SmemD::Layout, typename SmemD::Store,
      cute::Copy_Atom<cute::SM90_U32x4_STSM_N, cutlass::half_t>, void>;
  using Epilogue =
      std::conditional_t<kHasHeadMeans<Program>, FirstPassEpilogue<OnePass, Program, Absent, Conf>, OnePass>;

  // ---- main loop
  template <bool KMajor>
  using Operand = std::conditional_t<KMajor, RowStride, cute::Stride<cute::_1, std::int64_t, std::int64_t>>;
  template <bool KMajor>
  using OperandSmem =
      std::conditional_t<KMajor, cute::GMMA::Layout_K_SW128_Atom<Element>, cute::GMMA::Layout_MN_SW128_Atom<Element>>;
  template <bool KMajor>
  static constexpr auto kMajor = KMajor ? cute::GMMA::Major::K : cute::GMMA::Major::MN;
  // An operand tile is the same for all blocks along the other axis of the cluster, so one of them loads for all.
  template <int Blocks>
  using OperandLoad = std::conditional_t<Blocks == 1, cute::SM90_TMA_LOAD, cute::SM90_TMA_LOAD_MULTICAST>;

  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, Tile, kMajor<kAIsKMajor>, kMajor<kBIsKMajor>>(),
      cute::Layout<cute::Shape<cute::Int<kCooperative ? 2 : 1>, cute::_1, cute::_1>>{}));
  using Schedule = std::conditional_t<kCooperative, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                                      cutlass::gemm::KernelTmaWarpSpecializedPingpong>;
  static constexpr int kStageBytes = (Conf::kM + Conf::kN) * Conf::kK * 2 + 16;  // and its two barriers
  static constexpr int kOtherBytes = (static_cast<int>(sizeof(typename Epilogue::SharedStorage)) + 1023) / 1024 * 1024;
  static constexpr int kStages = (detail::kSharedBytes - kOtherBytes) / kStageBytes;
  using Mainloop = cutlass::gemm::collective::CollectiveMma<
      cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<kStages, Cluster, Schedule>, Tile, Element, Operand<kAIsKMajor>,
      Element, Operand<kBIsKMajor>, TiledMma, OperandLoad<cute::size<1>(Cluster{})>, OperandSmem<kAIsKMajor>, void,
      cute::identity, OperandLoad<cute::size<0>(Cluster{})>, OperandSmem<kBIsKMajor>, void, cute::identity>;

  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue,
                                                      cutlass::gemm::PersistentScheduler>;
  static_assert(Kernel::SharedStorageSize <= detail::kSharedBytes);
};

}  // namespace coda::sm90
