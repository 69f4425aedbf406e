/* lost.h: the line that tells of a lost rank (design.md section 10). */
#ifndef PEN_FAILURE_TEXT_H
#define PEN_FAILURE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/shared_control.h"
#include "runtime/plan/plan.h"

/* Writes the line, without its end, from what the ranks tell of themselves in shared memory: `lost`
 * and `waiter` (PEN_NONE: no rank waits) are global ranks. Returns line. */
char *pen_failure_line(char *line, size_t bytes, const struct pen_plan *plan,
                       const struct pen_shared *shared, uint32_t lost, const char *cause,
                       uint32_t waiter);

enum { PEN_FAILURE_LINE_BYTES = 768 };

/* What a rank on a device is about as it connects, and with whom: "trying a pair of ranks (2>3)";
 * empty where that is not known. Returns text. */
char *pen_failure_bootstrap_text(char *text, size_t bytes, const struct pen_plan *plan,
                                 const struct pen_shared *shared, uint32_t rank);

enum { PEN_BOOTSTRAP_TEXT_BYTES = 96 };

/* A rank that says that it waits for `lost`: better one whose row does than one whose messages do;
 * or a peer that swaps with it. PEN_NONE: no rank does. */
uint32_t pen_failure_waiter(const struct pen_plan *plan, const struct pen_shared *shared,
                            uint32_t lost);

/* A rank that is waited for: all that it does, or its rows alone, whatever they send. */
struct pen_awaited {
  uint32_t rank;
  bool rows;
};

/* On to whom it waits for itself, as it says, unless what it waits for has come; false: for nobody.
 */
bool pen_failure_follow(const struct pen_shared *shared, struct pen_awaited *at);

#endif
