/* measured_links.h: measured costs of messages and collectives: files of version 2. */
#ifndef PEN_MEASURED_LINKS_H
#define PEN_MEASURED_LINKS_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"
#include "gen/timing/timing.h"
#include "gen/topology/topology.h"

struct json_t;

/* The lists "messages" and "collectives" of a file. */
struct pen_measured_links;

/* Either list may be NULL: without messages they cost nothing; without collectives those of the
 * topology count. Fails (65) where a list is wrong; `path`: the file, for messages. */
struct pen_measured_links *pen_measured_links_read(const char *path, const struct json_t *messages,
                                                   const struct json_t *collectives);

/* Adds the messages to the costs of stages, [stage], where the partition places them. */
void pen_measured_links_add(const struct pen_measured_links *links,
                            const struct pen_partition *partition, struct pen_graph *const *graph,
                            struct pen_stage_cost *cost);

/* The topology with the costs of collectives that were measured; `without`: there are none. */
const struct pen_topology *pen_measured_links_topology(const struct pen_measured_links *links,
                                                       const struct pen_topology *without,
                                                       const struct pen_partition *partition,
                                                       struct pen_graph *const *graph);

#endif
