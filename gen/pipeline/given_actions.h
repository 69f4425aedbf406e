/* given_actions.h: the lowered order of --actions, in place of a composed one, and where in its
 * file a problem is. */
#ifndef PEN_GIVEN_ACTIONS_H
#define PEN_GIVEN_ACTIONS_H

#include <stdbool.h>

#include "gen/pipeline/options.h"
#include "gen/partition/partition.h"
#include "gen/topology/topology.h"
#include "gen/verify/verify.h"

/* Whether a problem is at one action of one rank. */
bool pen_is_at_action(const struct pen_problem *problem);

/* Ends the generator (65): an action of the file fails verification. Names its position in the
 * file. `actions`: those of the problem's rank; NULL: the problem is not at one action. */
_Noreturn void pen_given_actions_fail(const char *path, const struct pen_action *actions,
                                      const struct pen_problem *problem);

/* Reads and verifies the actions of options->actions, for a profile of this kind. Fails (65). */
struct pen_action_lists pen_given_actions_read(const struct pen_generator_options *options,
                                               const struct pen_topology *topology,
                                               const struct pen_partition *partition, int kind);

#endif
