// The threads of a call: whether there are others than the caller's, and how they round.
#pragma once

#include <omp.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>

#if defined(__SSE2__)
#include <immintrin.h>
#else
#include <cfenv>
#endif

namespace coda::cpu {

namespace detail {
inline std::atomic<bool> has_shared = false;
/// In a child made by fork behind the first region of several threads.
inline bool has_lost_threads = false;
inline const bool follows_forks = pthread_atfork(nullptr, nullptr, [] { has_lost_threads = has_shared; }) == 0;
}  // namespace detail

/// Whether a parallel region may have other threads than the caller's: not inside of another region, nor in a child
/// whose parent has had some, for which OpenMP would wait there.
inline bool may_share() {
  if (omp_in_parallel() || detail::has_lost_threads) return false;
  if (omp_get_max_threads() > 1) detail::has_shared.store(true, std::memory_order_relaxed);
  return true;
}

/// The threads that a region may have.
inline int most_threads() { return may_share() ? omp_get_max_threads() : 1; }

/// While it lives its thread rounds to nearest and keeps subnormal numbers, as threads do from the start. Each thread
/// has a mode of its own, which a caller may have changed for itself alone: what it gets would depend on who computes.
class DefaultRounding {
 public:
#if defined(__SSE2__)
  DefaultRounding() : before_(_mm_getcsr()) { _mm_setcsr(kAtStart); }
  ~DefaultRounding() { _mm_setcsr(before_); }
#else
  DefaultRounding() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultRounding() { std::fesetenv(&before_); }
#endif
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;

 private:
#if defined(__SSE2__)
  static constexpr unsigned kAtStart = 0x1f80;  // every exception masked, none raised
  unsigned before_;
#else
  std::fenv_t before_;
#endif
};

/// f(i) for 0 <= i < count, shared out among threads if that is `worth` it.
template <class F>
void for_each(std::int64_t count, bool worth, const F& f) {
#pragma omp parallel if (worth && may_share())
  {
    const DefaultRounding rounding;
#pragma omp for schedule(static) nowait
    for (std::int64_t i = 0; i < count; ++i) f(i);
  }
}

}  // namespace coda::cpu
