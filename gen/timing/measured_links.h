/* measured_links.h: measured costs of messages and collectives: files of version 2. */
#ifndef PEN_MEASURED_LINKS_H
#define PEN_MEASURED_LINKS_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/timing/measured_cost.h"

struct json_t;

/* Adds the messages to the costs of the stages, and sets measured->collectives. A file without
 * messages has messages without cost; one without collectives leaves those of the topology. Fails
 * (65) where the file is wrong. */
void pen_measured_links_read(struct pen_measured *measured, const struct json_t *root,
                             const struct pen_partition *partition, struct pen_graph *const *graph);

#endif
