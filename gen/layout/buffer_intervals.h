/* buffer_intervals.h: when the values of a stage hold their bytes. */
#ifndef PEN_BUFFER_INTERVALS_H
#define PEN_BUFFER_INTERVALS_H

#include "gen/layout/internal.h"

/* Numbers the layers of a stage (and what is before, between and after them) from 0: values made
 * one after another under one prefix. Sets layer[value] unless it is NULL; returns the count. */
uint32_t pen_number_layers(const struct pen_graph *graph, uint32_t *layer);
/* The index of the first block of the model in a stage. */
uint32_t pen_first_block(const struct pen_graph *graph);
/* Whether a stage receives its input (backward: its output's gradient) in a slot of its own. Else
 * its neighbour, on the same rank, may still read it. */
bool pen_comes_by_message(const struct pen_partition *partition, const struct pen_graph *graph,
                          bool backward);
struct pen_buffer_filling pen_start_filling(const struct pen_partition *partition,
                                            const struct pen_graph *graph,
                                            struct pen_stage_buffers *buffers);
bool pen_is_used(const struct pen_buffer_filling *f, uint32_t value);
/* When a value holds its bytes, by the base that the graph gives it. */
struct pen_interval pen_interval_of(const struct pen_buffer_filling *f, uint32_t value);
/* Puts a value into the buffer of a base, at interval->offset. */
void pen_place_value(struct pen_buffer_filling *f, int base, uint32_t value,
                     const struct pen_interval *interval);

#endif
