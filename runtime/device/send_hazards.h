/* reuse.h: which row of a rank is the first that writes over what a message still carries. A
 * transport that sends while the rank goes on must have the message gone by then; the plan's proof,
 * that a source stands until its SEND row is done, speaks of rows done in turn. */
#ifndef PEN_REUSE_H
#define PEN_REUSE_H

#include <stdint.h>

#include "runtime/plan/plan.h"

/* Before row r the messages message[first[r]] ... message[first[r + 1] - 1] must have left. */
struct pen_send_hazards {
  uint32_t *first;   /* [action_count + 1] */
  uint32_t *message; /* indices into the profile's */
};

/* For one rank's rows in a profile. Messages whose source nobody writes to before the step's end
 * are in no list. Of a pair a|b what b wants stands at a, where both begin. Allocates. */
struct pen_send_hazards pen_send_hazards_of(const struct pen_plan *plan,
                                            const struct pen_profile *profile, uint32_t rank);

#endif
