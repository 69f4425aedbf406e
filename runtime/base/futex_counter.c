/* futex_counter.c: spin, then sleep: how a rank waits for another (see futex_counter.h). */
#include "runtime/base/futex_counter.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  SPINS_PER_CLOCK = 64, /* looks at the flag between two looks at the clock */
  SLEEP_NS_MAX =
      100 * 1000000L, /* a sleeper looks at the abort word this often even without a wake-up */
};

uint64_t pen_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void pen_futex_counter_wake(struct pen_futex_counter *flag) {
  syscall(SYS_futex, &flag->count, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool spin(const struct pen_futex_counter *flag, uint32_t needed, uint64_t spin_ns) {
  uint64_t end_ns = pen_now_ns() + spin_ns;
  do {
    for (int i = 0; i < SPINS_PER_CLOCK; i++) {
      if (pen_futex_counter_reached(flag, needed)) {
        return true;
      }
      pen_relax();
    }
  } while (pen_now_ns() < end_ns);
  return false;
}

bool pen_futex_counter_wait_for(struct pen_futex_counter *flag, uint32_t needed, uint64_t spin_ns,
                                uint64_t sleep_ns) {
  const struct timespec longest = {.tv_sec = (time_t)(sleep_ns / 1000000000u),
                                   .tv_nsec = (long)(sleep_ns % 1000000000u)};
  if (spin(flag, needed, spin_ns)) {
    return true;
  }
  atomic_fetch_add(&flag->sleepers, 1);
  const uint32_t seen = atomic_load(&flag->count);
  if ((int32_t)(seen - needed) < 0) {
    syscall(SYS_futex, &flag->count, FUTEX_WAIT, seen, &longest, NULL, 0);
  }
  atomic_fetch_sub(&flag->sleepers, 1);
  return pen_futex_counter_reached(flag, needed);
}

bool pen_futex_counter_wait(struct pen_futex_counter *flag, uint32_t needed,
                            const _Atomic uint32_t *abort, uint64_t spin_ns) {
  if (spin(flag, needed, spin_ns)) {
    return true;
  }
  const struct timespec longest = {.tv_nsec = SLEEP_NS_MAX};
  bool reached = false, aborted = false;
  atomic_fetch_add(&flag->sleepers, 1);
  while (!reached && !aborted) {
    uint32_t seen = atomic_load(&flag->count);
    reached = (int32_t)(seen - needed) >= 0;
    aborted = atomic_load_explicit(abort, memory_order_relaxed) != 0;
    if (!reached && !aborted) {
      syscall(SYS_futex, &flag->count, FUTEX_WAIT, seen, &longest, NULL, 0);
    }
  }
  atomic_fetch_sub(&flag->sleepers, 1);
  return reached;
}
