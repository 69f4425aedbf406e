/* audit.h: what memory.audit reserves in the arena of a rank. */
#ifndef PEN_LAYOUT_AUDIT_H
#define PEN_LAYOUT_AUDIT_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"

/* The bytes in which an audit recomputes an op of the rank: the outputs of the op that has the
 * most, each aligned; at least PEN_AUDIT_BYTES_LEAST. 0: memory.audit is false, or the graphs do
 * not train. runs[program]: which programs any action runs; NULL: all. */
uint64_t pen_audit_bytes(const struct pen_partition *partition, struct pen_graph *const *graph,
                         uint32_t rank, const bool *runs);

/* The bytes of a value that one stage passes to the next: with memory.audit a checksum follows. */
uint64_t pen_value_bytes_passed(const struct pen_graph *graph, uint32_t value);

#endif
