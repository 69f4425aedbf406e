/* measured_links.h: measured costs of messages and collectives. */
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

enum pen_measured_collective { PEN_MEASURED_REDUCE, PEN_MEASURED_GATHER };

/* What a collective of the replicas takes, in ms, for a stage with so many bytes of gradients;
 * below 0: it was not measured. And a byte that a replica sends to another one, by those of the
 * stage with the most, where both kinds were measured. */
double pen_measured_collective_ms(const struct pen_measured_links *links,
                                  enum pen_measured_collective kind, uint32_t ranks, double bytes);
double pen_measured_byte_ms(const struct pen_measured_links *links, uint32_t ranks, double bytes);

/* What an exchange of so many tensor ranks takes, in ms, in which each sends so many bytes to all
 * others together. Below 0: it was not measured, or links is NULL. */
double pen_measured_exchange_ms(const struct pen_measured_links *links, uint32_t ranks,
                                double sent);

/* The topology with the costs of collectives and exchanges that were measured; `given` itself:
 * there are none. */
const struct pen_topology *pen_measured_links_topology(const struct pen_measured_links *links,
                                                       const struct pen_topology *given,
                                                       const struct pen_partition *partition,
                                                       struct pen_graph *const *graph);

#endif
