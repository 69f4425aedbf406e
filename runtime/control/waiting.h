/* waiting.h: says for whom a host waits before the ranks start. */
#ifndef PEN_WAITING_H
#define PEN_WAITING_H

#include <stdbool.h>
#include <stdint.h>

/* A wait: when it is to be said next. */
struct pen_waiting {
  uint64_t say_ns;
};

/* Begins a wait, which is said after five seconds. */
struct pen_waiting pen_waiting_begin(void);

/* Whether it is to be said now: then, and every thirty seconds. */
bool pen_waiting_is_long(struct pen_waiting *waiting);

/* Milliseconds until then. */
int pen_waiting_left_ms(const struct pen_waiting *waiting);

#endif
