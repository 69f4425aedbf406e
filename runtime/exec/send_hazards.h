/* send_hazards.h: which action of a rank is the first that overwrites what a message still carries.
 * A transport that sends while the rank continues must have sent the message by then: the plan's
 * proof, that a source is kept until its SEND is complete, assumes that actions complete in order.
 */
#ifndef PEN_SEND_HAZARDS_H
#define PEN_SEND_HAZARDS_H

#include <stdint.h>

#include "runtime/plan/plan.h"

/* Before action i the messages message[first[i]] ... message[first[i + 1] - 1] must be sent. */
struct pen_send_hazards {
  uint32_t *first;   /* [action_count + 1] */
  uint32_t *message; /* indices into the profile's */
};

/* For one rank's actions in a profile. A message whose source nothing overwrites before the step's
 * end is in no list. Of a pair a|b what b needs is listed at a, where both begin. Allocates. */
struct pen_send_hazards pen_send_hazards_of(const struct pen_plan *plan,
                                            const struct pen_profile *profile, uint32_t rank);

#endif
