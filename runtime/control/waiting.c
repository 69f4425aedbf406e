/* waiting.c: when a wait for other hosts is said (see waiting.h). */
#include "runtime/control/waiting.h"

#include "runtime/base/futex_counter.h"

static const uint64_t first_ns = 5 * 1000000000ull, next_ns = 30 * 1000000000ull;

struct pen_waiting pen_waiting_begin(void) {
  return (struct pen_waiting){.say_ns = pen_now_ns() + first_ns};
}

bool pen_waiting_is_long(struct pen_waiting *waiting) {
  const uint64_t now_ns = pen_now_ns();
  const bool is_long = now_ns >= waiting->say_ns;
  if (is_long) {
    waiting->say_ns = now_ns + next_ns;
  }
  return is_long;
}

int pen_waiting_left_ms(const struct pen_waiting *waiting) {
  const uint64_t now_ns = pen_now_ns();
  return waiting->say_ns <= now_ns ? 0 : (int)((waiting->say_ns - now_ns + 999999) / 1000000);
}
