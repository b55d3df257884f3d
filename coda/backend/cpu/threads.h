// The threads of a call: whether there are others than the caller's.
#pragma once

#include <omp.h>
#include <pthread.h>

#include <cstdint>

namespace coda::cpu {

namespace detail {
inline bool is_forked = false;
inline const bool follows_forks = pthread_atfork(nullptr, nullptr, [] { is_forked = true; }) == 0;
}  // namespace detail

/// Whether a parallel region may have other threads than the caller's: not inside of another region, nor in a child
/// made by fork, where OpenMP would wait for threads that only its parent has.
inline bool may_share() { return !omp_in_parallel() && !detail::is_forked; }

/// The threads that a region may have.
inline int most_threads() { return may_share() ? omp_get_max_threads() : 1; }

/// f(i) for 0 <= i < count, shared out among threads if that is `worth` it.
template <class F>
void for_each(std::int64_t count, bool worth, const F& f) {
#pragma omp parallel for schedule(static) if (worth && may_share())
  for (std::int64_t i = 0; i < count; ++i) f(i);
}

}  // namespace coda::cpu
