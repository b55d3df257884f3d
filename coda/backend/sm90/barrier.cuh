// Barriers of a thread block, as inline PTX before and behind which the compiler keeps every access to memory.
// CUTLASS's do not say so (4.2), and what they order here are ordinary loads and stores.
#pragma once

#include <cstdint>
#include <cute/arch/util.hpp>

#include "coda/backend/sm90/fragment.cuh"

namespace coda::sm90 {

/// A barrier in shared memory by its address there. Of an object, each step of a loop would ask for it anew: of a warp
/// group that has the tensor cores to itself, they wait for it.
struct BarrierAt {
  std::uint32_t address;

  CODA_DEVICE BarrierAt operator+(int barriers) const { return {address + static_cast<std::uint32_t>(barriers) * 8}; }
  /// Whether the phase of that parity is complete.
  CODA_DEVICE bool is_complete(std::uint32_t parity) const {
    std::uint32_t complete;
    asm volatile(
        "{\n\t.reg .pred complete;\n\t"
        "mbarrier.test_wait.parity.shared::cta.b64 complete, [%1], %2;\n\t"
        "selp.b32 %0, 1, 0, complete;\n\t}"
        : "=r"(complete)
        : "r"(address), "r"(parity)
        : "memory");
    return complete != 0;
  }
  CODA_DEVICE void wait(std::uint32_t parity) const {
    asm volatile(
        "{\n\t.reg .pred complete;\n\tAGAIN:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n\t"
        "@!complete bra AGAIN;\n\t}"
        :
        : "r"(address), "r"(parity)
        : "memory");
  }
  CODA_DEVICE void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" : : "r"(address) : "memory");
  }
  /// Arrives at that barrier of block `block` of the cluster.
  CODA_DEVICE void arrive(int block) const {
    asm volatile(
        "{\n\t.reg .b32 remote;\n\t"
        "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t}"
        :
        : "r"(address), "r"(block)
        : "memory");
  }
  /// Arrives, and has the phase wait for that many bytes of the copy engine's.
  CODA_DEVICE void arrive_and_expect(int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" : : "r"(address), "r"(bytes) : "memory");
  }
};

/// A barrier in shared memory (PTX's mbarrier).
class Barrier {
 public:
  /// By one thread, before any other knows it: a phase is complete when `arrivals` have arrived.
  CODA_DEVICE void init(int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(at().address), "r"(arrivals) : "memory");
  }
  CODA_DEVICE BarrierAt at() const { return {cute::cast_smem_ptr_to_uint(&state_)}; }
  CODA_DEVICE void wait(std::uint32_t parity) const { at().wait(parity); }
  CODA_DEVICE void arrive() { at().arrive(); }
  CODA_DEVICE void arrive_and_expect(int bytes) { at().arrive_and_expect(bytes); }
  /// As the copy engine's instructions take it.
  CODA_DEVICE std::uint64_t* state() { return &state_; }

 private:
  std::uint64_t state_;
};

/// By the thread that has set up barriers of a cluster's block, before the blocks of the cluster meet.
CODA_DEVICE void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }

/// Waits for all threads of a team, `threads` of them.
CODA_DEVICE void synchronize_team(int team, int threads) {
  constexpr int kFirst = 1;  // 0 is the whole block's
  asm volatile("bar.sync %0, %1;" : : "r"(kFirst + team), "r"(threads) : "memory");
}

/// Waits for all threads of a cluster.
CODA_DEVICE void synchronize_cluster() {
  asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" : : : "memory");
}

/// What this thread wrote to shared memory the copy engine sees, and what it read there it may overwrite.
CODA_DEVICE void publish_to_copy_engine() { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }

}  // namespace coda::sm90
