/* failure_text.h: the line that reports a lost rank (docs/contracts.md section 10). */
#ifndef PEN_FAILURE_TEXT_H
#define PEN_FAILURE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"

/* Writes the line, without a newline, from the ranks' state in shared memory. `lost` and `waiter`
 * (PEN_NONE: no rank waits) are global ranks. Returns line. */
char *pen_failure_line(char *line, size_t bytes, const struct pen_plan *plan,
                       const struct pen_shared *shared, uint32_t lost, const char *cause,
                       uint32_t waiter);

/* Writes the bootstrap stage of a rank on a device and its channel: "trying a pair of ranks (2>3)";
 * empty if it is not known. Returns text. */
char *pen_failure_bootstrap_text(char *text, size_t bytes, const struct pen_plan *plan,
                                 const struct pen_shared *shared, uint32_t rank);

enum { PEN_BOOTSTRAP_TEXT_BYTES = 96 };

/* A rank that waits for `lost`, preferably one whose action does rather than its sends; else a peer
 * that exchanges data with it. PEN_NONE: no rank does. */
uint32_t pen_failure_waiter(const struct pen_plan *plan, const struct pen_shared *shared,
                            uint32_t lost);

/* A rank that is waited for: for all its work, or for its actions only, not for their sends. */
struct pen_awaited {
  uint32_t rank;
  bool rows;
};

/* Moves to the rank that this one waits for, unless its wait is over; false: it does not wait. */
bool pen_failure_follow(const struct pen_shared *shared, struct pen_awaited *at);

/* The kernel kills a process with signal 9 where memory is short, mostly before its first step:
 * adds that to the line; and whether a line says so. */
void pen_failure_add_memory(char line[PEN_FAILURE_LINE_BYTES]);
bool pen_failure_is_memory(const char *line);

#endif
