/* futex_counter.h: a counter that one thread increments and others wait for, in processes or
 * threads that share its memory.
 *
 * It may wrap around at 2^32: comparisons use the difference, which is always below 2^31. An
 * increment releases the writer's earlier stores; a wait acquires them. A wait spins for a while,
 * then sleeps in the kernel (futex), and ends early when the run is aborted. */
#ifndef PEN_FUTEX_COUNTER_H
#define PEN_FUTEX_COUNTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { PEN_FUTEX_COUNTER_BYTES = 128 }; /* two cache lines, which are prefetched in pairs */

struct pen_futex_counter {
  _Alignas(PEN_FUTEX_COUNTER_BYTES) _Atomic uint32_t count;
  _Atomic uint32_t sleepers;
};

static inline bool pen_futex_counter_reached(const struct pen_futex_counter *flag,
                                             uint32_t needed) {
  return (int32_t)(atomic_load_explicit(&flag->count, memory_order_acquire) - needed) >= 0;
}

/* Tells the core that this is a spin loop, so that a sibling thread gets its turn. */
static inline void pen_relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

void pen_futex_counter_wake(struct pen_futex_counter *flag);

/* Both operations are sequentially consistent, as is the sleeper's entry: one sees the other. */
static inline void pen_futex_counter_increment(struct pen_futex_counter *flag) {
  atomic_fetch_add(&flag->count, 1);
  if (__builtin_expect(atomic_load(&flag->sleepers) != 0, 0)) {
    pen_futex_counter_wake(flag);
  }
}

/* Sets the count, which rises by that, as an increment does; for a counter of one writer. */
static inline void pen_futex_counter_set(struct pen_futex_counter *flag, uint32_t count) {
  atomic_store(&flag->count, count);
  if (__builtin_expect(atomic_load(&flag->sleepers) != 0, 0)) {
    pen_futex_counter_wake(flag);
  }
}

/* Returns true when the counter has reached `needed`, false if *abort became non-zero first. Spins
 * for at most `spin_ns`. */
bool pen_futex_counter_wait(struct pen_futex_counter *flag, uint32_t needed,
                            const _Atomic uint32_t *abort, uint64_t spin_ns);

/* Spins for at most spin_ns, then sleeps at most once, for sleep_ns. Returns whether the counter
 * has reached `needed`. */
bool pen_futex_counter_wait_for(struct pen_futex_counter *flag, uint32_t needed, uint64_t spin_ns,
                                uint64_t sleep_ns);

/* CLOCK_MONOTONIC. */
uint64_t pen_now_ns(void);

#endif
