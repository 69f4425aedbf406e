/* muon.h: the memory in which UPDATE computes a matrix that Muon updates. */
#ifndef PEN_LAYOUT_MUON_H
#define PEN_LAYOUT_MUON_H

#include "gen/model/graph.h"
#include "gen/partition/partition.h"

/* Bytes for the largest matrix of a rank; 0: it has none, or does not train. */
uint64_t pen_muon_bytes(const struct pen_partition *partition, struct pen_graph *const *graph,
                        uint32_t rank);

#endif
