/* router_losses.h: the losses of the routers of a stage (the rule "scaled"). */
#ifndef PEN_VERIFY_ROUTER_LOSSES_H
#define PEN_VERIFY_ROUTER_LOSSES_H

#include "gen/verify/stage_terms.h"

/* Those of a training stage are of its routers, with the factors of the plan. `action`: one that
 * runs its backward. Returns false after it noted a problem. */
bool pen_check_router_loss_terms(const struct pen_stage_terms *s, uint32_t action);

#endif
