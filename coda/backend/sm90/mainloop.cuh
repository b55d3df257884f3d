// The main loop: stages of operands in shared memory, and the product of what lies there. Kernels bring the operands.
#pragma once

#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cstddef>
#include <cstdint>
#include <cute/atom/mma_atom.hpp>
#include <cute/tensor.hpp>

#include "coda/backend/sm90/barrier.cuh"
#include "coda/backend/sm90/config.cuh"

namespace coda::sm90 {

namespace detail {

template <class T>
struct CutlassElement;
template <>
struct CutlassElement<bf16> {
  using type = cutlass::bfloat16_t;
};
template <>
struct CutlassElement<fp16> {
  using type = cutlass::half_t;
};

}  // namespace detail

/// M x N: of the product that `Groups` warp groups compute side by side, in steps along K, from so many stages.
template <class T, Layout L, int M, int N, int Groups, int Stages>
struct Mainloop {
  static_assert(L != Layout::tn, "coda: the fused kernels read A along K");
  static constexpr int kM = M, kN = N, kK = kStepK, kStages = Stages;
  static constexpr int kStageBytes = (kM + kN) * kK * 2;
  /// Operands travel in boxes whose rows are 64 values, 128 bytes of shared memory: along k, or along n if B lies in
  /// memory as K x N.
  static constexpr int kBoxColumns = 64;
  static constexpr bool kBAlongK = L == Layout::nt;
  static constexpr int kBoxRowsB = kBAlongK ? kN : kK;
  static_assert(kK == kBoxColumns);

  using Element = typename detail::CutlassElement<T>::type;
  static constexpr auto kMajorB = kBAlongK ? cute::GMMA::Major::K : cute::GMMA::Major::MN;
  using TiledMma = decltype(cute::make_tiled_mma(
      cute::GMMA::ss_op_selector<Element, Element, float, cute::Shape<cute::Int<kM>, cute::Int<kN>, cute::Int<kK>>,
                                 cute::GMMA::Major::K, kMajorB>(),
      cute::Layout<cute::Shape<cute::Int<Groups>, cute::_1, cute::_1>>{}));

  struct Operands {
    alignas(1024) Element a[kStages][kM * kK];
    alignas(1024) Element b[kStages][kN * kK];
  };
  struct Signals {
    Barrier full[kStages], empty[kStages];
  };

  /// The stage of a step, and what its barriers' phases are then.
  struct Stage {
    int index;
    std::uint32_t phase;

    CODA_DEVICE explicit Stage(unsigned step)
        : index(static_cast<int>(step % kStages)), phase(step / static_cast<unsigned>(kStages) & 1) {}
    CODA_DEVICE Stage& operator++() {
      if (++index == kStages) index = 0, phase ^= 1;
      return *this;
    }
  };

  /// One thread, when the step's stage is empty: has B's part of it brought, columns n and more from k on.
  static CODA_DEVICE void load_b(const CUtensorMap& map, Operands& operands, std::uint64_t* full, int stage, int n,
                                 int k) {
    Element* to = operands.b[stage];
    if constexpr (kBAlongK) {
      cute::SM90_TMA_LOAD_2D::copy(&map, full, kHint, to, k, n);
    } else {
      CODA_UNROLL for (int i = 0; i < kN; i += kBoxColumns) {
        cute::SM90_TMA_LOAD_2D::copy(&map, full, kHint, to + i * kK, n + i, k);
      }
    }
  }
  static constexpr auto kHint = static_cast<std::uint64_t>(cute::TMA::CacheHintSm90::EVICT_NORMAL);

  static CODA_DEVICE auto accumulators() {
    return cute::partition_fragment_C(TiledMma(), cute::Shape<cute::Int<kM>, cute::Int<kN>>());
  }

  /// Warp group `group`: the product of `steps` steps, one at least, whose operands come to the stages from step
  /// `first` on, added to the accumulators. `free(empty)` is called when a stage was read, with its barrier, `issued()`
  /// when all of the work is under way. Arguments have to be such that the compiler can tell them to be the same in all
  /// threads of a warp: what it cannot tell costs every step the time to make sure.
  template <class Accumulators, class Free, class Issued>
  static CODA_DEVICE void multiply(Operands& operands, const Signals& signals, int group, unsigned first, int steps,
                                   Accumulators& accumulators, const Free& free, const Issued& issued) {
    const auto a = cute::make_tensor(cute::make_smem_ptr(&operands.a[0][0]), LayoutA());  // kM x kK x stages
    const auto b = cute::make_tensor(cute::make_smem_ptr(&operands.b[0][0]), LayoutB());
    TiledMma mma;
    const auto mine = mma.get_slice(group * kWarpGroup);
    const auto of_a = mine.make_fragment_A(mine.partition_A(a));
    const auto of_b = mine.make_fragment_B(mine.partition_B(b));
    const BarrierAt full{__shfl_sync(0xffffffffu, signals.full[0].at().address, 0)};
    static_assert(offsetof(Signals, empty) == kStages * sizeof(Barrier));
    const BarrierAt empty = full + kStages;
    Stage stage(first), next = stage;
    bool is_full = false;  // the next step's, as far as known
    const auto begin = [&] {
      stage = next;
      if (!is_full) (full + stage.index).wait(stage.phase);
      cute::warpgroup_fence_operand(accumulators);
      cute::warpgroup_arrive();
      CODA_UNROLL for (int k = 0; k < cute::size<2>(of_a); ++k) {
        cute::gemm(mma, of_a(cute::_, cute::_, k, stage.index), of_b(cute::_, cute::_, k, stage.index), accumulators);
        // Looked up while the tensor cores are busy: between two steps they would wait for the answer.
        if (k == kLooksAhead) ++next, is_full = (full + next.index).is_complete(next.phase);
      }
      cute::warpgroup_commit_batch();
    };
    // The first step stands outside of the loop: inside, ptxas would have each product wait for the one before.
    begin();
#pragma unroll 1
    for (int i = 1; i < steps; ++i) {
      const int under_way = stage.index;
      begin();
      // One step's products may be under way; those of the step before are complete.
      cute::warpgroup_wait<1>();
      cute::warpgroup_fence_operand(accumulators);
      free(empty + under_way);
    }
    issued();
    cute::warpgroup_wait<0>();
    cute::warpgroup_fence_operand(accumulators);
    free(empty + stage.index);
  }

 private:
  static constexpr int kWarpGroup = 128;
  static constexpr int kLooksAhead = 1;  // of the four products of a step: that behind which it does so
  template <bool AlongK>
  using Atom =
      std::conditional_t<AlongK, cute::GMMA::Layout_K_SW128_Atom<Element>, cute::GMMA::Layout_MN_SW128_Atom<Element>>;
  template <bool AlongK, int Rows>
  using StagesOf =
      decltype(cute::tile_to_shape(Atom<AlongK>{}, cute::Shape<cute::Int<Rows>, cute::Int<kK>, cute::Int<kStages>>{},
                                   std::conditional_t<AlongK, cute::Step<cute::_1, cute::_2, cute::_3>,
                                                      cute::Step<cute::_2, cute::_1, cute::_3>>{}));
  using LayoutA = StagesOf<true, kM>;
  using LayoutB = StagesOf<kBAlongK, kN>;
  static_assert(cute::cosize_v<LayoutA> == kStages * kM * kK && cute::cosize_v<LayoutB> == kStages * kN * kK);
};

}  // namespace coda::sm90
