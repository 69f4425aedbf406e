/* partition_hint.h: names the time that a partition by count loses. */
#ifndef PEN_PARTITION_HINT_H
#define PEN_PARTITION_HINT_H

#include "gen/pipeline/output.h"
#include "gen/timing/measured_cost.h"

/* Prints a hint if the plan's topology divides its model by the number of layers and the same
 * schedule with partition.balance = "time" and unit = "block" takes at least 3% less time.
 * `measured`: the file of --costs; NULL: none. */
void pen_partition_hint(const struct pen_result *result, const struct pen_measured *measured);

#endif
