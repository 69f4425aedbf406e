/* graph_equal.h: stages whose layout is the same. */
#ifndef PEN_GRAPH_EQUAL_H
#define PEN_GRAPH_EQUAL_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"

/* Whether two stages have the same buffers: they differ in names alone. */
bool pen_graphs_equal(const struct pen_partition *partition, const struct pen_graph *a,
                      const struct pen_graph *b);

#endif
